"""Whether a checkpoint holds the parameters that its optimizer began with, by the digests that the probe took.

Two facts and no more: it holds them unmoved, although they moved in memory (`held`: the untrained model), or it holds
others in their place (`moved`). Parameters have no names there, so that type and shape tell which tensors may be one.
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

Kind = tuple[str, tuple[int, ...]]
PREFIX_BYTES = 32 << 10
"""Digested of a tensor; as in probe/site/_real_step_marks.py."""
LEAST_ELEMENTS = 4
"""Fewer elements than this in all may be equal by chance."""
REFERENCE = re.compile(r"(^|[._/])(ref|reference|ref_model|old|teacher|target|init|initial)([._/]|$)", re.I)
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

    Only marks that moved in memory count, those of each optimizer by themselves: a critic may be left as it was.
    """
    numbers = sorted({int(mark.get("optimizer") or 0) for mark in marks})
    answers = [_told(found, [mark for mark in marks if (mark.get("optimizer") or 0) == number and mark.get("changed")])
               for number in numbers]
    return "held" if "held" in answers else "moved" if "moved" in answers else ""


def _told(found: Mapping[Kind, Sequence[str]], moved: Sequence[Mapping[str, Any]]) -> str:
    there = [mark for mark in moved if found.get(_kind(mark))]
    if sum(math.prod(mark["shape"]) for mark in there) < LEAST_ELEMENTS:
        return ""
    unmoved = [mark for mark in there if mark["sha256"] in found[_kind(mark)]]
    if len(unmoved) == len(there):
        return "" if all(mark.get("uniform") for mark in there) else "held"
    for mark in there:
        places = sum(_kind(other) == _kind(mark) for other in there)
        if mark not in unmoved and len(found[_kind(mark)]) >= places:
            return "moved"
    return ""


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
