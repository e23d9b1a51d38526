"""Starts the reaper and tells it good-bye."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path
from types import TracebackType

from harness.launch import reaper


class Reaper:
    """A small process that stops the run's processes when this one is killed (see launch.reaper)."""

    def __init__(self, token: str, journal: Path, *, grace_s: float) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-E", "-s", reaper.__file__, token, str(journal), str(grace_s)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """The reaper's own PID, which is no part of the job."""
        return self._process.pid

    def __enter__(self) -> Reaper:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """A clean end says `bye`; an exception leaves the reaper to its work."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            if kind is None:
                self._process.stdin.write(b"bye")
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=10)
