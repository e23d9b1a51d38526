"""A config file as text with the place of every value: a change replaces one value's text and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from harness.command.overrides.synonyms import normal
from harness.command.overrides.values import Typed, as_bool, as_int_text, plain_data

KeyPath = tuple[str | int, ...]
"""Where a value stands: keys of tables, indices of lists."""
SCALARS = ("int", "float", "bool", "null", "str", "number-text")


class EditError(Exception):
    """A value cannot be changed there; the message says why and what to write instead, `remedy` the exact words."""

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.remedy = remedy


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """One value of a config."""

    type: str
    """int, float, bool, null, str, number-text (a number that is text to a strict reader), list or dict."""
    text: str
    """As it stands in the file."""
    line: int = 0
    """From 1; 0 where it is not known."""


class Document(Protocol):
    """One parsed config text."""

    @property
    def leaves(self) -> Mapping[KeyPath, Leaf]:
        """Every value, tables and lists too, in the order of the file."""
        ...

    def replace(self, path: KeyPath, value: Typed) -> str:
        """The text with one value changed. Raises EditError."""
        ...


def load(text: str, suffix: str) -> Document:
    """The document of a text that parses (`configs.text_problem` said so). Raises EditError for what cannot be."""
    from harness.command.overrides.json_text import JsonDocument
    from harness.command.overrides.toml_text import TomlDocument
    from harness.command.overrides.yaml_text import YamlDocument

    if suffix == ".json":
        return JsonDocument(text)
    return TomlDocument(text) if suffix == ".toml" else YamlDocument(text)


def dotted(path: KeyPath) -> str:
    """`a.b.0.c`."""
    return ".".join(str(part) for part in path)


def find(document: Document, key: str) -> list[KeyPath]:
    """Paths that `key` can mean: the exact path alone where there is one, else every path that ends with it."""
    wanted = normal(key)
    exact = [path for path in document.leaves if dotted(path) == key] or [
        path for path in document.leaves if normal(dotted(path)) == wanted
    ]
    if exact:
        return exact
    tail = "." + wanted
    return [
        path
        for path, leaf in document.leaves.items()
        if normal(dotted(path)).endswith(tail) and leaf.type != "dict"
    ]


def fit(value: Typed, leaf: Leaf, *, numeric: bool) -> Typed:
    """The value as the type that the setting has: an int stays an int, a switch takes true or false.

    Raises EditError where the value is no such thing.
    """
    if leaf.type == "dict" and value.type != "dict":
        raise EditError("is a table; name a setting inside it")
    if leaf.type == "list" and value.type not in ("list", "null"):
        raise EditError(f"is a list; give [{value.text}]")
    if value.quoted:
        return value
    if leaf.type == "bool":
        switch = as_bool(value)
        if switch is None:
            if value.type == "str":
                return value
            raise EditError("is a switch; give true or false")
        return Typed(type="bool", data=switch, text=value.text)
    if leaf.type == "int" and value.type == "float" and (whole := as_int_text(value)) is not None:
        return Typed(type="int", data=int(whole), text=whole)
    quoted = leaf.type in ("str", "number-text") and leaf.text[:1] in ("'", '"')
    if quoted and value.type in ("int", "float", "bool") and not numeric:
        # A quoted text stays one: a revision "123", a version "1.0", a mode "false".
        return Typed(type="str", data=value.text, text=value.text)
    if numeric and leaf.type in ("int", "float") and value.type == "bool":
        raise EditError(f"is a number; {value.text} is none")
    return value


def same_but(before: Mapping[KeyPath, Leaf], after: Mapping[KeyPath, Leaf], path: KeyPath) -> bool:
    """Whether two documents differ in nothing but the value at `path`."""

    def others(leaves: Mapping[KeyPath, Leaf]) -> dict[KeyPath, Any]:
        kept = {where: leaf for where, leaf in leaves.items() if where[: len(path)] != path}
        # A table's own text holds that of its values.
        return {
            where: (leaf.type, "" if leaf.type in ("dict", "list") else leaf.text)
            for where, leaf in kept.items()
        }

    return others(before) == others(after)


def shown(value: Typed) -> str:
    """A value for a message."""
    return value.text if value.type in ("list", "dict") else str(plain_data(value))
