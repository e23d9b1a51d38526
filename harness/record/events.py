"""MetricEvent: one scalar as its writer wrote it; EventColumns: a batch of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple


class MetricEvent(NamedTuple):
    """One scalar, in the trainer's own step base."""

    tag: str
    step: int
    value: float
    wall_time: float
    """Writer's clock, seconds since the epoch; 0.0 where the source has none."""


class EventColumns(NamedTuple):
    """A batch of events by column: event i is (tags[tag[i]], step[i], value[i], wall_time[i])."""

    tags: Sequence[str]
    tag: list[int]
    step: list[int]
    value: list[float]
    wall_time: list[float]
    runs: list[tuple[int, int]] | None = None
    """(width, rows), where it is known, of stretches in the order of the events: so many rows of so many events, all
    rows with the tags of the first, each with one step and one wall time; width 1 where events have nothing in
    common."""

    def add_rows(self, width: int, rows: int) -> None:
        """Note that rows of one kind follow; see `runs`."""
        assert self.runs is not None
        self.runs.append((width, rows))

    def add_one_by_one(self, count: int) -> None:
        """Note that so many events follow that have nothing in common with those before."""
        assert self.runs is not None
        if self.runs and self.runs[-1][0] == 1:
            self.runs[-1] = 1, self.runs[-1][1] + count
        else:
            self.runs.append((1, count))

    def events(self) -> Iterator[MetricEvent]:
        """The same events one by one."""
        return map(MetricEvent, map(self.tags.__getitem__, self.tag), self.step, self.value, self.wall_time)

    def select(self, keep: Sequence[bool]) -> EventColumns:
        """The events whose flag is set."""
        tag, step, value, wall = (list(itertools.compress(column, keep)) for column in self[1:5])
        return EventColumns(self.tags, tag, step, value, wall)  # type: ignore[arg-type]

    @classmethod
    def of(cls, events: Sequence[MetricEvent]) -> EventColumns:
        """Columns of single events."""
        index: dict[str, int] = {}
        tag = [index.setdefault(event[0], len(index)) for event in events]
        return cls(list(index), tag, [e[1] for e in events], [e[2] for e in events], [e[3] for e in events])
