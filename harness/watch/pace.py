"""How often a run is reported: less often while nothing happens, at once more often when something does.

The pace is of reports alone: an exit, a NaN or an early stop is noticed when its bytes arrive.
"""

from __future__ import annotations

import math

BACKOFF_FACTOR = 1.5
LOSS_CHANGE = 0.05
"""A relative change of the loss between two reports that is an event."""


class Pace:
    """When the next report is due. Times are seconds of the run's age."""

    def __init__(self, *, interval_s: float, max_interval_s: float = 300.0, backoff: bool = True) -> None:
        """`backoff`: whether an uneventful report makes the interval longer, up to `max_interval_s`."""
        self.base_s = interval_s
        self.max_s = max(interval_s, max_interval_s) if backoff else interval_s
        self.interval_s = interval_s
        """Seconds between the last report and the next one."""
        self.events: list[str] = []
        """What has happened since the last report."""
        self._due_s = 0.0
        self._last_s = 0.0
        self._seen: dict[str, object] = {}
        self._loss: float | None = None

    def eventful(self, reason: str) -> None:
        """Something happened: the interval begins anew, and the next report is due as if it had never grown."""
        if reason not in self.events:
            self.events.append(reason)
        self.interval_s = self.base_s
        self._due_s = min(self._due_s, self._last_s + self.base_s)

    def is_due(self, age_s: float) -> bool:
        """Whether it is time for a report."""
        return age_s >= self._due_s

    def observe(self, *, loss: float | None, epoch: float | None, stage: str) -> None:
        """What a report is about to show: an event where it differs enough from the last one."""
        if loss is not None and self._loss is not None and differs(loss, self._loss):
            self.eventful("loss changed by over 5%")
        self._loss = loss if loss is not None else self._loss
        for name, value in (("epoch", None if epoch is None else int(epoch)), ("stage", stage or None)):
            if value is not None and self._seen.setdefault(name, value) != value:
                self._seen[name] = value
                self.eventful(f"{name} {value}")

    def reported(self, age_s: float) -> list[str]:
        """A report was made: what had happened since the one before. The interval grows where nothing had."""
        events, self.events = self.events, []
        if not events and self._last_s:
            self.interval_s = min(self.max_s, self.interval_s * BACKOFF_FACTOR)
        self._last_s = max(age_s, 1e-9)
        self._due_s = age_s + self.interval_s
        return events


def differs(loss: float, before: float) -> bool:
    """Whether a loss changed by more than LOSS_CHANGE; from or to a value that is not finite it always does."""
    if not (math.isfinite(loss) and math.isfinite(before)):
        return repr(loss) != repr(before)
    return abs(loss - before) > LOSS_CHANGE * abs(before)
