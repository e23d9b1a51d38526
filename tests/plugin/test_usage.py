"""What a user can get wrong is a usage error that says what to do, never a green nothing and never a traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import nullcontext

import pytest

from harness.judge.report import write_report
from harness.record.outdir import Lease
from tests.unit.run_dirs import RunDir

from .conftest import Project

USAGE_ERROR = 4


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "no training command"),
        (("-n2",), "no training command"),
        (("--train-cmd", ""), "--train-cmd is empty"),
        (("--train-cmd", "   "), "--train-cmd is empty"),
        (("--train-cmd", "", "-n2"), "--train-cmd is empty"),
        (("--train-cmd", "x", "--demo"), "--train-cmd and --demo: give exactly one"),
        (("--train-cmd", "x", "--algo", "sft"), "--train-cmd and --algo: give exactly one"),
        (("--algo", "sft"), "--algo sft needs --ckpt"),
        (("--ckpt", "tiny"), "--ckpt: an AReno command is built from --algo too"),
        (("--ckpt", "tiny", "-o", "real_step_algo=gspo"), "--algo gspo needs --dataset-path"),
        (("--run", "nowhere"), "no such directory"),
        (("--run", ""), "--run is empty"),
        (("--run", "."), "holds no run of this harness"),
        (("--train-cmd", "x", "--retry-of", "."), "holds no run of this harness"),
        (("--train-cmd", "x", "--max-steps", "0"), "--max-steps 0: give a number above 0"),
        (("--train-cmd", "x", "--run-timeout", "nan"), "--run-timeout nan"),
        (("--train-cmd", "x", "--run-id", "../up"), "--run-id ../up"),
        (("--train-cmd", "x", "--hp", "lr"), "--hp lr: give KEY=VALUE"),
        (("--train-cmd", "x", "--hp-flag", "lr=--lr"), "--hp-flag lr=--lr"),
        (("--train-cmd", "x", "-o", "real_step_cap=nobody"), "--cap nobody"),
        (("--train-cmd", "x", "--stop-on", "bad-luck"), "--stop-on bad-luck: not one of nan-inf, oom, divergence"),
        (("--train-cmd", "x", "-o", "real_step_stop_on=oom\nluck"), "--stop-on luck: not one of nan-inf"),
        (("--train-cmd", "x", "-o", "real_step_max_steps=many"), "real_step_max_steps"),
        (("--train-cmd", "x", "--reload-with", "own.py:check"), "own.py: no such file"),
        (("--train-cmd", "x", "-o", "real_step_reload_with=own.py"), "give FILE.py:FUNCTION"),
        (("--run", ".", "--reload-with", "own.py:check"), "--reload-with would do nothing"),
        (("--run", ".", "--eval-check"), "--eval-check would do nothing"),
        (("--train-cmd", "x", "--reload-timeout", "0"), "--reload-timeout 0"),
    ],
)
def test_bad_options_are_usage_errors(project: Project, flags: tuple[str, ...], message: str) -> None:
    """Exit status 4, the option and the remedy named, nothing written."""
    done = project.run(*flags)
    assert done.returncode == USAGE_ERROR, done.stdout
    assert message in done.stdout
    assert "Traceback" not in done.stdout
    assert not project.out_dir.exists()


@pytest.mark.parametrize("fault", ["other decision", "torn journal", "goes on"])
def test_run_that_cannot_be_retried_is_a_usage_error(project: Project, fault: str) -> None:
    """What only its evidence tells is told before anything begins, with what to look at."""
    place = RunDir(exit_code=1).write(project.path / "before")
    report = write_report(place)
    if fault == "other decision":
        (place / "train-model.json").write_text(json.dumps({**report, "decision": "GO"}))
    elif fault == "torn journal":
        lines = (place / "journal.jsonl").read_text().splitlines()
        (place / "journal.jsonl").write_text("\n".join([*lines[:3], lines[3][:20], *lines[4:]]) + "\n")
    with Lease(place) if fault == "goes on" else nullcontext():
        done = project.run("--train-cmd", project.toy(), "--retry-of", "before")
    assert done.returncode == USAGE_ERROR, done.stdout
    assert "--retry-of" in done.stdout and "Traceback" not in done.stdout
    assert not project.out_dir.exists() and project.launches == []


def test_program_that_would_train_again_is_refused(project: Project) -> None:
    """--reload-with would import it, and it has no guard."""
    (project.path / "bare.py").write_text("def check(path): ...\nopen('ran', 'w').close()\n")
    done = project.run("--train-cmd", f"{sys.executable} bare.py", "--reload-with", "bare.py:check")
    assert done.returncode == 1 and "trains wherever it is imported" in done.stdout, done.stdout
    assert not (project.path / "ran").exists()


def test_missing_command_is_told_without_the_marker_too(project: Project) -> None:
    """Selecting the suite without -m asks for the command as well."""
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--pyargs", "harness.acceptance"]
    done = subprocess.run(words, cwd=project.path, text=True, capture_output=True, timeout=400, check=False)
    assert done.returncode == USAGE_ERROR
    assert "no training command" in done.stderr + done.stdout


def test_unwritable_out_dir_is_told_and_nothing_is_launched(project: Project) -> None:
    """An out-dir below a file: a clear error, no launch, exit status not 0."""
    (project.path / "reports").write_text("a file")
    done = project.run("--train-cmd", project.toy())
    assert done.returncode != 0
    assert "cannot be written" in done.stdout
    assert project.launches == []


def test_command_may_stand_in_the_ini_file(project: Project) -> None:
    """The ini key real_step_train_cmd does what --train-cmd does; --run-id on the command line joins it."""
    (project.path / "pytest.ini").write_text(
        f"[pytest]\nreal_step_train_cmd = {project.toy()}\nreal_step_max_steps = 20\n")
    done = project.run("--run-id", "from-ini")
    assert done.returncode == 0, done.stdout
    assert project.report()["run_id"] == "from-ini"


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("python nowhere.py", "entrypoint-missing"),
        ("python toy.py | tee log", "command-refused"),
        ("python 'toy.py", "command-refused"),
        ("python broken.py", "command-refused"),
        ("areno serve --ckpt x", "command-refused"),
    ],
)
def test_refused_commands_end_no_go_before_launch(project: Project, command: str, reason: str) -> None:
    """A command that cannot train: NO-GO with its own reason, real_step blocked, no traceback."""
    (project.path / "broken.py").write_text("def f(:\n")
    (project.path / "toy.py").write_text("")
    done = project.run("--train-cmd", command)
    assert done.returncode == 1, done.stdout
    report = project.report()
    assert report["decision"] == "NO-GO"
    assert reason in {item["code"] for item in report["evidence"]["reasons"]}
    assert "Traceback" not in done.stdout
    assert "blocked by training_command" in str(report["evidence"]["gates"])


def test_required_gpu_that_is_missing_forbids_the_launch(project: Project) -> None:
    """--require-gpu without a GPU: NO-GO with gpu-missing and no launch (CUDA_VISIBLE_DEVICES hides every GPU)."""
    done = project.run("--train-cmd", project.toy(), "--require-gpu")
    report = project.report()
    if report["evidence"]["environment"]["accelerators"]:
        assert done.returncode == 0
        return
    assert done.returncode == 1
    assert "gpu-missing" in {item["code"] for item in report["evidence"]["reasons"]}
    assert project.launches == []
