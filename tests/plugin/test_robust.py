"""Odd projects, jobs and sessions: one launch, a clear word, and no code of the project inside the supervisor."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from harness import client
from harness.errors import HarnessError, LeaseHeld
from harness.spec import RunSpec

from .conftest import Project, gone, wait_until

SLOW = ("--max-steps", "20000", "--sleep", "0.05")
VANDAL = """
import os, shutil, sys
with open("launches", "a") as handle:
    handle.write(f"{os.getpid()}\\n")
shutil.rmtree("reports/train-run")
"""


@pytest.mark.parametrize("flags", [("--reruns", "1"), ("-n2",), ("-n2", "--reruns", "1")], ids=" ".join)
def test_job_that_removes_the_out_dir_is_launched_once(
    project: Project, flags: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often the tests are asked again, and by however many workers; no file of the session stays."""
    monkeypatch.setenv("TMPDIR", str(project.path))
    (project.path / "vandal.py").write_text(VANDAL)
    done = project.run("--train-cmd", shlex.join([sys.executable, "vandal.py"]), *flags)
    assert done.returncode == 1, done.stdout
    assert len(project.launches) == 1
    assert "its artifacts are gone" in done.stdout
    assert not list(project.path.glob("real-step-*.json"))


def test_first_failure_is_told_and_the_others_refer_to_it(project: Project) -> None:
    """One full message (and its line in pytest's short summary), whatever the number of tests."""
    (project.path / "reports").write_text("a file")
    done = project.run("--train-cmd", project.toy())
    assert done.returncode == 1
    assert done.stdout.count("cannot be written") <= 2, done.stdout
    assert done.stdout.count("could not judge: see ") >= 10


def test_second_session_is_refused_at_once(project: Project) -> None:
    """The out-dir is held: told who holds it, nothing launched, the first run goes on."""
    first = project.start("--train-cmd", project.toy(*SLOW))
    project.wait_for_steps(3)
    second = project.run("--train-cmd", project.toy(), timeout=400)
    assert second.returncode == 1
    assert "is writing a run here; wait for it or give another directory" in second.stdout
    assert first.poll() is None
    code, running = project.harness("verify", str(project.out_dir))
    assert (code, running["running"], running["decision"]) == (1, True, None)
    assert len(project.launches) == 1
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=400)


def test_run_that_is_there_shows_no_old_progress(project: Project) -> None:
    """--run prints the summary and no line of a launch that is over; --expect and --policy are held against it."""
    project.run("--train-cmd", project.toy())
    done = project.run("--run", "reports/train-run")
    assert done.returncode == 0, done.stdout
    assert "Training Complete" in done.stdout
    assert "Launching training" not in done.stdout
    before = (project.out_dir / "train-model.json").read_bytes()
    missed = project.run("--run", "reports/train-run", "--expect", "loss@20<=0")
    assert missed.returncode == 1 and "expect-out-of-band" in missed.stdout, missed.stdout
    assert (project.out_dir / "train-model.json").read_bytes() == before


@pytest.mark.parametrize("flags", [("--require-gpu",), ("--max-steps", "3"), ("--out-dir", "x"), ("--hp", "lr=1")])
def test_launch_options_with_run_are_usage_errors(project: Project, flags: tuple[str, ...]) -> None:
    """They would do nothing; an ini key for other sessions is no error."""
    project.out_dir.mkdir(parents=True)
    (project.out_dir / "run-spec.json").write_text("{}")
    (project.path / "pytest.ini").write_text("[pytest]\nreal_step_max_epochs = 2\n")
    refused = project.run("--run", "reports/train-run", *flags)
    assert refused.returncode == 4
    assert f"so {flags[0]} would do nothing" in refused.stdout
    assert project.run("--run", "reports/train-run", "--accept-conditional", "--collect-only").returncode == 0


def test_modules_of_the_project_do_not_reach_the_supervisor(project: Project) -> None:
    """--out-dir . in a project with files named like modules that the supervisor imports."""
    for name in ("queue", "selectors", "harness", "psutil", "sitecustomize"):
        (project.path / f"{name}.py").write_text(f"open({str(project.path / 'imported')!r}, 'a').write('{name} ')\n"
                                                 "raise SystemExit(7)\n")
    words = [str(Path(sys.executable).with_name("pytest")), *project.arguments()[3:]]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run([*words, "--train-cmd", project.toy(), "--out-dir", "."], cwd=project.path, text=True,
                          capture_output=True, timeout=400, env=environment, check=False)
    assert done.returncode == 0, done.stdout
    assert not (project.path / "imported").exists()
    assert project.report(project.path)["decision"] == "GO"


def test_command_that_is_no_utf8_is_judged(project: Project) -> None:
    """An undecodable byte in the command: launched, written down, no traceback; with -n a usage error."""
    name = os.fsdecode(b"train\xff.py")
    (project.path / name).write_text("print('no training')\n")
    command = f"{shlex.quote(sys.executable)} {name}"
    parallel = project.run("--train-cmd", command, "-n2")
    assert parallel.returncode == 4, parallel.stdout
    assert "--train-cmd holds bytes that are not UTF-8" in parallel.stdout
    done = project.run("--train-cmd", command)
    assert done.returncode == 1, done.stdout
    assert "Traceback" not in done.stdout
    assert project.report()["decision"] != "GO"
    assert name in project.report()["train_cmd"]
    assert project.report()["evidence"]["attempts"][0]["exit_code"] == 0


def test_out_dir_that_is_no_utf8_is_used(project: Project) -> None:
    """The whole run, its report and `verify`."""
    out_dir = os.fsdecode(b"out\xff")
    done = project.run("--train-cmd", project.toy(), "--out-dir", out_dir)
    assert done.returncode == 0, done.stdout
    code, result = project.harness("verify", out_dir)
    assert (code, result["decision"], result["disagreements"]) == (0, "GO", [])


def test_project_whose_path_is_no_utf8_is_judged(project: Project) -> None:
    """Metric files, checkpoints and evidence below such a directory: GO."""
    inner = Project(path=project.path / os.fsdecode(b"pr\xff"))
    inner.path.mkdir()
    done = inner.run("--train-cmd", project.toy())
    assert done.returncode == 0, done.stdout
    assert len(inner.launches) == 1


def test_leftovers_of_a_half_archived_run_are_not_this_runs(project: Project) -> None:
    """Only the probe's directory, the log and the metric store are left: they are moved aside, the run is judged."""
    project.run("--train-cmd", project.toy(), "--run-id", "first")
    for name in ("run-spec.json", "journal.jsonl", "train-model.json", "progress.log", "run-command.txt"):
        (project.out_dir / name).unlink()
    log = (project.out_dir / "train.log").read_bytes()
    done = project.run("--train-cmd", project.toy("--lr", "0.05"))
    assert done.returncode == 0, done.stdout
    assert (project.out_dir / "attempts" / "unknown" / "train.log").read_bytes() == log
    assert log not in (project.out_dir / "train.log").read_bytes()


def spec_of(place: Path, session: str) -> RunSpec:
    """A job that would say that it ran."""
    return RunSpec(train_cmd="touch ran", out_dir=place / "out", workdir=place, run_id="r", session=session)


def test_worker_after_a_dead_owner_does_not_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The session's marker says launched and nothing else: an error, since nobody knows what was started."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(client, "BEGIN_WAIT_S", 0.2)
    with client._Launch("token") as launch:
        launch.write({"launched": True})
    assert (tmp_path / "real-step-token.json").stat().st_mode & 0o777 == 0o600
    with pytest.raises(HarnessError, match="its artifacts are gone"):
        client.ensure_run(spec_of(tmp_path, "token"), print)
    assert not (tmp_path / "ran").exists()


def test_workers_share_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the first was told the others are told too, of the same kind."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with client._Launch("token") as launch:
        launch.write({"launched": True, "error": "LeaseHeld", "message": "busy \udcff"})
    with pytest.raises(LeaseHeld, match="busy"):
        client.ensure_run(spec_of(tmp_path, "token"), print)
    client.forget_session("token")
    assert not list(tmp_path.glob("real-step-*"))


def test_marker_that_is_damaged_launches_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A half-written one was written by a launch."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "real-step-token.json").write_text('{"laun')
    with client._Launch("token") as launch:
        assert launch.read() == {"launched": True}


def test_killed_owner_and_removed_out_dir_do_not_launch_again(project: Project) -> None:
    """The xdist worker that owns the run is killed and the out-dir removed: the replacement does not start it again."""
    pytest_process = project.start("--train-cmd", project.toy(*SLOW), "-n1")
    trainer = project.wait_for_steps(3)
    wait_until(lambda: any(entry["event"] == "run-started" for entry in project.events()))
    supervisor = next(entry for entry in project.events() if entry["event"] == "run-started")["supervisor_pid"]
    owner = int(Path(f"/proc/{supervisor}/stat").read_text().rpartition(")")[2].split()[1])
    project.out_dir.rename(project.path / "elsewhere")
    os.kill(owner, signal.SIGKILL)
    output, _ = pytest_process.communicate(timeout=400)
    wait_until(lambda: gone(trainer))
    time.sleep(0.5)
    assert pytest_process.returncode == 1, output
    assert len(project.launches) == 1
