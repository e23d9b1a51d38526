"""A program of a user's own, with flags and directories that no list knows: what no log tells of it is still seen."""

from __future__ import annotations

import json
import secrets
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.client import ensure_run, forget_session
from harness.spec import RunSpec

PROGRAM = Path(__file__).parent / "programs" / "own_names.py"


def report_of(place: Path, mode: str, *, piped: bool = False, program: Path = PROGRAM) -> dict[str, Any]:
    """train-model.json of a run with the rate 0.05 asked for."""
    command = shlex.join([sys.executable, str(program), "--mode", mode, "--out", "kept here"])
    hp: tuple[str, ...] = ("lr=0.05",)
    if piped:
        (place / "run.sh").write_text(f"{command} --lr 0.05 2>&1 | cat\n")
        command, hp = "bash run.sh", ()
    spec = RunSpec(train_cmd=command, out_dir=place / "out", workdir=place, run_id=mode, session=secrets.token_hex(8),
                   max_steps=60, cap="harness" if piped else None, hp=hp)
    out_dir = ensure_run(spec, lambda line: None)
    forget_session(spec.session)
    report: dict[str, Any] = json.loads((out_dir / "train-model.json").read_text())
    return report


def codes(report: dict[str, Any]) -> list[str]:
    """Reason codes."""
    return [reason["code"] for reason in report["evidence"]["reasons"]]


def test_healthy_program_of_own_names(tmp_path: Path) -> None:
    """GO; the rate is seen inside the optimizer, and what it saved below `--out` is found."""
    report = report_of(tmp_path, "healthy")
    assert report["decision"] == "GO", report["summary"]
    assert report["all_checkpoints"] and report["evidence"]["command"]["overrides"][0]["effective_value"] == 0.05


def test_metrics_beside_what_it_saves_are_found(tmp_path: Path) -> None:
    """GO for a program that writes metrics.jsonl into the directory that it saves to, and names no other."""
    source = PROGRAM.read_text().replace('    parser.add_argument("--logdir", type=Path, default=Path("logs"))\n', "")
    (tmp_path / "train.py").write_text(source.replace("args.logdir", "args.out"))
    report = report_of(tmp_path, "healthy", program=tmp_path / "train.py")
    assert report["decision"] == "GO", report["summary"]
    told = [source["path"] for source in report["evidence"]["observed"]["sources"] if source["points"]]
    assert told == [str(tmp_path / "kept here" / "metrics.jsonl")]


@pytest.mark.parametrize(
    ("mode", "decision", "reasons"),
    [("ignored-rate", "CONDITIONAL", ["override-without-effect"]),
     ("nan-saved", "NO-GO", ["weights-not-finite"])],
)
def test_what_the_log_hides(tmp_path: Path, mode: str, decision: str, reasons: list[str]) -> None:
    """A rate that is logged as asked for and never used; weights that turn NaN on their way to the disk."""
    report = report_of(tmp_path, mode)
    assert (report["decision"], codes(report)) == (decision, reasons)


def test_failure_behind_a_pipe_after_the_last_step(tmp_path: Path) -> None:
    """Exit 0 is the pipe's, and the log ends with the exception: not GO, and not called broken."""
    report = report_of(tmp_path, "failed-behind-pipe", piped=True)
    assert (report["decision"], codes(report)) == ("CONDITIONAL", ["exception-behind-exit-0"])
