"""The checkpoints of a run as the report lists them: steps, metric values at those steps, and the best."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.frameworks.base import FrameworkFacts
from harness.record import outdir
from harness.record.run_record import RunRecord
from harness.watch.early_stopping import direction_of, find_metric, same_metric

MAX_TAGS = 30
MAX_VALUES = 20_000
"""Metric values that all checkpoints together are given at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """One checkpoint of the run."""

    path: str
    step: int | None
    status: str
    """whole, damaged or not-inspected."""
    metrics: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As all_checkpoints holds it."""
        return {"path": self.path, "step": self.step, "metrics": dict(self.metrics)}


def saved_checkpoints(record: RunRecord) -> tuple[Saved, ...]:
    """All of them, the earliest first, with the metrics that their names, their records and metrics.db tell."""
    items = (record.fact("checkpoints", "facts", {}) or {}).get("checkpoints") or []
    values = _values_at(record, [item.get("step") for item in items])
    return tuple(
        Saved(path=str(item.get("path")), step=item.get("step"), status=str(item.get("status")),
              metrics={**values.get(item.get("step"), {}), **(item.get("metrics") or {})})
        for item in items)


def best_checkpoint(record: RunRecord) -> Saved | None:
    """By --early-stop-metric where one has a value, else the most recent; a damaged one is never the best."""
    saved = [one for one in saved_checkpoints(record) if one.status != "damaged"]
    metric = record.spec.early_stop_metric
    if metric is not None:
        mode = record.spec.early_stop_mode
        direction = direction_of(metric) if mode == "auto" else mode
        scored = [(value, one) for one in saved
                  if (value := metric_value(one.metrics, metric)) is not None and math.isfinite(value)]
        if scored and direction is not None:
            best = (min if direction == "min" else max)(value for value, _ in scored)
            return next(one for value, one in reversed(scored) if value == best)
    latest = (record.fact("checkpoints", "facts", {}) or {}).get("latest")
    if latest is None:
        return None
    path = outdir.relative(record.spec.out_dir, latest)
    return next((one for one in saved if one.path == path), Saved(path=path, step=None, status="whole"))


def metric_value(metrics: Mapping[str, float], asked: str) -> float | None:
    """The value of the metric that `asked` means."""
    tag = find_metric(asked, metrics)
    return None if tag is None else metrics[tag]


def _values_at(record: RunRecord, steps: list[int | None]) -> dict[int | None, dict[str, float]]:
    """{checkpoint step: {tag: value}}: values of that very step; of the asked metric the last since the save before."""
    wanted = sorted({step for step in steps if step is not None})
    if record.store is None or not wanted:
        return {}
    raw = record.fact("command", "facts")
    facts = FrameworkFacts.from_json(raw) if isinstance(raw, dict) else FrameworkFacts(name="", reason="")
    if facts.step_unit != "step":
        return {}
    shift = 1 if facts.step_base == 0 else 0
    asked = record.spec.early_stop_metric
    tags = [tag for tag in record.store.tags() if tag.fresh_points and tag.last_step is not None]
    tags.sort(key=lambda tag: (asked is None or not same_metric(asked, tag.tag), tag.tag))
    found: dict[int | None, dict[str, float]] = {}
    for tag in tags[: max(1, min(MAX_TAGS, MAX_VALUES // len(wanted)))]:
        loose = asked is not None and same_metric(asked, tag.tag)
        points = iter(record.store.iter_series(tag.tag, run=tag.run))
        point, previous = next(points, None), -1
        for step in wanted:
            last = None
            while point is not None and point.step + shift <= step:
                last, point = point, next(points, None)
            if last is not None and math.isfinite(last.value) and (
                    last.step + shift == step or (loose and last.step + shift > previous)):
                found.setdefault(step, {})[tag.tag] = last.value
            previous = step
    return found
