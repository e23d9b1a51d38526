"""train.log: the trainer's output as it came, known secrets masked as they stream."""

from __future__ import annotations

import os
import re
from pathlib import Path

from harness.record.redaction import StreamRedactor
from harness.supervise.stop_trace import StopTrace

TAIL_BYTES = 64 << 10
_EXCEPTION = re.compile(rb"^([A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Warning|Iteration)[\w.]*(?::.*)?)$", re.M)
RESERVE_BYTES = 32 << 20
"""Room that the log leaves to the evidence, or a quarter of the file system where that is less."""
CHECK_EVERY_BYTES = 256 << 10
LINES_AFTER = 10
"""A traceback that so many lines follow was survived."""
_TRACEBACK = b"Traceback (most recent call last):"
_ASIDE = re.compile(rb"(?i)^(exception ignored (in|on|while)|exception in thread|error in atexit|.{0,9}logging error)")
"""What Python writes before the traceback of an exception that ends no program."""


class LogWriter:
    """Writes what is fed; a full disk loses bytes, which are counted, and stops nothing."""

    def __init__(self, path: Path, stream: StreamRedactor) -> None:
        self.path = path
        self.received = 0
        """Bytes that the job printed."""
        self.lost = 0
        """Bytes that could not be written."""
        self.stop_trace = StopTrace()
        self.is_full = False
        """Whether the disk had no room for more of it when it was last looked at."""
        self._unchecked = CHECK_EVERY_BYTES
        self._stream = stream
        self._handle: int | None = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def feed(self, data: bytes) -> None:
        """Output of the job."""
        self.received += len(data)
        self.stop_trace.feed(data)
        self._write(self._stream.feed(data))

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        self._unchecked += len(data)
        if self._handle is not None and (self._unchecked >= CHECK_EVERY_BYTES or self.is_full):
            self._unchecked = 0
            self.is_full = not _has_room(self._handle, len(data))
        if self.is_full:
            self.lost += len(view)
            return
        while view and self._handle is not None:
            try:
                view = view[os.write(self._handle, view):]
            except OSError:
                self.lost += len(view)
                return

    def close(self) -> None:
        """Write what was held back; idempotent."""
        if self._handle is not None:
            self.stop_trace.end()
            self._write(self._stream.flush())
            os.close(self._handle)
            self._handle = None

    def tail(self) -> bytes:
        """The last 64 KiB that were written, b"" where they cannot be read."""
        try:
            with self.path.open("rb") as handle:
                handle.seek(max(0, handle.seek(0, os.SEEK_END) - TAIL_BYTES))
                return handle.read()
        except OSError:
            return b""

    def last_exception(self) -> tuple[str | None, bool]:
        """The exception that the log's last traceback ends with, when only little follows it; whether nothing does,
        and Python did not note it aside."""
        before, found, after = self.tail().rpartition(_TRACEBACK)
        if not found:
            return None, False
        match = _EXCEPTION.search(after)
        if match and after.count(b"\n", match.end()) > LINES_AFTER:
            return None, False
        if match is None:
            return "an exception without a readable type", False
        is_aside = _ASIDE.search(before.rstrip().rpartition(b"\n")[2]) is not None
        return match.group(1).decode("utf-8", "replace")[:500], not is_aside and not after[match.end():].strip()


def _has_room(handle: int, wanted_bytes: int) -> bool:
    """Whether the file system has more than the reserve left once that is written."""
    try:
        system = os.fstatvfs(handle)
    except OSError:
        return True
    left = system.f_bavail * system.f_frsize - wanted_bytes
    return left > min(RESERVE_BYTES, system.f_blocks * system.f_frsize // 4)
