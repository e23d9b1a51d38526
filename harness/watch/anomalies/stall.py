"""stalled: no step for longer than the run's own pace explains; output without a step is no progress."""

from __future__ import annotations

from harness.record.vocabulary import AnomalyType, Severity
from harness.watch.anomalies.model import Finding, Recovery, Sighting, Window

INTERVALS = 2.0
"""The floor of the budget, in report intervals."""
GAP_FACTOR = 10.0
"""The budget, in median gaps between two looks that saw progress."""
MIN_GAPS = 3
"""With fewer gaps the pace is not known, and the budget is that of the start-up."""
START_UP_S = 1800.0
"""Seconds until the first steps: loading, compiling, the first evaluation."""
SUBJECT = "steps"


class Stall:
    """`interval_s`: the report interval. Times are of one clock that only rises."""

    def __init__(self, *, interval_s: float, started_at: float, start_up_s: float = START_UP_S) -> None:
        self.interval_s = interval_s
        self.start_up_s = start_up_s
        self.last_step: int | None = None
        self.last_at = started_at
        self.is_stalled = False
        self._gaps = Window(100)

    @property
    def budget_s(self) -> float:
        """Seconds without a step that are too many."""
        if len(self._gaps) < MIN_GAPS:
            return max(self.start_up_s, INTERVALS * self.interval_s)
        return max(INTERVALS * self.interval_s, GAP_FACTOR * self._gaps.median)

    def progress(self, step: int, now: float) -> list[Finding]:
        """The newest step of a look; one that was seen before is no progress, one below it is a restart."""
        if step == self.last_step:
            return []
        if self.last_step is not None and not self.is_stalled:
            self._gaps.add(now - self.last_at)
        self.last_step, self.last_at = step, now
        if not self.is_stalled:
            return []
        self.is_stalled = False
        return [Recovery(type=AnomalyType.STALLED, subject=SUBJECT, step=step, why=f"step {step} was reached")]

    def moved(self, now: float) -> list[Finding]:
        """Another witness than the metrics saw steps, which it counts in its own way."""
        self.last_at = now
        if not self.is_stalled:
            return []
        self.is_stalled = False
        return [Recovery(type=AnomalyType.STALLED, subject=SUBJECT, step=self.last_step, why="updates go on")]

    def is_late(self, now: float) -> bool:
        """Whether half of the budget is spent: the time to ask other witnesses."""
        return now - self.last_at > self.budget_s / 2

    def check(self, now: float) -> list[Finding]:
        """The stall, once."""
        if self.is_stalled or now - self.last_at <= self.budget_s:
            return []
        self.is_stalled = True
        waited, budget = now - self.last_at, self.budget_s
        since = "since the start" if self.last_step is None else f"since step {self.last_step}"
        return [Sighting(type=AnomalyType.STALLED, severity=Severity.HIGH, subject=SUBJECT, step=self.last_step,
                         description=f"no step for {waited:.0f} s {since}; the budget is {budget:.0f} s")]
