"""What every metric source yields, and the Protocol of a source reader."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from harness.record.events import EventColumns

__all__ = ["Counter", "EventColumns", "Part", "RestartMarker", "SourceProblem", "SourceReader"]


class RestartMarker(NamedTuple):
    """The writer says that it starts again at `step`: what it wrote before at or above it is void."""

    step: int


class Part(NamedTuple):
    """What follows belongs to this run of those that one file holds."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter:
    """A trainer's own count of its steps, as a file of it says. Steps are completed ones."""

    step: int
    resumed_at: int
    """Where this run began: 0, or the step of the checkpoint that it resumed from."""
    planned: int | None
    """The total that the trainer itself resolved."""
    epoch: float | None
    planned_epochs: float | None
    is_final: bool
    """Whether the file is the trainer's last word, and not a checkpoint's copy."""
    patience: int | None = None
    """Of the trainer's own early stopping, in evaluations; None without one."""
    waited: int | None = None
    """Evaluations without an improvement that it has seen by then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceProblem:
    """Damage in a source; what was whole before it is kept."""

    code: str
    """"bad-crc", "cut-tail", "not-parsable", "oversized", "unreadable", "vanished", "steps-unknown", "truncated"
    (rewritten from an earlier byte) or "replaced" (another file under the same name)."""
    path: Path
    offset: int | None
    """Byte offset where it begins."""
    message: str


class SourceReader(Protocol):
    """Reads one file incrementally: each poll yields what was appended since the last one."""

    path: Path
    kind: str
    """One of harness.record.merge.KIND_ORDER."""
    first_offset: int
    """Where counting begins: the bytes before it were there before the launch."""
    bytes_read: int
    """Bytes consumed from `first_offset` on, always to the end of a whole record."""
    opened_at: float
    """When the writer says it opened the file; 0.0 where the source does not tell."""
    ended: str
    """Code of the problem after which this reader gives nothing more, '' while it may."""

    @property
    def sha256(self) -> str:
        """Digest of the consumed range."""
        ...

    def poll(self, *, final: bool = False) -> Iterator[EventColumns | RestartMarker | Part]:
        """New events in batches of bounded size; never raises for content, see `problems`.

        `final`: no more bytes will come, so a last line without its newline counts if it is whole.
        """
        ...

    def problems(self, *, final: bool = False) -> list[SourceProblem]:
        """What is wrong so far; a cut tail is a problem only when no more bytes will come (`final`)."""
        ...
