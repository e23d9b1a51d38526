"""slow-throughput: the rate has fallen to half of what it was, for many points in a row. Advisory."""

from __future__ import annotations

import math

from harness.record.vocabulary import AnomalyType, Severity
from harness.watch.anomalies.model import Finding, Point, Recovery, Role, Sighting, Window

DOWN_SHARE = 0.5
"""Slow is a rate below this share of the best steady one."""
BACK_SHARE = 0.75
"""It is over when the rate is above this share again."""
STEADY_POINTS = 20
"""The steady rate is the median of so many points; the first one lies behind the warm-up."""
SLOW_POINTS = 10
"""So many points in a row, since single ones hold an evaluation or a save."""


class SlowThroughput:
    """Tokens or samples per second where a tag tells them; else steps per second by the writers' clocks."""

    def __init__(self) -> None:
        self._rates: dict[str, _Rate] = {}
        self._told = False
        """Whether a tag tells the rate."""
        self._pace_tag: str | None = None
        self._last: tuple[int, float] | None = None

    def rename(self, old: str, new: str) -> None:
        """A series goes on under another name."""
        if old in self._rates:
            self._rates[new] = self._rates.pop(old)
            self._rates[new].subject = new
        if self._pace_tag == old:
            self._pace_tag, self._last = new, None

    def observe(self, point: Point) -> list[Finding]:
        """One point."""
        if point.role is Role.RATE:
            if not (math.isfinite(point.value) and point.value > 0.0):
                return []
            found = [] if self._told else self._drop_pace(point)
            self._told = True
            return found + self._rate(point.subject, point.tag).observe(point.step, point.value)
        if self._told or not point.is_training or point.role not in (Role.LOSS, Role.POLICY_LOSS):
            return []
        return self._pace(point)

    def _pace(self, point: Point) -> list[Finding]:
        """Steps per second between two points of the first loss tag."""
        self._pace_tag = self._pace_tag or point.subject
        if point.subject != self._pace_tag or point.wall_time <= 0.0:
            return []
        last, self._last = self._last, (point.step, point.wall_time)
        if last is None or point.step <= last[0] or point.wall_time <= last[1]:
            return []
        rate = (point.step - last[0]) / (point.wall_time - last[1])
        return self._rate("steps", "steps per second").observe(point.step, rate)

    def _drop_pace(self, point: Point) -> list[Finding]:
        """A tag tells better than the pace did."""
        pace = self._rates.pop("steps", None)
        if pace is None or not pace.is_slow:
            return []
        return [Recovery(type=AnomalyType.SLOW_THROUGHPUT, subject="steps", step=point.step,
                         why=f"{point.tag} tells the rate now")]

    def _rate(self, subject: str, name: str) -> _Rate:
        return self._rates.setdefault(subject, _Rate(subject, name))


class _Rate:
    def __init__(self, subject: str, name: str) -> None:
        self.subject = subject
        self.name = name
        self.is_slow = False
        self._warm_up = STEADY_POINTS // 2
        self._window = Window(STEADY_POINTS)
        self._best = 0.0
        self._below = 0

    def observe(self, step: int, rate: float) -> list[Finding]:
        if self._warm_up:
            self._warm_up -= 1
            return []
        self._window.add(rate)
        if self._window.is_full:
            self._best = max(self._best, self._window.median)
        if self.is_slow:
            return self._recover(step)
        self._below = self._below + 1 if rate < DOWN_SHARE * self._best else 0
        if self._below < SLOW_POINTS:
            return []
        self.is_slow = True
        return [Sighting(
            type=AnomalyType.SLOW_THROUGHPUT, severity=Severity.MEDIUM, subject=self.subject, step=step,
            description=f"{self.name} {rate:.4g}, below half of {self._best:.4g} for {SLOW_POINTS} points in a row")]

    def _recover(self, step: int) -> list[Finding]:
        if self._window.median < BACK_SHARE * self._best:
            return []
        self.is_slow, self._below = False, 0
        return [Recovery(type=AnomalyType.SLOW_THROUGHPUT, subject=self.subject, step=step,
                         why=f"{self.name} is back at {self._window.median:.4g}")]
