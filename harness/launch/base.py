"""The Protocol of a launcher: how a run is started, looked at, signalled and found again."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Handle:
    """Enough to find a local job again without mistaking a reused PID for it."""

    kind: str
    pid: int
    pgid: int
    create_time: float
    """Process start, seconds since the epoch."""
    host: str

    def to_json(self) -> dict[str, Any]:
        """JSON-ready mapping for the journal."""
        return dataclasses.asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """How the leader ended: an exit code, or the signal that killed it."""

    code: int | None
    signal: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Straggler:
    """A process of the run that outlived its leader."""

    pid: int
    command: str
    detached: bool
    """Whether it had left the run's process group."""


class Watched(Protocol):
    """What the collection of a run's facts asks of the job itself, whoever started it."""

    def family(self) -> set[int]:
        """Living processes of the run on this machine."""
        ...

    def leave_out(self, pid: int) -> None:
        """A helper of the harness that is none of the run's processes."""
        ...

    def read_output(self, timeout_s: float) -> bytes:
        """What the job printed since the last call, waiting up to `timeout_s` for the first byte; b"" for nothing."""
        ...


class Launcher(Protocol):
    """One way to run a job. `submit` once, then poll."""

    def submit(self, argv: tuple[str, ...], *, cwd: Path, env: Mapping[str, str]) -> Handle:
        """Start the job; LaunchError when it cannot be started."""
        ...

    def poll(self) -> Exit | None:
        """The leader's end, or None while it lives; never blocks."""
        ...

    def read_output(self, timeout_s: float) -> bytes:
        """What the job printed since the last call, waiting up to `timeout_s` for the first byte; b"" for nothing."""
        ...

    def signal(self, number: int, *, group: bool) -> bool:
        """Signal the leader, or everything of the run; whether anything was there to receive it."""
        ...

    def stragglers(self) -> list[Straggler]:
        """Living processes of the run other than its leader."""
        ...
