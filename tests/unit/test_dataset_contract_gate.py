"""The gate dataset_contract: what the supervisor saw of a dataset decides, and its absence is never GO."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.judge.gates import GATES
from harness.judge.report import build_report
from harness.judge.verdict import judge
from harness.record.reasons import Reason
from harness.record.run_record import open_record
from harness.record.vocabulary import Decision, GateStatus, Outcome
from tests.unit.run_dirs import RunDir

SEEN: dict[str, Any] = {
    "needed": True, "why": "", "source": "data.jsonl", "hub": None, "revision": None, "local_path": "/data.jsonl",
    "fingerprint": "sha256:00", "rows_seen": 3, "rows_total": 3, "verdicts": {"ok": 3}, "errors": [], "warnings": [],
}
ON_DATA = RunDir(facts=replace(RunDir().facts, needs_dataset=True))


def run_with(place: Path, entry: dict[str, Any] | None, run: RunDir = ON_DATA) -> Path:
    """A healthy launched run whose journal says this about its dataset."""
    run.write(place)
    if entry is not None:
        with (place / "journal.jsonl").open("a") as handle:
            handle.write(json.dumps({"seq": 99, "time": 0.0, "event": "dataset", **entry}) + "\n")
    return place


def error(reason: Reason) -> dict[str, Any]:
    """An entry with one error of this kind."""
    return {**SEEN, "errors": [{"code": "made", "message": "row 1 is wrong", "reason": reason.value, "count": 1}]}


BROKEN = (
    Reason.DATASET_UNREADABLE, Reason.DATASET_LOADER_FAILED, Reason.DATASET_LOADER_REQUIRED,
    Reason.DATASET_CONTRACT_BROKEN, Reason.DATASET_ALL_DROPPED, Reason.HUB_UNREACHABLE, Reason.HUB_ASSET_MISSING,
)


def test_dataset_that_was_seen_and_is_good_passes(tmp_path: Path) -> None:
    """GO, and the evidence holds where the data came from."""
    report = build_report(run_with(tmp_path, SEEN))
    assert report["decision"] == "GO"
    assert report["evidence"]["dataset"] == {key: SEEN[key] for key in (
        "source", "hub", "revision", "local_path", "fingerprint", "rows_seen", "rows_total")}


@pytest.mark.parametrize("reason", BROKEN)
def test_dataset_error_is_no_go_with_its_reason(reason: Reason, tmp_path: Path) -> None:
    """Whatever the run looks like; a hub out of reach is worth a retry, nothing else is."""
    report = build_report(run_with(tmp_path, error(reason)))
    assert report["decision"] == "NO-GO"
    assert reason.value in [item["code"] for item in report["evidence"]["reasons"]]
    infrastructure = report["evidence"]["outcome"] == Outcome.INFRASTRUCTURE.value
    assert infrastructure == (reason is Reason.HUB_UNREACHABLE)


@pytest.mark.parametrize(("check", "reason"), [
    ("check_rows", Reason.DATASET_CONTRACT_BROKEN), ("check_rows", Reason.DATASET_LOADER_REQUIRED),
    ("check_kept", Reason.DATASET_ALL_DROPPED)])
def test_only_its_check_catches_it(check: str, reason: Reason, tmp_path: Path) -> None:
    """Without the check the broken run would be GO."""
    gates = tuple(replace(gate, checks=tuple(one for one in gate.checks if one.__name__ != check)) for gate in GATES)
    with open_record(run_with(tmp_path, error(reason))) as record:
        assert judge(record, gates=gates)[0].decision is Decision.GO
        assert judge(record)[0].decision is Decision.NO_GO


def test_unreadable_dataset_fails_its_own_check_alone(tmp_path: Path) -> None:
    """What could not be read says nothing about rows; without its check the run would be no NO-GO."""
    gates = tuple(replace(gate, checks=tuple(one for one in gate.checks if one.__name__ != "check_readable"))
                  for gate in GATES)
    with open_record(run_with(tmp_path, error(Reason.DATASET_UNREADABLE))) as record:
        verdict = judge(record)[0]
        assert judge(record, gates=gates)[0].decision is Decision.CONDITIONAL
    statuses = [check.status.value for check in verdict.gate("dataset_contract").checks]
    assert (verdict.decision, statuses) == (Decision.NO_GO, ["failed", "not_applicable", "not_applicable"])


def test_run_on_a_dataset_that_nobody_saw_is_conditional(tmp_path: Path) -> None:
    """A journal without the entry proves nothing about the data."""
    report = build_report(run_with(tmp_path, None))
    assert report["decision"] == "CONDITIONAL"
    assert "dataset-uninspected" in [item["code"] for item in report["evidence"]["reasons"]]


@pytest.mark.parametrize("entry", [None, {"needed": False, "why": "the command names none"}])
def test_run_without_a_named_dataset_has_no_need_of_the_gate(entry: dict[str, Any] | None, tmp_path: Path) -> None:
    """Skipped with its rationale, and GO."""
    with open_record(run_with(tmp_path, entry, RunDir())) as record:
        verdict = judge(record)[0]
    gate = verdict.gate("dataset_contract")
    assert (gate.status, gate.required, verdict.decision) == (GateStatus.SKIPPED, False, Decision.GO)
    assert gate.rationale


def test_warnings_are_findings(tmp_path: Path) -> None:
    """They change no decision and are told."""
    entry = {**SEEN, "warnings": [{"code": "identical-pair", "message": "row 1: chosen equals rejected"}]}
    report = build_report(run_with(tmp_path, entry))
    assert report["decision"] == "GO"
    assert "dataset: identical-pair" in [finding["title"] for finding in report["findings"]]
