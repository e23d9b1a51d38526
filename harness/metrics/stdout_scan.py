"""Which lines of a piece of output are worth parsing: most of a log is noise, or redraws of one bar."""

from __future__ import annotations

import re
from functools import lru_cache

from harness.metrics.stdout_lines import MAX_OWNER, ends_in_anothers
from harness.record.hints import Hints

_SIGNS = (b"step", b"epoch", b"iter", b"***", b"num ex", b"batch size", b"loss:")
"""A line without any of them, without a dict and without a bar says nothing that is read here; see read_line."""
_HINTS = Hints(_SIGNS, left_out=b" :")
_BAR = b"%|"
_COUNT = re.compile(rb"\|\s{0,9}(\d{1,18})/(\d{1,18})\s{1,4}\[")
_FEWEST = 3
"""Bars from which on a run of them is worth a look as a whole."""
BLANK_BYTES = 20
"""A blank line of this length is how tqdm clears its bar before a row, to draw it anew behind it."""


class LineScan:
    """Picks lines; remembers between pieces how the next line is begun."""

    def __init__(self) -> None:
        self.is_cleared = False
        """Whether a bar was just wiped away to make room for the next line."""

    def pick(self, data: bytes) -> list[tuple[bytes, bool]]:
        """(line, whether a bar was wiped away to make room for it) of lines that may say something, in their order.

        `data`: whole lines. Of redraws of one bar in a row the first and the last are given: those between them tell
        nothing more.
        """
        picked: list[tuple[bytes, bool]] = []
        begin, at = 0, data.find(b"{")
        while at >= 0:
            start, end = data.rfind(b"\n", begin, at) + 1 or begin, data.find(b"\n", at)
            end = end if end >= 0 else len(data)
            if start > begin:
                self._pass(data[begin:start], picked)
            if not _is_silent(data, start, at, end):
                picked.append((data[start:end], self.is_cleared))
            self.is_cleared = False
            begin, at = end + 1, data.find(b"{", end)
        if begin < len(data):
            self._pass(data[begin:], picked)
        return picked

    def _pass(self, stretch: bytes, picked: list[tuple[bytes, bool]]) -> None:
        """Lines without a dict."""
        ends = ends_of_redraws(stretch)
        if ends is not None:
            self.is_cleared = leaves_cleared(stretch)
            picked += [(line, False) for line in ends]
            return
        lines = [line for line in stretch.split(b"\n") if line]
        if not lines:
            return
        self.is_cleared = lines[-1].isspace() and len(lines[-1]) >= BLANK_BYTES
        others = [line for line in lines if line.find(_BAR) < 0]
        if others and _is_signed(b"\n".join(others).lower()):
            lines = [line for line in lines if line.find(_BAR) >= 0 or _is_signed(line.lower())]
            others = [line for line in lines if line.find(_BAR) < 0]
        else:
            lines, others = [line for line in lines if line.find(_BAR) >= 0] if others else lines, []
        if not others and len(lines) >= _FEWEST and _are_redraws(lines):
            lines = [lines[0], lines[-1]]
        picked += [(line, False) for line in lines]


def _is_silent(data: bytes, start: int, at: int, end: int) -> bool:
    """Whether a line is a quoted dict, from `at` on, that has the name of something else than metrics, as that of a
    sample has, behind words without a sign; see read_line."""
    if data[at - 1 : at] != b"=" or data[at + 1 : at + 2] not in (b'"', b"'") or data[end - 1 : end] != b"}":
        return False
    head = data[max(start, at - MAX_OWNER) : at]
    words = head.rfind(b" ") + 1
    return words > 0 and ends_in_anothers(head[words:]) and not _may_say(data[start:at])


def _may_say(head: bytes) -> bool:
    return _is_signed(head.lower()) or head.find(b"/") >= 0 or head.find(_BAR) >= 0


def leaves_cleared(stretch: bytes) -> bool:
    """Whether the last line is how a bar is wiped away."""
    last = stretch.rstrip(b"\n")
    last = last[last.rfind(b"\n") + 1 :]
    return last.isspace() and len(last) >= BLANK_BYTES


def _is_signed(low: bytes) -> bool:
    find = low.find  # `in` costs four times as much: it first tries its operand as a number
    for sign in _SIGNS:  # noqa: SIM110 (a generator costs twice the time)
        if find(sign) >= 0:
            return True
    return False


@lru_cache(maxsize=64)
def _bars_of(head: bytes, total: bytes) -> re.Pattern[bytes]:
    return re.compile(
        b"\n" + re.escape(head) + rb"[ ]{0,9}[0-9]{1,3}%\|[^|]{0,400}\|[ ]{0,9}([0-9]{1,18})/" + total + rb" \[")


def ends_of_redraws(stretch: bytes) -> tuple[bytes, bytes] | None:
    """The first and the last bar of lines that say nothing else than one bar that only rises."""
    signs = stretch.count(b"%")
    if signs < _FEWEST or _HINTS.may_hold(stretch):
        return None
    first, last = _line_with(stretch, stretch.find(_BAR)), _line_with(stretch, stretch.rfind(_BAR))
    one = _COUNT.search(first)
    if one is None or _head(first) != _head(last):
        return None
    counts = _bars_of(_head(first), one[2]).findall(b"\n" + stretch)
    inside = counts[1:-1]
    is_whole = len(counts) == signs or len(counts) == stretch.count(_BAR)
    if not is_whole or len(counts) < _FEWEST or b"0" in inside or one[2] in inside:
        return None
    return (first, last) if int(counts[0]) <= int(counts[-2]) <= int(counts[-1]) else None


def _line_with(text: bytes, at: int) -> bytes:
    end = text.find(b"\n", at)
    return text[text.rfind(b"\n", 0, at) + 1 : end if end >= 0 else len(text)]


def _are_redraws(bars: list[bytes]) -> bool:
    """Whether all of them are one bar that only rises: it neither begins nor ends between the first and the last."""
    one, before, two = _COUNT.search(bars[0]), _COUNT.search(bars[-2]), _COUNT.search(bars[-1])
    if one is None or before is None or two is None or one[2] != two[2]:
        return False
    if not int(one[1]) <= int(before[1]) <= int(two[1]) or len(set(map(_head, bars))) > 1:
        return False
    inside = b"\n".join(bars[1:-1])
    return (
        inside.count(b"/" + one[2] + b" [") == inside.count(_BAR) == len(bars) - 2
        and inside.find(b" 0/") < 0
        and inside.find(b"100%|") < 0
    )


def _head(bar: bytes) -> bytes:
    """What stands before the percentage."""
    return bar[: bar.find(_BAR)].rstrip(b"0123456789 ")
