"""Trainers that misbehave while they train: the run is judged by what it did, and nothing of the harness dies of it."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import sqlite3
import sys

import pytest

from .conftest import TOY, Project, gone, wait_until

PRELUDES = {
    "fills the log": "block = (b'x' * 120 + b'\\n') * 8192\nfor _ in range(60): os.write(1, block)\n",
    "a line of 50 MB": "os.write(1, b'y' * 1000)\nfor _ in range(50): sys.stdout.buffer.write(b'z' * (1 << 20))\n"
                       "sys.stdout.flush()\n",
    "invalid UTF-8 and NUL": "os.write(1, bytes(range(256)) * 40 + b'\\xff\\xfe\\x00\\x00 loss=\\x00nan\\n')\n",
    "closes stdout": "null = os.open(os.devnull, os.O_WRONLY); os.dup2(null, 1); os.dup2(null, 2)\n",
    "forks": "for _ in range(20):\n    if os.fork() == 0: os._exit(0)\n",
}


def job(project: Project, prelude: str, *flags: str) -> str:
    """The toy trainer behind this prelude."""
    code = f"import os, runpy, sys\n{prelude}\nsys.argv = ['toy_trainer.py', *sys.argv[1:]]\n"
    (project.path / "job.py").write_text(code + f"runpy.run_path({str(TOY)!r}, run_name='__main__')\n")
    return shlex.join([sys.executable, "job.py", *shlex.split(project.toy(*flags))[2:]])


@pytest.mark.parametrize("name", PRELUDES)
def test_output_of_any_kind_does_not_break_a_run(name: str, project: Project) -> None:
    """GO; the log is kept as it came, in flat memory."""
    done = project.run("--train-cmd", job(project, PRELUDES[name]))
    assert done.returncode == 0, done.stdout
    overhead = next(entry for entry in project.events() if entry["event"] == "overhead")
    assert overhead["supervisor_peak_rss_bytes"] < 250 << 20
    told = next(entry for entry in project.events() if entry["event"] == "log-end")
    assert told["lost_bytes"] == 0
    assert (project.out_dir / "train.log").stat().st_size == told["bytes"]


def test_deleted_event_directory_is_told(project: Project) -> None:
    """The trainer goes on into a file without a name; the report says that the source is gone."""
    hold = ("--hold-at", "30", "--hold-for", "deleted", "", "1")
    pytest_process = project.start("--train-cmd", project.toy("--max-steps", "40", "--sleep", "0.05", *hold))
    project.wait_for_steps(20)
    wait_until(lambda: is_read(project))
    for path in (project.path / "events").iterdir():
        path.unlink()
    (project.path / "events").rmdir()
    (project.path / "deleted").touch()
    output, _ = pytest_process.communicate(timeout=400)
    report = project.report()
    assert "Traceback" not in output
    assert report["evidence"]["attempts"][0]["exit_code"] == 0
    sources = report["evidence"]["observed"]["sources"]
    assert [source["still_there"] for source in sources if source["kind"] == "jsonl"] == [False]
    assert sum(source["points"] for source in sources) > 0


def is_read(project: Project) -> bool:
    """Whether the supervisor has stored points of the metric file."""
    database = project.out_dir / "metrics.db"
    with contextlib.suppress(sqlite3.Error):
        connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
        with contextlib.closing(connection):
            return bool(connection.execute("SELECT count(*) FROM event WHERE kind = 'jsonl'").fetchone()[0])
    return False


def test_stopped_trainer_is_stalled_and_not_killed(project: Project) -> None:
    """SIGSTOP for a while: a finding, no signal of ours; after SIGCONT the run ends with GO."""
    flags = ("--max-steps", "4000", "--sleep", "0.05", "--hurry-after", "continued")
    pytest_process = project.start("--train-cmd", project.toy(*flags), "--interval", "1", "--no-backoff")
    trainer = project.wait_for_steps(1)
    shown = project.out_dir / "progress.log"
    wait_until(lambda: shown.read_text().count("next report in") >= 6)  # the pace is known after four looks
    os.kill(trainer, signal.SIGSTOP)
    wait_until(lambda: any(entry["event"] == "anomaly" and entry["type"] == "stalled" for entry in project.events()))
    assert not gone(trainer)
    (project.path / "continued").touch()
    os.kill(trainer, signal.SIGCONT)
    output, _ = pytest_process.communicate(timeout=400)
    assert pytest_process.returncode == 0, output
    assert not [entry for entry in project.events() if entry["event"] == "signal-sent"]


def test_stopped_trainer_is_ended_by_the_run_timeout(project: Project) -> None:
    """A limit says so: SIGTERM waits behind SIGSTOP, SIGKILL does not."""
    project.run("--train-cmd", project.toy("--max-steps", "9000", "--sleep", "0.05", "--stop-at", "10"),
                "--run-timeout", "5", "--stop-grace", "0.5")
    assert all(gone(trainer) for trainer in project.launches)
    assert project.report()["terminal_state"] == "TIMEOUT"
