"""What every metric source yields, and the Protocol of a source reader."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from harness.record.events import MetricEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceProblem:
    """Damage in a source; what was whole before it is kept."""

    code: str
    """"bad-crc", "cut-tail", "not-parsable", "unreadable", "vanished", "truncated"."""
    path: Path
    offset: int | None
    """Byte offset (or line number for text sources) where it begins."""
    message: str


class SourceReader(Protocol):
    """Reads one file incrementally: each poll yields what was appended since the last one."""

    path: Path
    kind: str
    """"tensorboard" or "jsonl"."""
    bytes_read: int
    """Bytes consumed so far, always at the end of a whole record."""

    def poll(self) -> Iterator[list[MetricEvent]]:
        """New events in batches of bounded size; never raises for content, see `problems`."""
        ...

    def problems(self, *, final: bool = False) -> list[SourceProblem]:
        """What is wrong so far; a cut tail is a problem only when no more bytes will come (`final`)."""
        ...
