"""Where a run is by the bars and banners of its output."""

from __future__ import annotations

from dataclasses import dataclass

from harness.metrics.stdout_bars import pace_of
from harness.metrics.stdout_said import Banner, Bar, EpochLine


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


class Where:
    """Told of bars, banners and epochs in the order of the output."""

    def __init__(self) -> None:
        self.last_step: int | None = None
        """The furthest that the current attempt says it is; not a count of updates."""
        self.announced_total: int | None = None
        """Steps of the whole run, as the output says."""
        self.rate: float | None = None
        """Steps per second, as the last bar says."""
        self.num_attempts = 0
        """Starts of training that the output holds."""
        self.began_again = False
        """Whether training starts here, maybe not for the first time; whoever has dealt with it resets it."""
        self.has_steps = False
        """Whether the output counts steps at all, and not epochs alone."""
        self.facts: dict[str, int] = {}
        """What the current attempt announces, by the key of the banner."""
        self._progress = _Progress()

    @property
    def has_bar(self) -> bool:
        """Whether the training's bar was seen."""
        return self._progress.is_seen

    @property
    def plain_total(self) -> int | None:
        """Of the training's bar, where it is one that has no name and counts the run's own steps."""
        progress = self._progress
        is_inner = progress.is_named or progress.offset or progress.outer is not None or progress.epoch is not None
        return None if is_inner or not progress.is_seen or progress.done <= 0 else progress.total

    @property
    def done(self) -> int:
        """Count of the training's bar."""
        return self._progress.done

    def note_step(self, step: int) -> None:
        """The output says itself that it is at this step."""
        self.last_step, self.has_steps = step, True

    def note_rows(self) -> None:
        """Rows of training are printed beside the bar."""
        self._progress.has_rows = True

    def move_to(self, done: int, pace: bytes, unit: bytes) -> None:
        """A later count of the plain bar that is known."""
        self._progress.done = self.last_step = done
        self.announced_total = self._progress.total
        self.rate = pace_of(pace, unit)

    def redraw(self, done: bytes, total: bytes, pace: bytes, unit: bytes) -> bool:
        """Whether the bar is the one that is known, further on: then nothing else can have changed."""
        count = int(done)
        if int(total) != self.plain_total or count < self._progress.done:
            return False
        self.move_to(count, pace, unit)
        return True

    def peek(self, bar: Bar) -> None:
        """A bar on a line that has not ended."""
        if self._is_same_bar(bar):
            self._progress.done = bar.done
            self._note_bar(bar)

    def take_banner(self, banner: Banner) -> None:
        """An announcement."""
        if banner.key == "start":
            self.num_attempts += 1
            self.began_again = True
            self.facts = {"training": 1}
            self._progress = _Progress()
        elif banner.key == "stop":
            self.facts["training"] = 0
        elif self.facts.get("training", 1):
            self.facts[banner.key] = banner.value
        if banner.key == "total":
            self.announced_total = banner.value
        if banner.key == "resumed_at":
            self.last_step = banner.value

    def take_epoch(self, line: EpochLine) -> None:
        """An epoch that is named on a line of its own."""
        self._start_epoch(line.epoch, line.num_epochs, from_zero=line.epoch == 0)

    def take_bar(self, bar: Bar) -> bool:
        """Whether it is the training's."""
        progress = self._progress
        if bar.counts_epochs:
            progress.outer = (bar.done, bar.total)
            return False
        if not self._is_the_trainings(bar):
            return False
        if bar.is_keras and progress.epoch is None:
            return False  # a closing evaluation, or what a bare predict prints
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
        return True

    def _start_epoch(self, epoch: int, num_epochs: int | None, *, from_zero: bool) -> None:
        progress = self._progress
        if progress.epoch_base is None or epoch < progress.epoch_base:
            progress.epoch_base = 0 if from_zero or epoch == 0 else 1
        progress.epoch = epoch
        progress.num_epochs = num_epochs or progress.num_epochs
        if progress.total is not None:
            progress.offset = (epoch - progress.epoch_base) * progress.total

    def _note_bar(self, bar: Bar) -> None:
        progress = self._progress
        self.note_step(progress.offset + progress.done)
        epochs = progress.num_epochs or (progress.outer[1] if progress.outer else None)
        is_inner = progress.epoch is not None or progress.outer is not None
        if is_inner and (bar.epoch is not None or progress.outer is not None or bar.is_keras):
            self.announced_total = bar.total * epochs if epochs else None
        elif not progress.offset:
            self.announced_total = bar.total
        elif self.announced_total is not None and progress.offset + progress.done > self.announced_total:
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
        announced = self.facts.get("total")
        if announced is not None and bar.total == announced:
            return True
        if progress.total is None or (bar.epoch is not None and progress.is_named):
            return announced is None or bar.epoch is not None or not self.facts.get("training")
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
            self.began_again = True
