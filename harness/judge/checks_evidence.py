"""Checks of real_step about the evidence: finite, fresh, in agreement, enough of it, and the saved weights."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from harness.judge.asserted import fresh_as_asserted, is_launch_asserted
from harness.judge.model import Check, failed, not_applicable, passed, unproven
from harness.judge.observe import Observation, counts_steps
from harness.judge.printed import FEWEST, compare_printed
from harness.judge.reach import matching_count, metrics_count_longer, saves_count_shorter
from harness.judge.weights_seen import OWN_EARLIEST, UNRELATED, WeightsSeen
from harness.record.merge import PRINTED
from harness.record.reasons import Reason
from harness.record.store import TagSummary
from harness.record.vocabulary import CheckStatus, Phase


def check_loss_finite(seen: Observation) -> Check:
    """Every loss at every step is finite; where the framework hides NaN, something that cannot hide it says so."""
    name, expected = "loss_finite", "every loss finite at every step"
    losses = (*seen.train_loss, *seen.eval_loss)
    for tag in losses:
        if tag.nonfinite:
            step, value = _first_nonfinite(seen, tag)
            return failed(name, Reason.LOSS_NOT_FINITE, expected, f"{tag.tag}={value} at step {step}",
                          f"{tag.nonfinite} of {tag.fresh_points} points are not finite")
    if not losses:
        return not_applicable(name, "no loss series; see minimum_evidence")
    points = sum(tag.fresh_points for tag in losses)
    if seen.facts is not None and seen.facts.masks_nonfinite and not _unmasked_witness(seen):
        return unproven(name, Reason.FINITENESS_UNPROVEN, expected, f"{points} finite points",
                        f"{seen.facts.name} hides NaN losses, and neither grad_norm nor final weights were seen")
    return passed(name, expected, f"{points} finite points of {', '.join(tag.tag for tag in losses)}")


def _unmasked_witness(seen: Observation) -> bool:
    return bool(seen.grad_norm) or (seen.weights.found > seen.weights.not_inspected and not seen.weights.nonfinite)


def _first_nonfinite(seen: Observation, tag: TagSummary) -> tuple[int | None, str]:
    if seen.record.store is not None:
        for point in seen.record.store.iter_series(tag.tag, run=tag.run):
            if not math.isfinite(point.value):
                return point.step, repr(point.value)
    return None, "not finite"


def check_grad_norm_finite(seen: Observation) -> Check:
    """A gradient norm may be non-finite only where a loss scaler skipped the step, and not to the end."""
    name, expected = "grad_norm_finite", "finite, but for counted loss-scaler skips that end"
    if seen.probe.grads_nonfinite:
        return failed(name, Reason.GRAD_NORM_NOT_FINITE, expected,
                      f"{seen.probe.grads_nonfinite} look(s) at gradients met one that is not finite",
                      "the probe saw them at steps that were applied")
    if not seen.grad_norm:
        return not_applicable(name, "no gradient norm was recorded")
    for tag in seen.grad_norm:
        if not tag.nonfinite:
            continue
        step, value = _first_nonfinite(seen, tag)
        ends_finite = tag.last_value is not None and math.isfinite(tag.last_value)
        observed = f"{tag.tag}={value} at step {step}, {tag.nonfinite} in all, {seen.probe.scaler_skips} skip(s)"
        if ends_finite and is_launch_asserted(seen) and not seen.probe.loaded:
            return unproven(name, Reason.FINITENESS_UNPROVEN, expected, observed,
                            "later ones are finite, and nobody counted the steps that a loss scaler skipped")
        if not ends_finite or tag.nonfinite > seen.probe.scaler_skips:
            return failed(name, Reason.GRAD_NORM_NOT_FINITE, expected, observed,
                          "the run ended on it" if not ends_finite else "no loss scaler skipped that step")
        return passed(name, expected, observed, "each was a skipped step of the loss scaler")
    return passed(name, expected, f"{sum(tag.fresh_points for tag in seen.grad_norm)} finite points")


def check_parameters_finite(seen: Observation) -> Check:
    """The parameters are finite when the interpreter ends, after whatever the last logged step did not show."""
    name, expected, probe = "parameters_finite", "finite parameters at the end", seen.probe
    if probe.params_nonfinite:
        return failed(name, Reason.WEIGHTS_NOT_FINITE, expected,
                      f"{probe.params_nonfinite} of {probe.params_checked} parameters not finite",
                      "the probe saw them when the trainer ended")
    if not probe.params_checked:
        return not_applicable(name, "no optimizer was left when the trainer ended, or its process was cut short")
    return passed(name, expected, f"{probe.params_checked} finite parameter(s)")


def check_weights(seen: Observation) -> Check:
    """Saved tensors are readable, finite, and differ from the start by more than weight decay."""
    name, expected = "weights", "saved tensors finite and changed from the start"
    weights = seen.weights
    if weights.nonfinite:
        return failed(name, Reason.WEIGHTS_NOT_FINITE, expected, ", ".join(weights.nonfinite[:3]),
                      f"{len(weights.nonfinite)} tensor(s) hold NaN or infinite values")
    if blamed := weights.blamed:
        return failed(name, Reason.WEIGHTS_UNCHANGED, expected, f"{blamed[0]} holds the start",
                      "its parameters are those that the optimizer began with, and training moved them in memory")
    if weights.found == 0:
        return not_applicable(name, "the run saved no checkpoint")
    if weights.found == weights.not_inspected and not _values_were_read(seen):
        return not_applicable(name, "no loader read its values; see save_reload.reload")
    if weights.beside:
        return unproven(name, Reason.START_BESIDE_TRAINED, expected, f"{weights.beside[0]} holds the start",
                        f"{weights.moved[0]} was trained, and no name says which of them is delivered")
    if weights.outdated:
        path = weights.outdated[0]
        return unproven(name, Reason.WEIGHTS_OUTDATED, expected,
                        f"{path}: the model after update {weights.held_at.get(path)}",
                        "the probe saw the model when this file was saved, and it was another")
    if weights.unrelated:
        return unproven(name, Reason.WEIGHTS_UNRELATED, expected,
                        f"{weights.unrelated[0]} holds what is like no trained parameter",
                        "by values that the probe kept of parameters before the first step and at the end")
    is_start_known = weights.compared and weights.start_kind != OWN_EARLIEST
    if weights.moved and (not is_start_known or weights.change == UNRELATED):
        return _passed_by_marks(weights, name, expected)
    if weights.change == UNRELATED:
        return unproven(name, Reason.WEIGHTS_UNRELATED, expected, f"no correlation with {weights.start}",
                        f"{weights.changed_tensors} tensor(s) changed, and keep nothing of it")
    if not is_start_known and not weights.learnt:
        return unproven(name, Reason.WEIGHTS_NOT_COMPARED, expected, "finite, and no start to compare with",
                        _why_not_compared(seen))
    if weights.delivered_unchanged and weights.start_kind != "own-earliest":
        return failed(name, Reason.WEIGHTS_UNCHANGED, expected, f"{weights.delivered_unchanged[0]} equals the start",
                      "the delivered model is the untrained one")
    if weights.change == "decay-only":
        return failed(name, Reason.NO_EFFECTIVE_UPDATE, expected, f"{weights.start} times one factor",
                      "only weight decay moved the weights")
    if not weights.learnt:
        return failed(name, Reason.WEIGHTS_UNCHANGED, expected, f"{weights.change} against {weights.start}",
                      "no trained tensor differs from the start")
    return passed(name, expected, f"{weights.changed_tensors} tensor(s) changed from {weights.start}")


def _passed_by_marks(weights: WeightsSeen, name: str, expected: str) -> Check:
    path = weights.moved[0]
    at = weights.held_at.get(path)
    observed = f"{path} holds others than the optimizer began with" if at is None else (
        f"{path} holds tensors as the model had them after update {at}")
    return passed(name, expected, observed, "by digests that the probe took of parameters while they were trained; "
                                            "of names they say nothing")


def _why_not_compared(seen: Observation) -> str:
    """Where nothing tells a start."""
    weights = seen.weights
    if weights.compared:
        return f"equal to {weights.start}, which is no start of training"
    why = "no start that its loader reads is known" if weights.found == weights.not_inspected else (
        weights.why_not_compared or "no start is known")
    if seen.probe.loaded:
        why += "; the probe was on, and its digests do not tell what these tensors are"
    return why


def _values_were_read(seen: Observation) -> bool:
    reloads = [entry.get("facts") for entry in seen.record.every("reload")]
    return any(isinstance(item, dict) and item.get("status") == "ok" for item in reloads)


def check_fresh(seen: Observation) -> Check:
    """Metric points were written by this run, after its launch."""
    name, expected = "fresh", "metric points written by this run"
    if seen.fresh_points and is_launch_asserted(seen):
        return fresh_as_asserted(seen, seen.fresh_points)
    fresh = sum(tag.fresh_points for tag in seen.tags)
    owners = {source.get("ownership") for source in _sources(seen)
              if source.get("points") and source.get("kind") != PRINTED}
    if fresh and owners == {"unknown"} and _probe_confirms(seen):
        return passed(name, expected, f"{fresh} points", "the run's own probe counted the steps that they tell")
    if fresh and owners == {"unknown"}:
        return unproven(name, Reason.METRICS_OWNER_UNPROVEN, expected, f"{fresh} points of unknown writers",
                        "others write to the same directory and nobody was seen writing these files")
    if fresh:
        return passed(name, expected, f"{fresh} fresh points")
    stale = sum(int(source.get("stale_points") or 0) for source in _sources(seen))
    foreign = sum(int(source.get("foreign_points") or 0) for source in _sources(seen))
    if foreign:
        return unproven(name, Reason.FOREIGN_METRICS, expected, f"{foreign} points of another process",
                        "a process outside this run writes here, and this run wrote nothing that was found")
    if stale:
        return failed(name, Reason.STALE_METRICS, expected, f"{stale} points older than the launch",
                      "their time stamps lie before this launch")
    earlier = int(seen.record.fact("inventory", "files", 0) or 0)
    if earlier:
        return unproven(name, Reason.STALE_METRICS, expected, f"{earlier} file(s) from before the launch",
                        "nothing was added to them")
    if seen.fresh_points:
        return passed(name, expected, f"{seen.fresh_points} points in the run's own output")
    return unproven(name, Reason.NO_METRIC_POINTS, expected, "none", "no metric point was found")


def _probe_confirms(seen: Observation) -> bool:
    """Whether the steps that the files tell are those that the probe counted inside the run's own processes."""
    probe, completed = seen.probe.steps + seen.probe.scaler_skips, seen.steps.completed
    if not seen.probe.steps:
        return False
    if seen.counter is not None:
        return seen.counter.executed == probe
    if completed is None or completed <= 0 or seen.steps.base is None:
        return False
    if seen.facts is not None and seen.facts.step_unit == "epoch":
        return probe % completed == 0
    return matching_count(seen) is not None


def _sources(seen: Observation) -> list[dict[str, Any]]:
    return list(seen.record.fact("sources", "sources", []) or [])


def check_sources_agree(seen: Observation) -> Check:
    """Metrics that stop before the last saved step by more than their cadence contradict it.

    The other way round says nothing: a trainer may save its best step only.
    """
    name, expected = "sources_agree", "last steps agree within each source's cadence"
    printed = compare_printed(seen)
    for one in printed:
        if one.contradicts:
            return failed(name, Reason.SOURCES_DISAGREE, "printed values are those that are logged", str(one),
                          "what the run printed is not what stands in its metric files")
    agreed = [str(one) for one in printed if one.compared >= FEWEST]
    check = _steps_agree(seen, name, expected)
    if agreed and check.status is CheckStatus.NOT_APPLICABLE:
        return passed(name, "printed values are those that are logged", agreed[0])
    return check


def _steps_agree(seen: Observation, name: str, expected: str) -> Check:
    metrics, saved = seen.steps.completed if counts_steps(seen) else None, seen.weights.last_step
    against_counter = _counter_disagrees(seen, name, expected)
    if against_counter is not None:
        return against_counter
    if metrics is None or saved is None:
        return not_applicable(name, "only one source tells a step")
    if metrics_count_longer(seen) or saves_count_shorter(seen):
        return not_applicable(name, "metrics and checkpoints count in different units")
    observed = f"metrics {metrics} (gaps up to {seen.steps.largest_gap}), checkpoint {saved}"
    if saved - metrics > _lag_allowed(seen) and not _cadence_unknown(seen):
        return failed(name, Reason.SOURCES_DISAGREE, expected, observed, "the metrics stop before the checkpoint")
    return passed(name, expected, observed)


def _lag_allowed(seen: Observation) -> int:
    """Steps that may have gone by after the last logged one: none where every step is logged."""
    gap = seen.steps.largest_gap
    return (2 * gap if gap > 1 else 0) + (1 if seen.steps.base is None else 0)


def _cadence_unknown(seen: Observation) -> bool:
    """One logged step has no distance to another: the next might have come after the end."""
    return seen.steps.first == seen.steps.last


def _counter_disagrees(seen: Observation, name: str, expected: str) -> Check | None:
    """Metrics that stop before the trainer's own count contradict it, and so do metrics that go beyond its last word.

    A checkpoint's copy of the count may lag: the trainer may have saved its best only.
    """
    counter, metrics = seen.counter, seen.steps.completed
    if counter is None or metrics is None or not counts_steps(seen):
        return None
    if _cadence_unknown(seen):
        return None
    observed = f"metrics {metrics} (gaps up to {seen.steps.largest_gap}), counter {counter.step} ({counter.source})"
    if counter.step - metrics > _lag_allowed(seen):
        return failed(name, Reason.SOURCES_DISAGREE, expected, observed, "the metrics stop before the trainer's count")
    if counter.is_final and metrics - counter.step > (1 if seen.steps.base is None else 0):
        return failed(name, Reason.SOURCES_DISAGREE, expected, observed, "the metrics go beyond the trainer's count")
    return None


def _hint(seen: Observation) -> str:
    """What would make the program log, where its adapter knows."""
    hint = seen.facts.logging_hint if seen.facts is not None else ""
    return f"; give the program {hint}" if hint else ""


def _sums_up(tag: TagSummary) -> bool:
    """Whether a tag is of the row that ends a run, its count of epochs included."""
    return tag.phase is Phase.SUMMARY or tag.tag.rpartition("/")[2] == "epoch"


def _told(tags: Iterable[TagSummary]) -> list[str]:
    """The first names among series that are no summary."""
    return sorted({tag.tag for tag in tags if tag.fresh_points and not _sums_up(tag)})[:8]


def check_minimum_evidence(seen: Observation) -> Check:
    """There is a series that is known as a training loss; the witness of an update is updates_executed's to find."""
    name, expected = "minimum_evidence", "a training loss series"
    if seen.record.store is None and seen.record.fact("sources", "sources"):
        return unproven(name, Reason.EVIDENCE_INCOMPLETE, expected, "no metric store",
                        "metrics.db is missing or damaged")
    if not seen.fresh_points:
        return unproven(name, Reason.NO_METRIC_POINTS, expected, "no metric point", f"nothing was logged{_hint(seen)}")
    logged = _told(seen.tags)
    if not seen.train_loss or (seen.is_printed_only and logged):
        tags = logged or _told(seen.printed)
        if not tags:
            return unproven(name, Reason.NO_METRIC_POINTS, expected, "the run's summary alone",
                            f"no step was logged{_hint(seen)}")
        return unproven(name, Reason.NO_RECOGNISED_METRICS, expected, f"tags {', '.join(tags)}",
                        "none of them is known as a training loss")
    points = sum(tag.fresh_points for tag in seen.train_loss)
    if seen.is_printed_only:
        return unproven(name, Reason.PRINTED_METRICS_ONLY, expected, f"{points} printed rows",
                        f"the loss stands in the run's output alone{_hint(seen)}")
    return passed(name, expected, f"{points} points of {', '.join(tag.tag for tag in seen.train_loss)}")
