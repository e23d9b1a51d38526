"""metrics.db as a file: made new, or opened read-only whatever state its writer left it in."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from harness.errors import RecordError

FORMAT = 1
_APPLICATION_ID = 0x72737470
_BUSY_S = 30.0

_SCHEMA = """
CREATE TABLE source(
    id INTEGER PRIMARY KEY, kind TEXT NOT NULL, path TEXT NOT NULL, run TEXT NOT NULL, node TEXT NOT NULL,
    writer TEXT NOT NULL, attempt INTEGER NOT NULL, inode INTEGER, opened_at REAL NOT NULL);
CREATE TABLE batch(
    id INTEGER PRIMARY KEY, source INTEGER NOT NULL, observed_at REAL NOT NULL, standing TEXT NOT NULL,
    points INTEGER NOT NULL, first_wall REAL NOT NULL, last_wall REAL NOT NULL);
CREATE TABLE track(
    id INTEGER PRIMARY KEY, source INTEGER NOT NULL, tag TEXT NOT NULL, phase TEXT NOT NULL,
    ordered INTEGER NOT NULL, points INTEGER NOT NULL, fresh_points INTEGER NOT NULL, first_step INTEGER,
    UNIQUE(source, tag));
CREATE TABLE purge(source INTEGER NOT NULL, seq INTEGER NOT NULL, step INTEGER NOT NULL);
CREATE TABLE point(
    track INTEGER NOT NULL, batch INTEGER NOT NULL, step INTEGER NOT NULL, value REAL,
    wall_time REAL NOT NULL);
CREATE VIEW event AS
    SELECT p.rowid AS seq, s.kind, s.path, s.run, s.node, s.writer, s.attempt, t.tag, t.phase,
        p.step, p.value, p.wall_time, b.observed_at, b.standing
    FROM point p JOIN track t ON t.id = p.track JOIN batch b ON b.id = p.batch
        JOIN source s ON s.id = t.source;
"""


def create(path: Path, target: str) -> sqlite3.Connection:
    """A new database at `target`, "" for a temporary one; `path` is how it is called."""
    with named(path, "cannot be created"):
        db = sqlite3.connect(target, isolation_level=None, timeout=_BUSY_S, check_same_thread=False)
        db.execute("PRAGMA journal_mode=DELETE")
        db.execute("PRAGMA synchronous=NORMAL")
        db.executescript(
            f"BEGIN;{_SCHEMA}PRAGMA application_id={_APPLICATION_ID};PRAGMA user_version={FORMAT};COMMIT;"
        )
    return db


def open_readonly(path: Path) -> tuple[sqlite3.Connection, Callable[[], None] | None]:
    """An existing database and what to call once it is closed; RecordError if missing or damaged."""
    if not path.is_file():
        raise RecordError(f"{path} does not exist")
    try:
        return _connect_readonly(path, path), None
    except sqlite3.OperationalError:
        return _open_copy(path)  # a hot journal, or a journal mode that wants to write
    except sqlite3.DatabaseError as error:
        raise RecordError(f"{path} is damaged: {error}") from error


def _open_copy(path: Path) -> tuple[sqlite3.Connection, Callable[[], None]]:
    folder = Path(tempfile.mkdtemp(prefix="metrics-db-"))
    try:
        for suffix in ("", "-journal", "-wal"):
            with contextlib.suppress(FileNotFoundError):
                shutil.copyfile(f"{path}{suffix}", folder / f"metrics.db{suffix}")
        with sqlite3.connect(folder / "metrics.db") as recovering:
            recovering.execute("SELECT count(*) FROM sqlite_master").fetchall()
        recovering.close()
        connection = _connect_readonly(folder / "metrics.db", path)
    except (sqlite3.Error, OSError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise RecordError(f"{path} cannot be read: {error}") from error
    return connection, lambda: shutil.rmtree(folder, ignore_errors=True)


def _connect_readonly(file: Path, shown: Path) -> sqlite3.Connection:
    """Raises sqlite3.Error where SQLite cannot read the file as it stands, RecordError where it is none of
    ours."""
    db = sqlite3.connect(
        f"{file.resolve().as_uri()}?mode=ro",
        uri=True,
        isolation_level=None,
        timeout=_BUSY_S,
        check_same_thread=False,
    )
    try:
        found = (
            db.execute("PRAGMA application_id").fetchone()[0],
            db.execute("PRAGMA user_version").fetchone()[0],
        )
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if found != (_APPLICATION_ID, FORMAT):
            raise RecordError(f"{shown} is not a metric store of format {FORMAT}")
    except BaseException:
        db.close()
        raise
    return db


@contextlib.contextmanager
def named(path: Path, what: str) -> Iterator[None]:
    """SQLite's errors with the path they are about."""
    try:
        yield
    except sqlite3.Error as error:
        raise RecordError(f"{path} {what}: {error}") from error
