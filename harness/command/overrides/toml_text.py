"""TOML by tomlkit, which keeps every byte that is not changed."""

from __future__ import annotations

import json
from typing import Any

from harness.command.overrides.document import EditError, KeyPath, Leaf, same_but
from harness.command.overrides.values import Typed, float_text, read_value


class TomlDocument:
    """A TOML text. TOML has no null."""

    def __init__(self, text: str) -> None:
        import tomlkit

        self.text = text
        self._leaves: dict[KeyPath, Leaf] = {}
        self._walk(tomlkit.parse(text), ())

    @property
    def leaves(self) -> dict[KeyPath, Leaf]:
        """Every value, tables and lists too, in the order of the file."""
        return self._leaves

    def _walk(self, item: Any, path: KeyPath) -> None:
        if isinstance(item, dict):
            self._note(item, path, "dict")
            for key, value in item.items():
                self._walk(value, (*path, str(key)))
        elif isinstance(item, list):
            self._note(item, path, "list")
            for index, value in enumerate(item):
                self._walk(value, (*path, index))
        else:
            self._note(item, path, _type(item))

    def _note(self, item: Any, path: KeyPath, kind: str) -> None:
        if path:
            text = "" if kind == "dict" else _text(item)
            self._leaves[path] = Leaf(type=kind, text=text)

    def replace(self, path: KeyPath, value: Typed) -> str:
        """The text with one value changed; comments and the kind of quote stay."""
        import tomlkit

        document: Any = tomlkit.parse(self.text)
        parent = document
        for part in path[:-1]:
            parent = parent[part]
        literal = _literal(value, self._leaves[path].text)
        parent[path[-1]] = tomlkit.parse(f"x = {literal}\n")["x"]
        text = tomlkit.dumps(document)
        if not same_but(self._leaves, TomlDocument(text).leaves, path):
            raise EditError("cannot be changed alone in this file")
        return text


def _type(item: Any) -> str:
    value = item.unwrap() if hasattr(item, "unwrap") else item
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "number-text" if read_value(value).type in ("int", "float") else "str"
    return {int: "int", float: "float"}.get(type(value), "date")


def _text(item: Any) -> str:
    return item.as_string() if hasattr(item, "as_string") else str(item)


def _literal(value: Typed, before: str) -> str:
    if value.type == "null":
        raise EditError("cannot be null: TOML has no such value")
    if value.type == "dict":
        raise EditError("cannot take a table; name a setting inside it")
    if value.type == "float":
        return float_text(value.data)
    if value.type == "list":
        return "[" + ", ".join(_element(item) for item in value.data) + "]"
    if value.type == "str":
        text = str(value.data)
        literal = before[:1] == "'" and "'" not in text and text.isprintable()
        return f"'{text}'" if literal else _basic(text)
    return json.dumps(value.data)


def _element(item: Any) -> str:
    if item is None or isinstance(item, dict):
        raise EditError("cannot take null or a table inside a list")
    if isinstance(item, list):
        return "[" + ", ".join(_element(part) for part in item) + "]"
    if isinstance(item, str):
        return _basic(item)
    return float_text(repr(item)) if isinstance(item, float) else json.dumps(item)


def _basic(text: str) -> str:
    """A basic string; TOML wants DEL escaped, which JSON does not."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
