"""Rows of known shapes with nothing between them but redraws of the training's bar, by column.

That is how a trainer logs that wipes its bar away, prints a row and draws the bar anew. What stands between two rows
counts only where it says nothing else; else the rows around it are left to be read alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from harness.metrics.stdout_bars import PLAIN_BAR
from harness.metrics.stdout_rows import MixedRows, Rows
from harness.metrics.stdout_scan import BLANK_BYTES, ends_of_redraws, leaves_cleared
from harness.metrics.stdout_shapes import Shape
from harness.metrics.stdout_stretches import Lines, often

_CUT = b"\x00"
"""In no line: it is a space by then."""


class _Redraws(NamedTuple):
    """What stands behind a row, up to the next."""

    first: int
    """Count of the first bar."""
    last: int
    is_cleared: bool
    """Whether the bar is wiped away in the end."""
    pace: bytes
    """Of the last bar, with its unit."""
    unit: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycles:
    """Rows that follow each other, each with the redraws behind it."""

    start: int
    end: int
    rows: Rows | MixedRows
    total: int
    """Of the bar."""
    redraws: Sequence[_Redraws]

    def __len__(self) -> int:
        return len(self.redraws)


def cycles_in(data: bytes, begin: int, shapes: Sequence[Shape], total: int, fewest: int) -> Iterator[Cycles]:
    """Those of whole lines from `begin` on, at least so many together, in their order. A bar counts to `total`."""
    many = often(shapes, data, 1, begin)
    if not many or data.count(b"%|", begin) < fewest:
        return
    found = Lines(many, data[begin:])
    gaps, lines = found.gaps, found.lines
    if len(lines) <= fewest:
        return
    told = _told(gaps[1:-1], total)
    starts = list(accumulate(map(len, _in_turns(gaps, lines)), initial=begin))
    first = 0
    while first < len(told):
        if told[first] is None:
            first += 1
            continue
        end = next((place for place in range(first, len(told)) if told[place] is None), len(told))
        if first and not gaps[first]:
            first += 1  # the row before it waits for the same bar
        if end - first >= fewest and (not gaps[first] or gaps[first].endswith(b"\n")):
            rows = found.rows(first, end)
            if rows is not None:
                yield Cycles(start=starts[2 * first + 1], end=starts[2 * end + 1], rows=rows, total=total,
                             redraws=[one for one in told[first:end] if one is not None])
        first = end


def _in_turns(gaps: Sequence[bytes], lines: Sequence[bytes]) -> Iterator[bytes]:
    """Gaps and lines in turns, as they stand in the data."""
    for gap, line in zip(gaps, lines, strict=False):
        yield gap
        yield line


def _told(gaps: Sequence[bytes], total: int) -> list[_Redraws | None]:
    """What each gap says; None where it may say something else."""
    pattern = _one_bar_of(total)
    found = pattern.split(_CUT.join(gaps) + _CUT)
    stride = pattern.groups + 1
    counts, paces, units, blanks = (found[place::stride] for place in range(1, stride))
    return [
        _of_many(gap, total) if count is None
        else _Redraws(number := int(count), number, blank is not None and len(blank) >= BLANK_BYTES, pace, unit)
        for gap, count, pace, unit, blank in zip(gaps, counts, paces, units, blanks, strict=True)
    ]


@lru_cache(maxsize=8)
def _one_bar_of(total: int) -> re.Pattern[bytes]:
    """A gap with one plain bar, with its cut; any other gap matches without its groups."""
    return re.compile(
        rb"(?:\n{0,9}[ ]{0,9}[0-9]{1,3}%\|[^|%{\n\x00]{0,400}\|[ ]{0,9}([0-9]{1,18})/%d "
        rb"\[[0-9:]{1,20}<[0-9:?]{1,20},[ ]{0,9}([0-9]{1,15}(?:\.[0-9]{1,15})?)(it/s|s/it)\][ ]{0,9}\n{1,9}"
        rb"(?:([ ]{1,400})\n{1,9})?|[^\x00]*)\x00".replace(b"%d", str(total).encode())
    )


def _of_many(gap: bytes, total: int) -> _Redraws | None:
    if gap.find(b"{") >= 0 or not gap.endswith(b"\n"):
        return None
    ends = ends_of_redraws(gap)
    if ends is None:
        return None
    first, last = PLAIN_BAR.fullmatch(ends[0]), PLAIN_BAR.fullmatch(ends[1])
    if first is None or last is None or not int(first[2]) == int(last[2]) == total:
        return None
    return _Redraws(int(first[1]), int(last[1]), leaves_cleared(gap), last[3], last[4])
