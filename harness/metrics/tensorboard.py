"""TensorBoard event files, read incrementally.

A file is a sequence of TFRecords that hold `tensorboard.Event` messages. Every checksum is checked.

Decoding an Event in Python costs more than everything else together, and nearly all events of a file differ
only in time, step and value. So a record is split into wall_time, step, the bytes between, and its last four
bytes. The bytes between are a template: once `learn` has shown that with them the last four bytes are the
float32 value of one scalar, every record with the same template is read without protobuf, many at a time. All
else goes through protobuf.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.metrics.model import EventColumns, RestartMarker
from harness.metrics.tail import TailedFile
from harness.metrics.tensors import tensor_scalar
from harness.metrics.tfrecord import (
    FOOTER_BYTES,
    HEADER_BYTES,
    Frames,
    extend_crc,
    frame,
    gather,
    is_zero,
    mask,
)

if TYPE_CHECKING:
    import numpy as np

CHUNK_BYTES = 1 << 20
MAX_RECORD_BYTES = 16 << 20
"""Larger records (videos, graphs) are checked and passed over without being held in memory."""
MAX_TAGS = 100_000
_MAX_TEMPLATES = 4096
_SCALARS = "scalars"
_SESSION_START = 1

_PATTERNS = (b"\x5a\xc3\x96\x3f", b"\xa5\x3c\x69\xc0")


@functools.cache
def _event_class() -> Any:
    """tensorboard's generated message class, imported only when an event file is read."""
    from tensorboard.compat.proto.event_pb2 import Event

    return Event


Row = tuple[int, int, float, float]
"""Tag index, step, value, wall_time."""


class TensorBoardReader(TailedFile):
    """One event file; see SourceReader for the contract."""

    kind = "tensorboard"

    def __init__(self, path: Path, *, first_offset: int = 0) -> None:
        """`first_offset`: events of records that begin before it are read for their metadata and not given
        out."""
        super().__init__(path, first_offset)
        self.tags: list[str] = []
        self._tag_index: dict[str, int] = {}
        self._plugins: dict[str, str] = {}
        self._templates: dict[bytes, int] = {}
        self._lengths: dict[bytes, int] = {}

    def _read(self, file: FileIO, *, final: bool) -> Iterator[EventColumns | RestartMarker]:
        rest, self._padded, self._needed = b"", False, 0
        while True:
            block = file.read(max(CHUNK_BYTES, self._needed - len(rest)))
            if not block:
                return
            buffer = rest + block if rest else block
            frames = frame(buffer, self._lengths, MAX_RECORD_BYTES)
            if frames.consumed:
                yield from self._take(buffer, frames)
            rest = buffer[frames.consumed :]
            self._needed = frames.needed
            if frames.stop == "large":
                if not self._pass_over(file):
                    return
                rest, self._needed = b"", 0
            elif frames.stop:
                self._stop_at(file, frames.stop, rest)
                return
            elif self.offset + self._needed > self._size:
                return

    def _take(self, buffer: bytes, frames: Frames) -> Iterator[EventColumns | RestartMarker]:
        """Decode the records, drop those from before first_offset, and move on."""
        base = self.offset
        old = sum(base + start - HEADER_BYTES < self.first_offset for start in frames.starts)
        if old:
            for _ in self._decode(buffer, frames.starts[:old], frames.lengths[:old]):
                pass
            end = base + frames.starts[old - 1] + frames.lengths[old - 1] + FOOTER_BYTES
            self.first_offset = max(self.first_offset, end)
        counted = max(0, self.first_offset - base)
        results = self._decode(buffer, frames.starts[old:], frames.lengths[old:])
        self._consume(buffer[: frames.consumed], skip=counted)
        yield from results

    def _stop_at(self, file: FileIO, stop: str, rest: bytes) -> None:
        """A CRC does not fit: a preallocated tail that is not written yet, or damage."""
        if stop == "header":
            written = 0 if not any(rest[:HEADER_BYTES]) else 8
        else:
            written = HEADER_BYTES + int.from_bytes(rest[:8], "little")
        if is_zero(file, self.offset + written):
            self._padded = True
            return
        self._end(
            "bad-crc", self.offset, f"the checksum of a record's {stop} does not fit; reading ends here"
        )

    def _pass_over(self, file: FileIO) -> bool:
        """Check an oversized record in pieces; False where it is not whole yet, or damaged."""
        length = self._needed - HEADER_BYTES - FOOTER_BYTES
        if self.offset + self._needed > self._size:
            return False
        file.seek(self.offset)
        digest = self._digest.copy()
        digest.update(file.read(HEADER_BYTES))
        crc, left = 0, length
        while left:
            piece = file.read(min(left, CHUNK_BYTES))
            if not piece:
                return False
            crc = extend_crc(crc, piece)
            digest.update(piece)
            left -= len(piece)
        footer = file.read(FOOTER_BYTES)
        digest.update(footer)
        if int.from_bytes(footer, "little") != mask(crc):
            self._end(
                "bad-crc", self.offset, "the checksum of an oversized record does not fit; reading ends here"
            )
            return False
        if self.offset < self.first_offset:
            self.first_offset = max(self.first_offset, self.offset + self._needed)
        else:
            self._digest = digest
        self.offset += self._needed
        self._guard = footer
        return True

    # -- decoding

    def _decode(
        self, buffer: bytes, starts: list[int], lengths: list[int]
    ) -> list[EventColumns | RestartMarker]:
        if not starts:
            return []
        import numpy as np

        raw = np.frombuffer(buffer, np.uint8)
        start, length = np.array(starts, np.int64), np.array(lengths, np.int64)
        wall, step, body = _split(raw, start, length)
        end = start + length - 4
        begins, ends = np.where(body > 0, start + body, end).tolist(), end.tolist()
        get = self._templates.get
        tag = [get(buffer[a:b], -1) for a, b in zip(begins, ends, strict=True)]
        odd: dict[int, list[Row] | RestartMarker] = {}
        if -1 in tag:
            for index, known in enumerate(tag):
                if known < 0:
                    known = tag[index] = get(buffer[begins[index] : ends[index]], -1)
                    if known < 0:
                        data = buffer[starts[index] : starts[index] + lengths[index]]
                        odd[index] = self._parse(data, int(body[index]), starts[index])
        with np.errstate(invalid="ignore"):  # a signalling NaN is a NaN like any other
            value = gather(raw, np.maximum(end, 0), 4).view("<f4")[:, 0].astype(np.float64)
        columns = tag, step.tolist(), value.tolist(), wall.tolist()
        return [EventColumns(self.tags, *columns)] if not odd else self._interleave(columns, odd)

    def _interleave(
        self,
        columns: tuple[list[Any], ...],
        odd: dict[int, list[Row] | RestartMarker],
    ) -> list[EventColumns | RestartMarker]:
        """Put what protobuf gave between what the templates gave, in the order of the file."""
        result: list[EventColumns | RestartMarker] = []
        current: tuple[list[Any], ...] = ([], [], [], [])
        done = 0
        parts: list[tuple[int, list[Row] | RestartMarker]] = [*odd.items(), (len(columns[0]), [])]
        for index, found in parts:
            for target, column in zip(current, columns, strict=True):
                target.extend(column[done:index])
            done = index + 1
            if isinstance(found, RestartMarker):
                result += [EventColumns(self.tags, *current), found]
                current = ([], [], [], [])
                continue
            for event in found:
                for target, item in zip(current, event, strict=True):
                    target.append(item)
        result.append(EventColumns(self.tags, *current))
        return [part for part in result if isinstance(part, RestartMarker) or part.tag]

    def _parse(self, data: bytes, body: int, start: int) -> list[Row] | RestartMarker:
        """Events of one record by protobuf: (tag index, step, value, wall_time)."""
        event = _event(data)
        if event is None:
            self._report_once(
                "not-parsable",
                self.offset + start - HEADER_BYTES,
                "a record with intact checksums is no Event",
            )
            return []
        what = event.WhichOneof("what")
        wall = _finite(event.wall_time)
        if what == "file_version" and not self.opened_at:
            self.opened_at = wall
        if what == "session_log" and event.session_log.status == _SESSION_START:
            return RestartMarker(event.step)
        if what != "summary":
            return []
        scalars = [(value.tag, self._scalar(value)) for value in event.summary.value]
        found = [
            (self._index_of(tag), event.step, scalar, wall) for tag, scalar in scalars if scalar is not None
        ]
        found = [row for row in found if row[0] >= 0]
        if body > 0 and len(scalars) == 1 and len(found) == 1:
            self._learn(data, body, event)
        return found

    def _scalar(self, value: Any) -> float | None:
        """The number that a Summary.Value holds; None for everything that is no scalar."""
        if value.HasField("metadata"):
            self._plugins.setdefault(value.tag, value.metadata.plugin_data.plugin_name)
        which = value.WhichOneof("value")
        if which == "simple_value":
            return float(value.simple_value)
        if which == "tensor" and self._plugins.get(value.tag, "") in ("", _SCALARS):
            number = tensor_scalar(value.tensor)
            if number is not None:
                self._plugins.setdefault(
                    value.tag, _SCALARS
                )  # once a scalar, always one: templates rely on it
            return number
        return None

    def _index_of(self, tag: str) -> int:
        index = self._tag_index.get(tag)
        if index is None:
            if len(self.tags) >= MAX_TAGS:
                self._report_once(
                    "oversized", self.offset, f"more than {MAX_TAGS} tags; the rest is left out"
                )
                return -1
            index = self._tag_index[tag] = len(self.tags)
            self.tags.append(tag)
        return index

    def _learn(self, data: bytes, body: int, event: Any) -> None:
        """Remember the template if its last four bytes are shown to be the value and nothing else.

        The rest of the record must be one field, the summary. Then any record of this template decodes to the
        same message apart from these four bytes, and two decodings with other bytes there show what they are.
        """
        if len(self._templates) >= _MAX_TEMPLATES or data[body] != 0x2A or not _spans(data, body + 1):
            return
        (scalar,) = event.summary.value
        for pattern in _PATTERNS:
            other = _event(data[:-4] + pattern)
            if other is None or (other.step, other.wall_time, len(other.summary.value)) != (
                event.step,
                event.wall_time,
                1,
            ):
                return
            (changed,) = other.summary.value
            if changed.tag != scalar.tag or self._scalar(changed) != struct.unpack("<f", pattern)[0]:
                return
        self._templates[data[body:-4]] = self._tag_index[scalar.tag]


def _event(data: bytes) -> Any:
    """The Event that the bytes encode, or None."""
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        return _event_class().FromString(data)
    except DecodeError:
        return None


def _finite(wall: float) -> float:
    return wall if abs(wall) < float("inf") else 0.0


def _spans(data: bytes, position: int) -> bool:
    """Whether the varint at `position` is the length of all that follows it."""
    length = shift = 0
    for index in range(position, min(position + 10, len(data))):
        length |= (data[index] & 0x7F) << shift
        shift += 7
        if data[index] < 0x80:
            return index + 1 + length == len(data)
    return False


def _split(
    raw: np.ndarray[Any, Any],
    start: np.ndarray[Any, Any],
    length: np.ndarray[Any, Any],
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """(wall_time, step, size of both fields) of records that begin with wall_time and a step of up to five
    bytes.

    Field 1 is a fixed64 (key 0x09), field 2 a varint (0x10) that is left out for step 0; 0x2A begins the
    summary. The size is 0 where a record begins otherwise.
    """
    import numpy as np

    head = gather(raw, start, 15)
    window = head[:, 10:15]
    last = window < 0x80
    width = last.argmax(axis=1) + 1
    digit = np.arange(5)
    step = (((window & 0x7F).astype(np.int64) << (7 * digit)) * (digit < width[:, None])).sum(axis=1)
    stepless = head[:, 9] == 0x2A
    stepped = (head[:, 9] == 0x10) & last.any(axis=1)
    usable = (head[:, 0] == 0x09) & (length >= 16) & (stepless | stepped)
    body = np.where(usable, np.where(stepless, 9, 10 + width), 0)
    wall = np.nan_to_num(
        np.ascontiguousarray(head[:, 1:9]).view("<f8")[:, 0], nan=0.0, posinf=0.0, neginf=0.0
    )
    return wall, np.where(stepless, 0, step), body
