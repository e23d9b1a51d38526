"""Which lines of a piece of output are worth parsing: most of a log is noise, or redraws of one bar."""

from __future__ import annotations

import operator
import re
from functools import lru_cache
from itertools import pairwise

from harness.metrics.stdout_lines import MAX_OWNER, ends_in_anothers
from harness.metrics.stdout_signs import SIGNS, is_signed, lines_with, signed_lines
from harness.record.hints import Hints

_HINTS = Hints(SIGNS, left_out=b" :")
_BAR = b"%|"
_COUNT = re.compile(rb"\|\s{0,9}(\d{1,18})/(\d{1,18})\s{1,4}\[")
_LONG_BYTES = 8 << 10
"""From here on it is worth to look at what stands behind each sign."""
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
        bars = redraws_of(stretch)
        if bars is not None:
            self.is_cleared = leaves_cleared(stretch)
            picked += [(line, False) for line in bars]
            return
        if stretch.count(b"\n") == len(stretch):
            return
        self.is_cleared = leaves_cleared(stretch)
        lines, are_bars = _of_few(stretch) if len(stretch) < _LONG_BYTES else _of_many(stretch)
        if are_bars and len(lines) >= _FEWEST and _are_redraws(lines):
            lines = [lines[0], lines[-1]]
        picked += [(line, False) for line in lines]


def _of_few(stretch: bytes) -> tuple[list[bytes], bool]:
    """Lines that may say something, and whether all are bars; of what that costs more to tell well than to read."""
    lines = [line for line in stretch.split(b"\n") if line.find(_BAR) >= 0 or is_signed(line.lower())]
    return lines, all(line.find(_BAR) >= 0 for line in lines)


def _of_many(stretch: bytes) -> tuple[list[bytes], bool]:
    drawn, signed = lines_with(stretch, _BAR), signed_lines(stretch)
    found = {**drawn, **signed}
    return [stretch[start : found[start]] for start in sorted(found)], len(found) == len(drawn)


def _is_silent(data: bytes, start: int, at: int, end: int) -> bool:
    """Whether a line is a quoted dict, from `at` on, that has the name of something else than metrics, as that of a
    sample has, behind words without a sign; see read_line."""
    if data[at - 1 : at] != b"=" or data[at + 1 : at + 2] not in (b'"', b"'") or data[end - 1 : end] != b"}":
        return False
    head = data[max(start, at - MAX_OWNER) : at]
    words = head.rfind(b" ") + 1
    return words > 0 and ends_in_anothers(head[words:]) and not _may_say(data[start:at])


def _may_say(head: bytes) -> bool:
    return is_signed(head.lower()) or head.find(b"/") >= 0 or head.find(_BAR) >= 0


def leaves_cleared(stretch: bytes) -> bool:
    """Whether the last line is how a bar is wiped away."""
    last = stretch.rstrip(b"\n")
    last = last[last.rfind(b"\n") + 1 :]
    return last.isspace() and len(last) >= BLANK_BYTES


@lru_cache(maxsize=64)
def _bars_of(head: bytes, total: bytes) -> re.Pattern[bytes]:
    return re.compile(
        b"\n" + re.escape(head) + rb"[ ]{0,9}[0-9]{1,3}%\|[^|]{0,400}\|[ ]{0,9}([0-9]{1,18})/" + total + rb" \[")


def redraws_of(stretch: bytes) -> list[bytes] | None:
    """The bars that tell something, of lines that hold nothing but one bar: the first and the last, and those where
    it begins, ends or goes back, with their neighbours."""
    signs = stretch.count(b"%")
    if signs < _FEWEST or _HINTS.may_hold(stretch):
        return None
    first = _line_with(stretch, stretch.find(_BAR))
    one = _COUNT.search(first)
    if one is None:
        return None
    bars, text = _bars_of(_head(first), one[2]), b"\n" + stretch
    counts = list(map(int, bars.findall(text)))
    is_whole = len(counts) == signs or len(counts) == stretch.count(_BAR)
    if not is_whole or len(counts) < _FEWEST:
        return None
    total, inside = int(one[2]), counts[1:-1]
    if 0 not in inside and total not in inside and all(map(operator.le, counts, counts[1:])):
        return [first, _line_with(stretch, stretch.rfind(_BAR))]
    told = {0, len(counts) - 1}
    for at, (before, count) in enumerate(pairwise(counts), start=1):
        if count < before:
            told |= {at - 1, at}
        if count == 0 or count == total:
            told |= {at - 1, at, at + 1}
    starts = [match.start() for match in bars.finditer(text)]
    return [_line_with(stretch, starts[at]) for at in sorted(told) if at < len(starts)]


def ends_of_redraws(stretch: bytes) -> tuple[bytes, bytes] | None:
    """The first and the last bar of lines that say nothing else than one bar that only rises."""
    bars = redraws_of(stretch)
    return (bars[0], bars[1]) if bars is not None and len(bars) == 2 else None


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
