"""Where a resumed launch began: the first step that it logged, and how many updates the probe saw it apply."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from harness.checkpoints.inventory import take_inventory
from harness.metrics.command import open_metrics
from harness.probe.reader import read_probe
from harness.record.store import Point


def beginning(
    whole: Path, metrics: Iterable[Path], saves: tuple[Path, ...], probed: Path, *,
    tags: Collection[str], at: int, launched: float,
) -> dict[str, Any]:
    """{begins, expected_begins, is_live, updates}, a part that nothing tells left out.

    `whole` is the judged run's out-dir; `metrics`, `saves` and `probed` are the resumed launch's alone; `at` is the
    step that it resumed from, `launched` its time in seconds since the epoch. `begins` is the first step of `tags`,
    `expected_begins` that of the judged run. Rows of a restored history come first too: `is_live` says that the first
    was made by this launch, by its clock or by a checkpoint of an earlier step than `at`.
    """
    mine = [point for place in metrics if place.exists() for point in _firsts(place, tags)]
    theirs = [point.step for point in _firsts(whole, tags)]
    first = min(mine, key=lambda point: point.step, default=None)
    facts: dict[str, Any] = {}
    if first is not None and theirs:
        saved = any(one.step is not None and one.step < at for one in take_inventory(saves).checkpoints)
        facts = {"begins": first.step, "expected_begins": min(theirs), "is_live": first.wall_time >= launched or saved}
    if probed.is_dir() and (steps := [process.steps for process in read_probe(probed, since=0.0).processes]):
        facts["updates"] = max(steps)
    return facts


def _firsts(place: Path, tags: Collection[str]) -> Iterator[Point]:
    """The first point of each series of these tags."""
    with open_metrics(place, []) as store:
        for tag in store.tags():
            if tag.tag in tags and (point := min(
                    store.iter_series(tag.tag, run=tag.run), key=lambda one: one.step, default=None)) is not None:
                yield point
