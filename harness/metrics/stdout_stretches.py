"""Where lines of known shapes stand in a piece of output, found by one search, and what they say by column."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import compress
from typing import NamedTuple

from harness.metrics.stdout_rows import MixedRows, Rows, rows_of
from harness.metrics.stdout_shapes import Shape

_SPARSE = 2
"""Where fewer than one of so many lines holds a sign, only those around it are searched."""


class Stretch(NamedTuple):
    """Lines of known shapes that follow each other."""

    start: int
    end: int
    rows: Rows | MixedRows


class Lines:
    """The lines of some shapes in whole lines of output."""

    def __init__(self, shapes: Sequence[Shape], data: bytes) -> None:
        """`shapes`: at least one."""
        pattern = _any_of(tuple(shape.line.pattern for shape in shapes))
        parts, stride = pattern.split(data), pattern.groups + 1
        self.gaps: list[bytes] = parts[::stride]
        """What stands before each line, and behind the last."""
        self.lines: list[bytes] = parts[1::stride]
        self._shapes = shapes
        self._texts: list[list[list[bytes]]] = []
        """For each shape, the texts of each of its numbers in its lines."""
        firsts, place = [], 2
        for shape in shapes:
            columns = [parts[number::stride] for number in range(place, place + shape.line.groups)]
            place += shape.line.groups
            firsts.append(columns[0])
            self._texts.append(columns if len(shapes) == 1 else [list(filter(None, column)) for column in columns])
        self._kinds = _kinds(firsts)
        self._every = [rows_of(shape, texts) for shape, texts in zip(shapes, self._texts, strict=True)]
        self._place, self._past = 0, [0] * len(shapes)

    def rows(self, first: int, end: int) -> Rows | MixedRows | None:
        """Those of some lines, none of which was asked for before; None where one of them has to be looked at alone."""
        kinds = self._kinds[first:end]
        begins = [past + self._kinds.count(kind, self._place, first) for kind, past in enumerate(self._past)]
        ends = [begin + kinds.count(kind) for kind, begin in enumerate(begins)]
        self._place, self._past = end, ends
        told = [kind for kind in range(len(ends)) if ends[kind] > begins[kind]]
        found: list[Rows] = []
        for kind in told:
            rows = self._rows_of(kind, begins[kind], ends[kind])
            if rows is None:
                return None
            found.append(rows)
        if len(found) == 1:
            return found[0]
        if len(found) < len(ends):
            kinds = kinds.translate(bytes(told.index(kind) if kind in told else 0 for kind in range(256)))
        return MixedRows(kinds=kinds, groups=tuple(found))

    def _rows_of(self, kind: int, begin: int, end: int) -> Rows | None:
        every = self._every[kind]
        if every is not None:
            return every.part(begin, end)
        return rows_of(self._shapes[kind], [texts[begin:end] for texts in self._texts[kind]])


def _kinds(firsts: Sequence[Sequence[bytes | None]]) -> bytes:
    """For each line which of the shapes it has, by the text of the first number of each."""
    if len(firsts) == 1:
        return bytes(len(firsts[0]))
    if len(firsts) == 2:
        return bytes(map(operator.not_, firsts[0]))
    kinds = bytearray(len(firsts[0]))
    for kind, texts in enumerate(firsts):
        for place in compress(range(len(texts)), texts):
            kinds[place] = kind
    return bytes(kinds)


@lru_cache(maxsize=64)
def _any_of(patterns: tuple[bytes, ...]) -> re.Pattern[bytes]:
    """A line of any of them with its end, as the first group."""
    return re.compile(b"((?:" + b"|".join(patterns) + b")\n)")


def often(shapes: Sequence[Shape], data: bytes, fewest: int, begin: int = 0) -> list[Shape]:
    """Those whose sign stands so often in the data, the most frequent first."""
    counts = [(data.count(shape.sign, begin), shape) for shape in shapes]
    return [shape for count, shape in sorted(counts, key=lambda one: -one[0]) if count >= fewest]


def stretches_in(data: bytes, shapes: Sequence[Shape], fewest: int) -> Iterator[Stretch]:
    """Where in whole lines at least so many of known shapes follow each other, in their order."""
    many = often(shapes, data, fewest)
    if not many:
        return
    if _SPARSE * sum(data.count(shape.sign) for shape in many) > data.count(b"\n"):
        yield from _stretches_of(data, many, fewest)
        return
    for begin, end in _clumps(data, many, fewest):
        for start, stop, rows in _stretches_of(data[begin:end], many, fewest):
            yield Stretch(begin + start, begin + stop, rows)


def _clumps(data: bytes, shapes: Sequence[Shape], fewest: int) -> Iterator[tuple[int, int]]:
    """(start, end) of at least so many lines in a row that hold a sign."""
    ends: dict[int, int] = {}
    for shape in shapes:
        at = data.find(shape.sign)
        while at >= 0:
            end = data.find(b"\n", at) + 1 or len(data)
            ends[data.rfind(b"\n", 0, at) + 1] = end
            at = data.find(shape.sign, end)
    first, lines, last = 0, 0, -1
    for start in [*sorted(ends), -1]:
        if start == last:
            lines += 1
        else:
            if lines >= fewest:
                yield first, last
            first, lines = start, 1
        last = ends.get(start, -1)


def _stretches_of(data: bytes, shapes: Sequence[Shape], fewest: int) -> Iterator[Stretch]:
    found = Lines(shapes, data)
    gaps, lines, first, at = found.gaps, found.lines, 0, 0
    for place in [*(place for place, gap in enumerate(gaps[:-1]) if gap), len(lines)]:
        end = at + sum(map(len, lines[first:place]))
        if first < place and gaps[first] and not gaps[first].endswith(b"\n"):
            at += len(lines[first])  # it begins within a line
            first += 1
        if place - first >= fewest:
            rows = found.rows(first, place)
            if rows is not None:
                yield Stretch(at, end, rows)
        first, at = place, end + len(gaps[place])
