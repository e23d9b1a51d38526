"""`python -m harness metrics PATH`: the scalars of a file, a directory or a run's out-dir as strict JSON."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness.errors import RecordError
from harness.metrics.collector import MetricCollector
from harness.metrics.discovery import kind_of_file
from harness.metrics.jsonl import looks_like_metrics
from harness.metrics.model import RestartMarker, SourceProblem
from harness.metrics.stdout import StdoutReader, looks_like_output
from harness.record.store import MetricStore, Point
from harness.record.vocabulary import Standing

STORE_NAME = "metrics.db"
OUTPUT_SUFFIXES = frozenset({".log", ".txt", ".out", ".err", ".stdout", ".stderr"})
"""Files that are read as a trainer's output, also where they begin with JSON lines."""
Key = tuple[str, str]
"""(run, tag)."""


def metrics_report(path: Path, metrics: Sequence[str], last: int | None) -> dict[str, Any]:
    """{ok, path, keys, unknown, ambiguous, series: {KEY: [{step, value, wall_time}]}, progress, problems}.

    A directory with a metrics.db is a run's out-dir and is answered from it; elsewhere every subdirectory is a run of
    its own. A file whose name promises no metrics is read as a trainer's output. A key is the tag; where several run
    directories hold points it is RUN:TAG for those of subdirectories. `metrics` may name either, a bare TAG only if
    one run holds it, else it is ambiguous. Without `metrics` there are keys and no series, with `last` alone the end
    of every series. `progress` is {step, total, steps_per_second} as a trainer's output says, else null. `last` keeps
    that many points of each series. A value that is not finite is null with a `repr` beside it, a wall time that the
    source does not have is null. `ok` is false when a metric is unknown, ambiguous or nothing could be read.
    """
    problems: list[dict[str, Any]] = []
    progress: dict[str, Any] = {}
    try:
        store = open_metrics(path, problems, progress)
    except RecordError as error:
        problems.append({"code": "unreadable", "path": str(path), "offset": None, "message": str(error)})
        return {
            "ok": False,
            "path": str(path),
            "keys": [],
            "unknown": list(metrics),
            "ambiguous": [],
            "series": {},
            "progress": None,
            "problems": problems,
        }
    with store:
        keys = metric_keys(store)
        wanted = metrics or (sorted(keys) if last is not None else [])
        asked = {metric: _resolve(metric, keys, path, problems) for metric in dict.fromkeys(wanted)}
        series = {
            name: [_item(point) for point in store.iter_series(key[1], run=key[0], last=last)]
            for name, key in asked.items()
            if key is not None
        }
    missing = [name for name, key in asked.items() if key is None]
    ambiguous = [name for name in missing if any(key[1] == name for key in keys.values())]
    unknown = [name for name in missing if name not in ambiguous]
    if not keys and not problems and not progress:
        problems.append(
            {"code": "no-metric-points", "path": str(path), "offset": None, "message": "no scalar was found"}
        )
    return {
        "ok": bool(keys or progress) and not missing,
        "path": str(path),
        "keys": sorted(keys),
        "unknown": unknown,
        "ambiguous": ambiguous,
        "series": series,
        "progress": progress or None,
        "problems": problems,
    }


def open_metrics(
    path: Path, problems: list[dict[str, Any]], progress: dict[str, Any] | None = None
) -> MetricStore:
    """The out-dir's store, or one that is filled from the files; RecordError where there is neither.

    `problems` and `progress` take up what else is found.
    """
    if path.name == STORE_NAME or (path / STORE_NAME).is_file():
        store = MetricStore.open(path if path.name == STORE_NAME else path / STORE_NAME)
        for source in store.sources():
            for standing, count in (
                (Standing.STALE, source.stale_points),
                (Standing.FOREIGN, source.foreign_points),
            ):
                if count:
                    problems.append(
                        {
                            "code": f"{standing.value}-points",
                            "path": source.path,
                            "offset": None,
                            "message": f"{count} points do not count as this run's",
                        }
                    )
        return store
    if not path.exists():
        raise RecordError(f"{path} does not exist")
    store = MetricStore.temporary()
    if path.is_file() and _is_output(path):
        told = read_output(store, path, problems)
        if progress is not None:
            progress.update(told)
        return store
    collector = MetricCollector(store, [path])
    facts = collector.finish(now=time.time(), launched_at=0.0)
    found: list[SourceProblem] = [
        *collector.problems,
        *(problem for fact in facts for problem in fact.problems),
    ]
    problems += [{**asdict(problem), "path": str(problem.path)} for problem in found]
    problems += [{"code": "no-metric-points", "path": fact.path, "offset": None, "message": "it holds no scalar yet"}
                 for fact in facts if not fact.points and not fact.problems]
    return store


def _is_output(path: Path) -> bool:
    """Whether a file is a trainer's output: nothing in its name promises another kind of source."""
    if kind_of_file(path) != "jsonl" or path.suffix.lower() == ".jsonl" or not looks_like_output(path):
        return False
    return path.suffix.lower() in OUTPUT_SUFFIXES or not looks_like_metrics(path)


def read_output(store: MetricStore, path: Path, problems: list[dict[str, Any]]) -> dict[str, Any]:
    """Every value of a trainer's output into the store; what is wrong is added to `problems`.

    {step, total, steps_per_second} as it says where training is; {} where it does not.
    """
    reader = StdoutReader(path)
    source = store.add_source(kind=reader.kind, path=str(path))
    with store.transaction():
        for item in reader.poll(final=True):
            if isinstance(item, RestartMarker):
                store.add_purge(source, item.step)
            else:
                store.append_columns(source, item, observed_at=time.time())
    store.build_index()
    problems += [{**asdict(problem), "path": str(problem.path)} for problem in reader.problems(final=True)]
    if reader.last_step is None:
        return {}
    return {"step": reader.last_step, "total": reader.announced_total, "steps_per_second": reader.rate}


def metric_keys(store: MetricStore) -> dict[str, Key]:
    """{key: (run, tag)} of everything that has fresh points."""
    held = [(summary.run, summary.tag) for summary in store.tags() if summary.fresh_points]
    several = len({run for run, _ in held}) > 1
    return {f"{run}:{tag}" if several and run else tag: (run, tag) for run, tag in held}


def _resolve(name: str, keys: Mapping[str, Key], path: Path, problems: list[dict[str, Any]]) -> Key | None:
    if name in keys:
        return keys[name]
    fitting = [key for key in keys.values() if name in (key[1], f"{key[0]}:{key[1]}")]
    if len(fitting) > 1:
        runs = ", ".join(sorted(run or "." for run, _ in fitting))
        problems.append(
            {
                "code": "ambiguous-metric",
                "path": str(path),
                "offset": None,
                "message": f"{name} is held by {runs}; name it RUN:TAG",
            }
        )
    return fitting[0] if len(fitting) == 1 else None


def _item(point: Point) -> dict[str, Any]:
    wall_time = point.wall_time or None
    if math.isfinite(point.value):
        return {"step": point.step, "value": point.value, "wall_time": wall_time}
    return {"step": point.step, "value": None, "repr": repr(point.value), "wall_time": wall_time}
