"""divergence: a training loss that has risen far above its best level and stays there. Advisory."""

from __future__ import annotations

import math

from harness.record.vocabulary import AnomalyType, Severity
from harness.watch.anomalies.model import Finding, Point, Recovery, Role, Sighting, Window

LEVEL_POINTS = 10
"""The level of a loss is the median of so many points."""
MIN_POINTS = 20
NOISE_POINTS = 100
"""The noise is the median distance of neighbouring points over so many of them."""
NOISE_FACTOR = 8.0
"""The rise must be larger than so much noise."""
LOST_SHARE = 0.5
"""The rise must be larger than this share of what the loss had fallen from its start."""
BEST_SHARE = 0.5
"""The rise must be larger than this share of the best level."""
MIN_RISE = 0.1
"""The rise must be larger than this."""
BACK_SHARE = 0.5
"""It is over when the rise has become smaller than this share of what began it."""


class Divergence:
    """Off for policy losses, which say nothing by their height."""

    def __init__(self) -> None:
        self._series: dict[str, _Series] = {}

    def rename(self, old: str, new: str) -> None:
        """A series goes on under another name."""
        if old in self._series:
            self._series[new] = self._series.pop(old)

    def observe(self, point: Point) -> list[Finding]:
        """One point."""
        if point.role is not Role.LOSS or not math.isfinite(point.value):
            return []
        series = self._series.get(point.subject)
        if series is None or point.step < series.last_step:
            is_open = series is not None and series.threshold is not None
            series = self._series[point.subject] = _Series()
            if is_open:
                series.observe(point)
                return [_recovery(point, "the run went back to an earlier step")]
        return series.observe(point)


class _Series:
    def __init__(self) -> None:
        self.last_step = -(1 << 62)
        self.threshold: float | None = None
        """The rise that was needed when it diverged, None while it has not."""
        self._level = Window(LEVEL_POINTS)
        self._noise = Window(NOISE_POINTS)
        self._start = self._best = math.inf
        self._count = 0
        self._previous: float | None = None

    def observe(self, point: Point) -> list[Finding]:
        self.last_step = point.step
        self._count += 1
        if self._previous is not None and self.threshold is None:
            self._noise.add(abs(point.value - self._previous))
        self._previous = point.value
        self._level.add(point.value)
        if not self._level.is_full:
            return []
        level = self._level.median
        if self._start == math.inf:
            self._start = level
        self._best = min(self._best, level)
        return self._judge(point, level)

    def _judge(self, point: Point, level: float) -> list[Finding]:
        rise = level - self._best
        if self.threshold is not None:
            if rise >= self.threshold * BACK_SHARE:
                return []
            self.threshold = None
            return [_recovery(point, f"its level is back at {level:.4g}")]
        if self._count < MIN_POINTS or rise <= MIN_RISE:
            return []
        needed = max(NOISE_FACTOR * self._noise.median, LOST_SHARE * (self._start - self._best),
                     BEST_SHARE * abs(self._best), MIN_RISE)
        if rise <= needed:
            return []
        self.threshold = needed
        return [Sighting(
            type=AnomalyType.DIVERGENCE, severity=Severity.MEDIUM, subject=point.subject, step=point.step,
            description=f"{point.tag} has risen to {level:.4g} from its best {self._best:.4g} (medians of "
                        f"{LEVEL_POINTS})")]


def _recovery(point: Point, why: str) -> Recovery:
    return Recovery(type=AnomalyType.DIVERGENCE, subject=point.subject, step=point.step, why=why)
