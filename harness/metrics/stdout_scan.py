"""Which lines of a piece of output are worth parsing: most of a log is noise, or redraws of one bar."""

from __future__ import annotations

import re
from collections.abc import Iterable

_SIGNS = (b"step", b"epoch", b"iter", b"it/s", b"***", b"num ex", b"batch size", b"loss:")
"""A line without any of them, without a dict and without a bar says nothing that is read here; see read_line."""
_BAR = b"%|"
_COUNT = re.compile(rb"\|\s{0,9}(\d{1,18})/(\d{1,18})\s{1,4}\[")
_FEWEST = 3
"""Bars from which on a run of them is worth a look as a whole."""
BLANK_BYTES = 20
"""A blank line of this length is how tqdm clears its bar before a row, to draw it anew behind it."""


class LineScan:
    """Picks lines; remembers between pieces how the next line is begun."""

    def __init__(self) -> None:
        self._is_cleared = False

    def pick(self, lines: Iterable[bytes]) -> list[tuple[bytes, bool]]:
        """(line, whether a bar was wiped away to make room for it) of lines that may say something, in their order.

        Of redraws of one bar in a row the first and the last are given: those between them tell nothing more.
        """
        picked: list[tuple[bytes, bool]] = []
        bars: list[bytes] = []
        cleared = self._is_cleared
        for line in lines:
            if not line:
                continue
            if _BAR in line and b"{" not in line:
                bars.append(line)
                cleared = False
            elif line.isspace():
                cleared = len(line) >= BLANK_BYTES
            else:
                if b"{" in line or _is_signed(line.lower()):
                    if bars:
                        _add_bars(picked, bars)
                        bars = []
                    picked.append((line, cleared))
                cleared = False
        _add_bars(picked, bars)
        self._is_cleared = cleared
        return picked


def _is_signed(low: bytes) -> bool:
    for sign in _SIGNS:  # noqa: SIM110 (a generator costs twice the time)
        if sign in low:
            return True
    return False


def _add_bars(picked: list[tuple[bytes, bool]], bars: list[bytes]) -> None:
    if len(bars) >= _FEWEST and _are_redraws(bars):
        bars = [bars[0], bars[-1]]
    picked += [(line, False) for line in bars]


def _are_redraws(bars: list[bytes]) -> bool:
    """Whether all of them are one bar that only rises: it neither begins nor ends between the first and the last."""
    one, two = _COUNT.search(bars[0]), _COUNT.search(bars[-1])
    if one is None or two is None or one[2] != two[2] or int(one[1]) > int(two[1]):
        return False
    if _head(bars[0]) != _head(bars[-1]):
        return False
    inside = b"\n".join(bars[1:-1])
    return (
        inside.count(b"/" + one[2] + b" [") == inside.count(_BAR) == len(bars) - 2
        and b" 0/" not in inside
        and b"100%|" not in inside
    )


def _head(bar: bytes) -> bytes:
    """What stands before the percentage."""
    return bar[: bar.find(_BAR)].rstrip(b"0123456789 ")
