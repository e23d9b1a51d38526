"""Steps of an epoch, as far as a trainer's output tells them: what turns a row's epoch into its step."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

_UNIQUE = 1.8
_NO_STEP = 1 << 62
Range = tuple[float, float]
"""Lowest and highest number of steps in an epoch."""


class Pace:
    """Narrowed by each row whose step is known."""

    def __init__(self) -> None:
        self.learned: Range | None = None
        """What agrees with the rows that were seen."""
        self.announced: tuple[Range, ...] = ()
        """By the words that the program began with."""

    def announce(self, facts: Mapping[str, int]) -> None:
        """What a program says of its total, epochs, examples and batch size."""
        found = []
        if facts.get("total") and facts.get("epochs"):
            found.append(facts["total"] / facts["epochs"])
        if facts.get("examples") and facts.get("batch"):
            found.append(float(math.ceil(facts["examples"] / facts["batch"])))
        self.announced = tuple((pace, pace) for pace in found)

    def step_of(
        self, epoch: float, slack: float, *, low: int | None, high: int | None, was_cleared: bool
    ) -> int | None:
        """Epoch times steps of an epoch, where that leaves one step only and no bar contradicts; learned from."""
        learned = self.learned
        if learned is not None:
            step = _only(learned, epoch, slack, low, high)
            if step is not None:
                return self.learn(epoch, slack, step)
        for pace in self.announced:
            step = _only(pace, epoch, slack, low, high)
            if step is not None and (low is None or step <= low or was_cleared or learned is not None):
                return self.learn(epoch, slack, step)
        return None

    def steps_of(
        self, moments: Sequence[tuple[float, float]], steps: list[int], *, low: int | None, high: int | None
    ) -> None:
        """`step_of` for those (epoch, slack) of rows that `steps` does not hold yet, as far as what was learned tells
        them."""
        if self.learned is None:
            return
        slowest, fastest = self.learned
        least, most = (-1, _NO_STEP) if low is None else (low, _NO_STEP if high is None else max(high, low))
        for epoch, slack in islice(moments, len(steps), None):
            middle, first, last = epoch * (slowest + fastest) / 2, epoch - slack, epoch + slack
            step = round(middle)
            least_step, most_step = first * slowest, last * fastest
            if not (least_step - 0.1 <= step <= most_step + 0.1) or most_step - least_step > _UNIQUE:
                break
            if not -0.2 < middle - step < 0.2 or not least <= step <= most or first <= 0 or step <= 0:
                break
            narrow, wide = step / last, step / first
            if narrow > fastest or wide < slowest:
                slowest, fastest = narrow, wide
            else:
                if narrow > slowest:
                    slowest = narrow
                if wide < fastest:
                    fastest = wide
            steps.append(step)
        self.learned = slowest, fastest

    def steps_around(
        self, moments: Iterable[tuple[float, float]], lows: Sequence[int], highs: Sequence[int], cleared: Sequence[bool]
    ) -> list[int]:
        """The step of each row of (epoch, slack) between the bars before and behind it, as if each came alone. Of
        `lows` and `cleared` there may be more."""
        steps: list[int] = []
        for (epoch, slack), low, high, was_cleared in zip(moments, lows, highs, cleared, strict=False):
            first, last, learned = epoch - slack, epoch + slack, self.learned
            step = None
            if self.announced or learned is None or last * learned[1] - first * learned[0] <= _UNIQUE:
                step = self.step_of(epoch, slack, low=low, high=None, was_cleared=was_cleared)
                if step is None:
                    step = self.step_of(epoch, slack, low=low, high=high, was_cleared=was_cleared)
            if step is None:
                step = self.learn(epoch, slack, high if was_cleared and high >= low else low)
            steps.append(step)
        return steps

    def learn(self, epoch: float, slack: float, step: int) -> int:
        """Narrow the steps of an epoch by a row whose step is known."""
        if epoch - slack <= 0 or step <= 0:
            return step
        low, high = step / (epoch + slack), step / (epoch - slack)
        before = self.learned
        if before is not None and low <= before[1] and high >= before[0]:
            low, high = max(low, before[0]), min(high, before[1])
        self.learned = low, high
        return step


def _only(pace: Range, epoch: float, slack: float, low: int | None, high: int | None) -> int | None:
    middle = epoch * (pace[0] + pace[1]) / 2
    least, most, step = (epoch - slack) * pace[0], (epoch + slack) * pace[1], round(middle)
    if most - least > _UNIQUE or not (least - 0.1 <= step <= most + 0.1) or abs(middle - step) >= 0.2:
        return None
    if low is not None and (step < low or (high is not None and step > max(high, low))):
        return None
    return step
