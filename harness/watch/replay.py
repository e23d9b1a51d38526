"""`python -m harness replay PATH`: where early stopping would have stopped a recorded run."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from harness.errors import ConfigError, RecordError
from harness.metrics.command import open_metrics
from harness.record.store import MetricStore
from harness.watch.early_stopping import Direction, EarlyStopping, direction_of, find_metric, is_evaluation

Key = tuple[str, str]
"""(run, tag)."""


def replay(path: Path, metric: str, patience: int, *, mode: str = "auto", min_delta: float = 0.0) -> dict[str, Any]:
    """{ok, triggered, stop_index, stop_step, best_index, best_step, best_value, direction, metric,
    num_evaluations}, as JSON; with `error`, and `ok` false, where the metric is in no series, or in several.

    `path`: whatever `metrics_report` reads. Indices count evaluations from 0; steps are the trainer's own. Raises
    ConfigError where the direction is not certain from the name and `mode` is auto.
    """
    direction = resolve_mode(metric, mode)
    try:
        stopping = EarlyStopping(metric, patience, direction, min_delta)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    problems: list[dict[str, Any]] = []
    try:
        store = open_metrics(path, problems)
    except RecordError as error:
        return _failed(str(error), direction, [])
    with store:
        keys = [(tags.run, tags.tag) for tags in store.tags() if tags.fresh_points]
        fitting = find_series(metric, keys)
        names = sorted(_shown(key) for key in keys)
        if not fitting:
            what = f"{metric} is in no series of {path}" if names else f"no scalar was found in {path}"
            return _failed(what, direction, names)
        if len(fitting) > 1:
            several = ", ".join(map(_shown, fitting))
            return _failed(f"{metric} is held by {several}; name one of them", direction, names)
        return _replayed(store, fitting[0], stopping)


def resolve_mode(metric: str, mode: str) -> Direction:
    """min or max; ConfigError where it has to be asked for."""
    if mode == "auto":
        direction = direction_of(metric)
        if direction is not None:
            return direction
    elif mode in ("min", "max"):
        return "min" if mode == "min" else "max"
    raise ConfigError(
        f"whether {metric!r} should fall or rise is not certain from its name: give --early-stop-mode min or max"
    )


def find_series(metric: str, keys: Iterable[Key]) -> list[Key]:
    """The (run, tag) that mean a metric, which may be named RUN:TAG; more than one where runs share the tag."""
    keys = list(keys)
    exact = [key for key in keys if _shown(key) == metric]
    if exact and exact[0][0]:
        return exact
    found = find_metric(metric, {_name(key) for key in keys})
    return [key for key in keys if _name(key) == found]


def _name(key: Key) -> str:
    """The tag; behind its run directory where that tells the phase (Keras: validation/epoch_loss)."""
    run, tag = key
    folder = run.rpartition("/")[2]
    return f"{folder}/{tag}" if is_evaluation(f"{folder}/x") or folder == "train" else tag


def _shown(key: Key) -> str:
    return f"{key[0]}:{key[1]}" if key[0] else key[1]


def _replayed(store: MetricStore, key: Key, stopping: EarlyStopping) -> dict[str, Any]:
    masked = _masked_steps(store, key)
    for point in store.iter_series(key[1], run=key[0]):
        value = math.nan if point.value == 0.0 and point.step in masked else point.value
        if stopping.observe(point.step, value) is not None:
            break
    decision = stopping.decision
    return {
        "ok": True,
        "triggered": decision is not None,
        "stop_index": decision.stop_index if decision else None,
        "stop_step": decision.stop_step if decision else None,
        "best_index": stopping.best_index,
        "best_step": stopping.best_step,
        "best_value": stopping.best_value,
        "direction": stopping.mode,
        "metric": _shown(key),
        "num_evaluations": stopping.num_evaluations,
    }


def _masked_steps(store: MetricStore, key: Key) -> set[int]:
    """Steps at which the gradient norm is NaN: a training loss of exactly 0.0 there is a NaN that was filtered."""
    run, tag = key
    norm = tag.replace("loss", "grad_norm")
    if is_evaluation(tag) or norm == tag or norm not in {one.tag for one in store.tags() if one.run == run}:
        return set()
    return {point.step for point in store.iter_series(norm, run=run) if math.isnan(point.value)}


def _failed(error: str, direction: Direction, keys: list[str]) -> dict[str, Any]:
    empty = dict.fromkeys(("stop_index", "stop_step", "best_index", "best_step", "best_value"))
    return {"ok": False, "error": error, "triggered": False, **empty, "direction": direction, "keys": keys}
