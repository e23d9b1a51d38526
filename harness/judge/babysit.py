"""babysit-training.json: what the watch saw of a run, built from the out-dir's facts, validated, written at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness import __version__
from harness.judge import fields
from harness.judge.anomalies import Anomaly, anomalies_of, unlisted_of
from harness.judge.model import Verdict
from harness.judge.observe import Observation
from harness.judge.verdict import judge
from harness.record import outdir
from harness.record.files import strict, write_json
from harness.record.run_record import RunRecord, open_record
from harness.record.schemas import validate_artifact
from harness.record.vocabulary import AnomalyType, TargetType, TerminalState

FIXES = {
    AnomalyType.NAN_INF: "start from the incident: the data of that step, the learning rate, the precision",
    AnomalyType.OOM: "lower the batch size, the sequence length or the precision (needs approval where it changes "
                     "what is learned)",
    AnomalyType.DIVERGENCE: "look at the learning rate and the data from that step on",
    AnomalyType.STALLED: "read the stacks beside it, where there are any: data loading, a collective, a lock",
    AnomalyType.CRASH: "read the end of train.log",
    AnomalyType.CHECKPOINT_FAILURE: "check space, quota and permissions of the checkpoint directory",
    AnomalyType.SLOW_THROUGHPUT: "look at data loading, other users of the machine, and clocks of the accelerator",
    AnomalyType.GRADIENT_EXPLOSION: "look at gradient clipping, the learning rate and the data of that step",
}


def write_watch(out_dir: Path) -> dict[str, Any] | None:
    """Write babysit-training.json where the out-dir holds a watched run; what was written, None for nothing."""
    with open_record(out_dir) as record:
        if not was_watched(record):
            return None
        document = build_watch(record)
    write_json(out_dir / outdir.WATCH_REPORT, document)
    return document


def was_watched(record: RunRecord) -> bool:
    """Whether something was launched, or attached to."""
    return record.last("attempt-started") is not None or record.last("attached") is not None


def build_watch(record: RunRecord) -> dict[str, Any]:
    """The document of a run, from its open record; it meets its schema. RecordError where it would not.

    What was watched is what the journal's entry `attached` {target, target_type} names, else the run's own log.
    """
    verdict, seen = judge(record)
    document: dict[str, Any] = strict(_document(record, verdict, seen))
    validate_artifact(document, outdir.WATCH_REPORT)
    return document


def _document(record: RunRecord, verdict: Verdict, seen: Observation) -> dict[str, Any]:
    found = anomalies_of(seen)
    early = verdict.terminal_state is TerminalState.EARLY_STOPPED
    state = fields.state_value(TerminalState.SUCCEEDED if early else verdict.terminal_state)
    completed = fields.completed_steps(seen)
    return {
        **fields.common_fields(record, verdict),
        "skill_name": "babysit-training",
        "summary": _summary(verdict, state, completed, found),
        "findings": findings_of(found),
        "target": str(record.fact("attached", "target") or outdir.TRAIN_LOG),
        "target_type": str(record.fact("attached", "target_type") or TargetType.LOCAL_LOG.value),
        "terminal_state": state,
        "total_steps": completed,
        "final_metrics": fields.final_metrics(seen),
        "anomalies_detected": [
            {"step": anomaly.step, "type": anomaly.type.value, "severity": anomaly.severity.value,
             "description": anomaly.description, "action_taken": anomaly.action_taken} for anomaly in found],
        "best_checkpoint": fields.best_checkpoint(record),
        "evidence": {
            "harness_version": record.fact("run-started", "harness_version") or __version__,
            "stopped_by": verdict.stopped_by,
            "progress": _progress(record),
            "actions": _actions(record),
            "anomalies": [
                {"seen_at": fields.iso_time(anomaly.seen_at), "recovered": anomaly.recovered,
                 "recovered_at_step": anomaly.recovered_at_step, "why": anomaly.why} for anomaly in found],
            "unlisted": unlisted_of(seen),
            "incidents": [_incident(entry) for entry in record.every("incident")],
        },
    }


def findings_of(anomalies: tuple[Anomaly, ...]) -> list[dict[str, Any]]:
    """Numbered findings; what was recovered from is a note, whatever it was when it came."""
    return [
        {"id": f"F{number:03d}", **finding_of(anomaly)} for number, anomaly in enumerate(anomalies, start=1)
    ]


def finding_of(anomaly: Anomaly) -> dict[str, Any]:
    """One anomaly as a finding without a number."""
    at = f" at step {anomaly.step}" if anomaly.step is not None else ""
    how = f"recovered ({anomaly.why})" if anomaly.recovered else "unresolved"
    return {
        "severity": "low" if anomaly.recovered else anomaly.severity.value,
        "title": f"{anomaly.type.value}{at}, {how}",
        "description": f"{anomaly.description}; {anomaly.action_taken}",
        "fix": "nothing, it is over" if anomaly.recovered else FIXES[anomaly.type],
    }


def _summary(
    verdict: Verdict, state: str | None, completed: int | None, found: tuple[Anomaly, ...]
) -> str:
    open_ones = sum(not anomaly.recovered for anomaly in found)
    steps = completed if completed is not None else "?"
    stopped = f", stopped by {verdict.stopped_by}" if verdict.stopped_by else ""
    told = f"{state or 'goes on'} after {steps} steps{stopped}"
    return (f"{verdict.decision.value} ({verdict.confidence.value}): {told}; "
            f"{len(found)} anomalies, {open_ones} unresolved")


def _progress(record: RunRecord) -> dict[str, Any] | None:
    """Where the output says that the run is, by its rows and bars; no count of updates."""
    told = record.fact("log-end", "printed") or {}
    if told.get("step") is None:
        return None
    return {key: told.get(key) for key in ("step", "total", "steps_per_second")}


def _actions(record: RunRecord) -> list[dict[str, Any]]:
    """What the harness did to the run: stops it asked for, signals it sent, attempts it started again."""
    stop_step = record.fact("early-stopping", "triggered_at_step")
    actions = []
    for entry in record.entries:
        event, when = entry["event"], fields.iso_time(entry["time"])
        if event == "stop-requested":
            step = stop_step if entry.get("reason") == "early-stop" else None
            actions.append({"time": when, "action": "stop", "reason": str(entry.get("reason")), "step": step})
        elif event == "signal-sent":
            whom = "group" if entry.get("group") else "leader"
            actions.append({"time": when, "action": f"{entry.get('signal')} to the {whom}", "reason": None,
                            "step": None})
        elif event == "attempt-started" and entry.get("attempt", 1) > 1:
            actions.append({"time": when, "action": f"attempt {entry['attempt']}", "reason": None, "step": None})
    return actions


def _incident(entry: dict[str, Any]) -> dict[str, Any]:
    last = entry.get("last_points") or {}
    return {
        "step": entry.get("step"), "metric": str(entry.get("metric")), "value": entry.get("value"),
        "rank": entry.get("rank"), "writer": entry.get("writer"),
        "last_points": {role: [{"step": step, "value": value} for step, value in last.get(role) or []]
                        for role in ("loss", "grad_norm", "lr")},
    }
