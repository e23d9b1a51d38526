"""Which of the things that went wrong was the first, and which followed from it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from harness.diagnosis.model import Event, EventKind, Role
from harness.record.vocabulary import PrimaryCause

_LEAST = ("elastic-agent", "closing-signal", "exit-call", "usage")
_UNSPECIFIC = ("uncaught-exception",)
CUT_SHORT = "target-not-reached"
"""What an interruption explains: the judge's word for a run that ended too early."""
_KILLED = ("oom-host-suspected", "dataloader-worker", "dataloader-gone", "signal-handler")


@dataclass(slots=True, kw_only=True)
class Finding:
    """The cause, and everything else by what it is to the cause."""

    cause: Event | None
    """None where nothing was seen that could be one."""
    is_consequence_only: bool = False
    """The cause is itself a consequence of something that the logs do not hold."""
    rivals: list[Event] = field(default_factory=list)
    """Other events that could be the cause, later than it."""
    consequences: list[Event] = field(default_factory=list)
    recovered: list[Event] = field(default_factory=list)
    silent_ranks: tuple[int, ...] = ()
    """Ranks that did not time out when all others did."""
    confirms: Event | None = None
    """What the kernel or the cgroup said of a process that was killed."""


def find_cause(
    events: Iterable[Event], *, watchdog_ranks: frozenset[int] = frozenset(), known_ranks: frozenset[int] = frozenset(),
    completed: bool = False,
) -> Finding:
    """The first causal error among the events, whose `is_recovered` is decided.

    `completed`: the run reached its end, so that whatever is in its log was survived.
    """
    seen = [event for event in events if event.rule is not None and not event.is_handled]
    recovered = [event for event in seen if event.is_recovered]
    left = [event for event in seen if not event.is_recovered]
    if completed:
        return Finding(cause=None, recovered=seen)
    causes = [event for event in left if event.rule is not None and event.rule.role is Role.CAUSE]
    others = [event for event in left if event not in causes]
    if any(event.rule is not None and event.rule.cause is PrimaryCause.INTERRUPTED for event in others):
        causes = [event for event in causes if event.text != CUT_SHORT]
    silent = tuple(sorted(known_ranks - watchdog_ranks)) if watchdog_ranks else ()
    finding = Finding(cause=None, recovered=recovered, silent_ranks=silent if len(silent) < len(known_ranks) else ())
    confirmed = _kernel_word(causes, left)
    causes = [event for event in causes if not _is_kernel_word(event) or event is confirmed]
    ordered = _by_time(_first_of_each_stream(causes))
    if ordered:
        finding.cause = ordered[0]
    elif others:
        is_by_worker = any(event.rule is not None and event.rule.id == "worker-exit" for event in others)
        finding.cause = min(others, key=lambda event: (
            is_by_worker and event.text == "signal SIGTERM", *_consequence_key(event)))
        finding.is_consequence_only = True
    if confirmed is not None and finding.cause is not None and _explains(confirmed, finding.cause, left):
        finding.confirms, finding.cause = confirmed, _killed(confirmed, left) or confirmed
        finding.is_consequence_only = False
    same = {id(finding.cause), id(finding.confirms)}
    finding.rivals = [event for event in ordered if id(event) not in same]
    rest = {id(event) for event in finding.rivals} | same
    finding.consequences = [event for event in left if id(event) not in rest]
    return finding


def _consequence_key(event: Event) -> tuple[bool, bool, int]:
    rule = event.rule
    return (rule is not None and rule.id in _LEAST, event.kind is EventKind.EXIT, event.order)


def _first_of_each_stream(causes: Sequence[Event]) -> list[Event]:
    """Of each process its first error, and the first value that was not finite and stayed so."""
    streams: dict[str, list[Event]] = {}
    for event in sorted(causes, key=lambda event: event.order):
        streams.setdefault(event.stream, []).append(event)
    first: list[Event] = []
    for group in streams.values():
        values = [event for event in group if event.rule and event.rule.id == "nan-logged"]
        others = [event for event in group if event not in values]
        first += others[:1] + values[:1]
    return first


def _by_time(events: Sequence[Event]) -> list[Event]:
    """Earliest first where all tell their time; else as they stand. Errors come before values that were not finite,
    with which a run goes on, and these before exits, which only tell that something was wrong."""
    exits = [event for event in events if event.kind is EventKind.EXIT]
    values = [event for event in events if event.rule and event.rule.id == "nan-logged"]
    errors = [event for event in events if event not in exits and event not in values]
    return [*_sorted(errors), *_sorted(values), *_sorted(exits)]


def _sorted(events: Sequence[Event]) -> list[Event]:
    if all(event.stamp is not None for event in events):
        return sorted(events, key=lambda event: (event.stamp.key if event.stamp else (), event.order))
    return sorted(events, key=lambda event: (bool(event.rule and event.rule.id in _UNSPECIFIC), event.order))


def _is_kernel_word(event: Event) -> bool:
    return event.rule is not None and event.rule.id == "oom-host-confirmed"


def _kernel_word(causes: Sequence[Event], events: Sequence[Event]) -> Event | None:
    """What the kernel said of a process of this run; None where it named others than those that were killed."""
    words = [event for event in causes if _is_kernel_word(event)]
    killed = {event.pid for event in events if event.text == "signal SIGKILL" and event.pid is not None}
    exact = [event for event in words if event.pid in killed]
    unnamed = [event for event in words if event.pid is None or not killed]
    return next(iter([*exact, *unnamed]), None)


def _explains(confirmed: Event, cause: Event, events: Sequence[Event]) -> bool:
    """Whether the kernel's word is about what ended this run."""
    if cause is confirmed or (cause.rule is not None and cause.rule.id in _KILLED):
        return True
    return confirmed.pid is not None and any(
        event.pid == confirmed.pid and event.kind is EventKind.EXIT for event in events)


def _killed(confirmed: Event, events: Sequence[Event]) -> Event | None:
    """The exit of the process that the kernel killed."""
    killed = [event for event in events if event.kind is EventKind.EXIT and event.text == "signal SIGKILL"]
    if confirmed.pid is not None:
        exact = [event for event in killed if event.pid == confirmed.pid]
        if exact:
            return exact[0]
    return killed[0] if len({event.rank for event in killed}) == 1 else None
