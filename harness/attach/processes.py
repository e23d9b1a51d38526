"""Processes that others started on this machine, found by PID, name or the log that they write. Never signalled."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from harness.errors import ConfigError
from harness.launch.processes import descendants

MAX_NAMED = 10
_WRITES = os.O_WRONLY | os.O_RDWR


@dataclass(frozen=True, slots=True, kw_only=True)
class Living:
    """A process that was there, and cannot be mistaken for a later one of the same PID."""

    pid: int
    create_time: float
    """Its start, seconds since the epoch."""
    argv: tuple[str, ...] = field(default=(), repr=False)
    """Its command line, with secrets; empty where it may not be read."""
    cwd: Path | None = None
    environ: dict[str, str] = field(default_factory=dict, repr=False)
    interpreter: Path | None = None
    """The program that it runs."""

    def is_alive(self) -> bool:
        """Whether it still runs; a zombie does not."""
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.create_time) < 1.0
            return same and process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False

    def family(self) -> set[int]:
        """It and its living descendants."""
        if not self.is_alive():
            return set()
        return {self.pid, *descendants(self.pid)}

    def logs(self) -> list[Path]:
        """The regular files that its output goes to, stdout first."""
        found: list[Path] = []
        for number in (1, 2):
            with contextlib.suppress(OSError):
                place = Path(f"/proc/{self.pid}/fd/{number}").readlink()
                if place.is_file() and place not in found:
                    found.append(place)
        return found


def find_pid(pid: int) -> Living:
    """The process of that PID; ConfigError where there is none."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            raise psutil.NoSuchProcess(pid)
        return _living(process)
    except psutil.Error as error:
        raise ConfigError(f"pid:{pid}: no such process here; name its log, or judge what it left with "
                          "`python -m harness judge --log FILE`") from error


def find_named(name: str) -> Living:
    """The one process whose program or script has that name; ConfigError for none, and for several, naming them."""
    own = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid not in own and name in _names(process) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    pids = {process.pid for process in found}
    leaders = [process for process in found if _parent(process) not in pids]
    if not leaders:
        raise ConfigError(f"proc:{name}: no process here runs a program or script of that name")
    if len(leaders) > 1:
        named = ", ".join(f"pid:{process.pid} ({' '.join(process.cmdline())[:80]})" for process in leaders[:MAX_NAMED])
        raise ConfigError(f"proc:{name}: {len(leaders)} processes have that name; name one: {named}")
    return _living(leaders[0])


def _names(process: psutil.Process) -> set[str]:
    """Its own name, its program's, and the first word behind it that is no option."""
    words = process.cmdline()
    script = next((word for word in words[1:] if not word.startswith("-")), "")
    return {process.name(), *(Path(word).name for word in (*words[:1], script) if word)}


def _parent(process: psutil.Process) -> int | None:
    with contextlib.suppress(psutil.Error):
        return process.ppid()
    return None


def find_writer(identity: tuple[int, int]) -> Living | None:
    """A process that holds the file (device, inode) open for writing; None where none is seen."""
    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        with contextlib.suppress(OSError, psutil.Error, ValueError):
            if _holds(process.pid, identity):
                return _living(process)
    return None


def _holds(pid: int, identity: tuple[int, int]) -> bool:
    for entry in os.scandir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            status = entry.stat()
            if (status.st_dev, status.st_ino) == identity:
                info = Path(f"/proc/{pid}/fdinfo/{entry.name}").read_text()
                flags = next(line for line in info.splitlines() if line.startswith("flags:"))
                if int(flags.split()[1], 8) & _WRITES:
                    return True
    return False


def _living(process: psutil.Process) -> Living:
    with process.oneshot():
        argv: tuple[str, ...] = ()
        cwd = interpreter = None
        environ: dict[str, str] = {}
        with contextlib.suppress(psutil.Error):
            argv = tuple(process.cmdline())
        with contextlib.suppress(psutil.Error):
            cwd = Path(process.cwd())
        with contextlib.suppress(psutil.Error):
            interpreter = Path(process.exe())
        with contextlib.suppress(psutil.Error):
            environ = dict(process.environ())
        return Living(pid=process.pid, create_time=process.create_time(), argv=argv, cwd=cwd, environ=environ,
                      interpreter=interpreter)
