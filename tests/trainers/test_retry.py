"""Real runs that fail and are retried: the same job goes to GO with its lineage, another job is refused."""

from __future__ import annotations

import json
import secrets
import shlex
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.client import ensure_run, forget_session
from harness.errors import ConfigError
from harness.judge.verify import verify
from harness.record.files import read_json
from harness.spec import RunSpec

TOY = Path(__file__).parents[1] / "plugin" / "toy_trainer.py"
FIRST = ("--crash-at", "10", "--crash-with", "boom", "--launches", "launches", "--save-dir", "checkpoints")


def run(place: Path, *flags: str, out: str = "first", **spec: Any) -> dict[str, Any]:
    """Launch the toy trainer; train-model.json."""
    words = [sys.executable, str(TOY), "--max-steps", "20", "--log-dir", "events", *FIRST, *flags]
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


def test_expired_waiver_launches_nothing(failed: Path) -> None:
    """The policy is stale, and says so before anything is trained."""
    launches = (failed / "launches").read_text()
    report = run(failed, out="stale", policy_digest="0" * 64, waivers=({
        "code": "exit-code", "check": None, "reason": "x", "until": "2020-01-01", "decision": "CONDITIONAL"},))
    assert "waiver-expired" in codes(report) and report["decision"] == "NO-GO"
    assert (failed / "launches").read_text() == launches
