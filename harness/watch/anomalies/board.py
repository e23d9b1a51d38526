"""The board of a run: every detector behind one call, what is open, what is over, and the incident of the first NaN."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from harness.record.vocabulary import AnomalyType, Severity
from harness.watch.anomalies.divergence import Divergence
from harness.watch.anomalies.gradient import GradientExplosion
from harness.watch.anomalies.model import Finding, Point, Recovery, Role, Sighting
from harness.watch.anomalies.nonfinite import NonFinite
from harness.watch.anomalies.output import LOSS_SUBJECT, Output
from harness.watch.anomalies.stall import Stall
from harness.watch.anomalies.throughput import SlowThroughput

LAST_POINTS = 10
MAX_PAST = 10_000
STEPS_AFTER = 2
"""Steps that must be made after an error in the output before it is over."""
MAX_LISTED = 50
"""Anomalies of one type that are listed; further ones are counted."""
OVER_BY_STEPS = frozenset({AnomalyType.OOM, AnomalyType.CRASH})
LOSSES = (Role.LOSS, Role.POLICY_LOSS)
_RANK = (Severity.LOW, Severity.MEDIUM, Severity.HIGH, Severity.BLOCKER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """The first value that is not finite, and what led to it."""

    point: Point
    last_points: dict[str, list[tuple[int, float]]]
    """{"loss", "grad_norm", "lr": the last ten (step, value), the oldest first}."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What is new on the board: an anomaly began, got worse, or is over."""

    number: int
    sighting: Sighting
    recovery: Recovery | None = None
    incident: Incident | None = None


@dataclass(slots=True)
class _Open:
    number: int
    sighting: Sighting
    seen_at: float
    """Seconds since the epoch."""
    steps_after: set[int] = field(default_factory=set)


class Board:
    """`clock`: of the stall and the probe's lag, only rising; `wall`: seconds since the epoch."""

    def __init__(
        self, *, stall: Stall, clock: Callable[[], float], wall: Callable[[], float], is_unclipped: bool = False,
        scaler_skips: Callable[[], int | None] = lambda: None,
        skips_counted_at: Callable[[], float | None] = lambda: None,
    ) -> None:
        self.stall = stall
        self.output = Output()
        self.unlisted: Counter[str] = Counter()
        """Anomalies beyond MAX_LISTED, by type."""
        self.last_step: int | None = None
        """The newest training step."""
        self._clock = clock
        self._wall = wall
        self._probe_skips = scaler_skips
        self._nonfinite = NonFinite(self._skips, skips_counted_at)
        self._divergence = Divergence()
        self._gradient = GradientExplosion(is_unclipped=is_unclipped)
        self._throughput = SlowThroughput()
        self._open: dict[tuple[AnomalyType, str], _Open] = {}
        self._listed: Counter[AnomalyType] = Counter()
        self._number = 0
        self._last = {role: deque[tuple[int, float]](maxlen=LAST_POINTS) for role in ("loss", "grad_norm", "lr")}
        self._past: set[tuple[AnomalyType, str, int | None]] = set()
        """(type, subject, step) of what began, since a source that comes later may tell it again."""
        self._printed_step: int | None = None
        self._incident_level = 0
        self._roles_known = False
        """Whether a tag was seen whose role is known; the others count no steps then."""

    def _skips(self) -> int | None:
        probed = self._probe_skips()
        told = self.output.scaler_skips
        return told + (probed or 0) if probed is not None or told else None

    @property
    def open(self) -> list[Sighting]:
        """What is not over."""
        return [item.sighting for item in self._open.values()]

    # -- what it is fed with

    def points(self, points: Iterable[Point]) -> list[Change]:
        """New points of the run's own sources, in the order in which they were read."""
        changes: list[Change] = []
        now = self._clock()
        newest: int | None = None
        for point in points:
            told = point.role is not Role.OTHER
            if point.is_training and (told or not self._roles_known):
                self._roles_known = self._roles_known or told
                newest = point.step if newest is None else max(newest, point.step)
            if self._open and point.is_training:
                changes += self._went_on(point)
            found: list[Finding] = []
            if self._nonfinite.is_open or point.value == 0.0 or not math.isfinite(point.value):
                found += self._nonfinite.observe(point, now)
            elif point.role in LOSSES:
                self._nonfinite.note_loss(point)
            if told:
                found += self._told(point)
            if found:
                changes += self._settle(found, point)
        if newest is not None:
            self.last_step = newest
            changes += self._settle(self.stall.progress(newest, now))
        return changes

    def _told(self, point: Point) -> list[Finding]:
        """A point whose role is known, to the detectors that watch such."""
        role, value = point.role, (point.step, point.value)
        if role is Role.LR:
            self._last["lr"].append(value)
        elif role is Role.GRAD_NORM:
            self._last["grad_norm"].append(value)
            return self._gradient.observe(point)
        elif role is Role.LOSS or role is Role.POLICY_LOSS:
            self._last["loss"].append(value)
            return self._divergence.observe(point) + self._throughput.observe(point)
        elif role is Role.RATE:
            return self._throughput.observe(point)
        return []

    def rename(self, old: str, new: str) -> None:
        """A series goes on under another name: another source tells it better."""
        for detector in (self._nonfinite, self._divergence, self._gradient, self._throughput):
            detector.rename(old, new)
        self._past |= {(kind, new, step) for kind, subject, step in self._past if subject == old}
        for kind in AnomalyType:
            item = self._open.pop((kind, old), None)
            if item is not None:
                item.sighting = replace(item.sighting, subject=new)
                self._open[kind, new] = item

    def printed(self, step: int | None) -> list[Change]:
        """The step that the output tells last, by its bars too; no count of updates."""
        if step is None or step == self._printed_step:
            return []
        self._printed_step = step
        now = self._clock()
        return self._settle(self.stall.progress(step, now) if self.last_step is None else self.stall.moved(now))

    def text(self, data: bytes) -> list[Change]:
        """What the job printed."""
        return self._settle(self.output.feed(data, self.last_step))

    def text_ends(self) -> list[Change]:
        """Nothing more will be printed."""
        return self._settle(self.output.finish(self.last_step))

    def tick(self, *, may_stall: bool = True) -> list[Change]:
        """The time that passes; `may_stall`: whether steps are still expected."""
        now = self._clock()
        found = self._nonfinite.check(now)
        if may_stall:
            found = [*found, *self.stall.check(now)]
        return self._settle(found)

    def moved(self) -> list[Change]:
        """Another witness than the metrics saw steps, as the probe."""
        return self._settle(self.stall.moved(self._clock()))

    # -- what it keeps

    def _went_on(self, point: Point) -> list[Change]:
        """An error in the output is over when steps are made after it; a printed NaN when the loss is finite again."""
        changes = []
        for key, item in list(self._open.items()):
            kind, subject = key
            if not (kind in OVER_BY_STEPS or subject == LOSS_SUBJECT):
                continue
            if point.wall_time and point.wall_time <= item.seen_at:
                continue
            if not point.wall_time and item.sighting.step is not None and point.step <= item.sighting.step:
                continue
            if subject == LOSS_SUBJECT and not (point.role in LOSSES
                                                and math.isfinite(point.value)):
                continue
            item.steps_after.add(point.step)
            if len(item.steps_after) >= STEPS_AFTER:
                changes += self._settle([Recovery(type=kind, subject=subject, step=point.step,
                                                  why=f"the run went on to step {point.step}")])
        return changes

    def _settle(self, found: Iterable[Finding], point: Point | None = None) -> list[Change]:
        changes = []
        for finding in found:
            change = self._over(finding) if isinstance(finding, Recovery) else self._seen(finding, point)
            if change is not None:
                changes.append(change)
        return changes

    def _over(self, recovery: Recovery) -> Change | None:
        item = self._open.pop((recovery.type, recovery.subject), None)
        return None if item is None or not item.number else Change(
            number=item.number, sighting=item.sighting, recovery=recovery)

    def _seen(self, sighting: Sighting, point: Point | None) -> Change | None:
        key = sighting.type, sighting.subject
        if self._is_told(sighting):
            return None
        known = self._open.get(key)
        if known is not None:
            known.seen_at = self._wall()
            known.steps_after.clear()
            if _RANK.index(sighting.severity) <= _RANK.index(known.sighting.severity):
                return None
            known.sighting = replace(sighting, step=known.sighting.step)
            return self._change(known, point)
        past = sighting.type, sighting.subject, sighting.step
        if past in self._past and sighting.step is not None:
            self._open[key] = _Open(number=0, sighting=sighting, seen_at=self._wall())
            return None
        if len(self._past) < MAX_PAST:
            self._past.add(past)
        self._listed[sighting.type] += 1
        listed = self._listed[sighting.type] <= MAX_LISTED
        if listed:
            self._number += 1
        else:
            self.unlisted[sighting.type.value] += 1
        number = self._number if listed else 0
        self._open[key] = item = _Open(number=number, sighting=sighting, seen_at=self._wall())
        return self._change(item, point)

    def _is_told(self, sighting: Sighting) -> bool:
        """A loss that was printed and is logged too is one anomaly: the printed one is said no more, or gives way."""
        if sighting.type is not AnomalyType.NAN_INF:
            return False
        if sighting.subject == LOSS_SUBJECT:
            return any(kind is AnomalyType.NAN_INF and subject != LOSS_SUBJECT
                       for kind, subject in self._open) or any(
                kind is AnomalyType.NAN_INF and step == sighting.step for kind, _, step in self._past)
        if self._is_of_one_step(sighting):
            return True
        if sighting.severity is not Severity.HIGH:
            return False
        printed = self._open.pop((AnomalyType.NAN_INF, LOSS_SUBJECT), None)
        if printed is not None:
            weaker = replace(sighting, severity=Severity.LOW)
            self._open[sighting.type, sighting.subject] = replace(printed, sighting=weaker)
            self._past.add((sighting.type, sighting.subject, sighting.step))
        return False

    def _is_of_one_step(self, sighting: Sighting) -> bool:
        """Loss and gradient norm that are NaN at one step are one anomaly, which the graver of them names."""
        for (kind, subject), item in list(self._open.items()):
            known = item.sighting
            if kind is not AnomalyType.NAN_INF or known.step != sighting.step or subject in (
                    sighting.subject, LOSS_SUBJECT):
                continue
            if _RANK.index(known.severity) >= _RANK.index(sighting.severity):
                return True
            self._open[kind, sighting.subject] = self._open.pop((kind, subject))
            self._past.add((kind, sighting.subject, sighting.step))
            return False
        return False

    def _change(self, item: _Open, point: Point | None) -> Change | None:
        if not item.number:
            return None
        return Change(number=item.number, sighting=item.sighting, incident=self._incident(item.sighting, point))

    def _incident(self, sighting: Sighting, point: Point | None) -> Incident | None:
        """Of the first value; once more where that was a skip and this is none, or was printed and this is logged."""
        if sighting.type is not AnomalyType.NAN_INF or (point is not None and point.role is Role.OTHER):
            return None
        level = 2 if point is None else 1 if sighting.severity is Severity.LOW else 3
        if level <= self._incident_level:
            return None
        self._incident_level = level
        value = point or Point(sighting.subject, Role.LOSS, sighting.step or 0, math.nan, 0.0, True)
        return Incident(point=value, last_points={role: list(values) for role, values in self._last.items()})
