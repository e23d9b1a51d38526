"""What `--expect` says, held against the run: a number that is missing, not finite or of too few points is none."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median
from typing import Any

from harness.judge.bands import WINDOW_FUNCTIONS, WINDOW_POINTS, Band, Target
from harness.judge.model import Check, failed, not_applicable, passed
from harness.judge.observe import Observation
from harness.record.reasons import Reason
from harness.record.run_record import RunRecord
from harness.record.store import TagSummary
from harness.watch.early_stopping import direction_of, find_metric

METER_FIELDS = {"peak_memory": "peak_memory_bytes", "peak_gpu_memory": "peak_gpu_memory_bytes"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A number of the run, or why there is none."""

    number: float | None
    why: str = ""
    reason: Reason | None = None


def measure(record: RunRecord, target: Target, *, points: int | None = None) -> Measured:
    """The number that is meant. `points`: how many a window must have, its own minimum where None."""
    if target.function == "meter":
        value = record.fact("usage", METER_FIELDS[target.tag])
        if value is None:
            return _none(Reason.EXPECT_METRIC_MISSING, f"{target.tag} was not measured")
        return Measured(number=float(value))
    tag = _find(record, target)
    if isinstance(tag, Measured):
        return tag
    assert record.store is not None
    series = [(point.step, point.value) for point in record.store.iter_series(tag.tag, run=tag.run)]
    if target.function == "at":
        return _at(series, target, tag.tag)
    if target.function in WINDOW_FUNCTIONS:
        return _window(series, target, WINDOW_POINTS if points is None else points)
    return _point(series, target)


def _find(record: RunRecord, target: Target) -> TagSummary | Measured:
    """The one series of that name: as it is written, RUN:TAG, else in another spelling of an evaluation."""
    held = [tag for tag in record.store.tags() if tag.fresh_points] if record.store else []
    fits = [tag for tag in held if target.tag in (tag.tag, f"{tag.run}:{tag.tag}")]
    if not fits:
        other = find_metric(target.tag, [tag.tag for tag in held])
        fits = [tag for tag in held if tag.tag == other]
    if len(fits) == 1:
        return fits[0]
    if fits:
        runs = ", ".join(sorted(f"{tag.run or '.'}:{tag.tag}" for tag in fits))
        return _none(Reason.EXPECT_METRIC_MISSING, f"{target.tag} stands in several runs: name one of {runs}")
    return _none(Reason.EXPECT_METRIC_MISSING, f"{target.tag} was never logged")


def _at(series: list[tuple[int, float]], target: Target, tag: str) -> Measured:
    value = dict(series).get(target.step if target.step is not None else -1)
    if value is None:
        near = min(series, key=lambda point: abs(point[0] - (target.step or 0)), default=(None, None))[0]
        return _none(Reason.EXPECT_METRIC_MISSING, f"{tag} has no point at step {target.step}; the nearest is {near}")
    return _finite([(target.step or 0, value)], target, value)


def _window(series: list[tuple[int, float]], target: Target, needed: int) -> Measured:
    chosen = [(step, value) for step, value in series
              if (target.start is None or step >= target.start) and (target.stop is None or step < target.stop)]
    if len(chosen) < needed:
        return _none(Reason.EXPECT_TOO_FEW_POINTS, f"{target.text}: {len(chosen)} point(s), {needed} are needed")
    if target.stop is not None and (gap := _gap(series)) and chosen[-1][0] + gap < target.stop:
        return _none(Reason.EXPECT_TOO_FEW_POINTS,
                     f"{target.text}: the series ends at step {chosen[-1][0]}, before {target.stop}")
    values = [value for _, value in chosen]
    functions: dict[str, Any] = {"median": median, "mean": fmean, "min": min, "max": max}
    return _finite(chosen, target, functions[target.function](values))


def _gap(series: list[tuple[int, float]]) -> float:
    return median([b[0] - a[0] for a, b in pairwise(series)]) if len(series) > 1 else 0.0


def _point(series: list[tuple[int, float]], target: Target) -> Measured:
    """The last value, or the best; a NaN anywhere leaves no best."""
    if target.function == "last":
        return _finite(series[-1:], target, series[-1][1])
    better = max if direction_of(target.tag) == "max" else min
    return _finite(series, target, better(value for _, value in series))


def _finite(points: Iterable[tuple[int, float]], target: Target, number: float) -> Measured:
    for step, value in points:
        if not math.isfinite(value):
            return _none(Reason.EXPECT_NOT_FINITE, f"{target.text}: {value!r} at step {step}")
    return Measured(number=number)


def _none(reason: Reason, why: str) -> Measured:
    return Measured(number=None, reason=reason, why=why)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One band and what came of it."""

    band: Band
    number: float | None
    reason: Reason | None
    why: str


def outcomes(record: RunRecord) -> list[Outcome]:
    """Every band of the run in order."""
    found = []
    for data in record.spec.expect:
        band = Band.from_json(data)
        got = measure(record, band.target, points=band.points)
        reason, why = got.reason, got.why
        if got.number is not None and not band.holds(got.number):
            reason, why = Reason.EXPECT_OUT_OF_BAND, f"{band.target.text} is {got.number:.10g}, not {band.limits}"
        found.append(Outcome(band=band, number=got.number, reason=reason, why=why))
    return found


def check_expectations(seen: Observation) -> Check:
    """Every number is inside its band; what cannot be measured is not."""
    name, found = "expectations", outcomes(seen.record)
    if not found:
        return not_applicable(name, "nothing was expected (--expect)")
    expected = "; ".join(f"{one.band.target.text} {one.band.limits}" for one in found)[:1000]
    told = "; ".join(f"{one.band.target.text} = {'none' if one.number is None else f'{one.number:.10g}'}"
                     for one in found)[:1000]
    missed = [one for one in found if one.reason is not None]
    if missed:
        reason = missed[0].reason
        assert reason is not None
        return failed(name, reason, expected, told, "; ".join(one.why for one in missed)[:1000])
    return passed(name, expected, told)


def evidence_of_bands(record: RunRecord) -> list[dict[str, Any]]:
    """As evidence.expectations holds them."""
    return [{
        "expect": one.band.target.text, "limits": one.band.limits, "value": one.band.value, "lower": one.band.lower,
        "upper": one.band.upper, "unit": one.band.unit, "observed": one.number,
        "reason": one.reason.value if one.reason else None, "why": one.why, "provenance": dict(one.band.provenance),
    } for one in outcomes(record)]
