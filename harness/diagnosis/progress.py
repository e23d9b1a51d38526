"""How far a run had come, and its metrics, around a place of its log: bounded windows, never the whole file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from harness.diagnosis.prefixes import split_label
from harness.metrics.stdout_lines import read_line
from harness.metrics.stdout_said import Banner, Bar, EpochLine, Row
from harness.record.files import open_regular

WINDOW_BYTES = 256 << 10
MAX_LINE_BYTES = 16 << 10
_STEP = re.compile(
    r"(?i)(?<![\w/.-])(?:global[_ ]?step|steps?|iter(?:ation)?s?|updates?)\s{0,3}[=: #]\s{0,3}(\d{1,15})"
    r"(?:\s{0,2}/\s{0,2}(\d{1,15}))?(?![\w.])(?!,\d)"
)
_PLANNED = re.compile(r"(?i)\b(?:planned|total|max(?:imum)?)[ _](?:\w{1,20}[ _])?steps\s{0,3}[=:]\s{0,3}([\d,]{1,20})")
_BATCH = re.compile(r"(?i)batch size per device\s{0,3}=\s{0,3}([\d,]{1,12})")
_SHOWN = re.compile(r"(?i)loss|grad_norm|^lr$|learning_rate|reward|accuracy|kl$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A line that says where training is."""

    offset: int
    line: int
    """-1 where the window does not begin at the start of the file."""
    label: str
    step: int | None
    total: int | None
    epoch: float | None = None
    is_end: bool = False
    """The trainer's closing line."""
    values: dict[str, float] = field(default_factory=dict)
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What a piece of a log says of progress."""

    marks: tuple[Mark, ...]
    planned: int | None
    batch_sizes: tuple[int, ...]


def read_window(path: Path, begin: int, end: int) -> Window:
    """The piece [begin, end) of a log, cut to its last 256 KiB; empty where it cannot be read."""
    begin = max(0, begin, end - WINDOW_BYTES)
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            file.seek(begin)
            data = file.read(max(0, end - begin))
    except (OSError, ValueError):
        data = b""
    marks, planned, batches = [], None, []
    for offset, line, piece in _pieces(data, begin):
        labelled = split_label(piece[:MAX_LINE_BYTES])
        text = labelled.rest.decode("utf-8", "replace").strip()
        if found := _PLANNED.search(text[:400]):
            planned = _count(found[1])
            continue
        if found := _BATCH.search(text[:400]):
            batches.append(_count(found[1]))
        mark = _mark(labelled.rest, text, offset, line, labelled.label)
        if isinstance(mark, int):
            planned = mark
        elif mark is not None:
            marks.append(mark)
    return Window(marks=tuple(marks), planned=planned, batch_sizes=tuple(batches))


def _pieces(data: bytes, begin: int) -> Iterator[tuple[int, int, bytes]]:
    at, line = 0, 1
    for piece in re.split(rb"([\r\n])", data):
        if piece == b"\n":
            line += 1
        elif piece != b"\r" and piece.strip():
            yield begin + at, -1 if begin else line, piece
        at += len(piece)


def _count(text: str) -> int:
    return int(text.replace(",", "") or 0)


def _mark(raw: bytes, text: str, offset: int, line: int, label: str) -> Mark | int | None:
    """A mark, or the announced total."""
    step: int | None = None
    total: int | None = None
    epoch: float | None = None
    is_end = False
    values: dict[str, float] = {}
    for said in read_line(raw):
        if isinstance(said, Row):
            values.update(said.values)
            step = said.step if said.step is not None else step
            epoch, is_end = said.epoch, said.is_summary
            total = said.step_total or total
        elif isinstance(said, Bar):
            step, total = (said.done, said.total) if not said.counts_epochs else (step, total)
            values.update(said.values)
        elif isinstance(said, EpochLine):
            epoch = float(said.epoch)
        elif isinstance(said, Banner) and said.key == "total":
            return said.value
    if step is None and (found := _STEP.search(text[:400])):
        step, total = int(found[1]), int(found[2]) if found[2] else None
    if step is None and epoch is None and not values:
        return None
    return Mark(offset=offset, line=line, label=label, step=step, total=total, epoch=epoch, is_end=is_end,
                values=values, text=text[:400])


def shown_values(mark: Mark) -> str:
    """`loss=1.6, lr=1e-05`: the values that a reader of a failure wants."""
    return ", ".join(f"{name}={value:.6g}" for name, value in mark.values.items() if _SHOWN.search(name))


def goes_on_after(before: Window, after: Window, offset: int, label: str) -> bool:
    """Whether a stream makes progress behind `offset`, rather than only drawing its bar once more."""
    later = [mark for mark in after.marks if mark.offset > offset and mark.label == label]
    earlier = [mark for mark in before.marks if mark.offset < offset and mark.label == label]
    return any(_advances([getattr(mark, kind) for mark in earlier], [getattr(mark, kind) for mark in later])
               for kind in ("step", "epoch"))


def _advances(earlier: list[float | None], later: list[float | None]) -> bool:
    first = [value for value in earlier if value is not None]
    then = [value for value in later if value is not None]
    if first and then and then[-1] > first[-1]:
        return True
    return any(second > one for one, second in pairwise(then))
