"""Which checkpoints lie below a run's directories, in numeric order, and which of them this run wrote.

Told by names and metadata alone; no file is opened but shard indexes, which `inspect` reads.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.checkpoints.archives import scan_archive
from harness.checkpoints.naming import (
    EPOCH,
    INDEX_SUFFIX,
    INSPECTED_SUFFIX,
    MARKERS,
    RECORDS,
    STATE_FILE,
    STEP_DIRECTORY,
    TORCH_SUFFIXES,
    TRAILING_NUMBER,
    ZERO_3,
    are_steps,
    epoch_of,
    is_derived,
    is_numbered_place,
    is_opaque,
    is_shard,
    is_unfinished,
    is_unfinished_save,
    is_weight_file,
    metrics_of,
    series_of,
    stem_of,
    step_of,
    version_of,
)
from harness.checkpoints.records import StateRecord, read_record
from harness.checkpoints.side_files import MAX_OPENED, MODEL, apart, kind_of
from harness.checkpoints.tensors import numbers_inside

MAX_ENTRIES = 200_000
MAX_DEPTH = 8
OLDEST_S = 600.0
"""A file whose own time lies further before the launch was copied in, and is not of this run."""

_SKIPPED_DIRS = frozenset({"__pycache__", "node_modules", "venv", "site-packages", "wandb", "mlruns"})


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
    """By the trainer's own record, else by the name, in the trainer's own counting."""
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
    record: StateRecord = field(default_factory=StateRecord)
    """The trainer's own word in it."""
    records: tuple[Path, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Those that its name holds."""

    @property
    def holders(self) -> tuple[Path, ...]:
        """The opaque files, and of ZeRO stage 3 (whose model states have a rank in their name) the optimizer's shards,
        in which its weights lie."""
        if not any(path.name.startswith(ZERO_3) for path in self.opaque):
            return self.opaque
        return (*self.opaque, *(path for path in self.state if path.name.startswith(ZERO_3)))

    @property
    def is_resumable(self) -> bool:
        """Whether it holds training state beside its weights."""
        return bool(self.state or self.records)

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
    is one, and each file that carries a number of its own. A link to another checkpoint is none.
    """
    return take_inventory((root,)).checkpoints


def find_all(roots: Iterable[Path]) -> tuple[Checkpoint, ...]:
    """Checkpoints below several roots, each once, the earliest first."""
    return take_inventory(roots).checkpoints


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """What lies below some roots."""

    checkpoints: tuple[Checkpoint, ...]
    """The earliest first."""
    unfinished: tuple[Path, ...]
    """Files and directories whose name says that their save did not end."""
    aside: tuple[Path, ...] = ()
    """Files beside a checkpoint that are no model of their own: vocabularies, predictions, exports."""


def take_inventory(roots: Iterable[Path]) -> Inventory:
    """Checkpoints and unfinished saves below several roots, each once."""
    walk, found = _Walk(), dict[Path, Checkpoint]()
    for root in roots:
        groups: dict[Path, dict[Path, FileMark]] = {}
        for path, mark in walk.files(root):
            groups.setdefault(_checkpoint_of(path, root), {})[path] = mark
        for path, marks in _split(groups).items():
            one = _checkpoint(path, marks)
            if one.weights or one.opaque or (one.records and one.step is not None) or (
                    path == root and (one.state or root.is_file())):
                found.setdefault(path, one)
    models, aside = _models(found.values())
    models = _with_steps(models)
    checkpoints = sorted(models, key=lambda one: (one.order, one.is_resumable, str(one.path)))
    return Inventory(checkpoints=tuple(checkpoints), unfinished=tuple(dict.fromkeys(walk.unfinished)),
                     aside=tuple(sorted(one.path for one in aside)))


def _models(found: Iterable[Checkpoint]) -> tuple[list[Checkpoint], list[Checkpoint]]:
    """Without the single files that are no model where a model is there, and those."""
    every = list(found)
    filled = [one for one in every if one.weights or one.opaque]
    if len(filled) < 2:
        return every, []
    _, others = apart(filled, lambda one: kind_of(one.path) if one.path in one.marks else MODEL)
    paths = {one.path for one in others}
    return [one for one in every if one.path not in paths], others


def _with_steps(found: list[Checkpoint]) -> list[Checkpoint]:
    """With the steps of a series of files that are named by a number alone: model_40.pt, model_80.pt, model_120.pt."""
    series: dict[tuple[Path, str, str], dict[Path, int]] = {}
    for one in found:
        told = series_of(stem_of(one.path.name)) if one.path in one.marks else None
        if told is not None and one.step is None and one.epoch is None and not _tells_epoch(one.path):
            ending = one.path.name.removeprefix(stem_of(one.path.name))
            series.setdefault((one.path.parent, told[0], ending), {})[one.path] = told[1]
    steps = {path: step for numbers in series.values() if are_steps(numbers.values()) for path, step in numbers.items()}
    return [replace(one, step=step, order=(step, -1, step)) if (step := steps.get(one.path)) is not None else one
            for one in found]


def _tells_epoch(path: Path) -> bool:
    """Whether what a file holds says that its number is one of an epoch."""
    if not path.name.endswith(TORCH_SUFFIXES):
        return False
    inside = scan_archive(path)
    return inside.step is None and inside.epoch is not None


class _Walk:
    """Weight files below directories. Bounded over all calls; directory links are not followed."""

    def __init__(self) -> None:
        self.entries = 0
        self.unfinished: list[Path] = []

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
                path = directory / entry.name
                if is_unfinished(entry.name):
                    if is_unfinished_save(entry.name) and _holds_weights(path, entry.is_dir(follow_symlinks=False)):
                        self.unfinished.append(path)
                elif entry.is_dir(follow_symlinks=False):
                    if depth < MAX_DEPTH and entry.name not in _SKIPPED_DIRS:
                        pending.append((path, depth + 1))
                elif _is_kept(entry.name) and not entry.is_dir() and not _is_link_beside(entry) and (
                        mark := _mark(path)):
                    yield path, mark


def _is_link_beside(entry: os.DirEntry[str]) -> bool:
    """Whether a file is a link to another one of its own directory, as last.ckpt may be."""
    if not entry.is_symlink():
        return False
    target = os.path.realpath(entry.path)
    return os.path.dirname(target) == os.path.realpath(os.path.dirname(entry.path))  # noqa: PTH120


def _holds_weights(path: Path, is_directory: bool) -> bool:
    """Whether an unfinished entry is, or holds, a file of weights."""
    if not is_directory:
        plain = path.name.lower()
        return any(suffix in plain for suffix in (INSPECTED_SUFFIX, ".pt", ".ckpt", ".keras", ".h5", ".bin"))
    return any(any(_is_kept(name) for name in names) for _, _, names in os.walk(path))


def _is_kept(name: str) -> bool:
    return is_weight_file(name) or name in MARKERS or name in RECORDS


def _mark(path: Path) -> FileMark | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return FileMark(size=stat.st_size, mtime_ns=stat.st_mtime_ns, inode=stat.st_ino)


def _checkpoint_of(path: Path, root: Path) -> Path:
    """The outermost directory that names a step, else a file with a number of its own, else its directory.

    A directory of Orbax or torch.distributed is one with all below it, whatever its name.
    """
    if path == root:
        return path
    parents = path.relative_to(root).parents[:-1]
    for parent in reversed(parents):
        place = root / parent
        if STEP_DIRECTORY.search(parent.name) or _is_numbered(place):
            return place
    if path.name in MARKERS:
        holder = path.parent
        return holder.parent if (holder.parent / MARKERS[0]).exists() and holder != root else holder
    stem = stem_of(path.name)
    is_numbered = step_of(stem) is not None or EPOCH.search(stem) or TRAILING_NUMBER.search(stem)
    return (
        path
        if is_numbered and not is_shard(path.name) and not STATE_FILE.search(path.name) and path.name not in RECORDS
        else path.parent
    )


def _is_numbered(place: Path) -> bool:
    """Whether a directory named by a bare number is a checkpoint: by its parent's name, or since Orbax wrote it."""
    name = place.name
    return is_numbered_place(name, place.parent.name) or (name.isdigit() and len(name) <= 12 and any(
        (place / marker).is_file() for marker in ("_CHECKPOINT_METADATA", "_METADATA", "default/_METADATA")))


def _split(groups: Mapping[Path, Mapping[Path, FileMark]]) -> dict[Path, Mapping[Path, FileMark]]:
    """Several whole models side by side in a directory without a step (best, last) are a checkpoint each."""
    split: dict[Path, Mapping[Path, FileMark]] = {}
    for path, marks in groups.items():
        models = [f for f in marks if _is_model(f.name)]
        apart = [f for f in models if f.parent == path and not is_shard(f.name)]
        alone = (".ckpt", ".keras") if any(f.name.endswith(INSPECTED_SUFFIX) for f in apart) else _ALONE
        whole = [f for f in apart if f.name.endswith(alone)]
        if (len(apart) < 2 and not whole) or step_of(path.name) is not None or EPOCH.search(path.name):
            split[path] = marks
            continue
        split[path] = {file: mark for file, mark in marks.items() if file not in apart}
        split.update({file: {file: marks[file]} for file in apart})
    return split


_ALONE = (".ckpt", ".keras", ".pt", ".pth", ".pth.tar", ".pt.tar", ".h5")
"""Endings of files that are a whole checkpoint each, as far as no safetensors model lies beside them."""


def _is_model(name: str) -> bool:
    return name.endswith((INSPECTED_SUFFIX, *_ALONE)) and not STATE_FILE.search(name)


def _checkpoint(path: Path, marks: Mapping[Path, FileMark]) -> Checkpoint:
    is_directory = path.is_dir()
    name = path.name if is_directory else stem_of(path.name)
    record = read_record(path) if is_directory else StateRecord()
    named = None if is_directory and is_derived(name) else step_of(name)
    if named is None and is_directory and _is_numbered(path):
        named = int(name)
    epoch = epoch_of(name)
    trailing = TRAILING_NUMBER.search(name) if not is_directory else None
    step = record.step if record.step is not None and named is not None else named
    metrics = metrics_of(name)
    if step is None and epoch is None and not trailing and not is_directory and (
            path.name.endswith(TORCH_SUFFIXES)):
        inside = scan_archive(path)
        step, epoch = inside.step, inside.epoch
    if step is None and epoch is None and not trailing and path.suffix == INSPECTED_SUFFIX and not is_directory:
        step, epoch = numbers_inside(path)
    number = int(trailing.group(1)) if trailing else version_of(name) or -1
    state = {file for file in marks if STATE_FILE.search(file.name) and file.name not in RECORDS}
    tensors = sorted(file for file in marks if file.name.endswith(INSPECTED_SUFFIX))
    opaque = sorted(f for f in marks.keys() - state if is_opaque(f.name) or f.name in MARKERS)
    if len(opaque) > 1:
        opaque, _ = apart(opaque, lambda file: kind_of(file, len(opaque) <= MAX_OPENED))
    return Checkpoint(
        path=path,
        step=step,
        epoch=epoch,
        order=(-1 if step is None else step, -1 if epoch is None else epoch, number),
        weights=tuple(file for file in tensors if file not in state),
        state=tuple(sorted(state)),
        opaque=tuple(opaque),
        indexes=tuple(sorted(file for file in marks if file.name.endswith(INDEX_SUFFIX))),
        marks={file: mark for file, mark in marks.items() if file.name not in RECORDS} or marks,
        record=record,
        records=tuple(sorted(file for file in marks if file.name in RECORDS)),
        metrics=metrics,
    )
