"""check-failed-run.json: the diagnosis of one run as a document that meets its schema, redacted, written at once."""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from harness.diagnosis.again import retry_command
from harness.diagnosis.evidence import evidence_of, first_causal
from harness.diagnosis.facts import RunFacts, facts_of
from harness.diagnosis.fixes import FIXES
from harness.diagnosis.inputs import Inputs, find_inputs
from harness.diagnosis.model import Event, Fix, Rule
from harness.diagnosis.read import RunReading, read_run
from harness.diagnosis.rules import RULES
from harness.errors import ConfigError
from harness.record import outdir
from harness.record.files import read_json, strict, write_json
from harness.record.redaction import Redactor
from harness.record.schemas import schema_problems, validate_artifact
from harness.record.vocabulary import Confidence, Decision, FixRisk, PrimaryCause, RunStatus

SCHEMA_VERSION = "1.0"
UNKNOWN_COMMAND = "the job's own command, run again"
_FAILED_STATES = frozenset({"FAILED", "CANCELLED", "TIMEOUT"})


def diagnose(
    paths: Sequence[Path], *, exit_code: int | None = None, dmesg: Path | None = None, out_dir: Path | None = None,
    run_id: str | None = None,
) -> dict[str, Any]:
    """Diagnose logs or an out-dir, write check-failed-run.json and give it back.

    It is written to `out_dir`, else to the out-dir among the paths, else to the current directory. ConfigError where a
    path is not there or nothing can be written.
    """
    if dmesg is not None and not dmesg.is_file():
        raise ConfigError(f"--dmesg {dmesg}: no such file; make it with: dmesg -T > {dmesg.name}")
    inputs = find_inputs(paths)
    facts = facts_of(inputs.out_dir) if inputs.out_dir is not None else RunFacts()
    place = out_dir or inputs.out_dir or Path()
    code = facts.exit_code if exit_code is None else exit_code
    reading = _read(inputs, facts, code, dmesg)
    name = run_id or facts.run_id or f"diagnose-{int(time.time())}"
    document = build_document(reading, facts, run_id=name, out_dir=place, paths=[log.path for log in inputs.logs])
    try:
        place.mkdir(parents=True, exist_ok=True)
        write_json(place / outdir.FAILURE_REPORT, document)
    except OSError as error:
        raise ConfigError(f"--out-dir {place}: cannot be written: {error.strerror}") from error
    return document


def write_failure(out_dir: Path, report: dict[str, Any]) -> dict[str, Any] | None:
    """check-failed-run.json beside a train-model.json of a run that failed (`is_failed`).

    None, and nothing written, for any other run.
    """
    if not is_failed(report):
        return None
    facts = facts_of(out_dir, report)
    inputs = find_inputs([out_dir])
    reading = _read(inputs, facts, facts.exit_code, None)
    document = build_document(reading, facts, run_id=report["run_id"], out_dir=out_dir,
                              paths=[log.path for log in inputs.logs], timestamp=report.get("timestamp"))
    write_json(out_dir / outdir.FAILURE_REPORT, document)
    return document


def read_failure(out_dir: Path, run_id: str) -> dict[str, Any] | None:
    """The check-failed-run.json of a run; None where there is none, or one of another run, or a damaged one."""
    try:
        document = read_json(out_dir / outdir.FAILURE_REPORT)
    except (OSError, ValueError):
        return None
    if schema_problems(document, outdir.FAILURE_REPORT) or document["run_id"] != run_id:
        return None
    found: dict[str, Any] = document
    return found


def rule_of(document: Mapping[str, Any]) -> Rule | None:
    """The rule that a diagnosis was made by, as its blocker names it; None for an unknown cause."""
    named = {str(item["title"]).rpartition(": ")[2] for item in document["findings"] if item["severity"] == "blocker"}
    return next((rule for rule in RULES if rule.id in named), None)


def is_failed(report: dict[str, Any]) -> bool:
    """Whether a run ended badly, its real step failed, or its log ends in an exception behind exit code 0."""
    gates = report["evidence"]["gates"]
    hidden = any(reason["code"].startswith("exception-") for reason in report["evidence"]["reasons"])
    return hidden or report["terminal_state"] in _FAILED_STATES or any(
        gate["name"] == "real_step" and gate["status"] == "FAIL" for gate in gates)


def _read(inputs: Inputs, facts: RunFacts, code: int | None, dmesg: Path | None) -> RunReading:
    return read_run(inputs.logs, exit_code=code, stopped=facts.stopped, kernel_log=dmesg, reasons=facts.reasons)


def build_document(
    reading: RunReading, facts: RunFacts, *, run_id: str, out_dir: Path, paths: Sequence[Path],
    timestamp: str | None = None,
) -> dict[str, Any]:
    """The document, validated. RecordError where it would not meet its schema."""
    cause = reading.finding.cause
    rule = cause.rule if cause is not None else None
    sureness = _sureness(reading)
    fixes = _fixes(rule, facts, out_dir, paths)
    decision = _decision(reading, fixes)
    word = _word(1.0 if reading.completed and reading.planned else sureness)
    status = _status(reading, rule, facts)
    primary = rule.cause if rule is not None else _recovered_from(reading)
    document: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION, "skill_name": "check-failed-run", "run_id": run_id,
        "timestamp": timestamp or datetime.now(tz=timezone.utc).isoformat(timespec="milliseconds"),
        "duration_seconds": facts.seconds, "decision": decision.value, "confidence": word.value,
        "summary": _summary(decision, status, primary, cause),
        "findings": _findings(reading, rule, fixes), "next_commands": _next_commands(fixes, rule, out_dir, paths),
        "run_status": status.value, "framework": facts.framework, "primary_cause": primary.value,
        "primary_cause_confidence": round(sureness, 2), "contributing_factors": _contributing(reading, facts),
        "evidence": evidence_of(reading, facts, out_dir), "first_causal": first_causal(reading, out_dir),
        "root_cause": _root_cause(reading, rule, facts),
        "fixes": [{"action": fix.action, "risk": fix.risk.value, "expected_impact": fix.expected_impact,
                   "validate": fix.validate} for fix in fixes],
    }
    redacted: dict[str, Any] = strict(Redactor.from_run([], os.environ).json(document))
    validate_artifact(redacted, outdir.FAILURE_REPORT)
    return redacted


def _sureness(reading: RunReading) -> float:
    """The rule's own confidence, less where the evidence is thin or others could be first, more where confirmed."""
    cause = reading.finding.cause
    if cause is None or cause.rule is None:
        survived = [event.rule.confidence for event in reading.finding.recovered if event.rule]
        return max(survived, default=0.0) if reading.completed else 0.0
    value = 0.97 if reading.finding.confirms is not None else cause.rule.confidence
    if reading.finding.is_consequence_only:
        value -= 0.15 if cause.rule.confidence > 0.5 else 0.1
    rivals = [event for event in reading.finding.rivals if event.rule and event.rule.cause is not cause.rule.cause]
    if rivals and (cause.stamp is None or any(event.stamp is None for event in rivals)):
        value -= 0.15
    return max(0.05, min(0.99, value))


def _word(sureness: float) -> Confidence:
    return Confidence.HIGH if sureness >= 0.85 else Confidence.MEDIUM if sureness >= 0.6 else Confidence.LOW


def _recovered_from(reading: RunReading) -> PrimaryCause:
    first = next((event.rule for event in reading.finding.recovered if event.rule), None)
    return first.cause if first is not None and reading.completed else PrimaryCause.UNKNOWN


def _decision(reading: RunReading, fixes: Sequence[Fix]) -> Decision:
    """GO where a safe fix removes the cause, or the run recovered by itself; else a person decides."""
    if reading.completed:
        return Decision.GO
    return Decision.GO if any(fix.risk is FixRisk.SAFE and fix.impact >= 2 for fix in fixes) else Decision.NO_GO


def _status(reading: RunReading, rule: Rule | None, facts: RunFacts) -> RunStatus:
    if reading.completed:
        return RunStatus.RECOVERED
    cause = rule.cause if rule is not None else PrimaryCause.UNKNOWN
    if cause in (PrimaryCause.NAN_INF, PrimaryCause.OPTIMIZATION_DIVERGENCE):
        return RunStatus.DIVERGED
    is_hang = cause is PrimaryCause.NCCL_DISTRIBUTED and reading.finding.is_consequence_only
    if cause is PrimaryCause.STALLED or facts.stopped == "timeout" or is_hang:
        return RunStatus.HUNG
    if facts.stopped == "stop-on" or cause is PrimaryCause.INTERRUPTED or (
            rule is not None and rule.where.value == "metric"):
        return RunStatus.DEGRADED
    if rule is None and reading.exit_code in (0, None) and facts.launch_error is None:
        return RunStatus.DEGRADED
    return RunStatus.CRASHED


def _fixes(rule: Rule | None, facts: RunFacts, out_dir: Path, paths: Sequence[Path]) -> list[Fix]:
    """By impact, then by risk, the way the rule names them where these are equal; with exact commands."""
    risks = list(FixRisk)
    named = [FIXES[name] for name in (rule.fixes if rule is not None else ())]
    ordered = sorted(named, key=lambda fix: (-fix.impact, risks.index(fix.risk)))
    log = " ".join(shlex.quote(str(path)) for path in paths[:20]) or shlex.quote(str(out_dir))
    values = {"{out}": shlex.quote(str(out_dir)), "{log}": log}
    return [_filled(fix, {"{retry}": _again(facts, overrides_of(fix, facts.command)), **values}) for fix in ordered]


def overrides_of(fix: Fix, command: str | None) -> str:
    """` --hp KEY=VALUE ...` where the command itself holds the number that a fix halves; "" where it does not."""
    for name in fix.halves:
        number = _number_of(name, command)
        if number is None or number in ("0", "1"):
            continue
        half = str(int(number) // 2) if number.isdigit() else f"{float(number) / 2:g}"
        text = f" --hp {name}={half}" + (f" --approve {name}" if fix.approves else "")
        if not fix.doubles:
            return text
        return f"{text} --hp {fix.doubles}={2 * int(float(_number_of(fix.doubles, command) or 1))}"
    return ""


def _number_of(name: str, command: str | None) -> str | None:
    flag = name.replace("_", "[_-]")
    pattern = rf"(?:^|\s)--{flag}[= ](\d{{1,9}}(?:\.\d{{0,17}})?(?:[eE][-+]?\d{{1,2}})?)(?=\s|$)"
    found = re.search(pattern, command or "")
    return found[1] if found else None


def _filled(fix: Fix, values: dict[str, str]) -> Fix:
    text = fix.validate
    for name, value in values.items():
        text = text.replace(name, value)
    return replace(fix, validate=text)


def _again(facts: RunFacts, overrides: str = "") -> str:
    if facts.retry:
        return retry_command(facts.retry, overrides)
    alone = re.sub(r" --approve \S+", "", overrides)  # nothing is retried that could be another job
    return retry_command(("--train-cmd", facts.command), alone) if facts.command else UNKNOWN_COMMAND


def _next_commands(fixes: Sequence[Fix], rule: Rule | None, out_dir: Path, paths: Sequence[Path]) -> list[str]:
    """The exact commands of the fixes, safe ones first; how to look further where nothing is known."""
    ordered = sorted(fixes, key=lambda fix: fix.risk is not FixRisk.SAFE)
    commands = [fix.validate for fix in ordered if UNKNOWN_COMMAND not in fix.validate]
    if rule is None or not commands:
        commands += [f"tail -n 50 {shlex.quote(str(path))}" for path in paths[:5]]
    return list(dict.fromkeys(commands))


def _summary(decision: Decision, status: RunStatus, primary: PrimaryCause, cause: Event | None) -> str:
    rank = f", rank {cause.rank}" if cause is not None and cause.rank is not None else ""
    what = f": {_name(cause)}" if cause is not None else ""
    return f"{decision.value}: {status.value}, {primary.value}{rank}{what}"[:400]


def _name(event: Event) -> str:
    text = event.link.text if event.link is not None else event.text
    text = f"{text}: {event.detail}" if event.detail else text
    return " ".join(text.split())[:200]


def _root_cause(reading: RunReading, rule: Rule | None, facts: RunFacts) -> str:
    cause = reading.finding.cause
    if reading.completed:
        survived = [event.rule.cause.value for event in reading.finding.recovered if event.rule]
        from_what = ", ".join(dict.fromkeys(survived))
        return f"The run reached its end; it recovered from: {from_what}." if from_what else (
            "The run reached its end; no failure is seen.")
    if cause is None or rule is None:
        said = f" The launch failed: {facts.launch_error}" if facts.launch_error else ""
        return "Nothing in the evidence says why the run failed." + said
    says = rule.says
    if reading.finding.confirms is not None:
        says = "The host ran out of memory: the kernel or the cgroup killed the process, which is confirmed by its log."
    who = f"Rank {cause.rank}: " if cause.rank is not None else ""
    return f"{says} {who}{_name(cause)}"[:600]


def _contributing(reading: RunReading, facts: RunFacts) -> list[str]:
    """What made it worse or is worth knowing: survived errors, other suspects, consequences by rank."""
    finding = reading.finding
    found = [f"recovered from {rule}: {count} time(s)" for rule, count in _counted(finding.recovered)]
    found += [f"possible other cause: {event.rule.id}{_of_rank(event)}: {_name(event)}"
              for event in finding.rivals[:5] if event.rule]
    if reading.batch_sizes and len(set(reading.batch_sizes)) > 1:
        first, last = reading.batch_sizes[0], reading.batch_sizes[-1]
        found.append(f"effective per-device batch size {last} (requested {first})")
    if reading.finding.is_consequence_only:
        found.append("what was seen is itself a consequence; its cause is not in the evidence given")
    if finding.silent_ranks:
        ranks = ", ".join(map(str, finding.silent_ranks))
        found.append(f"every rank timed out in the collective but {ranks}")
    if reading.exit_code == 0 and not reading.completed:
        found.append("the exit code is 0 although the run failed: a pipe, a handler or a script hid it")
    return [*found, *reading.problems]


def _counted(events: Sequence[Event]) -> list[tuple[str, int]]:
    counts: dict[str, int] = {}
    for event in events:
        if event.rule is not None:
            counts[event.rule.id] = counts.get(event.rule.id, 0) + 1
    return list(counts.items())


def _of_rank(event: Event) -> str:
    return f" (rank {event.rank})" if event.rank is not None else ""


def _findings(reading: RunReading, rule: Rule | None, fixes: Sequence[Fix]) -> list[dict[str, Any]]:
    """The cause as a blocker; what was survived as a note."""
    found = []
    if reading.finding.cause is not None and rule is not None:
        found.append({"severity": "blocker", "title": f"{rule.cause.value}: {rule.id}",
                      "description": _name(reading.finding.cause),
                      "fix": fixes[0].action if fixes else "see the evidence"})
    elif not reading.completed:
        found.append({"severity": "blocker", "title": "unknown",
                      "description": "nothing in the evidence says why the run failed",
                      "fix": "give the logs of every rank, the exit code and the kernel's log"})
    found += [{"severity": "low", "title": f"recovered: {name}", "description": f"seen {count} time(s), and the run "
               "went on", "fix": "nothing, it is over"} for name, count in _counted(reading.finding.recovered)]
    return [{"id": f"F{number:03d}", **item} for number, item in enumerate(found, start=1)]
