"""What `diagnose` was given, as the logs to read: files, out-dirs, torchrun's log directories, Slurm's output."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from harness.errors import ConfigError
from harness.record import outdir
from harness.record.text_file import not_text

MAX_FILES = 4096
_TORCHRUN = re.compile(r"(?:^|/)attempt_(\d{1,6})/(\d{1,6})/(?:stdout|stderr)\.log$")
_RANK_NAME = re.compile(r"(?i)(?:^|[._-])rank[._-]?(\d{1,6})(?=[._-]|$)")
_SLURM_TASK = re.compile(r"^[\w.+-]{0,100}?\d{1,12}[_-](\d{1,6})\.(?:out|err|log)$")
_LOG_NAME = re.compile(r"(?i)(?:\.(?:log|out|err|txt|stdout|stderr)(?:\.\d{1,4})?|^(?:stdout|stderr)|^error\.json)$")
_TRAIN_LOG = re.compile(r"train(?:\.(\d{1,6}))?\.log")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFile:
    """One file to read."""

    path: Path
    rank: int | None = None
    """Whose output it is, where its name says so."""
    attempt: int | None = None
    first_offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Everything to read, and the out-dir of this harness among it."""

    logs: tuple[LogFile, ...]
    out_dir: Path | None = None


def find_inputs(paths: Iterable[Path]) -> Inputs:
    """The logs of some files and directories. ConfigError where one is not there, is no text, or holds no log."""
    logs: list[LogFile] = []
    run: Path | None = None
    given = list(paths)
    for path in given:
        if path.is_dir():
            if (path / outdir.JOURNAL).exists() or (path / outdir.RUN_SPEC).exists():
                run = run or path
                logs += _out_dir_logs(path)
            else:
                logs += _tree(path)
        elif path.is_file():
            with contextlib.suppress(OSError, ValueError):
                if odd := not_text(path):
                    raise ConfigError(f"{path}: {odd}")
            logs.append(named_log(path))
        else:
            raise ConfigError(f"{path}: no such file or directory; give logs, an out-dir or a directory of logs")
    if not logs and run is None:
        raise ConfigError(f"{', '.join(map(str, given))}: no log in it; give the files themselves")
    return Inputs(logs=tuple(_task_ranks(_latest_attempt(logs))), out_dir=run)


def named_log(path: Path) -> LogFile:
    """A log with what its name says of rank and attempt."""
    name = path.as_posix()
    if found := _TORCHRUN.search(name):
        return LogFile(path=path, attempt=int(found[1]), rank=int(found[2]))
    found = _RANK_NAME.search(path.stem)
    return LogFile(path=path, rank=int(found[1]) if found else None)


def _out_dir_logs(path: Path) -> list[LogFile]:
    """train.log, train.2.log, ...: one of each attempt; what an earlier one ended with, the next one got over. Where
    nothing was launched, the last smoke."""
    found = [(int(match[1] or 1), item) for item in path.iterdir() if (match := _TRAIN_LOG.fullmatch(item.name))]
    if not found:
        smokes = sorted(path.glob(f"{outdir.SMOKE}/*/*.log"), key=lambda item: item.stat().st_mtime)
        return [LogFile(path=item) for item in smokes[-1:]]
    return [LogFile(path=item, attempt=attempt) for attempt, item in sorted(found)]


def _tree(path: Path) -> list[LogFile]:
    found: list[LogFile] = []
    for root, folders, names in os.walk(path):
        folders.sort()
        for name in sorted(names):
            if _LOG_NAME.search(name) and len(found) < MAX_FILES:
                place = Path(root) / name
                if place.is_file():
                    found.append(named_log(place))
    return sorted(found, key=lambda log: (log.attempt or 0, log.rank if log.rank is not None else -1, str(log.path)))


def _latest_attempt(logs: list[LogFile]) -> list[LogFile]:
    """Of torchrun's restarts the last one failed for good; files without an attempt stay."""
    last = max((log.attempt for log in logs if log.attempt is not None), default=None)
    return [log for log in logs if log.attempt in (None, last)]


def _task_ranks(logs: list[LogFile]) -> list[LogFile]:
    """A number at the end of a name is a task's (Slurm's %t) where several names differ in it alone."""
    stems: dict[str, list[LogFile]] = {}
    for log in logs:
        if log.rank is None and (found := _SLURM_TASK.match(log.path.name)):
            stems.setdefault(f"{log.path.parent}/{log.path.name[: found.start(1)]}", []).append(log)
    tasks = {log: int(found[1]) for group in stems.values() if len(group) > 1 for log in group
             if (found := _SLURM_TASK.match(log.path.name))}
    return [replace(log, rank=tasks[log]) if log in tasks else log for log in logs]
