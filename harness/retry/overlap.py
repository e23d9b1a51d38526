"""The metrics of a retry beside those of the run before it, step by step where both have any."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any

from harness.frameworks.base import FrameworkFacts
from harness.judge.thresholds import THRESHOLDS
from harness.metrics.compare import compare_series
from harness.record.run_record import open_record
from harness.record.store import MetricStore
from harness.retry.changes import SEMANTIC, UNKNOWN, find_changes, last_part
from harness.retry.noise import measured_noise, whole_runs
from harness.retry.series import Series, losses, series_of

ROLLOUTS = ("rollout", "agentic")
DETERMINISTIC = ("full_determinism", "deterministic", "use_deterministic_algorithms")
"""Settings that declare two runs to be the same bit for bit."""
TOLERANCES = ("retry_rtol", "retry_atol")


def compare_with_earlier(out_dir: Path, earlier: Path) -> dict[str, Any]:
    """The journal's entry `retry-comparison`: effective settings that differ, and every overlapping loss.

    Where no tolerance was stated, the noise of the lineage's whole runs counts, once there are two of them.

    What follows from a change that was approved (`optimizer_lr` from `--lr`) is approved with it, and recorded.
    """
    with open_record(earlier) as before, open_record(out_dir) as after:
        facts = FrameworkFacts.from_json(after.fact("command", "facts") or {"name": "unknown", "reason": ""})
        approve = after.fact("retry", "approve") or []
        is_approved = any(item.get("approved") and item.get("kind") in (SEMANTIC, UNKNOWN)
                          for item in after.fact("retry", "changes") or [])
        told = {last_part(str(item.get("key"))) for item in after.fact("retry", "changes") or []}
        used = [
            {key: _neutral(str(item.get("value")), record.spec.out_dir, record.spec.run_id)
             for key, item in (record.fact("effective-values", "values") or {}).items() if isinstance(item, Mapping)}
            for record in (before, after)]
        given = [record.fact("settings", "values") or {} for record in (before, after)]
        for values, settings in zip(used, given, strict=True):
            values["launched.world_size"] = str(settings.get("launched.world_size"))
        changes = [
            replace(change, approved=change.approved or is_approved)
            for change in find_changes(used[0], used[1], facts, approve)
            if change.before is not None and change.after is not None and last_part(change.key) not in told]
        declared = declares_determinism(given)
        limits = dict(after.spec.thresholds)
        stated = declared or any(name in limits for name in TOLERANCES)
        rtol, atol = (0.0 if declared else limits.get(name, THRESHOLDS[name][0]) for name in TOLERANCES)
        noise, runs = ({}, 0) if stated else measured_noise(whole_runs(after.fact("retry", "attempts") or []), facts)
        tags = []
        if before.store is not None and after.store is not None:
            tags = _tags(before.store, after.store, facts, rtol=rtol, atol=atol, noise=noise)
    return {"changes": [change.to_json() for change in changes], "deterministic": declared, "rtol": rtol, "atol": atol,
            "stated": stated, "noise": noise, "noise_runs": runs,
            "rollout": facts.algorithm_kind in ROLLOUTS, "tags": tags}


def declares_determinism(settings: Iterable[Mapping[str, str]]) -> bool:
    """Whether both runs were told to be deterministic by a setting of their own."""
    return all(any(re.split(r"[.:]", key)[-1].lower() in DETERMINISTIC and value.lower() in ("true", "1", "yes")
                   for key, value in values.items()) for values in settings)


def _neutral(text: str, out_dir: Path, run_id: str) -> str:
    return text.replace(str(out_dir), "{out_dir}").replace(run_id, "{run_id}")


def _tags(
    before: MetricStore, after: MetricStore, facts: FrameworkFacts, *, rtol: float, atol: float,
    noise: Mapping[str, float],
) -> list[dict[str, Any]]:
    """Measured noise widens the tolerance that nobody stated, and never narrows it."""
    old, new = losses(before, facts), losses(after, facts)
    return [
        {"tag": tag, **overlap(series_of(before, tag, old[tag]), series_of(after, tag, new[tag]),
                               rtol=max(rtol, noise.get(tag, 0.0)), atol=atol)}
        for tag in old if tag in new]


def overlap(before: Series, after: Series, *, rtol: float, atol: float) -> dict[str, Any]:
    """Both series over the steps that they share: where they part, the largest errors, means, what is missing.

    The earlier run counts up to its first value that is not finite: that is what failed it. Where both log equally
    often a step of that range that one of them lacks is a difference; else the steps that both log are compared.
    """
    broken = min((step for step, value in before.items() if not math.isfinite(value)), default=None)
    before = {step: value for step, value in before.items() if broken is None or step < broken}
    if not before or not after:
        return {"points": 0}
    low, high = max(min(before), min(after)), min(max(before), max(after))
    old, new = ({step: value for step, value in one.items() if low <= step <= high} for one in (before, after))
    whole = _cadence(before) == _cadence(after)
    found = compare_series(old, new, rtol=rtol, atol=atol, whole=whole)
    finite = [(old[step], new[step]) for step in old if step in new and math.isfinite(new[step])]
    return {
        "points": found.points, "first_step": low, "last_step": high, "exact": found.exact,
        "same_cadence": whole, "first": found.first.to_json() if found.first else None,
        "max_abs": found.max_absolute, "max_rel": found.max_relative,
        "missing": len(set(old) ^ set(new)) if whole else 0,
        "nonfinite": sum(not math.isfinite(value) for value in new.values()),
        "mean_before": fmean(pair[0] for pair in finite) if finite else None,
        "mean_after": fmean(pair[1] for pair in finite) if finite else None,
    }


def _cadence(series: Series) -> float:
    gaps = [b - a for a, b in pairwise(sorted(series))]
    return median(gaps) if gaps else 1.0

