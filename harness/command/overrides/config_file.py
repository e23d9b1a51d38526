"""A value of a config file changed in a copy in the out-dir; the user's file is never touched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.command.configs import SUFFIXES, ConfigRef
from harness.command.model import Finding
from harness.command.overrides.conflicts import is_deepspeed, open_document
from harness.command.overrides.document import Document, EditError, KeyPath, dotted, find, fit
from harness.command.overrides.model import Flag
from harness.command.overrides.synonyms import looks_numeric, normal, synonyms
from harness.command.overrides.values import Typed, yaml_text

OVERRIDES = "hp-overrides"
"""Stem of the rewritten file in the out-dir."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """One changed value."""

    config: ConfigRef
    path: Path
    """The rewritten file."""
    text: str
    key: str
    """Dotted."""
    how: str
    notes: tuple[Finding, ...]


def documents(configs: Sequence[ConfigRef], files: Mapping[Path, str]) -> list[tuple[ConfigRef, Document]]:
    """The configs that parse; DeepSpeed's own last, since the trainer's settings win."""
    opened = [(config, document) for config in configs if (document := open_document(config, files))]
    return sorted(opened, key=lambda item: is_deepspeed(*item))


def default_config(flags: Sequence[Flag], directory: Path) -> tuple[ConfigRef, ...]:
    """The config file that a program reads where its flag is not given."""
    for flag in flags:
        named = any("config" in name or "cfg" in name for name in flag.names)
        if named and flag.default and flag.default.lower().endswith(SUFFIXES):
            path = directory / flag.default
            if path.is_file():
                return (ConfigRef(path=path, index=-1, flag=flag.names[0], given=flag.default),)
    return ()


def exact_paths(document: Document, key: str) -> list[KeyPath]:
    """Paths that are exactly the key."""
    return [path for path in document.leaves if normal(dotted(path)) == normal(key)]


def edit(
    opened: Sequence[tuple[ConfigRef, Document]],
    key: str,
    value: Typed,
    *,
    exact: bool,
    deepspeed: bool = False,
    out_dir: Path,
    files: Mapping[Path, str],
) -> Edit | None:
    """The change of the one value that `key` means by its own name, or (`exact` false) by a synonym.

    A DeepSpeed file repeats settings of the trainer, which refuses to start where they differ, so that it is looked
    at for a full dotted key only, unless `deepspeed` says that no flag is left. None where no file has the key.
    Raises EditError where several do, or where the value does not fit.
    """
    names = (key,) if exact else synonyms(key)
    candidates = [
        (config, document, path)
        for config, document in opened
        if deepspeed or "." in key or not is_deepspeed(config, document)
        for path in dict.fromkeys(path for name in names for path in find(document, name))
    ]
    whole = [item for item in candidates if normal(dotted(item[2])) == normal(key)]
    candidates = whole or candidates
    if len({config.flag for config, _, _ in candidates}) == 1 and len({dotted(p) for _, _, p in candidates}) == 1:
        # Of several files by the same flag the last one that has the value counts.
        candidates = candidates[-1:]
    if not candidates:
        return None
    if len(candidates) > 1:
        several = len(opened) > 1
        shown = [f"{dotted(path)}{f' in {config.given}' if several else ''}" for config, _, path in candidates]
        raise EditError(f"is ambiguous: it can be {', '.join(shown[:8])}; name one of them")
    config, document, path = candidates[0]
    return _edited(config, document, path, value, out_dir, files)


def _edited(
    config: ConfigRef, document: Document, path: KeyPath, value: Typed, out_dir: Path, files: Mapping[Path, str]
) -> Edit:
    key, leaf = dotted(path), document.leaves[path]
    try:
        fitting = fit(value, leaf, numeric=looks_numeric(key))
        text = document.replace(path, fitting)
    except EditError as error:
        raise EditError(f"({key} in {config.given}) {error}") from error
    target = _target(config, out_dir, files)
    written = yaml_text(fitting, None)
    was = f", was {leaf.text}" if leaf.text and leaf.text != written else ""
    how = f"written to {target.name} as {key}: {written}{was}"
    notes = (*_text_numbers(config, document), *_moved_paths(config, document, target))
    return Edit(config=config, path=target, text=text, key=key, how=how, notes=notes)


def _target(config: ConfigRef, out_dir: Path, files: Mapping[Path, str]) -> Path:
    """hp-overrides.EXT; a second file of the same suffix gets a number."""
    if config.path in files or (config.path.parent == out_dir and config.path.name.startswith(OVERRIDES)):
        return config.path
    number, target = 1, out_dir / f"{OVERRIDES}{config.path.suffix}"
    while target in files:
        number += 1
        target = out_dir / f"{OVERRIDES}-{number}{config.path.suffix}"
    return target


def _text_numbers(config: ConfigRef, document: Document) -> tuple[Finding, ...]:
    """Numbers that are text to the file's reader: `1e-4` in YAML 1.1, "1e-4" in quotes."""
    found = [
        f"{dotted(path)}: {leaf.text}"
        for path, leaf in document.leaves.items()
        if leaf.type == "number-text" and (leaf.text[:1] not in ("'", '"') or looks_numeric(dotted(path)))
    ]
    if not found:
        return ()
    why = "to PyYAML, which wants a dot and a signed exponent (1.0e-4)" if "y" in config.path.suffix else "there"
    message = f"{config.given}: {', '.join(found[:5])} is text and no number {why}; the trainer may stop over it"
    return (Finding(code="number-is-text", message=message, refuses=False),)


def _moved_paths(config: ConfigRef, document: Document, target: Path) -> tuple[Finding, ...]:
    """Paths that start at the config's own directory, which the rewritten file does not lie in."""
    here = config.path.parent
    if here == target.parent:
        return ()
    found = []
    for path, leaf in document.leaves.items():
        value = leaf.text.strip("'\"")
        looks = leaf.type == "str" and 0 < len(value) < 256 and "\n" not in value and "://" not in value
        if looks and ("/" in value or "." in value) and not value.startswith(("/", "~", "$")):
            try:
                if (here / value).exists():
                    found.append(f"{dotted(path)}: {value}")
            except (OSError, ValueError):
                continue
    if not found:
        return ()
    message = (
        f"{config.given} names {', '.join(found[:5])}, there below {here}; a trainer that reads such a path from "
        f"beside its config file does not find it beside {target}: write it absolute"
    )
    return (Finding(code="config-moved", message=message, refuses=False),)
