"""What the detectors are fed with and what they say."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from harness.record.vocabulary import AnomalyType, Severity


class Role(str, Enum):
    """What a tag is, as far as the detectors ask."""

    LOSS = "loss"
    """A training loss."""
    POLICY_LOSS = "policy-loss"
    """A training loss that says nothing by its height, as a rollout algorithm's."""
    EVAL_LOSS = "eval-loss"
    GRAD_NORM = "grad_norm"
    LR = "lr"
    RATE = "rate"
    """Tokens or samples per second."""
    OTHER = "other"


class Point(NamedTuple):
    """One scalar of the run."""

    tag: str
    role: Role
    step: int
    """As the trainer counts."""
    value: float
    wall_time: float
    """Writer's clock, seconds since the epoch; 0.0 where the source has none."""
    is_training: bool
    """Whether it is of the training phase."""
    series: str = ""
    """What tells its series from others of the tag, "" where the tag does."""

    @property
    def subject(self) -> str:
        """Name of its series."""
        return self.series or self.tag


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """Something went wrong, or is worse than it was said to be."""

    type: AnomalyType
    severity: Severity
    subject: str
    """What it is about: a tag, a kind of error. While it lasts, type and subject name it."""
    step: int | None
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What was sighted is over."""

    type: AnomalyType
    subject: str
    step: int | None
    why: str


Finding = Sighting | Recovery


class Window:
    """The last `size` numbers with their median, at a cost that does not grow with the series."""

    def __init__(self, size: int) -> None:
        self.values: deque[float] = deque(maxlen=size)
        self._sorted: list[float] | None = None
        """The same in order, from the first time on that their median was asked for."""

    def add(self, value: float) -> None:
        """Take in a finite number."""
        order = self._sorted
        if order is not None:
            if len(self.values) == self.values.maxlen:
                del order[bisect_left(order, self.values[0])]
            insort(order, value)
        self.values.append(value)

    @property
    def is_full(self) -> bool:
        """Whether `size` numbers were taken in."""
        return len(self.values) == self.values.maxlen

    def __len__(self) -> int:
        return len(self.values)

    @property
    def median(self) -> float:
        """Upper median; ValueError where nothing was taken in."""
        if not self.values:
            raise ValueError("an empty window has no median")
        if self._sorted is None:
            self._sorted = sorted(self.values)
        return self._sorted[len(self._sorted) // 2]
