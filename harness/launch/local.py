"""The local launcher: a child in its own session and process group, its output through a pipe."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal as signals
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

import psutil

from harness.errors import LaunchError
from harness.launch import processes
from harness.launch.base import Exit, Handle, Straggler

PIPE_BYTES = 1 << 20
_F_SETPIPE_SZ = 1031


class LocalLauncher:
    """Owns one child process tree. `token` marks every process of it through the environment."""

    def __init__(self, token: str, *, exclude: frozenset[int] = frozenset()) -> None:
        self.token = token
        self.exclude = exclude
        """Helper processes of the supervisor that are no part of the job."""
        self._process: subprocess.Popen[bytes] | None = None
        self._output: int | None = None
        self._pidfd: int | None = None

    def submit(self, argv: tuple[str, ...], *, cwd: Path, env: Mapping[str, str]) -> Handle:
        """Start `argv` without a shell, again once the last one has ended. LaunchError when the system refuses."""
        read_end, write_end = os.pipe()
        with contextlib.suppress(OSError):
            fcntl.fcntl(read_end, _F_SETPIPE_SZ, PIPE_BYTES)
        try:
            self._process = subprocess.Popen(
                argv,
                cwd=cwd,
                env={**env, processes.MARKER: self.token},
                stdin=subprocess.DEVNULL,
                stdout=write_end,
                stderr=write_end,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            os.close(read_end)
            raise LaunchError(f"{argv[0]}: cannot be started: {error}", command=argv) from error
        finally:
            os.close(write_end)
        os.set_blocking(read_end, False)
        if self._output is not None:
            os.close(self._output)
        self._output = read_end
        with contextlib.suppress(OSError, AttributeError):
            self._pidfd = os.pidfd_open(self._process.pid)
        return self._handle(self._process.pid)

    @staticmethod
    def _handle(pid: int) -> Handle:
        try:
            create_time = psutil.Process(pid).create_time()
        except psutil.Error:
            create_time = 0.0
        return Handle(kind="local", pid=pid, pgid=pid, create_time=create_time, host=socket.gethostname())

    @property
    def pid(self) -> int | None:
        """The leader's PID, None before submit."""
        return self._process.pid if self._process else None

    def poll(self) -> Exit | None:
        """The leader's end, or None while it lives."""
        assert self._process is not None
        code = self._process.poll()
        if code is None:
            return None
        if code >= 0:
            return Exit(code=code, signal=None)
        return Exit(code=None, signal=_signal_name(-code))

    def wait_sources(self, *, output: bool = True) -> list[int]:
        """File descriptors that become readable on output (where that is wanted) or on the leader's end."""
        return [fd for fd in (self._output if output else None, self._pidfd) if fd is not None]

    def read_output(self, timeout_s: float) -> bytes:
        """Output since the last call; b"" for nothing. After end of file nothing is ever readable again."""
        if self._output is None:
            return b""
        if timeout_s > 0:
            select.select([self._output], [], [], timeout_s)
        try:
            data = os.read(self._output, PIPE_BYTES)
        except BlockingIOError:
            return b""
        if not data:
            os.close(self._output)
            self._output = None
        return data

    def leader_ended(self) -> None:
        """Stop waking up for the leader."""
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None

    def signal(self, number: int, *, group: bool) -> bool:
        """Signal the leader alone, or its group and everything that left the group."""
        if self._process is None:
            return False
        if not group:
            return self._process.poll() is None and processes.send(self._process.pid, number)
        reached = False
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)
            reached = True
        for pid in self.pids() - {self._process.pid}:
            reached = processes.send(pid, number) or reached
        return reached

    def family(self) -> set[int]:
        """Living descendants, which is every process of the run while this process adopts orphans."""
        return processes.descendants(os.getpid()) - self.exclude

    def leave_out(self, pid: int) -> None:
        """A helper process of the supervisor that is no part of the job."""
        self.exclude |= {pid}

    def pids(self) -> set[int]:
        """Every living process of the run by descent or by its marker; reads the environment of every process."""
        return (self.family() | processes.marked_pids(self.token)) - self.exclude

    def stragglers(self) -> list[Straggler]:
        """Living processes of the run other than its leader; zombies are reaped on the way."""
        self._reap()
        found = []
        for pid in sorted(self.pids() - {self.pid}):
            with contextlib.suppress(psutil.Error, ProcessLookupError, PermissionError):
                process = psutil.Process(pid)
                if processes.is_alive(process):
                    detached = os.getpgid(pid) != self.pid
                    found.append(Straggler(pid=pid, command=processes.describe(process), detached=detached))
        return found

    def _reap(self) -> None:
        """Collect adopted orphans that ended; the leader is Popen's to collect."""
        with contextlib.suppress(psutil.Error):
            for child in psutil.Process().children():
                if child.pid != self.pid and child.pid not in self.exclude:
                    with contextlib.suppress(ChildProcessError):
                        os.waitpid(child.pid, os.WNOHANG)


def _signal_name(number: int) -> str:
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"
