"""The out-dir: its file names, its one writer, and where an earlier run's artifacts go."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import socket
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

from harness.errors import ConfigError, LeaseHeld
from harness.record.files import read_json

RUN_SPEC = "run-spec.json"
RUN_COMMAND = "run-command.txt"
TRAIN_LOG = "train.log"
JOURNAL = "journal.jsonl"
METRICS_DB = "metrics.db"
REPORT = "train-model.json"
WATCH_REPORT = "babysit-training.json"
FAILURE_REPORT = "check-failed-run.json"
LINEAGE = "lineage.json"
PROGRESS = "progress.log"
PROBE_DIR = "probe"
METRICS_DIR = "metric-events"
STACKS = "stall-stacks.txt"
RESUME_CHECK = "resume-check"
SMOKE = "smoke"
ATTEMPTS = "attempts"
LEASE = ".lease"

_ARTIFACTS = (
    RUN_SPEC, RUN_COMMAND, JOURNAL, METRICS_DB, f"{METRICS_DB}-wal", f"{METRICS_DB}-shm", f"{METRICS_DB}-journal",
    REPORT, PROGRESS, PROBE_DIR, METRICS_DIR, STACKS, RESUME_CHECK, SMOKE, WATCH_REPORT, FAILURE_REPORT, LINEAGE,
)
_ARTIFACT_NAMES = re.compile(r"train(\.\d+)?\.log|hp-overrides\..*")


def train_log(attempt: int) -> str:
    """train.log, train.2.log, ... by attempt."""
    return TRAIN_LOG if attempt == 1 else f"train.{attempt}.log"


_PROBE_NAMES = re.compile(r"\..*|.*\.json(\..*partial|\.partial)?|loaded|problems\.log")


def prepare(out_dir: Path) -> None:
    """Create the out-dir and prove that it can be written. ConfigError names the path and the remedy."""
    try:
        out_dir.mkdir(parents=True, exist_ok=True)
        trial = out_dir / f".writable-{os.getpid()}"
        trial.write_bytes(b"x")
        trial.unlink()
    except OSError as error:
        raise ConfigError(
            f"--out-dir {out_dir}: cannot be written: {error.strerror}; give a directory that can be"
        ) from error


def relative(out_dir: Path, path: str) -> str:
    """A path as artifacts hold it: relative inside the out-dir, as it is elsewhere."""
    place = Path(path)
    return str(place.relative_to(out_dir)) if place.is_relative_to(out_dir) else path


class Lease:
    """The right to write an out-dir: a lock that ends with its process, however that ends."""

    def __init__(self, out_dir: Path) -> None:
        self.path = out_dir / LEASE
        self._handle: int | None = None

    def __enter__(self) -> Lease:
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(handle, 4096).decode("utf-8", "replace").strip() or "another supervisor"
            os.close(handle)
            raise LeaseHeld(
                f"--out-dir {self.path.parent}: {holder} is writing a run here; wait for it or give another directory"
            ) from error
        os.ftruncate(handle, 0)
        os.write(handle, f"process {os.getpid()} on {socket.gethostname()}".encode())
        self._handle = handle
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def is_held(out_dir: Path) -> bool:
    """Whether a living supervisor writes this out-dir."""
    try:
        handle = os.open(out_dir / LEASE, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


def archive_earlier_run(out_dir: Path) -> Path | None:
    """Move an earlier run's artifacts to attempts/RUN_ID; None when there is none. Checkpoints stay.

    Any artifact counts, since what is left here would be taken for the next run's. The run spec moves last: after a
    kill in between it still names the directory, and the next call goes on with it.
    """
    found = _artifacts(out_dir)
    if not found:
        return None
    target = _archive(out_dir, {path.name for path in found})
    target.mkdir(parents=True, exist_ok=True)
    for path in found:
        path.rename(target / path.name)
    return target


def refuse_foreign_files(out_dir: Path, given: Iterable[Path] = ()) -> None:
    """ConfigError where files that no run of this harness wrote bear an artifact's name, or one of `given` does.

    A directory of the user's own, which commands of `python -m harness` write to by default, may hold a train.log.
    """
    found = _artifacts(out_dir)
    foreign = [] if any(path.name == RUN_SPEC for path in found) else found
    moved = [path for path in found if any(os.path.realpath(path) == os.path.realpath(one) for one in given)]
    for path in (*foreign, *moved):
        raise ConfigError(f"--out-dir {out_dir}: {path.name} lies there, whose name an artifact bears; it is not to be "
                          "moved: give another directory")


def _artifacts(out_dir: Path) -> list[Path]:
    """What runs of this harness left, the run spec last."""
    names = sorted(path.name for path in out_dir.iterdir())
    found = [name for name in names if name in _ARTIFACTS or _ARTIFACT_NAMES.fullmatch(name)]
    if PROBE_DIR in found and not _is_probe(out_dir / PROBE_DIR):
        found.remove(PROBE_DIR)
    return [out_dir / name for name in sorted(found, key=lambda name: name == RUN_SPEC)]


def _is_probe(directory: Path) -> bool:
    """Whether a directory of this name holds the probe's files, and is not the user's."""
    try:
        return all(_PROBE_NAMES.fullmatch(path.name) for path in directory.iterdir())
    except OSError:
        return False


def _archive(out_dir: Path, names: set[str]) -> Path:
    """A directory of its own for the earlier run, or the one that an interrupted call began."""
    begun = out_dir / ATTEMPTS / _earlier_run_id(out_dir)
    taken = {path.name for path in begun.iterdir()} if begun.is_dir() else {RUN_SPEC}
    if RUN_SPEC in names and taken.isdisjoint(names):
        return begun
    return _free_name(out_dir / ATTEMPTS, begun.name)


def _earlier_run_id(out_dir: Path) -> str:
    with contextlib.suppress(OSError, ValueError, AttributeError):
        name = read_json(out_dir / RUN_SPEC).get("run_id")
        if isinstance(name, str) and name and all(c.isalnum() or c in "-_." for c in name) and name.strip("."):
            return name[:100]
    return "unknown"


def _free_name(parent: Path, name: str) -> Path:
    candidate, number = parent / name, 1
    while candidate.exists():
        number += 1
        candidate = parent / f"{name}-{number}"
    return candidate
