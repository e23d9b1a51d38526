"""nan-inf: values that are NaN or infinite; a loss scaler's skips and NaN that a framework masks are told apart."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from harness.record.vocabulary import AnomalyType, Severity
from harness.watch.anomalies.model import Finding, Point, Recovery, Role, Sighting

RECOVERED_AFTER = 3
"""Finite values in a row after which a tag is well again."""
SKIPS_IN_A_ROW = 12
"""A loss scaler that starts at 65536 skips so many steps at most before its scale is sane; more is no skip."""
PROBE_LAG_S = 3.0
"""A gradient norm that no skip explains is judged after so long, where nothing tells of when the counts are."""
MAX_WAITING = 10_000
"""Rows that are kept until counts of a later time are there."""
OTHER_TAGS = "other tags"


@dataclass(slots=True)
class _Tag:
    """One tag that was not finite."""

    first_step: int
    first_at: float
    rows: int = 0
    """Rows in a row that were not finite."""
    finite: int = 0
    """Finite rows in a row since."""
    value: float = math.nan
    is_grave: bool = False


class NonFinite:
    """`skips` tells how many steps loss scalers skipped so far; None where nothing can tell. `counted_at`: until when
    they are counted, seconds since the epoch by the writers' clock; None where that is not known.
    """

    def __init__(
        self, skips: Callable[[], int | None] = lambda: None, counted_at: Callable[[], float | None] = lambda: None
    ) -> None:
        self.skips = skips
        self.counted_at = counted_at
        self._tags: dict[str, _Tag] = {}
        self._gradient_rows = 0
        """Rows of gradient norms that were not finite, in all."""
        self._waiting: deque[float] = deque(maxlen=MAX_WAITING)
        """Writer's times of those whose skips may not be counted yet, the oldest first."""
        self._loss: tuple[int, float] | None = None
        """Step and value of the last training loss."""

    @property
    def is_open(self) -> bool:
        """Whether some tag is not well again; while none is, finite points need not be shown but for their loss."""
        return bool(self._tags)

    def rename(self, old: str, new: str) -> None:
        """A series goes on under another name."""
        if old in self._tags:
            self._tags[new] = self._tags.pop(old)

    def note_loss(self, point: Point) -> None:
        """The last training loss, beside which a gradient norm is judged."""
        self._loss = point.step, point.value

    def observe(self, point: Point, now: float) -> list[Finding]:
        """One point; `now`: the clock of `check`, seconds."""
        if point.role in (Role.LOSS, Role.POLICY_LOSS):
            self.note_loss(point)
            masked = self._masked(point) if point.value == 0.0 else []
            if masked:
                return masked
        subject = point.subject if point.role is not Role.OTHER else OTHER_TAGS
        if math.isfinite(point.value):
            return self._finite(subject, point) if subject in self._tags else []
        return self._bad(subject, point, now)

    def check(self, now: float) -> list[Finding]:
        """Gradient norms that no skip of a loss scaler has come to explain."""
        found: list[Finding] = []
        for subject, tag in self._tags.items():
            waits = not tag.is_grave and tag.rows and now - tag.first_at >= PROBE_LAG_S
            if waits and subject not in (OTHER_TAGS,) and self._is_unexplained():
                found.append(self._grave(subject, tag, "no loss scaler skipped that step"))
        return found

    def _bad(self, subject: str, point: Point, now: float) -> list[Finding]:
        tag = self._tags.setdefault(subject, _Tag(first_step=point.step, first_at=now, value=point.value))
        tag.rows += 1
        tag.finite = 0
        shown = f"{point.tag}={point.value!r} at step {point.step}"
        if point.role in (Role.LOSS, Role.POLICY_LOSS, Role.EVAL_LOSS):
            tag.is_grave = True
            return [_sighting(Severity.HIGH, subject, tag.first_step, shown)] if tag.rows == 1 else []
        if point.role is not Role.GRAD_NORM:
            tag.is_grave = True
            level = Severity.MEDIUM if point.role is Role.LR else Severity.LOW
            return [_sighting(level, subject, tag.first_step, shown)] if tag.rows == 1 else []
        self._gradient_rows += 1
        self._waiting.append(point.wall_time)
        return self._gradient(subject, tag, shown, point)

    def _gradient(self, subject: str, tag: _Tag, shown: str, point: Point) -> list[Finding]:
        if tag.is_grave:
            return []
        if self._loss is not None and self._loss[0] == point.step and self._loss[1] == 0.0:
            return [self._grave(subject, tag, "the loss beside it is exactly 0.0: NaN is masked in the log")]
        if self._loss is not None and self._loss[0] == point.step and not math.isfinite(self._loss[1]):
            return [] if tag.rows > 1 else [
                _sighting(Severity.LOW, subject, tag.first_step, f"{shown}, as the loss of that step")]
        if tag.rows > SKIPS_IN_A_ROW and not self._is_explained():
            return [self._grave(subject, tag, f"{tag.rows} rows in a row, more than a loss scaler skips")]
        if tag.rows > 1:
            return []
        return [_sighting(Severity.LOW, subject, tag.first_step, f"{shown}: as a step that a loss scaler skips")]

    def _masked(self, point: Point) -> list[Finding]:
        """A loss of exactly 0.0 beside a gradient norm that is not finite."""
        return [
            self._grave(subject, tag, f"{point.tag} is exactly 0.0 at step {point.step}: NaN is masked in the log")
            for subject, tag in self._tags.items() if not tag.is_grave and tag.rows
        ]

    def _grave(self, subject: str, tag: _Tag, why: str) -> Sighting:
        tag.is_grave = True
        return _sighting(Severity.HIGH, subject, tag.first_step,
                         f"{subject}={tag.value!r} at step {tag.first_step}; {why}")

    def _is_explained(self) -> bool:
        skips = self.skips()
        return skips is not None and self._gradient_rows <= skips

    def _is_unexplained(self) -> bool:
        skips, until = self.skips(), self.counted_at()
        while self._waiting and (until is None or self._waiting[0] < until):
            self._waiting.popleft()
        return skips is not None and self._gradient_rows - len(self._waiting) > skips

    def _finite(self, subject: str, point: Point) -> list[Finding]:
        tag = self._tags[subject]
        if point.step <= tag.first_step:
            return []
        tag.finite += 1
        if tag.finite < RECOVERED_AFTER:
            return []
        del self._tags[subject]
        return [Recovery(type=AnomalyType.NAN_INF, subject=subject, step=point.step,
                         why=f"{RECOVERED_AFTER} finite values in a row")]


def _sighting(severity: Severity, subject: str, step: int, description: str) -> Sighting:
    return Sighting(type=AnomalyType.NAN_INF, severity=severity, subject=subject, step=step, description=description)
