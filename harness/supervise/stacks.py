"""Stacks of a run's processes by py-spy, where it is installed and the system allows it; bounded in time and size."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

TIME_LIMIT_S = 10.0
"""For one process."""
MAX_PROCESSES = 8
MAX_BYTES = 64 << 10
"""Of one process."""


class Stacks:
    """One dump at a time: `start`, then `poll` until it gives the text. Never blocks."""

    def __init__(self) -> None:
        self.program = find_program()
        self.problem: str | None = None
        """What kept the last dump from being whole."""
        self._pids: list[int] = []
        self._parts: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._file: IO[bytes] | None = None
        self._until = 0.0
        self._exclude: Callable[[int], None] = lambda pid: None

    def start(self, pids: Sequence[int], *, exclude: Callable[[int], None] = lambda pid: None) -> bool:
        """Begin to dump these processes; False where there is no py-spy or a dump is under way.

        `exclude` is told the PID of every helper, which is none of the run's.
        """
        if self.program is None or self._process is not None or not pids:
            return False
        self._pids, self._parts, self.problem, self._exclude = list(pids[:MAX_PROCESSES]), [], None, exclude
        self._next()
        return True

    def poll(self) -> str | None:
        """The text of all processes, once, when the last one is done."""
        if self._process is None:
            return None
        code = self._process.poll()
        if code is None and time.monotonic() < self._until:
            return None
        self._collect(code)
        if self._pids:
            self._next()
        return "\n".join(self._parts) if self._process is None else None

    def stop(self) -> None:
        """End what is under way."""
        self._pids.clear()
        if self._process is not None:
            self._collect(None)

    def _next(self) -> None:
        pid = self._pids.pop(0)
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 (closed in _collect)
        try:
            self._process = subprocess.Popen(
                [str(self.program), "dump", "--pid", str(pid)], stdin=subprocess.DEVNULL, stdout=self._file,
                stderr=subprocess.STDOUT)
        except OSError as error:
            self.problem = str(error)
            self._file.close()
            self._pids.clear()
            return
        self._exclude(self._process.pid)
        self._until = time.monotonic() + TIME_LIMIT_S

    def _collect(self, code: int | None) -> None:
        assert self._process is not None
        assert self._file is not None
        if code is None:
            self.problem = f"py-spy took more than {TIME_LIMIT_S:g} s"
            with contextlib.suppress(OSError):
                self._process.kill()
            self._process.wait()
        elif code != 0:
            self.problem = f"py-spy ended with exit code {code}"
        self._file.seek(0)
        self._parts.append(self._file.read(MAX_BYTES).decode("utf-8", "replace"))
        self._file.close()
        self._process = None


def find_program() -> Path | None:
    """py-spy on PATH, or beside this Python."""
    beside = Path(sys.executable).with_name("py-spy")
    found = shutil.which("py-spy")
    return Path(found) if found else beside if beside.exists() else None
