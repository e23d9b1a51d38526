"""MetricStore: every scalar of a run in one SQLite file, metrics.db.

One writer, one transaction per poll. The journal mode is DELETE, not WAL: after a SIGKILL a WAL database
needs its -shm file or a writable directory before anyone can read it, while a rollback journal leaves one
plain file between transactions. A writer that was killed inside a transaction leaves a hot journal, which a
read-only opener may not roll back; `open` then reads a private copy, so evidence is never changed by being
read.

Encoding: `value` is NULL for NaN and for nothing else (SQLite cannot hold NaN and stores NULL in its place);
infinities are stored as they are; -0.0 becomes 0.0. `seq` is the rowid of `point`: the order in which events
were written down. The view `event` shows everything with names: `SELECT * FROM event WHERE tag =
'train/loss'`.
"""

from __future__ import annotations

import contextlib
import math
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.errors import RecordError
from harness.record import database
from harness.record.database import named
from harness.record.events import EventColumns, MetricEvent
from harness.record.points import PointWriter
from harness.record.series import Point, SeriesReader, TagSummary
from harness.record.vocabulary import Phase, Standing

__all__ = ["MetricStore", "Point", "StoredSource", "TagSummary"]

@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSource:
    """One file that events came from. Counts are events as read, before the attempt rule."""

    id: int
    kind: str
    path: str
    run: str
    """Name of the subdirectory under the metric root, '' for the root itself."""
    node: str
    writer: str
    """What tells writers apart: a PID, a rank, or the file's name."""
    attempt: int
    inode: int | None
    opened_at: float
    """When the writer says it opened the file, seconds since the epoch; 0.0 where it does not."""
    points: int
    fresh_points: int
    stale_points: int
    foreign_points: int
    first_observed_at: float | None
    last_observed_at: float | None


class MetricStore:
    """See the module's docstring. Writing methods need a store from `create`; reading ones work on both."""

    def __init__(
        self, path: Path, connection: sqlite3.Connection, *, cleanup: Callable[[], None] | None = None
    ) -> None:
        """Use `create`, `temporary` or `open`."""
        self.path = path
        self._db = connection
        self._series = SeriesReader(connection)
        self._points = PointWriter(connection)
        self.phase_of: Callable[[str, str], Phase] = lambda _run, _tag: Phase.TRAIN
        """(run, tag) -> phase, asked once for every tag of every source when its first event is written."""
        self._cleanup = cleanup
        self.redact: Callable[[str], str] = str
        """What every name passes before it is stored: a tag, a path or a run directory may hold a secret."""
        self._in_transaction = False
        self._tracks: dict[tuple[int, str], int] = {}
        self._runs: dict[int, str] = {}

    # -- opening and closing

    @classmethod
    def create(cls, path: Path) -> MetricStore:
        """A new, empty store; RecordError where one is there already."""
        if path.exists():
            raise RecordError(f"{path} exists; a new run never writes over an earlier one's metrics")
        return cls._create(path, str(path))

    @classmethod
    def temporary(cls) -> MetricStore:
        """A store on no lasting file (SQLite spills it to a temporary one), gone when it is closed."""
        return cls._create(Path("(temporary)"), "")

    @classmethod
    def _create(cls, path: Path, target: str) -> MetricStore:
        return cls(path, database.create(path, target))

    @classmethod
    def open(cls, path: Path) -> MetricStore:
        """An existing store, read-only, also one whose writer was killed; RecordError if missing or
        damaged."""
        db, cleanup = database.open_readonly(path)
        return cls(path, db, cleanup=cleanup)

    def close(self) -> None:
        """Idempotent. An open transaction is lost."""
        self._db.close()
        if self._cleanup:
            self._cleanup()
            self._cleanup = None

    def __enter__(self) -> MetricStore:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    # -- writing

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything appended inside becomes visible at once; on an exception nothing does. Nests."""
        if self._in_transaction:
            yield
            return
        with named(self.path, "cannot be written"):
            self._db.execute("BEGIN IMMEDIATE")
            self._in_transaction = True
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")
                raise
            finally:
                self._in_transaction = False

    def add_source(
        self,
        *,
        kind: str,
        path: str,
        run: str = "",
        node: str = "",
        writer: str = "",
        attempt: int = 1,
        inode: int | None = None,
        opened_at: float = 0.0,
    ) -> int:
        """Register a file; `writer` defaults to the file's name."""
        with self.transaction():
            cursor = self._db.execute(
                "INSERT INTO source(kind, path, run, node, writer, attempt, inode, opened_at)"
                " VALUES(?, ?, ?, ?, ?, ?, ?, ?)",
                (kind, _utf8(self.redact(path)), _utf8(self.redact(run)), _utf8(node),
                 _utf8(self.redact(writer or Path(path).name)), attempt, inode, opened_at),
            )
        source = cursor.lastrowid
        assert source is not None
        self._runs[source] = run
        return source

    def set_opened_at(self, source: int, opened_at: float) -> None:
        """What the file itself says about when it was opened; known only after its first record."""
        with self.transaction():
            self._db.execute("UPDATE source SET opened_at = ? WHERE id = ?", (opened_at, source))

    def append(
        self,
        source: int,
        events: Sequence[MetricEvent],
        *,
        observed_at: float,
        standing: Standing = Standing.FRESH,
    ) -> None:
        """Write events down in their order."""
        self.append_columns(source, EventColumns.of(events), observed_at=observed_at, standing=standing)

    def append_columns(
        self, source: int, columns: EventColumns, *, observed_at: float, standing: Standing = Standing.FRESH
    ) -> None:
        """`append` without an object per event."""
        if not columns.tag:
            return
        with self.transaction():
            local = [self._track(source, tag) for tag in columns.tags]
            tracks = [local[index] for index in columns.tag]
            walls = [wall for wall in (min(columns.wall_time), max(columns.wall_time)) if wall > 0.0] or [0.0]
            batch = self._db.execute(
                "INSERT INTO batch(source, observed_at, standing, points, first_wall, last_wall)"
                " VALUES(?, ?, ?, ?, ?, ?)",
                (source, observed_at, standing.value, len(tracks), walls[0], walls[-1]),
            ).lastrowid
            self._points.write(batch, tracks, columns, fresh=standing is Standing.FRESH)

    def _track(self, source: int, tag: str) -> int:
        known = self._tracks.get((source, tag))
        if known is not None:
            return known
        shown = self.redact(tag)
        track = self._tracks.get((source, shown)) or self._new_track(source, shown)
        self._tracks[source, tag] = self._tracks[source, shown] = track
        return track

    def _new_track(self, source: int, tag: str) -> int:
        phase = self.phase_of(self._runs.get(source, ""), tag)
        track = self._db.execute(
            "INSERT INTO track(source, tag, phase, ordered, points, fresh_points) VALUES(?, ?, ?, 1, 0, 0)",
            (source, _utf8(tag), phase.value),
        ).lastrowid
        assert track is not None
        self._points.known(track)
        return track

    def add_purge(self, source: int, step: int) -> None:
        """A restart marker: what this source wrote so far at or above `step` no longer counts."""
        with self.transaction():
            self._db.execute(
                "INSERT INTO purge SELECT ?, 1 + coalesce(max(rowid), 0), ? FROM point", (source, step)
            )

    def set_standing(self, source: int, standing: Standing, *, only: Standing | None = None) -> None:
        """Change the standing of a source's events, or of those that had `only`."""
        with self.transaction():
            self._db.execute(
                "UPDATE batch SET standing = ?1 WHERE source = ?2 AND (?3 IS NULL OR standing = ?3)",
                (standing.value, source, only.value if only else None),
            )
            self._db.execute(
                "UPDATE track SET (fresh_points, first_step) = (SELECT count(*), min(p.step) FROM point p"
                " JOIN batch b ON b.id = p.batch WHERE p.track = track.id AND b.standing = 'fresh')"
                " WHERE source = ?",
                (source,),
            )

    def build_index(self) -> None:
        """Make reading single series fast; worth it once, when writing is over."""
        with self.transaction():
            self._db.execute("CREATE INDEX IF NOT EXISTS point_track ON point(track)")

    # -- reading

    def sources(self) -> list[StoredSource]:
        """Every file that events came from, in the order of discovery."""
        with named(self.path, "is damaged"):
            rows = self._db.execute(
                "SELECT s.id, s.kind, s.path, s.run, s.node, s.writer, s.attempt, s.inode, s.opened_at,"
                " coalesce(sum(b.points), 0), coalesce(sum(b.points * (b.standing = 'fresh')), 0),"
                " coalesce(sum(b.points * (b.standing = 'stale')), 0),"
                " coalesce(sum(b.points * (b.standing = 'foreign')), 0),"
                " min(b.observed_at), max(b.observed_at)"
                " FROM source s LEFT JOIN batch b ON b.source = s.id GROUP BY s.id ORDER BY s.id"
            ).fetchall()
        names = tuple(StoredSource.__dataclass_fields__)
        return [StoredSource(**dict(zip(names, row, strict=True))) for row in rows]

    def series(
        self,
        tag: str,
        *,
        run: str | None = None,
        writer: str | None = None,
        standing: Standing = Standing.FRESH,
        last: int | None = None,
    ) -> list[Point]:
        """The merged series in step order, one point per step (see harness.record.merge for the rule).

        `run` defaults to the first of `runs_of(tag)`, `writer` to the lowest of those that wrote at the same
        time; `last` keeps the end only. Points of another standing are given as stored, in step order.
        """
        return list(self.iter_series(tag, run=run, writer=writer, standing=standing, last=last))

    def iter_series(
        self,
        tag: str,
        *,
        run: str | None = None,
        writer: str | None = None,
        standing: Standing = Standing.FRESH,
        last: int | None = None,
    ) -> Iterator[Point]:
        """`series`, streaming."""
        with named(self.path, "is damaged"):
            yield from self._series.points(tag, run=run, writer=writer, standing=standing, last=last)

    def iter_written(self, tag: str, *, run: str, first: int | None, last: int | None) -> Iterator[tuple[int, float]]:
        """(step, value) of each fresh point between two steps as it was written, also where a later one of the same
        step replaced it: a trainer may log the evaluation of two models at one step."""
        with named(self.path, "is damaged"):
            rows = self._db.execute(
                "SELECT p.step, p.value FROM point p JOIN track t ON t.id = p.track JOIN batch b ON b.id = p.batch"
                " JOIN source s ON s.id = t.source WHERE t.tag = ? AND s.run = ? AND b.standing = 'fresh'"
                " AND (? IS NULL OR p.step >= ?) AND (? IS NULL OR p.step <= ?) ORDER BY p.step, p.rowid",
                (tag, run, first, first, last, last))
            for step, value in rows:
                yield step, math.nan if value is None else value

    def tags(self) -> list[TagSummary]:
        """Every tag of every run directory, by run and tag; those without a fresh point too."""
        with named(self.path, "is damaged"):
            return self._series.summaries()

    def first_steps(self) -> dict[int, int]:
        """{attempt: lowest step of a fresh training point}, of the attempts that have one."""
        with named(self.path, "is damaged"):
            rows = self._db.execute(
                "SELECT s.attempt, MIN(t.first_step) FROM track t JOIN source s ON s.id = t.source "
                "WHERE t.phase = ? AND t.fresh_points > 0 GROUP BY s.attempt", (Phase.TRAIN.value,))
            return {attempt: step for attempt, step in rows if step is not None}

    def steps_between(self, begin: float, end: float) -> tuple[int | None, int | None]:
        """(lowest, highest) step of the fresh training points that were written in [begin, end), by their own clock
        where they have one, else when they were seen; seconds since the epoch."""
        with named(self.path, "is damaged"):
            low, high = self._db.execute(
                "SELECT MIN(p.step), MAX(p.step) FROM point p JOIN track t ON t.id = p.track"
                " JOIN batch b ON b.id = p.batch WHERE t.phase = ? AND b.standing = 'fresh'"
                " AND iif(p.wall_time > 0, p.wall_time, b.observed_at) >= ?"
                " AND iif(p.wall_time > 0, p.wall_time, b.observed_at) < ?", (Phase.TRAIN.value, begin, end)).fetchone()
            return low, high

    def runs_of(self, tag: str) -> list[str]:
        """Run directories that hold fresh points of the tag, the one that `series` defaults to first."""
        with named(self.path, "is damaged"):
            return self._series.runs_of(tag)


def _utf8(text: str) -> str:
    """With lone surrogates (undecodable bytes of a path, odd JSON) escaped, since SQLite holds UTF-8 alone."""
    return text.encode("utf-8", "backslashreplace").decode()
