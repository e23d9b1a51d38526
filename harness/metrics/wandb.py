"""W&B's offline run files, `wandb/offline-run-*/run-ID.wandb`: read while they grow, without the wandb package.

A header of seven bytes (":W&B", the magic 0xBEE1, a version), then records in the framing of LevelDB's log format:
blocks of 32 KiB, in which each piece has the CRC-32 of its type and data, its length and its type. A record is a
protobuf message; of it only history rows, summary, configuration, start and exit are looked at, by field number
(wandb_internal.proto, checked against wandb 0.31).
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Any

from harness.metrics.jsonl import STEP_KEYS, row_metrics
from harness.metrics.model import EventColumns, RestartMarker, SourceProblem
from harness.metrics.tail import TailedFile
from harness.metrics.wire import Field, fields, number_of, text_of

CHUNK_BYTES = 1 << 20
MAX_RECORD_BYTES = 64 << 20
MAX_TAGS = 10_000
MAX_FACTS = 10_000
"""Keys that are kept of a configuration, and of a summary."""
_HEADER = b":W&B"
_HEADER_BYTES = 7
_BLOCK = 32 << 10
_PIECE = struct.Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_HISTORY, _SUMMARY, _CONFIG, _RUN, _EXIT = 2, 3, 5, 17, 18
_EXIT_CODE = 1
_RUN_CONFIG, _RUN_START = 4, 17
_KEY, _NESTED_KEY, _VALUE_JSON = 1, 2, 16
_BOOLEAN, _INTEGER, _NUMBER, _TEXT, _JSON = 4, 5, 6, 7, 8
_INT32, _SIGN = (1 << 32) - 1, 1 << 31
GLOBAL_STEP_KEYS = ("train/global_step", "trainer/global_step")
"""Under which Transformers and Lightning log their step; W&B's own counts calls of log()."""


class WandbReader(TailedFile):
    """One run file; see SourceReader for the contract. A damaged piece ends the reading."""

    kind = "wandb"

    def __init__(self, path: Path, *, first_offset: int = 0) -> None:
        """`first_offset`: nothing before it is read; it lies between two records."""
        super().__init__(path, first_offset)
        self.offset = first_offset
        self.tags: list[str] = []
        self.config: dict[str, Any] = {}
        """The run's configuration, as far as it was read."""
        self.summary: dict[str, Any] = {}
        """The last summary value of each key, nested ones joined with "/"."""
        self.exit_code: int | None = None
        """Of the program, as the run file's last record tells it; None while there is none."""
        self.counts_calls = False
        """Whether the steps are W&B's count of calls, which need not be the trainer's steps."""
        self._index: dict[str, int] = {}
        self._global_step: int | None = None
        self._next_call: int | None = None
        """The step of the next row, while W&B counts its calls."""
        self._in_every_row: set[str] | None = None
        self._num_rows = 0

    def problems(self, *, final: bool = False) -> list[SourceProblem]:
        """See SourceReader; also that the steps are none of the trainer."""
        found = super().problems(final=final)
        if self.counts_calls:
            message = "the steps count calls of log(): no row holds the trainer's own step"
            found.append(self._problem("steps-unknown", None, message))
        return found

    def _read(self, file: FileIO, *, final: bool) -> Iterator[EventColumns | RestartMarker]:
        rest = b""
        while block := file.read(CHUNK_BYTES):
            data = rest + block
            columns = EventColumns(self.tags, [], [], [], [])
            end = 0
            for record, after in self._records(data):
                self._take(record, columns)
                end = after
            self._consume(data[:end])
            rest = data[end:]
            if columns.tag:
                yield columns
            if len(rest) > MAX_RECORD_BYTES and not self.ended:
                self._end("oversized", self.offset, f"a record of more than {MAX_RECORD_BYTES} bytes")
            if self.ended:
                return

    def _records(self, data: bytes) -> Iterator[tuple[bytes, int]]:
        """(record, where it ends in `data`) of whole records; `data` begins at `offset`."""
        position, pieces = 0, b""
        if self.offset == 0:
            if len(data) < _HEADER_BYTES:
                return
            if not data.startswith(_HEADER):
                self._end("not-parsable", 0, "no run file of W&B")
                return
            position = _HEADER_BYTES
        while True:
            left = _BLOCK - (self.offset + position) % _BLOCK
            if left < _PIECE.size:
                position += left
            if position + _PIECE.size > len(data):
                return
            crc, length, kind = _PIECE.unpack_from(data, position)
            start = position + _PIECE.size
            body = data[start : start + length]
            if len(body) < length or (kind == 0 and length == 0):
                return
            if zlib.crc32(body, zlib.crc32(bytes([kind]))) != crc:
                self._end("bad-crc", self.offset + position, "the checksum of a record does not fit")
                return
            position = start + length
            pieces = body if kind in (_FULL, _FIRST) else pieces + body
            if kind in (_FULL, _LAST):
                yield pieces, position
                pieces = b""

    def _take(self, record: bytes, columns: EventColumns) -> None:
        try:
            for item in fields(record):
                if item.number == _HISTORY:
                    self._row(item.data, columns)
                elif item.number == _SUMMARY:
                    _update(self.summary, _items(item.data))
                elif item.number == _CONFIG:
                    _update(self.config, _items(item.data))
                elif item.number == _RUN:
                    self._run(item.data)
                elif item.number == _EXIT:
                    told = next((part.value for part in fields(item.data) if part.number == _EXIT_CODE), 0)
                    self.exit_code = (told & _INT32) - ((told & _SIGN) << 1)
        except ValueError as error:
            self._report_once("not-parsable", self.offset, f"no record of W&B: {error}")

    def _run(self, data: bytes) -> None:
        for item in fields(data):
            if item.number == _RUN_CONFIG:
                _update(self.config, _items(item.data))
            elif item.number == _RUN_START:
                parts = {part.number: part.value for part in fields(item.data)}
                self.opened_at = parts.get(1, 0) + parts.get(2, 0) * 1e-9

    def _row(self, data: bytes, columns: EventColumns) -> None:
        row = dict(_items(data))
        found = row_metrics(self._with_step(row))
        if found is None:
            return
        step, wall, metrics = found
        self._look_at_steps(step, metrics)
        for tag, value in metrics.items():
            if tag.startswith("_") or tag in GLOBAL_STEP_KEYS:
                continue
            index = self._index.get(tag)
            if index is None:
                if len(self.tags) >= MAX_TAGS:
                    self._report_once("oversized", self.offset, f"more than {MAX_TAGS} tags; the rest is left out")
                    continue
                index = self._index[tag] = len(self.tags)
                self.tags.append(tag.encode("utf-8", "backslashreplace").decode())
            columns.tag.append(index)
            columns.step.append(step)
            columns.value.append(value)
            columns.wall_time.append(wall)

    def _look_at_steps(self, step: int, metrics: dict[str, float]) -> None:
        """Steps that rise by one with each row while no tag is in every row count calls of log(), not steps."""
        tags = {tag for tag in metrics if not tag.startswith("_")}
        self._in_every_row = tags if self._in_every_row is None else self._in_every_row & tags
        self._num_rows += 1
        counts_calls = self._global_step is None and self._next_call in (None, step)
        self._next_call = step + 1 if counts_calls else -1
        self.counts_calls = counts_calls and self._num_rows > 1 and not self._in_every_row

    def _with_step(self, row: dict[str, Any]) -> dict[str, Any]:
        """The row under the trainer's own step; a row without it belongs to the one before."""
        for key in GLOBAL_STEP_KEYS:
            value = row.get(key)
            if isinstance(value, int | float) and not isinstance(value, bool) and float(value).is_integer():
                self._global_step = int(value)
        if self._global_step is None:
            return row
        return {**{key: value for key, value in row.items() if key not in STEP_KEYS}, "step": self._global_step}


def _update(kept: dict[str, Any], items: Iterator[tuple[str, Any]]) -> None:
    for key, value in items:
        if key in kept or len(kept) < MAX_FACTS:
            kept[key] = value


def _items(data: bytes) -> Iterator[tuple[str, Any]]:
    """(key, value) of a history row, a summary or a configuration."""
    for item in fields(data):
        if item.number != 1:
            continue
        parts = list(fields(item.data))
        nested = [text_of(part) for part in parts if part.number == _NESTED_KEY]
        key = "/".join(nested) or next((text_of(part) for part in parts if part.number == _KEY), "")
        if key:
            yield key, _value(parts)


def _value(parts: list[Field]) -> Any:
    for part in parts:
        if part.number in (_VALUE_JSON, _JSON):
            try:
                return json.loads(text_of(part))
            except (ValueError, RecursionError):
                return None
        if part.number == _NUMBER:
            return number_of(part)
        if part.number == _INTEGER:
            return (part.value >> 1) ^ -(part.value & 1)
        if part.number == _BOOLEAN:
            return bool(part.value)
        if part.number == _TEXT:
            return text_of(part)
    return None
