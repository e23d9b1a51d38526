"""Rows of a trainer's output put at their steps: those without one wait until a bar, a total or the end tells it."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from itertools import accumulate, compress

from harness.metrics.model import RestartMarker
from harness.metrics.stdout_pace import Pace
from harness.metrics.stdout_rows import MixedRows, Rows
from harness.metrics.stdout_said import Row
from harness.metrics.stdout_where import Where

MAX_STEP = 1 << 62
"""A step beyond it is a number that happens to stand there."""
MAX_RESTARTS = 1000
"""So many are remembered."""
MAX_PENDING = 10_000
"""So many rows may wait for their step to become known."""
Placed = tuple[int, Row] | Rows | MixedRows | RestartMarker
"""A row with its step, many of known shapes with theirs, or the word that training goes back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """Training that began again within one output."""

    after_step: int
    """The last training row before it."""
    first_step: int
    resumed_from: int | None
    """Completed steps, where it says so."""


@dataclass(slots=True)
class _Waiting:
    row: Row | Rows | MixedRows
    low: int | None
    """Step of the last bar before it."""
    was_cleared: bool
    """Whether the bar is drawn anew behind the row, with the row's own step."""


class Places:
    """Takes rows in the order of the output; `given` hands out those that have their step."""

    def __init__(self, where: Where, logging_steps: int | None) -> None:
        """`logging_steps`: see StdoutParser."""
        self.pace = Pace()
        self.restarts: list[Restart] = []
        self.are_steps_guessed = False
        self._where = where
        self._logging_steps = logging_steps
        self._out: list[Placed] = []
        self._waiting: deque[_Waiting] = deque()
        self._num_waiting = 0
        self._num_rows = 0
        self._last_train_step: int | None = None

    @property
    def has_waiting(self) -> bool:
        """Whether a row has no step so far."""
        return bool(self._waiting)

    def given(self) -> list[Placed]:
        """What was placed since it was last asked for."""
        out = self._out
        if out:
            self._out = []
        return out

    def begin(self) -> None:
        """Training starts, maybe again."""
        self.settle(None, is_final=True)
        self._num_rows = 0

    def put(self, row: Row, step: int) -> None:
        """A row whose step is known."""
        if abs(step) >= MAX_STEP:
            return
        if not row.is_evaluation and not row.is_summary:
            self._count(1, step, step)
        self._out.append((step, row))

    def put_rows(self, rows: Rows | MixedRows) -> None:
        """Rows that have their steps."""
        if not rows.is_evaluation:
            own = rows.steps if isinstance(rows, Rows) else list(compress(rows.steps, rows.trains()))
            if self._where.began_again and len(own) < len(rows) and (behind := rows.trains().index(True)):
                self._out.append(rows.part(0, behind))
                rows = rows.part(behind, len(rows))
            self._count(len(own), own[0], own[-1])
        self._out.append(rows)

    def wait_rows(self, rows: Rows | MixedRows) -> None:
        """As if each came alone: no more than MAX_PENDING wait."""
        start = 0
        while start < len(rows):
            end = min(len(rows), start + MAX_PENDING + 1 - self._num_waiting)
            part = rows.part(start, end)
            if not part.is_evaluation:
                self._where.note_rows()
            self.wait(part, end - start, was_cleared=False)
            start = end

    def wait(self, row: Row | Rows | MixedRows, count: int, *, was_cleared: bool) -> None:
        """A row, or `count` of them, without a step. `was_cleared`: see StdoutParser.line."""
        low = self._where.last_step if self._where.has_bar else None
        self._waiting.append(_Waiting(row, low, was_cleared))
        self._num_waiting += count
        is_numbered = self._logging_steps is not None and low is None
        is_full = self._num_waiting > MAX_PENDING
        if low is None and not (is_numbered or self.pace.learned or self._where.facts or is_full):
            return
        self.settle(None, is_final=is_numbered or is_full)

    def settle(self, high: int | None, *, is_final: bool = False) -> None:
        """Place what waits, in its order. `high`: step of the first bar behind it."""
        while self._waiting:
            waiting = self._waiting[0]
            row = waiting.row
            if not isinstance(row, Row):
                count = self._settle_rows(row, waiting.low, high, is_final=is_final)
                self._num_waiting -= count
                if count < len(row):
                    waiting.row = row.part(count, len(row))
                    return
                self._waiting.popleft()
                continue
            step = self._step_of(row.epoch, row.epoch_slack, waiting.low, high, was_cleared=waiting.was_cleared,
                                 counts=not row.is_evaluation, is_final=is_final)
            if step is None:
                return
            self._waiting.popleft()
            self._num_waiting -= 1
            self.put(row, step)

    def settle_by_summary(self, row: Row) -> None:
        """The closing row of Transformers: its time and its rate give the run's steps."""
        where = self._where
        steps = row.values["train_runtime"] * row.values.get("train_steps_per_second", math.nan)
        waits_blind = bool(self._waiting) and self._waiting[0].low is None
        if waits_blind and self.pace.learned is None and math.isfinite(steps) and row.epoch and steps >= 0.5:
            pace = round(steps) / row.epoch
            moments = [moment for waiting in self._waiting for moment in waiting.row.moments()]
            places = [(epoch * pace, 0.05 + 2 * slack * pace) for epoch, slack in moments]
            if all(abs(place - round(place)) <= max(by, 0.02) for place, by in places):
                self.pace.learn(row.epoch, row.epoch_slack, round(steps))
                where.announced_total = where.announced_total or round(steps)
        self.settle(None, is_final=True)
        if self._ended_within_an_epoch(row):
            self.are_steps_guessed = True
        self.put(row, self._last_train_step or where.last_step or 0)

    def _settle_rows(self, rows: Rows | MixedRows, low: int | None, high: int | None, *, is_final: bool) -> int:
        """How many of them could be placed."""
        trains, before = rows.trains(), self._num_rows
        is_blind = low is None and self._logging_steps is None and not (self.pace.learned or self.pace.announced)
        if is_blind:
            if not is_final:
                return 0
            self.are_steps_guessed = True
            steps = [max(1, number) for number in accumulate(trains, initial=before)][1:]
        else:
            steps = []
            moments = list(rows.moments())
            while len(steps) < len(moments):
                self.pace.steps_of(moments, steps, low=low, high=high)
                self._num_rows = before + sum(trains[: len(steps)])
                if len(steps) == len(moments):
                    break
                epoch, slack = moments[len(steps)]
                step = self._step_of(epoch, slack, low, high, was_cleared=False, counts=trains[len(steps)],
                                     is_final=is_final)
                if step is None or abs(step) >= MAX_STEP:
                    break
                steps.append(step)
        self._num_rows = before
        if steps:
            self.put_rows(rows.part(0, len(steps)).at(steps))
        return len(steps)

    def _step_of(
        self, epoch: float | None, slack: float, low: int | None, high: int | None, *, was_cleared: bool, counts: bool,
        is_final: bool,
    ) -> int | None:
        if epoch is None:
            return self._where.last_step or 0
        by_pace = self.pace.step_of(epoch, slack, low=low, high=high, was_cleared=was_cleared)
        if by_pace is not None:
            return by_pace
        if low is None and self._logging_steps is None:
            if not is_final:
                return None
            self.are_steps_guessed = True
        if low is None:
            number = max(1, self._num_rows + counts)
            if self._logging_steps is None:
                return number
            before = self._where.facts.get("resumed_at", 0) // self._logging_steps
            return self.pace.learn(epoch, slack, (before + number) * self._logging_steps)
        if high is None and not is_final:
            return None
        step = high if was_cleared and high is not None and high >= low else low
        return self.pace.learn(epoch, slack, step)

    def _ended_within_an_epoch(self, row: Row) -> bool:
        """Whether rows were placed by total and epochs, and the run made less than those: a limit on steps rounds
        the number of epochs up, so that an epoch has more steps than that gives."""
        facts = self._where.facts
        total, epochs = facts.get("total"), facts.get("epochs")
        is_blind = not self._where.has_bar and not facts.get("batch") and self._logging_steps is None
        return bool(is_blind and total and epochs and row.epoch and row.epoch + 2 * row.epoch_slack < epochs - 0.02)

    def _count(self, rows: int, first: int, last: int) -> None:
        """Rows of training that are placed."""
        self._num_rows += rows
        if self._where.began_again and self._last_train_step is not None:
            self._note_restart(self._last_train_step, first)
        self._where.began_again = False
        self._last_train_step = last
        if not self._where.has_steps:
            self._where.last_step = last

    def _note_restart(self, before: int, step: int) -> None:
        if step <= before:
            self._out.append(RestartMarker(step))
        if len(self.restarts) < MAX_RESTARTS:
            resumed = self._where.facts.get("resumed_at")
            self.restarts.append(Restart(after_step=before, first_step=step, resumed_from=resumed))
