"""A log on this machine, followed through rotation and truncation."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from harness.attach.base import Notice
from harness.errors import ConfigError

GUARD_BYTES = 64
"""So many bytes before the read position are compared before reading on: a file can be rewritten in place."""


class LocalFile:
    """Reads from the file's beginning. See ByteSource."""

    def __init__(self, path: Path) -> None:
        """ConfigError where there is no regular file that can be read."""
        self.path = path
        self.is_current = False
        self._notices: list[Notice] = []
        self._offset = 0
        self._guard = b""
        self._is_missing = False
        self._written_at = 0.0
        self._mtime_ns = 0
        try:
            self._handle: int | None = self._open()
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error

    def _open(self) -> int:
        handle = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise OSError(0, "not a regular file")
        return handle

    @property
    def written_at(self) -> float:
        """Its time of modification."""
        return self._written_at

    @property
    def identity(self) -> tuple[int, int]:
        """(device, inode) of the file that is being read."""
        assert self._handle is not None
        status = os.fstat(self._handle)
        return status.st_dev, status.st_ino

    def read(self, limit: int) -> bytes:
        """See ByteSource. At the end of the file a look for another one under its name."""
        if self._handle is None:
            return b""
        self.is_current = False
        status = os.fstat(self._handle)
        self._written_at = max(self._written_at, status.st_mtime)
        changed, self._mtime_ns = status.st_mtime_ns != self._mtime_ns, status.st_mtime_ns
        changed = changed or status.st_size != self._offset
        if status.st_size < self._offset or (changed and not self._goes_on()):
            self._begin_anew("truncated", f"{self.path} was truncated or rewritten; read from its start again")
        data = os.pread(self._handle, limit, self._offset)
        if data:
            self._offset += len(data)
            self._guard = (self._guard + data)[-GUARD_BYTES:]
        elif not self._is_replaced():
            self.is_current = True
        return data

    def _goes_on(self) -> bool:
        assert self._handle is not None
        return os.pread(self._handle, len(self._guard), self._offset - len(self._guard)) == self._guard

    def _begin_anew(self, kind: str, message: str) -> None:
        self._notices.append(Notice(kind=kind, message=message))
        self._offset, self._guard = 0, b""

    def _is_replaced(self) -> bool:
        """Whether another file took the name: that one is read from now on."""
        assert self._handle is not None
        try:
            status = self.path.stat()
            same = (status.st_dev, status.st_ino) == self.identity
            handle = None if same else self._open()
        except OSError as error:
            if not self._is_missing:
                self._is_missing = True
                self._notices.append(Notice(
                    kind="vanished", message=f"{self.path}: {error.strerror or error}; what was open is followed"))
            return False
        self._is_missing = False
        if handle is None:
            return False
        os.close(self._handle)
        self._handle = handle
        self._begin_anew("rotated", f"{self.path} was replaced by another file, which is followed")
        return True

    def notices(self) -> list[Notice]:
        """See ByteSource."""
        found, self._notices = self._notices, []
        return found

    def close(self) -> None:
        """See ByteSource."""
        if self._handle is not None:
            with contextlib.suppress(OSError):
                os.close(self._handle)
            self._handle = None
