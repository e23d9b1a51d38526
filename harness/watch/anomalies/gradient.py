"""gradient-explosion: a gradient norm far above its own median, or above a fixed bound where nothing clips it."""

from __future__ import annotations

import math

from harness.record.vocabulary import AnomalyType, Severity
from harness.watch.anomalies.model import Finding, Point, Recovery, Role, Sighting, Window

ABSOLUTE_NORM = 1000.0
"""Too much wherever gradients are known not to be clipped."""
MEDIAN_POINTS = 50
MIN_POINTS = 10
RATIO = 10.0
RATIO_POINTS = 3
"""So many points in a row above RATIO times the median; a single one is noise."""
SPIKE_RATIO = 1000.0
"""One point is enough above so many times the median."""
BACK_RATIO = 3.0
"""It is over after RATIO_POINTS points in a row below so many times the median that it began at."""


class GradientExplosion:
    """`is_unclipped`: whether the norm that is logged is known to be that of gradients that nothing clips."""

    def __init__(self, *, is_unclipped: bool = False) -> None:
        self.is_unclipped = is_unclipped
        self._series: dict[str, _Series] = {}

    def rename(self, old: str, new: str) -> None:
        """A series goes on under another name."""
        if old in self._series:
            self._series[new] = self._series.pop(old)

    def observe(self, point: Point) -> list[Finding]:
        """One point."""
        if point.role is not Role.GRAD_NORM or not math.isfinite(point.value):
            return []
        series = self._series.setdefault(point.subject, _Series(self.is_unclipped))
        return series.observe(point)


class _Series:
    def __init__(self, is_unclipped: bool) -> None:
        self.is_unclipped = is_unclipped
        self._window = Window(MEDIAN_POINTS)
        self._above = self._below = 0
        self._calm: float | None = None
        """The norm below which an explosion is over, None while there is none."""

    def observe(self, point: Point) -> list[Finding]:
        found = self._recover(point) if self._calm is not None else self._explode(point)
        self._window.add(point.value)
        return found

    def _explode(self, point: Point) -> list[Finding]:
        value = point.value
        median = self._window.median if len(self._window) >= MIN_POINTS else 0.0
        self._above = self._above + 1 if median > 0.0 and value > RATIO * median else 0
        if self._above >= RATIO_POINTS or (median > 0.0 and value > SPIKE_RATIO * median):
            return self._begin(point, BACK_RATIO * median, f"{value / median:.4g} times its median {median:.4g}")
        if self.is_unclipped and value > ABSOLUTE_NORM:
            return self._begin(point, ABSOLUTE_NORM, f"above {ABSOLUTE_NORM:g}, and nothing clips it")
        return []

    def _begin(self, point: Point, calm: float, why: str) -> list[Finding]:
        self._calm, self._above, self._below = calm, 0, 0
        return [Sighting(type=AnomalyType.GRADIENT_EXPLOSION, severity=Severity.MEDIUM, subject=point.subject,
                         step=point.step, description=f"{point.tag}={point.value:.4g}, {why}")]

    def _recover(self, point: Point) -> list[Finding]:
        assert self._calm is not None
        self._below = self._below + 1 if point.value <= self._calm else 0
        if self._below < RATIO_POINTS:
            return []
        self._calm = None
        return [Recovery(type=AnomalyType.GRADIENT_EXPLOSION, subject=point.subject, step=point.step,
                         why=f"{point.tag} is back at {point.value:.4g}")]
