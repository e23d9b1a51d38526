"""TFRecord framing: length (uint64), its masked CRC-32C, data, their masked CRC-32C, all little-endian.

Source: tensorflow/core/lib/io/record_writer.h. Checksums of the data are compared many at a time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from io import FileIO
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np

HEADER_BYTES = 12
FOOTER_BYTES = 4
_MAX_KNOWN = 4096
_MASK_DELTA = 0xA282EAD8
_CHUNK_BYTES = 1 << 20


@functools.cache
def _crc() -> tuple[Callable[[bytes], int], Callable[[int, bytes], int]]:
    """CRC-32C of bytes, and of more bytes after some; imported only when a record is read."""
    import google_crc32c

    return google_crc32c.value, google_crc32c.extend


def mask(crc: int) -> int:
    """A CRC as TFRecord stores it: rotated right by 15 bits, plus a constant."""
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF


def masked_crc(data: bytes) -> int:
    """The checksum that stands behind `data`."""
    return mask(_crc()[0](data))


def extend_crc(crc: int, data: bytes) -> int:
    """The unmasked CRC of what had `crc`, followed by `data`."""
    return _crc()[1](crc, data)


class Frames(NamedTuple):
    """Whole, intact records of a buffer, and why framing stopped."""

    starts: list[int]
    """Offsets of the data."""
    lengths: list[int]
    consumed: int
    stop: str
    """'' at the end of the buffer, "header" or "data" at a CRC that does not fit, "large" at an oversized
    record."""
    needed: int
    """Bytes of the record at `consumed` from its start to its end; 0 where its header is not whole."""


def frame(buffer: bytes, known: dict[bytes, int], max_length: int) -> Frames:
    """Records of the buffer up to the first one that is not whole, not intact or too large.

    `known` maps headers whose checksum fits to their length; it is filled here.
    """
    crc = _crc()[0]
    starts: list[int] = []
    lengths: list[int] = []
    crcs: list[int] = []
    position, size, stop, needed = 0, len(buffer), "", 0
    while position + HEADER_BYTES <= size:
        header = buffer[position : position + HEADER_BYTES]
        length = known.get(header)
        if length is None:
            if int.from_bytes(header[8:], "little") != masked_crc(header[:8]):
                stop = "header"
                break
            length = int.from_bytes(header[:8], "little")
            if len(known) < _MAX_KNOWN:
                known[header] = length
        if length > max_length:
            stop, needed = "large", length + HEADER_BYTES + FOOTER_BYTES
            break
        start = position + HEADER_BYTES
        end = start + length
        if end + FOOTER_BYTES > size:
            needed = end + FOOTER_BYTES - position
            break
        crcs.append(crc(buffer[start:end]))
        starts.append(start)
        lengths.append(length)
        position = end + FOOTER_BYTES
    good = _count_intact(buffer, starts, lengths, crcs)
    if good < len(starts):
        position, stop, needed = starts[good] - HEADER_BYTES, "data", 0
    return Frames(starts[:good], lengths[:good], position, stop, needed)


def _count_intact(buffer: bytes, starts: list[int], lengths: list[int], crcs: list[int]) -> int:
    """How many records from the first on have the checksum that is stored behind them."""
    if not starts:
        return 0
    import numpy as np

    crc = np.array(crcs, np.uint32)
    masked = ((crc >> np.uint32(15)) | (crc << np.uint32(17))) + np.uint32(_MASK_DELTA)
    end = np.array(starts, np.int64) + np.array(lengths, np.int64)
    stored = gather(np.frombuffer(buffer, np.uint8), end, FOOTER_BYTES).view("<u4")[:, 0]
    wrong = np.flatnonzero(masked != stored)
    return int(wrong[0]) if len(wrong) else len(starts)


def gather(raw: np.ndarray[Any, Any], position: np.ndarray[Any, Any], width: int) -> np.ndarray[Any, Any]:
    """`width` bytes from every position, contiguous; beyond the end the last byte is repeated."""
    import numpy as np

    taken: np.ndarray[Any, Any] = raw.take(position[:, None] + np.arange(width), mode="clip")
    return taken


def is_zero(file: FileIO, position: int) -> bool:
    """Whether nothing but zero bytes follows, and at least one."""
    file.seek(position)
    piece = file.read(_CHUNK_BYTES)
    if not piece:
        return False
    while piece:
        if any(piece):
            return False
        piece = file.read(_CHUNK_BYTES)
    return True
