"""Two sets of weights side by side: what changed, and whether it could be anything but learning.

A cast, a resized vocabulary, BatchNorm statistics and weight decay on zero gradients all change weights, and
none of them is learning. Weights that keep no correlation with the start were not trained from it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.checkpoints.likeness import MAX_SAMPLE, Relation
from harness.checkpoints.tensors import BITS, FLOATING, TensorFileError, TensorInfo, read_header, to_float

if TYPE_CHECKING:
    import numpy as np

CHUNK_ELEMENTS = 1 << 20
MAX_NAMES = 50
_BUFFER_NAMES = ("running_mean", "running_var", "num_batches_tracked")
"""BatchNorm statistics: forward passes change them."""
_FACTOR_TOLERANCE = {"F64": 1e-7, "F32": 1e-5, "F16": 4e-3, "BF16": 2e-2}
"""How far the end may lie from factor x start, relative: many roundings of float32, some of bfloat16."""
_LEAST_DECAYED = {"F64": 8, "F32": 8}
_LEAST_DECAYED_SHORT = 64
"""Changed elements below which shrinking in step could be chance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """How the end differs from the start. Counts are of tensors; names are bounded lists."""

    compared: int
    """Tensors with one name in both."""
    changed: int
    """Floating tensors in which some element differs by more than a cast or a resize."""
    changed_names: tuple[str, ...]
    max_abs_change: float | None
    buffers_changed: int
    cast: int
    """Equal after rounding to the dtype of the end."""
    resized: int
    """Equal where both have elements."""
    missing: tuple[str, ...]
    """Of the start, not in the end."""
    added: tuple[str, ...]
    decay_factor: float | None
    """The one factor below 1 by which all changed tensors shrank, where that is all that happened."""
    unrelated: bool = False
    """Whether the changed tensors, of thousands of elements, keep nothing of the start: see likeness.Relation."""

    @property
    def kind(self) -> str:
        """none, changed, unrelated, decay-only, buffers-only, cast-only, resize-only, not-comparable."""
        if not self.compared:
            return "not-comparable"
        if self.changed:
            return "unrelated" if self.unrelated else "changed" if self.decay_factor is None else "decay-only"
        others = (
            ("buffers-only", self.buffers_changed),
            ("resize-only", self.resized),
            ("cast-only", self.cast),
        )
        return next((name for name, count in others if count), "none")

    @property
    def learnt(self) -> bool:
        """Whether something changed that neither decay, cast, resize nor a forward pass explains."""
        return self.kind == "changed"


@dataclass(slots=True)
class _Decay:
    """Whether one tensor is its start times a factor: no element grew or changed sign, the ratios agree."""

    fits: bool = True
    changed_elements: int = 0
    dot: float = 0.0
    start_square: float = 0.0
    end_square: float = 0.0

    def add(self, start: np.ndarray[Any, Any], end: np.ndarray[Any, Any]) -> None:
        import numpy as np

        if not self.fits:
            return
        start, end = start.astype(np.float64), end.astype(np.float64)
        if not np.isfinite(end).all() or bool(((np.abs(end) > np.abs(start)) | (start * end < 0)).any()):
            self.fits = False
            return
        self.changed_elements += int((start != end).sum())
        self.dot += float(start @ end)
        self.start_square += float(start @ start)
        self.end_square += float(end @ end)

    def factor(self, tolerance: float) -> float | None:
        """Least squares c of end = c start, where the rest is within `tolerance` of |end|."""
        if not self.fits or not self.start_square or not self.end_square:
            return None
        c = self.dot / self.start_square
        rest = max(0.0, self.end_square - c * self.dot)
        return c if 0 < c < 1 and math.sqrt(rest / self.end_square) <= max(tolerance, 1e-7) else None


@dataclass(slots=True)
class _Tally:
    compared: int = 0
    changed: list[str] = field(default_factory=list)
    buffers: int = 0
    cast: int = 0
    resized: int = 0
    max_abs: float = 0.0
    decays: list[tuple[str, tuple[int, ...], _Decay]] = field(default_factory=list)
    relation: Relation = field(default_factory=Relation)


Place = tuple[Path, TensorInfo]


def compare(start: Sequence[Path], end: Sequence[Path]) -> Comparison:
    """Compare weights by tensor names; files are read in step, in chunks, and memory stays flat.

    Raises TensorFileError and OSError where a file of either side cannot be read.
    """
    starts, ends = _places(start), _places(end)
    tally = _Tally()
    for name in sorted(starts.keys() & ends.keys()):
        _compare_tensor(name, starts[name], ends[name], tally)
    return Comparison(
        compared=tally.compared,
        changed=len(tally.changed),
        changed_names=tuple(tally.changed[:MAX_NAMES]),
        max_abs_change=tally.max_abs if tally.changed and math.isfinite(tally.max_abs) else None,
        buffers_changed=tally.buffers,
        cast=tally.cast,
        resized=tally.resized,
        missing=tuple(sorted(starts.keys() - ends.keys())[:MAX_NAMES]),
        added=tuple(sorted(ends.keys() - starts.keys())[:MAX_NAMES]),
        decay_factor=_common_factor(tally),
        unrelated=tally.relation.is_none,
    )


def _places(files: Sequence[Path]) -> dict[str, Place]:
    """Tensors by name; where several files hold one name (parts of a compound model), by file and name."""
    found: dict[str, list[Place]] = {}
    for file in files:
        for tensor in read_header(file).tensors:
            found.setdefault(tensor.name, []).append((file, tensor))
    top = os.path.commonpath([file.parent for file in files]) if files else ""
    places: dict[str, Place] = {}
    for name, several in found.items():
        for file, tensor in several:
            key = name if len(several) == 1 else f"{os.path.relpath(file, top)}:{name}"
            places[key] = (file, tensor)
    return places


def _compare_tensor(name: str, start: Place, end: Place, tally: _Tally) -> None:
    before, after = start[1], end[1]
    shared = _shared_elements(before.shape, after.shape)
    tally.compared += 1
    if shared is None or not {before.dtype, after.dtype} <= BITS.keys() - {"F4", "F6_E2M3", "F6_E3M2"}:
        _compare_opaque(start, end, tally, name)
        return
    if before.dtype == after.dtype and all(first == second for first, second in _chunks(start, end, shared)):
        tally.resized += before.shape != after.shape
        return
    decay = _Decay()
    differs, largest, sample = False, 0.0, None
    for first, second in _chunks(start, end, shared):
        if first == second and before.dtype == after.dtype:
            decay.add(a := to_float(first, before.dtype), a)
            continue
        a, b = to_float(first, before.dtype), to_float(second, after.dtype)
        sample = sample or (a[:MAX_SAMPLE], b[:MAX_SAMPLE])
        if before.dtype != after.dtype and _is_cast(a, b, after.dtype):
            decay.fits = False
            continue
        change = _largest_change(a, b)
        if change is None:
            continue
        differs, largest = True, max(largest, change)
        decay.add(a, b)
    if not differs:
        tally.cast += before.dtype != after.dtype
        tally.resized += before.shape != after.shape
    elif after.dtype not in FLOATING or name.endswith(_BUFFER_NAMES):
        tally.buffers += 1
    else:
        tally.changed.append(name)
        tally.max_abs = max(tally.max_abs, largest)
        tally.decays.append((after.dtype, after.shape, decay))
        if sample is not None:
            tally.relation.add(*sample)


def _compare_opaque(start: Place, end: Place, tally: _Tally, name: str) -> None:
    """Packed types by their bytes; shapes of which neither begins the other are a resize and tell no more."""
    if start[1].shape != end[1].shape:
        tally.resized += 1
    elif start[1].dtype != end[1].dtype:
        tally.cast += 1
    elif any(a != b for a, b in _byte_chunks(start, end)):
        tally.changed.append(name)
        tally.max_abs = math.inf


def _shared_elements(before: tuple[int, ...], after: tuple[int, ...]) -> int | None:
    """Elements that both hold at the same place: rows that were appended leave the rest where it was."""
    if before == after:
        return math.prod(before)
    if len(before) == len(after) and before and before[1:] == after[1:]:
        return min(before[0], after[0]) * math.prod(before[1:])
    return None


def _chunks(start: Place, end: Place, elements: int) -> Iterator[tuple[bytes, bytes]]:
    widths = BITS[start[1].dtype] // 8, BITS[end[1].dtype] // 8
    with start[0].open("rb") as first, end[0].open("rb") as second:
        first.seek(start[1].start)
        second.seek(end[1].start)
        for done in range(0, elements, CHUNK_ELEMENTS):
            count = min(CHUNK_ELEMENTS, elements - done)
            a, b = first.read(count * widths[0]), second.read(count * widths[1])
            if len(a) != count * widths[0] or len(b) != count * widths[1]:
                raise TensorFileError("it became shorter while it was read")
            yield a, b


def _byte_chunks(start: Place, end: Place) -> Iterator[tuple[bytes, bytes]]:
    size = start[1].end - start[1].start
    with start[0].open("rb") as first, end[0].open("rb") as second:
        first.seek(start[1].start)
        second.seek(end[1].start)
        for done in range(0, size, CHUNK_ELEMENTS):
            count = min(CHUNK_ELEMENTS, size - done)
            yield first.read(count), second.read(count)


def _largest_change(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> float | None:
    """Largest |b - a|, inf where a value became non-finite, None where all are equal (NaN too)."""
    import numpy as np

    unequal = (a != b) & ~(np.isnan(a) & np.isnan(b))
    if not unequal.any():
        return None
    with np.errstate(invalid="ignore", over="ignore"):
        change = np.abs(b[unequal].astype(np.float64) - a[unequal].astype(np.float64))
    return float(change.max()) if np.isfinite(change).all() else math.inf


def _is_cast(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], dtype: str) -> bool:
    """Whether the end is the start rounded to `dtype`: to nearest, ties to even, or (bfloat16) cut off.

    Only in this direction: an end in a finer type that would round to the start has changed.
    """
    import numpy as np

    with np.errstate(over="ignore"):
        if dtype == "F16":
            return bool(np.array_equal(a.astype(np.float16).astype(np.float32), b, equal_nan=True))
        if dtype == "BF16":
            bits = a.astype(np.float32).view(np.uint32)
            nearest = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
            cut = bits & np.uint32(0xFFFF0000)
            return any(bool(np.array_equal(c.view(np.float32), b, equal_nan=True)) for c in (nearest, cut))
        if dtype.startswith("F8"):
            step = 2.0**-3 if "E4M3" in dtype else 2.0**-2
            return bool(np.allclose(a, b, rtol=step, atol=2.0**-9, equal_nan=True))
        return bool(np.array_equal(a.astype(b.dtype), b, equal_nan=True))


def _common_factor(tally: _Tally) -> float | None:
    """The factor of weight decay, where every changed tensor is its start times it."""
    factors: list[tuple[float, float]] = []
    elements, short = 0, False
    for dtype, shape, decay in tally.decays:
        tolerance = _FACTOR_TOLERANCE.get(dtype, 0.1)
        factor = decay.factor(tolerance)
        if factor is None:
            return None
        factors.append((factor, tolerance))
        short |= dtype not in _LEAST_DECAYED
        elements += decay.changed_elements if math.prod(shape) > 1 else 0
    if not factors or elements < (_LEAST_DECAYED_SHORT if short else 8):
        return None
    middle = sorted(factor for factor, _ in factors)[len(factors) // 2]
    if any(abs(factor - middle) > 2 * tolerance for factor, tolerance in factors):
        return None
    return middle
