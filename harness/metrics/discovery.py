"""Which files under a directory may hold metrics: a bounded, sorted walk that survives loops and
vanishing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.metrics import mlflow

MAX_DEPTH = 8
MAX_ENTRIES = 50_000
TAIL_BYTES = 64
_SKIPPED_DIRECTORIES = frozenset({".git", "__pycache__", "node_modules", ".venv", "latest-run"})
"""`latest-run`: W&B's link to a directory beside it."""
_NOT_METRICS = ("rollout_samples",)
_NOT_METRICS_NAMES = frozenset({"journal.jsonl"})


_METRIC_NAMES = frozenset({
    "history", "log", "log_history", "logs", "loss", "losses", "metrics", "progress", "scalars", "train_log",
    "train_metrics", "trainer_log", "training_log", "training_metrics",
})


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A file that may hold metrics."""

    kind: str
    path: str
    size: int
    """Bytes."""
    device: int
    inode: int
    mtime: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate(Found):
    """The same before the launch, with its last bytes, so that a rewritten file is told from one appended
    to."""

    tail: bytes


def kind_of(name: str) -> str | None:
    """The kind of source that a file's name promises, or None."""
    if "tfevents" in name:
        return "tensorboard"
    if name == "trainer_state.json":
        return "trainer_state"
    if name.endswith("_results.json"):
        return "hf_results"
    if name.endswith(".csv"):
        return "csv"
    if name.startswith("run-") and name.endswith(".wandb"):
        return "wandb"
    if name == mlflow.DATABASE_NAME:
        return "mlflow"
    if name.endswith(".jsonl") and name not in _NOT_METRICS_NAMES and not name.startswith(_NOT_METRICS):
        return "jsonl"
    return None


def is_named_for_metrics(found: Found) -> bool:
    """Whether a file is one of metrics by its name or format, wherever it lies: predictions have losses, too."""
    stem = Path(found.path).stem.lower().replace("-", "_")
    return found.kind not in ("jsonl", "csv") or stem in _METRIC_NAMES


def kind_of_file(path: Path) -> str:
    """The kind of a file that was named itself, by its content and place where its name promises nothing."""
    kind = kind_of(path.name)
    if kind is None and (mlflow.metrics_directory(path.parent) or mlflow.holds_metrics(path)):
        return "mlflow"
    return kind or "jsonl"


def walk(root: Path, folders: set[str] | None = None) -> Iterator[Found | str]:
    """Files below `root` (or `root` itself) in sorted order; a text says what was not looked at, and why.

    `folders`: takes the directories that were looked at.
    """
    left = MAX_ENTRIES
    visited: set[tuple[int, int]] = set()
    stack = [(str(root), 0, mlflow.metrics_directory(root) is not None)]
    if root.is_file():
        yield from _file(str(root), kind_of_file(root))
        return
    while stack:
        folder, depth, is_mlflow = stack.pop()
        try:
            status = os.stat(folder)  # noqa: PTH116
            if (status.st_dev, status.st_ino) in visited:
                continue
            visited.add((status.st_dev, status.st_ino))
            with os.scandir(folder) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
            if folders is not None:
                folders.add(folder)
        except OSError as error:
            if not isinstance(error, FileNotFoundError | NotADirectoryError):
                yield f"{folder}: {error.strerror}"
            continue
        deeper = []
        for entry in entries:
            left -= 1
            if left < 0:
                yield f"more than {MAX_ENTRIES} entries; the rest was not looked at"
                return
            if _is_directory(entry):
                if entry.name not in _SKIPPED_DIRECTORIES and depth < MAX_DEPTH:
                    inside = is_mlflow or _is_mlflow(entry)
                    deeper.append((entry.path, depth + 1, inside))
            elif (kind := "mlflow" if is_mlflow else kind_of(entry.name)) is not None:
                yield from _file(entry.path, kind)
        stack += reversed(deeper)


def _is_mlflow(entry: os.DirEntry[str]) -> bool:
    return entry.name == mlflow.METRICS_DIRECTORY and mlflow.is_metrics_directory(Path(entry.path))


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _file(path: str, kind: str) -> Iterator[Found]:
    """A regular file (or a link to one); pipes and sockets would block a reader."""
    try:
        status = os.stat(path)  # noqa: PTH116
    except OSError:
        return
    if status.st_mode & 0o170000 == 0o100000:
        ahead = mlflow.write_ahead_log(Path(path)) if path.endswith(mlflow.DATABASE_NAME) else (0, 0)
        yield Found(
            kind=kind,
            path=path,
            size=status.st_size + ahead[0],
            device=status.st_dev,
            inode=status.st_ino,
            mtime=max(status.st_mtime, ahead[1] * 1e-9),
        )


def end_mark(path: Path, kind: str, end: int) -> bytes:
    """What tells later whether the bytes before `end` are still there; of a database its last row."""
    if kind == "mlflow" and mlflow.is_database(path):
        return str(mlflow.last_row(path)).encode()
    return read_tail(path, end)


def read_tail(path: Path, end: int) -> bytes:
    """The last bytes before `end`."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, end - TAIL_BYTES))
            return file.read(min(end, TAIL_BYTES))
    except OSError:
        return b""
