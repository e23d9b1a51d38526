"""A child that runs other people's code: limited in time, memory and output, and gone with all that it started."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from harness.launch.processes import MARKER, descendants, marked_pids

Take = Callable[[dict[str, Any]], None]
LOOK_EVERY_S = 0.1
TAIL_BYTES = 4000
MAX_MESSAGE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a child may use."""

    seconds: float = 300.0
    rss_bytes: int = 8 << 30
    """Resident memory of the child and all that it started."""
    output_bytes: int = 16 << 20
    """What it may print."""
    is_cancelled: Callable[[], bool] = lambda: False
    """Whether who asked wants no answer any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildEnd:
    """How a child ended; `problem` is "" where it ended by itself."""

    code: str = ""
    """interpreter, timeout, left-processes, died, output, memory or cancelled; "" beside no problem."""
    problem: str = ""
    output_tail: str = ""
    exit_code: int | None = None
    """Negative for a signal; None where it was stopped."""
    peak_bytes: int = 0
    """Largest resident memory that was seen."""


def run_child(
    argv: Sequence[str], request: Mapping[str, Any], take: Take, *, cwd: Path, environ: Mapping[str, str],
    limits: Limits, hold: bool = False, printed: Callable[[bytes], object] = lambda data: None,
) -> ChildEnd:
    """Run `argv` with a JSON request as a line on its standard input; `take` gets every message that it writes to
    the descriptor named in the request. Nothing that it started is left.

    `printed` gets what it prints. With `hold` its standard input stays open as long as this process lives, so that a
    child can end with it.
    """
    read_end, write_end = os.pipe()
    token = uuid.uuid4().hex
    try:
        process = subprocess.Popen(
            list(argv), cwd=cwd, env={**environ, MARKER: token}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True, pass_fds=(write_end,))
    except OSError as error:
        os.close(read_end)
        return ChildEnd(code="interpreter", problem=f"{argv[0]}: cannot be started: {error.strerror}")
    finally:
        os.close(write_end)
    watch = _Watch(process, read_end, take, limits, printed)
    try:
        with contextlib.suppress(BrokenPipeError):
            assert process.stdin is not None
            process.stdin.write(json.dumps({**request, "result_fd": write_end}).encode() + b"\n")
            process.stdin.flush()
            if not hold:
                process.stdin.close()
        return watch.until_its_end(token)
    finally:
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
        _end(process, token)
        os.close(read_end)
        if process.stdout:
            process.stdout.close()


class _Watch:
    """Reads what a child says and prints, and looks at what it uses."""

    def __init__(self, process: subprocess.Popen[bytes], results: int, take: Take, limits: Limits,
                 tell: Callable[[bytes], object]) -> None:
        self.process, self.results, self.take, self.limits, self.tell = process, results, take, limits, tell
        self.buffer = bytearray()
        self.tail = bytearray()
        self.printed = self.peak = 0
        self.open = 2

    def until_its_end(self, token: str) -> ChildEnd:
        deadline = time.monotonic() + self.limits.seconds
        look = 0.0
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            for descriptor in (self.results, self.process.stdout.fileno()):
                os.set_blocking(descriptor, False)
                selector.register(descriptor, selectors.EVENT_READ)
            while self.open:
                ended = self.process.poll() is not None
                ready = selector.select(0 if ended else LOOK_EVERY_S)
                for key, _ in ready:
                    if not self._read(key.fd):
                        selector.unregister(key.fd)
                        self.open -= 1
                now = time.monotonic()
                problem = self._problem(now, deadline)
                if problem is None and now >= look:
                    look, problem = now + LOOK_EVERY_S, self._too_large()
                if problem is not None:
                    return self._end(*problem)
                if ended and not ready:
                    break
        return self._ended(token, deadline)

    def _ended(self, token: str, deadline: float) -> ChildEnd:
        """Both pipes are closed, or the leader is gone and something else holds them."""
        try:
            code = self.process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return self._end("timeout", self._late())
        if left := len(marked_pids(token)):
            message = f"it left {left} process{'es' if left > 1 else ''} behind, which were stopped"
            return self._end("left-processes", message, code)
        if code != 0:
            how = f"exit code {code}" if code > 0 else signal.Signals(-code).name
            return self._end("died", f"it ended with {how}", code)
        return self._end("", "", code)

    def _end(self, code: str, problem: str, exit_code: int | None = None) -> ChildEnd:
        return ChildEnd(code=code, problem=problem, output_tail=self._tail(), exit_code=exit_code,
                        peak_bytes=self.peak)

    def _read(self, descriptor: int) -> bool:
        try:
            data = os.read(descriptor, 1 << 16)
        except BlockingIOError:
            return True
        if descriptor == self.results:
            self._results(data)
        else:
            self.printed += len(data)
            self.tell(data)
            self.tail += data
            del self.tail[:-TAIL_BYTES]
        return bool(data)

    def _results(self, data: bytes) -> None:
        self.buffer += data
        if b"\n" not in data:
            return
        while (stop := self.buffer.find(b"\n")) >= 0:
            line = bytes(self.buffer[:stop])
            del self.buffer[: stop + 1]
            with contextlib.suppress(ValueError, RecursionError):
                message = json.loads(line)
                if isinstance(message, dict):
                    self.take(message)

    def _problem(self, now: float, deadline: float) -> tuple[str, str] | None:
        if self.printed > self.limits.output_bytes:
            return "output", f"it printed more than {self.limits.output_bytes >> 20} MiB"
        if len(self.buffer) > MAX_MESSAGE_BYTES:
            return "output", f"it sent a message longer than {MAX_MESSAGE_BYTES >> 20} MiB"
        if self.limits.is_cancelled():
            return "cancelled", "the harness was told to end"
        return ("timeout", self._late()) if now > deadline else None

    def _late(self) -> str:
        return f"it did not end within {round(self.limits.seconds, 2):g} s"

    def _too_large(self) -> tuple[str, str] | None:
        used = 0
        for pid in (self.process.pid, *descendants(self.process.pid)):
            with contextlib.suppress(psutil.Error):
                used += psutil.Process(pid).memory_info().rss
        self.peak = max(self.peak, used)
        if used <= self.limits.rss_bytes:
            return None
        return "memory", f"it used more than {self.limits.rss_bytes / (1 << 30):.1f} GiB of memory"

    def _tail(self) -> str:
        return bytes(self.tail).decode("utf-8", "replace").strip()


def _end(process: subprocess.Popen[bytes], token: str) -> None:
    """Kill the child, its session, and whatever still carries the token."""
    for _ in range(3):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        left = marked_pids(token) - {process.pid}
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not left:
            break
        time.sleep(0.02)
    process.wait()
