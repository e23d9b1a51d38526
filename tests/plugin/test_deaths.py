"""Whoever dies, the trainer does not live on unseen, and there is a report."""

from __future__ import annotations

import os
import random
import signal
import time

import psutil
import pytest

from .conftest import Project, gone, reasons, wait_until

SLOW = ("--max-steps", "20000", "--sleep", "0.05")


def supervisor_pid(project: Project) -> int:
    """As the journal tells it."""
    wait_until(lambda: any(entry["event"] == "run-started" for entry in project.events()))
    return int(next(entry for entry in project.events() if entry["event"] == "run-started")["supervisor_pid"])


def test_ctrl_c_ends_cancelled_with_a_report(project: Project) -> None:
    """SIGINT to pytest: the trainer is stopped, the report says CANCELLED, the summary is printed."""
    pytest_process = project.start("--train-cmd", project.toy(*SLOW))
    trainer = project.wait_for_steps(5)
    pytest_process.send_signal(signal.SIGINT)
    output, _ = pytest_process.communicate(timeout=400)
    assert gone(trainer)
    report = project.report()
    assert (report["terminal_state"], report["decision"]) == ("CANCELLED", "NO-GO")
    assert report["evidence"]["outcome"] == "infrastructure"
    assert "Terminal state: CANCELLED" in output
    assert pytest_process.returncode != 0


@pytest.mark.parametrize("flags", [(), ("-n2",)], ids=" ".join)
def test_killed_pytest_takes_the_trainer_with_it(project: Project, flags: tuple[str, ...]) -> None:
    """SIGKILL to pytest (the xdist controller): the supervisor stops the trainer and writes the report."""
    pytest_process = project.start("--train-cmd", project.toy(*SLOW), *flags)
    trainer = project.wait_for_steps(5)
    pytest_process.kill()
    pytest_process.communicate(timeout=400)
    wait_until(lambda: gone(trainer))
    wait_until(lambda: (project.out_dir / "train-model.json").exists())
    assert project.report()["terminal_state"] == "CANCELLED"


def test_killed_worker_ends_the_run_once(project: Project) -> None:
    """SIGKILL to the xdist worker that owns the run: CANCELLED, no second launch, one report."""
    pytest_process = project.start("--train-cmd", project.toy(*SLOW), "-n1")
    trainer = project.wait_for_steps(5)
    owner = psutil.Process(supervisor_pid(project)).ppid()
    os.kill(owner, signal.SIGKILL)
    output, _ = pytest_process.communicate(timeout=400)
    assert gone(trainer)
    assert pytest_process.returncode == 1, output
    assert len(project.launches) == 1
    assert project.report()["terminal_state"] == "CANCELLED"


def test_killed_supervisor_leaves_no_trainer_and_a_report(project: Project) -> None:
    """SIGKILL to the supervisor: its reaper stops the trainer, pytest writes the report, `verify` agrees."""
    pytest_process = project.start("--train-cmd", project.toy(*SLOW, "--child"))
    trainer = project.wait_for_steps(5)
    family = [trainer, *(child.pid for child in psutil.process_iter() if _is_toy(child, project))]
    os.kill(supervisor_pid(project), signal.SIGKILL)
    output, _ = pytest_process.communicate(timeout=400)
    assert all(gone(pid) for pid in family)
    assert pytest_process.returncode == 1, output
    assert "supervisor-lost" in reasons(project.report())
    code, result = project.harness("verify", str(project.out_dir))
    assert (code, result["disagreements"]) == (1, [])


def _is_toy(process: psutil.Process, project: Project) -> bool:
    try:
        return "toy_trainer.py" in " ".join(process.cmdline()) and process.cwd() == str(project.path)
    except psutil.Error:
        return False


@pytest.mark.parametrize("seed", range(6))
def test_supervisor_killed_at_any_instant_leaves_nothing(project: Project, seed: int) -> None:
    """SIGKILL at a random moment of the first second: no trainer lives on, the journal can be read."""
    pytest_process = project.start("--train-cmd", project.toy(*SLOW), "--stop-grace", "2")
    pid = supervisor_pid(project)
    time.sleep(random.Random(seed).uniform(0.0, 0.8))
    os.kill(pid, signal.SIGKILL)
    pytest_process.communicate(timeout=400)
    wait_until(lambda: all(gone(trainer) for trainer in project.launches))
    code, result = project.harness("verify", str(project.out_dir))
    assert code == 1
    assert result["decision"] != "GO"


def test_trainer_that_ignores_sigterm_is_killed(project: Project) -> None:
    """--run-timeout: SIGTERM, the group's SIGTERM after the grace, SIGKILL; TIMEOUT.

    The shell ignores SIGTERM from its first moment on, and the trainer inherits that, however late it starts.
    """
    (project.path / "run.sh").write_text(f"trap '' TERM\nexec {project.toy(*SLOW)}\n")
    done = project.run("--train-cmd", "bash run.sh", "--run-timeout", "4", "--stop-grace", "0.5")
    assert done.returncode == 1
    report = project.report()
    assert report["terminal_state"] == "TIMEOUT"
    assert "run-timeout" in reasons(report)
    sent = [(entry["signal"], entry["group"]) for entry in project.events() if entry["event"] == "signal-sent"]
    assert sent == [("SIGTERM", False), ("SIGTERM", True), ("SIGKILL", True)]
    assert all(gone(pid) for pid in project.launches)


def test_double_fork_is_reported_and_stopped(project: Project) -> None:
    """A process that left the session and outlives the trainer is named in the findings and ended; still GO."""
    done = project.run("--train-cmd", project.toy("--child"), "--drain-grace", "1")
    assert done.returncode == 0, done.stdout
    findings = [item for item in project.report()["findings"] if "outlived" in item["title"]]
    assert len(findings) == 1
    assert not [process.pid for process in psutil.process_iter() if _is_toy(process, project)]


def test_cap_stops_a_run_that_goes_on(project: Project) -> None:
    """--max-steps below the command's own limit: stopped by the harness, SUCCEEDED, stopped_by cap."""
    done = project.run("--train-cmd", project.toy(*SLOW), "--max-steps", "20", "--cap", "harness")
    report = project.report()
    assert report["terminal_state"] == "SUCCEEDED", done.stdout
    assert report["evidence"]["command"]["stopped_by"] == "cap"
    assert 20 <= report["total_steps"] < 20000


def test_out_dir_has_one_writer(project: Project) -> None:
    """A second session on the same out-dir is refused while the first one runs."""
    first = project.start("--train-cmd", project.toy(*SLOW))
    project.wait_for_steps(3)
    from harness.record.outdir import is_held

    assert is_held(project.out_dir)
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=400)
    assert not is_held(project.out_dir)
