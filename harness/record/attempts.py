"""The attempts of one run, as its journal and metric store hold them: launches, and restarts within a launch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from harness.record.journal import Entry
from harness.record.run_record import RunRecord

MAX_RESTARTS = 3
"""How often a run is launched again: its declared budget unless --no-fix makes it 0."""
CLOCK_ROUNDING_S = 2.0
LAUNCH, ELASTIC, TOLD = "launch", "elastic", "told"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptSeen:
    """One launch, or one start of the workers within it."""

    index: int
    """From 1."""
    launched_at: float
    """Seconds since the epoch; 0 where nothing tells."""
    after_step: int | None
    """The newest training step that was logged before it; None for the first, and where none was."""
    first_step: int | None
    """The first training step that it logged itself."""
    end: Entry | None
    decision: Entry | None
    """What was decided about a restart after it."""
    kind: str = LAUNCH
    """LAUNCH, ELASTIC: workers that torch elastic started again, or TOLD: as the log of others' run tells."""
    restart: int | None = None
    """Number that torch elastic gives to the start of the workers, from 0; None where it has no part in it."""
    resumed_from: int | None = None
    """Completed steps that its own output says it resumed at."""
    cause: str | None = None
    """What ended it, where another one followed within the launch."""


def attempts(record: RunRecord) -> list[AttemptSeen]:
    """Every launch and every restart of its workers, in order."""
    found: list[AttemptSeen] = []
    launches = _launches(record)
    for number, launch in enumerate(launches):
        until = launches[number + 1].launched_at if number + 1 < len(launches) else float("inf")
        found += _elastic(record, launch, until) or [launch]
    if len(found) == 1:
        found = _told(record, found[0]) or found
    return [replace(attempt, index=index) for index, attempt in enumerate(found, start=1)]


def _launches(record: RunRecord) -> list[AttemptSeen]:
    ends = {entry.get("attempt"): entry for entry in record.every("attempt-ended")}
    decisions = {entry.get("attempt"): entry for entry in record.every("restart-decision")}
    first = record.store.first_steps() if record.store is not None else {}
    return [
        AttemptSeen(
            index=index,
            launched_at=float(entry.get("launched_at") or (0.0 if entry.get("asserted") else entry["time"])),
            after_step=entry.get("after_step"), first_step=first.get(index),
            end=ends.get(entry.get("attempt")), decision=decisions.get(entry.get("attempt")),
        )
        for index, entry in enumerate(record.every("attempt-started"), start=1)
    ]


def _elastic(record: RunRecord, launch: AttemptSeen, until: float) -> list[AttemptSeen]:
    """The starts of a launch's workers as the probe saw them, by torch elastic's count; none without a restart."""
    groups: dict[int, list[dict[str, Any]]] = {}
    for process in (record.fact("probe", "facts", {}) or {}).get("processes", []):
        number, started = process.get("restart"), float(process.get("started_at") or 0.0)
        if isinstance(number, int) and process.get("rank") is not None and (
                launch.launched_at - CLOCK_ROUNDING_S / 2 <= started < until):
            groups.setdefault(number, []).append(process)
    if not groups or max(groups) == 0:
        return []
    began, found = launch.launched_at, []
    for number in range(max(groups) + 1):
        group = groups.get(number, [])
        if number:
            began = min((float(process["started_at"]) for process in group), default=began)
        ended = max((float(process.get("updated_at") or began) for process in group), default=began)
        found.append(replace(
            launch, launched_at=began, restart=number, kind=ELASTIC if number else LAUNCH, decision=None,
            end={"ended_at": ended}, cause="workers failed, and torch elastic started them again"))
    found[-1] = replace(found[-1], end=launch.end, decision=launch.decision, cause=None)
    return _with_steps(record, found, until)


def _with_steps(record: RunRecord, found: list[AttemptSeen], until: float) -> list[AttemptSeen]:
    """The steps that each logged, by the time of its points."""
    if record.store is None:
        return found
    begins = [attempt.launched_at for attempt in found]
    spans = [record.store.steps_between(begin, end) for begin, end in zip(begins, [*begins[1:], until], strict=True)]
    return [replace(attempt, first_step=spans[number][0],
                    after_step=attempt.after_step if number == 0 else _newest(spans[:number]))
            for number, attempt in enumerate(found)]


def _newest(spans: list[tuple[int | None, int | None]]) -> int | None:
    return max((last for _, last in spans if last is not None), default=None)


def _told(record: RunRecord, launch: AttemptSeen) -> list[AttemptSeen]:
    """Starts of training in the log of a run that others made."""
    told = record.fact("log-end", "restarts") or []
    if not told:
        return []
    found = [replace(launch, end={}, cause=told[0].get("cause"))]
    found += [replace(launch, kind=TOLD, launched_at=0.0, end={}, decision=None, after_step=one.get("after_step"),
                      first_step=one.get("first_step"), resumed_from=one.get("resumed_from"),
                      cause=after.get("cause")) for one, after in zip(told, [*told[1:], {}], strict=True)]
    found[-1] = replace(found[-1], end=launch.end, decision=launch.decision)
    return found
