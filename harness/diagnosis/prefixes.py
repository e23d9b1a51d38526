"""Who wrote a line and when: rank labels of launchers in front of it, and the time stamp in it."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ANSI = re.compile(rb"\x1b\[[0-9;?]{0,40}[A-Za-z]")
_LABELS = (
    re.compile(rb"\[rank(?P<rank>\d{1,6})\]:? ?"),
    re.compile(rb"\[[A-Za-z][\w.-]{0,40}?(?P<local>\d{1,6})\]:\s?"),
    re.compile(rb"\[\d{1,4},(?P<rank>\d{1,6})\]<std(?:err|out)>:\s?"),
    re.compile(rb"\((?P<actor>[\w.:-]{1,80}) pid=\d{1,9}(?:, ip=[\w.:]{1,45})?\) ?"),
    re.compile(rb"\s{0,5}(?P<rank>\d{1,5}): "),
    re.compile(rb"[\w.-]{1,60}: (?=\[rank\d)"),
)
"""Of torch (`TORCH_... [rank2]:`), torchrun's --tee (`[default3]:`), mpirun -tag-output, Ray, and `srun --label`."""
_LABEL_BEGINS = tuple(bytes([char]) for char in b"[( \t0123456789")
_NAMED_RANK = re.compile(rb"\[Rank (\d{1,6})\]|\brank[=: ](\d{1,6})\b")
_STAMPS = (
    re.compile(r"(?P<Y>\d{4})[-/](?P<m>\d\d)[-/](?P<d>\d\d)[ T_](?P<H>\d\d):(?P<M>\d\d):(?P<S>\d\d(?:[.,]\d{1,9})?)"),
    re.compile(r"(?P<m>\d\d)/(?P<d>\d\d)/(?P<Y>\d{4}) (?P<H>\d\d):(?P<M>\d\d):(?P<S>\d\d(?:[.,]\d{1,9})?)"),
    re.compile(r"\b[IWEF](?P<m>\d{1,2})(?P<d>\d\d) (?P<H>\d\d):(?P<M>\d\d):(?P<S>\d\d(?:\.\d{1,9})?)"),
    re.compile(r"\b(?P<b>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) {1,2}(?P<d>\d{1,2}) "
               r"(?P<H>\d\d):(?P<M>\d\d):(?P<S>\d\d)"),
)
_MONTHS = ("", "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_STAMP_CHARS = 200
"""A stamp stands at the beginning of a line, or in a line about its own time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """A moment as a log tells it."""

    text: str
    key: tuple[int, int, int, int, float]
    """(month, day, hour, minute, second): logs of one failure seldom tell the year twice the same way."""
    year: int | None


@dataclass(frozen=True, slots=True)
class Labelled:
    """A line without what the launcher put in front of it."""

    rank: int | None
    is_local: bool
    """Whether the rank is one within its node."""
    label: str
    """Tells streams of one file apart."""
    rest: bytes


def split_label(data: bytes) -> Labelled:
    """Take labels off the front of a line, as many as stand there (at most four)."""
    data = data.replace(b"\x00", b"") if b"\x00" in data else data
    rest = _ANSI.sub(b"", data) if b"\x1b" in data else data
    rank: int | None = None
    is_local, labels = False, []
    for _ in range(4):
        if rest[:1] not in _LABEL_BEGINS and b": [rank" not in rest[:80]:
            break
        found = next((match for pattern in _LABELS if (match := pattern.match(rest))), None)
        if found is None:
            break
        groups = found.groupdict()
        if groups.get("rank") is not None:
            rank, is_local = int(groups["rank"]), False
        elif groups.get("local") is not None and rank is None:
            rank, is_local = int(groups["local"]), True
        labels.append(found[0].strip())
        rest = rest[found.end():]
    label = f"rank{rank}" if rank is not None else b"".join(labels).decode("utf-8", "replace")
    return Labelled(rank, is_local, label, rest)


def named_rank(rest: bytes) -> int | None:
    """The rank that a line says it is about: `[Rank 0] Watchdog ...`, `rank=2 stage=...`."""
    found = _NAMED_RANK.search(rest[:2000])
    return int(found[1] or found[2]) if found else None


def stamp_in(text: str) -> Stamp | None:
    """The first time stamp near the beginning of a line; None where there is none, or where it is no date."""
    head = text[:_STAMP_CHARS]
    for pattern in _STAMPS:
        found = pattern.search(head)
        if found is None:
            continue
        part = found.groupdict()
        month = _MONTHS.index(part["b"]) if part.get("b") else int(part["m"])
        if not (1 <= month <= 12 and 1 <= int(part["d"]) <= 31):
            continue
        second = float(part["S"].replace(",", "."))
        return Stamp(text=found[0], key=(month, int(part["d"]), int(part["H"]), int(part["M"]), second),
                     year=int(part["Y"]) if part.get("Y") else None)
    return None
