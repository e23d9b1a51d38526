"""Real runs that fail and are retried: the same job goes to GO with its lineage, another job is refused."""

from __future__ import annotations

import json
import secrets
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from harness.client import ensure_run, forget_session
from harness.diagnosis.report import read_failure
from harness.errors import ConfigError
from harness.judge.verify import verify
from harness.record.files import read_json
from harness.record.journal import read_journal
from harness.spec import RunSpec

TOY = Path(__file__).parents[1] / "plugin" / "toy_trainer.py"
FIRST = ("--crash-at", "10", "--crash-with", "boom", "--launches", "launches", "--save-dir", "checkpoints")


def run(place: Path, *flags: str, out: str = "first", program: Path = TOY, **spec: Any) -> dict[str, Any]:
    """Launch the toy trainer; train-model.json."""
    words = [sys.executable, str(program), "--max-steps", "20", "--log-dir", "events", *FIRST, *flags]
    session = secrets.token_hex(8)
    try:
        out_dir = ensure_run(RunSpec(
            train_cmd=shlex.join(words), out_dir=place / out, workdir=place, run_id=f"run-{out}", session=session,
            fix=False, stop_grace_s=2.0, **spec), lambda line: None)
    finally:
        forget_session(session)
    report: dict[str, Any] = read_json(out_dir / "train-model.json")
    return report


def codes(report: dict[str, Any]) -> set[str]:
    """Its reason codes."""
    return {reason["code"] for reason in report["evidence"]["reasons"]}


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose first run crashed at step 10."""
    place = tmp_path_factory.mktemp("retry")
    report = run(place)
    assert (report["decision"], report["evidence"]["lineage"]) == ("NO-GO", None)
    return place


def copy_of(failed: Path, place: Path) -> Path:
    """The first run beside a fresh retry, at the very place where it was."""
    shutil.copytree(failed / "first", place / "first")
    return place / "first"


def test_same_job_is_retried_to_go_with_its_lineage(failed: Path) -> None:
    """Nothing changed: exact agreement over the steps of both, the first failure kept, pass at 2 beside pass at 1."""
    report = run(failed, out="same", retry_of=failed / "first")
    assert (report["decision"], codes(report)) == ("GO", set())
    lineage = report["evidence"]["lineage"]
    assert (lineage["pass_at_1"], lineage["pass_at_k"], lineage["tries"]) == (False, True, 2)
    assert lineage["first_failure"]["run_id"] == "run-first"
    assert read_json(failed / "same" / "lineage.json") == lineage
    gate = next(gate for gate in report["evidence"]["gates"] if gate["name"] == "retry")
    checks = {check["name"]: check for check in gate["checks"]}
    assert gate["status"] == "PASS" and "9 points of loss, exactly equal" in checks["metrics"]["observed"]
    assert verify(failed / "same")["ok"]


def test_changed_learning_rate_is_refused_before_the_launch(failed: Path) -> None:
    """Another lr is another job: nothing is launched, and the way to approve it is named."""
    launches = (failed / "launches").read_text()
    report = run(failed, "--lr", "0.05", out="lr", retry_of=failed / "first")
    assert (report["decision"], codes(report)) == ("NO-GO", {"retry-setting-changed"})
    assert "--approve lr" in report["evidence"]["reasons"][0]["remedy"]
    assert report["evidence"]["lineage"]["tries"] == 1
    assert (failed / "launches").read_text() == launches
    events = [entry["event"] for entry in read_journal(failed / "lr" / "journal.jsonl")[0]]
    assert events.index("retry") < events.index("environment") and "dataset" not in events
    with pytest.raises(ConfigError, match="never launched"):
        run(failed, "--lr", "0.05", out="again", retry_of=failed / "lr")


def test_approved_change_is_launched_and_stands_in_the_evidence(failed: Path) -> None:
    """--approve lr: GO, its losses are not held against the other rate's, and the ledger says what was changed."""
    report = run(failed, "--lr", "0.05", out="approved", retry_of=failed / "first", approve=("lr",))
    assert (report["decision"], codes(report)) == ("GO", set())
    change, = report["evidence"]["lineage"]["attempts"][-1]["changes"]
    assert (change["key"], change["kind"], change["approved"]) == ("lr", "semantic", True)


def test_damaged_evidence_is_not_retried(failed: Path, tmp_path: Path) -> None:
    """A report that says something else than its journal, or a journal with a torn line, refuses."""
    place = copy_of(failed, tmp_path)
    report = read_json(place / "train-model.json")
    (place / "train-model.json").write_text(json.dumps({**report, "decision": "GO"}))
    with pytest.raises(ConfigError, match="disagrees"):
        run(failed, out="other", retry_of=place)
    (place / "train-model.json").write_text(json.dumps(report))
    lines = (place / "journal.jsonl").read_text().splitlines()
    (place / "journal.jsonl").write_text("\n".join([lines[0], lines[1][:40], *lines[2:]]) + "\n")
    with pytest.raises(ConfigError, match=r"damaged|journal"):
        run(failed, out="other", retry_of=place)
    with pytest.raises(ConfigError, match="no run of this harness"):
        run(failed, out="other", retry_of=tmp_path)


def test_retry_in_the_same_out_dir_keeps_the_first_run(failed: Path) -> None:
    """As in CI: the first run's artifacts are moved to attempts/, and the ledger says where they are."""
    shutil.copytree(failed / "first", failed / "default")
    report = run(failed, out="default", retry_of=failed / "default")
    assert report["decision"] == "GO"
    first = Path(report["evidence"]["lineage"]["attempts"][0]["out_dir"])
    assert first == failed / "default" / "attempts" / "run-first"
    assert read_json(first / "train-model.json")["decision"] == "NO-GO"


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """How a first run ends, and what is said of it."""

    how: str
    cause: str
    kind: str
    status: str = "crashed"
    state: str = "FAILED"
    at: str | None = None
    """What stands in the log at the line of the first causal error; None where no log can hold it."""
    spec: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.how


CRASHES = (
    Crash(how="raise", cause="process-crash", kind="RuntimeError", at="RuntimeError: told to crash"),
    Crash(how="memory", cause="oom", kind="MemoryError", at="MemoryError"),
    Crash(how="SIGKILL", cause="oom", kind="SIGKILL"),
    Crash(how="SIGBUS", cause="data-pipeline", kind="SIGBUS"),
    Crash(how="SIGSEGV", cause="process-crash", kind="SIGSEGV"),
    Crash(how="hang", cause="stalled", kind="stopped: timeout", status="hung", state="TIMEOUT",
          spec={"run_timeout_s": 8.0}),
)


@pytest.mark.parametrize("case", CRASHES, ids=str)
def test_run_that_failed_is_diagnosed_and_retried_to_go(case: Crash, tmp_path: Path) -> None:
    """Nothing was wrong with the job: the same one, launched again, is GO, and its ledger keeps what failed before."""
    flags = ("--crash-how", case.how)
    report = run(tmp_path, *flags, **case.spec)
    assert (report["decision"], report["terminal_state"]) == ("NO-GO", case.state)
    found = read_failure(tmp_path / "first", "run-first")
    assert found is not None
    causal = found["first_causal"]
    assert (found["primary_cause"], causal["kind"], found["run_status"]) == (case.cause, case.kind, case.status)
    place = causal["file"] and (tmp_path / "first" / causal["file"]).read_text().splitlines()[causal["line"] - 1]
    assert place == case.at
    progress = [entry["text"] for entry in found["evidence"] if entry["kind"] == "progress"]
    assert progress == ["last progress: step 9 of 20"] or case.how == "hang"  # which may not have come so far
    assert_retried(run(tmp_path, *flags, out="second", retry_of=tmp_path / "first"), case.cause)


def assert_retried(report: dict[str, Any], cause: str) -> dict[str, Any]:
    """GO at the second try; the first failure stands in the ledger with its cause. The last row of it."""
    assert (report["decision"], codes(report)) == ("GO", set()), report["summary"]
    lineage = report["evidence"]["lineage"]
    assert (lineage["tries"], lineage["pass_at_1"], lineage["pass_at_k"]) == (2, False, True)
    assert (lineage["first_failure"]["run_id"], lineage["first_failure"]["primary_cause"]) == ("run-first", cause)
    last: dict[str, Any] = lineage["attempts"][-1]
    return last


def test_loss_that_became_nan_is_retried_with_another_rate_alone(tmp_path: Path) -> None:
    """A rate that overflows: the same comes again and is refused; another one is another job, which is approved.
    Where a log is written changes nothing; a word that the cause was mended elsewhere stands in the evidence."""
    huge = ("--lr", "1e200", "--crash-at", "0")
    assert "loss-not-finite" in codes(run(tmp_path, *huge))
    found = read_failure(tmp_path / "first", "run-first")
    assert found is not None and (found["primary_cause"], found["run_status"]) == ("nan-inf", "diverged")
    assert "step 2" in found["first_causal"]["message"]
    again = {"retry_of": tmp_path / "first"}
    assert codes(run(tmp_path, *huge, out="unchanged", **again)) == {"retry-pointless"}
    assert codes(run(tmp_path, *huge, "--log-dir", "logs", out="logs", **again)) == {"retry-pointless"}
    said = run(tmp_path, *huge, out="said", approve=("cause",), **again)
    assert "loss-not-finite" in codes(said)
    assert [item["what"] for item in said["evidence"]["lineage"]["attempts"][-1]["identity"]] == ["cause"]
    lower = ("--lr", "0.1", "--crash-at", "0")
    assert codes(run(tmp_path, *lower, out="lower", **again)) == {"retry-setting-changed"}
    last = assert_retried(run(tmp_path, *lower, out="second", approve=("lr",), **again), "nan-inf")
    change, = last["changes"]
    assert (change["key"], change["kind"], change["approved"]) == ("lr", "semantic", True)


def test_module_that_was_missing_is_there_at_the_retry(tmp_path: Path) -> None:
    """It was installed: the same command on the same files is GO."""
    program = tmp_path / "train.py"
    program.write_text(f"import runpy\nimport late_module\nrunpy.run_path({str(TOY)!r}, run_name='__main__')\n")
    flags = ("--crash-at", "0")
    assert run(tmp_path, *flags, program=program)["decision"] == "NO-GO"
    found = read_failure(tmp_path / "first", "run-first")
    assert found is not None
    assert (found["primary_cause"], found["first_causal"]["kind"]) == ("config-error", "ModuleNotFoundError")
    assert [entry["text"] for entry in found["evidence"] if entry["kind"] == "source"] == [f"raised at {program}:2"]
    (tmp_path / "late_module.py").write_text("")
    assert_retried(run(tmp_path, *flags, out="second", program=program, retry_of=tmp_path / "first"), "config-error")


def test_wrong_flag_is_left_out_at_the_retry(tmp_path: Path) -> None:
    """What the program refused is no setting of any kind that is known, so that a person says so."""
    assert run(tmp_path, "--crash-at", "0", "--momentun", "0.9")["decision"] == "NO-GO"
    found = read_failure(tmp_path / "first", "run-first")
    assert found is not None and found["primary_cause"] == "config-error"
    causal = found["first_causal"]
    line = (tmp_path / "first" / causal["file"]).read_text().splitlines()[causal["line"] - 1]
    assert line.endswith("error: unrecognized arguments: --momentun 0.9") and line in causal["message"]
    again = {"retry_of": tmp_path / "first"}
    assert codes(run(tmp_path, "--crash-at", "0", out="without", **again)) == {"retry-setting-changed"}
    last = assert_retried(run(tmp_path, "--crash-at", "0", out="second", approve=("momentun",), **again),
                          "config-error")
    assert [(change["key"], change["kind"]) for change in last["changes"]] == [("momentun", "unknown")]


@pytest.mark.parametrize(("reason", "outcome", "refused"), [
    ("loss-not-finite", "broken", True), ("dataset-contract-broken", "broken", True),
    ("loss-not-finite", "infrastructure", False), ("exit-code", "broken", False)])
def test_pointless_retry_is_refused(failed: Path, reason: str, outcome: str, refused: bool) -> None:
    """Nothing changed after a NaN or a data error: it only comes again, unless infrastructure was the cause."""
    from harness.frameworks.base import FrameworkFacts
    from harness.retry.decide import plan_retry
    from harness.retry.earlier import read_earlier

    earlier = replace(read_earlier(failed / "first"), reasons=(reason,), outcome=outcome)
    facts = FrameworkFacts(name="torch", reason="")
    plan = plan_retry(earlier, earlier.settings or {}, earlier.identity, facts, ())
    assert [finding.code for finding in plan.findings] == (["retry-pointless"] if refused else [])
    changed = plan_retry(earlier, {**(earlier.settings or {}), "num_workers": "0"}, earlier.identity, facts, ())
    assert not changed.findings


def test_noise_of_the_lineage_is_the_tolerance_that_nobody_stated(tmp_path: Path) -> None:
    """A job without a seed, whose losses lie 10 percent apart: unproven until two runs of it came to their end."""
    flags = ("--drift", "0.1")
    run(tmp_path, *flags)
    for before, out in (("first", "second"), ("second", "third")):
        report = run(tmp_path, *flags, out=out, retry_of=tmp_path / before)
        assert (report["decision"], codes(report)) == ("CONDITIONAL", {"retry-metrics-differ"})
    assert "harness baseline" in report["evidence"]["reasons"][0]["remedy"]
    report = run(tmp_path, *flags, out="fourth", retry_of=tmp_path / "third")
    assert (report["decision"], codes(report)) == ("GO", set())
    gate = next(gate for gate in report["evidence"]["gates"] if gate["name"] == "retry")
    compared = next(check for check in gate["checks"] if check["name"] == "metrics")
    assert "noise of the lineage's 2 whole runs: loss 0.202" in compared["expected"]


def test_expired_waiver_launches_nothing(failed: Path) -> None:
    """The policy is stale, and says so before anything is trained."""
    launches = (failed / "launches").read_text()
    report = run(failed, out="stale", policy_digest="0" * 64, waivers=({
        "code": "exit-code", "check": None, "reason": "x", "until": "2020-01-01", "decision": "CONDITIONAL"},))
    assert "waiver-expired" in codes(report) and report["decision"] == "NO-GO"
    assert (failed / "launches").read_text() == launches
