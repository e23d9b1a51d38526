"""--check-resume on real programs: exact where the state is whole, and the forgotten state is named where it is not."""

from __future__ import annotations

import json
import secrets
import shlex
import sys
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from harness.client import ensure_run, forget_session
from harness.spec import RunSpec

RESUMABLE = Path(__file__).parent / "programs" / "resumable.py"


def run(place: Path, words: list[str], **spec: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """train-model.json of a run whose resume is checked, and its check `resume`."""
    words = [sys.executable, *words, "--save-dir", "saved", "--log-dir", "events"]
    asked = RunSpec(train_cmd=shlex.join(words), out_dir=place / "out", workdir=place, run_id="resume",
                    session=secrets.token_hex(8), check_resume=True, **spec)
    out_dir = ensure_run(asked, lambda line: None)
    forget_session(asked.session)
    report = json.loads((out_dir / "train-model.json").read_text())
    gate = next(gate for gate in report["evidence"]["gates"] if gate["name"] == "save_reload")
    return report, next(check for check in gate["checks"] if check["name"] == "resume")


def reasons(report: dict[str, Any]) -> set[str]:
    """Codes of what is not GO."""
    return {reason["code"] for reason in report["evidence"]["reasons"]}


def test_default_job_resumes_bit_for_bit(tmp_path: Path) -> None:
    """Losses, gradient norms, learning rates and batches are the same, and the judged run's files stay alone."""
    script = str(Path(str(resources.files("harness.fixtures.trainers") / "tiny_lm.py")))
    report, check = run(tmp_path, [script, "--max-steps", "40", "--save-every", "10"])
    assert (report["decision"], check["status"], check["why"]) == ("GO", "passed", "bit for bit")
    assert "train/batch_fingerprint" in check["observed"]
    assert {item["step"] for item in report["all_checkpoints"]} == {0, 10, 20, 30, 40}


def test_whole_state_resumes_exactly(tmp_path: Path) -> None:
    """Momentum, schedule, data order and dropout all go on."""
    report, check = run(tmp_path, [str(RESUMABLE), "--max-steps", "40"])
    assert (report["decision"], check["why"]) == ("GO", "bit for bit"), report["summary"]


@pytest.mark.parametrize(("forgotten", "reason", "suspected"), [
    ("data", "resume-replays-data", "data-replayed"),
    ("order", "resume-diverges", "data-order"),
    ("scheduler", "resume-restarts-scheduler", "scheduler-restarted"),
    ("optimizer", "resume-diverges", "optimizer"),
    ("rng", "resume-diverges", "rng"),
])
def test_forgotten_state_is_named(forgotten: str, reason: str, suspected: str, tmp_path: Path) -> None:
    """By what parts first; the run itself is sound and still no GO."""
    report, check = run(tmp_path, [str(RESUMABLE), "--max-steps", "40", "--forget", forgotten])
    assert (report["decision"], reasons(report)) == ("NO-GO", {reason}), check
    assert f"suspected state: {suspected}" in check["why"]


def test_resume_that_is_ignored_is_no_go(tmp_path: Path) -> None:
    """The same seed gives the same losses, point by point, from the first step on."""
    report, check = run(tmp_path, [str(RESUMABLE), "--max-steps", "40", "--forget", "all"])
    assert (report["decision"], reasons(report)) == ("NO-GO", {"resume-ignored"}), check
    assert check["observed"] == "40 updates, and 40 of the whole run"


def test_resume_that_is_ignored_is_told_without_the_probe(tmp_path: Path) -> None:
    """By rows that the resumed launch wrote of steps before its checkpoint."""
    report, check = run(tmp_path, [str(RESUMABLE), "--max-steps", "40", "--forget", "all"], probe=False)
    assert report["decision"] == "NO-GO", check
    assert (check["status"], check["observed"]) == ("failed", "its first logged step is 1")


def test_resume_that_fails_is_no_go(tmp_path: Path) -> None:
    """Its exit code is told."""
    report, check = run(tmp_path, [str(RESUMABLE), "--max-steps", "40", "--refuse"])
    assert (report["decision"], reasons(report), check["observed"]) == ("NO-GO", {"resume-fails"}, "exit code 3")


def test_no_checkpoint_before_the_last_step_is_unproven(tmp_path: Path) -> None:
    """Nothing to resume from, which is said."""
    report, check = run(tmp_path, [str(RESUMABLE), "--max-steps", "10"])
    assert (report["decision"], reasons(report)) == ("CONDITIONAL", {"resume-unproven"}), check
