"""MetricEvent: one scalar as its writer wrote it."""

from __future__ import annotations

from typing import NamedTuple


class MetricEvent(NamedTuple):
    """One scalar, in the trainer's own step base."""

    tag: str
    step: int
    value: float
    wall_time: float
    """Writer's clock, seconds since the epoch; 0.0 where the source has none."""
