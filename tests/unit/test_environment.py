"""Environment facts are had quickly or said to be missing; nothing here can break a launch."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from harness.environment import _visible, commit_facts, python_facts, record_environment, trainer_report


def test_record_holds_every_part(tmp_path: Path) -> None:
    """Host, OS, the trainer's Python and packages, accelerators and both reports."""
    say = [sys.executable, "-c", "import json; print('warming up'); print(json.dumps({'ok': True}))"]
    fail = [sys.executable, "-c", "import sys; print('no device'); sys.exit(3)"]
    record = record_environment(
        workdir=tmp_path,
        reports=[("areno env", say), ("areno check", fail)],
        environ=dict(os.environ),
        timeout=240,
        interpreter=Path(sys.executable),
    )
    assert list(record) == [
        "host",
        "os",
        "python",
        "packages",
        "accelerators",
        "trainer_report",
        "trainer_check",
    ]
    assert record["host"] and record["os"]["cpus"] >= 1 and record["python"]["of"] == "trainer"
    assert record["packages"]["pytest"] and isinstance(record["accelerators"], list)
    assert record["trainer_report"]["output"] == {"ok": True}
    assert (record["trainer_check"]["exit_code"], record["trainer_check"]["output"]) == (3, "no device\n")
    json.dumps(record)


def test_report_that_hangs_is_ended(tmp_path: Path) -> None:
    """It and its children are killed, and the record says so."""
    started = time.monotonic()
    sleeping = "[sys.executable, '-c', 'import time; time.sleep(600)']"
    code = f"import subprocess, sys, time; subprocess.Popen({sleeping}); time.sleep(600)"
    result = trainer_report("x", [sys.executable, "-c", code], tmp_path, dict(os.environ), 1.0)
    assert result["exit_code"] is None and "no end after 1 s" in result["error"]
    assert time.monotonic() - started < 400


def test_report_that_is_not_there_is_recorded(tmp_path: Path) -> None:
    """A missing program is an error in the record."""
    result = trainer_report("x", [str(tmp_path / "none")], tmp_path, dict(os.environ), 1.0)
    assert result["exit_code"] is None and "could not be started" in result["error"]


def test_own_packages_stand_in_for_a_python_that_cannot_be_asked(tmp_path: Path) -> None:
    """The record says whose packages they are, and why."""
    facts, packages = python_facts(tmp_path / "python", dict(os.environ))
    assert facts["of"] == "harness" and "could not be asked" in facts["why"] and packages["pytest"]


def test_probe_does_not_reach_reports(tmp_path: Path) -> None:
    """A child that only reports is no process of the trainer."""
    code = "import os; print('REAL_STEP_PROBE_DIR' in os.environ)"
    environ = {**os.environ, "REAL_STEP_PROBE_DIR": str(tmp_path)}
    record = record_environment(
        workdir=tmp_path, reports=[("env", [sys.executable, "-c", code])], environ=environ, timeout=240
    )
    assert record["trainer_report"]["output"] == "False\n"


def test_visible_devices_follow_cuda() -> None:
    """Indices, UUID prefixes, nothing behind an invalid one, and none for an empty setting."""
    devices = [{"index": 0, "uuid": "GPU-aa"}, {"index": 1, "uuid": "GPU-ab"}]
    assert _visible(devices, None) == devices
    assert [_visible(devices, setting) for setting in ("", "-1", "7,0")] == [[], [], []]
    assert _visible(devices, "1,0") == devices[::-1]
    assert _visible(devices, "GPU-ab,9,0") == devices[1:]


def git(workdir: Path, *words: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.invalid", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *identity, *words], cwd=workdir, check=True, capture_output=True, text=True)
    return done.stdout


def test_commit_facts_tell_sha_and_diff(tmp_path: Path) -> None:
    """A clean tree has no diff; a changed file has one; files beside the repository's do not count."""
    git(tmp_path, "init", "-q")
    assert commit_facts(tmp_path)["sha"] is None and commit_facts(tmp_path)["reason"]
    (tmp_path / "a.py").write_text("x = 1\n")
    git(tmp_path, "add", "a.py")
    git(tmp_path, "commit", "-qm", "one")
    sha = git(tmp_path, "rev-parse", "HEAD").strip()
    (tmp_path / "untracked").write_text("artifact")
    assert commit_facts(tmp_path) == {"sha": sha, "dirty": False, "diff_sha256": None, "reason": None}
    (tmp_path / "a.py").write_text("x = 2\n")
    expected = hashlib.sha256(git(tmp_path, "diff", "HEAD", "--binary", "--no-color").encode()).hexdigest()
    assert commit_facts(tmp_path) == {"sha": sha, "dirty": True, "diff_sha256": expected, "reason": None}


def test_commit_facts_never_raise(tmp_path: Path) -> None:
    """No repository, no directory, no time: a reason."""
    for workdir in (tmp_path, tmp_path / "none"):
        facts = commit_facts(workdir)
        assert facts["sha"] is None and facts["reason"]
