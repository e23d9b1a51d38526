"""The ledger of a job and its retries: the first failure is kept, and pass at 1 stands beside pass at k."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.judge.fields import iso_time
from harness.judge.model import Verdict
from harness.record.run_record import RunRecord
from harness.record.vocabulary import Decision, TerminalState

SCHEMA_VERSION = "1.0"
FAILURE_KEYS = ("run_id", "out_dir", "decision", "outcome", "terminal_state", "reasons", "primary_cause")


def first_attempt(report: Mapping[str, Any], failure: Mapping[str, Any] | None, out_dir: str) -> dict[str, Any]:
    """The ledger's row of a run that was no retry, from its own train-model.json and check-failed-run.json."""
    evidence = report["evidence"]
    return {
        "run_id": report["run_id"], "out_dir": out_dir, "timestamp": report["timestamp"],
        "harness_version": evidence["harness_version"], "launched": bool(evidence["attempts"]),
        "decision": report["decision"], "outcome": evidence["outcome"], "terminal_state": report["terminal_state"],
        "reasons": list(dict.fromkeys(reason["code"] for reason in evidence["reasons"])),
        "primary_cause": failure.get("primary_cause") if failure else None,
        "changes": [], "identity": [],
    }


def earlier_attempts(
    report: Mapping[str, Any], failure: Mapping[str, Any] | None, out_dir: str
) -> list[dict[str, Any]]:
    """Every row up to and with this run; the last one with what its diagnosis says."""
    ledger = report["evidence"].get("lineage")
    if not ledger:
        return [first_attempt(report, failure, out_dir)]
    rows = [dict(row) for row in ledger["attempts"]]
    rows[-1] |= {"out_dir": out_dir, "primary_cause": failure.get("primary_cause") if failure else None}
    return rows


def lineage_of(record: RunRecord, verdict: Verdict) -> dict[str, Any] | None:
    """The whole ledger with this run as its last row; None for a run that is no retry."""
    entry = record.last("retry")
    if entry is None:
        return None
    compared = record.last("retry-comparison") or {}
    row = {
        "run_id": record.spec.run_id, "out_dir": str(record.spec.out_dir),
        "timestamp": iso_time(record.entries[-1]["time"]),
        "harness_version": record.fact("run-started", "harness_version"),
        "launched": record.last("attempt-started") is not None, "decision": verdict.decision.value,
        "outcome": verdict.outcome.value, "terminal_state": (verdict.terminal_state or TerminalState.CANCELLED).value,
        "reasons": list(dict.fromkeys(reason.code.value for reason in verdict.reasons)), "primary_cause": None,
        "changes": [*(entry.get("changes") or []), *(compared.get("changes") or [])],
        "identity": entry.get("identity") or [],
    }
    return ledger([*(entry.get("attempts") or []), row])


def ledger(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """lineage.json of these rows. A run that was refused before its launch is a row and no try."""
    tries = [row for row in rows if row["launched"]]
    passed = [row["decision"] == Decision.GO.value for row in tries]
    failure = next((row for row in rows if row["decision"] == Decision.NO_GO.value), None)
    return {
        "schema_version": SCHEMA_VERSION, "run_id": rows[-1]["run_id"], "first_run_id": rows[0]["run_id"],
        "first_failure": {key: failure.get(key) for key in FAILURE_KEYS} if failure else None,
        "attempts": [{"index": index, **{key: value for key, value in row.items() if key != "index"}}
                     for index, row in enumerate(rows, start=1)],
        "tries": len(tries), "pass_at_1": bool(passed) and passed[0], "pass_at_k": any(passed),
    }
