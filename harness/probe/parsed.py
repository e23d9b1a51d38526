"""What the program's own parser made of the overridden settings: which are asked for, and the reader of the answers.

The files come from inside the trainer and may be cut, odd or hostile: one counts only if every field is of its kind.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from harness.record.token_formats import MASK

ENV_ASKED = "REAL_STEP_PROBE_ASKED"
SUFFIX = ".parsed.json"
FORMAT = 1
MAX_NAMES = 64
MAX_NAME = 200
MAX_FILES = 1024
MAX_FILE_BYTES = 256 * 1024
MAX_PARSES = 256


def asked_names(place: str, key: str) -> tuple[str, ...]:
    """What is asked for about an override: its flag; else its name and the config file that holds it."""
    if place.startswith("-"):
        return (place,)
    file, colon, name = place.rpartition(":")
    name = name.strip("+~= ") or key
    return (name, f"file:{file}") if colon and file else (name,)


def asked(overrides: Iterable[Mapping[str, Any]]) -> str:
    """The value of REAL_STEP_PROBE_ASKED for overrides with `key`, `value` and `place`, as they are journaled; "" for
    none. A secret, masked there, is not asked for."""
    names: dict[str, None] = {}
    for item in overrides:
        place, key = str(item.get("place") or ""), str(item.get("key"))
        if MASK not in str(item.get("value")):
            names |= dict.fromkeys(asked_names(place, key))
    return ",".join(name for name in list(names)[:MAX_NAMES]
                    if len(name) <= MAX_NAME and name.isprintable() and "," not in name)


def read_parsed(directory: Path, since: float) -> dict[str, Any]:
    """{processes: [{pid, ppid, host, program, stepped, parses}], problems} of the files written since that time.

    Each of `parses` is {name, parser, dest, given, raw, plain, value, at_step}: `given` tells whether the setting was
    among the words that were parsed and `raw` its last word there; `plain` that the parser stores that word as a
    number or a text, without code of the program's; `value` is what it returned, `at_step` what stood in its place at
    the first optimizer step, each {"value": ...} or {"object": class} or None where it was not seen.
    """
    processes, problems = [], []
    try:
        names = sorted(entry.name for entry in directory.iterdir() if entry.name.endswith(SUFFIX))
    except OSError:
        names = []
    for name in names[:MAX_FILES]:
        try:
            process = _process(_load(directory / name))
            if process.pop("updated_at") >= since:
                processes.append(process)
        except (ValueError, OSError, RecursionError, MemoryError) as error:
            problems.append(f"{name!r:.{MAX_NAME}}: {str(error)[:MAX_NAME] or type(error).__name__}")
    return {"processes": processes, "problems": problems}


def _load(path: Path) -> Any:
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0))
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("not a regular file")
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise ValueError(f"longer than {MAX_FILE_BYTES} bytes")
    return json.loads(data.decode("utf-8"), parse_constant=_no_number)


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no number")


def _process(document: Any) -> dict[str, Any]:
    """The fields of a file; ValueError names the one that is not of its kind."""
    kinds = {"pid": int, "ppid": int, "host": str, "program": str, "stepped": bool, "updated_at": (int, float)}
    found = _fields(document, kinds)
    parses = document.get("parses")
    if document.get("format") != FORMAT or not isinstance(parses, list) or len(parses) > MAX_PARSES:
        raise ValueError("format or parses is not what it has to be")
    return {**found, "parses": [_parse(item) for item in parses]}


def _parse(item: Any) -> dict[str, Any]:
    found = _fields(item, {"name": str, "parser": str, "dest": str, "given": bool, "plain": bool,
                           "raw": (str, type(None)), "value": dict, "at_step": (dict, type(None))})
    for key in ("value", "at_step"):
        if found[key] is not None and not _is_value(found[key]):
            raise ValueError(f"{key} is no value")
    return found


def _is_value(answer: dict[str, Any]) -> bool:
    if set(answer) == {"object"}:
        return _is_short(answer["object"])
    items = answer.get("value")
    return set(answer) == {"value"} and all(map(_is_scalar, items if isinstance(items, list) else [items]))


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float)) or _is_short(value)


def _is_short(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MAX_NAME and value.isprintable()


def _fields(document: Any, kinds: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise ValueError("is no object")
    for name, kind in kinds.items():
        value = document.get(name)
        odd = isinstance(value, bool) and kind is not bool
        if odd or not isinstance(value, kind) or (isinstance(value, str) and not _is_short(value)):
            raise ValueError(f"{name} is not of its kind")
    return {name: document[name] for name in kinds}
