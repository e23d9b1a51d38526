"""From gates to the decision, its outcome for CI, its confidence and its reasons."""

from __future__ import annotations

from collections.abc import Iterable

from harness.judge.asserted import asserted_state, is_exit_asserted
from harness.judge.checks_progress import OWN_STOP_CODES, OWN_STOP_SIGNALS, check_exit
from harness.judge.gates import GateSpec, judge_gates
from harness.judge.model import Gate, ReasonGiven, Verdict
from harness.judge.observe import Observation, goes_on, observe, was_stopped
from harness.judge.own_stop import trainer_stop
from harness.judge.reach import check_target_step, is_target_met
from harness.judge.restarts import was_restarted
from harness.record.merge import PRINTED
from harness.record.reason_texts import REASONS
from harness.record.reasons import Reason
from harness.record.run_record import RunRecord
from harness.record.vocabulary import (
    CheckStatus,
    Confidence,
    Decision,
    GateStatus,
    Outcome,
    ReasonKind,
    TerminalState,
    WitnessKind,
)


def judge(
    record: RunRecord, *, gates: Iterable[GateSpec] | None = None
) -> tuple[Verdict, Observation]:
    """The verdict on a run, a pure function of its record. `gates` replaces the gates (negative controls)."""
    seen = observe(record)
    judged = judge_gates(seen, gates=gates)
    state, stopped_by = terminal_state(seen)
    reasons = tuple(_reasons(judged))
    decision = _decision(judged)
    if decision is Decision.GO and state not in (TerminalState.SUCCEEDED, TerminalState.EARLY_STOPPED):
        decision = Decision.CONDITIONAL
    return Verdict(
        decision=decision, outcome=_outcome(decision, reasons), confidence=_confidence(seen, decision),
        terminal_state=state, stopped_by=stopped_by, gates=judged, reasons=reasons,
    ), seen


def terminal_state(seen: Observation) -> tuple[TerminalState | None, str | None]:
    """How the run ended, None while it goes on, and what ended it: of the harness, or "trainer" for the trainer's own
    early stopping."""
    record = seen.record
    ended = record.last_end()
    if goes_on(seen):
        return None, None
    if ended is None:
        lost = record.last("attempt-started") is not None or record.last("stop-requested") is not None
        return (TerminalState.CANCELLED if lost else TerminalState.FAILED), None
    stop = was_stopped(seen)
    if stop == "timeout":
        return TerminalState.TIMEOUT, stop
    if stop in ("cancelled", "owner-lost"):
        return TerminalState.CANCELLED, stop
    code, signal = ended.get("exit_code"), ended.get("signal")
    if stop in ("cap", "early-stop") and (code in OWN_STOP_CODES or signal in OWN_STOP_SIGNALS):
        return (TerminalState.SUCCEEDED if stop == "cap" else TerminalState.EARLY_STOPPED), stop
    succeeded = check_exit(seen).status is not CheckStatus.FAILED
    if is_exit_asserted(seen):
        short = check_target_step(seen).status is CheckStatus.FAILED
        return asserted_state(seen, exit_failed=not succeeded, target_failed=short), stop
    if succeeded and trainer_stop(seen) is not None and is_target_met(seen) is not True:
        return TerminalState.EARLY_STOPPED, "trainer"
    return (TerminalState.SUCCEEDED if succeeded else TerminalState.FAILED), stop


def _decision(gates: tuple[Gate, ...]) -> Decision:
    """GO needs every required gate PASS; an unproven gate alone is CONDITIONAL; the rest is NO-GO.

    A terminal state other than SUCCEEDED or EARLY_STOPPED always fails real_step's check `exit`. A waived check counts
    as its waiver leaves it.
    """
    required = [gate for gate in gates if gate.required]
    real_step = next((gate for gate in gates if gate.name == "real_step"), None)
    if real_step is None or any(gate.status in (GateStatus.FAIL, GateStatus.SKIPPED) for gate in required):
        return Decision.NO_GO
    if all(gate.status is GateStatus.PASS for gate in required):
        return Decision.GO
    return Decision.CONDITIONAL


def _reasons(gates: tuple[Gate, ...]) -> list[ReasonGiven]:
    """One for each check that is not passed, failures first."""
    given = [
        ReasonGiven(code=check.reason, kind=reason_kind(check.reason, check.status), gate=gate.name,
                    check=check.name, remedy=check.waiver.text if check.waiver else check.remedy)
        for gate in gates for check in gate.checks
        if check.reason is not None and check.status in (CheckStatus.FAILED, CheckStatus.UNPROVEN)
    ]
    order = (ReasonKind.INFRASTRUCTURE, ReasonKind.BROKEN, ReasonKind.UNPROVEN)
    return sorted(given, key=lambda reason: order.index(reason.kind))


def reason_kind(reason: Reason, status: CheckStatus) -> ReasonKind:
    """Infrastructure by its code; else a failed check says broken and an unproven one unproven."""
    if REASONS[reason].kind is ReasonKind.INFRASTRUCTURE:
        return ReasonKind.INFRASTRUCTURE
    return ReasonKind.BROKEN if status is CheckStatus.FAILED else ReasonKind.UNPROVEN


NEVER_INFRASTRUCTURE = frozenset({
    Reason.LOSS_NOT_FINITE, Reason.GRAD_NORM_NOT_FINITE, Reason.WEIGHTS_NOT_FINITE, Reason.NO_LEARNING_SIGNAL,
    Reason.NO_EFFECTIVE_UPDATE, Reason.LR_ZERO, Reason.SOURCES_DISAGREE, Reason.FOREIGN_METRICS,
})
"""Reasons that an early end cannot explain, so that a retry of the same command is pointless."""


def _outcome(decision: Decision, reasons: tuple[ReasonGiven, ...]) -> Outcome:
    """A run that infrastructure ended was cut short; only what the cut cannot explain makes it broken."""
    if decision is Decision.GO:
        return Outcome.GOOD
    kinds = {reason.kind for reason in reasons}
    broken = {reason.code for reason in reasons if reason.kind is ReasonKind.BROKEN}
    if ReasonKind.INFRASTRUCTURE in kinds and not broken & NEVER_INFRASTRUCTURE:
        return Outcome.INFRASTRUCTURE
    return Outcome.BROKEN if decision is Decision.NO_GO else Outcome.UNPROVEN


def witnesses(seen: Observation) -> list[tuple[WitnessKind, str, int | None, int | None]]:
    """(kind, source, updates, last step) of everything that shows an update."""
    found: list[tuple[WitnessKind, str, int | None, int | None]] = []
    if (seen.train_loss and not seen.is_printed_only) or seen.updates.executed:
        source = ", ".join(tag.tag for tag in seen.train_loss) or "metric rows"
        found.append((WitnessKind.METRICS, source, seen.updates.executed, seen.steps.last))
    if seen.counter is not None and seen.counter.executed:
        found.append((WitnessKind.COUNTER, seen.counter.source, seen.counter.executed, seen.counter.step))
    if seen.probe.steps:
        found.append((WitnessKind.PROBE, "optimizer post-step hook", seen.probe.steps, None))
    if seen.weights.learnt:
        found.append((WitnessKind.WEIGHTS, f"against {seen.weights.start}", None, seen.weights.last_step))
    return found


def _one_file(seen: Observation) -> bool:
    """Whether all metrics stand in the file that holds the counter: one source, not two."""
    sources = seen.record.fact("sources", "sources", []) or []
    return all(source.get("counter") for source in sources
               if source.get("points") and source.get("kind") not in (PRINTED, "hf_results"))


def _confidence(seen: Observation, decision: Decision) -> Confidence:
    """High with two independent witnesses, one of them weights or probe, and a run in one piece; medium with metrics
    and another; else low."""
    kinds = {kind for kind, *_ in witnesses(seen)}
    if kinds == {WitnessKind.METRICS, WitnessKind.COUNTER} and _one_file(seen):
        kinds = {WitnessKind.COUNTER}
    strong = kinds & {WitnessKind.PROBE, WitnessKind.WEIGHTS}
    if decision is Decision.NO_GO:
        ended = seen.record.last_end() is not None or seen.record.last("attempt-started") is None
        return Confidence.HIGH if ended else Confidence.LOW
    if seen.is_printed_only:
        return Confidence.LOW
    if strong and len(kinds) >= 2 and not was_restarted(seen):
        return Confidence.HIGH
    return Confidence.MEDIUM if len(kinds) >= 2 or seen.updates.executed else Confidence.LOW
