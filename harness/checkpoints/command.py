"""What `python -m harness checkpoints` answers about any directory."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.checkpoints.function import UserFunction, agrees
from harness.checkpoints.inspect import CheckpointSeen, verify_checkpoint
from harness.checkpoints.inventory import Checkpoint, take_inventory
from harness.checkpoints.records import find_recorded_best, history_of
from harness.checkpoints.reload import TIME_LIMIT_S, Surroundings, Target, reload_checkpoint
from harness.checkpoints.structure import read_structure
from harness.checkpoints.targets import starts_of, targets_of
from harness.errors import ConfigError
from harness.watch.early_stopping import direction_of, find_metric


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The command's options."""

    root: Path
    metric: str | None = None
    mode: str | None = None
    """min or max; None where the metric's name tells."""
    verify: bool = False
    reload: bool = False
    base: Path | None = None
    allow_pickle: bool = False
    function: UserFunction | None = None
    time_limit_s: float | None = None
    roots: tuple[Path, ...] = ()
    """Where a run saved, if `root` is its out-dir."""
    known: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Checkpoint path -> metrics, as the run's own records tell them."""


def checkpoints_report(asked: Asked) -> dict[str, Any]:
    """{ok, checkpoints: [{path, step, metrics, complete, problems, ...}], latest, best, reload}, the earliest first.

    `aside` lists files beside a checkpoint that are no model: vocabularies, predictions, exports.
    `complete` is null where only a loader could tell. Without `verify` only headers and structure are read. `ok` is
    true where there is a whole latest one and, with `reload`, the best one loads and is another than `base`, and, with
    `function`, what that returns is finite and agrees with the metrics that are known of it, in `reload.agreement`.
    ConfigError for a path that is not there, for a file that is no checkpoint by its name, and for a metric whose
    direction cannot be told.
    """
    if not asked.root.exists():
        raise ConfigError(f"{asked.root}: no such file or directory")
    inventory = take_inventory(asked.roots or (asked.root.absolute(),))
    if asked.root.is_file() and not inventory.checkpoints and not inventory.unfinished:
        raise ConfigError(f"{asked.root}: no checkpoint by its name; give a directory, or a file such as "
                          "model.safetensors, model.pt or last.ckpt")
    histories = _histories(inventory.checkpoints)
    rows = [(one, _row(one, asked, histories.get(one.path.parent, {}))) for one in inventory.checkpoints]
    usable = [(one, row) for one, row in rows if row["complete"] is not False]
    latest = usable[-1] if usable else None
    best = _best(usable, asked) or latest
    reload = _reloaded(best[0], best[1]["metrics"], asked) if asked.reload and best is not None else None
    newest_broken = bool(rows) and latest is not None and rows[-1][1]["complete"] is False
    unfinished: list[dict[str, Any]] = [{"path": str(path), "step": None, "metrics": {}, "complete": False,
                   "problems": ["its save did not end: its name says so"]} for path in inventory.unfinished]
    return {
        "ok": latest is not None and not newest_broken and (
            not asked.reload or (reload is not None and _is_proven(reload, asked))),
        "checkpoints": [row for _, row in rows] + unfinished,
        "aside": [str(path) for path in inventory.aside],
        "latest": str(latest[0].path) if latest else None,
        "best": str(best[0].path) if best else None,
        "reload": reload,
    }


def _reloaded(one: Checkpoint, known: Mapping[str, float], asked: Asked) -> dict[str, Any]:
    """The facts of its reload; the user's function is called with the first of several models."""
    where = Surroundings(interpreter=Path(sys.executable), workdir=Path.cwd(), environ=os.environ,
                         allow_pickle=asked.allow_pickle, time_limit_s=asked.time_limit_s or TIME_LIMIT_S)
    reload = _worst([
        reload_checkpoint(_with_start(target, one, asked.base),
                          replace(where, function=asked.function if number == 0 else None))
        for number, target in enumerate(targets_of(one, asked.base))])
    return reload if asked.function is None else {**reload, "agreement": _agreement(reload, known)}


def _with_start(target: Target, one: Checkpoint, base: Path | None) -> Target:
    """With the base as what its values are compared with; an adapter stands on it instead."""
    return target if base is None or target.adapter == "peft" else replace(target, starts=starts_of(one, (), base))


def _is_proven(reload: Mapping[str, Any], asked: Asked) -> bool:
    """It loads, is another than the base, and the user's function finds nothing wrong with it."""
    if reload["status"] != "ok" or not _has_changed(reload):
        return False
    if asked.function is None:
        return True
    return ((reload.get("function") or {}).get("status") == "ok" and bool(reload["forward_ok"])
            and not any(item["agrees"] is False for item in reload["agreement"]))


def _agreement(reload: Mapping[str, Any], known: Mapping[str, float]) -> list[dict[str, Any]]:
    """{metric, value, logged, agrees} for each metric that the function returned; null where none is known."""
    found = []
    for metric, value in ((reload.get("function") or {}).get("metrics") or {}).items():
        tag = find_metric(metric, known)
        logged = None if tag is None else known[tag]
        found.append({"metric": metric, "value": value, "logged": logged,
                      "agrees": None if logged is None else agrees(value, logged)})
    return found


def _has_changed(reload: Mapping[str, Any]) -> bool:
    """False where its values were compared with the base, and no learning tells the two apart."""
    compared = reload.get("comparison")
    return not isinstance(compared, dict) or compared.get("kind") == "changed"


def _worst(reloads: list[dict[str, Any]]) -> dict[str, Any]:
    """Of several models in one checkpoint the one that loads worst, with a note on each."""
    if len(reloads) == 1:
        return reloads[0]
    order = ("failed", "refused", "not-attempted", "ok")
    worst = min(reloads, key=lambda item: order.index(item["status"]) if item["status"] in order else 1)
    return {**worst, "notes": [*(f"{item['path']}: {item['status']}" for item in reloads), *(worst.get("notes") or ())]}


def _histories(found: tuple[Checkpoint, ...]) -> dict[Path, dict[int, dict[str, float]]]:
    """{directory: {step: {metric: value}}} by the newest record of each directory of checkpoints."""
    newest = {one.path.parent: one.path for one in found if one.records}
    return {parent: history_of(path) for parent, path in newest.items()}


def _row(one: Checkpoint, asked: Asked, history: Mapping[int, Mapping[str, float]]) -> dict[str, Any]:
    recorded = asked.known.get(str(one.path), {})
    metrics = {**(history.get(one.step, {}) if one.step is not None else {}), **recorded, **one.metrics}
    structure = read_structure(one)
    problems, notes, full = list(structure.problems), structure.notes, {}
    if asked.verify and not problems:
        seen = verify_checkpoint(one)
        problems += [*seen.problems, *(f"{name}: not finite" for name in seen.nonfinite)]
        notes, full = seen.notes, _full(seen)
    _, gone = find_recorded_best(one.record, one.path)
    return {
        "path": str(one.path), "step": one.step, "epoch": one.epoch, "metrics": metrics,
        "complete": False if problems else structure.complete, "problems": problems,
        "notes": [*notes, *([gone] if gone else [])], "format": structure.format,
        "resumable": one.is_resumable, "bytes": one.size, **full,
    }


def _full(seen: CheckpointSeen) -> dict[str, Any]:
    return {"finite": seen.finite, "tensors": seen.tensors,
            "files": [{"path": file.path, "bytes": file.bytes, "sha256": file.sha256} for file in seen.files]}


def _best(usable: list[tuple[Checkpoint, dict[str, Any]]], asked: Asked) -> tuple[Checkpoint, dict[str, Any]] | None:
    """The one with the best value of the metric; of equal ones the latest."""
    if asked.metric is None:
        return None
    direction = asked.mode or direction_of(asked.metric)
    if direction is None:
        raise ConfigError(f"--metric {asked.metric}: give --mode min or --mode max, since its name does not tell")
    scored = []
    for one, row in usable:
        tag = find_metric(asked.metric, row["metrics"])
        if tag is not None and math.isfinite(row["metrics"][tag]):
            scored.append((row["metrics"][tag], one, row))
    if not scored:
        return None
    value = (min if direction == "min" else max)(score for score, _, _ in scored)
    return next((one, row) for score, one, row in reversed(scored) if score == value)
