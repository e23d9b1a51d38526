"""train-model.json: the evidence document, built from the out-dir alone, validated, written at once."""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness import __version__
from harness.diagnosis.report import write_failure
from harness.judge.advisories import advisories
from harness.judge.anomalies import anomalies_of
from harness.judge.babysit import finding_of, was_watched, write_watch
from harness.judge.checks_expect import evidence_of_bands
from harness.judge.checks_samples import sample_evidence
from harness.judge.checks_saving import evidence_of_reload
from harness.judge.epochs import epochs_completed, planned_epochs
from harness.judge.fields import (
    best_checkpoint,
    common_fields,
    completed_steps,
    final_metrics,
    iso_time,
    last_value,
    run_seconds,
    state_value,
    trained_seconds,
)
from harness.judge.lineage import lineage_of
from harness.judge.model import Gate, Verdict
from harness.judge.observe import Observation
from harness.judge.overrides import OPTIMIZERS, effects, unseen_overrides
from harness.judge.own_stop import trainer_stop
from harness.judge.policy import policy_evidence
from harness.judge.restarts import attempts_json, restart_findings
from harness.judge.saved import saved_checkpoints
from harness.judge.topology import topology
from harness.judge.verdict import judge, witnesses
from harness.record import outdir
from harness.record.files import strict, write_json
from harness.record.reason_texts import REASONS
from harness.record.reasons import Reason
from harness.record.run_record import RunRecord, open_record
from harness.record.schemas import validate_artifact
from harness.record.vocabulary import CheckStatus, TerminalState


def write_report(out_dir: Path) -> dict[str, Any]:
    """Judge the out-dir and write what it amounts to: train-model.json, which is given back, babysit-training.json
    where something was watched, check-failed-run.json where the run failed, lineage.json of a retry. RecordError when
    there is no run in it."""
    report = build_report(out_dir)
    write_json(out_dir / outdir.REPORT, report)
    if report["evidence"]["lineage"] is not None:
        validate_artifact(report["evidence"]["lineage"], outdir.LINEAGE)
        write_json(out_dir / outdir.LINEAGE, report["evidence"]["lineage"])
    write_watch(out_dir)
    with contextlib.suppress(OSError):  # a full disk may be why the run failed; `verify` writes it later
        write_failure(out_dir, report)
    return report


def build_report(out_dir: Path, asked: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The report as a mapping that meets its schema; judged by other bands and another policy where these are
    `asked` (see `asked.asked_of`)."""
    with open_record(out_dir, asked) as record:
        verdict, seen = judge(record)
        report: dict[str, Any] = strict(_report(record, verdict, seen))
    validate_artifact(report, outdir.REPORT)
    return report


def _report(record: RunRecord, verdict: Verdict, seen: Observation) -> dict[str, Any]:
    duration = trained_seconds(record)
    completed = completed_steps(seen)
    epochs = _epochs(seen)
    checkpoints = [one.to_json() for one in saved_checkpoints(record)]
    return {
        **common_fields(record, verdict),
        "skill_name": "train-model",
        "summary": summary_line(verdict, completed, seen.target),
        "findings": _findings(record, verdict, seen),
        "train_cmd": _executed(record),
        "hyperparameters": _hyperparameters(record),
        "early_stopping": _early_stopping(record, verdict, seen),
        "terminal_state": state_value(verdict.terminal_state),
        "total_steps": completed,
        "total_epochs": epochs,
        "final_metrics": final_metrics(seen),
        "best_checkpoint": best_checkpoint(record),
        "all_checkpoints": checkpoints,
        "training_duration_seconds": duration,
        "babysit_training_ref": outdir.WATCH_REPORT if was_watched(record) else None,
        "evidence": _evidence(record, verdict, seen),
    }


def _epochs(seen: Observation) -> float | None:
    """Epochs that were ended; where nothing tells, the last number of a series of that name."""
    done = epochs_completed(seen)
    return last_value(seen, ("epoch", "train/epoch")) if done is None else done


def summary_line(verdict: Verdict, completed: int | None, target: int | None) -> str:
    """One line for humans and dashboards."""
    steps = f"{completed if completed is not None else '?'}/{target if target is not None else '?'} steps"
    codes = ", ".join(dict.fromkeys(reason.code.value for reason in verdict.reasons))
    unseen = any(reason.code is Reason.RUN_UNFINISHED for reason in verdict.reasons)
    state = "end not seen" if unseen else state_value(verdict.terminal_state) or "goes on"
    return f"{verdict.decision.value} ({verdict.confidence.value}): {state}, {steps}" + (
        f"; {codes}" if codes else "")


def _findings(record: RunRecord, verdict: Verdict, seen: Observation) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for gate in verdict.gates:
        for check in gate.checks:
            if check.reason is None:
                continue
            severity = {CheckStatus.FAILED: "blocker", CheckStatus.UNPROVEN: "medium"}.get(check.standing, "low")
            found.append({
                "severity": severity,
                "title": f"{check.reason.value}: {REASONS[check.reason].meaning}",
                "description": f"{gate.name}.{check.name}: expected {check.expected}; observed {check.observed}; "
                               f"{check.why}",
                "fix": check.waiver.text if check.waiver else check.remedy,
            })
    found += unseen_overrides(seen)
    found += restart_findings(record)
    found += [finding_of(anomaly) for anomaly in anomalies_of(seen)]
    found += advisories(seen)
    lost = [str(entry.get("message")) for entry in record.every("evidence-lost")]
    for problem in (*record.problems, *lost, *_source_problems(record)):
        found.append({"severity": "low", "title": "an artifact or source is damaged", "description": problem,
                      "fix": "see the path named; what was whole before the damage was used"})
    for entry in record.every("source-notice"):
        found.append({"severity": "low", "title": f"the watched log: {entry['kind']}", "description": entry["message"],
                      "fix": "nothing, where the job itself did it; else see that no output was lost"})
    sizes = _batch_size(record)
    if sizes is not None and sizes["effective"] != sizes["requested"]:
        found.append({"severity": "medium", "title": "the run is not the requested one: its batch size was lowered",
                      "description": f"it began with {sizes['requested']} per device and trained with "
                                     f"{sizes['effective']}",
                      "fix": "ask for a batch size that fits, with as much more accumulation"})
    for entry in record.every("log-end"):
        if entry.get("lost_bytes"):
            found.append({"severity": "low", "title": "the log is incomplete",
                          "description": f"{entry['lost_bytes']} of {entry.get('bytes')} bytes of output could not be "
                                         "written", "fix": "give the out-dir a disk with more room"})
    for entry in record.every("stragglers"):
        commands = "; ".join(str(item.get("command")) for item in entry.get("processes", []))
        found.append({"severity": "low", "title": "processes outlived the trainer and were stopped",
                      "description": commands, "fix": "let the trainer wait for its children"})
    for finding in record.fact("command", "findings", []) or []:
        if not finding.get("refuses"):
            found.append({"severity": "low", "title": str(finding.get("code")),
                          "description": str(finding.get("message")), "fix": "see the description"})
    for warning in record.fact("dataset", "warnings", []) or []:
        found.append({"severity": "low", "title": f"dataset: {warning.get('code')}",
                      "description": str(warning.get("message")), "fix": "look at the rows that it names"})
    return [{"id": f"F{number:03d}", **finding} for number, finding in enumerate(found, start=1)]


def _source_problems(record: RunRecord) -> list[str]:
    sources = record.fact("sources", "sources", []) or []
    return [str(problem.get("message", problem)) if isinstance(problem, dict) else str(problem)
            for source in sources for problem in source.get("problems", [])]


def _evidence(record: RunRecord, verdict: Verdict, seen: Observation) -> dict[str, Any]:
    facts, used = seen.facts, topology(seen)
    command = record.last("command") or {}
    environment = record.fact("environment", "environment") or {}
    commit = record.fact("environment", "commit") or {}
    return {
        "harness_version": record.fact("run-started", "harness_version") or __version__,
        "policy": policy_evidence(record, verdict),
        "outcome": verdict.outcome.value,
        "reasons": [reason.to_json() for reason in verdict.reasons],
        "commit": {key: commit.get(key) for key in ("sha", "dirty", "diff_sha256")},
        "command": {
            "argv": command.get("argv"), "cwd": command.get("cwd"), "env_changes": command.get("env_changes") or {},
            "framework": facts.name if facts else None, "framework_reason": facts.reason if facts else None,
            "entrypoint": command.get("entrypoint"), "overrides": _overrides(command, seen),
            "stopped_by": verdict.stopped_by,
        },
        "environment": {key: environment.get(key) for key in (
            "host", "os", "python", "packages", "accelerators", "trainer_report", "trainer_check")},
        "model": _model(record, facts.start_weights if facts else None),
        "dataset": {key: record.fact("dataset", key) for key in (
            "source", "hub", "revision", "local_path", "fingerprint", "rows_seen", "rows_total")},
        "algorithm": {"name": facts.algorithm if facts else None, "kind": facts.algorithm_kind if facts else "other"},
        "topology": {"world_size": used.group_size or used.asked or _resolved(record, "world_size"),
                     "tp_size": _resolved(record, "tp_size"), "dp_size": _resolved(record, "dp_size"),
                     "devices": list(used.devices) or None, "launcher": used.launcher,
                     "realised": used.stepping or None},
        "requested": {"max_steps": record.spec.max_steps, "max_epochs": record.spec.max_epochs,
                      "target_steps": seen.target, "target_epochs": planned_epochs(seen),
                      "target_source": seen.target_source or None,
                      **{name: _resolved(record, name) for name in ("max_new_tokens", "max_context_len")}},
        "observed": _observed(record, seen),
        "expectations": evidence_of_bands(record),
        "samples": sample_evidence(seen, verdict.gates),
        "reload": evidence_of_reload(seen),
        "gates": [_gate(gate) for gate in verdict.gates],
        "lineage": lineage_of(record, verdict),
        "attempts": attempts_json(seen, state_value(verdict.terminal_state)),
        "overhead": {
            **{key: record.fact("overhead", key) for key in ("supervisor_cpu_s", "supervisor_rss_bytes")},
            "wall_added_s": _wall_added(record),
        },
    }


def _model(record: RunRecord, start: str | None) -> dict[str, Any]:
    """The weights that training starts from, or the frozen ones below an adapter; where a run was refused before they
    were looked at, only their place."""
    told = {key: record.fact("model", key)
            for key in ("source", "hub", "revision", "local_path", "fingerprint", "adapter")}
    return {**told, "source": told["source"] or start, "local_path": told["local_path"] or start}


def _resolved(record: RunRecord, name: str) -> int | None:
    """A size as the trainer says that it resolved it, else as the command states it."""
    told = ((record.fact("effective-values", "values", {}) or {}).get(name) or {}).get("value")
    stated = (record.fact("command", "capacity", {}) or {}).get(name)
    return next((value for value in (told, stated) if isinstance(value, int) and not isinstance(value, bool)), None)


def _early_stopping(record: RunRecord, verdict: Verdict, seen: Observation) -> dict[str, Any]:
    """Triggered only where the stop took effect: a run that ended by itself in that moment was not stopped early."""
    metric, facts = record.spec.early_stop_metric, record.last("early-stopping") or {}
    own = trainer_stop(seen) if verdict.stopped_by == "trainer" else None
    if own is not None:
        return {"enabled": True, "metric": own.metric, "patience": own.patience, "triggered": True,
                "triggered_at_step": own.step if own.step is not None else completed_steps(seen)}
    triggered = verdict.terminal_state is TerminalState.EARLY_STOPPED
    return {"enabled": metric is not None, "metric": metric,
            "patience": record.spec.early_stop_patience if metric is not None else None, "triggered": triggered,
            "triggered_at_step": facts.get("triggered_at_step") if triggered else None}


def _executed(record: RunRecord) -> str:
    """The command as it was launched, overrides in it; as it was given where it was refused before."""
    argv = record.fact("command", "argv")
    return shlex.join(argv) if argv else str(record.fact("command", "text") or record.spec.train_cmd)


def _hyperparameters(record: RunRecord) -> dict[str, Any]:
    """The user's overrides with their values typed as JSON reads them."""
    asked = {text.partition("=")[0].strip() for text in record.spec.hp}
    found: dict[str, Any] = {}
    for item in record.fact("command", "overrides", []) or []:
        if item.get("key") in asked:
            try:
                found[item["key"]] = json.loads(str(item.get("value")))
            except ValueError:
                found[item["key"]] = item.get("value")
    return found


def _overrides(command: dict[str, Any], seen: Observation) -> list[dict[str, Any]]:
    """Each override with the value that the trainer used, None where nothing tells, and what tells it."""
    used = effects(seen)
    return [{**{key: item.get(key) for key in ("key", "value", "how", "kind")},
             "effective_value": effect.used if effect.counted is None else effect.counted,
             "effect": effect.word, "told_by": (effect.source if effect.counted is None else OPTIMIZERS) or None}
            for item, effect in zip(command.get("overrides") or [], used, strict=True)]


def _observed(record: RunRecord, seen: Observation) -> dict[str, Any]:
    probe = seen.probe
    executed = seen.updates.executed
    if executed is None and probe.torch_seen:
        executed = probe.steps
    if executed is None and seen.told is not None:
        executed = seen.told.executed
    skipped = probe.scaler_skips if probe.torch_seen else seen.told.skipped if seen.told is not None else None
    effective = seen.updates.effective
    if effective is None and probe.grads_checked:
        effective = min(probe.lr_positive_steps, probe.steps) if probe.grads_nonzero else 0
    return {
        "first_step": seen.steps.first, "last_step": seen.steps.last, "step_base": seen.steps.base,
        "updates_executed": executed,
        "updates_effective": None if effective is None or executed is None else min(effective, executed),
        "updates_skipped": skipped,
        "per_device_batch_size": _batch_size(record),
        "epochs": _epochs(seen),
        "metrics": [
            {"tag": tag.tag, "run": tag.run, "points": tag.fresh_points, "first_step": tag.first_step,
             "last_step": tag.last_step, "last_value": tag.last_value, "min": tag.min_finite, "max": tag.max_finite,
             "nonfinite": tag.nonfinite} for tag in (*seen.tags, *seen.printed)
            if tag.fresh_points],
        "witnesses": [{"kind": kind.value, "source": source, "updates": updates, "last_step": last}
                      for kind, source, updates, last in witnesses(seen)],
        "sources": record.fact("sources", "sources", []) or [],
        "agreement": {"metrics": seen.steps.completed, "checkpoint": seen.weights.last_step,
                      "counter": seen.counter.step if seen.counter else None,
                      "probe": probe.steps if probe.torch_seen else None},
    }


def _batch_size(record: RunRecord) -> dict[str, int] | None:
    """As the trainer announced it: what it began with, and what it ended with after a search for one that fits."""
    sizes = record.fact("log-end", "batch_sizes") or []
    return {"requested": sizes[0], "effective": sizes[-1]} if sizes else None


def _gate(gate: Gate) -> dict[str, Any]:
    return {"name": gate.name, "required": gate.required, "status": gate.status.value, "rationale": gate.rationale,
            "started_at": iso_time(gate.started_at) if gate.started_at else None, "duration_seconds": gate.duration_s,
            "checks": [check.to_json() for check in gate.checks]}




def _wall_added(record: RunRecord) -> float | None:
    """Seconds of the supervisor's run beside the trainer's own: preflight, drain, the last look at every source."""
    if record.last("attempt-ended") is None or record.last("run-finished") is None:
        return None
    return round(max(0.0, run_seconds(record) - trained_seconds(record)), 3)


