"""Which checkpoints lie below a run's directories, in numeric order, and which of them this run wrote.

Told by names and metadata alone; no file is opened but shard indexes, which `inspect` reads.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MAX_ENTRIES = 200_000
MAX_DEPTH = 8
OLDEST_S = 600.0
"""A file whose own time lies further before the launch was copied in, and is not of this run."""

INSPECTED_SUFFIX = ".safetensors"
OPAQUE_SUFFIXES = (".pt", ".pth", ".ckpt", ".keras", ".h5", ".msgpack", "model.bin", "states.bin", "args.bin")
"""Listed, never opened: reading most of them means unpickling."""
INDEX_SUFFIX = ".safetensors.index.json"
_UNFINISHED = re.compile(
    r"^(tmp[-_.]|\.)|([-_.]tmp|\.incomplete|\.partial|\.part|\.lock)(\.|$)|checkpoint-tmp"
)
_SKIPPED_DIRS = frozenset({"__pycache__", "node_modules", "venv", "site-packages", "wandb", "mlruns"})
_STATE_FILE = re.compile(
    r"^(optimizer|optim|scheduler|lr_scheduler|rng|random|scaler|grad_scaler|train(er|ing)?_(state|args)|sampler|"
    r"data_?loader|data_state|args)([^A-Za-z]|$)|(^|[._-])(optim|optimizer)_states?"
)
"""Files of a checkpoint that hold training state: they differ between any two saves, and prove nothing."""
_STEP = (
    re.compile(r"(?:^|[^A-Za-z])(?:global[-_]?)?steps?[-_=]?(\d{1,12})(?!\d)", re.IGNORECASE),
    re.compile(
        r"(?:^|[^A-Za-z])(?:checkpoint|ckpt|iter|iteration|update)[-_=]?(\d{1,12})(?!\d)", re.IGNORECASE
    ),
)
_EPOCH = re.compile(r"(?:^|[^A-Za-z])epochs?[-_=]?(\d{1,9})(?!\d)", re.IGNORECASE)
_STEP_DIRECTORY = re.compile(
    r"(?:^|[^A-Za-z])(?:(?:global[-_]?)?step|checkpoint|ckpt|iter|iteration|update|epoch)s?[-_=]?\d{1,12}$",
    re.IGNORECASE,
)
"""A directory that is one checkpoint with all below it; `step2_finetune` only holds some."""
_SHARD = re.compile(r"(\d{5})-of-(\d{5})")
_TRAILING_NUMBER = re.compile(r"[-_.](\d{1,12})$")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileMark:
    """What tells that a file was written anew."""

    size: int
    mtime_ns: int
    inode: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The weight files below the roots before the launch."""

    files: Mapping[str, FileMark] = field(default_factory=dict)
    complete: bool = True
    """False where the walk reached its bound, so that an old file could be taken for new."""

    def to_json(self) -> dict[str, Any]:
        """JSON-ready mapping; `from_json` is its inverse."""
        files = {path: [mark.size, mark.mtime_ns, mark.inode] for path, mark in self.files.items()}
        return {"files": files, "complete": self.complete}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Snapshot:
        """The inverse of `to_json`."""
        files = {path: FileMark(size=s, mtime_ns=m, inode=i) for path, (s, m, i) in data["files"].items()}
        return cls(files=files, complete=bool(data["complete"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """One checkpoint: a directory, or a single file."""

    path: Path
    step: int | None
    """Where the name tells it, in the trainer's own counting."""
    epoch: int | None
    order: tuple[int, int, int]
    """Sorts checkpoints; those without any number come first."""
    weights: tuple[Path, ...]
    """safetensors files with model weights."""
    state: tuple[Path, ...]
    """Files with training state: optimizer, scheduler, generators."""
    opaque: tuple[Path, ...]
    """Files that are not inspected."""
    indexes: tuple[Path, ...]
    marks: Mapping[Path, FileMark]

    @property
    def size(self) -> int:
        """Bytes of all its files."""
        return sum(mark.size for mark in self.marks.values())

    @property
    def written_at(self) -> float:
        """Newest time of its files, seconds since the epoch."""
        return max((mark.mtime_ns for mark in self.marks.values()), default=0) / 1e9

    def fresh_files(self, snapshot: Snapshot, launched_at: float) -> tuple[Path, ...]:
        """Those of its weight files (of all, where it has none) that were written after the launch."""
        files = self.weights or self.opaque
        return tuple(path for path in files if is_fresh(path, self.marks[path], snapshot, launched_at))


def is_fresh(path: Path, mark: FileMark, snapshot: Snapshot, launched_at: float) -> bool:
    """New or changed since the snapshot, and by its own time not older than the launch (10 minutes skew)."""
    return snapshot.files.get(str(path)) != mark and mark.mtime_ns / 1e9 >= launched_at - OLDEST_S


def take_snapshot(roots: Iterable[Path]) -> Snapshot:
    """The state before the launch. Roots that do not exist yet are fine."""
    walk = _Walk()
    files = {str(path): mark for root in roots for path, mark in walk.files(root)}
    return Snapshot(files=files, complete=walk.entries < MAX_ENTRIES)


def find_checkpoints(root: Path) -> tuple[Checkpoint, ...]:
    """All checkpoints below `root` (itself one, or a file), the earliest first. Unfinished ones are left out.

    A directory that names a step is one checkpoint with all below it; elsewhere each directory with weights
    is one, and each file that carries a number of its own.
    """
    groups: dict[Path, dict[Path, FileMark]] = {}
    for path, mark in _Walk().files(root):
        groups.setdefault(_checkpoint_of(path, root), {})[path] = mark
    found = [_checkpoint(path, marks) for path, marks in _split(groups).items()]
    weighty = [one for one in found if one.weights or one.opaque]
    return tuple(sorted(weighty, key=lambda one: (one.order, str(one.path))))


def find_all(roots: Iterable[Path]) -> tuple[Checkpoint, ...]:
    """Checkpoints below several roots, each once, the earliest first."""
    found = {one.path: one for root in roots for one in find_checkpoints(root)}
    return tuple(sorted(found.values(), key=lambda one: (one.order, str(one.path))))


def step_of(name: str) -> int | None:
    """The step that a file's or directory's name tells: step_000012, checkpoint-12, epoch=1-step=20."""
    if _SHARD.search(name):
        return None
    for pattern in _STEP:
        match = pattern.search(name)
        if match:
            return int(match.group(1))
    return None


def missing_shards(names: Iterable[str]) -> tuple[str, ...]:
    """Names of the shards `...-00001-of-00003...` that a set of files lacks."""
    names = set(names)
    expected = set()
    for name in names:
        match = _SHARD.search(name)
        if match and 0 < int(match.group(2)) <= 10_000:
            total = match.group(2)
            expected |= {
                name[: match.start()] + f"{i:05d}-of-{total}" + name[match.end() :]
                for i in range(1, int(total) + 1)
            }
    return tuple(sorted(expected - names))


class _Walk:
    """Weight files below directories. Bounded over all calls; directory links are not followed."""

    def __init__(self) -> None:
        self.entries = 0

    def files(self, root: Path) -> Iterator[tuple[Path, FileMark]]:
        if root.is_file():
            mark = _mark(root)
            if mark and _is_kept(root.name):
                yield root, mark
            return
        pending = [(root, 0)]
        while pending and self.entries < MAX_ENTRIES:
            directory, depth = pending.pop()
            try:
                with os.scandir(directory) as entries:
                    listed = sorted(entries, key=lambda entry: entry.name)
            except OSError:
                continue
            for entry in listed:
                self.entries += 1
                if _UNFINISHED.search(entry.name):
                    continue
                path = directory / entry.name
                if entry.is_dir(follow_symlinks=False):
                    if depth < MAX_DEPTH and entry.name not in _SKIPPED_DIRS:
                        pending.append((path, depth + 1))
                elif _is_kept(entry.name) and not entry.is_dir() and (mark := _mark(path)):
                    yield path, mark


def _is_kept(name: str) -> bool:
    return name.endswith((INSPECTED_SUFFIX, INDEX_SUFFIX, *OPAQUE_SUFFIXES))


def _mark(path: Path) -> FileMark | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return FileMark(size=stat.st_size, mtime_ns=stat.st_mtime_ns, inode=stat.st_ino)


def _checkpoint_of(path: Path, root: Path) -> Path:
    """The outermost directory that names a step, else a file with a number of its own, else its directory."""
    if path == root:
        return path
    for parent in reversed(path.relative_to(root).parents[:-1]):
        if _STEP_DIRECTORY.search(parent.name):
            return root / parent
    is_numbered = (
        step_of(path.stem) is not None or _EPOCH.search(path.stem) or _TRAILING_NUMBER.search(path.stem)
    )
    return (
        path
        if is_numbered and not _SHARD.search(path.name) and not _STATE_FILE.search(path.name)
        else path.parent
    )


def is_shard(name: str) -> bool:
    """Whether a file is one of `...-00001-of-00003...`."""
    return _SHARD.search(name) is not None


def _split(groups: Mapping[Path, Mapping[Path, FileMark]]) -> dict[Path, Mapping[Path, FileMark]]:
    """Several whole models side by side in a directory without a step (best, last) are a checkpoint each."""
    split: dict[Path, Mapping[Path, FileMark]] = {}
    for path, marks in groups.items():
        models = [f for f in marks if f.name.endswith(INSPECTED_SUFFIX) and not _STATE_FILE.search(f.name)]
        apart = [f for f in models if f.parent == path and not is_shard(f.name)]
        if len(apart) < 2 or step_of(path.name) is not None or _EPOCH.search(path.name):
            split[path] = marks
            continue
        split[path] = {file: mark for file, mark in marks.items() if file not in apart}
        split.update({file: {file: marks[file]} for file in apart})
    return split


def _checkpoint(path: Path, marks: Mapping[Path, FileMark]) -> Checkpoint:
    name = path.name if path.is_dir() else path.stem
    step = step_of(name)
    epoch_match = _EPOCH.search(name)
    epoch = int(epoch_match.group(1)) if epoch_match else None
    trailing = _TRAILING_NUMBER.search(name) if not path.is_dir() else None
    number = int(trailing.group(1)) if trailing else -1
    state = {file for file in marks if _STATE_FILE.search(file.name)}
    tensors = sorted(file for file in marks if file.name.endswith(INSPECTED_SUFFIX))
    return Checkpoint(
        path=path,
        step=step,
        epoch=epoch,
        order=(-1 if step is None else step, -1 if epoch is None else epoch, number),
        weights=tuple(file for file in tensors if file not in state),
        state=tuple(sorted(state)),
        opaque=tuple(sorted(file for file in marks.keys() - state if file.name.endswith(OPAQUE_SUFFIXES))),
        indexes=tuple(sorted(file for file in marks if file.name.endswith(INDEX_SUFFIX))),
        marks=marks,
    )
