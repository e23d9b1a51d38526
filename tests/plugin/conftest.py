"""A project directory in which `pytest --pyargs harness.acceptance` is run as a user would."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

TOY = Path(__file__).with_name("toy_trainer.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """An empty directory with commands to run in it."""

    path: Path

    @property
    def out_dir(self) -> Path:
        """Where the default options put the evidence."""
        return self.path / "reports" / "train-run"

    @property
    def launches(self) -> list[int]:
        """PIDs of the trainers that were launched."""
        record = self.path / "launches"
        return [int(line) for line in record.read_text().split()] if record.exists() else []

    def toy(self, *flags: str, save: bool = True) -> str:
        """The command of the toy trainer."""
        words = [sys.executable, str(TOY), "--max-steps", "20", "--log-dir", "events", "--launches", "launches",
                 *(["--save-dir", "checkpoints"] if save else []), *flags]
        return shlex.join(words)

    def arguments(self, *flags: str) -> list[str]:
        """A pytest command line that selects the acceptance suite."""
        return [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--pyargs", "harness.acceptance",
                "-m", "real_step", "-q", *flags]

    def start(self, *flags: str, **more: Any) -> subprocess.Popen[str]:
        """Start pytest; its output is piped, and it hears SIGINT also where our own tests run in the background."""
        return subprocess.Popen(self.arguments(*flags), cwd=self.path, text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, start_new_session=True, env=_environment(),
                                preexec_fn=hear_sigint, **more)

    def run(self, *flags: str, timeout: float = 600) -> subprocess.CompletedProcess[str]:
        """Run pytest to its end."""
        return subprocess.run(self.arguments(*flags), cwd=self.path, text=True, errors="backslashreplace",
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout, env=_environment(),
                              check=False)

    def harness(self, *words: str) -> tuple[int, dict[str, Any]]:
        """`python -m harness ...`: exit code and the JSON that it printed."""
        done = subprocess.run([sys.executable, "-m", "harness", *words], cwd=self.path, text=True,
                              capture_output=True, timeout=400, env=_environment(), check=False)
        return done.returncode, json.loads(done.stdout)

    def report(self, out_dir: Path | None = None) -> dict[str, Any]:
        """train-model.json."""
        report: dict[str, Any] = json.loads(((out_dir or self.out_dir) / "train-model.json").read_text())
        return report

    def events(self) -> list[dict[str, Any]]:
        """Whole entries of the journal."""
        path = self.out_dir / "journal.jsonl"
        if not path.exists():
            return []
        lines = path.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    def wait_for_steps(self, count: int) -> int:
        """Until the toy trainer has logged so many steps; its PID."""
        log = self.path / "events" / "metrics.jsonl"
        wait_until(lambda: log.exists() and len(log.read_text().splitlines()) >= count)
        return self.launches[0]


def hear_sigint() -> None:
    """A shell lets what it starts in the background ignore SIGINT, and children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "REAL_STEP_"))}


def wait_until(condition: Callable[[], bool], timeout: float = 300.0) -> None:
    """Poll until the condition holds; fails the test otherwise."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.05)


def gone(pid: int) -> bool:
    """Whether a process has ended (a zombie has)."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def reasons(report: dict[str, Any]) -> set[str]:
    """Codes of why a report is not GO."""
    return {reason["code"] for reason in report["evidence"]["reasons"]}


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """A fresh project; whatever a test left running is ended."""
    found = Project(path=tmp_path)
    yield found
    for pid in found.launches:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            if process.cwd() == str(tmp_path):
                process.kill()
