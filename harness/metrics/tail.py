"""TailedFile: what every reader of a growing file shares. Nothing is kept open between polls."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

from harness.metrics.model import EventColumns, RestartMarker, SourceProblem

GUARD_BYTES = 64
"""So many bytes before the read position are compared before reading on: a file can be rewritten in place."""


class TailedFile:
    """A file that another process appends to. Subclasses read records in `_read` and call `_consume`."""

    kind = ""

    def __init__(self, path: Path, first_offset: int) -> None:
        self.path = path
        self.first_offset = first_offset
        self.opened_at = 0.0
        self.ended = ""
        self.offset = 0
        """Where the next record begins."""
        self._digest = hashlib.sha256()
        self.identity: tuple[int, int] | None = None
        """(device, inode) of the file that is read; of whatever the first poll finds, where nobody set it."""
        self._size = 0
        self._tried = 0
        self._needed = 0
        """Bytes from `offset` on that must be there before reading is worth it."""
        self._padded = False
        """The tail is preallocated: it can be written without the file growing."""
        self._guard = b""
        self._lasting: list[SourceProblem] = []
        self._passing: SourceProblem | None = None

    @property
    def bytes_read(self) -> int:
        """Bytes consumed from first_offset on."""
        return max(0, self.offset - self.first_offset)

    @property
    def sha256(self) -> str:
        """Digest of the consumed range."""
        return self._digest.hexdigest()

    def problems(self, *, final: bool = False) -> list[SourceProblem]:
        """Damage so far; an unfinished record only when no more bytes will come."""
        found = [*self._lasting, *([self._passing] if self._passing else [])]
        if final and not self.ended and self._size > self.offset and not self._padded:
            found.append(
                self._problem(
                    "cut-tail",
                    self.offset,
                    f"{self._size - self.offset} bytes of an unfinished record at the end",
                )
            )
        return found

    def poll(self, *, final: bool = False) -> Iterator[EventColumns | RestartMarker]:
        """What was appended since the last poll, in chunks."""
        if self.ended:
            return
        self._passing = None
        try:
            if not self._has_news(self.path.stat(), final):
                return
            with self.path.open("rb", buffering=0) as file:
                if self._has_news(os.fstat(file.fileno()), final) and self._goes_on(file):
                    self._tried = self._size
                    yield from self._read(file, final=final)
        except (FileNotFoundError, NotADirectoryError):
            self._passing = self._problem("vanished", None, "the file is gone")
        except OSError as error:
            self._passing = self._problem("unreadable", self.offset, error.strerror or str(error))

    def _read(self, file: FileIO, *, final: bool) -> Iterator[EventColumns | RestartMarker]:
        """Read from `offset`, where the file stands, to the end."""
        raise NotImplementedError

    def _has_news(self, status: os.stat_result, final: bool) -> bool:
        identity = status.st_dev, status.st_ino
        if self.identity not in (None, identity):
            self._end("replaced", 0, "another file took its name")
            return False
        self.identity = identity
        if status.st_size < self.offset:
            self._end("truncated", status.st_size, "the file became shorter than what was read of it")
            return False
        self._size = status.st_size
        changed = self._size != self._tried or self._padded or final
        return changed and self._size > self.offset and self._size >= self.offset + self._needed

    def _goes_on(self, file: FileIO) -> bool:
        """Whether what was read last is still there; leaves the file at `offset`."""
        file.seek(self.offset - len(self._guard))
        if file.read(len(self._guard)) == self._guard:
            return True
        self._end("truncated", 0, "the file was rewritten in place")
        return False

    def _consume(self, data: bytes, *, skip: int = 0) -> None:
        """`data` from `offset` on is read; its first `skip` bytes were there before the launch."""
        self._digest.update(memoryview(data)[skip:])
        self.offset += len(data)
        self._guard = (self._guard + data[-GUARD_BYTES:])[-GUARD_BYTES:]

    def _problem(self, code: str, offset: int | None, message: str) -> SourceProblem:
        return SourceProblem(code=code, path=self.path, offset=offset, message=message)

    def _report_once(self, code: str, offset: int | None, message: str) -> None:
        if not any(problem.code == code for problem in self._lasting):
            self._lasting.append(self._problem(code, offset, message))

    def _end(self, code: str, offset: int | None, message: str) -> None:
        self.ended = code
        self._lasting.append(self._problem(code, offset, message))
