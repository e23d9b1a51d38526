"""A trainer's output as a metric source: the last resort, where it writes its metrics nowhere else.

Values come from rows (Transformers' dicts, JSON lines, key=value, Keras' closing line of an epoch); bars give the
step, the total and the rate. Transformers prints rows with an epoch and no step: the step is that of the bar around
the row, else of the epoch times the steps of an epoch as far as the output tells them, else the row's number (which
is a problem, "steps-unknown").
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from io import FileIO
from itertools import chain, repeat
from pathlib import Path

from harness.metrics.model import EventColumns, RestartMarker
from harness.metrics.stdout_cycles import cycles_in
from harness.metrics.stdout_places import Placed
from harness.metrics.stdout_rows import MixedRows, Rows
from harness.metrics.stdout_scan import LineScan
from harness.metrics.stdout_steps import StdoutParser
from harness.metrics.stdout_stretches import stretches_in
from harness.metrics.tail import TailedFile

CHUNK_BYTES = 1 << 20
MAX_LINE_BYTES = 1 << 20
MAX_TAGS = 10_000
LEARN_BYTES = 16 << 10
"""Rows are read one by one so far, until one of them has a shape."""
FEWEST_ROWS = 3
"""Rows of known shapes in a row that are read together."""
MAX_KNOWN = 1000
"""Sets of tags that are remembered together."""
OTHER_TAGS = "(other)"
"""Under which values beyond MAX_TAGS are kept."""
_LINE_ENDS = bytes.maketrans(b"\r\b\x00", b"\n\n ")


class StdoutReader(TailedFile):
    """One log file; see SourceReader for the contract. A line of more than 1 MiB is passed over."""

    kind = "stdout"

    def __init__(
        self, path: Path, *, first_offset: int = 0, logging_steps: int | None = None, bytes_per_poll: int | None = None
    ) -> None:
        """`first_offset`: nothing before it is read; the line that it falls into does not count.

        `logging_steps`: see StdoutParser. `bytes_per_poll`: a poll that is not the last reads about so much.
        """
        super().__init__(path, first_offset)
        self.offset = first_offset
        self.parser = StdoutParser(logging_steps=logging_steps)
        self.tags: list[str] = []
        self._index: dict[str, int] = {}
        self._known: dict[tuple[str, ...], tuple[int, ...]] = {}
        self.bytes_per_poll = bytes_per_poll
        self._discarding = False
        self._scan = LineScan()

    @property
    def lag_bytes(self) -> int:
        """Bytes that stood in the file at the last poll and are not read so far."""
        return max(0, self._size - self.offset)

    @property
    def announced_total(self) -> int | None:
        """Steps of the whole run, as the output says."""
        return self.parser.where.announced_total

    @property
    def last_step(self) -> int | None:
        """Where the output says that the run is; not a count of updates."""
        return self.parser.where.last_step

    @property
    def rate(self) -> float | None:
        """Steps per second, as the last bar says."""
        return self.parser.where.rate

    def poll(self, *, final: bool = False) -> Iterator[EventColumns | RestartMarker]:
        """See SourceReader; with `final` also the rows whose step never became known."""
        yield from super().poll(final=final)
        if final:
            yield from self._gather(self.parser.finish())
        if self.parser.are_steps_guessed:
            self._report_once(
                "steps-unknown", None, "rows without a step: they are numbered, since no bar or total tells their steps"
            )

    def _read(self, file: FileIO, *, final: bool) -> Iterator[EventColumns | RestartMarker]:
        if self.first_offset and self.offset == self.first_offset:
            self._discarding = self._begins_within_a_line(file)
        rest, block, left = b"", b"", self.bytes_per_poll
        while (final or len(block) in (0, CHUNK_BYTES)) and (block := file.read(CHUNK_BYTES)):
            if left is not None and not final and (left := left - len(block)) < 0:
                self._tried = -1
                return
            data = rest + block
            end = max(data.rfind(b"\n"), data.rfind(b"\r"), data.rfind(b"\b")) + 1
            if end:
                whole = data[:end]
                yield from self._gather(self._lines(whole))
                self._consume(whole)
            rest = data[end:]
            if len(rest) > MAX_LINE_BYTES or (rest and self._discarding):
                self._report_once("oversized", self.offset, f"a line of more than {MAX_LINE_BYTES} bytes")
                self._discarding = True
                self._consume(rest)
                rest = b""
        if final and rest and not self._discarding:
            yield from self._gather(self._lines(rest))
            self._consume(rest)
        elif rest:
            self.parser.peek(rest)

    def _begins_within_a_line(self, file: FileIO) -> bool:
        """Bytes that were appended to an unfinished line belong to no row."""
        file.seek(self.first_offset - 1)
        return file.read(1) not in (b"\n", b"\r", b"\b")

    def _lines(self, data: bytes) -> list[Placed]:
        """Rows of whole lines; those that can hold none are not even looked at."""
        data = data.replace(b"\r\n", b"\n").translate(_LINE_ENDS)
        if self._discarding:
            self._discarding = False
            data = data[data.find(b"\n") + 1 :]
        begin = 0 if self.parser.shapes.are_known else data.find(b"\n", LEARN_BYTES) + 1
        placed, total = self._one_by_one(data[:begin]), self.parser.where.plain_total
        shapes = self.parser.shapes.without_step if total else ()
        for cycles in cycles_in(data, begin, shapes, total or 0, FEWEST_ROWS):
            placed += self._by_stretches(data[begin : cycles.start])
            rows = self.parser.cycles(cycles, was_cleared=self._scan.is_cleared)
            if rows is None:
                rows = self._one_by_one(data[cycles.start : cycles.end])
            else:
                self._scan.is_cleared = cycles.redraws[-1].is_cleared
            placed += rows
            begin = cycles.end
        return placed + self._by_stretches(data[begin:])

    def _by_stretches(self, data: bytes) -> list[Placed]:
        """Rows of known shapes that follow each other are read together."""
        placed: list[Placed] = []
        begin = 0
        for start, end, rows in stretches_in(data, self.parser.shapes.alike, FEWEST_ROWS):
            placed += self._one_by_one(data[begin:start])
            if self._scan.is_cleared:
                first = data.find(b"\n", start) + 1
                placed += self._one_by_one(data[start:first])
                placed += self.parser.rows(rows.part(1, len(rows)))
            else:
                placed += self.parser.rows(rows)
            begin = end
        return placed + self._one_by_one(data[begin:])

    def _one_by_one(self, data: bytes) -> list[Placed]:
        placed: list[Placed] = []
        line = self.parser.line
        for raw, cleared in self._scan.pick(data) if data else ():
            if len(raw) <= MAX_LINE_BYTES and (rows := line(raw, was_cleared=cleared)):
                placed += rows
        return placed

    def _gather(self, items: Iterable[Placed]) -> Iterator[EventColumns | RestartMarker]:
        columns, known, is_behind_rows = self._columns(), self._known.get, False
        for item in items:
            if isinstance(item, RestartMarker):
                if columns.tag:
                    yield columns
                    columns = self._columns()
                yield item
                continue
            if isinstance(item, Rows):
                self._extend(columns, item)
                is_behind_rows = True
                continue
            if isinstance(item, MixedRows):
                self._extend_mixed(columns, item)
                is_behind_rows = False
                continue
            step, row = item
            values = row.values
            indices = known(tuple(values)) or self._indices(tuple(values))
            if is_behind_rows:
                columns.add_rows(len(indices), 1)
                is_behind_rows = False
            else:
                columns.add_one_by_one(len(indices))
            columns.tag.extend(indices)
            columns.step.extend([step] * len(indices))
            columns.value.extend(values.values())
            columns.wall_time.extend([row.wall_time] * len(indices))
        if columns.tag:
            yield columns

    def _columns(self) -> EventColumns:
        return EventColumns(self.tags, [], [], [], [], [])

    def _extend(self, columns: EventColumns, rows: Rows) -> None:
        indices, width = self._known.get(rows.tags) or self._indices(rows.tags), len(rows.tags)
        columns.add_rows(width, len(rows))
        columns.tag.extend(indices * len(rows))
        columns.step.extend(chain.from_iterable(zip(*[rows.steps] * width, strict=True)))
        columns.value.extend(rows.flat())
        walls = rows.wall_times
        columns.wall_time.extend(
            chain.from_iterable(zip(*[walls] * width, strict=True)) if walls else [0.0] * (len(rows) * width))

    def _extend_mixed(self, columns: EventColumns, rows: MixedRows) -> None:
        groups, kinds = rows.groups, rows.kinds
        indices = [self._known.get(one.tags) or self._indices(one.tags) for one in groups]
        each = [len(tags) for tags in indices]
        widths, before = [each[kind] for kind in kinds], len(columns.tag)
        columns.tag.extend(chain.from_iterable([indices[kind] for kind in kinds]))
        count = len(columns.tag) - before
        columns.step.extend(chain.from_iterable(map(repeat, rows.steps, widths)))
        columns.value.extend(chain.from_iterable(rows.in_turns([zip(*one.columns, strict=True) for one in groups])))
        if any(one.wall_times for one in groups):
            walls = rows.in_turns([one.wall_times or repeat(0.0) for one in groups])
            columns.wall_time.extend(chain.from_iterable(map(repeat, walls, widths)))
        else:
            columns.wall_time.extend([0.0] * count)
        columns.add_one_by_one(count)

    def _indices(self, tags: tuple[str, ...]) -> tuple[int, ...]:
        """Where each tag stands in `tags`; beyond MAX_TAGS all are one."""
        found: list[int] = []
        for tag in tags:
            index = self._index.get(tag, -1)
            if index < 0:
                index = len(self.tags)
                if index >= MAX_TAGS:
                    self._report_once("oversized", self.offset, f"more than {MAX_TAGS} tags")
                    tag, index = OTHER_TAGS, self._index.get(OTHER_TAGS, index)
                if index == len(self.tags):
                    self.tags.append(tag.encode("utf-8", "backslashreplace").decode())
                self._index[tag] = index
            found.append(index)
        if len(self._known) < MAX_KNOWN:
            self._known[tags] = tuple(found)
        return tuple(found)


def looks_like_output(path: Path) -> bool:
    """Whether a file without a metric file's name may be a trainer's output: text, by its first bytes."""
    try:
        with path.open("rb") as file:
            head = file.read(4096)
    except OSError:
        return False
    return not head.startswith((b"SQLite format 3", b"PK\x03\x04", b"\x1f\x8b", b"\x80", b"\x89HDF"))
