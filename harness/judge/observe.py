"""Observation: what the facts of a run amount to, before anything is judged. Pure; reads only the RunRecord."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from harness.frameworks.base import FrameworkFacts
from harness.judge.probe_seen import ProbeSeen, see_probe
from harness.judge.told import ToldUpdates, told_updates
from harness.judge.updates_seen import (
    CounterSeen,
    StepsSeen,
    Updates,
    executed_by_counter,
    matches,
    see_counter,
    see_steps,
    see_updates,
)
from harness.judge.weights_seen import WeightsSeen, see_weights
from harness.record.merge import PRINTED
from harness.record.run_record import RunRecord
from harness.record.store import TagSummary

_NOT_THE_VALUE = re.compile(r"(?i)best|lowest|highest|prev|last|target|initial|(^|[/_.])(min|max)([/_.]|$)")
"""Printed beside a value: `best_loss=inf` before the first evaluation is no loss of the run."""
OTHER_LOSSES = (
    r"(?i)(^|[/_.])(nll|neg_log_likelihood|negative_log_likelihood|cross_entropy|cross_entropy_loss|crossentropy|xent)$",
)
"""Names that can mean nothing but a loss; asked where no series is called one. `objective`, which may be maximised,
and `ce` need --loss-tag."""
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
    probe = see_probe(record)
    weights = see_weights(record)
    stepped = tuple(tag for tag in fresh if tag.kind not in _without_steps(record))
    steps = see_steps(record.store, rules, tuple(tag for tag in train if tag in stepped) or _trainlike(stepped, rules),
                   probe)
    if rules.step_base is None and steps.first is not None and _counts_epochs(record, facts):
        steps = replace(steps, base=0 if steps.first == 0 else 1)
    counter = see_counter(record)
    target, source = _target(record, rules, fresh, counter)
    updates = see_updates(record.store, rules, fresh, executed_by_counter(rules, counter, probe))
    told = told_updates(record)
    if is_given and not fresh and not updates.executed:
        updates = replace(updates, executed=None)
    return Observation(
        record=record, facts=facts, tags=tags, printed=printed, train_loss=train or printed_train,
        eval_loss=(*evals, *printed_evals),
        grad_norm=tuple(tag for tag in (*fresh, *printed)
                        if tag.fresh_points and matches(tag.tag, rules.grad_norm_tags)),
        lr=tuple(tag for tag in fresh if matches(tag.tag, rules.lr_tags)),
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
    losses = tuple(tag for tag in tags if matches(tag.tag, patterns))
    evals = tuple(tag for tag in losses if matches(tag.tag, rules.eval_tags))
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


def _trainlike(tags: tuple[TagSummary, ...], rules: FrameworkFacts) -> tuple[TagSummary, ...]:
    return tuple(tag for tag in tags if not matches(tag.tag, rules.eval_tags))


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
    announced = [tag for tag in tags if matches(tag.tag, rules.total_steps_tags)]
    for tag in announced:
        if tag.min_finite is not None and tag.min_finite == tag.max_finite and tag.min_finite >= 1:
            return int(tag.min_finite), f"announced as {tag.tag}"
    if printed:
        return int(printed), "announced in the log"
    return None, ""


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
