"""babysit-training.json: what the watch saw, from the out-dir alone, by its schema."""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path
from typing import Any

import pytest

from harness.frameworks.base import FrameworkFacts
from harness.judge.anomalies import check_anomalies
from harness.judge.babysit import build_watch
from harness.judge.observe import observe
from harness.judge.report import write_report
from harness.judge.verify import verify
from harness.record.journal import Journal, read_journal
from harness.record.redaction import Redactor
from harness.record.run_record import open_record
from harness.record.schemas import schema_problems
from harness.record.vocabulary import AnomalyType, CheckStatus, Phase, Severity, TargetType
from harness.spec import RunSpec
from harness.supervise import stacks
from harness.supervise.anomalies import AnomalyWatch
from harness.watch.anomalies.model import Point, Role
from tests.unit.run_dirs import RunDir

SCHEMA_FIELDS = {
    "target", "target_type", "terminal_state", "total_steps", "final_metrics", "anomalies_detected",
    "duration_seconds", "best_checkpoint",
}


def journaled(place: Path, event: str, **fields: Any) -> None:
    """Append an entry with the time of the journal's end."""
    entries, _ = read_journal(place / "journal.jsonl")
    with (place / "journal.jsonl").open("a") as handle:
        handle.write(json.dumps({"seq": 99, "time": entries[-1]["time"], "event": event, **fields}) + "\n")


def anomaly(place: Path, number: int = 0, **changes: Any) -> None:
    """An entry of the watch."""
    entry = {"anomaly": number, "type": "oom", "severity": "high", "step": 4, "description": "CUDA out of memory",
             "action_taken": "recorded", "state": "open", "ended_step": None, "why": None}
    journaled(place, "anomaly", **{**entry, **changes})


def written(place: Path) -> dict[str, Any]:
    """The document as it lies in the out-dir."""
    document: dict[str, Any] = json.loads((place / "babysit-training.json").read_text())
    return document


def test_fields_are_those_of_the_evidence_page(tmp_path: Path) -> None:
    """Every field of evidence.md is there; train-model.json names the file; both share the run_id."""
    report = write_report(RunDir().write(tmp_path))
    document = written(tmp_path)
    assert document.keys() >= SCHEMA_FIELDS
    assert schema_problems(document, "babysit-training.json") == []
    assert (report["babysit_training_ref"], document["run_id"]) == ("babysit-training.json", report["run_id"])
    assert (document["target"], document["target_type"], document["terminal_state"]) == (
        "train.log", "local-log", "SUCCEEDED")
    assert (document["decision"], document["total_steps"], document["anomalies_detected"]) == ("GO", 10, [])


@pytest.mark.parametrize(
    ("made", "state"),
    [(RunDir(), "SUCCEEDED"), (RunDir(exit_code=1), "FAILED"),
     (RunDir(stop_reason="timeout", spec={"run_timeout_s": 9.0}), "TIMEOUT"),
     (RunDir(stop_reason="owner-lost"), "CANCELLED"), (RunDir(stop_reason="early-stop"), "SUCCEEDED"),
     (RunDir(stop_reason="stop-on"), "FAILED")])
def test_terminal_state_is_one_of_four(made: RunDir, state: str, tmp_path: Path) -> None:
    """An early stop is SUCCEEDED."""
    write_report(made.write(tmp_path))
    assert written(tmp_path)["terminal_state"] == state


@pytest.mark.parametrize(("fields", "told"), [
    ({"path": None, "bytes": 0, "problem": "py-spy is not installed"}, "no stacks: py-spy is not installed"),
    ({"path": "stall-stacks.txt", "bytes": 900, "problem": None}, "stacks in stall-stacks.txt"),
    ({"path": "stall-stacks.txt", "bytes": 9, "problem": "py-spy ended with exit code 1"},
     "stacks in stall-stacks.txt: py-spy ended with exit code 1"),
])
def test_stall_tells_its_stacks_or_why_there_are_none(fields: dict[str, Any], told: str, tmp_path: Path) -> None:
    """In action_taken, where a reader of the stall looks."""
    made = RunDir().write(tmp_path)
    anomaly(made, type="stalled", description="no step for 60 s")
    journaled(made, "stacks", **fields)
    write_report(made)
    assert written(made)["anomalies_detected"][0]["action_taken"].startswith(f"recorded; {told}")


class Alive:
    """A job whose only process is this one."""

    def family(self) -> set[int]:
        """Itself."""
        return {os.getpid()}

    def leave_out(self, pid: int) -> None:
        """No helper is started."""

    def read_output(self, timeout_s: float) -> bytes:
        """Prints nothing."""
        return b""


def test_stall_without_py_spy_is_told_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which no py-spy is found: the stall is noticed as ever, and its entry says why no stacks are."""
    monkeypatch.setattr(stacks, "find_program", lambda: None)
    made = RunDir().write(tmp_path)
    facts = FrameworkFacts(name="torch", reason="test")
    with Journal(made / "journal.jsonl") as journal:
        watch = AnomalyWatch(RunSpec(train_cmd="x", out_dir=made, workdir=made, run_id="r", interval_s=0.01), facts,
                             journal=journal, launcher=Alive(), redactor=Redactor.from_run([], {}),
                             phase_of=lambda run, tag: Phase.TRAIN)
        watch.launched(time.time())
        for step in range(1, 6):
            watch._note(watch._board.points([Point("loss", Role.LOSS, step, 1.0, 0.0, True)]))
        told, until = list[str](), time.monotonic() + 120
        while not any("stalled" in line for line in told) and time.monotonic() < until:
            time.sleep(0.02)
            told += watch.check(3, 100)
    write_report(made)
    (stall,) = [item for item in written(made)["anomalies_detected"] if item["type"] == "stalled"]
    assert stall["action_taken"].startswith("recorded; no stacks: py-spy is not installed")


def test_early_stop_is_an_action(tmp_path: Path) -> None:
    """With the step at which it was triggered."""
    made = RunDir(stop_reason="early-stop").write(tmp_path)
    journaled(made, "stop-requested", reason="early-stop")
    journaled(made, "early-stopping", evaluations=3, triggered_at_step=7)
    write_report(made)
    evidence = written(made)["evidence"]
    assert evidence["stopped_by"] == "early-stop"
    assert {(item["action"], item["step"]) for item in evidence["actions"]} == {
        ("SIGTERM to the leader", None), ("stop", 7)}


def test_crash_is_an_anomaly_of_its_own(tmp_path: Path) -> None:
    """From the exit alone, also where no watch was."""
    write_report(RunDir(exit_code=1, exception="RuntimeError: gone").write(tmp_path))
    (found,) = written(tmp_path)["anomalies_detected"]
    assert (found["type"], found["severity"], found["step"]) == ("crash", "blocker", 10)
    assert found["description"] == "attempt 1 ended with exit code 1: RuntimeError: gone"


@pytest.mark.parametrize("made", [RunDir(stop_reason="cap", exit_code=143), RunDir(ended=False), RunDir()])
def test_own_stop_and_unknown_end_are_no_crash(made: RunDir, tmp_path: Path) -> None:
    """A run that the harness ended did not crash."""
    write_report(made.write(tmp_path))
    assert written(tmp_path)["anomalies_detected"] == []


def test_the_last_entry_of_an_anomaly_tells_how_it_ended(tmp_path: Path) -> None:
    """Recovered at its step; the time is that of its beginning."""
    made = RunDir().write(tmp_path)
    anomaly(made, type="stalled", step=3)
    anomaly(made, type="stalled", step=3, state="recovered", ended_step=5, why="step 5 was reached")
    write_report(made)
    document = written(made)
    (found,), (how,) = document["anomalies_detected"], document["evidence"]["anomalies"]
    assert found["action_taken"] == "recorded; recovered at step 5"
    assert (how["recovered"], how["recovered_at_step"], how["why"]) == (True, 5, "step 5 was reached")
    assert document["findings"][0]["severity"] == "low"


@pytest.mark.parametrize(
    ("kind", "severity", "status"),
    [("oom", "high", CheckStatus.PASSED), ("crash", "high", CheckStatus.PASSED),
     ("stalled", "high", CheckStatus.PASSED),
     ("checkpoint-failure", "high", CheckStatus.UNPROVEN), ("nan-inf", "high", CheckStatus.UNPROVEN),
     ("nan-inf", "low", CheckStatus.PASSED), ("divergence", "medium", CheckStatus.PASSED)])
def test_run_that_reached_its_target_outlived_some(
    kind: str, severity: str, status: CheckStatus, tmp_path: Path
) -> None:
    """Reaching the target shows memory, processes and steps to be well again, and neither numbers nor files."""
    made = RunDir().write(tmp_path)
    anomaly(made, type=kind, severity=severity)
    with open_record(made) as record:
        check = check_anomalies(observe(record))
    assert check.status is status, check
    if status is CheckStatus.UNPROVEN:
        assert check.reason is not None and check.reason.value == "unresolved-anomaly"


@pytest.mark.parametrize(
    ("step", "status", "seconds", "over"),
    [(2, "whole", 1, True), (10, "damaged", 1, False), (10, "whole", -1, True), (2, "whole", -1, False),
     (10, "whole", -3, False)])
def test_failed_save_is_over_with_a_later_checkpoint(
    step: int, status: str, seconds: int, over: bool, tmp_path: Path
) -> None:
    """A whole one that was written after the failure, by clocks that may differ where it is of that step."""
    made = RunDir().write(tmp_path)
    anomaly(made, type="checkpoint-failure")
    entries, _ = read_journal(made / "journal.jsonl")
    journaled(made, "checkpoints", facts={"checkpoints": [
        {"path": "saved/there", "step": step, "status": status, "written_at": entries[-1]["time"] + seconds}]})
    write_report(made)
    assert written(made)["evidence"]["anomalies"][0]["recovered"] is over


def test_unfinished_oom_stays_unresolved(tmp_path: Path) -> None:
    """A run that did not reach its target outlived nothing."""
    made = RunDir(loss=(3.0,) * 6, grad_norm=(1.0,) * 6, lr=(0.1,) * 6, exit_code=1).write(tmp_path)
    anomaly(made)
    write_report(made)
    assert [item["recovered"] for item in written(made)["evidence"]["anomalies"]] == [False, False]


def test_incident_is_told(tmp_path: Path) -> None:
    """With its step, metric, rank and the last points, non-finite ones as strict JSON holds them."""
    made = RunDir().write(tmp_path)
    nan = {"value": None, "repr": "nan"}
    journaled(made, "incident", step=5, metric="train/loss", rank=3, writer="host.7", value=nan,
              last_points={"loss": [[4, 1.5], [5, nan]], "grad_norm": [], "lr": [[4, 0.1]]})
    write_report(made)
    (told,) = written(made)["evidence"]["incidents"]
    assert (told["step"], told["metric"], told["rank"], told["value"]["repr"]) == (5, "train/loss", 3, repr(math.nan))
    assert told["last_points"]["loss"] == [
        {"step": 4, "value": 1.5}, {"step": 5, "value": nan}]


@pytest.mark.parametrize("kind", [item.value for item in TargetType])
def test_attached_target_is_named(kind: str, tmp_path: Path) -> None:
    """As the journal says."""
    made = RunDir().write(tmp_path)
    journaled(made, "attached", target="user@host:/logs/train.log", target_type=kind)
    with open_record(made) as record:
        document = build_watch(record)
    assert (document["target"], document["target_type"]) == ("user@host:/logs/train.log", kind)


def test_verify_makes_a_missing_one(tmp_path: Path) -> None:
    """And leaves one that is there."""
    write_report(RunDir().write(tmp_path))
    path = tmp_path / "babysit-training.json"
    path.unlink()
    assert verify(tmp_path)["ok"]
    assert written(tmp_path)["decision"] == "GO"
    path.write_text("{}")
    verify(tmp_path)
    assert path.read_text() == "{}"


def test_schema_knows_the_words_of_the_code() -> None:
    """Types, severities and targets are those of the vocabulary."""
    from harness.record.schemas import load_schema

    properties = load_schema("babysit-training.json")["properties"]
    listed = properties["anomalies_detected"]["items"]["properties"]
    assert listed["type"]["enum"] == [item.value for item in AnomalyType]
    assert listed["severity"]["enum"] == [item.value for item in Severity]
    assert properties["target_type"]["enum"] == [item.value for item in TargetType]


@pytest.mark.parametrize(("since", "over"), [(-40.0, True), (-10.0, False), (None, False)])
def test_save_that_was_retried_before_the_output_was_looked_at_is_over(
    since: float | None, over: bool, tmp_path: Path
) -> None:
    """A busy machine reads of the failure late: what counts is since when it can have been printed."""
    made = RunDir().write(tmp_path)
    entries, _ = read_journal(made / "journal.jsonl")
    now = entries[-1]["time"]
    anomaly(made, type="checkpoint-failure", since=None if since is None else now + since)
    journaled(made, "checkpoints", facts={"checkpoints": [
        {"path": "saved/there", "step": 4, "status": "whole", "written_at": now - 30.0}]})
    write_report(made)
    assert written(made)["evidence"]["anomalies"][0]["recovered"] is over
