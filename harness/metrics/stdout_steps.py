"""Which step a row of a trainer's output belongs to, and where the run is by its bars.

Transformers prints rows with an epoch and no step: the step is that of the bar around the row, else of the epoch
times the steps of an epoch as far as the output tells them, else the row's number.
"""

from __future__ import annotations

import math
import operator
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, compress

from harness.metrics.model import RestartMarker
from harness.metrics.stdout_cycles import Cycles
from harness.metrics.stdout_lines import PLAIN_BAR, Banner, Bar, Row, Said, pace_of, read_line
from harness.metrics.stdout_pace import Pace
from harness.metrics.stdout_rows import MixedRows, Rows
from harness.metrics.stdout_shapes import RowShapes

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


@dataclass(slots=True)
class _Progress:
    """Which bar is the training's, and where it stands."""

    total: int | None = None
    """Of the bar itself: of the run or, in nested loops, of an epoch."""
    done: int = 0
    offset: int = 0
    """Steps of the epochs before."""
    epoch_base: int | None = None
    epoch: int | None = None
    num_epochs: int | None = None
    outer: tuple[int, int] | None = None
    """(done, total) of a bar that counts epochs."""
    has_rows: bool = False
    is_named: bool = False
    is_seen: bool = False


class StdoutParser:
    """Takes pieces of output, gives rows with their steps. Pure: it reads nothing itself."""

    def __init__(self, *, logging_steps: int | None = None) -> None:
        """`logging_steps`: steps between two rows of training metrics, where the command tells it."""
        self.last_step: int | None = None
        """The furthest that the current attempt says it is; not a count of updates."""
        self.announced_total: int | None = None
        """Steps of the whole run, as the output says."""
        self.rate: float | None = None
        """Steps per second, as the last bar says."""
        self.num_attempts = 0
        """Starts of training that the output holds."""
        self.restarts: list[Restart] = []
        self.are_steps_guessed = False
        self._logging_steps = logging_steps
        self.shapes = RowShapes()
        """Of the rows that were read so far."""
        self._out: list[Placed] = []
        self._progress = _Progress()
        self._facts: dict[str, int] = {}
        self._waiting: deque[_Waiting] = deque()
        self._num_waiting = 0
        self._pace = Pace()
        self._restarting = False
        self._last_train_step: int | None = None
        self._num_rows = 0
        self._was_cleared = False
        self._has_steps = False
        """Whether the output counts steps at all, and not epochs alone."""
        self._counts_within: bool | None = None
        self._text_epoch: float | None = None
        self._text_base = 0.0
        self._text_step = 0

    def line(self, raw: bytes, *, was_cleared: bool = False) -> list[Placed]:
        """Rows that can be placed now. `was_cleared`: a bar was wiped away to make room for this line."""
        if raw.find(b"%|") >= 0:
            match = PLAIN_BAR.fullmatch(raw)
            if match is not None and self._redraw(*match.groups()):
                return self._given()
        self._was_cleared = was_cleared
        row = self.shapes.read(raw)
        if row is not None:
            self._take(row)
            return self._given()
        for said in read_line(raw):
            if isinstance(said, Row):
                self.shapes.learn(raw, rows_alone)
            self._take(said)
        return self._given()

    def rows(self, rows: Rows | MixedRows) -> list[Placed]:
        """`line` for lines of known shapes that follow each other, with no bar between them."""
        self._was_cleared = False
        self.shapes.meet(len(rows))
        if isinstance(rows, Rows):
            self._take_rows(rows)
        elif not any(one.steps or one.shape.is_text for one in rows.groups):
            self._wait_rows(rows)
        elif all(one.steps for one in rows.groups):
            self._take_stepped(rows)
        else:
            for one in rows.alone():
                self._take_rows(one)
        return self._given()

    def _take_rows(self, rows: Rows) -> None:
        if not rows.shape.is_text:
            self._note_row(rows)
        if rows.steps:
            self.last_step, self._has_steps = rows.steps[-1], True
            self._emit_rows(rows.complete())
        else:
            self._wait_rows(rows)

    def _take_stepped(self, rows: MixedRows) -> None:
        for one in rows.groups:
            if not one.shape.is_text:
                self._note_row(one)
        steps = rows.in_turns([one.steps for one in rows.groups])
        self.last_step, self._has_steps = steps[-1], True
        groups = tuple(one.complete() for one in rows.groups)
        self._emit_rows(MixedRows(kinds=rows.kinds, groups=groups, steps=steps))

    @property
    def plain_total(self) -> int | None:
        """Of the training's bar, where it is one that has no name and counts the run's own steps."""
        progress = self._progress
        is_inner = progress.is_named or progress.offset or progress.outer is not None or progress.epoch is not None
        return None if is_inner or not progress.is_seen or progress.done <= 0 else progress.total

    def cycles(self, cycles: Cycles, *, was_cleared: bool) -> list[Placed] | None:
        """`line` for rows and the bars between them; None where they have to be taken one by one. `was_cleared`: see
        there, for the first of them."""
        redraws, progress, before = cycles.redraws, self._progress, self._pace.learned
        highs, lasts = [one.first for one in redraws], [one.last for one in redraws]
        if self._waiting or self.last_step is None or self.plain_total != cycles.total or not _is_rising(
            [progress.done, *lasts], highs
        ):
            return None
        rows = cycles.rows
        cleared = [was_cleared, *(one.is_cleared for one in redraws)]
        steps = self._pace.steps_around(rows.moments(), [self.last_step, *lasts], highs, cleared)
        if max(steps) >= MAX_STEP or min(steps) <= -MAX_STEP:
            self._pace.learned = before
            return None
        self._note_row(rows)
        self._emit_rows(rows.at(steps))
        progress.done = self.last_step = lasts[-1]
        self.announced_total = progress.total
        self.rate = pace_of(redraws[-1].pace, redraws[-1].unit)
        self.shapes.meet(len(rows))
        return self._given()

    def _redraw(self, done: bytes, total: bytes, pace: bytes, unit: bytes) -> bool:
        """Whether the bar is the one that is known, further on: then nothing else can have changed."""
        progress, count = self._progress, int(done)
        if int(total) != self.plain_total or count < progress.done:
            return False
        progress.done = self.last_step = count
        self.announced_total = progress.total
        self.rate = pace_of(pace, unit)
        if self._waiting:
            self._settle(count)
        return True

    def _given(self) -> list[Placed]:
        out = self._out
        if out:
            self._out = []
        return out

    def peek(self, raw: bytes) -> None:
        """An unfinished line: a whole bar in it says where the run is. It comes again once it is finished."""
        if len(raw) <= 4096 and b"]" in raw and b"%|" in raw:
            for said in read_line(raw):
                if isinstance(said, Bar) and self._is_same_bar(said):
                    self._progress.done = said.done
                    self._note_bar(said)

    def finish(self) -> list[Placed]:
        """The rows whose step never became known."""
        self._settle(None, is_final=True)
        return self._given()

    # -- bars and banners

    def _take(self, said: Said) -> None:
        if isinstance(said, Row):
            if said.is_text:
                self._take_text(said)
            else:
                self._take_row(said)
        elif isinstance(said, Bar):
            self._take_bar(said)
        elif isinstance(said, Banner):
            self._take_banner(said)
        else:
            self._start_epoch(said.epoch, said.num_epochs, from_zero=said.epoch == 0)

    def _take_banner(self, banner: Banner) -> None:
        if banner.key == "start":
            self._settle(None, is_final=True)
            self.num_attempts += 1
            self._restarting = self._last_train_step is not None
            self._facts = {"training": 1}
            self._num_rows = 0
            self._progress = _Progress()
        elif banner.key == "stop":
            self._facts["training"] = 0
        elif self._facts.get("training", 1):
            self._facts[banner.key] = banner.value
        self._pace.announce(self._facts)
        if banner.key == "total":
            self.announced_total = banner.value
        if banner.key == "resumed_at":
            self.last_step = banner.value

    def _start_epoch(self, epoch: int, num_epochs: int | None, *, from_zero: bool) -> None:
        progress = self._progress
        if progress.epoch_base is None or epoch < progress.epoch_base:
            progress.epoch_base = 0 if from_zero or epoch == 0 else 1
        progress.epoch = epoch
        progress.num_epochs = num_epochs or progress.num_epochs
        if progress.total is not None:
            progress.offset = (epoch - progress.epoch_base) * progress.total

    def _take_bar(self, bar: Bar) -> None:
        progress = self._progress
        if bar.counts_epochs:
            progress.outer = (bar.done, bar.total)
            return
        if not self._is_the_trainings(bar):
            return
        if bar.is_keras and progress.epoch is None:
            return  # a closing evaluation, or what a bare predict prints
        if progress.is_seen and bar.done < progress.done and bar.epoch in (None, progress.epoch):
            self._went_back(bar)
        progress.total, progress.done = bar.total, bar.done
        progress.is_seen, progress.is_named = True, bar.named
        if bar.epoch is not None:
            self._start_epoch(bar.epoch, bar.num_epochs, from_zero=bar.from_zero)
        elif progress.outer is not None:
            progress.offset = progress.outer[0] * bar.total
        elif progress.epoch is not None and progress.epoch_base is not None and bar.is_keras:
            progress.offset = (progress.epoch - progress.epoch_base) * bar.total
        self._note_bar(bar)
        if not self.num_attempts:
            self.num_attempts = 1
        self._settle(self.last_step)
        if bar.values:
            progress.has_rows = True
            self._emit(Row(values=bar.values), self.last_step or 0)

    def _note_bar(self, bar: Bar) -> None:
        progress = self._progress
        self.last_step, self._has_steps = progress.offset + progress.done, True
        epochs = progress.num_epochs or (progress.outer[1] if progress.outer else None)
        is_inner = progress.epoch is not None or progress.outer is not None
        if is_inner and (bar.epoch is not None or progress.outer is not None or bar.is_keras):
            self.announced_total = bar.total * epochs if epochs else None
        elif not progress.offset:
            self.announced_total = bar.total
        elif self.announced_total is not None and self.last_step > self.announced_total:
            self.announced_total = None
        if bar.rate is not None and bar.done:
            self.rate = bar.rate

    def _is_same_bar(self, bar: Bar) -> bool:
        progress = self._progress
        return (
            progress.is_seen and bar.total == progress.total and bar.named == progress.is_named
            and bar.epoch == (progress.epoch if bar.epoch is not None else None) and bar.done >= progress.done
        )

    def _is_the_trainings(self, bar: Bar) -> bool:
        """An evaluation's bar stands inside the training's, or behind it, and has another total."""
        progress = self._progress
        announced = self._facts.get("total")
        if announced is not None and bar.total == announced:
            return True
        if progress.total is None or (bar.epoch is not None and progress.is_named):
            return announced is None or bar.epoch is not None or not self._facts.get("training")
        if bar.total == progress.total and (bar.named == progress.is_named or bar.is_keras):
            return True
        return progress.done >= progress.total and not progress.has_rows and not bar.is_keras

    def _went_back(self, bar: Bar) -> None:
        """A bar that begins again: the next epoch's, if it had ended, else another attempt."""
        progress = self._progress
        if bar.total != progress.total:
            progress.offset = 0
        elif progress.outer is not None or bar.is_keras:
            return
        elif progress.total is not None and progress.done >= progress.total:
            # A bar that names its epoch is reset before the name changes (Lightning).
            progress.offset += progress.total if bar.epoch is None else 0
        elif bar.done == 0:
            self.num_attempts += 1
            self._restarting = self._last_train_step is not None

    # -- rows

    def _take_text(self, row: Row) -> None:
        step = row.step
        if step is None:
            if row.epoch is None or not row.values:
                return
            known = self.last_step if self._has_steps else None
            self._emit(row, int(row.epoch) if known is None else known)
            return
        if row.step_total is not None and row.epoch is not None:
            step = self._within_epoch(row.epoch, step, row.step_total, row.num_epochs)
        elif row.step_total is not None:
            self.announced_total = row.step_total
        self.last_step, self._has_steps = step, True
        if row.values and row.epoch is not None and row.step_total is None:
            # The step is the run's, so that the epoch beside it tells how long epochs are.
            row.values = {"epoch": row.epoch, **row.values}
        if row.values:
            self._emit(row, step)

    def _within_epoch(self, epoch: float, step: int, total: int, num_epochs: int | None) -> int:
        """`Epoch [2/10], Step [100/5000]`: within the epoch if it began again with the epoch, else of the run."""
        if self._text_epoch is None:
            self._text_base = 0.0 if epoch == 0 else 1.0
        elif epoch > self._text_epoch and self._counts_within is None:
            self._counts_within = step <= self._text_step
        self._text_epoch, self._text_step = epoch, step
        if self._counts_within is False:
            self.announced_total = total
            return step
        self.announced_total = total * num_epochs if num_epochs else None
        return int(epoch - self._text_base) * total + step

    def _note_row(self, row: Row | Rows | MixedRows) -> None:
        if not row.is_evaluation:
            self._progress.has_rows = True

    def _take_row(self, row: Row) -> None:
        self._note_row(row)
        if row.step is not None:
            self.last_step, self._has_steps = row.step, True
            self._emit(row, row.step)
            return
        if row.is_summary:
            self._settle_by_summary(row)
            return
        self._wait(row, 1)

    def _wait_rows(self, rows: Rows | MixedRows) -> None:
        """As if each came alone: no more than MAX_PENDING wait."""
        start = 0
        while start < len(rows):
            end = min(len(rows), start + MAX_PENDING + 1 - self._num_waiting)
            part = rows.part(start, end)
            self._note_row(part)
            self._wait(part, end - start)
            start = end

    def _wait(self, row: Row | Rows | MixedRows, count: int) -> None:
        low = self.last_step if self._progress.is_seen else None
        self._waiting.append(_Waiting(row, low, self._was_cleared))
        self._num_waiting += count
        is_numbered = self._logging_steps is not None and low is None
        is_full = self._num_waiting > MAX_PENDING
        if low is None and not (is_numbered or self._pace.learned or self._facts or is_full):
            return
        self._settle(None, is_final=is_numbered or is_full)

    def _settle(self, high: int | None, *, is_final: bool = False) -> None:
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
            self._emit(row, step)

    def _settle_rows(self, rows: Rows | MixedRows, low: int | None, high: int | None, *, is_final: bool) -> int:
        """How many of them could be placed."""
        trains, before = rows.trains(), self._num_rows
        is_blind = low is None and self._logging_steps is None and not (self._pace.learned or self._pace.announced)
        if is_blind:
            if not is_final:
                return 0
            self.are_steps_guessed = True
            steps = [max(1, number) for number in accumulate(trains, initial=before)][1:]
        else:
            steps = []
            moments = list(rows.moments())
            while len(steps) < len(moments):
                self._pace.steps_of(moments, steps, low=low, high=high)
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
            self._emit_rows(rows.part(0, len(steps)).at(steps))
        return len(steps)

    def _step_of(
        self, epoch: float | None, slack: float, low: int | None, high: int | None, *, was_cleared: bool, counts: bool,
        is_final: bool,
    ) -> int | None:
        if epoch is None:
            return self.last_step or 0
        by_pace = self._pace.step_of(epoch, slack, low=low, high=high, was_cleared=was_cleared)
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
            before = self._facts.get("resumed_at", 0) // self._logging_steps
            return self._pace.learn(epoch, slack, (before + number) * self._logging_steps)
        if high is None and not is_final:
            return None
        step = high if was_cleared and high is not None and high >= low else low
        return self._pace.learn(epoch, slack, step)

    def _settle_by_summary(self, row: Row) -> None:
        """The closing row of Transformers: its time and its rate give the run's steps."""
        steps = row.values["train_runtime"] * row.values.get("train_steps_per_second", math.nan)
        waits_blind = bool(self._waiting) and self._waiting[0].low is None
        if waits_blind and self._pace.learned is None and math.isfinite(steps) and row.epoch and steps >= 0.5:
            pace = round(steps) / row.epoch
            moments = [moment for waiting in self._waiting for moment in waiting.row.moments()]
            places = [(epoch * pace, 0.05 + 2 * slack * pace) for epoch, slack in moments]
            if all(abs(place - round(place)) <= max(by, 0.02) for place, by in places):
                self._pace.learn(row.epoch, row.epoch_slack, round(steps))
                self.announced_total = self.announced_total or round(steps)
        self._settle(None, is_final=True)
        if self._ended_within_an_epoch(row):
            self.are_steps_guessed = True
        self._emit(row, self._last_train_step or self.last_step or 0)

    def _ended_within_an_epoch(self, row: Row) -> bool:
        """Whether rows were placed by total and epochs, and the run made less than those: a limit on steps rounds
        the number of epochs up, so that an epoch has more steps than that gives."""
        total, epochs = self._facts.get("total"), self._facts.get("epochs")
        is_blind = not self._progress.is_seen and not self._facts.get("batch") and self._logging_steps is None
        return bool(is_blind and total and epochs and row.epoch and row.epoch + 2 * row.epoch_slack < epochs - 0.02)

    def _emit(self, row: Row, step: int) -> None:
        if abs(step) >= MAX_STEP:
            return
        if not row.is_evaluation and not row.is_summary:
            self._count(1, step, step)
        self._out.append((step, row))

    def _emit_rows(self, rows: Rows | MixedRows) -> None:
        if not rows.is_evaluation:
            own = rows.steps if isinstance(rows, Rows) else list(compress(rows.steps, rows.trains()))
            if self._restarting and len(own) < len(rows) and (behind := rows.trains().index(True)):
                self._out.append(rows.part(0, behind))
                rows = rows.part(behind, len(rows))
            self._count(len(own), own[0], own[-1])
        self._out.append(rows)

    def _count(self, rows: int, first: int, last: int) -> None:
        """Rows of training that are placed."""
        self._num_rows += rows
        if self._restarting and self._last_train_step is not None:
            self._note_restart(self._last_train_step, first)
        self._restarting = False
        self._last_train_step = last
        if not self._has_steps:
            self.last_step = last

    def _note_restart(self, before: int, step: int) -> None:
        if step <= before:
            self._out.append(RestartMarker(step))
        if len(self.restarts) < MAX_RESTARTS:
            resumed = self._facts.get("resumed_at")
            self.restarts.append(Restart(after_step=before, first_step=step, resumed_from=resumed))


def _is_rising(before: Sequence[int], bars: Sequence[int]) -> bool:
    """Whether no bar stands further back than the last one before it."""
    return all(map(operator.le, before, bars))


def rows_alone(raw: bytes) -> list[Row] | None:
    """The rows of a line that says nothing else."""
    said = read_line(raw)
    rows = [one for one in said if isinstance(one, Row)]
    return rows if len(rows) == len(said) else None
