"""Rows of one shape that a trainer's output holds one behind the other, by column."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

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
        return replace(self, columns=tuple(column[start:end] for column in self.columns), epochs=self.epochs[start:end],
                       epoch_texts=self.epoch_texts[start:end], steps=self.steps[start:end],
                       wall_times=self.wall_times[start:end])

    def at(self, steps: Sequence[int]) -> Rows:
        """The same with their steps."""
        return replace(self, steps=steps)

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


def rows_of(shape: Shape, groups: Sequence[Sequence[bytes]]) -> Rows | None:
    """The rows of lines by the texts of each group; None where one of them has to be looked at alone."""
    try:
        columns = tuple(list(map(float, groups[place])) for place in shape.places)
        epochs = list(map(float, groups[shape.epoch])) if shape.epoch is not None else []
    except ValueError:
        return None
    if epochs and not all(0 <= epoch < MAX_EPOCH for epoch in epochs):
        return None
    steps = list(map(int, groups[shape.step])) if shape.step is not None else []
    wall_times = list(map(float, groups[shape.wall_time])) if shape.wall_time is not None else []
    return Rows(shape=shape, tags=shape.tags, columns=columns, epochs=epochs,
                epoch_texts=groups[shape.epoch] if shape.epoch is not None else (), steps=steps,
                wall_times=wall_times)
