"""Observation: what the facts of a run amount to, before anything is judged. Pure; reads only the RunRecord."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import Any

from harness.frameworks.base import FrameworkFacts
from harness.judge.chain import chained
from harness.judge.told import ToldUpdates, told_updates
from harness.record.attempts import attempts
from harness.record.merge import PRINTED
from harness.record.run_record import RunRecord
from harness.record.store import MetricStore, Point, TagSummary

LONE_AFTER, LONE_FACTOR = 4, 3
"""Distances that a series must have, and how much larger than all others its last one is, for its last step to be
taken as a closing row."""
_NOT_THE_VALUE = re.compile(r"(?i)best|lowest|highest|prev|last|target|initial|(^|[/_.])(min|max)([/_.]|$)")
"""Printed beside a value: `best_loss=inf` before the first evaluation is no loss of the run."""
OTHER_LOSSES = (
    r"(?i)(^|[/_.])(nll|neg_log_likelihood|negative_log_likelihood|cross_entropy|cross_entropy_loss|crossentropy|xent)$",
)
"""Names that can mean nothing but a loss; asked where no series is called one. `objective`, which may be maximised,
and `ce` need --loss-tag."""
CADENCE_SAMPLE = 1000
"""Points of a series that its cadence is taken from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsSeen:
    """What the checkpoints of this run show; checkpoints.inspect says how they were looked at."""

    found: int = 0
    not_inspected: int = 0
    last_step: int | None = None
    steps: tuple[int, ...] = ()
    """Steps of the checkpoints that are not damaged, rising."""
    last_epoch: int | None = None
    """Highest epoch that a checkpoint's name tells, as the trainer counts."""
    nonfinite: tuple[str, ...] = ()
    newest_damage: str | None = None
    """What is wrong with the newest checkpoint, None when it is whole."""
    start: str | None = None
    change: str | None = None
    """Comparison.kind of the last whole checkpoint against the start; None when there was no start."""
    start_kind: str = ""
    """start-weights, own-step-0 or own-earliest; the last is no start of training, and its equality proves nothing."""
    changed_tensors: int = 0
    max_abs_change: float | None = None
    why_not_compared: str | None = None
    holds_start: tuple[str, ...] = ()
    """Delivered checkpoints with the very parameters that training began with and that moved in memory."""
    moved: tuple[str, ...] = ()
    """Delivered checkpoints with other parameters than training began with, by the probe's digests of these."""
    delivered_unchanged: tuple[str, ...] = ()
    """Delivered models, without a step in their name, that equal the start."""

    @property
    def compared(self) -> bool:
        """Whether there was a start to compare with."""
        return self.change is not None

    @property
    def learnt(self) -> bool:
        """Whether the weights differ from the start by more than decay, a cast, a resize or BatchNorm statistics."""
        return self.change == "changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeSeen:
    """What the optimizer probe counted, over all processes of the run."""

    asked: bool = False
    loaded: bool = False
    torch_seen: bool = False
    optimizers: int = 0
    steps: int = 0
    """Most applied steps of one optimizer in one process."""
    lr_positive_steps: int = 0
    grads_checked: int = 0
    grads_nonzero: int = 0
    grads_nonfinite: int = 0
    """Looked-at gradients of applied steps that held NaN or infinite values."""
    params_checked: int = 0
    params_nonfinite: int = 0
    """Parameters that held NaN or infinite values when the interpreter ended."""
    scaler_skips: int = 0
    counts: tuple[int, ...] = ()
    """Applied steps of every optimizer that stepped, over all processes, rising; a loss scaler's skips added."""
    rates: tuple[tuple[float, float], ...] = ()
    """(lowest, highest) learning rate of every optimizer that stepped, over all processes."""
    clean: bool = False
    """Whether the process that stepped most ended through its exit handlers; else the counts may lag by a second."""
    updated_at: float = 0.0
    """When the process that stepped most last wrote its counts."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """Everything that the checks ask."""

    record: RunRecord
    facts: FrameworkFacts | None
    tags: tuple[TagSummary, ...]
    train_loss: tuple[TagSummary, ...]
    eval_loss: tuple[TagSummary, ...]
    grad_norm: tuple[TagSummary, ...]
    lr: tuple[TagSummary, ...]
    steps: StepsSeen
    updates: Updates
    probe: ProbeSeen
    weights: WeightsSeen
    target: int | None
    target_source: str
    counter: CounterSeen | None = None
    told: ToldUpdates | None = None
    """Updates by the trainer's own lines, of a run that left nothing but its log."""
    printed: tuple[TagSummary, ...] = ()
    """What stands in the output of a run that was launched here, and nowhere else. Its steps and its rounded values
    prove nothing; a NaN in it is one."""

    @property
    def fresh_points(self) -> int:
        """Metric points that count as evidence."""
        return sum(tag.fresh_points for tag in (*self.tags, *self.printed))

    @property
    def is_printed_only(self) -> bool:
        """Whether the training loss was read from the output alone."""
        return bool(self.train_loss) and all(tag in self.printed for tag in self.train_loss)


def observe(record: RunRecord) -> Observation:
    """Sum up one run."""
    raw = record.fact("command", "facts")
    facts = FrameworkFacts.from_json(raw) if isinstance(raw, dict) else None
    every = tuple(record.store.tags()) if record.store else ()
    is_given = _is_others(record)
    tags = tuple(tag for tag in every if tag.kind != PRINTED or is_given)
    printed = tuple(tag for tag in every if tag not in tags and not _NOT_THE_VALUE.search(tag.tag))
    fresh = tuple(tag for tag in tags if tag.fresh_points > 0)
    rules = facts or FrameworkFacts(name="unknown", reason="")
    own = (re.escape(record.spec.loss_tag) + "$",) if record.spec.loss_tag else ()
    train, evals = _losses(fresh, (*own, *rules.loss_tags), rules)
    if not train:
        train = _losses(fresh, OTHER_LOSSES, rules)[0]
    printed_train, printed_evals = _losses(
        tuple(tag for tag in printed if tag.fresh_points), (*own, *rules.loss_tags), rules)
    probe = _probe(record)
    weights = _weights(record)
    stepped = tuple(tag for tag in fresh if tag.kind not in _without_steps(record))
    steps = _steps(record.store, rules, tuple(tag for tag in train if tag in stepped) or _trainlike(stepped, rules),
                   probe)
    if rules.step_base is None and steps.first is not None and _counts_epochs(record, facts):
        steps = replace(steps, base=0 if steps.first == 0 else 1)
    counter = _counter(record)
    target, source = _target(record, rules, fresh, counter)
    updates = _updates(record.store, rules, fresh, _executed(rules, counter, probe))
    told = told_updates(record)
    if is_given and not fresh and not updates.executed:
        updates = replace(updates, executed=None)
    return Observation(
        record=record, facts=facts, tags=tags, printed=printed, train_loss=train or printed_train,
        eval_loss=(*evals, *printed_evals),
        grad_norm=tuple(tag for tag in (*fresh, *printed)
                        if tag.fresh_points and _matches(tag.tag, rules.grad_norm_tags)),
        lr=tuple(tag for tag in fresh if _matches(tag.tag, rules.lr_tags)),
        steps=steps, updates=updates, told=told, probe=probe, weights=weights,
        target=target, target_source=source, counter=counter,
    )


def _is_others(record: RunRecord) -> bool:
    """Whether others started the run: often its log is all that there is, and its end is never a proven one."""
    return bool(record.fact("attempt-started", "asserted")) or record.last("attached") is not None


def _rows_are_numbered(record: RunRecord) -> bool:
    """Whether every source that holds points numbers its rows, since nothing told their steps."""
    sources = [one for one in record.fact("sources", "sources", []) or []
               if one.get("points") and (one.get("kind") != PRINTED or _is_others(record))]
    return bool(sources) and all(
        any(isinstance(problem, dict) and problem.get("code") == "steps-unknown"
            for problem in one.get("problems") or []) for one in sources)


def _losses(
    tags: tuple[TagSummary, ...], patterns: tuple[str, ...], rules: FrameworkFacts
) -> tuple[tuple[TagSummary, ...], tuple[TagSummary, ...]]:
    """Training and evaluation losses."""
    losses = tuple(tag for tag in tags if _matches(tag.tag, patterns))
    evals = tuple(tag for tag in losses if _matches(tag.tag, rules.eval_tags))
    return tuple(tag for tag in losses if tag not in evals), evals


def _without_steps(record: RunRecord) -> set[str]:
    """Kinds of sources that do not hold the trainer's own steps."""
    found: set[str] = set()
    if _rows_are_numbered(record):
        return found
    for source in record.fact("sources", "sources", []) or []:
        problems = source.get("problems") if isinstance(source, dict) else None
        if any(isinstance(one, dict) and one.get("code") == "steps-unknown" for one in problems or []):
            found.add(str(source.get("kind")))
    return found


def _matches(tag: str, patterns: Iterable[str]) -> bool:
    return any(re.search(pattern, tag, re.IGNORECASE) for pattern in patterns)


def _trainlike(tags: tuple[TagSummary, ...], rules: FrameworkFacts) -> tuple[TagSummary, ...]:
    return tuple(tag for tag in tags if not _matches(tag.tag, rules.eval_tags))


def _steps(
    store: MetricStore | None, rules: FrameworkFacts, tags: tuple[TagSummary, ...], probe: ProbeSeen
) -> StepsSeen:
    if store is None or not tags:
        return StepsSeen()
    if rules.executed_tags:
        tags = tuple(tag for tag in tags if _matches(tag.tag, rules.executed_tags)) or tags
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
    if last + 1 in probe.counts:
        return 0
    return 1 if last in probe.counts else None


def _counter(record: RunRecord) -> CounterSeen | None:
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


def _executed(rules: FrameworkFacts, counter: CounterSeen | None, probe: ProbeSeen) -> int | None:
    """By the counter, without the steps that the probe saw not to be applied (a loss scaler's skips)."""
    if counter is None or rules.counts_updates_by != "counter":
        return None
    return min(counter.executed, probe.steps) if probe.steps else counter.executed


def _target(
    record: RunRecord, rules: FrameworkFacts, tags: tuple[TagSummary, ...], counter: CounterSeen | None
) -> tuple[int | None, str]:
    if record.spec.max_steps is not None:
        return record.spec.max_steps, "--max-steps"
    if rules.target_steps is not None:
        return rules.target_steps, rules.target_source
    if counter is not None and counter.planned is not None:
        return counter.planned, f"announced as max_steps in {counter.source}"
    printed = record.fact("log-end", "announced_total")
    announced = [tag for tag in tags if _matches(tag.tag, rules.total_steps_tags)]
    for tag in announced:
        if tag.min_finite is not None and tag.min_finite == tag.max_finite and tag.min_finite >= 1:
            return int(tag.min_finite), f"announced as {tag.tag}"
    if printed:
        return int(printed), "announced in the log"
    return None, ""


def _updates(
    store: MetricStore | None, rules: FrameworkFacts, tags: tuple[TagSummary, ...], counted: int | None
) -> Updates:
    """Count rows: executed where a tag of executed_tags has a point, effective where gradient and lr are above 0.

    `counted`: executed updates by the trainer's own counter, where that is the framework's best witness.
    """
    lr = _pick(tags, rules.lr_tags)
    grad = _pick(tags, rules.grad_norm_tags)
    signals = [tag for tag in tags if _matches(tag.tag, rules.signal_tags)]
    dead = [tag for tag in tags if _matches(tag.tag, rules.dead_signal_tags)]
    executed_tags = [tag for tag in tags if _matches(tag.tag, rules.executed_tags)]
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
    found = [tag for tag in tags if _matches(tag.tag, patterns)]
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


def _probe(record: RunRecord) -> ProbeSeen:
    facts: dict[str, Any] = record.fact("probe", "facts", {}) or {}
    saved = (record.fact("checkpoints", "facts", {}) or {}).get("checkpoints") or []
    processes = chained([item for item in facts.get("processes", []) if isinstance(item, dict)], attempts(record),
                        [item for item in saved if isinstance(item, dict)])

    def most(*path: str) -> int:
        values = []
        for item in processes:
            value: Any = item
            for key in path:
                value = value.get(key) if isinstance(value, dict) else None
            values.append(value if isinstance(value, int) else 0)
        return max(values, default=0)

    first = max(processes, key=_applied, default={})
    return ProbeSeen(
        asked=record.spec.probe, loaded=bool(facts.get("loaded")), torch_seen=bool(processes),
        optimizers=most("optimizers_created"), steps=most("steps"), lr_positive_steps=most("lr_positive_steps"),
        grads_checked=most("grad", "checked"), grads_nonzero=most("grad", "nonzero"),
        grads_nonfinite=most("grad", "nonfinite"), params_checked=most("params", "checked"),
        params_nonfinite=most("params", "nonfinite"),
        scaler_skips=most("scaler_skips"), counts=_counts(processes),
        rates=_rates(processes),
        clean=bool(first.get("clean_exit")), updated_at=float(first.get("updated_at") or 0.0),
    )


def _applied(process: dict[str, Any]) -> int:
    steps = process.get("steps")
    return steps if isinstance(steps, int) else 0


def _counts(processes: list[dict[str, Any]]) -> tuple[int, ...]:
    found = set()
    for process in processes:
        skips = process.get("scaler_skips") if isinstance(process.get("scaler_skips"), int) else 0
        rows = [item.get("steps") for item in process.get("optimizers") or [] if isinstance(item, dict)]
        found |= {steps + (skips or 0) for steps in (*rows, _applied(process)) if isinstance(steps, int) and steps > 0}
    return tuple(sorted(found))


def _rates(processes: list[dict[str, Any]]) -> tuple[tuple[float, float], ...]:
    rows = [row for item in processes for row in item.get("optimizers") or [] if isinstance(row, dict)]
    found = {(row.get("lr_min"), row.get("lr_max")) for row in rows if row.get("steps")}
    return tuple(sorted((float(low), float(high)) for low, high in found if low is not None and high is not None))


OWN_EARLIEST = "own-earliest"
"""The start is the run's own first checkpoint, which is no start of training."""
MARKS = ("held", "moved")
UNCHANGED = ("none", "cast-only", "resize-only")


def _compared(reloads: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One comparison a checkpoint, with its path as `end`: of several models in it one that changed is enough."""
    found: dict[str, dict[str, Any]] = {}
    for item in reloads:
        comparison, path = item.get("comparison"), str(item.get("of") or item.get("path"))
        if isinstance(comparison, dict) and (path not in found or comparison.get("kind") == "changed"):
            found[path] = {**comparison, "end": path}
    return list(found.values())


def _weights(record: RunRecord) -> WeightsSeen:
    facts: dict[str, Any] = record.fact("checkpoints", "facts", {}) or {}
    items = [item for item in facts.get("checkpoints", []) if isinstance(item, dict)]
    change = facts.get("change") or {}
    comparison = change.get("comparison") or {}
    newest = items[-1] if items else {}
    reloads = [one for entry in record.every("reload") if isinstance(one := entry.get("facts"), dict)]
    compared = _compared(reloads)
    if compared and (not change or change.get("start_kind") == OWN_EARLIEST):
        # An untrained one among several checkpoints counts; each was compared with a start of its own format.
        change = min(compared, key=lambda found: (
            found.get("start_kind") == OWN_EARLIEST, found.get("kind") == "changed"))
        comparison = change
    marks = {word: [str(item.get("path")) for item in reloads if item.get("marks") == word] for word in MARKS}
    return WeightsSeen(
        found=len(items),
        not_inspected=sum(item.get("status") == "not-inspected" for item in items),
        last_step=facts.get("last_step"),
        steps=tuple(sorted({item["step"] for item in items
                            if isinstance(item.get("step"), int) and item.get("status") != "damaged"})),
        last_epoch=max((item["epoch"] for item in items
                        if isinstance(item.get("epoch"), int) and item.get("status") != "damaged"), default=None),
        nonfinite=tuple(f"{item.get('path')}: {name}" for item in items for name in item.get("nonfinite", [])),
        newest_damage=f"{newest.get('path')}: {'; '.join(newest.get('problems', []))}"
        if newest.get("status") == "damaged" else None,
        start=change.get("start"), change=change.get("kind"), start_kind=str(change.get("start_kind") or ""),
        changed_tensors=int(comparison.get("changed") or 0), max_abs_change=comparison.get("max_abs_change"),
        why_not_compared=facts.get("why_not_compared"),
        holds_start=(*(facts.get("holds_start") or ()), *marks["held"]),
        moved=(*(facts.get("moved") or ()), *marks["moved"]),
        delivered_unchanged=(*(facts.get("delivered_unchanged") or ()), *(
            str(found.get("end")) for found in compared
            if found.get("kind") in UNCHANGED and found.get("start_kind") != OWN_EARLIEST)),
    )


def was_stopped(seen: Observation) -> str | None:
    """Why the harness ended the run; None where it ended by itself, if only just before it was to be stopped."""
    reason = (seen.record.last_end() or {}).get("stop_reason")
    unsent = reason in ("cap", "early-stop", "stop-on") and seen.record.last("signal-sent") is None
    return None if not reason or unsent else str(reason)


def goes_on(seen: Observation) -> bool:
    """Whether others started the run, and the watch of it ended while it went on."""
    record = seen.record
    return (record.last("attached") is not None and record.last("attempt-started") is not None
            and record.last("attempt-ended") is None
            and record.fact("run-finished", "stop_reason") in ("once", "cancelled", "owner-lost"))


def counts_steps(seen: Observation) -> bool:
    """Whether a metric step is a trainer step: some trainers, and some loops, log once an epoch and count epochs."""
    return not _counts_epochs(seen.record, seen.facts) and not _rows_are_numbered(seen.record)


def counts_epochs(seen: Observation) -> bool:
    """Whether a metric step is an epoch."""
    return _counts_epochs(seen.record, seen.facts)


def _counts_epochs(record: RunRecord, facts: FrameworkFacts | None) -> bool:
    sources = [item for item in record.fact("sources", "sources", []) or [] if isinstance(item, dict)]
    units = {item.get("step_unit", "step") for item in sources
             if item.get("points") and item.get("kind") != PRINTED}
    return units == {"epoch"} or (facts is not None and facts.step_unit == "epoch")


def steps_text(seen: Observation, *probed: int) -> str:
    """Where each source puts the last step."""
    parts = []
    if seen.steps.last is not None:
        unit = "row " if _rows_are_numbered(seen.record) else "" if counts_steps(seen) else "epoch "
        lone = f" and a lone row at {seen.steps.lone_last}" if seen.steps.lone_last is not None else ""
        parts.append(f"metrics at {unit}{seen.steps.completed}{lone}")
    if seen.counter is not None:
        parts.append(f"counter at {seen.counter.step}")
    if seen.weights.last_step is not None:
        parts.append(f"checkpoint at {seen.weights.last_step}")
    if probed:
        parts.append(f"probe at {' and '.join(map(str, probed[:4]))}")
    return ", ".join(parts) or "no step seen"
