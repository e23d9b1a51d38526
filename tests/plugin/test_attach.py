"""Runs that others started, by `python -m harness watch` and `pytest --attach`: seen to their end, never touched."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import Project, gone, reasons, wait_until

TRACKERS = Path(__file__).parents[1] / "unit" / "cases" / "recorded" / "trackers"
JOB = """
import os, signal, sys, time
def is_seen():
    return os.path.exists("out/journal.jsonl") and sys.argv[4] in open("out/journal.jsonl").read()
signal.signal(signal.SIGTERM, lambda *_: open("signalled", "w").close())
for step in range(1, 11):
    if step == int(sys.argv[1]):
        raise ValueError("told to fail")
    loss = float("nan") if step == int(sys.argv[2]) else 1.0 / step
    print(f"step {step}/10 loss {loss:.3f}", flush=True)
    time.sleep(float(sys.argv[3]))
    while step == 5 and sys.argv[4] and not is_seen():
        time.sleep(0.05)
print("training finished", flush=True)
"""


class Job:
    """A job that somebody else started, its output in a log."""

    def __init__(
        self, place: Path, *, fail_at: int = 0, nan_at: int = 0, sleep_s: float = 0.15, until: str = ""
    ) -> None:
        """`until`: after step 5 it waits for this event of the watch in the out-dir `out`."""
        self.log = place / "others.log"
        (place / "others_train.py").write_text(JOB)
        words = [sys.executable, "others_train.py", str(fail_at), str(nan_at), str(sleep_s), until]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(words, cwd=place, stdout=log, stderr=subprocess.STDOUT)
        wait_until(lambda: self.log.stat().st_size > 0)


@pytest.fixture
def jobs(project: Project) -> Iterator[list[Job]]:
    """Started by a test, ended after it."""
    started: list[Job] = []
    yield started
    for job in started:
        job.process.kill()
        job.process.wait()


def watch(project: Project, *words: str) -> tuple[int, dict[str, Any], str]:
    """Exit code, the JSON of stdout, and what stderr showed."""
    done = subprocess.run([sys.executable, "-m", "harness", "watch", *words], cwd=project.path, text=True,
                          capture_output=True, timeout=400, check=False)
    return done.returncode, json.loads(done.stdout), done.stderr


def test_watched_log_ends_with_its_writer(project: Project, jobs: list[Job]) -> None:
    """Seen from the first byte to the writer's end: the steps, the state, the documents; CONDITIONAL at best."""
    jobs.append(Job(project.path, sleep_s=0.2, until="process-confirmed"))
    code, answer, shown = watch(project, "others.log", "--out-dir", "out", "--interval", "1")
    assert (answer["decision"], answer["terminal_state"], answer["total_steps"]) == ("CONDITIONAL", "SUCCEEDED", 10)
    assert (code, answer["ok"], answer["target_type"]) == (1, False, "local-log")
    assert "| loss=" in shown and "Step " in shown
    assert "it is never signalled" in shown and f"PID {jobs[0].process.pid} writes it" in shown
    watched = json.loads((project.path / "out" / "babysit-training.json").read_text())
    assert (watched["target"], watched["run_id"]) == (str(jobs[0].log), answer["run_id"])
    assert (project.path / "out" / "train.log").read_bytes() == jobs[0].log.read_bytes()


def test_watched_process_tells_command_and_launch(project: Project, jobs: list[Job]) -> None:
    """pid:N: what it runs and since when is seen, so that neither is the user's word; its exit code is not seen."""
    jobs.append(Job(project.path, until="attempt-started"))
    _, answer, _ = watch(project, f"pid:{jobs[0].process.pid}", "--out-dir", "out", "--max-steps", "10")
    codes = {reason["code"] for reason in answer["reasons"]}
    assert (answer["target_type"], answer["terminal_state"], answer["total_steps"]) == ("pid", "SUCCEEDED", 10)
    assert "exit-unknown" in codes
    assert not {"command-unknown", "launch-time-unknown", "freshness-asserted", "env-unrecorded"} & codes
    report = project.report(project.path / "out")
    assert "others_train.py" in report["train_cmd"]


def test_failure_of_a_watched_run_is_no_go(project: Project, jobs: list[Job]) -> None:
    """A traceback at the end, a NaN in the middle: broken, although nobody saw an exit code."""
    jobs.append(Job(project.path, fail_at=5, sleep_s=0.05))
    _, answer, _ = watch(project, "others.log", "--out-dir", "failed")
    assert (answer["decision"], answer["terminal_state"], answer["total_steps"]) == ("NO-GO", "FAILED", 4)
    assert "exception-in-log" in {reason["code"] for reason in answer["reasons"]}
    jobs.append(Job(project.path, nan_at=5, sleep_s=0.05))
    _, answer, _ = watch(project, "others.log", "--out-dir", "nan")
    assert "loss-not-finite" in {reason["code"] for reason in answer["reasons"]}
    assert answer["decision"] == "NO-GO"


def test_one_look_tells_the_state_and_keeps_nothing(project: Project, jobs: list[Job]) -> None:
    """--once: a run that goes on has no terminal state, and short of its target it is not broken."""
    jobs.append(Job(project.path, until="never"))
    began = time.monotonic()
    code, answer, _ = watch(project, "others.log", "--once")
    assert time.monotonic() - began < 300
    assert (code, answer["ok"], answer["running"], answer["terminal_state"]) == (0, True, True, None)
    assert 1 <= answer["total_steps"] < 10 and answer["target_steps"] == 10
    assert sorted(path.name for path in project.path.iterdir()) == ["others.log", "others_train.py"]
    code, answer, _ = watch(project, "others.log", "--once", "--out-dir", "look")
    watched, report = (json.loads((project.path / "look" / name).read_text())
                       for name in ("babysit-training.json", "train-model.json"))
    assert (answer["terminal_state"], watched["terminal_state"], report["terminal_state"]) == (None, None, None)
    assert (answer["outcome"], "run-goes-on" in reasons(report)) == ("unproven", True)
    assert not (project.path / "look" / "check-failed-run.json").exists()
    jobs[0].process.kill()
    jobs[0].process.wait()
    jobs[0].log.write_text("step 1/10 loss 0.5\nTraceback (most recent call last):\nKeyError: 'labels'\n")
    code, answer, _ = watch(project, "others.log", "--once")
    assert (code, answer["ok"], answer["running"], answer["terminal_state"]) == (1, False, False, "FAILED")


def test_log_that_stands_still_ends_the_watch(project: Project) -> None:
    """Without a writer and a sign of an end, the idle budget: TIMEOUT, and never a success."""
    (project.path / "old.log").write_text("step 1/10 loss 0.5\nstep 2/10 loss 0.4\n")
    _, answer, _ = watch(project, "old.log", "--out-dir", "out", "--idle-timeout", "2")
    assert (answer["terminal_state"], answer["ok"]) == ("TIMEOUT", False)
    assert answer["decision"] != "GO"


def test_rotation_is_followed_and_reported(project: Project) -> None:
    """A log that is replaced while it is watched: all steps, and a finding that says so."""
    log = project.path / "turning.log"
    script = (
        "import os, time\n"
        "while not os.path.exists('out/progress.log'): time.sleep(0.1)\n"
        "def say(step): open('turning.log', 'a').write(f'step {step}/6 loss 0.5\\n')\n"
        "[say(step) for step in (2, 3)]\n"
        "while 'step 3/6' not in open('out/train.log').read(): time.sleep(0.1)\n"
        "os.rename('turning.log', 'turning.log.1')\n"
        "[say(step) for step in (4, 5, 6)]\n"
        "open('turning.log', 'a').write('training finished\\n')\n")
    log.write_text("step 1/6 loss 0.5\n")
    writer = subprocess.Popen([sys.executable, "-c", script], cwd=project.path)
    _, answer, shown = watch(project, "turning.log", "--out-dir", "out", "--idle-timeout", "15")
    writer.wait()
    assert (answer["total_steps"], answer["terminal_state"]) == (6, "SUCCEEDED")
    assert "rotated:" in shown
    findings = project.report(project.path / "out")["findings"]
    assert any("rotated" in finding["title"] for finding in findings)


def test_attached_acceptance_tests_pass_where_conditional_is_accepted(project: Project, jobs: list[Job]) -> None:
    """pytest --attach: the same gates over the run; without --accept-conditional they fail."""
    jobs.append(Job(project.path))
    done = project.run("--attach", "others.log", "--accept-conditional", "--interval", "1")
    assert done.returncode == 0, done.stdout
    assert project.report()["decision"] == "CONDITIONAL"
    assert (project.out_dir / "babysit-training.json").exists()
    again = project.run("--attach", "others.log", "--idle-timeout", "1")
    assert again.returncode == 1, again.stdout
    assert "exit-unknown" in again.stdout


def test_end_of_the_watch_touches_no_process(project: Project, jobs: list[Job]) -> None:
    """Ctrl-C ends pytest and the watch; the job goes on, never having got a signal."""
    jobs.append(Job(project.path, until="never"))
    session = project.start("--attach", f"pid:{jobs[0].process.pid}")
    wait_until(lambda: any(event["event"] == "attempt-started" for event in project.events()))
    time.sleep(0.5)
    session.send_signal(signal.SIGINT)
    session.communicate(timeout=400)
    assert session.returncode != 0
    assert not gone(jobs[0].process.pid)
    assert not (project.path / "signalled").exists()
    report = project.report()
    assert "run-goes-on" in reasons(report)
    assert (report["decision"], report["terminal_state"]) == ("CONDITIONAL", None)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--attach", "missing.log"), "no such file"),
        (("--attach", ""), "the target is empty"),
        (("--attach", "a.log", "--demo"), "give exactly one"),
        (("--attach", "a.log", "--hp", "lr=1"), "--attach only watches, so --hp"),
        (("--attach", "a.log", "--run-timeout", "5"), "--attach only watches, so --run-timeout"),
        (("--attach", "a.log", "--early-stop-metric", "eval_loss"), "--early-stop-metric would do nothing"),
        (("--train-cmd", "x", "--idle-timeout", "5"), "nothing is attached to, so --idle-timeout"),
        (("--attach", "a.log", "--idle-timeout", "nan"), "--idle-timeout nan"),
    ],
)
def test_odd_attachments_are_usage_errors(project: Project, flags: tuple[str, ...], message: str) -> None:
    """What would be ignored is refused."""
    (project.path / "a.log").write_text("step=1 loss=0.5\n")
    done = project.run(*flags)
    assert done.returncode == 4, done.stdout
    assert message in done.stdout


@pytest.mark.parametrize("target", ["missing.log", "pid:999999999", "proc:no-such-program-anywhere", "wandb:missing"])
def test_watch_of_nothing_is_a_usage_error(project: Project, target: str) -> None:
    """Exit code 2, one line of JSON, no traceback."""
    code, answer, shown = watch(project, target, "--out-dir", "out")
    assert (code, answer["ok"]) == (2, False)
    assert "Traceback" not in shown


@pytest.mark.parametrize(("kind", "place"), [("wandb", "wandb"), ("mlflow", "mlruns"), ("mlflow", "mlflow.db")])
def test_trackers_are_watched_by_their_files(project: Project, kind: str, place: str) -> None:
    """wandb:DIR and mlflow:DIR: the recorded runs' metrics, the target's type, and the end that the tracker tells."""
    _, answer, shown = watch(project, f"{kind}:{TRACKERS / place}", "--out-dir", "out")
    assert (answer["target_type"], answer["terminal_state"]) == (kind, "SUCCEEDED")
    assert any("loss" in name for name in answer["final_metrics"])
    assert answer["decision"] != "GO" and "Traceback" not in shown


@pytest.mark.parametrize(("status", "state", "code"), [(4, "FAILED", "exit-code"), (5, "CANCELLED", "cancelled"),
                                                       (1, "TIMEOUT", None)])
def test_run_that_its_tracker_calls_failed_is_no_go(
    project: Project, status: int, state: str, code: str | None
) -> None:
    """MLflow's status is taken at its word where it is bad; a run that it calls running ends by the idle budget."""
    store = project.path / "mlruns"
    shutil.copytree(TRACKERS / "mlruns", store)
    meta = next(store.glob("*/*/meta.yaml"))
    meta.write_text(meta.read_text().replace("status: 3", f"status: {status}"))
    _, answer, _ = watch(project, "mlflow:mlruns", "--out-dir", "out", "--idle-timeout", "1")
    assert (answer["terminal_state"], answer["decision"]) == (state, "NO-GO")
    assert code is None or code in {reason["code"] for reason in answer["reasons"]}
