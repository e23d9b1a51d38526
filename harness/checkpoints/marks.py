"""By the probe's marks: whether a checkpoint holds what its optimizer began with, or what became of it.

It holds them unmoved, although they moved in memory (`held`: the untrained model); what they were after some update,
or others in their place that are alike (`moved`); what they were long before it was saved (`stale`); or others that
are like neither the start nor the end (`unlike`). Parameters have no names there, so that type and shape tell which
tensors may be one. A copy of the start beside what was trained is no fault.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.checkpoints.likeness import VALUES_OF, Shape, Values, is_cast_of, is_partly_unlike, is_unlike, positions
from harness.checkpoints.naming import is_named_start
from harness.checkpoints.tensors import TensorFileError, TensorInfo, read_header, to_float

HELD, STALE, UNLIKE, MOVED, PROVED, DOUBT = "held", "stale", "unlike", "moved", "proved", "doubt"
"""The start is there; what was long before; what is like nothing; others; what became of it; none can be told."""
MARKED = (HELD, STALE, UNLIKE, MOVED)
Kind = tuple[str, Shape]
PREFIX_BYTES = 32 << 10
"""Digested of a tensor; as in probe/site/_real_step_marks.py."""
WIDTHS = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
"""Bytes of an element."""
LEAST_ELEMENTS = 4
"""Fewer elements than this in all may be equal by chance."""
REFERENCE = re.compile(r"(^|[._/])(ref|reference|old|teacher|target|tgt|anchor|untrained|init|initial)([._/]|$)", re.I)
"""Parts of a name that hold another model than the one that is trained: it stays as it was by design."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the probe saw in the process that trained most."""

    marks: tuple[Mapping[str, Any], ...] = ()
    """See probe.marks.ProbeMark."""
    looks: tuple[Mapping[str, Any], ...] = ()
    """See probe.marks.ProbeLook."""
    unmarked: int = 0
    """Optimizers that could not be marked: what a checkpoint holds may be theirs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a checkpoint holds of the types and shapes that are marked."""

    digests: dict[Kind, list[str]] = field(default_factory=dict)
    """SHA-256 of the first 32 KiB of each tensor."""
    values: dict[Shape, list[tuple[str, Values]]] = field(default_factory=dict)
    """(type, some values) of each tensor of any floating type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What the marks say of a checkpoint."""

    word: str = ""
    """held, stale, unlike, moved, or "" where nothing can be told."""
    at: int | None = None
    """Steps of all optimizers after which the model was what the checkpoint holds; None where no look saw that."""


def seen_by(probe: Mapping[str, Any]) -> Seen:
    """Of the probe's facts, what the process saw that trained most; among equals the one that saved."""
    processes = [item for item in probe.get("processes") or [] if isinstance(item, dict)]
    best = max(processes, key=lambda one: (one.get("steps") or 0, len(one.get("looks") or ())), default={})
    return Seen(marks=tuple(mark for mark in best.get("marks") or [] if isinstance(mark, dict)),
                looks=tuple(look for look in best.get("looks") or [] if isinstance(look, dict)),
                unmarked=int(best.get("unmarked") or 0))


def is_delivered(path: str, step: int | None, latest: str | None) -> bool:
    """Whether a checkpoint has to hold what was trained: the last one and models without a step, but for a start."""
    return step != 0 and (path == latest or step is None) and not is_named_start(path)


def told_by_files(files: Iterable[Path], seen: Seen) -> Told:
    """Of the safetensors files of a checkpoint."""
    files = tuple(files)
    wanted, held = kinds_of(seen.marks), Held()
    for path in files:
        if path.suffix == ".safetensors":
            _look_into(path, wanted, held)
    return told(held, seen, files)


def told(held: Held, seen: Seen, files: Iterable[Path] = ()) -> Told:
    """What a checkpoint's tensors, by type and shape, say beside the marks.

    Only marks that moved in memory count, those of each optimizer by themselves: a critic may be left as it was. What
    one optimizer made may be what a later one began with: a copy that is tuned after the save.
    """
    found = held.digests
    moved = [{**mark, "place": place, "between": _between(seen.looks, place)}
             for place, mark in enumerate(seen.marks) if mark.get("changed")]
    groups = [[mark for mark in moved if _number(mark) == number] for number in sorted({*map(_number, moved)})]
    places = {kind: sum(_alike(kind, group) for group in groups) for kind in kinds_of(moved)}
    saved = {os.path.abspath(path) for path in files}  # noqa: PTH100 (a link is the name that was saved to)
    answers = list[Told]()
    for group in groups:
        answer = _told(held, group, places, seen.looks, saved)
        earlier = [one for one, said in zip(groups, answers, strict=False) if said.word in (MOVED, PROVED)
                   and _is_one_copy(found, one, group)] if answer.word == HELD else []
        proved = any(_told(held, one, places, seen.looks, saved).word == PROVED for one in earlier)
        answers.append(Told() if proved else Told(word=DOUBT) if earlier else answer)
    values, wanted = _values(held), _wanted(moved, places)
    is_found = any(answer.word in (MOVED, PROVED) for answer in answers)
    for number, (group, answer) in enumerate(zip(groups, answers, strict=True)):
        # The critic's parameters may be of the same shapes, and not be saved.
        has_room = all(len(values.get(tuple(mark["shape"]), ())) >= wanted[tuple(mark["shape"])] for mark in group)
        if answer.word == UNLIKE and (seen.unmarked or (is_found and not has_room)):
            answers[number] = Told(word=MOVED)
        # What was found exactly is proven; tensors that were cast beside it are not by that.
        open_ = group if answer.word == MOVED else [mark for mark in group if not found.get(_kind(mark))]
        if answer.word in (MOVED, PROVED) and not seen.unmarked and is_partly_unlike(open_, values, wanted):
            answers[number] = Told(word=UNLIKE)
    worst = next((one for word in (HELD, STALE, UNLIKE, DOUBT, PROVED, MOVED) for one in answers if one.word == word),
                 Told())
    return Told(word={DOUBT: "", PROVED: MOVED}.get(worst.word, worst.word), at=worst.at)


def _between(looks: Sequence[Mapping[str, Any]], place: int) -> list[Values]:
    """Values of a mark at looks while it was trained, coarse."""
    kept = (look.get("values") or () for look in looks)
    return [tuple(map(float, values[place])) for values in kept if place < len(values) and values[place]]


def _wanted(moved: Sequence[Mapping[str, Any]], places: Mapping[Kind, int]) -> dict[Shape, int]:
    """Tensors of each shape that a checkpoint has where the parameters of every optimizer are in it."""
    shapes = {tuple(mark["shape"]) for mark in moved}
    return {shape: max([sum(count for kind, count in places.items() if kind[1] == shape),
                        *(int(mark.get("total") or 0) for mark in moved if tuple(mark["shape"]) == shape)])
            for shape in shapes}


def _told(
    held: Held, moved: Sequence[Mapping[str, Any]], places: Mapping[Kind, int], looks: Sequence[Mapping[str, Any]],
    saved: set[str],
) -> Told:
    """Of one optimizer; `places`: how many parameters of a kind all of them have."""
    found = held.digests
    there = [mark for mark in moved if found.get(_kind(mark))]
    if sum(math.prod(mark["shape"]) for mark in there) < LEAST_ELEMENTS:
        return Told(word=_told_by_cast(held, moved))
    if (moment := _moment(found, there, looks)) is not None:
        look = looks[moment]
        later = [one for one in looks[moment + 1:] if one.get("path") in saved]
        return Told(word=STALE if later else PROVED, at=int(look.get("at") or 0))
    lasting = [mark for mark in there if mark.get("last") not in (None, mark["sha256"])]
    ended = [mark for mark in lasting if mark["last"] in found[_kind(mark)]]
    if ended and len(ended) == len(there):
        return Told(word=PROVED)
    unmoved = [mark for mark in there if mark["sha256"] in found[_kind(mark)]]
    if len(unmoved) == len(there):
        if all(mark.get("uniform") for mark in there):
            return Told()
        return Told(word=DOUBT if _is_second_copy(found, there, places) else HELD)
    if ended and any(mark in unmoved and mark not in ended for mark in lasting):
        return Told(word=DOUBT)
    if all(digest == _zeros(kind) for kind in kinds_of(there) for digest in found[kind]):
        return Told(word=UNLIKE if is_unlike(there, _values(held)) else DOUBT)
    for mark in there:
        count = sum(_kind(other) == _kind(mark) for other in there)
        if mark not in unmoved and len(found[_kind(mark)]) >= count:
            kept = [one for one in unmoved if not one.get("uniform")]
            return Told(word=UNLIKE if not kept and is_unlike(there, _values(held)) else MOVED)
    return Told()


def _moment(
    found: Mapping[Kind, Sequence[str]], there: Sequence[Mapping[str, Any]], looks: Sequence[Mapping[str, Any]]
) -> int | None:
    """Place of the latest look at which all of these were what the checkpoint holds, and not the start."""
    for place in reversed(range(len(looks))):
        digests = looks[place].get("sha256") or ()
        pairs = [(mark, str(digests[mark["place"]] if mark["place"] < len(digests) else "")) for mark in there]
        if all(short and any(digest.startswith(short) for digest in found[_kind(mark)]) for mark, short in pairs) and (
                any(not mark["sha256"].startswith(short) for mark, short in pairs)):
            return place
    return None


def _told_by_cast(held: Held, moved: Sequence[Mapping[str, Any]]) -> str:
    """Of tensors of another type than was trained: the end or the start after a cast, or values like neither."""
    found = dict[str, list[bool]](end=[], start=[])
    for mark in moved:
        first, last = (tuple(mark.get(key) or ()) for key in ("values", "values_last"))
        pieces = [(dtype, piece) for dtype, piece in held.values.get(tuple(mark["shape"]), ())
                  if dtype != mark["dtype"] and len(piece) == len(first)]
        if pieces and last and not any(is_cast_of(first, last, dtype) for dtype, _ in pieces):
            found["end"].append(any(is_cast_of(last, piece, dtype) for dtype, piece in pieces))
            if not mark.get("uniform"):
                found["start"].append(any(is_cast_of(first, piece, dtype) for dtype, piece in pieces))
    if not found["end"]:
        return ""
    if all(found["end"]):
        return PROVED
    if found["start"] and all(found["start"]):
        return HELD
    if any(found["start"]):
        return ""
    return UNLIKE if is_unlike(moved, _values(held)) else MOVED


def _values(held: Held) -> dict[Shape, list[Values]]:
    return {shape: [values for _, values in pieces] for shape, pieces in held.values.items()}


def _is_one_copy(
    found: Mapping[Kind, Sequence[str]], one: Sequence[Mapping[str, Any]], other: Sequence[Mapping[str, Any]]
) -> bool:
    """Whether two optimizers have parameters of the same kinds, and the checkpoint has no room for both."""
    kinds = kinds_of(one)
    return kinds == kinds_of(other) and any(
        len(found.get(kind, ())) < _alike(kind, one) + _alike(kind, other) for kind in kinds)


def _is_second_copy(
    found: Mapping[Kind, Sequence[str]], there: Sequence[Mapping[str, Any]], places: Mapping[Kind, int]
) -> bool:
    """Whether there is, beside the start and all other models, as much of every kind that is not this start."""
    starts = {mark["sha256"] for mark in there}
    return all(
        len(found[kind]) >= places[kind] + _alike(kind, there)
        and sum(digest not in starts for digest in found[kind]) >= _alike(kind, there) for kind in kinds_of(there))


def _alike(kind: Kind, group: Sequence[Mapping[str, Any]]) -> int:
    """How many parameters of a kind an optimizer has; at least those that are marked."""
    marked = [mark for mark in group if _kind(mark) == kind]
    return max([len(marked), *(int(mark.get("alike") or 0) for mark in marked)])


def _number(mark: Mapping[str, Any]) -> int:
    return int(mark.get("optimizer") or 0)


def _zeros(kind: Kind) -> str:
    """The digest of nothing but zeros."""
    size = math.prod(kind[1]) * WIDTHS.get(kind[0], 4)
    return hashlib.sha256(bytes(min(size, PREFIX_BYTES))).hexdigest()


def kinds_of(marks: Iterable[Mapping[str, Any]]) -> set[Kind]:
    """Types and shapes of which a checkpoint's tensors have to be digested."""
    return {_kind(mark) for mark in marks if mark.get("changed")}


def _kind(mark: Mapping[str, Any]) -> Kind:
    return mark["dtype"], tuple(mark["shape"])


def _look_into(path: Path, wanted: set[Kind], held: Held) -> None:
    """Tensors of these shapes; a file that cannot be read holds none."""
    shapes = {shape for _, shape in wanted}
    try:
        header = read_header(path)
        with path.open("rb") as handle:
            for tensor in header.tensors:
                if tuple(tensor.shape) in shapes and tensor.dtype in WIDTHS and not REFERENCE.search(tensor.name):
                    handle.seek(tensor.start)
                    data = handle.read(min(PREFIX_BYTES, tensor.end - tensor.start))
                    _take(tensor, data, wanted, held)
    except (OSError, TensorFileError):
        return


def _take(tensor: TensorInfo, data: bytes, wanted: set[Kind], held: Held) -> None:
    shape = tuple(tensor.shape)
    if (tensor.dtype, shape) in wanted:
        held.digests.setdefault((tensor.dtype, shape), []).append(hashlib.sha256(data).hexdigest())
    values = to_float(data[: VALUES_OF * WIDTHS[tensor.dtype]], tensor.dtype)
    kept = (float(values[place]) for place in positions(len(values)))
    held.values.setdefault(shape, []).append(
        (tensor.dtype, tuple(value if math.isfinite(value) else 0.0 for value in kept)))
