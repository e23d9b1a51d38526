"""The settings that a trainer really used, from the files in which trainers write them down."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.frameworks.base import EffectiveValue, Written
from harness.frameworks.settings import read_config

MAX_BYTES = 4 << 20
MAX_VALUES = 2000
MAX_ENTRIES = 20_000
MAX_DEPTH = 6
MAX_ITEMS = 32
"""Longer lists are data, no setting."""
_ARGS_TAG = "args/text_summary"
_MAX_RECORDS = 200
_NOT_ENTERED = frozenset({".git", "__pycache__", "node_modules", ".venv", "site-packages", "wandb"})


def find_written(roots: Iterable[str | Path], names: Iterable[str], written: Written) -> list[Path]:
    """Files of these names (a `*` at one end stands for anything) that the run wrote, newest first."""
    wanted = tuple(names)
    found: set[Path] = set()
    for root in dict.fromkeys(Path(root) for root in roots):
        for path in _files(root):
            if any(_fits(path.name, name) for name in wanted) and written(path):
                found.add(path)
    return sorted(found, key=lambda path: (-_time(path), str(path)))


def _fits(name: str, wanted: str) -> bool:
    if wanted.endswith("*"):
        return name.startswith(wanted[:-1])
    return name.endswith(wanted[1:]) if wanted.startswith("*") else name == wanted


def _time(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _files(root: Path) -> Iterator[Path]:
    waiting, left = [(root, 0)], MAX_ENTRIES
    while waiting:
        folder, depth = waiting.pop()
        try:
            entries = sorted(folder.iterdir())
        except OSError:
            continue
        for entry in entries:
            left -= 1
            if left < 0:
                return
            if entry.is_dir() and not entry.is_symlink():
                if depth < MAX_DEPTH and entry.name not in _NOT_ENTERED:
                    waiting.append((entry, depth + 1))
            elif entry.is_file():
                yield entry


def config_values(path: Path) -> dict[str, EffectiveValue]:
    """The scalars of a YAML, JSON or TOML file under dotted keys, `a.0.b` in a list of tables; a short list of scalars
    as JSON text."""
    return values_of(read_config(path), str(path), lists=True)


def values_of(document: Any, source: str, *, lists: bool = False) -> dict[str, EffectiveValue]:
    """The scalars of nested mappings under dotted keys; with `lists` a short list of them, too, as JSON text, and
    the tables of a list under their index."""
    found: dict[str, EffectiveValue] = {}
    for key, value in _leaves(document, lists=lists):
        if len(found) >= MAX_VALUES:
            break
        if _is_scalar(value):
            found[key] = EffectiveValue(value=value, source=source)
        elif lists and isinstance(value, list | tuple) and len(value) <= MAX_ITEMS and all(map(_is_scalar, value)):
            found[key] = EffectiveValue(value=json.dumps(list(value)), source=source)
    return found


def _leaves(node: Any, path: str = "", depth: int = 0, *, lists: bool) -> Iterator[tuple[str, Any]]:
    items: Iterable[tuple[Any, Any]] = node.items() if isinstance(node, Mapping) else ()
    if lists and isinstance(node, list) and len(node) <= MAX_ITEMS and any(isinstance(item, Mapping) for item in node):
        items = enumerate(node)
    if items and depth < 10:
        for key, value in items:
            yield from _leaves(value, f"{path}.{key}" if path else str(key), depth + 1, lists=lists)
    elif path:
        yield path, node


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float | bool)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file with bare NaN allowed; empty for what cannot be read."""
    try:
        if path.stat().st_size > MAX_BYTES:
            return {}
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def event_file_arguments(path: Path) -> dict[str, EffectiveValue]:
    """TrainingArguments as Transformers writes them into its event file: JSON text under `args/text_summary`."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES)
    except OSError:
        return {}
    for record in _records(data):
        if _ARGS_TAG.encode() not in record:
            continue
        text = _text_of(record)
        if text is None:
            continue
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            continue
        return values_of(document, str(path), lists=True)
    return {}


def _records(data: bytes) -> Iterator[bytes]:
    """Records of an event file: length, its checksum, data, its checksum; reading metrics compares checksums."""
    position = 0
    for _ in range(_MAX_RECORDS):
        if position + 12 > len(data):
            return
        (length,) = struct.unpack_from("<Q", data, position)
        end = position + 12 + length
        if end > len(data):
            return
        yield data[position + 12 : end]
        position = end + 4


def _text_of(record: bytes) -> str | None:
    from tensorboard.compat.proto.event_pb2 import Event

    try:
        event = Event.FromString(record)
    except Exception:  # protobuf has its own errors, by implementation
        return None
    for value in event.summary.value:
        if value.tag == _ARGS_TAG and value.tensor.string_val:
            return str(value.tensor.string_val[0].decode("utf-8", "replace"))
    return None
