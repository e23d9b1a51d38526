"""A trainer's output as a metric source: the last resort, where it writes its metrics nowhere else.

Values come from rows (Transformers' dicts, JSON lines, key=value, Keras' closing line of an epoch); bars give the
step, the total and the rate. Transformers prints rows with an epoch and no step: the step is that of the bar around
the row, else of the epoch times the steps of an epoch as far as the output tells them, else the row's number (which
is a problem, "steps-unknown").
"""

from __future__ import annotations

from collections.abc import Iterator
from io import FileIO
from pathlib import Path

from harness.metrics.model import EventColumns, RestartMarker
from harness.metrics.stdout_lines import Row
from harness.metrics.stdout_steps import StdoutParser
from harness.metrics.tail import TailedFile

CHUNK_BYTES = 1 << 20
MAX_LINE_BYTES = 1 << 20
MAX_TAGS = 10_000
_LINE_ENDS = bytes.maketrans(b"\r\b\x00", b"\n\n ")
_BLANK_BYTES = 20
"""A blank line of this length is how tqdm clears its bar before a row, to draw it anew behind it."""
_LOOK_BACK_BYTES = 1024
_SIGNS = (b"{", b"%|", b"step", b"epoch", b"iter", b"it/s", b"***", b"num ex", b"batch size", b"loss:")
"""A line without any of them says nothing that is read here; see read_line."""


class StdoutReader(TailedFile):
    """One log file; see SourceReader for the contract. A line of more than 1 MiB is passed over."""

    kind = "stdout"

    def __init__(self, path: Path, *, first_offset: int = 0, logging_steps: int | None = None) -> None:
        """`first_offset`: nothing before it is read; the line that it falls into does not count.

        `logging_steps`: see StdoutParser.
        """
        super().__init__(path, first_offset)
        self.offset = first_offset
        self.parser = StdoutParser(logging_steps=logging_steps)
        self.tags: list[str] = []
        self._index: dict[str, int] = {}
        self._discarding = False
        self._before = b""
        """The end of what was read, to see how the next line was begun."""

    @property
    def announced_total(self) -> int | None:
        """Steps of the whole run, as the output says."""
        return self.parser.announced_total

    @property
    def last_step(self) -> int | None:
        """Where the output says that the run is; not a count of updates."""
        return self.parser.last_step

    @property
    def rate(self) -> float | None:
        """Steps per second, as the last bar says."""
        return self.parser.rate

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
        rest = b""
        while block := file.read(CHUNK_BYTES):
            data = rest + block
            end = max(data.rfind(b"\n"), data.rfind(b"\r"), data.rfind(b"\b")) + 1
            if end:
                yield from self._gather(self._lines(data[:end]))
                self._consume(data[:end])
            rest = data[end:]
            if len(rest) > MAX_LINE_BYTES or (rest and self._discarding):
                self._report_once("oversized", self.offset, f"a line of more than {MAX_LINE_BYTES} bytes")
                self._discarding = True
                self._consume(rest)
                rest = b""
        if final and rest and not self._discarding:
            cleared = _is_cleared(self._before, len(self._before))
            yield from self._gather(self.parser.line(rest.replace(b"\x00", b" "), was_cleared=cleared))
            self._consume(rest)
        elif rest:
            self.parser.peek(rest)

    def _begins_within_a_line(self, file: FileIO) -> bool:
        """Bytes that were appended to an unfinished line belong to no row."""
        file.seek(self.first_offset - 1)
        return file.read(1) not in (b"\n", b"\r", b"\b")

    def _lines(self, data: bytes) -> Iterator[tuple[int, Row] | RestartMarker]:
        """Rows of whole lines; those that can hold none are not even cut out."""
        data = data.translate(_LINE_ENDS)
        begin = 0
        if self._discarding:
            self._discarding = False
            begin = data.find(b"\n") + 1
        data = self._before + data
        begin += len(self._before)
        for start, end in _worth_reading(data, begin):
            if end - start <= MAX_LINE_BYTES:
                yield from self.parser.line(data[start:end], was_cleared=_is_cleared(data, start))
        self._before = data[-_LOOK_BACK_BYTES:]

    def _gather(self, items: Iterator[tuple[int, Row] | RestartMarker]) -> Iterator[EventColumns | RestartMarker]:
        columns = EventColumns(self.tags, [], [], [], [])
        for item in items:
            if isinstance(item, RestartMarker):
                if columns.tag:
                    yield columns
                    columns = EventColumns(self.tags, [], [], [], [])
                yield item
                continue
            step, row = item
            for tag, value in row.values.items():
                index = self._index.get(tag)
                if index is None:
                    if len(self.tags) >= MAX_TAGS:
                        self._report_once("oversized", self.offset, f"more than {MAX_TAGS} tags")
                        continue
                    index = self._index[tag] = len(self.tags)
                    self.tags.append(tag.encode("utf-8", "backslashreplace").decode())
                columns.tag.append(index)
                columns.step.append(step)
                columns.value.append(value)
                columns.wall_time.append(row.wall_time)
        if columns.tag:
            yield columns


def _worth_reading(data: bytes, begin: int) -> list[tuple[int, int]]:
    """(start, end) of the lines from `begin` on that bear one of the signs, in their order."""
    low = data.lower()
    found: dict[int, int] = {}
    for sign in _SIGNS:
        at = low.find(sign, begin)
        while at >= 0:
            end = low.find(b"\n", at)
            found[low.rfind(b"\n", 0, at) + 1] = end
            at = low.find(sign, end)
    return sorted(found.items())


def _is_cleared(data: bytes, start: int) -> bool:
    """Whether the line before the one at `start` is a blank one, as long as a bar."""
    end = start
    while end and data[end - 1] == 0x0A:
        end -= 1
    blank = data[max(data.rfind(b"\n", 0, end) + 1, end - _LOOK_BACK_BYTES) : end]
    return len(blank) >= _BLANK_BYTES and blank.isspace()


def looks_like_output(path: Path) -> bool:
    """Whether a file without a metric file's name may be a trainer's output: text, by its first bytes."""
    try:
        with path.open("rb") as file:
            head = file.read(4096)
    except OSError:
        return False
    return not head.startswith((b"SQLite format 3", b"PK\x03\x04", b"\x1f\x8b", b"\x80", b"\x89HDF"))
