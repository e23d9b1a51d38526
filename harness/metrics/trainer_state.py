"""trainer_state.json of Transformers' Trainer: its log_history, and its own count of steps.

The file is rewritten whole, beside every checkpoint and (`save_state()`) at the end; each holds the history so
far, so that the files below one output directory are read as one history in which a row counts once. It is no
strict JSON: NaN and Infinity stand bare in it. A resumed run begins with the rows of the state that it resumed
from; those are inherited and do not count.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.metrics.jsonl import row_metrics
from harness.metrics.model import Counter, EventColumns, RestartMarker, SourceProblem

FILE_NAME = "trainer_state.json"
MAX_BYTES = 256 << 20
"""A history of a million rows has about this size; a larger file is reported, not read."""
_SUMMARY_KEY = "train_runtime"
_CHECKPOINT_PREFIX = "checkpoint-"


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """One trainer_state.json."""

    step: int
    """global_step: completed steps, counted from 1, those before a resume included."""
    planned: int | None
    """max_steps as the trainer resolved it."""
    epoch: float | None
    planned_epochs: float | None
    rows: tuple[str, ...]
    """log_history, each row as canonical text."""
    patience: int | None = None
    """Of its EarlyStoppingCallback, None without one; the next is what it has waited, both in evaluations."""
    waited: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Earlier:
    """A state that was there before the launch."""

    path: Path
    mark: tuple[int, int, int]
    state: State

    def was_rewritten(self) -> bool:
        """Whether another state lies there now; one that was deleted was not rewritten."""
        mark = _mark(self.path)
        return mark is not None and mark != self.mark


@dataclass(slots=True)
class History:
    """What the states below one output directory have given so far, and what lay there before the launch."""

    earlier: dict[Path, _Earlier] = field(default_factory=dict)
    counted: set[str] = field(default_factory=set)
    """Rows of this run that were given already."""
    named: Path | None = None
    """The state of the checkpoint that the command resumes from, where it names one."""

    def remember(self, path: Path, *, named: bool = False) -> None:
        """A state before the launch, or the one that the run resumes from."""
        if named:
            self.named = path
        mark, state = _mark(path), read_state(path)
        if mark is not None and isinstance(state, State) and path not in self.earlier:
            self.earlier[path] = _Earlier(path=path, mark=mark, state=state)

    def start_of(self, state: State) -> State | None:
        """The earlier state that `state` goes on from: the named one, else the furthest, whose rows begin it.

        A state that this run has rewritten since is none that it started from: a run that begins anew in the
        same directory, with the same seed, writes the same rows again.
        """
        fitting = {
            path: one.state
            for path, one in self.earlier.items()
            if one.state.step <= state.step
            and state.rows[: len(one.state.rows)] == one.state.rows
            and not one.was_rewritten()
        }
        if self.named in fitting:
            return fitting[self.named]
        return max(fitting.values(), key=lambda one: (one.step, len(one.rows)), default=None)

    def new_rows(self, state: State) -> list[str]:
        """The rows of this run that were not given before, in their order."""
        start = self.start_of(state)
        own = state.rows[len(start.rows) if start else 0 :]
        found = [row for row in dict.fromkeys(own) if row not in self.counted]
        self.counted.update(found)
        return found


class TrainerStateReader:
    """One trainer_state.json; see SourceReader for the contract. The whole file counts as one record."""

    kind = "trainer_state"

    def __init__(self, path: Path, *, first_offset: int = 0, history: History | None = None) -> None:
        """`history`: shared by the states of one output directory. A rewritten file is read from its start."""
        self.path = path
        self.first_offset = 0
        self.bytes_read = 0
        self.opened_at = 0.0
        self.ended = ""
        self.identity: tuple[int, int] | None = None
        """Of the file that was read last; a state is replaced without being another source."""
        self.history = history if history is not None else History()
        self.counter: Counter | None = None
        self._mark: tuple[int, int, int] | None = None
        self._sha256 = hashlib.sha256().hexdigest()
        self._unfinished: SourceProblem | None = None
        self._problem: SourceProblem | None = None

    @property
    def sha256(self) -> str:
        """Digest of the file as it was read last."""
        return self._sha256

    def poll(self, *, final: bool = False) -> Iterator[EventColumns | RestartMarker]:
        """The rows that no state of this history has given before."""
        mark = _mark(self.path)
        if mark is None:
            self._problem = self._found("vanished", None, "the file is gone") if self._mark else None
            return
        if mark == self._mark and not (final and self._unfinished):
            return
        read = read_state(self.path)
        self._unfinished = self._problem = None
        if isinstance(read, SourceProblem):
            # The trainer may be writing it at this moment: the next poll looks again.
            self._unfinished = read
            return
        self._mark, self.identity = mark, mark[:2]
        self._take(read)
        columns = _columns(self.history.new_rows(read))
        if columns.tag:
            yield columns

    def _take(self, state: State) -> None:
        data = self.path.read_bytes() if self.path.exists() else b""
        self._sha256, self.bytes_read = hashlib.sha256(data).hexdigest(), len(data)
        start = self.history.start_of(state)
        self.counter = Counter(
            step=state.step,
            resumed_at=start.step if start else 0,
            planned=state.planned,
            epoch=state.epoch,
            planned_epochs=state.planned_epochs,
            patience=state.patience,
            waited=state.waited,
            is_final=not self.path.parent.name.startswith(_CHECKPOINT_PREFIX),
        )

    def _found(self, code: str, offset: int | None, message: str) -> SourceProblem:
        return SourceProblem(code=code, path=self.path, offset=offset, message=message)

    def problems(self, *, final: bool = False) -> list[SourceProblem]:
        """What cannot be parsed is a problem only when nothing more will be written."""
        found = [self._problem, self._unfinished if final else None]
        return [problem for problem in found if problem is not None]


def output_directory(path: Path) -> Path:
    """The directory whose history a state belongs to: beside it, or above its checkpoint."""
    return path.parent.parent if path.parent.name.startswith(_CHECKPOINT_PREFIX) else path.parent


def read_state(path: Path) -> State | SourceProblem:
    """A state, or why it is none."""
    try:
        if path.stat().st_size > MAX_BYTES:
            return SourceProblem(
                code="oversized", path=path, offset=None, message=f"more than {MAX_BYTES} bytes"
            )
        document = json.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        message = error.strerror or str(error)
        return SourceProblem(code="unreadable", path=path, offset=None, message=message)
    except (ValueError, RecursionError) as error:
        message = f"no JSON: {str(error)[:200]}"
        return SourceProblem(
            code="not-parsable", path=path, offset=getattr(error, "pos", None), message=message
        )
    step = _whole(document.get("global_step")) if isinstance(document, dict) else None
    history = document.get("log_history") if isinstance(document, dict) else None
    if step is None or not isinstance(history, list):
        return SourceProblem(
            code="not-parsable", path=path, offset=None, message="without global_step and log_history"
        )
    planned = _whole(document.get("max_steps"))
    patience, waited = _early_stopping(document.get("stateful_callbacks"))
    return State(
        step=step,
        planned=planned if planned is not None and planned > 0 else None,
        epoch=_real(document.get("epoch")),
        planned_epochs=_real(document.get("num_train_epochs")),
        rows=tuple(json.dumps(row, sort_keys=True) for row in history if isinstance(row, dict)),
        patience=patience,
        waited=waited,
    )


def _early_stopping(callbacks: object) -> tuple[int | None, int | None]:
    """(early_stopping_patience, early_stopping_patience_counter) of the callback, as Transformers' `state()` gives
    them; (None, None) without one."""
    told = callbacks.get("EarlyStoppingCallback") if isinstance(callbacks, dict) else None
    every = told if isinstance(told, list) else [told]
    for one in every:
        given, kept = (one.get("args"), one.get("attributes")) if isinstance(one, dict) else (None, None)
        if isinstance(given, dict) and isinstance(kept, dict):
            patience = _whole(given.get("early_stopping_patience"))
            waited = _whole(kept.get("early_stopping_patience_counter"))
            if patience is not None and patience > 0 and waited is not None:
                return patience, waited
    return None, None


def is_summary(row: Mapping[str, Any]) -> bool:
    """The row that ends a run: its train_loss is the mean of the whole run, no point of the series."""
    return _SUMMARY_KEY in row


def _columns(rows: Sequence[str]) -> EventColumns:
    """Rows have no clock: their wall time is 0.0."""
    index: dict[str, int] = {}
    columns = EventColumns([], [], [], [], [])
    for text in rows:
        found = row_metrics(json.loads(text))
        for tag, value in found[2].items() if found is not None else ():
            columns.tag.append(index.setdefault(tag, len(index)))
            columns.step.append(found[0] if found is not None else 0)
            columns.value.append(value)
            columns.wall_time.append(0.0)
    return columns._replace(tags=[tag.encode("utf-8", "backslashreplace").decode() for tag in index])


def _mark(path: Path) -> tuple[int, int, int] | None:
    """(device, inode, time) of a file, so that a rewritten one is told."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns ^ status.st_size


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _real(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
