"""The run's own output as a metric source: train.log while it grows, the last resort.

What stands in it counts only for metrics that no other source holds; harness.record.series sorts that out for stored
points, `add_values` for the last ones. Bars give step, total and rate, and no values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.metrics.stdout import StdoutReader
from harness.metrics.stdout_places import Restart
from harness.metrics.tracked import Latest, Place, Tracked, last_values
from harness.record.meaning import meaning

BYTES_PER_POLL = 32 << 20
"""So much of a log is read at most before the other sources have their turn again."""
FLOODED_BYTES_PER_POLL = 8 << 20
"""And so much while the job prints more than that between two polls: it waits for whoever takes its output, who is
busy reading here. What is left lies in the log, and is read when the job prints less, at the latest when it ends."""
MAX_LAG_BYTES = 256 << 20
"""From here on it is read as fast as ever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintedProgress:
    """Where the output says that the run is. Steps as printed; no count of updates."""

    step: int | None = None
    total: int | None = None
    steps_per_s: float | None = None


class Output:
    """The logs of the run's attempts."""

    def __init__(self) -> None:
        self.logging_steps: int | None = None
        """Steps between two rows, where that is known."""
        self.files: list[Tracked] = []

    def add(self, path: Path, *, attempt: int, run: str = "") -> None:
        """A log that one attempt writes; `run` tells it from others that are written beside it."""
        place = Place(shared=False, certain=True, group=path.parent, area=path.parent, is_new=True)
        reader = StdoutReader(path, bytes_per_poll=BYTES_PER_POLL, logging_steps=self.logging_steps)
        self.files.append(Tracked(reader=reader, run=run, place=place, attempt=attempt))

    def set_flooded(self, taken_bytes: int) -> None:
        """What the job printed since the last poll."""
        reader = self.files[-1].reader if self.files else None
        if not isinstance(reader, StdoutReader):
            return
        is_flooded = taken_bytes > FLOODED_BYTES_PER_POLL and reader.lag_bytes < MAX_LAG_BYTES
        reader.bytes_per_poll = FLOODED_BYTES_PER_POLL if is_flooded else BYTES_PER_POLL

    @property
    def progress(self) -> PrintedProgress:
        """By the log of the last attempt."""
        reader = self.files[-1].reader if self.files else None
        if not isinstance(reader, StdoutReader):
            return PrintedProgress()
        return PrintedProgress(step=reader.last_step, total=reader.announced_total, steps_per_s=reader.rate)

    @property
    def announced_total(self) -> int | None:
        """Steps of the whole run as the last log that says so says."""
        totals = (file.reader.announced_total for file in reversed(self.files) if isinstance(file.reader, StdoutReader))
        return next((total for total in totals if total), None)

    @property
    def restarts(self) -> list[Restart]:
        """Where training began again, of the first log that says so."""
        found = (file.reader.parser.restarts for file in self.files if isinstance(file.reader, StdoutReader))
        return next((restarts for restarts in found if restarts), [])

    def add_values(self, values: dict[tuple[str, str], Latest]) -> dict[tuple[str, str], Latest]:
        """The last values of other sources, and of what is printed those that they do not hold."""
        printed = last_values(self.files)
        known = {meaning(run, tag) for run, tag in values}
        return {**_unknown(printed, known), **values}


def _unknown(
    printed: Mapping[tuple[str, str], Latest], known: set[frozenset[str]]
) -> dict[tuple[str, str], Latest]:
    return {key: latest for key, latest in printed.items() if meaning(*key) not in known}
