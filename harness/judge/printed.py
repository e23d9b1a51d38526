"""What the run printed against what it logged: the same values, within the digits that were printed."""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass

from harness.judge.observe import Observation
from harness.record.store import MetricStore, Point, TagSummary
from harness.record.vocabulary import Phase

SIGNIFICANT_DIGITS = 4
"""Transformers 5 prints so many; fewer where the number ends before."""
SAMPLE = 1000
"""Last points of a series that are compared."""
FEWEST = 3
"""Values below which nothing is said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintedSeen:
    """One printed series beside the logged one that it repeats."""

    tag: str
    better: str
    compared: int
    agreeing: int

    @property
    def contradicts(self) -> bool:
        """Most of what was printed is nowhere near its step in what was logged."""
        return self.compared >= FEWEST and 2 * self.agreeing < self.compared

    def __str__(self) -> str:
        return f"printed {self.tag} agrees with {self.better} at {self.agreeing} of {self.compared} steps"


def compare_printed(seen: Observation) -> list[PrintedSeen]:
    """For frameworks that print what they log: each training series that was printed and logged."""
    store = seen.record.store
    if store is None or seen.facts is None or not seen.facts.prints_what_it_logs:
        return []
    return [
        _compare(store, one, one.repeats)
        for one in seen.printed if one.repeats is not None and one.phase is Phase.TRAIN
    ]


def _compare(store: MetricStore, printed: TagSummary, better: tuple[str, str]) -> PrintedSeen:
    logged = store.series(better[1], run=better[0])
    steps = [point.step for point in logged]
    compared = agreeing = 0
    for point in store.series(printed.tag, run=printed.run, last=SAMPLE) if logged else ():
        near = _near(logged, steps, point.step)
        if near:
            compared += 1
            agreeing += any(within_precision(point.value, one.value) for one in near)
    return PrintedSeen(tag=printed.tag, better=better[1], compared=compared, agreeing=agreeing)


def _near(logged: list[Point], steps: list[int], step: int) -> list[Point]:
    """The logged points around a printed step, which is that of the bar beside it; none outside of the series."""
    if not steps[0] <= step <= steps[-1]:
        return []
    at = bisect.bisect_left(steps, step)
    return logged[max(0, at - 1) : at + 2]


def within_precision(printed: float, logged: float) -> bool:
    """Whether a number was printed for another: the digits that it shows, four significant ones at most, agree."""
    if not math.isfinite(printed) or not math.isfinite(logged):
        return printed == logged or (math.isnan(printed) and math.isnan(logged))
    if printed == logged:
        return True
    shown = _half_of_last_digit(printed)
    size = max(abs(printed), abs(logged))
    coarse = 0.5 * 10.0 ** (math.floor(math.log10(size)) - SIGNIFICANT_DIGITS + 1) if size else 0.0
    return abs(printed - logged) <= 1.001 * max(shown, coarse)


def _half_of_last_digit(value: float) -> float:
    mantissa, _, exponent = repr(value).partition("e")
    decimals = mantissa.partition(".")[2]
    digits = 0 if decimals == "0" else len(decimals)
    return 0.5 * 10.0 ** (int(exponent or 0) - digits)
