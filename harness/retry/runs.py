"""`python -m harness compare A B`: two runs point by point, and what their environments differ in."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import ConfigError, RecordError
from harness.frameworks.base import FrameworkFacts
from harness.metrics.command import Key, metric_keys, open_metrics
from harness.metrics.compare import compare_series
from harness.record import outdir
from harness.record.run_record import open_record
from harness.record.store import MetricStore
from harness.retry.changes import find_changes
from harness.retry.identity import identity_differences, identity_of

CLOCK = re.compile(
    r"(^|[/_.-])(time|times|timing|seconds|secs?|ms|runtime|duration|elapsed|eta|wall|memory|mem|gpu|cpu|throughput|"
    r"(per|/)_?(s|sec|second)|[a-z]*_per_(s|sec|second|step))($|[/_.-])", re.I)
"""Series of a clock or a meter, which no two runs have alike; compared where --metric names them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """Which series of two runs belong together."""

    both: dict[str, tuple[Key, Key]]
    only_a: list[str]
    only_b: list[str]
    left_out: list[str]


def compare_runs(a: Path, b: Path, *, rtol: float, atol: float, metrics: Sequence[str]) -> dict[str, Any]:
    """{ok, a, b, rtol, atol, compared, only_in_a, only_in_b, left_out, first, series, environment, settings, problems}.

    A and B are out-dirs or whatever `metrics` reads. `ok` is true where at least one series was compared, none stands
    in one run alone, and every step of each is in both, finite, and within atol + rtol x |value of A|. ConfigError
    where one cannot be read or a tolerance is no number from 0 up.
    """
    if not (0 <= rtol < float("inf") and 0 <= atol < float("inf")):
        raise ConfigError(f"--rtol {rtol:g} --atol {atol:g}: give numbers from 0 up")
    problems: list[dict[str, Any]] = []
    with _open(a, problems) as store_a, _open(b, problems) as store_b:
        pairs = _pairs(metric_keys(store_a), metric_keys(store_b), metrics)
        series = {
            name: _compared(_values(store_a, one), _values(store_b, other), rtol, atol)
            for name, (one, other) in sorted(pairs.both.items())}
    parted = {name: one["first_divergence"] for name, one in series.items() if not one["ok"]}
    first = min(parted, key=lambda name: (parted[name]["step"], name), default=None)
    return {
        "ok": bool(series) and not parted and not pairs.only_a and not pairs.only_b,
        "a": str(a), "b": str(b), "rtol": rtol, "atol": atol, "compared": sorted(series),
        "only_in_a": pairs.only_a, "only_in_b": pairs.only_b, "left_out": pairs.left_out,
        "first": {"tag": first, **parted[first]} if first is not None else None,
        "series": series, **_environment(a, b), "problems": problems,
    }


def _open(path: Path, problems: list[dict[str, Any]]) -> MetricStore:
    try:
        return open_metrics(path, problems)
    except RecordError as error:
        raise ConfigError(f"{path}: no metrics can be read: {error}") from error


def _pairs(a: dict[str, Key], b: dict[str, Key], metrics: Sequence[str]) -> Pairs:
    """By name; what is left by its bare tag, where one series of each run bears it."""
    both = {name: (a[name], b[name]) for name in a if name in b}
    left_a, left_b = ({name: key for name, key in keys.items() if name not in both} for keys in (a, b))
    for name, key in sorted(left_a.items()):
        same = [other for other in left_b if left_b[other][1] == key[1]]
        if len(same) == 1 and sum(one[1] == key[1] for one in left_a.values()) == 1:
            both[key[1]] = (key, left_b.pop(same[0]))
            del left_a[name]
    if metrics:
        unknown = [name for name in metrics if name not in both and name not in left_a and name not in left_b]
        chosen = set(metrics)
        alone = [sorted({*(chosen & set(left)), *unknown}) for left in (left_a, left_b)]
        return Pairs(both={name: pair for name, pair in both.items() if name in chosen}, only_a=alone[0],
                     only_b=alone[1], left_out=[])
    return Pairs(
        both={name: pair for name, pair in both.items() if not CLOCK.search(name)},
        only_a=sorted(name for name in left_a if not CLOCK.search(name)),
        only_b=sorted(name for name in left_b if not CLOCK.search(name)),
        left_out=sorted(name for name in {*both, *left_a, *left_b} if CLOCK.search(name)))


def _values(store: MetricStore, key: Key) -> dict[int, float]:
    return {point.step: point.value for point in store.iter_series(key[1], run=key[0])}


def _compared(a: dict[int, float], b: dict[int, float], rtol: float, atol: float) -> dict[str, Any]:
    found = compare_series(a, b, rtol=rtol, atol=atol)
    return {
        "ok": found.first is None and found.points > 0, "points": found.points, "points_a": len(a),
        "points_b": len(b), "first_divergence": found.first.to_json() if found.first else None, "exact": found.exact,
        "max_abs_error": found.max_absolute, "max_rel_error": found.max_relative,
    }


def _environment(a: Path, b: Path) -> dict[str, Any]:
    """What two out-dirs differ in beside their metrics; null where one of them is none."""
    if not all((path / outdir.RUN_SPEC).is_file() for path in (a, b)):
        return {"environment": None, "settings": None}
    with open_record(a) as one, open_record(b) as other:
        raw = other.fact("command", "facts") or {"name": "unknown", "reason": ""}
        settings = [record.fact("settings", "values") for record in (one, other)]
        changes = None if None in settings else [
            {key: value for key, value in change.to_json().items() if key != "approved"}
            for change in find_changes(settings[0], settings[1], FrameworkFacts.from_json(raw), ())]
        differences = identity_differences(identity_of(one), identity_of(other))
    return {"environment": [{"what": item.what, "a": item.before, "b": item.after} for item in differences],
            "settings": changes}
