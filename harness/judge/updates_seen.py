"""How many updates the metric rows and the trainer's own counter tell, and how far the series came."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from harness.frameworks.base import FrameworkFacts
from harness.judge.probe_seen import ProbeSeen
from harness.record.run_record import RunRecord
from harness.record.store import MetricStore, Point, TagSummary

LONE_AFTER, LONE_FACTOR = 4, 3
"""Distances that a series must have, and how much larger than all others its last one is, for its last step to be
taken as a closing row."""
CADENCE_SAMPLE = 1000
"""Points of a series that its cadence is taken from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterSeen:
    """The trainer's own count of steps, as a file of this run says. Steps are completed ones."""

    step: int
    resumed_at: int = 0
    planned: int | None = None
    """The total that the trainer itself resolved."""
    epoch: float | None = None
    planned_epochs: float | None = None
    is_final: bool = False
    """Whether it is the trainer's last word, and not a checkpoint's copy of an earlier one."""
    source: str = ""
    patience: int | None = None
    """Of the trainer's own early stopping, in evaluations; None without one."""
    waited: int | None = None
    """Evaluations without an improvement that it had seen by then."""

    @property
    def executed(self) -> int:
        """Steps of this attempt."""
        return max(0, self.step - self.resumed_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsSeen:
    """How far the metric series say that the run came, in metric steps and in completed updates."""

    first: int | None = None
    last: int | None = None
    cadence: int = 1
    """Median distance of logged steps."""
    largest_gap: int = 1
    """Largest distance of logged steps, a last lone one apart: where logging is irregular, this much may be missing."""
    lone_last: int | None = None
    """A last step that lies further from the series than three times any other distance, as a closing row does that
    is written whether the loop came there or not. It is not `last`."""
    base: int | None = None
    """Metric step of the first update: 0 or 1; None when the data allows both."""

    @property
    def completed(self) -> int | None:
        """Completed steps, by the smaller reading where the base is unknown."""
        return None if self.last is None else self.last + (1 if self.base == 0 else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Updates:
    """Executed and effective updates as counted from metric rows; None where rows cannot tell."""

    executed: int | None
    effective: int | None
    lr_seen: bool
    lr_positive: bool
    grad_seen: bool
    grad_positive: bool
    signal_seen: bool
    signal_positive: bool


def matches(tag: str, patterns: Iterable[str]) -> bool:
    """Whether one of the patterns is found in the name of a series, whatever its case."""
    return any(re.search(pattern, tag, re.IGNORECASE) for pattern in patterns)


def see_steps(
    store: MetricStore | None, rules: FrameworkFacts, tags: tuple[TagSummary, ...], probe: ProbeSeen
) -> StepsSeen:
    """From the densest of the series."""
    if store is None or not tags:
        return StepsSeen()
    if rules.executed_tags:
        tags = tuple(tag for tag in tags if matches(tag.tag, rules.executed_tags)) or tags
    first = min(tag.first_step for tag in tags if tag.first_step is not None)
    last = max(tag.last_step for tag in tags if tag.last_step is not None)
    densest = max(tags, key=lambda tag: tag.fresh_points)
    sample = [point.step for point in store.series(densest.tag, run=densest.run, last=CADENCE_SAMPLE)]
    gaps = [b - a for a, b in pairwise(sample) if b > a]
    lone = None
    if len(gaps) >= LONE_AFTER and gaps[-1] > LONE_FACTOR * max(gaps[:-1]) and last == sample[-1]:
        lone, last = last, sample[-2]
        gaps.pop()
    cadence = max(1, round(median(gaps))) if gaps else max(1, last)
    return StepsSeen(first=first, last=last, cadence=cadence, largest_gap=max(gaps, default=max(1, last)),
                     lone_last=lone, base=_base(rules, first, last, probe))


def _base(rules: FrameworkFacts, first: int, last: int, probe: ProbeSeen) -> int | None:
    """A series that starts at 0 may have logged before the first update; only a count of updates tells."""
    if rules.step_base is not None:
        return rules.step_base
    if first > 0:
        return 1
    counts = (*probe.counts, *probe.in_turn)
    if last + 1 in counts:
        return 0
    return 1 if last in counts else None


def see_counter(record: RunRecord) -> CounterSeen | None:
    """The furthest count of the run's own files; of equal ones the trainer's last word."""
    found = []
    for source in record.fact("sources", "sources", []) or []:
        counter = source.get("counter") if isinstance(source, dict) else None
        if isinstance(counter, dict) and isinstance(counter.get("step"), int):
            found.append(CounterSeen(
                step=counter["step"], resumed_at=counter.get("resumed_at") or 0, planned=counter.get("planned"),
                epoch=counter.get("epoch"), planned_epochs=counter.get("planned_epochs"),
                is_final=bool(counter.get("is_final")), patience=counter.get("patience"), waited=counter.get("waited"),
                source=str(source.get("path") or "")))
    return max(found, key=lambda one: (one.step, one.is_final), default=None)


def executed_by_counter(rules: FrameworkFacts, counter: CounterSeen | None, probe: ProbeSeen) -> int | None:
    """By the counter, without the steps that the probe saw not to be applied (a loss scaler's skips)."""
    if counter is None or rules.counts_updates_by != "counter":
        return None
    return min(counter.executed, probe.steps) if probe.steps else counter.executed


def see_updates(
    store: MetricStore | None, rules: FrameworkFacts, tags: tuple[TagSummary, ...], counted: int | None
) -> Updates:
    """Count rows: executed where a tag of executed_tags has a point, effective where gradient and lr are above 0.

    `counted`: executed updates by the trainer's own counter, where that is the framework's best witness.
    """
    lr = _pick(tags, rules.lr_tags)
    grad = _pick(tags, rules.grad_norm_tags)
    signals = [tag for tag in tags if matches(tag.tag, rules.signal_tags)]
    dead = [tag for tag in tags if matches(tag.tag, rules.dead_signal_tags)]
    executed_tags = [tag for tag in tags if matches(tag.tag, rules.executed_tags)]
    executed, effective = counted, None
    if store is not None and rules.counts_updates_by == "metric-rows":
        executed = _distinct_steps(store, executed_tags)
        if not executed and not rules.rows_are_complete:
            executed = None
    if store is not None and grad is not None and lr is not None:
        effective = _both_positive(store, grad, lr)
    elif store is not None and grad is not None and rules.counts_updates_by != "probe":
        effective = sum(1 for point in _points(store, grad) if point.value > 0)
    if executed is not None and effective is not None:
        effective = min(executed, effective)
    return Updates(
        executed=executed, effective=effective,
        lr_seen=lr is not None, lr_positive=_positive(lr),
        grad_seen=grad is not None and grad.max_finite is not None,
        grad_positive=_positive(grad), signal_seen=bool(signals or dead),
        signal_positive=any(tag.min_finite is not None and tag.min_finite < 1 for tag in dead) if dead else any(
            _positive(tag, above=rules.signal_floor) for tag in signals),
    )


def _pick(tags: tuple[TagSummary, ...], patterns: tuple[str, ...]) -> TagSummary | None:
    found = [tag for tag in tags if matches(tag.tag, patterns)]
    return max(found, key=lambda tag: (_positive(tag), tag.fresh_points)) if found else None


def _positive(tag: TagSummary | None, *, above: float = 0.0) -> bool:
    return tag is not None and tag.max_finite is not None and tag.max_finite > above


def _points(store: MetricStore, tag: TagSummary) -> Iterator[Point]:
    return iter(store.iter_series(tag.tag, run=tag.run))


def _distinct_steps(store: MetricStore, tags: list[TagSummary]) -> int:
    return len({point.step for tag in tags for point in _points(store, tag)})


def _both_positive(store: MetricStore, grad: TagSummary, lr: TagSummary) -> int | None:
    """Steps at which both are above 0; None when the two were never logged at the same step."""
    rates = _points(store, lr)
    rate = next(rates, None)
    shared = count = 0
    for point in _points(store, grad):
        while rate is not None and rate.step < point.step:
            rate = next(rates, None)
        if rate is not None and rate.step == point.step:
            shared += 1
            count += point.value > 0 and rate.value > 0
    return count if shared else None
