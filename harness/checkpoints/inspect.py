"""The checkpoints of one run: whole, finite, of this run, changed from the start.

The cost is bounded: the last whole checkpoint (and a delivered one without a step, such as a merged model) is
read in full for its digest and finite values, the start and the last one once more to compare them; of all
others only the headers are read. Nothing is unpickled: other formats are listed as not inspected.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.checkpoints.adapters import from_zero
from harness.checkpoints.archives import damaged_members
from harness.checkpoints.compare import Comparison, compare
from harness.checkpoints.huggingface import file_problem
from harness.checkpoints.inventory import (
    Checkpoint,
    Snapshot,
    find_checkpoints,
    take_inventory,
)
from harness.checkpoints.naming import is_named_start, is_shard, likeliest_delivered
from harness.checkpoints.records import find_recorded_best
from harness.checkpoints.sameness import equal_earlier, lost_tensors
from harness.checkpoints.structure import read_structure
from harness.checkpoints.tensors import TensorFileError, scan_file

MAX_NAMES = 50
MAX_CHECKPOINTS = 1000
MAX_DELIVERED = 2
"""Models without a step that are read in full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    """One file of a checkpoint."""

    path: str
    bytes: int
    role: str
    """weights, state, or opaque (not inspected)."""
    sha256: str | None = None
    """None where the file was not read in full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSeen:
    """One checkpoint of this run."""

    path: str
    step: int | None
    epoch: int | None
    status: str
    """whole, damaged, or not-inspected."""
    bytes: int
    written_at: float
    """Seconds since the epoch, newest file."""
    files: tuple[FileFacts, ...]
    problems: tuple[str, ...]
    tensors: int
    read_in_full: bool
    finite: bool | None
    """None where it was not read in full."""
    nonfinite: tuple[str, ...]
    """Names of tensors with NaN or infinite values, at most 50."""
    nonfinite_count: int
    format: str = ""
    """See Structure.format."""
    notes: tuple[str, ...] = ()
    """What is odd and breaks nothing: tied weights that differ, files that an index does not name."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Those that its name or its trainer's record holds."""
    resumable: bool = False
    """Whether training state lies beside the weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The last whole checkpoint against a start."""

    start: str
    start_kind: str
    """start-weights, own-step-0, adapter-zero (lora_B, which starts at 0), or own-earliest."""
    start_step: int | None
    end: str
    end_step: int | None
    kind: str
    """See Comparison.kind."""
    comparison: Comparison


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFacts:
    """What there is below a run's checkpoint roots."""

    roots: tuple[str, ...]
    checkpoints: tuple[CheckpointSeen, ...]
    """Those of this run, the earliest first."""
    last_step: int | None
    """Highest step among the whole and the not inspected."""
    latest: str | None
    """Path of the last one that is not damaged."""
    earlier: int
    """Checkpoints that were there before the launch and have not changed."""
    change: Change | None
    why_not_compared: str | None
    delivered_unchanged: tuple[str, ...]
    """Models without a step, as a merged or final one, that equal the start."""
    problems: tuple[str, ...]
    unfinished: tuple[str, ...] = ()
    """Saves of this run that did not end, by their names."""
    repeated: tuple[str, ...] = ()
    """(the last, an earlier one of another step) that hold the same weights; empty where they differ."""
    lost: tuple[str, ...] = ()
    """Tensors that the last one lacks and the one before it holds."""
    lost_from: str | None = None

    def to_json(self) -> dict[str, Any]:
        """JSON-ready mapping, strict: max_abs_change is null where it is not finite."""
        data = dataclasses.asdict(self)
        return json.loads(json.dumps(data))  # type: ignore[no-any-return]


def inspect_run(
    roots: Iterable[Path], snapshot: Snapshot, launched_at: float, start_weights: Path | None = None
) -> CheckpointFacts:
    """Look at a run's checkpoints after its end; `launched_at` is in seconds since the epoch.

    Never raises for a file. `start_weights` is the checkpoint, or the directory of checkpoints, that training
    started from; without one, or if it was overwritten, the run's own step 0 or earliest one is the start.
    """
    roots = tuple(roots)
    inventory = take_inventory(roots)
    found = inventory.checkpoints
    ours = (_of_this_run(one, snapshot, launched_at) for one in found)
    fresh = [one for one in ours if one is not None]
    dropped = len(fresh) - MAX_CHECKPOINTS
    seen = {one.path: _look(one, snapshot, launched_at) for one in fresh[-MAX_CHECKPOINTS:]}
    whole = [one for one in fresh if one.path in seen and seen[one.path].status == "whole"]
    last, delivered = _last(whole), _unnumbered(whole)
    for one in {c.path: c for c in (*delivered, *([last] if last else []))}.values():
        seen[one.path] = _read(one, seen[one.path])
    opaque = [one for one in fresh if one.path in seen and seen[one.path].status == "not-inspected"]
    end = _last(opaque)
    for one in {c.path: c for c in (*_unnumbered(opaque), *([end] if end else []))}.values():
        seen[one.path] = _summed(one, seen[one.path])
    # A file that was damaged behind its header shows only now.
    whole = [one for one in whole if seen[one.path].status == "whole"]
    change, why, start = _change(_last(whole), whole, start_weights, snapshot, launched_at)
    readable = [s.step for s in seen.values() if s.step is not None and s.status != "damaged"]
    problems = (
        [f"{dropped} earlier checkpoint(s) beyond {MAX_CHECKPOINTS} were not looked at"]
        if dropped > 0
        else []
    )
    if not snapshot.complete:
        problems.append("too many files lay below the roots before the launch: an old one may pass for new")
    final = _last([one for one in fresh if one.path in seen and seen[one.path].status != "damaged"])
    problems += _recorded_best_problems(fresh)
    lost, lost_from = lost_tensors(_numbered(whole))
    return CheckpointFacts(
        roots=tuple(str(root) for root in roots),
        checkpoints=tuple(seen.values()),
        last_step=max(readable, default=None),
        latest=str(final.path) if final else None,
        earlier=len(found) - len(fresh),
        change=change,
        why_not_compared=why,
        delivered_unchanged=tuple(str(one.path) for one in delivered if start and _equals(start, one)),
        problems=tuple(problems),
        unfinished=tuple(str(path) for path in inventory.unfinished if _is_new(path, launched_at)),
        repeated=equal_earlier(_numbered([one for one in fresh if one.path in seen and (
            seen[one.path].status != "damaged")])),
        lost=lost[:MAX_NAMES],
        lost_from=lost_from,
    )


def _numbered(checkpoints: Sequence[Checkpoint]) -> list[Checkpoint]:
    return [one for one in checkpoints if one.step is not None]


def _unnumbered(checkpoints: Sequence[Checkpoint]) -> list[Checkpoint]:
    """The two of them that are likeliest delivered: a merged, a final, a best model."""
    without = [one for one in checkpoints if one.order == (-1, -1, -1)]
    return likeliest_delivered(without, lambda one: str(one.path), MAX_DELIVERED)


def _is_new(path: Path, launched_at: float) -> bool:
    """Whether an unfinished save was touched by this run; clocks of file systems round to 2 s."""
    try:
        return path.stat().st_mtime >= launched_at - 2.0
    except OSError:
        return False


def _recorded_best_problems(checkpoints: Sequence[Checkpoint]) -> list[str]:
    """The trainer's own best checkpoint, where its last record names one that is gone."""
    records = [one for one in checkpoints if one.record.best_path is not None]
    if not records:
        return []
    _, problem = find_recorded_best(records[-1].record, records[-1].path)
    return [problem] if problem else []


def verify_checkpoint(checkpoint: Checkpoint) -> CheckpointSeen:
    """One checkpoint of any origin, read in full where it is whole."""
    seen = _look(checkpoint, Snapshot(), 0.0)
    if seen.status == "damaged":
        return seen
    return _read(checkpoint, seen) if seen.status == "whole" else _summed(checkpoint, seen)


def _last(checkpoints: Sequence[Checkpoint]) -> Checkpoint | None:
    """The highest step or epoch; among those without any number the newest."""
    numbered = [one for one in checkpoints if one.order != (-1, -1, -1)]
    return numbered[-1] if numbered else max(checkpoints, key=lambda one: one.written_at, default=None)


def _look(one: Checkpoint, snapshot: Snapshot, launched_at: float) -> CheckpointSeen:
    """By headers and structure only."""
    structure = read_structure(one)
    problems, tensors = [*structure.problems, *_old_files(one, snapshot, launched_at)], structure.tensors
    status = "damaged" if problems else "whole" if one.weights else "not-inspected"
    roles = (("weights", one.weights), ("state", one.state), ("opaque", one.opaque))
    return CheckpointSeen(
        path=str(one.path),
        step=one.step,
        epoch=one.epoch,
        status=status,
        bytes=one.size,
        written_at=one.written_at,
        files=tuple(
            FileFacts(path=str(p), bytes=one.marks[p].size, role=role) for role, ps in roles for p in ps
        ),
        problems=tuple(problems),
        tensors=tensors,
        read_in_full=False,
        finite=None,
        nonfinite=(),
        nonfinite_count=0,
        format=structure.format,
        notes=structure.notes,
        metrics=one.metrics,
        resumable=one.is_resumable,
    )


def _summed(one: Checkpoint, seen: CheckpointSeen) -> CheckpointSeen:
    """With the checksums of archives, whose values only their loader reads."""
    told = [damaged_members(path) for path in one.holders]
    problems, notes = [p for found, _ in told for p in found], [note for _, found in told for note in found]
    return replace(seen, status="damaged" if problems else seen.status, problems=(*seen.problems, *problems),
                   notes=(*seen.notes, *notes))


def _read(one: Checkpoint, seen: CheckpointSeen) -> CheckpointSeen:
    """With digests and finite values of every weight file."""
    digests: dict[str, str] = {}
    nonfinite: list[str] = []
    problems: list[str] = []
    for path in one.weights:
        try:
            scan = scan_file(path)
        except (TensorFileError, OSError) as error:
            problems.append(file_problem(path, error))
            continue
        digests[str(path)] = scan.sha256
        nonfinite += scan.nonfinite
    return replace(
        seen,
        status="damaged" if problems else seen.status,
        problems=(*seen.problems, *problems),
        files=tuple(replace(file, sha256=digests.get(file.path)) for file in seen.files),
        read_in_full=True,
        finite=not nonfinite,
        nonfinite=tuple(nonfinite[:MAX_NAMES]),
        nonfinite_count=len(nonfinite),
    )


def _of_this_run(one: Checkpoint, snapshot: Snapshot, launched_at: float) -> Checkpoint | None:
    """Without what lay there before the launch; old shards stay: new ones beside them are no whole set."""
    fresh = one.fresh_files(snapshot, launched_at)
    if not fresh:
        return None
    is_sharded = bool(one.indexes) or any(is_shard(path.name) for path in one.weights)
    return one if is_sharded or not one.weights else replace(one, weights=fresh)


def _old_files(one: Checkpoint, snapshot: Snapshot, launched_at: float) -> list[str]:
    fresh = one.fresh_files(snapshot, launched_at)
    old = [path.name for path in one.weights if path not in fresh]
    return (
        [f"{len(old)} of {len(one.weights)} weight files are older than the launch: {old[0]}"] if old else []
    )


def _change(
    last: Checkpoint | None,
    whole: Sequence[Checkpoint],
    start_weights: Path | None,
    snapshot: Snapshot,
    launched_at: float,
) -> tuple[Change | None, str | None, Checkpoint | None]:
    """The change, or why there is none, and the start that it is against."""
    if last is None:
        return None, "no whole safetensors checkpoint of this run", None
    why = "the run saved one checkpoint, and no start weights are known"
    grown = from_zero(last)
    for start, kind in _starts(last, whole, start_weights, snapshot, launched_at):
        if grown is not None and kind == "own-earliest":
            break
        try:
            comparison = compare(start.weights, last.weights)
        except (TensorFileError, OSError) as error:
            why = f"{start.path} could not be compared: {error}"
            continue
        if not comparison.compared:
            why = f"{start.path} and {last.path} have no tensor name in common"
            continue
        change = Change(
            start=str(start.path),
            start_kind=kind,
            start_step=start.step,
            end=str(last.path),
            end_step=last.step,
            kind=comparison.kind,
            comparison=comparison,
        )
        return change, None, start
    if grown is not None:
        change = Change(start="lora_B = 0", start_kind="adapter-zero", start_step=None, end=str(last.path),
                        end_step=last.step, kind=grown.kind, comparison=grown)
        return change, None, None
    return None, why, None


def _equals(start: Checkpoint, end: Checkpoint) -> bool:
    """Whether only a cast, a resize or BatchNorm statistics tells the two apart; what is named a start may be one."""
    if is_named_start(str(end.path)):
        return False
    try:
        comparison = compare(start.weights, end.weights)
    except (TensorFileError, OSError):
        return False
    return bool(comparison.compared) and not comparison.changed


def _starts(
    last: Checkpoint,
    whole: Sequence[Checkpoint],
    start_weights: Path | None,
    snapshot: Snapshot,
    launched_at: float,
) -> list[tuple[Checkpoint, str]]:
    """Candidates, the best first."""
    starts: list[tuple[Checkpoint, str]] = []
    if start_weights is not None:
        given = [one for one in find_checkpoints(start_weights) if one.weights and one.path != last.path]
        before = [one for one in given if not one.fresh_files(snapshot, launched_at)]
        newest = _last(before)
        if newest is not None:
            starts.append((newest, "start-weights"))
    numbered = [one for one in whole if one.order != (-1, -1, -1) and one.path != last.path]
    if numbered:
        starts.append((numbered[0], "own-step-0" if numbered[0].step == 0 else "own-earliest"))
    return starts
