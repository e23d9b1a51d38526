"""MLflow's local stores: a file for each metric below `mlruns/EXPERIMENT/RUN/metrics`, or one SQLite database.

A line of a metric file is "timestamp value step", in milliseconds since the epoch; a metric's name may hold slashes,
which are directories. The database's table `metrics` holds NaN as a flag beside 0 and infinities as the largest
double. Format of MLflow 2 and 3, checked against files of 3.17.
"""

from __future__ import annotations

import hashlib
import math
import sqlite3
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

from harness.metrics.model import EventColumns, Part, RestartMarker, SourceProblem
from harness.metrics.tail import TailedFile

CHUNK_BYTES = 1 << 20
MAX_LINE_BYTES = 1 << 16
ROWS_PER_READ = 2000
"""Rows between which the database is let go, so that its writer never waits long."""
DATABASE_NAME = "mlflow.db"
METRICS_DIRECTORY = "metrics"
RUN_FILE = "meta.yaml"
"""Beside the directory of metrics."""
_INT64 = 1 << 63
_LARGEST = 1.7976931348623157e308
_SQLITE = b"SQLite format 3\x00"


class MlflowReader(TailedFile):
    """One metric's file; see SourceReader for the contract."""

    kind = "mlflow"

    def __init__(self, path: Path, *, first_offset: int = 0) -> None:
        """`first_offset`: nothing before it is read."""
        super().__init__(path, first_offset)
        self.offset = first_offset
        self.tag = metric_name(path)

    def _read(self, file: FileIO, *, final: bool) -> Iterator[EventColumns | RestartMarker]:
        rest = b""
        while block := file.read(CHUNK_BYTES):
            data = rest + block
            end = data.rfind(b"\n") + 1
            if end:
                yield from self._take(data[:end])
            rest = data[end:]
            if len(rest) > MAX_LINE_BYTES:
                self._end("oversized", self.offset, f"a line of more than {MAX_LINE_BYTES} bytes")
                return

    def _take(self, data: bytes) -> Iterator[EventColumns]:
        columns = EventColumns([self.tag], [], [], [], [])
        for line in data.splitlines():
            row = _row(line)
            if row is None:
                if line.strip():
                    self._report_once("not-parsable", self.offset, f"no metric of MLflow: {line[:80]!r}")
                continue
            columns.tag.append(0)
            columns.step.append(row[0])
            columns.value.append(row[1])
            columns.wall_time.append(row[2])
        self._consume(data)
        if columns.tag:
            yield columns


def _row(line: bytes) -> tuple[int, float, float] | None:
    """(step, value, seconds since the epoch); early versions wrote no step."""
    words = line.split()
    try:
        step = int(words[2]) if len(words) > 2 else 0
        found = step, float(words[1]), int(words[0]) / 1000
    except (ValueError, IndexError, OverflowError):
        return None
    return found if abs(step) < _INT64 else None


class MlflowDatabaseReader:
    """A tracking database; see SourceReader for the contract. Rows stand for bytes, and each MLflow run is a Part.

    The database is opened read-only for each look, and let go between pages of rows: a writer waits for milliseconds
    at most, as for any other reader. While it is locked nothing is read; the next poll looks again.
    """

    kind = "mlflow"

    def __init__(self, path: Path, *, first_offset: int = 0) -> None:
        """`first_offset`: the rowid up to which rows were there before the launch."""
        self.path = path
        self.first_offset = first_offset
        self.bytes_read = 0
        self.opened_at = 0.0
        self.ended = ""
        self.identity: tuple[int, int] | None = None
        self._last = first_offset
        self._mark: tuple[int, ...] | None = None
        self._digest = hashlib.sha256()
        self._runs: dict[str, str] = {}
        self._problem: SourceProblem | None = None

    @property
    def sha256(self) -> str:
        """Digest of the rows that were read."""
        return self._digest.hexdigest()

    def poll(self, *, final: bool = False) -> Iterator[EventColumns | RestartMarker | Part]:
        """Rows that were added since the last poll, by run."""
        mark = _database_mark(self.path)
        if self.ended or mark is None:
            self._problem = self._found("vanished", "the file is gone") if mark is None and self._mark else None
            return
        identity = mark[0], mark[1]
        if self.identity is not None and identity != self.identity:
            self.ended = "replaced"
            self._problem = self._found("replaced", "another file took its name")
            return
        self.identity = identity
        if mark == self._mark and not final:
            return
        self._problem = None
        try:
            while rows := self._page():
                yield from self._gather(rows)
            self._mark = mark
        except sqlite3.Error as error:
            self._problem = self._found("unreadable", str(error))

    def _page(self) -> list[tuple[int, str, str, int, float, int, int]]:
        with _connected(self.path) as database:
            return database.execute(
                "SELECT rowid, run_uuid, key, step, value, timestamp, is_nan FROM metrics WHERE rowid > ?"
                " ORDER BY rowid LIMIT ?", (self._last, ROWS_PER_READ)).fetchall()

    def _gather(self, rows: list[tuple[int, str, str, int, float, int, int]]) -> Iterator[EventColumns | Part]:
        by_run: dict[str, EventColumns] = {}
        indices: dict[tuple[str, str], int] = {}
        for _, run, key, step, value, timestamp, is_nan in rows:
            columns = by_run.setdefault(run, EventColumns([], [], [], [], []))
            if (run, key) not in indices:
                indices[run, key] = len(columns.tags)
                columns.tags.append(key)  # type: ignore[attr-defined]
            columns.tag.append(indices[run, key])
            columns.step.append(step)
            columns.value.append(_stored(value, is_nan))
            columns.wall_time.append(timestamp / 1000)
        self._digest.update(repr(rows).encode())
        self.bytes_read += len(rows)
        self._last = rows[-1][0]
        for run, columns in by_run.items():
            yield Part(self._name(run))
            yield columns

    def _name(self, run: str) -> str:
        """EXPERIMENT/RUN, as the file store calls its directories."""
        if run not in self._runs:
            with _connected(self.path) as database:
                row = database.execute("SELECT experiment_id FROM runs WHERE run_uuid = ?", (run,)).fetchone()
            self._runs[run] = f"{row[0]}/{run}" if row else run
        return self._runs[run]

    def _found(self, code: str, message: str) -> SourceProblem:
        return SourceProblem(code=code, path=self.path, offset=None, message=message)

    def problems(self, *, final: bool = False) -> list[SourceProblem]:
        """What is wrong at the moment."""
        return [self._problem] if self._problem is not None else []


def _stored(value: float | None, is_nan: int) -> float:
    if is_nan or value is None:
        return math.nan
    return math.copysign(math.inf, value) if abs(value) >= _LARGEST else value


class _connected:
    """A read-only connection for one statement; sqlite3.Error where the file is none, or is locked."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> sqlite3.Connection:
        self._db = sqlite3.connect(
            f"{self._path.resolve().as_uri()}?mode=ro", uri=True, timeout=0.0, isolation_level=None)
        return self._db

    def __exit__(self, *_exc: object) -> None:
        self._db.close()


def _database_mark(path: Path) -> tuple[int, ...] | None:
    """(device, inode, what changes when a row is written)."""
    try:
        status = path.stat()
    except OSError:
        return None
    size, time_ns = write_ahead_log(path)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, size, time_ns


def write_ahead_log(path: Path) -> tuple[int, int]:
    """(size, time in ns) of the log that a database in WAL mode is written to; zeros where there is none."""
    try:
        status = path.with_name(f"{path.name}-wal").stat()
    except OSError:
        return 0, 0
    return status.st_size, status.st_mtime_ns


def last_row(path: Path) -> int:
    """The highest rowid of the metrics that a database holds; 0 where it cannot be told."""
    try:
        with _connected(path) as database:
            return int(database.execute("SELECT coalesce(max(rowid), 0) FROM metrics").fetchone()[0])
    except sqlite3.Error:
        return 0


def stored_statuses(path: Path) -> list[tuple[str, str]]:
    """(run, status) of a database's runs that are not deleted. sqlite3.Error where they cannot be read."""
    with _connected(path) as database:
        return database.execute(
            "SELECT run_uuid, coalesce(status, '') FROM runs WHERE coalesce(lifecycle_stage, '') != 'deleted'"
        ).fetchall()


def is_database(path: Path) -> bool:
    """Whether a file is a SQLite database, by its first bytes."""
    try:
        with path.open("rb") as file:
            return file.read(len(_SQLITE)) == _SQLITE
    except OSError:
        return False


def holds_metrics(path: Path) -> bool:
    """Whether a database has MLflow's tables."""
    try:
        with _connected(path) as database:
            names = database.execute(
                "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name IN ('runs', 'metrics')").fetchone()
    except sqlite3.Error:
        return False
    return int(names[0]) == 2


def metrics_directory(path: Path) -> Path | None:
    """The directory of metrics that a path of a file store lies in (or is), by the run's file beside it.

    The metrics of logged models, below `models`, repeat those of their runs and are left out.
    """
    for folder in (path, *path.parents):
        if folder.name == METRICS_DIRECTORY and is_metrics_directory(folder):
            return folder
    return None


def is_metrics_directory(folder: Path) -> bool:
    """See `metrics_directory`."""
    return folder.parent.parent.name != "models" and (folder.parent / RUN_FILE).is_file()


def metric_name(path: Path) -> str:
    """The metric that a file of a file store holds."""
    folder = metrics_directory(path.parent)
    return path.relative_to(folder).as_posix() if folder is not None else path.name
