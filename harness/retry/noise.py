"""How far runs of one job lie apart by themselves: the tolerance that was measured, not stated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from harness.errors import RecordError
from harness.frameworks.base import FrameworkFacts
from harness.record.reasons import Reason
from harness.record.run_record import open_record
from harness.record.vocabulary import Decision, TerminalState
from harness.retry.changes import SEMANTIC, UNKNOWN
from harness.retry.series import Series, losses, series_of

SIGMAS = 3.0
"""Half a band in standard deviations of the runs; never less than their range."""
MAX_RUNS = 8
"""The latest runs of a lineage that are read."""
_HUGE = 1e150
"""Beyond it, and for what is no number, a deviation cannot be computed."""
_WHOLE = (TerminalState.SUCCEEDED.value, TerminalState.EARLY_STOPPED.value)


def half_band(values: Sequence[float]) -> float:
    """Half the width of the band that two or more values of one number call for."""
    return max(SIGMAS * stdev(values), max(values) - min(values))


def noise_of(runs: Sequence[Series]) -> float | None:
    """The largest `half_band` over |mean| of any step that all runs have; None without such a step or a second run."""
    if len(runs) < 2:
        return None
    common = set(runs[0]).intersection(*runs[1:])
    columns = [[run[step] for run in runs] for step in common]
    found = [half_band(values) / abs(fmean(values)) for values in columns
             if all(abs(value) < _HUGE for value in values) and abs(fmean(values)) > 1 / _HUGE]
    return max(found, default=None)


def whole_runs(attempts: Iterable[Mapping[str, Any]]) -> list[Path]:
    """Out-dirs of a lineage's runs that came to their end and are the same job as its last one: GO, or not GO for
    the very reason that no noise was known."""
    found: list[Path] = []
    for row in attempts:
        if any(change.get("kind") in (SEMANTIC, UNKNOWN) for change in row.get("changes") or []):
            found = []
        is_whole = row.get("terminal_state") in _WHOLE and (
            row.get("decision") == Decision.GO.value or set(row.get("reasons") or []) == {
                Reason.RETRY_METRICS_DIFFER.value})
        if row.get("launched") and is_whole:
            found.append(Path(str(row["out_dir"])))
    return found[-MAX_RUNS:]


def measured_noise(places: Sequence[Path], facts: FrameworkFacts) -> tuple[dict[str, float], int]:
    """({tag: relative noise}, number of runs) of the loss series; ({}, n) where fewer than two can be read."""
    with ExitStack() as stack:
        stores = []
        for place in places:
            try:
                store = stack.enter_context(open_record(place)).store
            except RecordError:
                continue
            stores += [store] if store is not None else []
        tags = [losses(store, facts) for store in stores]
        shared = set(tags[0]).intersection(*tags[1:]) if len(tags) > 1 else set()
        found = {tag: noise_of([series_of(store, tag, named[tag]) for store, named in zip(stores, tags, strict=True)])
                 for tag in sorted(shared)}
    return {tag: value for tag, value in found.items() if value is not None}, len(stores)
