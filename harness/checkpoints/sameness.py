"""Two faults of saving: the last checkpoint equals an earlier one, or lacks tensors that an earlier one holds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.checkpoints.archives import storage_marks
from harness.checkpoints.huggingface import held_tensors
from harness.checkpoints.inventory import Checkpoint

CHUNK_BYTES = 4 << 20
_DERIVED = ("inv_freq", "lm_head.weight", "position_ids")
"""What is computed again or tied when a model is loaded; whether a head may be absent is told by its config."""
MAX_COMPARED = 20
"""Earlier checkpoints that the last one is held against, the newest first."""


def equal_earlier(numbered: Sequence[Checkpoint]) -> tuple[str, ...]:
    """(the last, the newest earlier one of another step with the same weights, byte for byte); empty for none.

    `numbered` in order of their steps. Files of one size are read up to their first difference, so that a run that
    trained costs a chunk of each.
    """
    if not numbered:
        return ()
    last = numbered[-1]
    others = [one for one in numbered[:-1] if one.step != last.step and one.path != last.path]
    for earlier in reversed(others[-MAX_COMPARED:]):
        if _same_files(last, earlier) if last.weights else _same_storages(last, earlier):
            return str(last.path), str(earlier.path)
    return ()


def _same_files(first: Checkpoint, second: Checkpoint) -> bool:
    names = [[path.relative_to(one.path) for path in one.weights] if one.path.is_dir() else [Path()]
             for one in (first, second)]
    if names[0] != names[1] or [first.marks[p].size for p in first.weights] != [
            second.marks[p].size for p in second.weights]:
        return False
    try:
        return all(_same_bytes(a, b) for a, b in zip(first.weights, second.weights, strict=True))
    except OSError:
        return False


def _same_storages(first: Checkpoint, second: Checkpoint) -> bool:
    """Whether archives of torch.save hold the same storages, by the sizes and checksums in their directories."""
    if len(first.holders) != len(second.holders) or not first.holders:
        return False
    for a, b in zip(first.holders, second.holders, strict=True):
        marks = storage_marks(a)
        if not marks or marks != storage_marks(b):
            return False
    return True


def _same_bytes(first: Path, second: Path) -> bool:
    with first.open("rb") as one, second.open("rb") as two:
        while (part := one.read(CHUNK_BYTES)) == two.read(CHUNK_BYTES):
            if not part:
                return True
    return False


def lost_tensors(numbered: Sequence[Checkpoint]) -> tuple[tuple[str, ...], str | None]:
    """(tensors that the one before the last holds and the last lacks, its path); only among whole ones of one layout.

    A last checkpoint of other names altogether (merged, renamed) is another layout and lacks nothing.
    """
    if len(numbered) < 2 or not numbered[-1].weights or not numbered[-2].weights:
        return (), None
    before, last = (set(held_tensors(one.weights)[0]) for one in numbered[-2:])
    lost = {name for name in before - last if not name.endswith(_DERIVED)}
    if not lost or len(lost) * 2 > len(before) or last - before:
        return (), None
    return tuple(sorted(lost)), str(numbered[-2].path)
