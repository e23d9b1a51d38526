"""A log on another machine, followed over the system's ssh.

Each look is a connection of its own: `stat` for inode and size, then `tail -c +N` from where the last one ended, so
that a cut connection costs nothing but time. The options are a list of our own, no shell of this machine is asked, and
BatchMode lets ssh never wait for a person: an unknown or changed host key is an error.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from harness.attach.base import Notice
from harness.errors import ConfigError, HarnessError

POLL_S = 2.0
FIRST_BACKOFF_S = 1.0
MAX_BACKOFF_S = 60.0
FIRST_TIMEOUT_S = 60.0
GUARD_BYTES = 64
CONNECTION_FAILED = 255
"""What ssh itself ends with; any other code is the remote command's."""
OPTIONS = (
    "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=5",
    "-o", "ServerAliveCountMax=3", "-o", "ClearAllForwardings=yes", "-o", "PermitLocalCommand=no",
    "-o", "LogLevel=ERROR",
)
MARK = "real-step-log"
"""Begins the line of what `stat` says, so that what a login prints before it is told apart."""
_HEADER = re.compile(MARK.encode() + rb" (\d+:\d+) (\d+) (\d+) regular[^\n]{0,40}\n")
_MAX_HEAD_BYTES = 64 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFile:
    """`user@host:path`."""

    destination: str
    path: str
    config: Path | None = None
    """ssh's configuration file, None for the user's own."""

    def argv(self, remote: str) -> list[str]:
        """The ssh command that runs `remote` there."""
        own = ["-F", str(self.config)] if self.config is not None else []
        return ["ssh", *own, *OPTIONS, "--", self.destination, remote]


@dataclass(slots=True)
class _Look:
    """A connection that is being read."""

    process: subprocess.Popen[bytes]
    output: IO[bytes]
    head: bytes = b""
    skip: int | None = None
    """Bytes of the guard that are still to be compared; None until the header is there."""
    is_void: bool = False
    """Whether what comes is of another file than was read before."""


class SshFile:
    """See ByteSource."""

    def __init__(self, remote: RemoteFile) -> None:
        """The first look, which waits. ConfigError where there is no such file, HarnessError where ssh fails."""
        self.remote = remote
        self.is_current = False
        self.written_at = 0.0
        self.lost_since: float | None = None
        """When the connection failed, by our clock; None while it holds."""
        self._notices: list[Notice] = []
        self._identity: bytes | None = None
        self._offset = 0
        self._guard = b""
        self._look: _Look | None = None
        self._is_missing = False
        self._next_at = 0.0
        self._backoff_s = FIRST_BACKOFF_S
        self._ask_first()

    def _ask_first(self) -> None:
        try:
            done = subprocess.run(self.remote.argv(self._stat()), stdin=subprocess.DEVNULL, capture_output=True,
                                  timeout=FIRST_TIMEOUT_S, check=False)
        except FileNotFoundError as error:
            raise HarnessError("ssh: no such program; install the OpenSSH client") from error
        except subprocess.TimeoutExpired as error:
            raise HarnessError(f"ssh {self.remote.destination}: no answer within {FIRST_TIMEOUT_S:.0f} s") from error
        said = _last_line(done.stderr)
        if done.returncode == CONNECTION_FAILED:
            raise HarnessError(f"ssh {self.remote.destination}: {said or 'the connection failed'}")
        if done.returncode != 0 or not _HEADER.search(done.stdout):
            raise ConfigError(f"{self.remote.destination}:{self.remote.path}: {said or 'no regular file there'}")

    def _stat(self) -> str:
        """Prints `device:inode size mtime type`."""
        return f"env LC_ALL=C stat -L -c '{MARK} %d:%i %s %Y %F' -- {shlex.quote(self.remote.path)}"

    def read(self, limit: int) -> bytes:
        """See ByteSource: looks every POLL_S, after a lost connection ever less often."""
        if self._look is None:
            if time.monotonic() < self._next_at:
                return b""
            self._begin()
        look = self._look
        assert look is not None
        data = look.output.read(limit)
        if data is None:
            return b""
        if not data:
            self._end(look)
            return b""
        return self._taken(look, data)

    def _begin(self) -> None:
        first = self._offset - len(self._guard) + 1
        name = shlex.quote(self.remote.path)
        remote = f"{self._stat()} && exec env LC_ALL=C tail -c +{first} -- {name}"
        process = subprocess.Popen(self.remote.argv(remote), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, bufsize=0)
        assert process.stdout is not None and process.stderr is not None
        for stream in (process.stdout, process.stderr):
            os.set_blocking(stream.fileno(), False)
        self._look = _Look(process=process, output=process.stdout)
        self.is_current = False

    def _taken(self, look: _Look, data: bytes) -> bytes:
        """What of the bytes of a look is new."""
        if look.skip is None:
            look.head += data
            match = _HEADER.search(look.head)
            if match is None:
                look.head = look.head[-_MAX_HEAD_BYTES:]
                return b""
            data, look.head = look.head[match.end():], b""
            self._met(look, match[1], int(match[2]))
            self.written_at = max(self.written_at, float(match[3]))
        assert look.skip is not None
        if look.skip and not look.is_void:
            at = len(self._guard) - look.skip
            part = data[: look.skip]
            if self._guard[at : at + len(part)] != part:
                self._void(look, "truncated", "was rewritten")
            look.skip -= len(part)
            data = data[len(part):]
        if look.is_void:
            return b""
        self._offset += len(data)
        self._guard = (self._guard + data)[-GUARD_BYTES:]
        return data

    def _met(self, look: _Look, identity: bytes, size: int) -> None:
        if self.lost_since is not None:
            lost, self.lost_since = time.time() - self.lost_since, None
            self._notices.append(Notice(kind="connection-back",
                                        message=f"{self.remote.destination}: connected again after {lost:.0f} s"))
        self._backoff_s = FIRST_BACKOFF_S
        look.skip = len(self._guard)
        known, self._identity = self._identity, identity
        if known not in (None, identity):
            self._void(look, "rotated", "was replaced by another file; what was added to the old one since is not seen")
        elif size < self._offset:
            self._void(look, "truncated", "was truncated")

    def _void(self, look: _Look, kind: str, what: str) -> None:
        """Another file: this look's bytes are let go, and the next one begins at its start."""
        self._notices.append(Notice(kind=kind, message=f"{self.remote.destination}:{self.remote.path} {what}"))
        look.is_void = True
        self._offset, self._guard = 0, b""

    def _end(self, look: _Look) -> None:
        code = look.process.wait()
        assert look.process.stderr is not None
        said = _last_line(look.process.stderr.read() or b"")
        self._close_look()
        if look.is_void:
            self._next_at = 0.0
        elif code == CONNECTION_FAILED or code < 0:
            self._lost(said or f"ssh ended with {code}")
        else:
            self.is_current = code == 0
            self._next_at = time.monotonic() + POLL_S
            if look.skip is None and not self._is_missing:
                self._notices.append(Notice(kind="vanished", message=f"{self.remote.destination}: {said or 'no file'}"))
            self._is_missing = look.skip is None

    def _lost(self, why: str) -> None:
        if self.lost_since is None:
            self.lost_since = time.time()
            message = f"{self.remote.destination}: {why}; trying again"
            self._notices.append(Notice(kind="connection-lost", message=message))
        self._next_at = time.monotonic() + self._backoff_s
        self._backoff_s = min(MAX_BACKOFF_S, 2 * self._backoff_s)

    def notices(self) -> list[Notice]:
        """See ByteSource."""
        found, self._notices = self._notices, []
        return found

    def _close_look(self) -> None:
        look, self._look = self._look, None
        if look is not None:
            look.output.close()
            if look.process.stderr is not None:
                look.process.stderr.close()

    def close(self) -> None:
        """See ByteSource; ends our own ssh, never anything there."""
        if self._look is not None:
            process = self._look.process
            with contextlib.suppress(OSError):
                process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=5)
            self._close_look()


def _last_line(text: bytes) -> str:
    lines = text.decode("utf-8", "replace").strip().splitlines()
    return lines[-1][:300] if lines else ""
