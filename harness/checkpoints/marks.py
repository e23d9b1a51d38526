"""Whether a checkpoint still holds the parameters that its optimizer began with, by the digests that the probe took."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.checkpoints.tensors import TensorFileError, read_header

Kind = tuple[str, tuple[int, ...]]
LEAST_ELEMENTS = 4
"""Fewer elements than this in all may be equal by chance."""


def holds_start(files: Iterable[Path], marks: Sequence[Mapping[str, Any]]) -> bool:
    """Whether every mark that moved in memory, and that has a tensor of its shape and type here, is here unmoved."""
    moved: dict[Kind, set[str]] = {}
    for mark in marks:
        if mark.get("changed"):
            moved.setdefault((mark["dtype"], tuple(mark["shape"])), set()).add(str(mark["sha256"]))
    found: dict[Kind, set[str]] = {}
    for path in files:
        if path.suffix == ".safetensors":
            _digests(path, moved.keys(), found)
    elements = sum(math.prod(shape) * len(moved[dtype, shape]) for dtype, shape in found)
    return bool(found) and elements >= LEAST_ELEMENTS and all(moved[key] <= found[key] for key in found)


def _digests(path: Path, wanted: Iterable[Kind], found: dict[Kind, set[str]]) -> None:
    """SHA-256 of every tensor of these types and shapes; a file that cannot be read holds none."""
    keys = set(wanted)
    try:
        header = read_header(path)
        with path.open("rb") as handle:
            for tensor in header.tensors:
                key = (tensor.dtype, tuple(tensor.shape))
                if key in keys:
                    handle.seek(tensor.start)
                    digest = hashlib.sha256(handle.read(tensor.end - tensor.start)).hexdigest()
                    found.setdefault(key, set()).add(digest)
    except (OSError, TensorFileError):
        return
