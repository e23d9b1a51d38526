"""The loss series of a run, for comparison with another run's."""

from __future__ import annotations

import re

from harness.frameworks.base import FrameworkFacts
from harness.record.store import MetricStore

MAX_TAGS = 20
MAX_POINTS = 200_000
"""Steps of a series that are compared."""
Series = dict[int, float]


def series_of(store: MetricStore, tag: str, run: str) -> Series:
    """{step: value} of a series, the first MAX_POINTS of it."""
    found: Series = {}
    for point in store.iter_series(tag, run=run):
        found[point.step] = point.value
        if len(found) >= MAX_POINTS:
            break
    return found


def losses(store: MetricStore, facts: FrameworkFacts) -> dict[str, str]:
    """{tag: run directory} of the fresh loss series; of a tag in several directories the longest."""
    found = {}
    for one in sorted(store.tags(), key=lambda tag: tag.fresh_points):
        if one.fresh_points and any(re.search(p, one.tag, re.IGNORECASE) for p in facts.loss_tags):
            found[one.tag] = one.run
    return dict(sorted(found.items())[:MAX_TAGS])
