"""Metrics as JSON lines: one object a line, a step, numbers under flat keys or one level deeper."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from io import FileIO
from pathlib import Path
from typing import Any

from harness.metrics.model import EventColumns, RestartMarker
from harness.metrics.tail import TailedFile

CHUNK_BYTES = 1 << 20
MAX_LINE_BYTES = 1 << 20
MAX_TAGS = 100_000
STEP_KEYS = ("step", "global_step", "iteration", "iter", "_step")
"""The first of them that a line holds is its step."""
TIME_KEYS = ("time", "timestamp", "wall_time", "_timestamp")
_EPOCH_FROM = 1e9
"""Smaller numbers under a time key are durations, and metrics like any other (1e9 s is September 2001)."""
_MILLISECONDS_FROM = 1e11
_WORDS = {"nan": math.nan, "inf": math.inf, "infinity": math.inf, "-inf": -math.inf, "-infinity": -math.inf}
_INT64 = 1 << 63
_LOOK_AT_BYTES = 1 << 16
_LOOK_AT_LINES = 5
_LOSS = re.compile(r"^(.*/)?((train|training|total|step)[_-])?loss$", re.IGNORECASE)
_EVALUATION = re.compile(r"(^|[/_.-])(eval|evaluation|val|valid|validation|test|dev)([/_.-]|$)", re.IGNORECASE)
"""Keys that a row without an evaluation leaves empty."""
_DENSE_FROM = 2
"""A tag with fewer numbers in a row may be one that is measured now and then, and null in between."""

_NUMBER_TEXT = re.compile(r"\s*[-+]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][-+]?[0-9]{1,4})?\s*")
"""A number between quotes: some programs log their values as formatted text."""
_BARE_NONFINITE = re.compile(rb"(?<=[:,\[\s])(-?(?:nan|inf|infinity))(?=\s*[,}\]])", re.I)
"""What a program that formats its rows by hand writes for NaN and infinities: Python's own spelling."""
_AS_JSON = {b"nan": b"NaN", b"-nan": b"NaN", b"inf": b"Infinity", b"infinity": b"Infinity", b"-inf": b"-Infinity",
            b"-infinity": b"-Infinity"}
_NUMBERS = frozenset({int, float})
MAX_SHAPES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """Rows of the same keys in the same order, all of them numbers."""

    step: int
    """Place of the step among the keys."""
    wall: int | None
    places: tuple[int, ...]
    """Of the metrics."""
    tags: tuple[str, ...]


class JsonlReader(TailedFile):
    """One file of JSON lines; see SourceReader for the contract. Problems give the byte offset of the
    line."""

    kind = "jsonl"

    def __init__(self, path: Path, *, first_offset: int = 0) -> None:
        """`first_offset`: nothing before it is read; the line that it falls into does not count."""
        super().__init__(path, first_offset)
        self.offset = first_offset
        self.tags: list[str] = []
        self._tag_index: dict[str, int] = {}
        self._in_a_row: dict[str, int] = {}
        """How many numbers a tag had since it was null."""
        self._has_step = False
        """Whether a row of the file has a step, so that an epoch is none."""
        self._has_epoch_rows = False
        self._shapes: dict[tuple[str, ...], _Shape] = {}
        self._discarding = False
        self._fresh_start = first_offset == 0

    @property
    def step_unit(self) -> str:
        """"epoch" where the rows so far have an epoch and no step."""
        return "epoch" if self._has_epoch_rows and not self._has_step else "step"

    def _read(self, file: FileIO, *, final: bool) -> Iterator[EventColumns | RestartMarker]:
        if not self._fresh_start:
            self._begin_at_line(file)
        rest, block = b"", b""
        while (final or len(block) in (0, CHUNK_BYTES)) and (block := file.read(CHUNK_BYTES)):
            data = rest + block
            end = data.rfind(b"\n") + 1
            if end:
                yield from self._take(data[:end])
            rest = data[end:]
            if len(rest) > MAX_LINE_BYTES or (rest and self._discarding):
                self._oversized()
                self._discarding = True
                self._consume(rest)
                rest = b""
        if final and rest and not self._discarding and _parse(rest) is not None:
            yield from self._take(rest)

    def _begin_at_line(self, file: FileIO) -> None:
        """Bytes that were appended to an unfinished line belong to no row."""
        self._fresh_start = True
        file.seek(self.first_offset - 1)
        self._discarding = file.read(1) != b"\n"

    def _take(self, data: bytes) -> Iterator[EventColumns]:
        """Whole lines."""
        columns = EventColumns(self.tags, [], [], [], [])
        position = self.offset
        for line in data.splitlines(keepends=True) if b"\r" not in data else _lines(data):
            if self._discarding:
                self._discarding = False
            elif len(line) > MAX_LINE_BYTES:
                self._oversized(position)
            elif line.strip():
                self._row(line, position, columns)
            position += len(line)
        self._consume(data)
        if columns.tag:
            yield columns

    def _row(self, line: bytes, position: int, columns: EventColumns) -> None:
        row = _parse(line)
        if row is not None and self._is_known(row, columns):
            return
        if row is None:
            self._report_once("not-parsable", position, f"no JSON object: {line[:80]!r}")
            return
        has_null = b"null" in line
        dense = [tag for tag, count in self._in_a_row.items() if count >= _DENSE_FROM] if has_null else ()
        found = row_metrics(row, frozenset(dense))
        self._has_step |= found is not None
        if found is None and not self._has_step:
            found = row_metrics(epoch_as_step(row), frozenset(dense))
            self._has_epoch_rows |= found is not None
        if found is None:
            return
        step, wall, metrics = found
        self._learn(row, step, wall, metrics)
        for tag, item in _items(row) if has_null else ():
            if item is None and tag not in metrics:
                self._in_a_row.pop(tag, None)
        for tag, value in metrics.items():
            index = self._tag_index.get(tag)
            if index is None:
                if len(self.tags) >= MAX_TAGS:
                    self._report_once(
                        "oversized", position, f"more than {MAX_TAGS} tags; the rest is left out"
                    )
                    continue
                index = self._tag_index[tag] = len(self.tags)
                self.tags.append(
                    tag.encode("utf-8", "backslashreplace").decode()
                )  # lone surrogates cannot be stored
            self._in_a_row[tag] = self._in_a_row.get(tag, 0) + 1
            columns.tag.append(index)
            columns.step.append(step)
            columns.value.append(value)
            columns.wall_time.append(wall)

    def _is_known(self, row: dict[str, Any], columns: EventColumns) -> bool:
        """Take a row of numbers whose keys were met before; False where it has to be looked at."""
        shape = self._shapes.get(tuple(row))
        if shape is None:
            return False
        values = list(row.values())
        if not _NUMBERS.issuperset(map(type, values)):
            return False
        step, wall = values[shape.step], 0.0 if shape.wall is None else values[shape.wall]
        if type(step) is not int or not -_INT64 <= step < _INT64:
            return False
        if shape.wall is not None and not _EPOCH_FROM <= wall < _MILLISECONDS_FROM:
            return False
        try:
            numbers = [float(values[place]) for place in shape.places]
        except OverflowError:
            return False
        indices, counts = [], self._in_a_row
        for tag in shape.tags:
            counts[tag] = counts.get(tag, 0) + 1
            indices.append(self._tag_index[tag])
        columns.tag.extend(indices)
        columns.step.extend([step] * len(numbers))
        columns.value.extend(numbers)
        columns.wall_time.extend([float(wall)] * len(numbers))
        return True

    def _learn(self, row: dict[str, Any], step: int, wall: float, metrics: dict[str, float]) -> None:
        """Remember the keys of a row of numbers, where each of them is a metric, its step or its only time."""
        keys = tuple(row)
        times = [key for key in keys if key in TIME_KEYS]
        steps = [key for key in STEP_KEYS if key in row]
        rest = tuple(key for key in keys if key not in steps and not (wall and key in times))
        if len(self._shapes) >= MAX_SHAPES or not steps or len(times) > 1 or tuple(metrics) != rest:
            return
        if not _NUMBERS.issuperset(map(type, row.values())) or row[steps[0]] != step:
            return
        if (times and not wall) or len(self._tag_index) + len(rest) > MAX_TAGS:
            return
        self._shapes[keys] = _Shape(step=keys.index(steps[0]), wall=keys.index(times[0]) if times else None,
                                    places=tuple(map(keys.index, rest)), tags=rest)

    def _oversized(self, position: int | None = None) -> None:
        self._report_once(
            "oversized",
            self.offset if position is None else position,
            f"a line of more than {MAX_LINE_BYTES} bytes was passed over",
        )


def row_metrics(
    row: Mapping[str, Any], numeric: Container[str] = ()
) -> tuple[int, float, dict[str, float]] | None:
    """(step, wall time or 0.0, {tag: value}) of a line; None where it has no step.

    A nested mapping's keys are joined with "/". Booleans, lists and text that is no number are no metrics.
    Some encoders write NaN as null: under the only loss, or a tag that has numbers in each row (`numeric`), null is
    NaN, unless it is an evaluation's tag or row, where it says that nothing was measured. A time without a zone is no
    clock: it may be local or UTC.
    """
    step = next((_step(row[key]) for key in STEP_KEYS if key in row), None)
    if step is None:
        return None
    wall, metrics, empty = 0.0, {}, []
    for tag, item in _items(row):
        if tag in TIME_KEYS and (time := _wall_time(item)) is not None:
            wall = wall or time
        elif (number := _number(item)) is not None:
            metrics[tag] = number
        elif item is None and (tag in numeric or _LOSS.match(tag)) and not _EVALUATION.search(tag):
            empty.append(tag)
    if empty and not any(map(_EVALUATION.search, metrics)):
        has_loss = any(map(_LOSS.match, metrics))
        metrics.update(
            (tag, math.nan)
            for tag in empty
            if tag.rpartition("/")[2] != "epoch" and (tag in numeric or not has_loss)
        )
    return step, wall, metrics


def epoch_as_step(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row with its whole number of epochs as its step, too, where it has no other: some loops log once an epoch."""
    epoch = _step(row["epoch"]) if "epoch" in row else None
    return row if epoch is None or not row.keys().isdisjoint(STEP_KEYS) else {**row, "step": epoch}


def _items(row: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """(tag, what stands under it), one level deep, without the step."""
    for key, value in row.items():
        if key in STEP_KEYS:
            continue
        if isinstance(value, dict):
            yield from ((f"{key}/{inner}", item) for inner, item in value.items())
        else:
            yield key, value


def looks_like_metrics(path: Path) -> bool | None:
    """Whether one of the first lines is a row of metrics; None while the file holds no whole line yet."""
    try:
        with path.open("rb") as file:
            head = file.read(_LOOK_AT_BYTES)
    except OSError:
        return None
    lines = head.split(b"\n")[:-1][:_LOOK_AT_LINES]
    rows = [_parse(line) for line in lines if len(line) <= MAX_LINE_BYTES]
    found = [row_metrics(epoch_as_step(row)) for row in rows if row is not None]
    if any(row is not None and row[2].keys() - {"epoch"} for row in found):
        return True
    return False if len(lines) == _LOOK_AT_LINES or len(head) == _LOOK_AT_BYTES else None


def _lines(data: bytes) -> list[bytes]:
    """Lines ended by \\n alone: a lone carriage return ends no line."""
    return [line + b"\n" for line in data.split(b"\n")[:-1]] + (
        [] if data.endswith(b"\n") else [data.rpartition(b"\n")[2]]
    )


def _parse(line: bytes) -> dict[str, Any] | None:
    row = _loaded(line)
    if row is None and _BARE_NONFINITE.search(line):
        row = _loaded(_BARE_NONFINITE.sub(lambda match: _AS_JSON[match[1].lower()], line))
    return row


def _loaded(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _step(value: Any) -> int | None:
    if isinstance(value, str) and _NUMBER_TEXT.fullmatch(value):
        value = int(value) if value.strip().lstrip("+-").isdigit() else float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, float) and not value.is_integer():
        return None
    return int(value) if -_INT64 <= value < _INT64 else None


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    if not isinstance(value, str):
        return None
    return float(value) if _NUMBER_TEXT.fullmatch(value) else _WORDS.get(value.strip().lower().removeprefix("+"))


def _wall_time(value: Any) -> float | None:
    number = _number(value)
    if number is not None:
        if not math.isfinite(number) or number < _EPOCH_FROM:
            return None
        return number / 1000 if number >= _MILLISECONDS_FROM else number
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value.strip().replace("Z", "+00:00"))
        return moment.timestamp() if moment.tzinfo is not None else None
    except (ValueError, OverflowError, OSError):
        return None
