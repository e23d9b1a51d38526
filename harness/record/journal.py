"""journal.jsonl: the lifecycle of a run, one JSON object a line, flushed as it happens.

A line is `{"seq", "time", "event", ...}`: seq counts from 0, time is seconds since the epoch by the writer's clock.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from harness.errors import RecordError
from harness.record.files import dump_json, open_regular

JOURNAL_NAME = "journal.jsonl"
MAX_LINE_BYTES = 16 << 20
LATEST_TIME = 253_402_300_800.0
"""The year 10000, which no date can hold."""

Entry = dict[str, Any]


class Journal:
    """The single writer. Every entry goes through `redact` and reaches the kernel before `write` returns."""

    def __init__(self, path: Path, *, redact: Callable[[Any], Any] = lambda value: value) -> None:
        self.path = path
        self.redact = redact
        self.failed = 0
        """Entries that could not be written (disk full); the run goes on, the evidence says so."""
        self._seq = 0
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, event: str, **fields: Any) -> None:
        """Append one entry. A full disk is counted in `failed`, never raised: a run is not broken by its witness."""
        entry = {"seq": self._seq, "time": time.time(), "event": event, **self.redact(fields)}
        data = (dump_json(entry, indent=None) + "\n").encode("utf-8", "backslashreplace")
        self._seq += 1
        try:
            os.write(self._handle, data)
        except OSError:
            self.failed += 1

    def close(self) -> None:
        """Make everything durable."""
        try:
            os.fsync(self._handle)
        except OSError:
            self.failed += 1
        os.close(self._handle)

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_journal(path: Path) -> tuple[list[Entry], list[str]]:
    """Whole entries in order, and what is wrong with the rest (a half line after a kill, damage).

    Raises RecordError when the file is not there or cannot be opened.
    """
    entries: list[Entry] = []
    problems: list[str] = []
    try:
        with os.fdopen(open_regular(path), "rb") as handle:
            for number, line in enumerate(_lines(handle), start=1):
                if not line.strip():
                    continue
                entry = _entry(line)
                if entry is None:
                    problems.append(f"{path.name} line {number} is not a whole entry ({len(line)} bytes)")
                elif odd := _odd(entry):
                    problems.append(f"{path.name} line {number} is left out: {odd}")
                else:
                    entries.append(entry)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise RecordError(f"{path}: cannot be read: {why}") from error
    return entries, problems


def _lines(handle: Any) -> Iterator[bytes]:
    while line := handle.readline(MAX_LINE_BYTES):
        yield line


def _entry(line: bytes) -> Entry | None:
    if not line.endswith(b"\n"):
        return None
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _odd(entry: Entry) -> str:
    """What makes an entry unusable, "" for nothing."""
    if not isinstance(entry.get("event"), str):
        return "its event is not a text"
    moment, seq = entry.get("time"), entry.get("seq", 0)
    if not isinstance(moment, (int, float)) or isinstance(moment, bool) or not 0 <= moment < LATEST_TIME:
        return f"the time of its event {entry['event']!r:.80} is not a time"
    return "" if type(seq) is int else f"the seq of its event {entry['event']!r:.80} is not a whole number"
