"""Typed access to the JSON that a probe wrote in a process of anybody: what is not of its kind is named."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

MAX_LISTED = 16
MAX_TEXT = 256
MAX_COUNT = 2**63 - 1
T = TypeVar("T")


class Fields:
    """Typed access to a JSON object; ValueError names the field that is not of its kind."""

    def __init__(self, value: object, where: str) -> None:
        if not isinstance(value, dict):
            raise ValueError(f"{where or 'content'} is not an object")
        self._values = value
        self._where = where

    def _get(self, name: str, kind: str, ok: Callable[[Any], bool]) -> Any:
        value = self._values.get(name)
        if not ok(value):
            raise ValueError(f"{self._where}{name} is not {kind}")
        return value

    def count(self, name: str) -> int:
        """A whole number from 0."""
        return int(self._get(name, "a count", lambda v: type(v) is int and 0 <= v <= MAX_COUNT))

    def time(self, name: str) -> float:
        """Seconds since the epoch."""
        return float(self._get(name, "a time", lambda v: type(v) in (int, float) and _is_time(v)))

    def number(self, name: str) -> float:
        """A finite number."""
        return float(self._get(name, "a number", lambda v: type(v) in (int, float) and math.isfinite(v)))

    def flag(self, name: str) -> bool:
        """True or False."""
        return bool(self._get(name, "a flag", lambda v: type(v) is bool))

    def text(self, name: str, limit: int = MAX_TEXT) -> str:
        """A printable text of bounded length."""
        return str(self._get(name, "a short text", lambda value: is_text(value, limit)))

    def items(self, name: str, limit: int) -> list[Any]:
        """A list of at most `limit` values of any kind."""
        return list(self._get(name, "a short list", lambda value: type(value) is list and len(value) <= limit))

    def texts(self, name: str) -> tuple[str, ...]:
        """A short list of short texts."""
        values = self._get(name, "a short list", lambda v: type(v) is list and len(v) <= MAX_LISTED)
        if not all(map(is_text, values)):
            raise ValueError(f"{self._where}{name} holds what is no short text")
        return tuple(values)

    def counts(self, name: str) -> tuple[int, ...]:
        """A short list of whole numbers from 0."""
        values = self._get(name, "a short list", lambda v: type(v) is list and len(v) <= MAX_LISTED)
        if not all(type(value) is int and 0 <= value <= MAX_COUNT for value in values):
            raise ValueError(f"{self._where}{name} holds what is no count")
        return tuple(values)

    def numbers(self, name: str) -> tuple[float, ...]:
        """A short list of finite numbers."""
        values = self._get(name, "a short list", lambda v: type(v) is list and len(v) <= MAX_LISTED)
        if not all(type(value) in (int, float) and math.isfinite(value) for value in values):
            raise ValueError(f"{self._where}{name} holds what is no number")
        return tuple(map(float, values))

    def object(self, name: str) -> Fields:
        """A nested object."""
        return Fields(self._values.get(name), f"{name}.")

    def objects(self, name: str, limit: int = MAX_LISTED) -> list[Fields]:
        """A list of at most `limit` objects."""
        values = self._get(name, "a short list", lambda v: type(v) is list and len(v) <= limit)
        return [Fields(value, f"{name}.") for value in values]

    def optional(self, name: str, read: Callable[[str], T]) -> T | None:
        """None where the field is null or absent, else what `read` gives."""
        return None if self._values.get(name) is None else read(name)


def _is_time(value: float) -> bool:
    return 0 <= value <= 1e12 and math.isfinite(value)


def is_text(value: object, limit: int = MAX_TEXT) -> bool:
    """Whether a value is a printable text of at most `limit` characters."""
    return isinstance(value, str) and len(value) <= limit and value.isprintable()
