"""What a person reads at the end: the terminal summary of a report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.record.reasons import Reason
from harness.watch.early_stopping import find_metric, is_evaluation

HEADING, NOT_STARTED = "Training Complete", "Training Not Started"
"""Over a run that came to its end, whatever that was, and over one that was refused or could not be launched."""


def render_summary(report: dict[str, Any], out_dir: Path, failure: dict[str, Any] | None = None) -> str:
    """The summary of train-model.json, reasons with their remedies where the decision is not GO.

    `failure`: the run's check-failed-run.json, where there is one: root cause and actions stand below the reasons.
    """
    evidence = report["evidence"]
    stopping = report["early_stopping"]
    heading = HEADING if evidence["attempts"] else NOT_STARTED
    aside = " (stopped at the cap by the harness)" if evidence["command"]["stopped_by"] == "cap" else ""
    if any(reason["code"] == Reason.RUN_UNFINISHED.value for reason in evidence["reasons"]):
        aside = " (its end was not seen)"
    state = report["terminal_state"] or "none, the run goes on"
    lines = [
        heading,
        "=" * len(heading),
        f"Command: {report['train_cmd']}",
        f"Terminal state: {state}" + aside,
        f"Steps completed: {_count(report['total_steps'])}/{_count(evidence['requested'].get('target_steps'))}",
        f"Epochs completed: {_count(report['total_epochs'])}/{_count(evidence['requested'].get('target_epochs'))}",
        f"Training duration: {clock(report['training_duration_seconds'])}",
        f"Final metrics: {_metrics(report['final_metrics'])}",
        f"Best checkpoint: {best_line(report)}",
        "Early stopping: " + (f"triggered at step {stopping['triggered_at_step']}" if stopping["triggered"]
                              else "not triggered"),
        "",
        f"Decision: {report['decision']}",
        f"Confidence: {report['confidence']}",
    ]
    if report["decision"] != "GO":
        lines += ["", *_reasons(report)]
    if failure is not None:
        lines += ["", *_failure(failure)]
    return "\n".join([*lines, "", f"Evidence: {out_dir / 'train-model.json'}"])


def _reasons(report: dict[str, Any]) -> list[str]:
    checks = {(gate["name"], check["name"]): check
              for gate in report["evidence"]["gates"] for check in gate["checks"]}
    grouped: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for reason in report["evidence"]["reasons"]:
        grouped.setdefault((reason["code"], reason["kind"], reason["remedy"]), []).append(reason)
    lines = []
    for (code, kind, remedy), given in grouped.items():
        places = ", ".join(f"{reason['gate']}.{reason['check']}" for reason in given)
        seen = (checks.get((reason["gate"], reason["check"]), {}) for reason in given)
        details = ["; ".join(part for part in (check.get("observed"), check.get("why")) if part) for check in seen]
        lines += [f"- {code} ({kind}, {places}): {' | '.join(dict.fromkeys(details))}", f"  Remedy: {remedy}"]
    return lines or ["- no reason was recorded"]


def _failure(failure: dict[str, Any]) -> list[str]:
    """Root cause; what may be done without a person; what a person decides on, with its exact command."""
    sure = f"{failure['primary_cause']}, confidence {failure['primary_cause_confidence']:.2f}"
    safe = [fix for fix in failure["fixes"] if fix["risk"] == "safe"]
    others = [fix for fix in failure["fixes"] if fix["risk"] != "safe"]
    lines = [f"Root cause ({sure}): {' '.join(failure['root_cause'].split())}",
             "Approved actions:" + ("" if safe else " none")]
    lines += [f"- {fix['action']}: {fix['validate']}" for fix in safe]
    if others:
        lines.append("Needs approval:")
        lines += [f"- {fix['action']} ({fix['risk']}): {fix['validate']}" for fix in others]
    return [*lines, "Diagnosis: check-failed-run.json"]


def _count(value: Any) -> str:
    if value is None:
        return "?"
    return f"{value:g}" if isinstance(value, float) else str(value)


def clock(seconds: float) -> str:
    """HH:MM:SS."""
    whole = int(seconds)
    return f"{whole // 3600:02d}:{whole % 3600 // 60:02d}:{whole % 60:02d}"


def _metrics(metrics: dict[str, Any]) -> str:
    return ", ".join(f"{name}={number(value)}" for name, value in metrics.items()) or "none"


def number(value: Any) -> str:
    """A metric value in four digits; a non-finite one by its name."""
    if isinstance(value, dict):
        return str(value.get("repr"))
    return "?" if value is None else f"{value:.4g}"


def best_line(report: dict[str, Any]) -> str:
    """The best checkpoint: PATH (step N, metric=value); of its metrics those of evaluations, else the training loss."""
    best = report["best_checkpoint"]
    if best is None:
        return "none"
    unknown: dict[str, Any] = {"step": None, "metrics": {}}
    item = next((entry for entry in report["all_checkpoints"] if entry["path"] == best), unknown)
    values = "".join(f", {name}={number(value)}" for name, value in _telling(report, item["metrics"]).items())
    return f"{best} (step {_count(item['step'])}{values})"


def _telling(report: dict[str, Any], metrics: dict[str, Any]) -> dict[str, Any]:
    """The metric of early stopping where it has a value, else those of evaluations, else a loss."""
    asked = report["early_stopping"]["metric"]
    tag = find_metric(asked, metrics) if asked else None
    if tag is not None:
        return {tag: metrics[tag]}
    evaluations = {name: value for name, value in metrics.items() if is_evaluation(name)}
    return evaluations or {name: value for name, value in metrics.items() if name.lower().endswith("loss")}
