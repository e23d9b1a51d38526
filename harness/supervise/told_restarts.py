"""Restarts that the log of a run tells that others made: where each went back to, and what had ended the one before."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.diagnosis.inputs import find_inputs
from harness.diagnosis.model import Event, EventKind
from harness.diagnosis.read import read_run
from harness.metrics.stdout_places import Restart
from harness.record.redaction import Redactor
from harness.record.vocabulary import PrimaryCause


def told_restarts(logs: Sequence[Path], found: Sequence[Restart], redactor: Redactor) -> list[dict[str, Any]]:
    """[{after_step, first_step, resumed_from, cause}] for the journal, in the order of the log; [] for none."""
    if not found:
        return []
    events = read_run(find_inputs(logs).logs).finding.recovered
    causes = [_cause(event) for event in events if _ended_it(event)]
    return [{"after_step": restart.after_step, "first_step": restart.first_step,
             "resumed_from": restart.resumed_from, "cause": redactor.text(cause) if cause else None}
            for restart, cause in zip(found, [*causes, *[None] * len(found)], strict=False)]


def _ended_it(event: Event) -> bool:
    return event.kind is EventKind.EXIT or (event.rule is not None and event.rule.cause is PrimaryCause.INTERRUPTED)


def _cause(event: Event) -> str:
    name = event.rule.id if event.rule is not None else "exit"
    return f"{name}: {' '.join(event.text.split())[:200]}"
