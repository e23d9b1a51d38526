"""Rows of one shape that a trainer's output holds one behind the other, by column."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

from harness.metrics.stdout_lines import MAX_EPOCH, is_evaluation
from harness.metrics.stdout_shapes import Shape

EPOCH = "epoch"
_OF_TWO = re.compile(rb"[0-9]{1,10}\.[0-9]{2}(?: [0-9]{1,10}\.[0-9]{2})*")
"""Epochs of two decimals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """As many rows as `columns` have values, of one source."""

    shape: Shape
    tags: tuple[str, ...]
    columns: tuple[Sequence[float], ...]
    """The values of each tag."""
    epochs: Sequence[float]
    """Empty where the rows have none, or a step of their own."""
    epoch_texts: Sequence[bytes]
    steps: Sequence[int] = ()
    """Empty as long as they are not known."""
    wall_times: Sequence[float] = ()
    """Empty where the rows have none."""

    def __len__(self) -> int:
        return len(self.columns[0])

    @property
    def is_evaluation(self) -> bool:
        """See Row."""
        return is_evaluation(self.tags)

    def part(self, start: int, end: int) -> Rows:
        """Some of them."""
        if start == 0 and end == len(self):
            return self
        return Rows(shape=self.shape, tags=self.tags, columns=tuple([column[start:end] for column in self.columns]),
                    epochs=self.epochs[start:end], epoch_texts=self.epoch_texts[start:end], steps=self.steps[start:end],
                    wall_times=self.wall_times[start:end])

    def at(self, steps: Sequence[int]) -> Rows:
        """The same with their steps."""
        return Rows(shape=self.shape, tags=self.tags, columns=self.columns, epochs=self.epochs,
                    epoch_texts=self.epoch_texts, steps=steps, wall_times=self.wall_times)

    def with_epochs(self) -> Rows:
        """The same with the epoch as the first value of each."""
        return replace(self, tags=(EPOCH, *self.tags), columns=(self.epochs, *self.columns))

    def slacks(self) -> Iterator[float]:
        """Half of what each epoch was rounded to."""
        texts = self.epoch_texts
        if not self.shape.is_quoted and not self.shape.is_json and _OF_TWO.fullmatch(b" ".join(texts)):
            return (0.005 if epoch else 0.0 for epoch in self.epochs)
        slack = self.shape.slack
        return (slack(text) if epoch else 0.0 for epoch, text in zip(self.epochs, texts, strict=True))

    def moments(self) -> Iterator[tuple[float, float]]:
        """The epoch of each row and half of what it was rounded to."""
        return zip(self.epochs, self.slacks(), strict=True)

    def flat(self) -> list[float]:
        """The values, row by row."""
        return list(chain.from_iterable(zip(*self.columns, strict=True)))


class Stretch(NamedTuple):
    """Lines of one shape that follow each other."""

    start: int
    end: int
    rows: Rows


def stretches_in(data: bytes, shapes: Sequence[Shape], fewest: int) -> Iterator[Stretch]:
    """Where in whole lines at least so many of a shape follow each other, in their order. What stands
    between those of the most frequent shape is searched for the others."""
    many = [(count, place) for place, shape in enumerate(shapes) if (count := data.count(shape.sign)) >= fewest]
    if not many:
        return
    shape = shapes[max(many)[1]]
    others = [shapes[place] for _, place in many if shapes[place] is not shape]
    parts, stride = shape.whole.split(data), shape.whole.groups + 1
    gaps, lines, groups = parts[::stride], parts[1::stride], [parts[place::stride] for place in range(2, stride)]
    every, first, at = rows_of(shape, groups), 0, 0
    for place in [*(place for place, gap in enumerate(gaps[:-1]) if gap), len(lines)]:
        end = at + sum(map(len, lines[first:place]))
        if first < place and gaps[first] and not gaps[first].endswith(b"\n"):
            at += len(lines[first])  # it begins within a line
            first += 1
        if place - first >= fewest:
            rows = every.part(first, place) if every else rows_of(shape, [group[first:place] for group in groups])
            if rows is not None:
                yield Stretch(at, end, rows)
        gap = gaps[place]
        if others and gap.count(b"\n") >= fewest:
            for start, stop, rows in stretches_in(gap, others, fewest):
                yield Stretch(end + start, end + stop, rows)
        first, at = place, end + len(gap)


def rows_of(shape: Shape, groups: Sequence[Sequence[bytes]]) -> Rows | None:
    """The rows of lines by the texts of each group; None where one of them has to be looked at alone."""
    try:
        columns = tuple(list(map(float, groups[place])) for place in shape.places)
        epochs = list(map(float, groups[shape.epoch])) if shape.epoch is not None else []
    except ValueError:
        return None
    if epochs and not (min(epochs) >= 0 and max(epochs) < MAX_EPOCH and not math.isnan(sum(epochs))):
        return None
    steps = list(map(int, groups[shape.step])) if shape.step is not None else []
    wall_times = list(map(float, groups[shape.wall_time])) if shape.wall_time is not None else []
    return Rows(shape=shape, tags=shape.tags, columns=columns, epochs=epochs,
                epoch_texts=groups[shape.epoch] if shape.epoch is not None else (), steps=steps,
                wall_times=wall_times)
