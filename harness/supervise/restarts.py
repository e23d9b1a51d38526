"""The one thing that the harness mends by itself: a launch that infrastructure ended is launched again, unchanged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from harness.diagnosis.infrastructure import Cause, infrastructure_cause
from harness.launch.base import Exit
from harness.record.attempts import MAX_RESTARTS
from harness.supervise.attempt import Run

RESTART_PAUSES_S = (1.0, 4.0, 10.0)
"""Before each restart, since what failed may need a while."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What is done about a launch that infrastructure ended."""

    restart: bool
    cause: Cause
    why_not: str = ""

    def to_json(self) -> dict[str, Any]:
        """For the journal."""
        return {"restart": self.restart, "cause": self.cause.name, "line": self.cause.line, "why_not": self.why_not}

    def line(self) -> str:
        """For the terminal."""
        told = f"{self.cause.name}: {self.cause.line}"
        return f"{'Restarting the unchanged command' if self.restart else f'Not restarted, {self.why_not}'} ({told})"


def decide(ended: Exit, run: Run, number: int) -> Decision | None:
    """About the `number`th launch; None where there is nothing to decide: it ended well, was stopped, or by itself."""
    if run.stopping.reason is not None or run.collection.has_nonfinite_loss():
        return None
    run.collection.log.close()
    told = infrastructure_cause(ended.code, ended.signal, run.collection.log.path)
    if told is None:
        return None
    cause = Cause(name=told.name, line=run.plan.redactor.text(told.line))
    if not run.plan.spec.fix:
        return Decision(restart=False, cause=cause, why_not="--no-fix")
    allowed = int(dict(run.plan.spec.thresholds).get("restarts", MAX_RESTARTS))
    if number > allowed:
        return Decision(restart=False, cause=cause, why_not=f"{allowed} restarts were made already")
    return Decision(restart=True, cause=cause)

