"""What a run logged of a reloaded model's evaluation, found by name and step, and what the comparison comes to."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from harness.checkpoints.function import TOLERANCE, agrees
from harness.judge.model import Check, failed, passed, unproven
from harness.judge.observe import Observation, counts_steps
from harness.judge.printed import within_precision
from harness.judge.reach import resumed_at
from harness.judge.saved import metric_value, saved_checkpoints
from harness.record.reasons import Reason
from harness.record.store import TagSummary
from harness.watch.early_stopping import is_evaluation, same_metric
from harness.watch.replay import find_series

NAME, EXPECTED = "eval_agrees", f"the logged evaluation {TOLERANCE}"
NEIGHBOURS = 1
"""Metric steps by which a run's count may differ from its checkpoints'."""


def _not_finite(item: dict[str, Any], metric: str, name: str) -> Check:
    return failed(NAME, Reason.FORWARD_NOT_FINITE, EXPECTED, f"{metric} on {item.get('path')}: not finite",
                  f"by {name}" if name else "by its own class")


def not_logged(seen: Observation, item: dict[str, Any], metric: str, value: float, name: str) -> Check:
    if not math.isfinite(value):
        return _not_finite(item, metric, name)
    logged = ", ".join(sorted({tag.tag for tag in (*seen.tags, *seen.printed) if tag.fresh_points})[:8])
    return unproven(NAME, Reason.EVAL_NOT_LOGGED, EXPECTED, f"{metric}={value:.6g} by {name}",
                    f"the run logged no {metric}; it logged {logged or 'nothing'}")


@dataclass(frozen=True, slots=True)
class _At:
    """A logged value."""

    tag: str
    step: int | None
    """In completed updates; None where only a checkpoint's name or record tells the value."""
    value: float

    def __str__(self) -> str:
        return f"{self.value:.6g} ({self.tag}{'' if self.step is None else f' at step {self.step}'})"


@dataclass(slots=True, kw_only=True)
class _Logged:
    """What one pass over the series of a metric finds."""

    agreeing: _At | None = None
    """The first value that agrees: at the checkpoint's step, or anywhere where it has none."""
    at: _At | None = None
    """The value at the checkpoint's step, or at the one nearest to it within NEIGHBOURS."""
    numbered: _At | None = None
    """The evaluation whose number is the checkpoint's step, as where checkpoints count epochs, if it agrees."""
    near: set[int] = field(default_factory=set)
    """Steps within NEIGHBOURS of the checkpoint's that have a value."""
    before: _At | None = None
    after: _At | None = None
    last: _At | None = None
    lowest: float = math.inf
    highest: float = -math.inf
    count: int = 0


def search(seen: Observation, item: dict[str, Any], metric: str, value: float) -> tuple[_Logged | None, int | None]:
    """(what the run logged by that name, the checkpoint's step where it has one in the series' count)."""
    step = item.get("step") if _steps_meet(seen) else None
    step = step if isinstance(step, int) else None
    logged = _pass_over(seen, metric, step, value) or _by_record(seen, item, metric, value)
    if step is None and logged is not None and (held := _held_at(seen, item)) is not None:
        of_held = None if _may_be_restored(logged, held) else _pass_over(seen, metric, held, value)
        if of_held is not None and of_held.at is not None:
            return of_held, held
    return logged, step


def _held_at(seen: Observation, item: dict[str, Any]) -> int | None:
    """The step after which the run's one model was what a checkpoint without a step holds; None where nothing tells."""
    probe = seen.probe
    if probe.optimizers != 1 or probe.counts != (seen.steps.completed,) or not _steps_meet(seen) or resumed_at(seen):
        return None
    held = seen.weights.held_at
    return held.get(str(item.get("of")), held.get(str(item.get("path"))))


def _may_be_restored(logged: _Logged, held: int) -> bool:
    """Whether the value that agrees is the lowest or highest of all: a run may load its best model at its end."""
    one = logged.agreeing
    return one is not None and one.step != held and one.value in (logged.lowest, logged.highest)


def compared(seen: Observation, item: dict[str, Any], metric: str, value: float, name: str) -> Check | None:
    """The outcome for one value; None where the run logged nothing by that name."""
    logged, step = search(seen, item, metric, value)
    if logged is None:
        return None
    if logged.agreeing is not None:
        return passed(NAME, EXPECTED, f"{metric} {value:.6g} against {logged.agreeing}")
    if not math.isfinite(value):
        return _not_finite(item, metric, name)
    return _disagreeing(seen, logged, step, metric, value, name)


def _disagreeing(
    seen: Observation, logged: _Logged, step: int | None, metric: str, value: float, name: str
) -> Check:
    """Broken where the run evaluated this very model; unproven where it did not, or where its count may be off."""
    given, why = f"{metric} {value:.6g}", "it is not the model that was evaluated"
    why += f", unless {name} evaluates on other data than the run or in another way" if name else ""
    if logged.at is not None:
        observed, after = f"{given} against {logged.at}", logged.after
        if after is None or not min(logged.at.value, after.value) < value < max(logged.at.value, after.value):
            return failed(NAME, Reason.EVAL_LOSS_DISAGREES, EXPECTED, observed, why)
        return unproven(NAME, Reason.EVAL_NOT_LOGGED, EXPECTED, observed, f"it lies between that and the next, {after}:"
                        " the run may have evaluated before the last update that it saved")
    if step is not None:
        near = " and ".join(str(one) for one in (logged.before, logged.after) if one is not None)
        return unproven(NAME, Reason.EVAL_NOT_LOGGED, EXPECTED, f"{given} against none at step {step}",
                        f"the nearest: {near}")
    observed, completed = f"{given} against {logged.count} logged, the last {logged.last}", seen.steps.completed
    last = logged.last.step if logged.last is not None else None
    if completed is not None and last is not None and last + NEIGHBOURS >= completed:
        return failed(NAME, Reason.EVAL_LOSS_DISAGREES, EXPECTED, observed, f"it agrees with none of them: {why}")
    return unproven(NAME, Reason.EVAL_NOT_LOGGED, EXPECTED, observed,
                    f"the run went on to step {completed}, so that this model may be a later one")


def _steps_meet(seen: Observation) -> bool:
    return seen.facts is not None and seen.facts.step_unit == "step" and counts_steps(seen)


def _tags(seen: Observation, metric: str) -> tuple[list[TagSummary], list[TagSummary]]:
    """(the series that a metric names best, those and its evaluations in other spellings); what was only printed,
    whose values are rounded, where it stands nowhere else."""
    for tags in (seen.tags, seen.printed):
        fresh = {(tag.run, tag.tag): tag for tag in tags if tag.fresh_points}
        if found := find_series(metric, fresh):
            others = [tag for key, tag in fresh.items()
                      if key not in found and is_evaluation(tag.tag) and same_metric(metric, tag.tag)]
            best = [fresh[key] for key in found]
            return best, [*best, *others]
    return [], []


def _pass_over(seen: Observation, metric: str, step: int | None, value: float) -> _Logged | None:
    """One pass over each series of the metric; None where there is none."""
    store, logged = seen.record.store, _Logged()
    shift = 1 if seen.facts is not None and seen.facts.step_base == 0 else 0
    best, every = _tags(seen, metric)
    if store is None or not best:
        return None
    for tag in best:
        for point in store.iter_series(tag.tag, run=tag.run):
            _take(logged, _At(tag.tag, point.step + shift, point.value), point.step + shift, step, value)
    near = (None, None) if step is None else (step - shift - NEIGHBOURS, step - shift + NEIGHBOURS)
    for tag in every if logged.agreeing is None else ():
        written = store.iter_written(tag.tag, run=tag.run, first=near[0], last=near[1])
        logged.agreeing = logged.agreeing or next(
            (_At(tag.tag, at + shift, one) for at, one in written if agrees(value, one)), None)
    if step is not None and step not in logged.near and len(logged.near) > 1:
        # Evaluated before it and after it, and not itself.
        logged.at = None
    if logged.at is None and logged.agreeing is None:
        logged.agreeing = logged.numbered
    return logged if logged.count else None


def _take(logged: _Logged, one: _At, at: int, step: int | None, value: float) -> None:
    logged.count += 1
    logged.lowest, logged.highest = min(logged.lowest, one.value), max(logged.highest, one.value)
    logged.last = one if logged.last is None or at >= (logged.last.step or 0) else logged.last
    distance = 0 if step is None else abs(at - step)
    if distance <= NEIGHBOURS and logged.agreeing is None and agrees(value, one.value):
        logged.agreeing = one
    if step is not None and logged.count in (step, step + 1) and logged.numbered is None and agrees(value, one.value):
        logged.numbered = one
    if step is None:
        return
    if distance <= NEIGHBOURS:
        logged.near.add(at)
    if distance <= NEIGHBOURS and (logged.at is None or distance < abs((logged.at.step or 0) - step)):
        logged.at = one
    if at < step and (logged.before is None or at > (logged.before.step or 0)):
        logged.before = one
    if at > step + NEIGHBOURS and (logged.after is None or at < (logged.after.step or 0)):
        logged.after = one


def _by_record(seen: Observation, item: dict[str, Any], metric: str, value: float) -> _Logged | None:
    """The value that the checkpoint's own record or name tells, in the digits that it shows."""
    own = {str(item.get("path")), str(item.get("of"))}
    for saved in saved_checkpoints(seen.record):
        known = metric_value(saved.metrics, metric) if saved.path in own else None
        if known is not None:
            one = _At(metric, saved.step, known)
            return _Logged(agreeing=one if agrees(value, known) or within_precision(known, value) else None, at=one)
    return None
