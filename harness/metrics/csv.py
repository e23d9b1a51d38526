"""Metrics as CSV: Lightning's metrics.csv, Keras' CSVLogger, and tables of their kind.

The header names the tags. The step is the column `step` (or one like it), else `epoch`: Keras logs once an
epoch and counts from 0. A blank cell was not logged in that row; the word nan is a NaN.
"""

from __future__ import annotations

import csv
import hashlib
import math
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

from harness.metrics.jsonl import STEP_KEYS
from harness.metrics.model import EventColumns, RestartMarker
from harness.metrics.tail import TailedFile

CHUNK_BYTES = 1 << 20
MAX_LINE_BYTES = 1 << 20
MAX_TAGS = 10_000
EPOCH_KEYS = ("epoch", "epochs")
_HEAD_BYTES = 1 << 16
_INT64 = 1 << 63


class CsvReader(TailedFile):
    """One CSV file; see SourceReader for the contract. Only lines with their line end count.

    Lightning rewrites the file when a tag appears that the header lacks; all its rows then count anew, and of
    equal steps the last one.
    """

    kind = "csv"

    def __init__(self, path: Path, *, first_offset: int = 0) -> None:
        """`first_offset`: rows before it do not count; the header is read all the same."""
        super().__init__(path, first_offset)
        self.offset = first_offset
        self.tags: list[str] = []
        self._columns: list[int | None] = []
        """Index into `tags` of each column, None for the step and for unnamed ones."""
        self._step_column: int | None = None
        self._delimiter = ","
        self._has_header = False
        self.step_unit = "step"
        """"epoch" where the header names no other step."""

    def _goes_on(self, file: FileIO) -> bool:
        file.seek(self.offset - len(self._guard))
        if file.read(len(self._guard)) == self._guard:
            return True
        if self.first_offset:
            return super()._goes_on(file)
        self.offset, self._guard, self._digest, self._has_header = 0, b"", hashlib.sha256(), False
        file.seek(0)
        return True

    def _read(self, file: FileIO, *, final: bool) -> Iterator[EventColumns | RestartMarker]:
        if not self._has_header and not self._read_header(file):
            return
        file.seek(self.offset)
        rest = b""
        while block := file.read(CHUNK_BYTES):
            data = rest + block
            end = data.rfind(b"\n") + 1
            if end:
                yield from self._take(data[:end])
            rest = data[end:]
            if len(rest) > MAX_LINE_BYTES:
                self._report_once("oversized", self.offset, f"a line of more than {MAX_LINE_BYTES} bytes")
                self._consume(rest)
                rest = b""

    def _read_header(self, file: FileIO) -> bool:
        """False while there is no whole first line, or none that names a step."""
        file.seek(0)
        head = file.read(_HEAD_BYTES)
        end = head.find(b"\n") + 1
        if not end:
            return False
        header = parse_header(head[:end])
        self._has_header = True
        if self.offset < end:
            self._consume(head[self.offset : end])
        if header is None:
            self._report_once("not-parsable", 0, f"no header with a step: {head[: min(end, 80)]!r}")
            self._columns = []
            return False
        self._delimiter, names, self._step_column = header
        self.step_unit = "epoch" if names[self._step_column].lower() in EPOCH_KEYS else "step"
        known = {tag: index for index, tag in enumerate(self.tags)}
        self._columns = []
        for column, name in enumerate(names[:MAX_TAGS]):
            if column == self._step_column or not name:
                self._columns.append(None)
                continue
            self._columns.append(known.setdefault(name, len(known)))
        self.tags[:] = list(known)
        return True

    def _take(self, data: bytes) -> Iterator[EventColumns]:
        columns = EventColumns(list(self.tags), [], [], [], [])
        lines = data.decode("utf-8", "backslashreplace").splitlines()
        for row in self._rows(lines):
            self._row(row, columns)
        self._consume(data)
        if columns.tag:
            yield columns

    def _rows(self, lines: list[str]) -> list[list[str]]:
        """The cells of each line; a line that the parser refuses (NUL, a cell of 128 KiB) is passed over."""
        try:
            return list(csv.reader(lines, delimiter=self._delimiter))
        except csv.Error as error:
            if len(lines) > 1:
                return [row for line in lines for row in self._rows([line])]
            self._report_once("not-parsable", self.offset, str(error))
            return []

    def _row(self, row: list[str], columns: EventColumns) -> None:
        if not row or self._step_column is None:
            return
        step = _step(row[self._step_column]) if self._step_column < len(row) else None
        if step is None:
            self._report_once("not-parsable", self.offset, f"a row without a step: {','.join(row)[:80]}")
            return
        for column, cell in enumerate(row[: len(self._columns)]):
            tag = self._columns[column]
            value = _number(cell) if tag is not None else None
            if tag is not None and value is not None:
                columns.tag.append(tag)
                columns.step.append(step)
                columns.value.append(value)
                columns.wall_time.append(0.0)


def parse_header(line: bytes) -> tuple[str, list[str], int] | None:
    """(delimiter, names, index of the step's column); None for what is no header of metrics."""
    text = line.decode("utf-8-sig", "replace").strip()
    delimiter = max(",;\t", key=text.count)
    try:
        names = [name.strip() for name in next(csv.reader([text], delimiter=delimiter), [])]
    except csv.Error:
        return None
    if len(names) < 2 or any(_number(name) is not None for name in names):
        return None
    lowered = [name.lower() for name in names]
    for key in (*STEP_KEYS, *EPOCH_KEYS):
        if key in lowered:
            return delimiter, names, lowered.index(key)
    return None


def looks_like_csv_metrics(path: Path) -> bool | None:
    """Whether the header names a step or an epoch; None while there is no whole line yet."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        return None
    end = head.find(b"\n") + 1
    if not end:
        return False if len(head) == _HEAD_BYTES else None
    return parse_header(head[:end]) is not None


def _step(cell: str) -> int | None:
    number = _number(cell)
    if number is None or not math.isfinite(number) or not number.is_integer():
        return None
    return int(number) if abs(number) < _INT64 else None


def _number(cell: str) -> float | None:
    """None for a blank cell and for text; nan and inf are numbers."""
    if not cell.strip():
        return None
    try:
        return float(cell.strip().removeprefix("tensor(").removesuffix(")"))
    except ValueError:
        return None
