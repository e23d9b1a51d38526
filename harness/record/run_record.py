"""RunRecord: the facts of one run, read from its out-dir and from nowhere else."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.errors import RecordError
from harness.record import outdir
from harness.record.entry_shapes import shape_problem
from harness.record.files import read_json
from harness.record.journal import Entry, read_journal
from harness.record.store import MetricStore
from harness.spec import RunSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """What the supervisor left behind. `store` is open while the record is in use (see `open_record`)."""

    out_dir: Path
    spec: RunSpec
    entries: tuple[Entry, ...]
    store: MetricStore | None
    """None when no metric store was written or it cannot be read."""
    problems: tuple[str, ...]
    """Artifacts that are missing or damaged."""

    def last(self, event: str) -> Entry | None:
        """The latest entry of this kind."""
        return next((entry for entry in reversed(self.entries) if entry["event"] == event), None)

    def last_end(self) -> Entry | None:
        """The end of the latest launch; None while that one has none, whatever became of the launches before."""
        started, ended = self.last("attempt-started"), self.last("attempt-ended")
        if started is not None and ended is not None and (started.get("attempt") or 1) > (ended.get("attempt") or 1):
            return None
        return ended

    def every(self, event: str) -> list[Entry]:
        """All entries of this kind, in order."""
        return [entry for entry in self.entries if entry["event"] == event]

    def fact(self, event: str, key: str, default: Any = None) -> Any:
        """One field of the latest entry of this kind."""
        entry = self.last(event)
        return default if entry is None else entry.get(key, default)


@contextmanager
def open_record(out_dir: Path, asked: Mapping[str, Any] | None = None) -> Iterator[RunRecord]:
    """Read an out-dir. RecordError when there is no run in it that could be judged at all.

    `asked`: fields of the request that count instead of the run's own: by what it is judged, never what was run.

    Entries of a shape that is none are left out and reported. What content still breaks the code that uses the record
    is a RecordError too.
    """
    problems: list[str] = []
    if not out_dir.is_dir():
        raise RecordError(f"{out_dir}: no such directory; give the --out-dir of a run")
    spec = replace(_spec(out_dir), **(asked or {}))
    entries, damage = read_journal(out_dir / outdir.JOURNAL)
    problems += damage
    shaped = []
    for entry in entries:
        if problem := shape_problem(entry):
            problems.append(f"{outdir.JOURNAL} entry {entry.get('seq')} ({entry['event']}) is left out: {problem}")
        else:
            shaped.append(entry)
    store = None
    try:
        if (out_dir / outdir.METRICS_DB).exists():
            store = MetricStore.open(out_dir / outdir.METRICS_DB)
    except RecordError as error:
        problems.append(str(error))
    try:
        yield RunRecord(
            out_dir=out_dir, spec=spec, entries=tuple(shaped), store=store, problems=tuple(problems)
        )
    except (TypeError, KeyError, AttributeError, ValueError, IndexError, OverflowError, re.error) as error:
        place = traceback.extract_tb(error.__traceback__)[-1].name
        message = f"{out_dir}: {outdir.JOURNAL} or {outdir.RUN_SPEC} holds what cannot be judged"
        raise RecordError(f"{message}: {type(error).__name__} in {place}: {str(error)[:300]}") from error
    finally:
        if store is not None:
            store.close()


def _spec(out_dir: Path) -> RunSpec:
    path = out_dir / outdir.RUN_SPEC
    try:
        return RunSpec.from_json(read_json(path))
    except OSError as error:
        raise RecordError(f"{path}: {error.strerror}; {out_dir} holds no run of this harness") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise RecordError(f"{path}: not a run spec: {error}") from error
