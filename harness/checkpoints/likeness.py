"""Whether a tensor's values are those of a marked parameter: equal but for a cast, alike, or of another model.

What was trained keeps a correlation with what it was and with what it became: an average, an earlier or the best
model, a cast. Weights that were drawn anew, or filled with a constant, keep none. Few values decide, so that the bound
grows with the number of tensors that are looked through.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

Values = tuple[float, ...]
Shape = tuple[int, ...]
MAX_VALUES, VALUES_OF = 64, 4096
"""As in probe/site/_real_step_marks.py and checkpoints/site/_start.py."""
LEAST_VALUES = 24
"""Fewer values than this may be alike by chance."""
MAX_CANDIDATES = 1000
"""Tensors of one shape; of more than this nothing is said."""
LEAST_ALIKE = 0.5
FAR_FROM_ALIKE = 0.25
"""Two standard deviations of chance for 64 values: a model on the way from the start has more in every tensor."""
ROUNDING = {"F64": 2.0**-23, "F32": 2.0**-23, "F16": 2.0**-10, "BF16": 2.0**-7}
"""Largest relative difference that a cast makes; the marks themselves are kept as float32."""

MAX_SAMPLE = 65_536
"""Elements of a tensor, its first ones, of which the correlation with its start is taken."""
LEAST_RELATED, LEAST_SAMPLE, LEAST_SAMPLES = 6.0, 64, 4096
"""Standard deviations of chance that make a tensor related; elements of a tensor, and of all, that can tell."""
RELATED_SHARE = 0.1


def positions(size: int) -> list[int]:
    """Of the values that are kept of a tensor with so many elements."""
    size = min(size, VALUES_OF)
    return list(range(size)) if size <= MAX_VALUES else [index * size // MAX_VALUES for index in range(MAX_VALUES)]


def is_cast_of(values: Sequence[float], held: Sequence[float], dtype: str) -> bool:
    """Whether `held` is `values` after a cast to a type, as safetensors names it."""
    bound = ROUNDING.get(dtype, 2.0**-7)
    return len(values) == len(held) and all(
        abs(a - b) <= bound * abs(a) + 1e-30 for a, b in zip(values, held, strict=True))


def correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Pearson's, between -1 and 1; 0 where either has no variance or is not finite."""
    a, b = _centred(first), _centred(second)
    scale = math.sqrt(math.fsum(x * x for x in a)) * math.sqrt(math.fsum(y * y for y in b))
    found = math.fsum(x * y for x, y in zip(a, b, strict=True)) / scale if scale > 0 else 0.0
    return found if math.isfinite(found) else 0.0


def _centred(values: Sequence[float]) -> list[float]:
    mean = math.fsum(values) / len(values)
    return [value - mean for value in values] if max(values) > min(values) else [0.0] * len(values)


def bound_of(count: int, candidates: int) -> float:
    """The correlation that as many values reach by chance in none of so many tensors, but for one case in hundreds."""
    return min(0.9, max(LEAST_ALIKE, (2.5 + math.sqrt(2 * math.log(max(1, candidates)))) / math.sqrt(count)))


def is_unlike(marks: Sequence[Mapping[str, Any]], held: Mapping[Shape, Sequence[Values]]) -> bool:
    """Whether fewer than a quarter of the marked parameters have a tensor that is alike; False where none can tell.

    `held`: the values of a checkpoint's tensors by their shape, all that it has of a shape.
    """
    told: list[bool] = []
    small: list[tuple[Values, Values, Values]] = []
    for mark in marks:
        pieces = held.get(tuple(mark["shape"]), ())
        first, last = (tuple(mark.get(key) or ()) for key in ("values", "values_last"))
        seen = [one for one in (last, first, *mark.get("between", ())) if one and max(one) > min(one)]
        pieces = [piece for piece in pieces if seen and len(piece) == len(seen[0])]
        if not pieces or len(pieces) > MAX_CANDIDATES:
            continue
        if len(seen[0]) >= LEAST_VALUES:
            bound = bound_of(len(seen[0]), len(pieces))
            told.append(any(correlation(one, piece) >= bound for one in seen for piece in pieces))
        elif len(pieces) == 1:
            small.append((last, first, pieces[0]))
    told += _together(small)
    return bool(told) and sum(told) < max(1, len(told) / 4)


def is_partly_unlike(
    marks: Sequence[Mapping[str, Any]], held: Mapping[Shape, Sequence[Values]], wanted: Mapping[Shape, int]
) -> bool:
    """Whether one parameter, which began as no constant, has no tensor that is like what it was at any time.

    `wanted`: how many tensors of a shape there are where every parameter has its own; of fewer nothing is said, nor of
    a checkpoint that lacks the shape of a matrix: an export may have transposed or joined them.
    """
    if any(len(mark["shape"]) > 1 and not held.get(tuple(mark["shape"])) for mark in marks):
        return False
    for mark in marks:
        shape = tuple(mark["shape"])
        first, last = (tuple(mark.get(key) or ()) for key in ("values", "values_last"))
        seen = [one for one in (last, first, *mark.get("between", ())) if len(one) == MAX_VALUES]
        pieces = [piece for piece in held.get(shape, ()) if len(piece) == MAX_VALUES]
        if not wanted.get(shape, 0) <= len(pieces) <= MAX_CANDIDATES or not pieces or len(seen) < 2 or (
                min(first) == max(first) or min(last) == max(last)):
            continue
        if max(correlation(one, piece) for one in seen for piece in pieces) < far_bound(len(pieces)):
            return True
    return False


def far_bound(candidates: int) -> float:
    """The correlation that the best of so many tensors of another model has with 64 values, or hardly more."""
    return max(FAR_FROM_ALIKE, (0.5 + math.sqrt(2 * math.log(candidates))) / math.sqrt(MAX_VALUES))


def _together(small: Sequence[tuple[Values, Values, Values]]) -> list[bool]:
    """Small parameters of which each has one tensor, as one; empty where they are too few."""
    count = sum(len(piece) for _, _, piece in small)
    if count < LEAST_VALUES:
        return []
    found = []
    for place in (0, 1):
        pairs = [(one[place], one[2]) for one in small if len(one[place]) == len(one[2])]
        known = [x for seen, _ in pairs for x in _centred(seen)]
        piece = [y for _, held in pairs for y in _centred(held)]
        found.append(correlation(known, piece) if known else 0.0)
    return [max(found) >= bound_of(count, 1)]


@dataclass(slots=True)
class Relation:
    """What changed tensors keep of their starts: the sum of their correlations, in standard deviations of chance.

    Of unrelated values Pearson's r has mean 0 and variance 1/n. Where tensors of a tenth of the elements are related
    by themselves, or the others together, the end came from the start; what repeats one value keeps nothing.
    """

    elements: int = 0
    related: int = 0
    rest: float = 0.0

    def add(self, start: np.ndarray[Any, Any], end: np.ndarray[Any, Any]) -> None:
        """A tensor whose elements are not all as at the start; flat, of one length."""
        import numpy as np

        count = len(start)
        if count < LEAST_SAMPLE or not np.ptp(start):
            return
        with np.errstate(invalid="ignore", over="ignore"):
            a, b = (one.astype(np.float64) - one.astype(np.float64).mean() for one in (start, end))
            scale = math.sqrt(float(a @ a)) * math.sqrt(float(b @ b))
            r = float(a @ b) / scale if scale > 0 else 0.0
        r = r if math.isfinite(r) else 0.0
        self.elements += count
        if r * math.sqrt(count) > LEAST_RELATED:
            self.related += count
        else:
            self.rest += r * count

    @property
    def is_none(self) -> bool:
        """Whether thousands of elements were seen, and nothing ties them to the start."""
        others = self.elements - self.related
        return (self.elements >= LEAST_SAMPLES and self.related < RELATED_SHARE * self.elements
                and self.rest < (LEAST_RELATED - 1) * math.sqrt(others))
