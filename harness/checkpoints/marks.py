"""Whether a checkpoint holds the parameters that its optimizer began with, by the digests that the probe took.

Two facts and no more: it holds them unmoved, although they moved in memory (`held`: the untrained model), or it holds
what they became, or others in their place (`moved`). Parameters have no names there, so that type and shape tell which
tensors may be one. A copy of the start beside what was trained is no fault.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.checkpoints.naming import is_named_start
from harness.checkpoints.tensors import TensorFileError, read_header

MOVED, PROVED, DOUBT = "moved", "proved", "doubt"
"""Others are in the start's place; what became of it is; neither can be told."""
MARKED = ("held", MOVED)
Kind = tuple[str, tuple[int, ...]]
PREFIX_BYTES = 32 << 10
"""Digested of a tensor; as in probe/site/_real_step_marks.py."""
WIDTHS = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
"""Bytes of an element."""
LEAST_ELEMENTS = 4
"""Fewer elements than this in all may be equal by chance."""
REFERENCE = re.compile(r"(^|[._/])(ref|reference|old|teacher|target|tgt|anchor|untrained|init|initial)([._/]|$)", re.I)
"""Parts of a name that hold another model than the one that is trained: it stays as it was by design."""


def marks_of(probe: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The marks of the process that trained most, of the probe's facts."""
    processes = [item for item in probe.get("processes") or [] if isinstance(item, dict)]
    stepped = max(processes, key=lambda process: process.get("steps") or 0, default={})
    return [mark for mark in stepped.get("marks") or [] if isinstance(mark, dict)]


def is_delivered(path: str, step: int | None, latest: str | None) -> bool:
    """Whether a checkpoint has to hold what was trained: the last one and models without a step, but for a start."""
    return step != 0 and (path == latest or step is None) and not is_named_start(path)


def told_by_files(files: Iterable[Path], marks: Sequence[Mapping[str, Any]]) -> str:
    """`held`, `moved` or "" for the safetensors files of a checkpoint."""
    wanted, found = kinds_of(marks), dict[Kind, list[str]]()
    for path in files:
        if path.suffix == ".safetensors":
            _digests(path, wanted, found)
    return told(found, marks)


def told(found: Mapping[Kind, Sequence[str]], marks: Sequence[Mapping[str, Any]]) -> str:
    """What the digests of a checkpoint's tensors, by type and shape, say beside the marks: `held`, `moved` or "".

    Only marks that moved in memory count, those of each optimizer by themselves: a critic may be left as it was. What
    one optimizer made may be what a later one began with: a copy that is tuned after the save.
    """
    moved = [mark for mark in marks if mark.get("changed")]
    groups = [[mark for mark in moved if _number(mark) == number] for number in sorted({*map(_number, moved)})]
    places = {kind: sum(_alike(kind, group) for group in groups) for kind in kinds_of(moved)}
    answers = list[str]()
    for group in groups:
        answer = _told(found, group, places)
        earlier = [one for one, said in zip(groups, answers, strict=False) if said in (MOVED, PROVED)
                   and _is_one_copy(found, one, group)] if answer == "held" else []
        proved = any(_told(found, one, places) == PROVED for one in earlier)
        answers.append("" if proved else DOUBT if earlier else answer)
    worst = next((one for one in ("held", DOUBT, PROVED, MOVED) if one in answers), "")
    return {DOUBT: "", PROVED: MOVED}.get(worst, worst)


def _told(
    found: Mapping[Kind, Sequence[str]], moved: Sequence[Mapping[str, Any]], places: Mapping[Kind, int]
) -> str:
    """Of one optimizer; `places`: how many parameters of a kind all of them have."""
    there = [mark for mark in moved if found.get(_kind(mark))]
    if sum(math.prod(mark["shape"]) for mark in there) < LEAST_ELEMENTS:
        return ""
    lasting = [mark for mark in there if mark.get("last") not in (None, mark["sha256"])]
    ended = [mark for mark in lasting if mark["last"] in found[_kind(mark)]]
    if ended and len(ended) == len(there):
        return PROVED
    unmoved = [mark for mark in there if mark["sha256"] in found[_kind(mark)]]
    if len(unmoved) == len(there):
        if all(mark.get("uniform") for mark in there):
            return ""
        return DOUBT if _is_second_copy(found, there, places) else "held"
    if ended and any(mark in unmoved and mark not in ended for mark in lasting):
        return DOUBT
    if all(digest == _zeros(kind) for kind in kinds_of(there) for digest in found[kind]):
        return DOUBT
    for mark in there:
        count = sum(_kind(other) == _kind(mark) for other in there)
        if mark not in unmoved and len(found[_kind(mark)]) >= count:
            return MOVED
    return ""


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


def _digests(path: Path, wanted: set[Kind], found: dict[Kind, list[str]]) -> None:
    """SHA-256 of the beginning of every tensor of these types and shapes; a file that cannot be read holds none."""
    try:
        header = read_header(path)
        with path.open("rb") as handle:
            for tensor in header.tensors:
                key = (tensor.dtype, tuple(tensor.shape))
                if key in wanted and not REFERENCE.search(tensor.name):
                    handle.seek(tensor.start)
                    data = handle.read(min(PREFIX_BYTES, tensor.end - tensor.start))
                    found.setdefault(key, []).append(hashlib.sha256(data).hexdigest())
    except (OSError, TensorFileError):
        return
