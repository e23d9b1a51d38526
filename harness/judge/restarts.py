"""A run of several launches: whether each went on where the one before had come to, and how often it took."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from harness.judge.chain import resumed_after, saved_before
from harness.judge.fields import iso_time
from harness.judge.model import Check, not_applicable, passed, unproven
from harness.judge.observe import Observation
from harness.judge.thresholds import threshold
from harness.record.attempts import ELASTIC, TOLD, AttemptSeen, attempts
from harness.record.outdir import RUN_COMMAND
from harness.record.reasons import Reason
from harness.record.run_record import RunRecord
from harness.record.vocabulary import TerminalState

REASONS_OF = {ELASTIC: "restarted by torch elastic", TOLD: "began again, as its log tells"}


def was_restarted(seen: Observation) -> bool:
    """Whether there was more than one launch, or one whose workers were started again."""
    return len(attempts(seen.record)) > 1


def budget(seen: Observation) -> int:
    """Restarts that were declared before the launch: ours, and those that the launcher is told to make."""
    if "restarts" in dict(seen.record.spec.thresholds):
        return int(threshold(seen, "restarts"))
    declared = seen.record.fact("command", "topology", {}) or {}
    return (int(threshold(seen, "restarts")) if seen.record.spec.fix else 0) + int(declared.get("restarts") or 0)


def check_restarts(seen: Observation) -> Check:
    """Restarts stay within their budget, and no step is missing between an attempt and the next one."""
    name, launches = "restarts", attempts(seen.record)
    if len(launches) <= 1:
        return not_applicable(name, "the run was started once")
    made, allowed = len(launches) - 1, budget(seen)
    expected = f"at most {allowed} restart(s), each going on where the one before had come to"
    observed = "; ".join(map(_course, launches))
    for before, after in pairwise(launches):
        if _is_gap(seen, after):
            return unproven(name, Reason.RESTART_GAP, expected, observed,
                            f"attempt {after.index} began at step {after.first_step}; attempt {before.index} had "
                            f"logged up to {after.after_step} and nothing that was saved lies between")
    if made > allowed:
        return unproven(name, Reason.RESTARTS_BEYOND_BUDGET, expected, observed, f"{made} restart(s)")
    return passed(name, expected, observed)


def _is_gap(seen: Observation, attempt: AttemptSeen) -> bool:
    """Whether steps are missing before its first one; two logging intervals allow for one that was cut short.

    A killed trainer's last rows may never have been written: what it had saved counts as well.
    """
    first, reach = attempt.first_step, 2 * seen.steps.cadence
    if first is None:
        return False
    earlier = [item for item in checkpoints_of(seen.record) if (item.get("written_at") or 0.0) < attempt.launched_at]
    return first > max(attempt.after_step or 0, saved_before(attempt, earlier) or 0) + reach


def _course(attempt: AttemptSeen) -> str:
    end = attempt.end or {}
    how = f"signal {end['signal']}" if end.get("signal") else (
        f"exit code {end['exit_code']}" if end.get("exit_code") is not None else "no end")
    cause = f" ({attempt.decision.get('cause')})" if attempt.decision else ""
    begun = "no step of its own" if attempt.first_step is None else f"from step {attempt.first_step}"
    return f"attempt {attempt.index} {begun}, {how}{cause}"


def checkpoints_of(record: RunRecord) -> list[dict[str, Any]]:
    """What was found of them, as the journal holds it."""
    return (record.fact("checkpoints", "facts", {}) or {}).get("checkpoints") or []


def attempts_json(seen: Observation, terminal_state: str | None) -> list[dict[str, Any]]:
    """As train-model.json holds them; an attempt that another one followed had failed."""
    launches, checkpoints = attempts(seen.record), checkpoints_of(seen.record)
    rows = []
    for launch in launches:
        end, is_first, is_last = launch.end or {}, launch is launches[0], launch is launches[-1]
        cause = launch.decision.get("cause") if launch.decision else end.get("stop_reason") or launch.cause
        rows.append({
            "index": launch.index, "started_at": iso_time(launch.launched_at or None),
            "ended_at": iso_time(end.get("ended_at")), "exit_code": end.get("exit_code"), "signal": end.get("signal"),
            "terminal_state": terminal_state if is_last else TerminalState.FAILED.value, "cause": cause,
            "resumed_from_step": None if is_first else resumed_after(launch, launches[0], checkpoints),
            "reason": "first" if is_first else REASONS_OF.get(launch.kind, "restart"),
        })
    return rows


def restart_findings(record: RunRecord) -> list[dict[str, Any]]:
    """What was mended by a restart, and what was not and needs a person."""
    found = []
    for entry in record.every("restart-decision"):
        told = f"attempt {entry['attempt']} was ended by {entry['cause']}: {entry.get('line')}"
        if entry.get("restart"):
            found.append({"severity": "low", "title": "the run was restarted with the unchanged command",
                          "description": told, "fix": "none is needed; the evidence says where each attempt began"})
        else:
            found.append({"severity": "medium", "title": "needs approval: launch the unchanged command again",
                          "description": f"{told}; not restarted: {entry.get('why_not')}",
                          "fix": f"see {RUN_COMMAND} in the out-dir for the exact command"})
    return found
