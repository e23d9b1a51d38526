"""What an out-dir knows of its run beside the logs: how it ended, what was launched, its metrics. Never raises."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.diagnosis.again import retry_words
from harness.diagnosis.elastic import exit_text
from harness.errors import RecordError
from harness.record import outdir
from harness.record.files import read_json
from harness.record.run_record import RunRecord, open_record

_SHOWN = ("loss", "grad_norm", "lr", "learning_rate", "reward")
MAX_SERIES = 6
NUM_POINTS = 5
STOPS = frozenset({"timeout", "cancelled", "owner-lost", "stop-on"})
"""Ends that the harness brought about because of the run or its owner; a cap or an early stop is no failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """Facts of one out-dir, as far as they can be had."""

    run_id: str | None = None
    framework: str | None = None
    command: str | None = None
    """As it was launched, ready for a shell."""
    retry: tuple[str, ...] = ()
    """Options that run the job again as the retry of this run, see `again.retry_words`."""
    exit_code: int | None = None
    """Negative for a signal."""
    stopped: str | None = None
    seconds: float = 0.0
    launch_error: str | None = None
    reasons: tuple[tuple[str, str], ...] = ()
    """(reason code, what was seen) of what the logs may not tell; of every gate where nothing was launched."""
    trajectory: tuple[str, ...] = ()
    """The last points of the series that matter, one line each."""
    last_step: int | None = None
    target: int | None = None
    terminal_state: str | None = None


def facts_of(out_dir: Path, report: dict[str, Any] | None = None) -> RunFacts:
    """Read an out-dir; `report` is its train-model.json where that is at hand."""
    if report is None:
        try:
            read = read_json(out_dir / outdir.REPORT)
            report = read if isinstance(read, dict) else {}
        except (OSError, ValueError):
            report = {}
    try:
        with open_record(out_dir) as record:
            return _facts(record, report)
    except RecordError:
        return RunFacts()


def _facts(record: RunRecord, report: dict[str, Any]) -> RunFacts:
    launched = record.last("attempt-started") is not None
    ended = record.last("attempt-ended" if launched else "smoke") or {}
    code, name = ended.get("exit_code"), ended.get("signal")
    if name:
        code = next((-number for number in range(1, 65) if exit_text(-number) == f"signal {name}"), -9)
    stop = record.fact("run-finished", "stop_reason") or ended.get("stop_reason")
    argv = record.fact("command", "argv")
    evidence = report.get("evidence") or {}
    is_clean = code in (0, None) and stop not in STOPS
    return RunFacts(
        run_id=record.spec.run_id,
        framework=record.fact("command", "facts", {}).get("name") if record.fact("command", "facts") else None,
        command=shlex.join(argv) if argv else record.spec.train_cmd,
        retry=retry_words(record), exit_code=code, stopped=stop if stop in STOPS else None,
        seconds=float(ended.get("seconds") or 0.0),
        launch_error=record.fact("launch-failed", "message"),
        reasons=(*((code, seen) for code, seen in _reasons(evidence, launched=launched)
                   if is_clean or code.endswith("-not-finite")), *(_stopped_on(record) if stop == "stop-on" else ())),
        trajectory=_trajectory(record), last_step=report.get("total_steps"),
        target=(evidence.get("requested") or {}).get("target_steps"), terminal_state=report.get("terminal_state"),
    )


def _stopped_on(record: RunRecord) -> tuple[tuple[str, str], ...]:
    """The anomaly that --stop-on ended the run for, as a reason of its own: (stopped-on-TYPE, what was seen)."""
    entry = next((entry for entry in record.every("anomaly")
                  if str(entry.get("action_taken")).startswith("the run was stopped")), None)
    if entry is None:
        return ()
    at = f"step {entry['step']}: " if entry.get("step") is not None else ""
    return ((f"stopped-on-{entry['type']}", f"{at}{entry.get('description')}"),)


def _reasons(evidence: dict[str, Any], *, launched: bool) -> list[tuple[str, str]]:
    seen = {(gate["name"], check["name"]): f"{check.get('observed')}; {check.get('why')}"
            for gate in evidence.get("gates") or [] for check in gate.get("checks") or []}
    return [(str(reason["code"]), seen.get((reason["gate"], reason["check"]), ""))
            for reason in evidence.get("reasons") or []
            if reason["kind"] != "unproven" and (not launched or reason["gate"] in ("real_step", "save_reload"))]


def _trajectory(record: RunRecord) -> tuple[str, ...]:
    if record.store is None:
        return ()
    lines: list[str] = []
    for tags in record.store.tags():
        if tags.fresh_points and any(name in tags.tag.lower() for name in _SHOWN) and len(lines) < MAX_SERIES:
            last: list[tuple[int, float]] = []
            for point in record.store.iter_series(tags.tag, run=tags.run):
                last = [*last[1 - NUM_POINTS:], (point.step, point.value)]
            lines.append(f"{tags.tag}: " + ", ".join(f"step {step}: {value:.6g}" for step, value in last))
    return tuple(lines)
