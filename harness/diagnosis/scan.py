"""The lines of a log that may tell of a failure, streamed: memory is flat in its size and in that of its lines.

A block that bears none of the signs is passed over whole, which is what makes gigabytes readable. A reader that has
met the start of a traceback asks for the lines behind it, whatever they say (`follow`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.record.files import open_regular

BLOCK_BYTES = 256 << 10
MAX_HELD_BYTES = 1 << 20
"""So much is held of a line that does not end."""
MAX_LINE_BYTES = 16 << 10
"""Of a longer line only the beginning is read."""
LOOK_BACK_BYTES = 8 << 10
SIGNS = (
    b"error", b"traceback (most", b"exception", b"kill", b"signal", b"sigterm", b"exit",
    b"watchdog", b"cancel", b"out of mem", b"fail", b"terminat", b"abort", b"tion fault", b"timeout (",
    b"denied", b"nan", b"preempt", b"not found", b"no space", b"no module",
    b"nvrm: ",
    b"loss inf", b"loss: inf", b"loss=inf", b"loss = inf", b"loss': inf", b"loss': 'inf", b'loss": inf',
)
"""Without case. A line that none of them stands in says nothing that is looked for."""
_SIGNS_ABROAD = tuple(text.encode() for text in ("失败", "超时", "无法", "耗尽", "不存在", "权限", "不足"))
_LOWER = bytes(range(65)) + bytes(range(97, 123)) + bytes(range(91, 256))
_FLAT = _LOWER.replace(b"\r", b"\n")
_DROPPED = b"""EeSsJjQqVvYyZz 0123456789.,:;=-+/|\\_#%<>()[]{}'"\t"""
_SHORT_SIGNS: dict[bytes, list[bytes]] = {}
"""{what is left of signs in a text without what is dropped, which is less than half as long to search: these signs}."""
for _sign in SIGNS:
    _SHORT_SIGNS.setdefault(_sign.translate(_LOWER, _DROPPED), []).append(_sign)


@dataclass(frozen=True, slots=True)
class RawLine:
    """One line, or one piece of it between carriage returns."""

    number: int
    """From 1, counting line feeds."""
    offset: int
    """Of its first byte in the file."""
    data: bytes
    """Without its end; cut at 16 KiB."""


class LogScanner:
    """One pass over one file. OSError, or ValueError for what is no regular file, from `lines`."""

    def __init__(self, path: Path, *, first_offset: int = 0) -> None:
        """`first_offset`: nothing before it is read; lines count from there."""
        self.path = path
        self.follow = 0
        """So many further lines are handed out whatever they say; set by the reader."""
        self.size = 0
        """Bytes read so far."""
        self.skips_to = 0
        """Blocks that end before it are counted and not looked at; set by the reader."""
        self.length = 0
        """Of the file when it was opened."""
        self._first_offset = first_offset
        self._block = b""
        self._base = 0
        """Offset of the block in the file."""
        self._back = b""

    def lines(self) -> Iterator[RawLine]:
        """Lines with a sign, and those that were asked for, in their order."""
        with os.fdopen(open_regular(self.path), "rb", buffering=0) as file:
            self.length = os.fstat(file.fileno()).st_size
            file.seek(self._first_offset)
            self._base, number, rest, cut = self._first_offset, 1, b"", False
            while data := file.read(BLOCK_BYTES):
                block = rest + data if rest else data
                end = max(block.rfind(b"\n"), block.rfind(b"\r")) + 1
                if not end and len(block) <= MAX_HELD_BYTES:
                    rest = block
                    continue
                whole, rest = (block[:end], block[end:]) if end else (block, b"")
                if self._base + len(whole) >= self.skips_to:
                    yield from self._block_lines(whole, number, skip_first=cut)
                number += whole.count(b"\n")
                cut = not end
                self._advance(whole)
            if rest:
                yield from self._block_lines(rest, number, skip_first=cut)
                self._advance(rest)

    def before(self, offset: int) -> bytes:
        """Up to 8 KiB of the file before `offset`, which lies in the block that is being read."""
        at = offset - self._base
        near = self._block[max(0, at - LOOK_BACK_BYTES) : at]
        missing = LOOK_BACK_BYTES - len(near)
        return self._back[-missing:] + near if missing > 0 else near

    def _advance(self, block: bytes) -> None:
        self._back = (self._back + block[-LOOK_BACK_BYTES:])[-LOOK_BACK_BYTES:]
        self._base += len(block)
        self.size = self._base - self._first_offset

    def _block_lines(self, block: bytes, number: int, *, skip_first: bool) -> Iterator[RawLine]:
        self._block = block
        at = _end_of_piece(block, 0) + 1 if skip_first else 0
        counted, line = 0, number
        spots: list[int] | None = None
        while at < len(block):
            if self.follow > 0:
                self.follow -= 1
                start = at
            else:
                if spots is None:
                    spots = sign_spots(block, at)
                    spots.reverse()
                while spots and spots[-1] < at:
                    spots.pop()
                if not spots:
                    return
                start = max(block.rfind(b"\n", at, spots[-1]), block.rfind(b"\r", at, spots[-1])) + 1 or at
            end = _end_of_piece(block, start)
            line += block.count(b"\n", counted, start)
            counted = start
            yield RawLine(line, self._base + start, block[start : min(end, start + MAX_LINE_BYTES)])
            at = end + 1


def _end_of_piece(block: bytes, start: int) -> int:
    """Where the piece ends: before a line feed, or a carriage return that is not part of one."""
    end = block.find(b"\n", start)
    end = len(block) if end < 0 else end
    again = block.find(b"\r", start, end)
    return end if again < 0 or again == end - 1 else again


def sign_spots(block: bytes, begin: int) -> list[int]:
    """Where in the block, from `begin` on, the pieces start that bear a sign, ascending.

    Blocks without a sign are told at the price of a few searches, and of the others only the signs are searched for
    that may stand there.
    """
    text = block[begin:] if begin else block
    short = text.translate(_LOWER, _DROPPED)
    signs = [sign for shortened, those in _SHORT_SIGNS.items() if shortened in short for sign in those]
    signs += () if text.isascii() else [sign for sign in _SIGNS_ABROAD if sign in text]
    if not signs:
        return []
    low, starts = text.translate(_FLAT), set[int]()
    for sign in signs:
        starts.update(_pieces_with(sign, low))
    return sorted(begin + start for start in starts)


def _pieces_with(sign: bytes, low: bytes) -> Iterator[int]:
    """Starts of the pieces of a flat text in whose first 16 KiB the sign stands."""
    find, at, before = low.find, low.find(sign), 0
    while at >= 0:
        start = low.rfind(b"\n", before, at) + 1 or before
        if at + len(sign) <= start + MAX_LINE_BYTES:
            yield start
        before = find(b"\n", at)
        if before < 0:
            return
        at = find(sign, before)


def has_sign(line: bytes) -> bool:
    """Whether a sign stands in the line."""
    low = line.lower()
    if any(sign in low for sign in SIGNS):
        return True
    return not line.isascii() and any(sign in line for sign in _SIGNS_ABROAD)
