"""Updates that a trainer's own lines tell of a run that left nothing but its log."""

from __future__ import annotations

from dataclasses import dataclass

from harness.record.run_record import RunRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldUpdates:
    """Updates by what a trainer printed of them, which proves none, and shows where there was none."""

    executed: int
    last_step: int | None
    """As printed."""
    skipped: int
    skipped_steps: tuple[int, ...]

    @property
    def text(self) -> str:
        """`1 update by its own lines, last at step 2; 2 skipped (steps 0, 1)`."""
        last = f", last at step {self.last_step}" if self.last_step is not None else ""
        steps = ", ".join(map(str, self.skipped_steps[:10])) + (", ..." if self.skipped > 10 else "")
        skipped = f"; {self.skipped} skipped (steps {steps})" if self.skipped else ""
        return f"{self.executed} update(s) by its own lines{last}{skipped}"


def told_updates(record: RunRecord) -> ToldUpdates | None:
    """What the journal holds of them; None where the log told of no loop."""
    told = record.fact("log-end", "updates")
    return told and ToldUpdates(executed=told["executed"], last_step=told.get("last_step"), skipped=told["skipped"],
                                skipped_steps=tuple(told.get("skipped_steps") or ()))
