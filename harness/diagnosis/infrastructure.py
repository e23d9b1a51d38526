"""Whether a run was ended by what is not its own: the question of a restart policy, answered by the rules alone.

Positive evidence only. A signal says nothing of its sender, and an exception is infrastructure's only where nothing
else that could have ended the run stands in its log.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.diagnosis.cause import Finding
from harness.diagnosis.inputs import LogFile
from harness.diagnosis.model import Event, Role
from harness.diagnosis.read import read_run

SCHEDULERS = frozenset({"preempted", "node-failure", "node-died"})
"""Rules of what schedulers write, whatever the trainer then raises."""
_RAISED_THEN = frozenset({"uncaught-exception", "dataloader-worker", "oom-host-suspected", "bus-error"})
"""Rules of what a trainer may come to when its scheduler ends it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """What of the infrastructure failed, and the line of the log that says so."""

    name: str
    """Id of the rule, as references/failure-triage.md lists them."""
    line: str


def infrastructure_cause(exit_code: int | None, signal: str | None, log_path: Path | None) -> Cause | None:
    """Why the same job may well succeed when it is launched again with nothing changed.

    None where the end was well, where nothing tells, where the trainer itself failed, and where the same would come
    again (an exception of its own, a full disk, memory, a time limit). `exit_code` as the operating system gave it,
    `signal` its name (SIGKILL) where one ended the process. Never raises for what a log holds or for one that is not
    there.
    """
    if exit_code == 0 and not signal:
        return None
    logs = [LogFile(path=log_path)] if log_path is not None and log_path.is_file() else []
    finding = read_run(logs, exit_code=_signal_code(signal) if signal else exit_code).finding
    causes = [event for event in _unsurvived(finding) if event.rule is not None and event.rule.role is Role.CAUSE]
    told = [event for event in causes if event.rule is not None and event.rule.is_infrastructure]
    ended = [event for event in told if event.rule is not None and event.rule.id in SCHEDULERS]
    others = {event.rule.id for event in causes if event.rule is not None and not event.rule.is_infrastructure}
    if not told or others - (_RAISED_THEN if ended else frozenset()):
        return None
    event = (ended or told)[-1]
    line = event.link.place.text if event.link is not None else event.place.text
    return Cause(name=event.rule.id if event.rule is not None else "", line=line.strip()[:500])


def _unsurvived(finding: Finding) -> list[Event]:
    known = [event for event in (finding.cause, finding.confirms) if event is not None]
    return sorted([*known, *finding.rivals, *finding.consequences], key=lambda event: event.order)


def _signal_code(name: str) -> int:
    import signal as signals

    try:
        return -int(signals.Signals[name])
    except KeyError:
        return -9
