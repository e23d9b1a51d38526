"""The attempts of one run, as its journal and metric store hold them."""

from __future__ import annotations

from dataclasses import dataclass

from harness.record.journal import Entry
from harness.record.run_record import RunRecord

MAX_RESTARTS = 3
"""How often a run is launched again: its declared budget unless --no-fix makes it 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptSeen:
    """One launch."""

    index: int
    """From 1."""
    launched_at: float
    """Seconds since the epoch."""
    after_step: int | None
    """The newest training step that was logged before it; None for the first, and where none was."""
    first_step: int | None
    """The first training step that it logged itself."""
    end: Entry | None
    decision: Entry | None
    """What was decided about a restart after it."""


def attempts(record: RunRecord) -> list[AttemptSeen]:
    """Every launch, in order."""
    ends = {entry.get("attempt"): entry for entry in record.every("attempt-ended")}
    decisions = {entry.get("attempt"): entry for entry in record.every("restart-decision")}
    first = record.store.first_steps() if record.store is not None else {}
    return [
        AttemptSeen(
            index=index, launched_at=float(entry.get("launched_at") or entry["time"]),
            after_step=entry.get("after_step"), first_step=first.get(index),
            end=ends.get(entry.get("attempt")), decision=decisions.get(entry.get("attempt")),
        )
        for index, entry in enumerate(record.every("attempt-started"), start=1)
    ]
