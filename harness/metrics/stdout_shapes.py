"""Rows of one shape: a program prints the same keys again and again, so that only their numbers need parsing."""

from __future__ import annotations

import re
from dataclasses import dataclass

from harness.metrics.jsonl import STEP_KEYS
from harness.metrics.stdout_lines import Row, slack_of

MAX_SHAPES = 8
_NUMBER = re.compile(rb"(?<=[ '])[-+]?(?:[0-9][0-9.]*(?:[eE][-+]?[0-9]+)?|nan|inf)(?=['},])")
_PLAIN = re.compile(rb"\{'[A-Za-z_][\w/.]{0,100}': .{1,4000}\}\s?")
_SLACKS = tuple(0.5 * 10.0**-decimals for decimals in range(20))
"""By the number of decimals."""
_GROUP = rb"([-+0-9.eEnaif]{1,40})"


@dataclass(frozen=True, slots=True)
class _Shape:
    pattern: re.Pattern[bytes]
    tags: tuple[str, ...]
    epoch: int
    """Index of the epoch among the tags."""
    is_quoted: bool
    """Whether the epoch stands in quotes."""


class RowShapes:
    """Learns the shapes of rows that the parser has read; a row of another shape is left to it."""

    def __init__(self) -> None:
        self._shapes: list[_Shape] = []

    def read(self, raw: bytes) -> Row | None:
        """The row, where it has a known shape: a dict with an epoch and without a step."""
        for index, shape in enumerate(self._shapes):
            match = shape.pattern.fullmatch(raw)
            if match is None:
                continue
            if index:
                self._shapes.insert(0, self._shapes.pop(index))
            return _row(shape, match.groups())
        return None

    def learn(self, raw: bytes, row: Row) -> None:
        """Remember the shape of a row that was read in full."""
        if _PLAIN.fullmatch(raw) is None or row.epoch is None or row.step is not None or not set(row.values).isdisjoint(
                STEP_KEYS):
            return
        numbers = list(_NUMBER.finditer(raw))
        if [float(number[0]) for number in numbers] != list(row.values.values()):
            return  # also where one is NaN: another row will do
        pieces, position = [], 0
        for number in numbers:
            pieces.append(re.escape(raw[position : number.start()]))
            position = number.end()
        tags = tuple(row.values)
        epoch = tags.index("epoch")
        shape = _Shape(re.compile(_GROUP.join([*pieces, re.escape(raw[position:])])), tags, epoch,
                       raw[numbers[epoch].end() :][:1] == b"'")
        self._shapes = [shape, *self._shapes][:MAX_SHAPES]


def _row(shape: _Shape, texts: tuple[bytes, ...]) -> Row | None:
    try:
        values = dict(zip(shape.tags, map(float, texts), strict=True))
    except ValueError:
        return None
    epoch = values["epoch"]
    if not 0 < epoch < 1e9:
        return None
    return Row(values=values, epoch=epoch, epoch_slack=_slack(texts[shape.epoch], is_quoted=shape.is_quoted))


def _slack(text: bytes, *, is_quoted: bool) -> float:
    """As slack_of tells it."""
    point = text.find(b".")
    decimals = len(text) - 1 - point
    if is_quoted or point < 0 or not 2 <= decimals < len(_SLACKS) or not text.replace(b".", b"", 1).isdigit():
        return slack_of(text.decode(), quoted=is_quoted)
    return _SLACKS[decimals]
