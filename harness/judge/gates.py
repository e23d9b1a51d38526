"""Gates: workflow steps in order, each made of checks; one that fails blocks what follows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from harness.judge.anomalies import check_anomalies
from harness.judge.checks_command import check_capacity, check_command, check_framework, check_policy
from harness.judge.checks_dataset import check_kept, check_readable, check_rows, no_dataset
from harness.judge.checks_environment import check_commit, check_environment, check_gpu, check_trainer
from harness.judge.checks_eval import check_eval_agrees
from harness.judge.checks_evidence import (
    check_fresh,
    check_grad_norm_finite,
    check_loss_finite,
    check_minimum_evidence,
    check_parameters_finite,
    check_sources_agree,
    check_weights,
)
from harness.judge.checks_expect import check_expectations
from harness.judge.checks_progress import (
    check_early_stopping,
    check_exit,
    check_updates_effective,
    check_updates_executed,
)
from harness.judge.checks_resume import check_resume
from harness.judge.checks_retry import check_identity, check_metrics, check_settings, no_retry
from harness.judge.checks_rollouts import check_response_tokens, check_rollouts_kept
from harness.judge.checks_samples import (
    check_sample_ends,
    check_sample_recorded,
    check_sample_reward,
    check_sample_text,
    check_transcript,
    not_rollout,
)
from harness.judge.checks_saving import (
    check_complete,
    check_delivered,
    check_reload,
    check_saved,
    check_saved_finite,
    not_needed,
)
from harness.judge.checks_smoke import check_fits, check_peak_memory, not_selected
from harness.judge.exchange import check_exchange
from harness.judge.model import Check, Gate, unproven
from harness.judge.observe import Observation
from harness.judge.overrides import check_overrides
from harness.judge.policy import with_waiver
from harness.judge.reach import check_target_step
from harness.judge.restarts import check_restarts
from harness.judge.topology import check_topology
from harness.record.reasons import Reason
from harness.record.vocabulary import CheckStatus, GateStatus

CheckFunction = Callable[[Observation], Check]


def always(seen: Observation) -> str:
    """For a gate that every run must pass."""
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateSpec:
    """A workflow step as the judge knows it."""

    name: str
    checks: tuple[CheckFunction, ...]
    not_needed: Callable[[Observation], str] = always
    """Why this run has no need of the gate, "" where it is required."""
    events: tuple[str, str]
    """Journal events that begin and end the collection of its facts."""
    judged_when_launched: bool = False
    """Whether it is judged although an earlier gate failed, since a run is there to be judged."""


GATES: tuple[GateSpec, ...] = (
    GateSpec(name="env_facts", checks=(check_environment, check_gpu, check_trainer, check_commit),
             events=("run-started", "environment")),
    GateSpec(name="dataset_contract", checks=(check_readable, check_rows, check_kept), not_needed=no_dataset,
             events=("environment", "dataset")),
    GateSpec(name="training_command", checks=(check_command, check_framework, check_capacity, check_policy),
             events=("run-started", "command")),
    GateSpec(name="smoke_capacity", checks=(check_fits, check_peak_memory), not_needed=not_selected,
             events=("command", "smoke")),
    GateSpec(
        name="real_step", events=("attempt-started", "run-finished"), judged_when_launched=True,
        checks=(
            check_exit, check_target_step, check_updates_executed, check_updates_effective, check_response_tokens,
            check_rollouts_kept, check_loss_finite,
            check_grad_norm_finite, check_fresh, check_sources_agree, check_minimum_evidence, check_weights,
            check_parameters_finite, check_topology, check_exchange, check_overrides, check_early_stopping,
            check_restarts, check_anomalies, check_expectations,
        )),
    GateSpec(
        name="sample_coherence", events=("attempt-started", "samples"), not_needed=not_rollout,
        checks=(check_sample_recorded, check_sample_text, check_sample_ends, check_sample_reward, check_transcript)),
    GateSpec(
        name="save_reload", events=("checkpoints", "run-finished"), judged_when_launched=True, not_needed=not_needed,
        checks=(check_saved, check_complete, check_delivered, check_saved_finite, check_reload, check_eval_agrees,
                check_resume)),
    GateSpec(name="retry", events=("retry", "retry-comparison"), not_needed=no_retry, judged_when_launched=True,
             checks=(check_settings, check_identity, check_metrics)),
)
"""Every gate that this version judges, in workflow order."""


def judge_gates(seen: Observation, *, gates: Iterable[GateSpec] | None = None) -> tuple[Gate, ...]:
    """All gates. A FAIL blocks what follows, but for a gate that is judged whenever something was launched."""
    judged: list[Gate] = []
    launched = seen.record.last("attempt-started") is not None
    for spec in GATES if gates is None else gates:
        blocker = next((gate.name for gate in judged if gate.status is GateStatus.FAIL), None)
        reason = spec.not_needed(seen)
        if reason and spec.name in seen.record.spec.required_gates:
            judged.append(_missed(spec, reason))
        elif reason:
            judged.append(_skipped(spec, reason, required=False))
        elif blocker and not (launched and spec.judged_when_launched):
            judged.append(_skipped(spec, f"blocked by {blocker}", required=True))
        elif spec.name == "real_step" and not launched and seen.record.spec.smoke == "only":
            judged.append(_gate(seen, replace(spec, checks=(check_exit,))))
        else:
            judged.append(_gate(seen, spec))
    return tuple(judged)


def _gate(seen: Observation, spec: GateSpec) -> Gate:
    waivers = seen.record.spec.waivers
    found = (function(seen) for function in spec.checks)
    results = tuple(replace(check, waiver=with_waiver(check, spec.name, waivers)) if waivers else check
                    for check in found)
    status = gate_status(results)
    started, duration = _when(seen, spec)
    return Gate(name=spec.name, required=True, status=status, rationale=_rationale(results, status), checks=results,
                started_at=started, duration_s=duration)


def gate_status(checks: Iterable[Check]) -> GateStatus:
    """FAIL if any failed, PENDING if any is unproven, PASS only if something passed; an empty gate is PENDING."""
    statuses = {check.standing for check in checks}
    if CheckStatus.FAILED in statuses:
        return GateStatus.FAIL
    if CheckStatus.UNPROVEN in statuses or CheckStatus.PASSED not in statuses:
        return GateStatus.PENDING
    return GateStatus.PASS


def _rationale(checks: tuple[Check, ...], status: GateStatus) -> str:
    waived = [f"{check.name}: {check.waiver.text}" for check in checks if check.waiver]
    if status is GateStatus.PASS:
        return "; ".join([f"{sum(check.status is CheckStatus.PASSED for check in checks)} checks passed", *waived])
    wanted = CheckStatus.FAILED if status is GateStatus.FAIL else CheckStatus.UNPROVEN
    told = [f"{check.name}: {check.why or check.observed}" for check in checks
            if check.standing is wanted and check.waiver is None]
    return "; ".join([*told, *waived])


def _missed(spec: GateSpec, why: str) -> Gate:
    """A gate that the policy requires and that this run gives nothing to."""
    check = unproven("required", Reason.REQUIRED_GATE_MISSED, "a gate that is judged (--policy)", "not needed", why)
    return Gate(name=spec.name, required=True, status=GateStatus.PENDING, rationale=why, checks=(check,))


OTHER_NAMES = {"check_saved_finite": "finite"}
"""Checks whose function is not named after them."""


def check_names() -> dict[str, tuple[str, ...]]:
    """{gate: its checks}, without judging anything."""
    return {spec.name: tuple(OTHER_NAMES.get(one.__name__, one.__name__.removeprefix("check_")) for one in spec.checks)
            for spec in GATES}


def _skipped(spec: GateSpec, why: str, *, required: bool) -> Gate:
    return Gate(name=spec.name, required=required, status=GateStatus.SKIPPED, rationale=why, checks=())


def _when(seen: Observation, spec: GateSpec) -> tuple[float | None, float | None]:
    """When a gate's facts were collected, from the journal's clock."""
    start, end = (seen.record.last(event) for event in spec.events)
    if start is None:
        return None, None
    return start["time"], (end["time"] - start["time"]) if end else None
