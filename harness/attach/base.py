"""The Protocol of a source of bytes, and what may happen to one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Something happened to a source that a reader of the evidence must know."""

    kind: str
    """"rotated", "truncated", "vanished", "connection-lost" or "connection-back"."""
    message: str


class ByteSource(Protocol):
    """Output of a job that grows where others write it. Nothing is ever written to it."""

    @property
    def written_at(self) -> float:
        """When it was last seen to grow, seconds since the epoch, by its own clock where it has one."""
        ...

    @property
    def is_current(self) -> bool:
        """Whether the last `read` reached the end of what is there."""
        ...

    def read(self, limit: int) -> bytes:
        """What is new, at most `limit` bytes; b"" for nothing yet. Never blocks for longer than a local read."""
        ...

    def notices(self) -> list[Notice]:
        """What happened since the last call."""
        ...

    def close(self) -> None:
        """Let go of files and connections; idempotent."""
        ...
