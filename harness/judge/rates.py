"""A learning rate that is exactly 0 while the run goes on: a schedule that counted fewer steps than were made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from harness.judge.observe import Observation
from harness.record.merge import PRINTED
from harness.record.series import TagSummary

SHARE = 0.25
"""Of the run, above which a rate of 0 is no end of a schedule any more."""
FEWEST_POINTS = 3
"""Logged points at 0 below which nothing is said."""
FEWEST_STEPS = 10
"""Applied steps below which nothing is said: of two steps one may be the start of a warm-up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """The end of the run, in which every logged rate is exactly 0."""

    tags: str
    since: int
    last: int
    share: float
    """Of the steps that the series span, 0 to 1."""


def rests(seen: Observation) -> Rest | None:
    """The rest of the run at rate 0, where it is long; None where some series that was ever above 0 ends above it.
    What was only printed does not count, since small rates may have been rounded to 0."""
    tags = [tag for tag in seen.lr if tag.fresh_points and tag.kind != PRINTED]
    if seen.record.store is None or not any(tag.max_finite for tag in tags):
        return None
    ends = [(tag, _tail(seen, tag)) for tag in tags if tag.max_finite]
    if any(since is None for _, since in ends):
        return None
    since = max(step for _, step in ends if step is not None)
    first = min(tag.first_step or 0 for tag, _ in ends)
    last = max(tag.last_step or 0 for tag, _ in ends)
    share = (last - since) / (last - first) if last > first else 0.0
    names = ", ".join(tag.tag for tag, _ in ends[:3])
    return Rest(tags=names, since=since, last=last, share=share) if share > SHARE else None


def _tail(seen: Observation, tag: TagSummary) -> int | None:
    """The step from which on a series is 0, with enough points."""
    assert seen.record.store is not None
    since, points = None, 0
    for point in seen.record.store.iter_series(tag.tag, run=tag.run):
        if point.value != 0:
            since, points = None, 0
        else:
            since, points = point.step if since is None else since, points + 1
    return since if points >= FEWEST_POINTS else None


def idle_steps(seen: Observation) -> tuple[int, int] | None:
    """(applied steps with a rate of 0, applied steps) of the optimizer that stepped most, by the probe, where it was
    so for a large part and every other optimizer of that process had as large a one."""
    processes = (seen.record.fact("probe", "facts", {}) or {}).get("processes") or []
    most: dict[str, Any] = max(processes, key=lambda process: int(process.get("steps") or 0), default={})
    found = []
    for optimizer in most.get("optimizers") or []:
        steps = int(optimizer.get("steps") or 0)
        idle = steps - int(optimizer.get("lr_positive_steps") or 0) - int(optimizer.get("lr_unknown_steps") or 0)
        if steps:
            found.append((idle, steps))
    if not found or any(idle <= SHARE * steps or steps < FEWEST_STEPS or idle == steps for idle, steps in found):
        return None
    return max(found, key=lambda counts: counts[1])
