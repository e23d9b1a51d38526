"""Hydra: KEY=VALUE words without dashes, +KEY, ++KEY and ~KEY; the config tree decides whether + is needed.

Grammar and defaults list as Hydra 1.3 documents them. The tree is composed from the YAML files only; what a
ConfigStore adds is not known, and then Hydra itself refuses a key that is not there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.command.overrides.arguments import Change, Words, options_end
from harness.command.overrides.document import EditError
from harness.command.overrides.program import HydraMain
from harness.command.overrides.synonyms import normal, synonyms
from harness.command.overrides.values import Typed

WORD = re.compile(r"(\+\+|\+|~)?([A-Za-z_$][\w.@/:$-]*)(?:=(.*))?$", re.DOTALL)
_VALUED = ("--config-name", "-cn", "--config-path", "-cp", "--config-dir", "-cd", "--package", "-p", "--info", "-i")
_SAFE = re.compile(r"[\w./\\:@%?|*+$~-]*$")
MAX_DEPTH = 20


@dataclass(slots=True)
class Tree:
    """The composed config as far as its files tell it."""

    known: bool = False
    """Whether every part of it was read."""
    values: set[str] = field(default_factory=set)
    """Dotted keys of values."""
    tables: set[str] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    """Config groups (`optimizer`, `db/mysql`): directories of choices."""


def overrides_in(words: Words) -> list[tuple[int, str, str]]:
    """(index, prefix, key) of each override word."""
    found, skip = [], False
    for index, word in enumerate(words[: options_end(words)]):
        if skip:
            skip = False
        elif word.startswith("-"):
            skip = word in _VALUED
        elif (match := WORD.match(word)) and (match.group(3) is not None or match.group(1) == "~"):
            found.append((index, match.group(1) or "", match.group(2)))
    return found


def set_pair(words: Words, key: str, value: Typed, prefix: str, *, plain: bool = False) -> Change:
    """The words with `key` set: its last word changes in place and keeps its prefix; a new one comes last.

    `plain` is for readers of bare KEY=VALUE words that know no prefixes (OmegaConf.from_cli).
    """
    sweep = any(word in ("-m", "--multirun") for word in words)
    text = value.text if plain or (sweep and "," in value.text) else quoted(value)
    found = overrides_in(words)
    same = [(index, sign) for index, sign, name in found if name == key]
    if same:
        index, sign = same[-1]
        sign = "++" if sign == "~" else sign
        new = f"{sign}{key}={text}"
        return Change(words=(*words[:index], new, *words[index + 1 :]), written=new, before=words[index])
    new = f"{prefix}{key}={text}"
    at = found[-1][0] + 1 if found else options_end(words)
    return Change(words=(*words[:at], new, *words[at:]), written=new)


def quoted(value: Typed) -> str:
    """A value that Hydra's grammar reads as it is meant."""
    text = value.text
    if value.quoted or value.type in ("list", "dict") or _SAFE.match(text):
        return text
    if text.startswith("${") and text.endswith("}"):
        return text
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def split_key(key: str) -> tuple[str, str]:
    """(prefix, bare key) of a key that a user may have given with `+`."""
    match = re.match(r"(\+\+|\+)?(.*)$", key, re.DOTALL)
    assert match is not None
    return match.group(1) or "", match.group(2)


def resolve_key(key: str, words: Words, tree: Tree) -> tuple[str, str, str | None]:
    """(full key, prefix of a new word, note) for a request. Raises EditError with the candidates."""
    prefix, bare = split_key(key)
    given = {name for _, _, name in overrides_in(words)}
    if prefix or bare in given or bare in tree.values or bare in tree.tables or bare in tree.groups:
        return bare, prefix, None
    for names in ((bare,), synonyms(bare)):
        fitting = sorted(
            {full for full in (*tree.values, *(given if not tree.known else ())) for name in names
             if full == name or (normal(full).endswith("." + normal(name)) and "." not in name)}
        )
        if len(fitting) == 1:
            return fitting[0], "", None
        if len(fitting) > 1:
            raise EditError(f"can be {', '.join(fitting[:8])}; name one of them")
    if not tree.known:
        note = f"the config tree of {bare} could not be read; if Hydra answers 'Could not override', use +{bare}"
        return bare, "", note
    parent = bare.rpartition(".")[0]
    if parent and parent in tree.tables:
        return bare, "+", f"{bare} is not in the config and is appended with +"
    raise EditError(f"is not in Hydra's config; give +{bare} to add it, or one of its keys")


def compose(main: HydraMain | None, words: Words, directory: Path) -> Tree:
    """The tree of the primary config, its defaults list and the group choices of the command line."""
    options = _options(words)
    tree = Tree()
    if main is None:
        return tree
    base = main.file.parent
    config_path = options.get("--config-path", main.config_path)
    name = options.get("--config-name", main.config_name)
    if name is None or (config_path or "").startswith("pkg:"):
        return tree
    roots = [base / config_path if config_path is not None else base]
    roots += [directory / options["--config-dir"]] if "--config-dir" in options else []
    choices = {
        key: value
        for index, sign, key in overrides_in(words)
        if sign != "~" and (value := words[index].partition("=")[2]) and "." not in key
    }
    tree.known = True
    tree.groups = {
        str(path.relative_to(root)) for root in roots if root.is_dir() for path in root.rglob("*") if path.is_dir()
    }
    _read(tree, roots, name, "", "", choices, 0)
    return tree


def _options(words: Words) -> dict[str, str]:
    short = {"-cn": "--config-name", "-cp": "--config-path", "-cd": "--config-dir"}
    found = {}
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        name = short.get(name, name)
        if name in short.values():
            found[name] = value if equals else "".join(words[index + 1 : index + 2])
    return found


def _read(
    tree: Tree, roots: list[Path], name: str, group: str, package: str, choices: dict[str, str], depth: int
) -> None:
    stem = name if name.endswith((".yaml", ".yml")) else f"{name}.yaml"
    file = next((path for root in roots if (path := root / group / stem).is_file()), None)
    data, header = _load(file) if file else (None, "")
    if data is None or depth > MAX_DEPTH:
        tree.known = False
        return
    if header == "_global_":
        package = ""
    elif header and header != "_group_":
        package = header
    for entry in data.pop("defaults", None) or []:
        for inner_group, option, inner_package in _default(entry, group, choices):
            below = inner_package if inner_package is not None else inner_group.replace("/", ".")
            _read(tree, roots, option, inner_group, below, choices, depth + 1)
    for key, kind in _keys(data, package):
        (tree.tables if kind == "table" else tree.values).add(key)
    parts = package.split(".") if package else []
    tree.tables |= {".".join(parts[: count + 1]) for count in range(len(parts))}


def _default(entry: Any, group: str, choices: dict[str, str]) -> Iterator[tuple[str, str, str | None]]:
    """(group, option, package) of an entry of a defaults list."""
    if isinstance(entry, str):
        if entry == "_self_":
            return
        place, _, option = entry.lstrip("/").rpartition("/")
        absolute = entry.startswith("/") or not group
        inner = place if absolute else "/".join(part for part in (group, place) if part)
        yield inner, option.partition("@")[0], None
    elif isinstance(entry, dict):
        for raw, option in entry.items():
            words = str(raw).split()
            name, at, package = words[-1].partition("@")
            if name.startswith("hydra/") or "override" in words[:-1]:
                continue
            absolute = name.startswith("/") or not group
            inner = name.lstrip("/") if absolute else f"{group}/{name}"
            chosen = choices.get(inner, choices.get(f"{inner}@{package}" if at else inner, option))
            for item in chosen if isinstance(chosen, list) else [chosen]:
                if item not in (None, "null", False):
                    yield inner, str(item), package if at and package != "_here_" else None


def _load(file: Path) -> tuple[dict[str, Any] | None, str]:
    """(mapping of a config file, its `# @package` header)."""
    from ruamel.yaml import YAML

    try:
        text = file.read_text(encoding="utf-8")
        yaml = YAML(typ="safe", pure=True)
        yaml.allow_duplicate_keys = True
        data = yaml.load(text)
    except Exception:
        # Any tag or syntax that is not plain data: the tree is not known.
        return None, ""
    header = re.match(r"\s*#\s*@package\s+(\S+)", text)
    return (data or {}) if isinstance(data or {}, dict) else None, header.group(1) if header else ""


def _keys(data: Any, prefix: str) -> Iterator[tuple[str, str]]:
    for key, value in data.items():
        name = f"{prefix}.{key}" if prefix else str(key)
        if isinstance(value, dict):
            yield name, "table"
            yield from _keys(value, name)
        else:
            yield name, "value"
