"""Rows that a trainer's output holds one behind the other, by column."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TypeVar

from harness.metrics.stdout_said import MAX_EPOCH, is_evaluation
from harness.metrics.stdout_shapes import Shape

Item = TypeVar("Item")
EPOCH = "epoch"
_OF_TWO = re.compile(rb"(?:[0-9]{1,10}\.[0-9]{2} )+")
"""Epochs of two decimals."""
_PLAIN = re.compile(rb"(?:[0-9]{1,10}\.[0-9]{1,19} )+")
_DECIMALS = re.compile(rb"\.([0-9]+)")
_SLACKS = tuple(0.5 * 10.0 ** -max(2, decimals) for decimals in range(20))
"""As slack_of tells it, by the number of decimals."""


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

    def complete(self) -> Rows:
        """The same; the epoch of prose as the first value of each."""
        if not self.shape.is_text or self.shape.epoch is None:
            return self
        return replace(self, tags=(EPOCH, *self.tags), columns=(self.epochs, *self.columns))

    def trains(self) -> list[bool]:
        """Of each row, whether it is one of training."""
        return [not self.is_evaluation] * len(self)

    def slacks(self) -> Iterator[float]:
        """Half of what each epoch was rounded to."""
        texts, slack = self.epoch_texts, self.shape.slack
        if not self.shape.is_quoted and not self.shape.is_json:
            joined = b" ".join([*texts, b""])
            if _OF_TWO.fullmatch(joined):
                return (0.005 if epoch else 0.0 for epoch in self.epochs)
            if all(self.epochs) and _PLAIN.fullmatch(joined):
                return map(_SLACKS.__getitem__, map(len, _DECIMALS.findall(joined)))
        return (slack(text) if epoch else 0.0 for epoch, text in zip(self.epochs, texts, strict=True))

    def moments(self) -> Iterator[tuple[float, float]]:
        """The epoch of each row and half of what it was rounded to."""
        return zip(self.epochs, self.slacks(), strict=True)

    def flat(self) -> list[float]:
        """The values, row by row."""
        return list(chain.from_iterable(zip(*self.columns, strict=True)))


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedRows:
    """Rows of several shapes in turns: those of an evaluation among those of training, or of two optimizers."""

    kinds: bytes
    """For each row, of which of `groups` it is the next."""
    groups: tuple[Rows, ...]
    steps: Sequence[int] = ()
    """As in Rows."""

    def __len__(self) -> int:
        return len(self.kinds)

    @property
    def is_evaluation(self) -> bool:
        """Whether none of them is of training."""
        return all(rows.is_evaluation for rows in self.groups if len(rows))

    def trains(self) -> list[bool]:
        """See Rows."""
        flags = [not rows.is_evaluation for rows in self.groups]
        return [flags[kind] for kind in self.kinds]

    def part(self, start: int, end: int) -> MixedRows:
        """Some of them."""
        before, kinds = self.kinds[:start], self.kinds[start:end]
        spans = [(first := before.count(kind), first + kinds.count(kind)) for kind in range(len(self.groups))]
        groups = tuple(rows.part(*span) for rows, span in zip(self.groups, spans, strict=True))
        return MixedRows(kinds=kinds, groups=groups, steps=self.steps[start:end])

    def at(self, steps: Sequence[int]) -> MixedRows:
        """The same with their steps."""
        return MixedRows(kinds=self.kinds, groups=self.groups, steps=steps)

    def moments(self) -> list[tuple[float, float]]:
        """As in Rows."""
        return self.in_turns([rows.moments() for rows in self.groups])

    def in_turns(self, items: Sequence[Iterable[Item]]) -> list[Item]:
        """In the order of the rows, where each of `items` is what each group gives for its own."""
        following = [iter(one).__next__ for one in items]
        return [following[kind]() for kind in self.kinds]

    def alone(self) -> Iterator[Rows]:
        """The same as stretches of one shape each."""
        start, ends = 0, [place for place in range(1, len(self)) if self.kinds[place] != self.kinds[place - 1]]
        for end in [*ends, len(self)]:
            yield self.part(start, end).groups[self.kinds[start]]
            start = end


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
