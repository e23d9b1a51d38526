"""Which step a row of a trainer's output belongs to, and where the run is by its bars.

Transformers prints rows with an epoch and no step: the step is that of the bar around the row, else of the epoch
times the steps of an epoch as far as the output tells them, else the row's number.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

from harness.metrics.model import RestartMarker
from harness.metrics.stdout_lines import PLAIN_BAR, Banner, Bar, Row, Said, pace_of, read_line
from harness.metrics.stdout_shapes import RowShapes

MAX_STEP = 1 << 62
"""A step beyond it is a number that happens to stand there."""
MAX_RESTARTS = 1000
"""So many are remembered."""
MAX_PENDING = 10_000
"""So many rows may wait for their step to become known."""
_UNIQUE = 0.9
Placed = tuple[int, Row] | RestartMarker
"""A row with its step, or the word that training goes back."""


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
    row: Row
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
        self.latest: dict[str, float] = {}
        """The last value of each tag, also of rows whose step is not known yet."""
        self.num_attempts = 0
        """Starts of training that the output holds."""
        self.restarts: list[Restart] = []
        self.are_steps_guessed = False
        self._logging_steps = logging_steps
        self._shapes = RowShapes()
        self._out: list[Placed] = []
        self._progress = _Progress()
        self._facts: dict[str, int] = {}
        self._waiting: deque[_Waiting] = deque()
        self._pace: tuple[float, float] | None = None
        """Lowest and highest number of steps in an epoch that agree with what was seen."""
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
        row = self._shapes.read(raw) if raw[:1] == b"{" else None
        if row is not None:
            self._take_row(row)
            return self._given()
        for said in read_line(raw):
            if isinstance(said, Row) and not said.is_text:
                self._shapes.learn(raw, said)
            self._take(said)
        return self._given()

    def _redraw(self, done: bytes, total: bytes, pace: bytes, unit: bytes) -> bool:
        """Whether the bar is the one that is known, further on: then nothing else can have changed."""
        progress, count = self._progress, int(done)
        if progress.is_named or progress.offset or progress.outer is not None or progress.epoch is not None:
            return False
        if not (progress.is_seen and int(total) == progress.total and count >= progress.done > 0):
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
            row = replace(row, values={"epoch": row.epoch, **row.values})
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

    def _take_row(self, row: Row) -> None:
        self.latest.update(row.values)
        if not row.is_evaluation:
            self._progress.has_rows = True
        if row.step is not None:
            self.last_step, self._has_steps = row.step, True
            self._emit(row, row.step)
            return
        if row.is_summary:
            self._settle_by_summary(row)
            return
        low = self.last_step if self._progress.is_seen else None
        self._waiting.append(_Waiting(row, low, self._was_cleared))
        is_numbered = self._logging_steps is not None and low is None
        if low is None and not (is_numbered or self._pace or self._facts) and len(self._waiting) <= MAX_PENDING:
            return
        self._settle(None, is_final=is_numbered or len(self._waiting) > MAX_PENDING)

    def _settle(self, high: int | None, *, is_final: bool = False) -> None:
        """Place what waits, in its order. `high`: step of the first bar behind it."""
        while self._waiting:
            waiting = self._waiting[0]
            step = self._step_of(waiting, high, is_final=is_final)
            if step is None:
                return
            self._waiting.popleft()
            self._emit(waiting.row, step)

    def _step_of(self, waiting: _Waiting, high: int | None, *, is_final: bool) -> int | None:
        epoch = waiting.row.epoch
        if epoch is None:
            return self.last_step or 0
        by_pace = self._by_pace(waiting, high)
        if by_pace is not None:
            return by_pace
        if waiting.low is None and self._logging_steps is None:
            if not is_final:
                return None
            self.are_steps_guessed = True
        if waiting.low is None:
            number = max(1, self._num_rows + (not waiting.row.is_evaluation))
            if self._logging_steps is None:
                return number
            before = self._facts.get("resumed_at", 0) // self._logging_steps
            return self._learn(waiting.row, (before + number) * self._logging_steps)
        if high is None and not is_final:
            return None
        step = high if waiting.was_cleared and high is not None and high >= waiting.low else waiting.low
        return self._learn(waiting.row, step)

    def _by_pace(self, waiting: _Waiting, high: int | None) -> int | None:
        """Epoch times steps of an epoch, where that leaves one step only and no bar contradicts."""
        row = waiting.row
        assert row.epoch is not None
        for pace in self._paces():
            low, top = (row.epoch - row.epoch_slack) * pace[0], (row.epoch + row.epoch_slack) * pace[1]
            step = round(row.epoch * (pace[0] + pace[1]) / 2)
            is_whole = abs(row.epoch * (pace[0] + pace[1]) / 2 - step) < 0.2
            if top - low > 2 * _UNIQUE or not (low - 0.1 <= step <= top + 0.1) or not is_whole:
                continue
            if waiting.low is not None and step < waiting.low:
                continue
            if waiting.low is not None and step > waiting.low and not waiting.was_cleared and self._pace is None:
                continue
            if waiting.low is not None and high is not None and step > max(high, waiting.low):
                continue
            return self._learn(row, step)
        return None

    def _paces(self) -> Iterator[tuple[float, float]]:
        if self._pace is not None:
            yield self._pace
        facts = self._facts
        if facts.get("total") and facts.get("epochs"):
            yield facts["total"] / facts["epochs"], facts["total"] / facts["epochs"]
        if facts.get("examples") and facts.get("batch"):
            pace = float(math.ceil(facts["examples"] / facts["batch"]))
            yield pace, pace

    def _learn(self, row: Row, step: int) -> int:
        """Narrow the steps of an epoch by a row whose step is known."""
        if row.epoch is None or row.epoch - row.epoch_slack <= 0 or step <= 0:
            return step
        low, high = step / (row.epoch + row.epoch_slack), step / (row.epoch - row.epoch_slack)
        if self._pace is not None and low <= self._pace[1] and high >= self._pace[0]:
            low, high = max(low, self._pace[0]), min(high, self._pace[1])
        self._pace = low, high
        return step

    def _settle_by_summary(self, row: Row) -> None:
        """The closing row of Transformers: its time and its rate give the run's steps."""
        steps = row.values["train_runtime"] * row.values.get("train_steps_per_second", math.nan)
        waits_blind = bool(self._waiting) and self._waiting[0].low is None
        if waits_blind and self._pace is None and math.isfinite(steps) and row.epoch and steps >= 0.5:
            pace = round(steps) / row.epoch
            places = [waiting.row.epoch * pace for waiting in self._waiting if waiting.row.epoch is not None]
            slack = [0.05 + 2 * waiting.row.epoch_slack * pace for waiting in self._waiting]
            if all(abs(place - round(place)) <= max(by, 0.02) for place, by in zip(places, slack, strict=False)):
                self._learn(row, round(steps))
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
        self.latest.update(row.values)
        if abs(step) >= MAX_STEP:
            return
        if not row.is_evaluation and not row.is_summary:
            self._num_rows += 1
            if self._restarting and self._last_train_step is not None:
                self._note_restart(self._last_train_step, step)
            self._restarting = False
            self._last_train_step = step
            if not self._has_steps:
                self.last_step = step
        self._out.append((step, row))

    def _note_restart(self, before: int, step: int) -> None:
        if step <= before:
            self._out.append(RestartMarker(step))
        if len(self.restarts) < MAX_RESTARTS:
            resumed = self._facts.get("resumed_at")
            self.restarts.append(Restart(after_step=before, first_step=step, resumed_from=resumed))
