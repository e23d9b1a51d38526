"""Which step a row of a trainer's output belongs to, and where the run is by its bars.

Transformers prints rows with an epoch and no step: the step is that of the bar around the row, else of the epoch
times the steps of an epoch as far as the output tells them, else the row's number.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence

from harness.metrics.stdout_bars import PLAIN_BAR
from harness.metrics.stdout_cycles import Cycles
from harness.metrics.stdout_lines import read_line
from harness.metrics.stdout_places import MAX_STEP, Placed, Places, Restart
from harness.metrics.stdout_rows import MixedRows, Rows
from harness.metrics.stdout_said import Banner, Bar, Row, Said
from harness.metrics.stdout_shapes import RowShapes
from harness.metrics.stdout_where import Where


class StdoutParser:
    """Takes pieces of output, gives rows with their steps. Pure: it reads nothing itself."""

    def __init__(self, *, logging_steps: int | None = None) -> None:
        """`logging_steps`: steps between two rows of training metrics, where the command tells it."""
        self.where = Where()
        self.shapes = RowShapes()
        """Of the rows that were read so far."""
        self._places = Places(self.where, logging_steps)
        self._was_cleared = False
        self._counts_within: bool | None = None
        self._text_epoch: float | None = None
        self._text_base = 0.0
        self._text_step = 0

    @property
    def restarts(self) -> list[Restart]:
        """Of training within this output."""
        return self._places.restarts

    @property
    def are_steps_guessed(self) -> bool:
        """Whether rows were numbered because nothing told their steps."""
        return self._places.are_steps_guessed

    def line(self, raw: bytes, *, was_cleared: bool = False) -> list[Placed]:
        """Rows that can be placed now. `was_cleared`: a bar was wiped away to make room for this line."""
        if raw.find(b"%|") >= 0:
            match = PLAIN_BAR.fullmatch(raw)
            if match is not None and self.where.redraw(*match.groups()):
                if self._places.has_waiting:
                    self._places.settle(self.where.last_step)
                return self._places.given()
        self._was_cleared = was_cleared
        row = self.shapes.read(raw)
        if row is not None:
            self._take(row)
            return self._places.given()
        for said in read_line(raw):
            if isinstance(said, Row):
                self.shapes.learn(raw, rows_alone)
            self._take(said)
        return self._places.given()

    def rows(self, rows: Rows | MixedRows) -> list[Placed]:
        """`line` for lines of known shapes that follow each other, with no bar between them."""
        self._was_cleared = False
        self.shapes.meet(len(rows))
        if isinstance(rows, Rows):
            self._take_rows(rows)
        elif not any(one.steps or one.shape.is_text for one in rows.groups):
            self._places.wait_rows(rows)
        elif all(one.steps for one in rows.groups):
            self._take_stepped(rows)
        else:
            for one in rows.alone():
                self._take_rows(one)
        return self._places.given()

    def cycles(self, cycles: Cycles, *, was_cleared: bool) -> list[Placed] | None:
        """`line` for rows and the bars between them; None where they have to be taken one by one. `was_cleared`: see
        there, for the first of them."""
        redraws, where, pace, rows = cycles.redraws, self.where, self._places.pace, cycles.rows
        before = pace.learned
        highs, lasts = [one.first for one in redraws], [one.last for one in redraws]
        is_known = where.last_step is not None and where.plain_total == cycles.total
        if self._places.has_waiting or not is_known or not _is_rising([where.done, *lasts], highs):
            return None
        cleared = [was_cleared, *(one.is_cleared for one in redraws)]
        steps = pace.steps_around(rows.moments(), [where.last_step or 0, *lasts], highs, cleared)
        if max(steps) >= MAX_STEP or min(steps) <= -MAX_STEP:
            pace.learned = before
            return None
        self._note_row(rows)
        self._places.put_rows(rows.at(steps))
        where.move_to(lasts[-1], redraws[-1].pace, redraws[-1].unit)
        self.shapes.meet(len(rows))
        return self._places.given()

    def peek(self, raw: bytes) -> None:
        """An unfinished line: a whole bar in it says where the run is. It comes again once it is finished."""
        if len(raw) <= 4096 and b"]" in raw and b"%|" in raw:
            for said in read_line(raw):
                if isinstance(said, Bar):
                    self.where.peek(said)

    def finish(self) -> list[Placed]:
        """The rows whose step never became known."""
        self._places.settle(None, is_final=True)
        return self._places.given()

    def _take(self, said: Said) -> None:
        if isinstance(said, Row):
            if said.is_text:
                self._take_text(said)
            else:
                self._take_row(said)
        elif isinstance(said, Bar):
            self._take_bar(said)
        elif isinstance(said, Banner):
            if said.key == "start":
                self._places.begin()
            self.where.take_banner(said)
            self._places.pace.announce(self.where.facts)
        else:
            self.where.take_epoch(said)

    def _take_bar(self, bar: Bar) -> None:
        if not self.where.take_bar(bar):
            return
        self._places.settle(self.where.last_step)
        if bar.values:
            self.where.note_rows()
            self._places.put(Row(values=bar.values), self.where.last_step or 0)

    def _take_row(self, row: Row) -> None:
        self._note_row(row)
        if row.step is not None:
            self.where.note_step(row.step)
            self._places.put(row, row.step)
        elif row.is_summary:
            self._places.settle_by_summary(row)
        else:
            self._places.wait(row, 1, was_cleared=self._was_cleared)

    def _take_rows(self, rows: Rows) -> None:
        if not rows.shape.is_text:
            self._note_row(rows)
        if rows.steps:
            self.where.note_step(rows.steps[-1])
            self._places.put_rows(rows.complete())
        else:
            self._places.wait_rows(rows)

    def _take_stepped(self, rows: MixedRows) -> None:
        for one in rows.groups:
            if not one.shape.is_text:
                self._note_row(one)
        steps = rows.in_turns([one.steps for one in rows.groups])
        self.where.note_step(steps[-1])
        groups = tuple(one.complete() for one in rows.groups)
        self._places.put_rows(MixedRows(kinds=rows.kinds, groups=groups, steps=steps))

    def _note_row(self, row: Row | Rows | MixedRows) -> None:
        if not row.is_evaluation:
            self.where.note_rows()

    def _take_text(self, row: Row) -> None:
        step, where = row.step, self.where
        if step is None:
            if row.epoch is None or not row.values:
                return
            known = where.last_step if where.has_steps else None
            self._places.put(row, int(row.epoch) if known is None else known)
            return
        if row.step_total is not None and row.epoch is not None:
            step = self._within_epoch(row.epoch, step, row.step_total, row.num_epochs)
        elif row.step_total is not None:
            where.announced_total = row.step_total
        where.note_step(step)
        if row.values and row.epoch is not None and row.step_total is None:
            # The step is the run's, so that the epoch beside it tells how long epochs are.
            row.values = {"epoch": row.epoch, **row.values}
        if row.values:
            self._places.put(row, step)

    def _within_epoch(self, epoch: float, step: int, total: int, num_epochs: int | None) -> int:
        """`Epoch [2/10], Step [100/5000]`: within the epoch if it began again with the epoch, else of the run."""
        if self._text_epoch is None:
            self._text_base = 0.0 if epoch == 0 else 1.0
        elif epoch > self._text_epoch and self._counts_within is None:
            self._counts_within = step <= self._text_step
        self._text_epoch, self._text_step = epoch, step
        if self._counts_within is False:
            self.where.announced_total = total
            return step
        self.where.announced_total = total * num_epochs if num_epochs else None
        return int(epoch - self._text_base) * total + step


def _is_rising(before: Sequence[int], bars: Sequence[int]) -> bool:
    """Whether no bar stands further back than the last one before it."""
    return all(map(operator.le, before, bars))


def rows_alone(raw: bytes) -> list[Row] | None:
    """The rows of a line that says nothing else."""
    said = read_line(raw)
    rows = [one for one in said if isinstance(one, Row)]
    return rows if len(rows) == len(said) else None
