"""Gates: workflow steps in order, each made of checks; one that fails blocks what follows."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from harness.judge.checks_evidence import (
    check_fresh,
    check_grad_norm_finite,
    check_loss_finite,
    check_minimum_evidence,
    check_sources_agree,
    check_weights,
)
from harness.judge.checks_progress import (
    check_early_stopping,
    check_exit,
    check_updates_effective,
    check_updates_executed,
)
from harness.judge.model import Check, Gate, failed, not_applicable, passed, unproven
from harness.judge.observe import Observation
from harness.judge.overrides import check_overrides
from harness.judge.reach import check_target_step
from harness.record.vocabulary import CheckStatus, GateStatus, Reason

CheckFunction = Callable[[Observation], Check]


def check_environment(seen: Observation) -> Check:
    """Host, interpreter, packages and accelerators are recorded."""
    environment = seen.record.fact("environment", "environment") or {}
    expected = "host, Python, packages and accelerators"
    if not environment and any(item.get("refuses") for item in seen.record.fact("command", "findings", []) or []):
        return not_applicable("environment", "the command was refused before the environment was recorded")
    if not environment:
        return unproven("environment", Reason.ENV_UNRECORDED, expected, "none", "no environment record")
    missing = [key for key in ("host", "os", "python", "packages") if not environment.get(key)]
    if missing:
        return unproven("environment", Reason.ENV_UNRECORDED, expected, f"without {', '.join(missing)}",
                        "these facts could not be had")
    return passed("environment", expected, f"{environment['host']}, {len(environment['packages'])} packages")


def check_gpu(seen: Observation) -> Check:
    """What the job needs is there: a GPU, where one is required."""
    if not seen.record.spec.require_gpu:
        return not_applicable("gpu", "no GPU was required")
    devices = (seen.record.fact("environment", "environment") or {}).get("accelerators") or []
    if not devices:
        return failed("gpu", Reason.GPU_MISSING, "at least 1 GPU (--require-gpu)", "none",
                      "the driver reports no device")
    return passed("gpu", "at least 1 GPU (--require-gpu)", f"{len(devices)} device(s)")


def check_commit(seen: Observation) -> Check:
    """The commit and its diff are recorded where there is a repository."""
    commit = seen.record.fact("environment", "commit") or {}
    if not commit.get("sha"):
        return not_applicable("commit", str(commit.get("reason") or "no commit record"))
    state = "with uncommitted changes" if commit.get("dirty") else "clean"
    return passed("commit", "commit and diff", f"{str(commit['sha'])[:12]} {state}")


def check_command(seen: Observation) -> Check:
    """The command was understood and nothing in it forbids the launch."""
    entry = seen.record.last("command")
    expected = "a command that can be launched"
    if entry is None:
        return unproven("command", Reason.EVIDENCE_INCOMPLETE, expected, "none", "the journal holds no command")
    for finding in entry.get("findings") or []:
        if finding.get("refuses"):
            return failed("command", _reason(finding.get("code")), expected, str(entry.get("text")),
                          str(finding.get("message")))
    return passed("command", expected, str(entry.get("text")))


def check_framework(seen: Observation) -> Check:
    """It is stated which framework was seen and from what."""
    if seen.facts is None:
        return not_applicable("framework", "the command was refused before")
    return passed("framework", "a stated framework", f"{seen.facts.name} ({seen.facts.reason})")


def _reason(code: object) -> Reason:
    try:
        return Reason(str(code))
    except ValueError:
        return Reason.COMMAND_REFUSED


GATES: dict[str, tuple[CheckFunction, ...]] = {
    "env_facts": (check_environment, check_gpu, check_commit),
    "training_command": (check_command, check_framework),
    "real_step": (
        check_exit, check_target_step, check_updates_executed, check_updates_effective, check_loss_finite,
        check_grad_norm_finite, check_fresh, check_sources_agree, check_minimum_evidence, check_weights,
        check_overrides, check_early_stopping,
    ),
}
"""Every gate that this version judges, in workflow order. All are required."""


def judge_gates(
    seen: Observation, *, checks: dict[str, tuple[CheckFunction, ...]] | None = None
) -> tuple[Gate, ...]:
    """All gates. A FAIL blocks what follows, but for real_step, which is judged whenever something was launched."""
    gates: list[Gate] = []
    for name, functions in (GATES if checks is None else checks).items():
        launched = name == "real_step" and seen.record.last("attempt-started") is not None
        blocker = next((gate.name for gate in gates if gate.status is GateStatus.FAIL), None)
        gates.append(_blocked(name, blocker) if blocker and not launched else _gate(seen, name, functions))
    return tuple(gates)


def _gate(seen: Observation, name: str, functions: Iterable[CheckFunction]) -> Gate:
    results = tuple(function(seen) for function in functions)
    status = gate_status(results)
    started, duration = _when(seen, name)
    return Gate(name=name, required=True, status=status, rationale=_rationale(results, status), checks=results,
                started_at=started, duration_s=duration)


def gate_status(checks: Iterable[Check]) -> GateStatus:
    """FAIL if any failed, PENDING if any is unproven, PASS only if something passed; an empty gate is PENDING."""
    statuses = {check.status for check in checks}
    if CheckStatus.FAILED in statuses:
        return GateStatus.FAIL
    if CheckStatus.UNPROVEN in statuses or CheckStatus.PASSED not in statuses:
        return GateStatus.PENDING
    return GateStatus.PASS


def _rationale(checks: tuple[Check, ...], status: GateStatus) -> str:
    if status is GateStatus.PASS:
        return f"{sum(check.status is CheckStatus.PASSED for check in checks)} checks passed"
    wanted = CheckStatus.FAILED if status is GateStatus.FAIL else CheckStatus.UNPROVEN
    return "; ".join(f"{check.name}: {check.why or check.observed}" for check in checks if check.status is wanted)


def _blocked(name: str, blocker: str) -> Gate:
    return Gate(name=name, required=True, status=GateStatus.SKIPPED, rationale=f"blocked by {blocker}", checks=())


def _when(seen: Observation, name: str) -> tuple[float | None, float | None]:
    """When a gate's facts were collected, from the journal's clock."""
    bounds = {"env_facts": ("run-started", "environment"), "training_command": ("run-started", "command"),
              "real_step": ("attempt-started", "run-finished")}
    start, end = (seen.record.last(event) for event in bounds[name])
    if start is None:
        return None, None
    return start["time"], (end["time"] - start["time"]) if end else None
