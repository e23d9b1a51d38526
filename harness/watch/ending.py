"""How the end of a log says that the run ended: for a run whose exit nobody saw.

A log is no proof of a good end. An error that nothing follows, a kill or a cancellation tell of a bad one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from harness.metrics.stdout_lines import read_line
from harness.metrics.stdout_said import Banner, Bar, Row
from harness.metrics.tracker_end import TrackedRun
from harness.record.redaction import Redactor

TAIL_BYTES = 256 << 10
MAX_LINE_BYTES = 4096
SURVIVED_LINES = 40
"""So many lines without another sign after an error: the run went on."""
_LINE_END = re.compile(rb"[\r\n\b]+")
_PREFIX = rb"^(?:\[(?:rank)?\d+\]:?\s{1,9}|\d{4}-\d\d-\d\d[ T][\d:.,]{5,15}\s{1,9})?"
_EXCEPTION = re.compile(
    _PREFIX + rb"(?:[A-Za-z_]\w{0,60}\.){0,9}[A-Za-z]\w{0,60}(?:Error|Exception|Interrupt)\b"
    rb"(?:$|:(?!\s{0,9}[-+\d.]+\s*$))")
_KILLED = re.compile(
    rb"oom_kill event|Out of memory: Killed process|OOM Killed|^\s{0,9}Killed\s*$|\bexitcode\s{0,9}: -9\b"
    rb"|Signal 9 \(SIGKILL\)|DUE TO NODE FAILURE")
_INTERRUPTED = re.compile(
    rb"(?i)\b(?:caught|received|got) (?:signal )?(?:SIGTERM\b|SIGINT\b|SIGUSR1\b|signal (?:2|10|15)\b)"
    rb"|\*\*\* (?:JOB|STEP) \S{1,40} .{0,80}CANCELLED|DUE TO (?:PREEMPTION|TIME LIMIT)|^KeyboardInterrupt\b")
_COMPLETED = re.compile(
    rb"(?i)^\W{0,9}(?:training|train|run|job)?\s?(?:is |has )?(?:complete[d]?|finished|done|ended)\W{0,9}$"
    rb"|'train_runtime'|\bstage=max_steps_reached\b|`Trainer\.fit` stopped|^Training completed\b")


class EndKind(str, Enum):
    """What the end of a log says."""

    COMPLETED = "completed"
    EXCEPTION = "exception"
    INTERRUPTED = "interrupted"
    KILLED = "killed"
    FAILED = "failed"
    """A tracker's word; logs tell how."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The last sign of an end, with nothing of training after it."""

    kind: EndKind
    line: str

    @property
    def is_bad(self) -> bool:
        """Whether the run did not end by itself."""
        return self.kind is not EndKind.COMPLETED


def read_ending(tail: bytes) -> Ending | None:
    """The sign of an end in the last bytes of a log; None where it says nothing or training goes on after it."""
    found: Ending | None = None
    since = 0
    for line in _LINE_END.split(tail):
        if not line.strip():
            continue
        since += 1
        kind = _sign(line[:MAX_LINE_BYTES])
        if kind is None:
            if found is not None and found.is_bad and (since > SURVIVED_LINES or _trains(line)):
                found = None
        elif _outweighs(kind, found):
            text = line[:500].decode("utf-8", "replace").strip()
            found, since = Ending(kind=kind, line=text), 0
        else:
            since = 0
    return found


def _sign(line: bytes) -> EndKind | None:
    for kind, pattern in ((EndKind.KILLED, _KILLED), (EndKind.INTERRUPTED, _INTERRUPTED),
                          (EndKind.EXCEPTION, _EXCEPTION), (EndKind.COMPLETED, _COMPLETED)):
        if pattern.search(line):
            return kind
    return None


def _outweighs(kind: EndKind, found: Ending | None) -> bool:
    """The first of several errors is nearest to the cause, but that a kernel or a scheduler killed it tells more."""
    if found is None or not found.is_bad or kind is EndKind.COMPLETED:
        return True
    return kind is EndKind.KILLED and found.kind is EndKind.EXCEPTION


def _trains(line: bytes) -> bool:
    """Whether a line is of a loop that goes on: a row of metrics, its bar, or a new start."""
    return len(line) <= MAX_LINE_BYTES and any(
        isinstance(said, (Row, Bar)) or (isinstance(said, Banner) and said.key == "start") for said in read_line(line))


def tracked_ending(runs: Sequence[TrackedRun]) -> Ending | None:
    """The end that a tracker tells, a bad one before others; None while it sees a run of these go on."""
    if not runs or not all(run.has_ended for run in runs):
        return None
    kinds = {"FINISHED": EndKind.COMPLETED, "KILLED": EndKind.INTERRUPTED}
    ends = [Ending(kind=kinds.get(run.status, EndKind.FAILED), line=run.line) for run in runs]
    return next((end for end in ends if end.is_bad), ends[-1])


def ending_of(path: Path, redactor: Redactor) -> Ending | None:
    """`read_ending` of a log file, secrets masked; None where it cannot be read."""
    try:
        with path.open("rb") as handle:
            handle.seek(max(0, handle.seek(0, 2) - TAIL_BYTES))
            found = read_ending(handle.read())
    except OSError:
        return None
    return found and Ending(kind=found.kind, line=redactor.text(found.line))
