"""What the watch noted of a run, and what came of it: which anomalies passed by and which are unresolved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.judge.checks_evidence import check_grad_norm_finite, check_loss_finite
from harness.judge.checks_progress import check_exit
from harness.judge.model import Check, not_applicable, passed, unproven
from harness.judge.observe import Observation
from harness.judge.reach import is_target_met
from harness.record.reasons import Reason
from harness.record.vocabulary import AnomalyType, CheckStatus, Severity

OUTLIVED = frozenset({AnomalyType.OOM, AnomalyType.CRASH, AnomalyType.STALLED})
"""What a run has got over when it reaches its target and ends well."""
CLOCK_SLACK_S = 2.0
"""File systems round times, and an error is read a moment after it was printed."""
GRAVE = frozenset({Severity.BLOCKER, Severity.HIGH})


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomaly:
    """One anomaly as it stands at the end."""

    type: AnomalyType
    severity: Severity
    step: int | None
    """As the trainer counts; None where none was known."""
    description: str
    action: str
    seen_at: float
    """Seconds since the epoch, the supervisor's clock."""
    recovered: bool
    recovered_at_step: int | None = None
    why: str | None = None
    """What shows that it is over, None while nothing does."""

    @property
    def is_grave(self) -> bool:
        """Whether it is unresolved and grave enough to forbid a GO."""
        return not self.recovered and self.severity in GRAVE

    @property
    def action_taken(self) -> str:
        """What the harness did, and how it ended."""
        if not self.recovered:
            return self.action
        at = f" at step {self.recovered_at_step}" if self.recovered_at_step is not None else ""
        return f"{self.action}; recovered{at}"


def anomalies_of(seen: Observation) -> tuple[Anomaly, ...]:
    """Every anomaly of the run in the order in which they began: those that the journal holds, and its crashes."""
    noted: dict[int, Mapping[str, Any]] = {}
    for entry in seen.record.every("anomaly"):
        first = noted.get(entry["anomaly"])
        noted[entry["anomaly"]] = {**entry, "time": first["time"], "since": first.get("since")} if first else entry
    found = [_settled(seen, entry) for entry in noted.values()]
    return tuple(sorted([*found, *_crashes(seen)], key=lambda anomaly: anomaly.seen_at))


def unlisted_of(seen: Observation) -> dict[str, int]:
    """Anomalies that were counted and no longer written down, by type."""
    counts = seen.record.fact("anomalies-unlisted", "counts", {}) or {}
    return {str(kind): count for kind, count in counts.items() if isinstance(count, int)}


def _settled(seen: Observation, entry: Mapping[str, Any]) -> Anomaly:
    kind = AnomalyType(entry["type"])
    recovered, step, why = entry["state"] == "recovered", entry.get("ended_step"), entry.get("why")
    if not recovered:
        why = _outlived(seen, kind, entry)
        recovered = why is not None
    return Anomaly(
        type=kind, severity=Severity(entry["severity"]), step=entry.get("step"),
        description=str(entry["description"]), action=str(entry["action_taken"]) + _stacks(seen, kind, entry),
        seen_at=entry["time"], recovered=recovered, recovered_at_step=step, why=why)


def _stacks(seen: Observation, kind: AnomalyType, entry: Mapping[str, Any]) -> str:
    """Where the stacks of a stall stand, or why there are none."""
    taken = next((item for item in seen.record.every("stacks") if item["time"] >= entry["time"]), None)
    if kind is not AnomalyType.STALLED or taken is None:
        return ""
    place, problem = taken.get("path"), taken.get("problem")
    where = f"; stacks in {place}" if place and taken.get("bytes") else "; no stacks"
    return where + (f": {problem}" if problem else "")


def _outlived(seen: Observation, kind: AnomalyType, entry: Mapping[str, Any]) -> str | None:
    """What happened after the last look at it that shows it to be over."""
    if kind in OUTLIVED and check_exit(seen).status is not CheckStatus.FAILED and is_target_met(seen):
        return "the run reached its target and ended well"
    if kind is AnomalyType.CHECKPOINT_FAILURE:
        return _saved_since(seen, entry)
    return None


def _saved_since(seen: Observation, entry: Mapping[str, Any]) -> str | None:
    """A whole checkpoint that was written later; of that step or a later one also one that was written since the output
    was looked at before, in which nothing had failed yet, and where the clocks are close."""
    since = entry.get("since") or entry["time"]
    facts, step = seen.record.fact("checkpoints", "facts", {}) or {}, entry.get("step")
    for item in facts.get("checkpoints") or []:
        saved, written_at = item.get("step"), item.get("written_at") or 0.0
        is_of_step = step is not None and isinstance(saved, int) and saved >= step
        latest = min(since, entry["time"]) - CLOCK_SLACK_S if is_of_step else entry["time"]
        if item.get("status") != "damaged" and written_at >= latest:
            return f"{item.get('path')} was written later"
    return None


def _crashes(seen: Observation) -> list[Anomaly]:
    """Attempts that ended by themselves and not well; one that another attempt followed is recovered from."""
    ends = seen.record.every("attempt-ended")
    starts = seen.record.every("attempt-started")
    found = []
    for number, ended in enumerate(ends, start=1):
        code, signal = ended.get("exit_code"), ended.get("signal")
        if ended.get("stop_reason") or (code == 0 and signal is None) or (code is None and signal is None):
            continue
        last = number == len(ends)
        cause = str(seen.record.fact("log-end", "exception") or "") if last else ""
        how = f"killed by {signal}" if signal else f"exit code {code}"
        restarted = len(starts) > number
        found.append(Anomaly(
            type=AnomalyType.CRASH, severity=Severity.BLOCKER, step=seen.steps.last if last else None,
            description=f"attempt {ended.get('attempt', number)} ended with {how}" + (f": {cause}" if cause else ""),
            action="restarted as another attempt" if restarted else "recorded", seen_at=ended["time"],
            recovered=restarted, why="another attempt went on" if restarted else None))
    return found


def check_anomalies(seen: Observation) -> Check:
    """What the watch saw go gravely wrong is over at the end."""
    name, expected = "anomalies", "no unresolved anomaly of severity high or blocker"
    if check_exit(seen).status is CheckStatus.FAILED:
        return not_applicable(name, "the run did not end well; see exit")
    noted = anomalies_of(seen)
    is_said = any(check(seen).status is CheckStatus.FAILED for check in (check_loss_finite, check_grad_norm_finite))
    grave = [anomaly for anomaly in noted
             if anomaly.is_grave and not (is_said and anomaly.type is AnomalyType.NAN_INF)]
    if grave:
        first = grave[0]
        at = f" at step {first.step}" if first.step is not None else ""
        return unproven(name, Reason.UNRESOLVED_ANOMALY, expected, f"{first.type.value}{at}: {first.description}",
                        f"{len(grave)} unresolved; nothing after it shows that it is over")
    return passed(name, expected, f"{len(noted)} noted, none unresolved and grave" if noted else "none noted")
