"""A run's output as the last metric source: read where no metric file gave a point."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from harness.metrics.model import RestartMarker
from harness.metrics.stdout import StdoutReader
from harness.metrics.tracked import CLOCK_SLACK_S, SourceFact
from harness.record.store import MetricStore
from harness.record.vocabulary import Standing


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputRead:
    """One log, read to its end."""

    source: SourceFact
    announced_total: int | None
    """Steps of the whole run, as the output says."""


def read_output(store: MetricStore, path: Path, *, run: str, written_at: float, launched_at: float) -> OutputRead:
    """Store every row of a log that will not grow any more.

    `written_at`: when the log was last written, `launched_at`: seconds since the epoch; a log that was not touched
    since well before the launch is another run's, and its points are stale.
    """
    reader = StdoutReader(path)
    source = store.add_source(kind=reader.kind, path=str(path), run=run, writer=path.name)
    standing = Standing.STALE if written_at < launched_at - CLOCK_SLACK_S else Standing.FRESH
    points, steps, last_wall = 0, set[int](), 0.0
    with store.transaction():
        for item in reader.poll(final=True):
            if isinstance(item, RestartMarker):
                store.add_purge(source, item.step)
                continue
            store.append_columns(source, item, observed_at=time.time(), standing=standing)
            points += len(item.tag)
            steps = {min([*steps, *item.step]), max([*steps, *item.step])}
            last_wall = max(last_wall, *item.wall_time)
    store.build_index()
    fresh = standing is Standing.FRESH
    return OutputRead(announced_total=reader.announced_total, source=SourceFact(
        kind=reader.kind, path=str(path), run=run, writer=path.name, sha256=reader.sha256, first_offset=0,
        bytes_read=reader.bytes_read, points=points if fresh else 0, stale_points=0 if fresh else points,
        foreign_points=0, first_step=min(steps, default=None), last_step=max(steps, default=None),
        last_wall_time=last_wall or None, ownership="own", still_there=True,
        problems=tuple(reader.problems(final=True)),
    ))
