"""Whether a run was ended by what is not its own: the question of a restart policy."""

from __future__ import annotations

from pathlib import Path

from harness.diagnosis.inputs import LogFile
from harness.diagnosis.read import read_run


def is_infrastructure(exit_code: int | None, signal: str | None, log_path: Path | None) -> tuple[bool, str]:
    """(whether the same job may well succeed when launched again with nothing changed, the cause as `class: rule`).

    `exit_code` as the operating system gave it, `signal` its name (SIGKILL) where one ended the process. A cause that
    is not known, or that comes again by itself (an exception, a full disk, memory), is none of infrastructure. A lone
    SIGKILL is: something outside sent it, and nothing shows that the job itself is at fault. Never raises for what a
    log holds or for a log that is not there.
    """
    code = _signal_code(signal) if signal else exit_code
    logs = [LogFile(path=log_path)] if log_path is not None and log_path.is_file() else []
    reading = read_run(logs, exit_code=code)
    cause = reading.finding.cause
    if cause is None or cause.rule is None:
        return False, "unknown"
    name = f"{cause.rule.cause.value}: {cause.rule.id}"
    if reading.finding.confirms is not None:
        return False, f"{cause.rule.cause.value}: oom-host-confirmed"
    if cause.rule.id == "oom-host-suspected":
        return True, name
    return cause.rule.is_infrastructure, name


def _signal_code(name: str) -> int:
    import signal as signals

    try:
        return -int(signals.Signals[name])
    except KeyError:
        return -9
