"""What an experiment tracker's own files say of the end of its runs: MLflow's status, W&B's exit record."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.metrics.discovery import walk
from harness.metrics.mlflow import RUN_FILE, is_database, metrics_directory, stored_statuses

MAX_META_BYTES = 64 << 10
_STATUS = re.compile(r"^status: {0,3}(\w{1,20})\s*$", re.MULTILINE)
_NUMBERED = {"1": "RUNNING", "2": "SCHEDULED", "3": "FINISHED", "4": "FAILED", "5": "KILLED"}
"""RunStatus of mlflow/protos/service.proto, by which meta.yaml names them."""
_ENDED = frozenset({"FINISHED", "FAILED", "KILLED"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedRun:
    """One run as its tracker has it."""

    name: str
    status: str
    """RUNNING, SCHEDULED, FINISHED, FAILED or KILLED; another word as it stands."""

    @property
    def has_ended(self) -> bool:
        """Whether the tracker saw its end. A run that was killed hard stays RUNNING for ever."""
        return self.status in _ENDED

    @property
    def line(self) -> str:
        """For people."""
        return f"{self.name}: status {self.status}"


def mlflow_runs(root: Path) -> list[TrackedRun]:
    """Every run of a file store or a database at or below `root`; none where none can be read."""
    found: dict[Path, None] = {}
    runs: list[TrackedRun] = []
    for item in walk(root):
        if isinstance(item, str) or item.kind != "mlflow":
            continue
        path = Path(item.path)
        if is_database(path):
            runs += _of_database(path)
        elif (place := metrics_directory(path.parent)) is not None:
            found[place.parent] = None
    return [*runs, *(run for place in found for run in _of_file(place))]


def _of_database(path: Path) -> Iterator[TrackedRun]:
    try:
        rows = stored_statuses(path)
    except sqlite3.Error:
        return
    yield from (TrackedRun(name=f"MLflow run {name}", status=status) for name, status in rows)


def _of_file(place: Path) -> Iterator[TrackedRun]:
    try:
        with (place / RUN_FILE).open(encoding="utf-8", errors="replace") as file:
            found = _STATUS.search(file.read(MAX_META_BYTES))
    except OSError:
        return
    if found is not None:
        yield TrackedRun(name=f"MLflow run {place.name}", status=_NUMBERED.get(found[1], found[1]))


def wandb_run(path: Path, exit_code: int | None) -> TrackedRun:
    """A run file with its exit record's code, None where it has none yet."""
    if exit_code is None:
        return TrackedRun(name=f"W&B run file {path.name}", status="RUNNING")
    return TrackedRun(name=f"W&B run file {path.name}, exit code {exit_code}",
                      status="FINISHED" if exit_code == 0 else "FAILED")
