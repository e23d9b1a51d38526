"""Two series of one metric held together point by point.

A missing step is not equal, and neither is a value that is not finite, whatever stands on the other side.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The first step at which two series differ."""

    step: int
    expected: float | None
    """None where the step is missing."""
    actual: float | None

    @property
    def absolute(self) -> float | None:
        """|actual - expected|; None where one is missing or not finite."""
        if self.expected is None or self.actual is None:
            return None
        error = abs(self.actual - self.expected)
        return error if math.isfinite(error) else None

    @property
    def relative(self) -> float | None:
        """|actual - expected| / |expected|; None where that is not finite."""
        error = self.absolute
        return None if error is None or not self.expected else error / abs(self.expected)

    def to_json(self) -> dict[str, Any]:
        """For the journal."""
        return {"step": self.step, "expected": self.expected, "actual": self.actual, "abs_error": self.absolute,
                "rel_error": self.relative}


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What holding two series together shows."""

    points: int
    """Steps that both hold."""
    first: Difference | None
    """None where they agree at every step."""
    exact: bool
    """Whether every value is the same, bit for bit."""
    max_absolute: float
    max_relative: float


def compare_series(
    expected: Mapping[int, float], actual: Mapping[int, float], *, rtol: float, atol: float, whole: bool = True
) -> Comparison:
    """Compare {step: value} maps: |actual - expected| <= atol + rtol * |expected| at each step.

    With `whole`, a step that only one of them holds is a difference; else only the steps that both hold count.
    """
    steps = sorted(set(expected) | set(actual)) if whole else sorted(set(expected) & set(actual))
    first, exact, largest, largest_relative, points = None, True, 0.0, 0.0, 0
    for step in steps:
        found = Difference(step=step, expected=expected.get(step), actual=actual.get(step))
        points += found.expected is not None and found.actual is not None
        exact = exact and found.absolute == 0.0
        largest = max(largest, found.absolute or 0.0)
        largest_relative = max(largest_relative, found.relative or 0.0)
        if first is None and not is_close(found, rtol=rtol, atol=atol):
            first = found
    return Comparison(points=points, first=first, exact=exact and points > 0, max_absolute=largest,
                      max_relative=largest_relative)


def is_close(found: Difference, *, rtol: float, atol: float) -> bool:
    """Whether both values are there, finite, and within the tolerance."""
    if found.absolute is None or found.expected is None:
        return False
    return found.absolute <= atol + rtol * abs(found.expected)
