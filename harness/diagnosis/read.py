"""All logs of a run read, and what they hold brought together: `read_run`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.diagnosis.cause import Finding, find_cause
from harness.diagnosis.elastic import Worker, exit_text
from harness.diagnosis.events import LogReader
from harness.diagnosis.inputs import LogFile
from harness.diagnosis.model import Event, EventKind, Place, Role, Where
from harness.diagnosis.progress import Mark, Window, goes_on_after, read_window
from harness.diagnosis.rules import match_rule
from harness.record.vocabulary import PrimaryCause

MAX_LOOKS = 64
"""Events whose surroundings are looked at, to see whether the run went on behind them."""
NEAR_BYTES = 32 << 10
MAX_ALL_EVENTS = 20_000
_DRIVER = frozenset({"gpu-lost", "gpu-xid"})
"""Rules of what the driver of an accelerator writes into the kernel's log, for all processes and all times."""


@dataclass(slots=True, kw_only=True)
class RunReading:
    """What the logs say."""

    finding: Finding
    workers: list[Worker] = field(default_factory=list)
    last: Mark | None = None
    """The last progress of any process."""
    planned: int | None = None
    trajectory: tuple[Mark, ...] = ()
    """Progress before the cause, in its own stream where it prints some."""
    batch_sizes: tuple[int, ...] = ()
    """Per device, as announced, in their order."""
    completed: bool = False
    exit_code: int | None = None
    problems: list[str] = field(default_factory=list)
    num_bytes: int = 0


def read_run(
    logs: Sequence[LogFile], *, exit_code: int | None = None, stopped: str | None = None,
    kernel_log: Path | None = None, reasons: Sequence[tuple[str, str]] = (),
) -> RunReading:
    """Everything that the logs, the exit code, the kernel's log and the judged reasons say of one run.

    `exit_code`: negative for a signal. `stopped`: why the harness itself ended the run (timeout, cancelled, ...).
    `reasons`: (code, what was seen) of what the judge found.
    """
    events: list[Event] = []
    workers: list[Worker] = []
    watchdogs: set[int] = set()
    problems: list[str] = []
    num_bytes = 0
    for log in [*logs, *([LogFile(path=kernel_log)] if kernel_log is not None else [])]:
        reader = LogReader(log, order=events[-1].order if events else 0)
        try:
            found = reader.read()
        except (OSError, ValueError) as error:
            problems.append(f"{log.path}: cannot be read: {error}")
            continue
        num_bytes += reader.scanner.size
        events += found[: max(0, MAX_ALL_EVENTS - len(events))]
        workers += reader.workers
        problems += reader.problems
        watchdogs |= reader.watchdog_ranks
        watchdogs |= {event.rank for event in found if event.rank is not None and event.rule is not None
                      and event.rule.id == "collective-timeout"}
    source = logs[0].path if logs else Path("-")
    events += _given(exit_code, stopped, reasons, source, events[-1].order if events else 0)
    is_failed = (exit_code or 0) != 0 or bool(stopped) or bool(reasons)
    pids = frozenset(worker.pid for worker in workers if worker.pid is not None)
    events = _without_doubles(_of_this_run(events, kernel_log, pids, is_failed=is_failed))
    windows = {log.path: _Windows(log.path) for log in logs}
    _mark_recovered(events, windows)
    last, planned = _last_progress(windows.values())
    ends = any(mark.is_end for window in windows.values() for mark in window.tail.marks[-3:])
    whole = ends or _is_whole(last, planned)
    unsurvived = any(not event.is_recovered and not event.is_handled for event in events)
    completed = not is_failed and (whole or (exit_code == 0 and planned is None)) and not unsurvived
    ranks = frozenset(worker.rank for worker in workers if worker.rank is not None) | frozenset(
        event.rank for event in events if event.rank is not None)
    finding = find_cause(events, watchdog_ranks=frozenset(watchdogs), known_ranks=ranks, completed=completed)
    return RunReading(
        finding=finding, workers=workers, last=last, planned=planned, completed=completed, exit_code=exit_code,
        trajectory=_trajectory(finding.cause, windows, last), problems=problems, num_bytes=num_bytes,
        batch_sizes=tuple(size for window in windows.values() for size in window.batch_sizes()),
    )


def announced_batch_sizes(log: Path) -> tuple[int, ...]:
    """The first and the last batch size per device that a log announces; none where it announces none."""
    return _Windows(log).batch_sizes()


class _Windows:
    """Pieces of one log, read when they are asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.size = path.stat().st_size
        except OSError:
            self.size = 0
        self._tail: Window | None = None
        self._head: Window | None = None

    @property
    def tail(self) -> Window:
        self._tail = self._tail or read_window(self.path, 0, self.size)
        return self._tail

    @property
    def head(self) -> Window:
        self._head = self._head or read_window(self.path, 0, min(self.size, 256 << 10))
        return self._head

    def before(self, offset: int) -> Window:
        return read_window(self.path, max(0, offset - NEAR_BYTES), offset)

    def goes_on_after(self, offset: int, label: str) -> bool:
        """See `progress.goes_on_after`; what is before `offset` is read only where the rest does not tell."""
        nothing = Window(marks=(), planned=None, batch_sizes=())
        if goes_on_after(nothing, self.tail, offset, label):
            return True
        any_later = any(mark.offset > offset and mark.label == label for mark in self.tail.marks)
        return any_later and goes_on_after(self.before(offset), self.tail, offset, label)

    def batch_sizes(self) -> tuple[int, ...]:
        sizes = self.head.batch_sizes + self.tail.batch_sizes
        return sizes[:1] + sizes[-1:] if sizes else ()


def _of_this_run(
    events: Sequence[Event], kernel_log: Path | None, pids: frozenset[int], *, is_failed: bool
) -> list[Event]:
    """The events without what the kernel's log tells of the accelerators of others.

    A driver's fault counts where it names a process of the run, or none that could be told from it and the run met
    trouble of its devices or ranks or failed for no other cause.
    """
    ours = [event for event in events if event.place.path != kernel_log]
    known = pids | {event.pid for event in ours if event.pid is not None}
    causes = {event.rule.cause for event in ours if event.rule is not None and not event.is_handled}
    is_told = any(event.rule is not None and event.rule.role is Role.CAUSE and event.kind is not EventKind.EXIT
                  for event in ours)
    is_near = bool(causes & {PrimaryCause.CUDA_RUNTIME, PrimaryCause.NCCL_DISTRIBUTED}) or (is_failed and not is_told)
    return [event for event in events if event.place.path != kernel_log or event.rule is None
            or event.rule.id not in _DRIVER or event.pid in known or (is_near and (event.pid is None or not known))]


def _given(
    exit_code: int | None, stopped: str | None, reasons: Sequence[tuple[str, str]], source: Path, order: int
) -> list[Event]:
    """Events that no log holds: the exit, the stop, what the judge found."""
    texts = [(EventKind.EXIT, Where.EXIT, f"stopped: {stopped}", "")] if stopped else []
    if exit_code and not stopped:
        texts.append((EventKind.EXIT, Where.EXIT, exit_text(exit_code), ""))
    texts += [(EventKind.METRIC, Where.METRIC, code, seen) for code, seen in reasons]
    found = []
    for kind, where, text, detail in texts:
        rule = match_rule(where, text)
        if rule is not None:
            order += 1
            found.append(Event(kind=kind, place=Place(path=source, line=0, text=text), offset=1 << 62, order=order,
                               stream="exit", text=text, rule=rule, detail=detail))
    return found


def _mark_recovered(events: list[Event], windows: dict[Path, _Windows]) -> None:
    """What a process went on after did not end it. A thread's end is not survived by what other threads print."""
    looks = 0
    for event in events:
        place = windows.get(event.place.path)
        if place is None or event.kind in (EventKind.EXIT, EventKind.METRIC) or event.is_handled:
            continue
        looks += 1
        if looks > MAX_LOOKS and event is not events[-1]:
            continue
        label = event.stream.removeprefix(f"{event.place.path}:")
        if event.rule is not None and event.rule.id == "nan-logged":
            event.is_recovered = _is_finite_again(place.tail, label)
        elif event.is_thread:
            event.is_recovered = _reached_its_end(place)
        else:
            event.is_recovered = place.goes_on_after(event.offset, label)
        if event.is_warned and not event.is_recovered:
            event.is_handled = any(later.stream == event.stream and later.order > event.order
                                   and later.kind is EventKind.TRACEBACK for later in events)


def _is_finite_again(tail: Window, label: str) -> bool:
    losses = [value for mark in tail.marks if mark.label == label for name, value in mark.values.items()
              if "loss" in name.lower()]
    return bool(losses) and math.isfinite(losses[-1])


def _reached_its_end(place: _Windows) -> bool:
    return _is_whole(*_last_progress([place]))


def _is_whole(last: Mark | None, planned: int | None) -> bool:
    return last is not None and last.step is not None and planned is not None and last.step >= planned


def _without_doubles(events: list[Event]) -> list[Event]:
    """An exit that the launcher tells twice counts once, as its summary tells it."""
    last = {(event.pid, event.text): event for event in events if event.kind is EventKind.EXIT and event.pid}
    return [event for event in events
            if event.kind is not EventKind.EXIT or not event.pid or last[event.pid, event.text] is event]


def _last_progress(windows: Iterable[_Windows]) -> tuple[Mark | None, int | None]:
    """(the furthest of the last marks, the announced total)."""
    last: Mark | None = None
    totals: list[int] = []
    for window in windows:
        for piece in (window.head, window.tail):
            totals += [piece.planned] if piece.planned else []
            totals += [mark.total for mark in piece.marks if mark.total]
        stepped = [mark for mark in window.tail.marks if mark.step is not None] or list(window.tail.marks[-1:])
        if stepped and (last is None or (last.step or 0) < (stepped[-1].step or 0)):
            last = stepped[-1]
    announced = Counter(totals).most_common(1)
    return last, announced[0][0] if announced else None


def _trajectory(cause: Event | None, windows: dict[Path, _Windows], last: Mark | None) -> tuple[Mark, ...]:
    """The last progress with values before the cause, at most five marks."""
    place = windows.get(cause.place.path) if cause is not None else None
    if cause is None or place is None or cause.offset > place.size:
        found = [mark for window in windows.values() for mark in window.tail.marks]
    else:
        found = list(place.before(cause.offset).marks)
        label = cause.stream.removeprefix(f"{cause.place.path}:")
        found = [mark for mark in found if mark.label == label] or found
    valued = [mark for mark in found if mark.values]
    return tuple((valued or found)[-5:]) or ((last,) if last is not None else ())
