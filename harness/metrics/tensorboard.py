"""TensorBoard event files, read incrementally.

A file is a sequence of TFRecords: length (uint64), masked CRC-32C of the length, data, masked CRC-32C of the data, all
little-endian (tensorflow/core/lib/io/record_writer.h). Every CRC is checked. Data are `tensorboard.Event` messages.

Decoding an Event in Python costs more than everything else together, and nearly all events of a file differ only in
time, step and value. So a record is split into wall_time, step, the bytes between, and its last four bytes. The bytes
between are a template: once `learn` has shown that with them the last four bytes are the float32 value of one scalar,
every record with the same template is read without protobuf, many at a time. All else goes through protobuf.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from harness.metrics.model import EventColumns, RestartMarker
from harness.metrics.tail import TailedFile

if TYPE_CHECKING:
    import numpy as np

CHUNK_BYTES = 1 << 20
MAX_RECORD_BYTES = 16 << 20
"""Larger records (videos, graphs) are checked and passed over without being held in memory."""
MAX_TAGS = 100_000
_MAX_CACHED = 4096
_MASK_DELTA = 0xA282EAD8
_HEADER = 12
_FOOTER = 4
_SCALARS = "scalars"
_SESSION_START = 1

# dtype number of tensorflow/core/framework/types.proto -> struct format of tensor_content, field of single values
_DTYPES = {
    1: ("<f", "float_val"), 2: ("<d", "double_val"), 3: ("<i", "int_val"), 4: ("<B", "int_val"),
    5: ("<h", "int_val"), 6: ("<b", "int_val"), 9: ("<q", "int64_val"), 10: ("<?", "bool_val"),
    17: ("<H", "int_val"), 19: ("<e", "half_val"), 22: ("<I", "uint32_val"), 23: ("<Q", "uint64_val"),
}
_BFLOAT16, _HALF = 14, 19
_PATTERNS = (b"\x5a\xc3\x96\x3f", b"\xa5\x3c\x69\xc0")


def masked_crc(data: bytes) -> int:
    """CRC-32C as TFRecord stores it: rotated right by 15 bits, plus a constant."""
    crc = _codec()[1](data)
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF


@functools.cache
def _codec() -> tuple[Any, Callable[[bytes], int], Callable[[int, bytes], int]]:
    """Event class and CRC functions, imported only when an event file is read."""
    import google_crc32c
    from tensorboard.compat.proto.event_pb2 import Event

    return Event, google_crc32c.value, google_crc32c.extend


Row = tuple[int, int, float, float]
"""Tag index, step, value, wall_time."""


class _Frames(NamedTuple):
    """Whole, intact records of a buffer, and why framing stopped."""

    starts: list[int]
    """Offsets of the data."""
    lengths: list[int]
    consumed: int
    stop: str
    """'' at the end of the buffer, "header" or "data" at a CRC that does not fit, "large" at an oversized record."""
    needed: int
    """Bytes of the record at `consumed` from its start to its end; 0 where its header is not whole."""


class TensorBoardReader(TailedFile):
    """One event file; see SourceReader for the contract."""

    kind = "tensorboard"

    def __init__(self, path: Path, *, first_offset: int = 0) -> None:
        """`first_offset`: events of records that begin before it are read for their metadata and not given out."""
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
            frames = self._frame(buffer)
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

    def _frame(self, buffer: bytes) -> _Frames:
        """Records of the buffer up to the first one that is not whole or not intact."""
        crc, known = _codec()[1], self._lengths
        starts: list[int] = []
        lengths: list[int] = []
        crcs: list[int] = []
        position, size, stop, needed = 0, len(buffer), "", 0
        while position + _HEADER <= size:
            header = buffer[position : position + _HEADER]
            length = known.get(header)
            if length is None:
                if int.from_bytes(header[8:], "little") != masked_crc(header[:8]):
                    stop = "header"
                    break
                length = int.from_bytes(header[:8], "little")
                if len(known) < _MAX_CACHED:
                    known[header] = length
            if length > MAX_RECORD_BYTES:
                stop, needed = "large", length + _HEADER + _FOOTER
                break
            start = position + _HEADER
            end = start + length
            if end + _FOOTER > size:
                needed = end + _FOOTER - position
                break
            crcs.append(crc(buffer[start:end]))
            starts.append(start)
            lengths.append(length)
            position = end + _FOOTER
        good = _count_intact(buffer, starts, lengths, crcs)
        if good < len(starts):
            position, stop, needed = starts[good] - _HEADER, "data", 0
        return _Frames(starts[:good], lengths[:good], position, stop, needed)

    def _take(self, buffer: bytes, frames: _Frames) -> Iterator[EventColumns | RestartMarker]:
        """Decode the records, drop those from before first_offset, and move on."""
        base = self.offset
        old = sum(base + start - _HEADER < self.first_offset for start in frames.starts)
        if old:
            for _ in self._decode(buffer, frames.starts[:old], frames.lengths[:old]):
                pass
            self.first_offset = base + frames.starts[old - 1] + frames.lengths[old - 1] + _FOOTER
        counted = max(0, self.first_offset - base)
        results = self._decode(buffer, frames.starts[old:], frames.lengths[old:])
        self._consume(buffer[: frames.consumed], skip=counted)
        yield from results

    def _stop_at(self, file: FileIO, stop: str, rest: bytes) -> None:
        """A CRC does not fit: a preallocated tail that is not written yet, or damage."""
        if stop == "header":
            written = 0 if not any(rest[:_HEADER]) else 8
        else:
            written = _HEADER + int.from_bytes(rest[:8], "little")
        if _is_zero(file, self.offset + written):
            self._padded = True
            return
        self._end("bad-crc", self.offset, f"the checksum of a record's {stop} does not fit; reading ends here")

    def _pass_over(self, file: FileIO) -> bool:
        """Check an oversized record in pieces; False where it is not whole yet, or damaged."""
        extend, length = _codec()[2], self._needed - _HEADER - _FOOTER
        if self.offset + self._needed > self._size:
            return False
        file.seek(self.offset)
        digest = self._digest.copy()
        digest.update(file.read(_HEADER))
        crc, left = 0, length
        while left:
            piece = file.read(min(left, CHUNK_BYTES))
            if not piece:
                return False
            crc = extend(crc, piece)
            digest.update(piece)
            left -= len(piece)
        footer = file.read(_FOOTER)
        digest.update(footer)
        if int.from_bytes(footer, "little") != (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF:
            self._end("bad-crc", self.offset, "the checksum of an oversized record does not fit; reading ends here")
            return False
        if self.offset < self.first_offset:
            self.first_offset = max(self.first_offset, self.offset + self._needed)
        else:
            self._digest = digest
        self.offset += self._needed
        self._guard = footer
        return True

    # -- decoding

    def _decode(self, buffer: bytes, starts: list[int], lengths: list[int]) -> list[EventColumns | RestartMarker]:
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
        value = _gather(raw, np.maximum(end, 0), 4).view("<f4")[:, 0].astype(np.float64)
        columns = tag, step.tolist(), value.tolist(), wall.tolist()
        return [EventColumns(self.tags, *columns)] if not odd else self._interleave(columns, odd)

    def _interleave(self, columns: tuple[list[Any], ...],
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
            self._report_once("not-parsable", self.offset + start - _HEADER,
                              "a record with intact checksums is no Event")
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
        found = [(self._index_of(tag), event.step, scalar, wall) for tag, scalar in scalars if scalar is not None]
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
                self._plugins.setdefault(value.tag, _SCALARS)  # once a scalar, always one: templates rely on it
            return number
        return None

    def _index_of(self, tag: str) -> int:
        index = self._tag_index.get(tag)
        if index is None:
            if len(self.tags) >= MAX_TAGS:
                self._report_once("oversized", self.offset, f"more than {MAX_TAGS} tags; the rest is left out")
                return -1
            index = self._tag_index[tag] = len(self.tags)
            self.tags.append(tag)
        return index

    def _learn(self, data: bytes, body: int, event: Any) -> None:
        """Remember the template if its last four bytes are shown to be the value and nothing else.

        The rest of the record must be one field, the summary. Then any record of this template decodes to the same
        message apart from these four bytes, and two decodings with other bytes there show what they are.
        """
        if len(self._templates) >= _MAX_CACHED or data[body] != 0x2A or not _spans(data, body + 1):
            return
        (scalar,) = event.summary.value
        for pattern in _PATTERNS:
            other = _event(data[:-4] + pattern)
            if other is None or (other.step, other.wall_time, len(other.summary.value)) != (event.step, event.wall_time, 1):
                return
            (changed,) = other.summary.value
            if changed.tag != scalar.tag or self._scalar(changed) != struct.unpack("<f", pattern)[0]:
                return
        self._templates[data[body:-4]] = self._tag_index[scalar.tag]


def _event(data: bytes) -> Any:
    """The Event that the bytes encode, or None."""
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        return _codec()[0].FromString(data)
    except DecodeError:
        return None


def tensor_scalar(tensor: Any) -> float | None:
    """The value of a TensorProto with one element of a numeric type; None where it has none."""
    elements = 1
    for dim in tensor.tensor_shape.dim:
        elements *= dim.size
    if elements != 1 or tensor.tensor_shape.unknown_rank:
        return None
    if tensor.dtype == _BFLOAT16:
        bits = _single(tensor.half_val)
        content = tensor.tensor_content or (b"" if bits is None else struct.pack("<H", bits & 0xFFFF))
        return float(struct.unpack("<f", b"\0\0" + content)[0]) if len(content) == 2 else None
    if tensor.dtype not in _DTYPES:
        return None
    layout, name = _DTYPES[tensor.dtype]
    content = tensor.tensor_content
    if not content:
        number = _single(getattr(tensor, name))
        if tensor.dtype != _HALF or number is None:
            return None if number is None else float(number)
        content = struct.pack("<H", number & 0xFFFF)
    return float(struct.unpack(layout, content)[0]) if len(content) == struct.calcsize(layout) else None


def _single(values: Any) -> Any:
    return values[0] if len(values) == 1 else None


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


def _gather(raw: np.ndarray[Any, Any], position: np.ndarray[Any, Any], width: int) -> np.ndarray[Any, Any]:
    """`width` bytes from every position, contiguous; beyond the end the last byte is repeated."""
    import numpy as np

    taken: np.ndarray[Any, Any] = raw.take(position[:, None] + np.arange(width), mode="clip")
    return taken


def _split(raw: np.ndarray[Any, Any], start: np.ndarray[Any, Any], length: np.ndarray[Any, Any],
           ) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """(wall_time, step, size of both fields) of records that begin with wall_time and a step of up to five bytes.

    Field 1 is a fixed64 (key 0x09), field 2 a varint (0x10) that is left out for step 0; 0x2A begins the summary.
    The size is 0 where a record begins otherwise.
    """
    import numpy as np

    head = _gather(raw, start, 15)
    window = head[:, 10:15]
    last = window < 0x80
    width = last.argmax(axis=1) + 1
    digit = np.arange(5)
    step = (((window & 0x7F).astype(np.int64) << (7 * digit)) * (digit < width[:, None])).sum(axis=1)
    stepless = head[:, 9] == 0x2A
    stepped = (head[:, 9] == 0x10) & last.any(axis=1)
    usable = (head[:, 0] == 0x09) & (length >= 16) & (stepless | stepped)
    body = np.where(usable, np.where(stepless, 9, 10 + width), 0)
    wall = np.nan_to_num(np.ascontiguousarray(head[:, 1:9]).view("<f8")[:, 0], nan=0.0, posinf=0.0, neginf=0.0)
    return wall, np.where(stepless, 0, step), body


def _count_intact(buffer: bytes, starts: list[int], lengths: list[int], crcs: list[int]) -> int:
    """How many records from the first on have the checksum that is stored behind them."""
    if not starts:
        return 0
    import numpy as np

    crc = np.array(crcs, np.uint32)
    masked = ((crc >> np.uint32(15)) | (crc << np.uint32(17))) + np.uint32(_MASK_DELTA)
    end = np.array(starts, np.int64) + np.array(lengths, np.int64)
    stored = _gather(np.frombuffer(buffer, np.uint8), end, _FOOTER).view("<u4")[:, 0]
    wrong = np.flatnonzero(masked != stored)
    return int(wrong[0]) if len(wrong) else len(starts)


def _is_zero(file: FileIO, position: int) -> bool:
    """Whether nothing but zero bytes follows, and at least one."""
    file.seek(position)
    piece = file.read(CHUNK_BYTES)
    if not piece:
        return False
    while piece:
        if any(piece):
            return False
        piece = file.read(CHUNK_BYTES)
    return True
