"""What the processes of a restarted run counted, each from the step that its attempt resumed at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from harness.record.attempts import AttemptSeen

CLOCK_ROUNDING_S = 2.0


def chained(
    processes: Sequence[dict[str, Any]], launches: Sequence[AttemptSeen], checkpoints: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """The probe's processes with their counts of steps raised by what the attempts before theirs had completed, so
    that they can be compared with a series that runs through all attempts."""
    if len(launches) <= 1:
        return list(processes)
    saved = list(checkpoints)
    bases = [resumed_after(launch, launches[0], saved) for launch in launches]
    return [_raised(process, bases[_attempt_of(process, launches)]) for process in processes]


def resumed_after(launch: AttemptSeen, first: AttemptSeen, checkpoints: Iterable[Mapping[str, Any]]) -> int:
    """Steps that attempts before had completed: 0 for one that began anew, else the newest step that was saved before
    its launch and lies before its first own one."""
    if launch is first:
        return 0
    if launch.resumed_from is not None:
        return launch.resumed_from
    begun, origin = launch.first_step, first.first_step
    if begun is not None and origin is not None and begun <= origin:
        return 0
    saved = saved_before(launch, checkpoints)
    if saved is not None:
        return saved
    return 0 if begun is None else max(0, begun - 1)


def saved_before(launch: AttemptSeen, checkpoints: Iterable[Mapping[str, Any]]) -> int | None:
    """The newest step that an attempt can have resumed at, None where none was saved.

    The one just before its first own step counts whenever it was written: some trainers save what they resumed from.
    """
    begun = launch.first_step
    return max((item["step"] for item in checkpoints
                if isinstance(item.get("step"), int) and item.get("status") != "damaged"
                and (begun is None or item["step"] < begun)
                and (item["step"] + 1 == begun or (item.get("written_at") or 0.0) < launch.launched_at)), default=None)


def _attempt_of(process: Mapping[str, Any], launches: Sequence[AttemptSeen]) -> int:
    started = process.get("started_at")
    moment = started if isinstance(started, (int, float)) else 0.0
    return max((index for index, launch in enumerate(launches)
                if launch.launched_at - CLOCK_ROUNDING_S / 2 <= moment
                and launch.restart in (None, process.get("restart"))), default=0)


def _raised(process: dict[str, Any], base: int) -> dict[str, Any]:
    if not base:
        return process
    optimizers = [_add(item, base) for item in process.get("optimizers") or [] if isinstance(item, dict)]
    return {**_add(process, base), "optimizers": optimizers}


def _add(counts: dict[str, Any], base: int) -> dict[str, Any]:
    steps = counts.get("steps")
    return {**counts, "steps": steps + base} if isinstance(steps, int) and steps > 0 else counts
