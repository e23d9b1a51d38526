"""JSON with the place of every value."""

from __future__ import annotations

import json.decoder
import re
from typing import Any

from harness.command.overrides.document import EditError, KeyPath, Leaf, same_but
from harness.command.overrides.values import Typed, json_text, read_value

_BLANK = re.compile(r"[ \t\r\n\ufeff]*")
_BARE = re.compile(r"-?(?:Infinity|NaN|[0-9][0-9.eE+-]*)|true|false|null")


class JsonDocument:
    """A JSON text. Of a key that is given twice the last one counts, as every parser has it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._leaves: dict[KeyPath, Leaf] = {}
        self._spans: dict[KeyPath, tuple[int, int]] = {}
        self._value(_blank(text, 0), ())

    @property
    def leaves(self) -> dict[KeyPath, Leaf]:
        """Every value, tables and lists too, in the order of the file."""
        return self._leaves

    def replace(self, path: KeyPath, value: Typed) -> str:
        """The text with one value changed, numbers as numbers."""
        start, stop = self._spans[path]
        text = self.text[:start] + json_text(value) + self.text[stop:]
        if not same_but(self._leaves, JsonDocument(text).leaves, path):
            raise EditError("cannot be changed alone in this file")
        return text

    def _value(self, start: int, path: KeyPath) -> int:
        character = self.text[start]
        if character == "{":
            stop = self._object(start, path)
        elif character == "[":
            stop = self._array(start, path)
        elif character == '"':
            stop = _string(self.text, start)[1]
        else:
            match = _BARE.match(self.text, start)
            if match is None:
                raise EditError(f"is in a file that is no JSON at character {start}")
            stop = match.end()
        text = self.text[start:stop]
        self._spans[path] = (start, stop)
        self._leaves.pop(path, None)
        self._leaves[path] = Leaf(type=_type(text), text=text, line=self.text.count("\n", 0, start) + 1)
        return stop

    def _object(self, start: int, path: KeyPath) -> int:
        index = _blank(self.text, start + 1)
        while self.text[index] != "}":
            key, index = _string(self.text, index)
            index = _blank(self.text, index)
            below = (*path, key)
            for known in [known for known in self._leaves if known[: len(below)] == below]:
                del self._leaves[known]
            index = _blank(self.text, self._value(_blank(self.text, index + 1), below))
            if self.text[index] == ",":
                index = _blank(self.text, index + 1)
        return index + 1

    def _array(self, start: int, path: KeyPath) -> int:
        index, number = _blank(self.text, start + 1), 0
        while self.text[index] != "]":
            index = _blank(self.text, self._value(index, (*path, number)))
            number += 1
            if self.text[index] == ",":
                index = _blank(self.text, index + 1)
        return index + 1


def _blank(text: str, index: int) -> int:
    match = _BLANK.match(text, index)
    assert match is not None
    return match.end()


def _string(text: str, start: int) -> tuple[str, int]:
    found: Any = json.decoder.scanstring(text, start + 1)  # type: ignore[attr-defined]
    return str(found[0]), int(found[1])


def _type(text: str) -> str:
    if text[0] == "{":
        return "dict"
    if text[0] == "[":
        return "list"
    if text[0] == '"':
        inner = read_value(text[1:-1])
        return "number-text" if inner.type in ("int", "float") else "str"
    return read_value(text).type
