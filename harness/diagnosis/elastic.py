"""torchrun's failure summary: which worker ended how, as its agent observed it."""

from __future__ import annotations

import re
import signal as signals
from dataclasses import dataclass, field

from harness.diagnosis.model import Place

OPENS = re.compile(r"ChildFailedError|^\s{0,8}\S{1,300} FAILED\s*$")
_FIELD = re.compile(r"^\s{0,12}(time|host|rank|exitcode|error_file|traceback)\s{0,12}: (.{0,2000})$")
_RANK = re.compile(r"(\d{1,6}) \(local_rank: (\d{1,6})\)")
_EXITCODE = re.compile(r"(-?\d{1,4}) \(pid: (\d{1,10})\)")
FAILED = re.compile(r"failed \(exitcode: (-?\d{1,4})\) local_rank: (\d{1,6}) \(pid: (\d{1,10})\)")
MAX_LINES = 2000
MAX_WORKERS = 512


@dataclass(slots=True, kw_only=True)
class Worker:
    """One entry of the summary."""

    is_first_observed: bool
    rank: int | None = None
    pid: int | None = None
    exit_code: int | None = None
    time: str = ""
    message: str = ""
    place: Place | None = None
    """Of the line with the exit code."""


@dataclass(slots=True)
class Summary:
    """A summary that is being read; `feed` says whether the line belonged to it."""

    workers: list[Worker] = field(default_factory=list)
    is_open: bool = True
    _in_root: bool = False
    _lines: int = 0

    def feed(self, place: Place, text: str) -> bool:
        """Take the next line of the stream."""
        self._lines += 1
        if self._lines > MAX_LINES or len(self.workers) >= MAX_WORKERS:
            self.is_open = False
            return False
        bare = text.strip()
        if bare.startswith("Root Cause"):
            self._in_root = True
        elif re.match(r"\[\d{1,6}\]:$", bare):
            self.workers.append(Worker(is_first_observed=self._in_root))
        elif bare.startswith("====") and self._in_root and self.workers:
            self.is_open = False
        elif (found := _FIELD.match(text)) and self.workers:
            self._take(self.workers[-1], place, found[1], found[2])
        else:
            return not bare or bare.startswith(("====", "----", "Failures:", "<NO_OTHER_FAILURES>")) or bool(
                OPENS.search(text))
        return True

    @property
    def rank(self) -> int | None:
        """Of the worker whose entry is being read."""
        return self.workers[-1].rank if self.workers else None

    def _take(self, worker: Worker, place: Place, name: str, value: str) -> None:
        if name == "time":
            worker.time = value.strip()
        elif name == "rank" and (found := _RANK.match(value)):
            worker.rank = int(found[1])
        elif name == "exitcode" and (found := _EXITCODE.match(value)):
            worker.exit_code, worker.pid, worker.place = int(found[1]), int(found[2]), place
        elif name == "traceback":
            worker.message = value.strip()


def exit_text(code: int) -> str:
    """`signal SIGKILL` or `exit code 1`: the words that rules of exits are held against.

    Negative codes are Python's for a signal, codes from 129 on a shell's.
    """
    number = -code if code < 0 else code - 128 if 128 < code <= 192 else 0
    if number:
        try:
            return f"signal {signals.Signals(number).name}"
        except ValueError:
            return f"signal {number}"
    return f"exit code {code}"
