"""What the probe saw of a few parameters: as their optimizer found them, at looks while it trained, and at the end."""

from __future__ import annotations

import array
import base64
import binascii
import dataclasses
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.probe.fields import Fields

MAX_MARKS, MAX_LOOKS, MAX_VALUES = 64, 40, 64
MAX_DIGEST, MAX_PATH, MAX_PACKED = 64, 500, 400


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeMark:
    """A parameter as an optimizer found it."""

    dtype: str
    """As safetensors names it."""
    shape: tuple[int, ...]
    sha256: str
    """Of its first 32 KiB."""
    changed: bool
    """Whether training moved it."""
    uniform: bool
    """Whether these bytes repeat one element, which says little about whose they are."""
    optimizer: int
    """Which optimizer has it, in the order of their marks."""
    end: str | None = None
    """The digest after `marks_at` steps; None where it could not be read then."""
    last: str | None = None
    """The digest when it was last looked at, at the end where it lived so long."""
    alike: int = 0
    """Parameters of its type and shape that its optimizer has; 0 where that is not known."""
    values: tuple[float, ...] = ()
    """At most 64 of its values as the optimizer found it; their places are those of checkpoints.likeness.positions."""
    values_last: tuple[float, ...] = ()
    """The same ones when it was last looked at."""
    total: int = 0
    """Parameters of its type and shape that all optimizers have; 0 where that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeLook:
    """All marked parameters at one moment of the training."""

    at: int
    """Applied steps of all optimizers before it."""
    time: float
    """Seconds since the epoch, by the trainer's clock."""
    path: str | None
    """The file that the program saved to next; None where it did not save, or not to a file."""
    sha256: tuple[str, ...]
    """The first letters of the digest of each mark, in the order of the marks; "" where it was not seen."""
    values: tuple[tuple[int, ...], ...] = ()
    """Of each mark the values as whole numbers, the largest being 127; empty where they were not kept."""


def read_mark(fields: Fields) -> ProbeMark:
    """ValueError for what is none."""
    return ProbeMark(
        dtype=fields.text("dtype"), shape=fields.counts("shape"), sha256=fields.text("sha256"),
        changed=fields.flag("changed"), uniform=fields.optional("uniform", fields.flag) or False,
        optimizer=fields.optional("optimizer", fields.count) or 0, end=fields.optional("end", fields.text),
        last=fields.optional("last", fields.text), alike=fields.optional("alike", fields.count) or 0,
        values=_values(fields, "values"), values_last=_values(fields, "values_last"),
        total=fields.optional("total", fields.count) or 0)


def read_look(fields: Fields) -> ProbeLook:
    """ValueError for what is none."""
    digests = fields.items("sha256", MAX_MARKS)
    if not all(digest is None or (isinstance(digest, str) and len(digest) <= MAX_DIGEST and digest.isalnum())
               for digest in digests):
        raise ValueError("looks.sha256 holds what is no digest")
    return ProbeLook(at=fields.count("at"), time=fields.time("time"),
                     path=fields.optional("path", lambda name: fields.text(name, MAX_PATH)),
                     sha256=tuple(digest or "" for digest in digests), values=_coarse(fields))


def _coarse(fields: Fields) -> tuple[tuple[int, ...], ...]:
    texts = fields.optional("values", lambda name: fields.items(name, MAX_MARKS)) or []
    try:
        kept = (base64.b64decode(text or "", validate=True)[:MAX_VALUES] for text in texts)
        return tuple(tuple(array.array("b", values)) for values in kept)
    except (binascii.Error, ValueError, TypeError) as error:
        raise ValueError("looks.values is no list of values") from error


def _values(fields: Fields, name: str) -> tuple[float, ...]:
    """Float32 values from base64; what is not finite counts as 0."""
    text = fields.optional(name, lambda field: fields.text(field, MAX_PACKED))
    if not text:
        return ()
    kept = array.array("f")
    try:
        kept.frombytes(base64.b64decode(text, validate=True)[: 4 * MAX_VALUES])
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{name} is no list of values") from error
    if sys.byteorder == "big":
        kept.byteswap()
    return tuple(float(f"{value:.9g}") if math.isfinite(value) else 0.0 for value in kept)


def without_values(marks: Sequence[ProbeMark]) -> list[dict[str, Any]]:
    """JSON of the marks of a process whose values nobody will ask for."""
    return [{**dataclasses.asdict(mark), "values": (), "values_last": ()} for mark in marks]
