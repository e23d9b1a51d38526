"""Who holds a metric file open for writing, as far as /proc tells.

What is seen here informs: a process of the run that holds the file proves it the run's own. A process outside
the run that holds it makes it foreign, where that process was there before the launch or others write to the
directory too. A writer on another node or in another PID namespace cannot be seen at all. Where no descriptor is
seen, the host and PID in an event file's name are held against the processes that can be seen.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from harness.launch.processes import MARKER

CLOCK_SLACK_S = 2.0
"""Starts of processes are known to a fraction of a second only, those of files in whole seconds."""
_NAME = re.compile(r"tfevents\.(?P<time>\d+)\.(?P<host>.+?)(?:\.(?P<pid>\d+)\.(?P<number>\d+))?(?:\.v2)?$")
_COST_FACTOR = 200
"""A scan that took t seconds is not repeated within so many times t, so that scanning costs at most 0.5% of a core."""
_OBSERVE_COST_FACTOR = 200
_OBSERVE_GAP_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A process that holds a file open for writing."""

    pid: int
    of_run: bool
    started_at: float
    """Seconds since the epoch; 0.0 where it cannot be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedWriter:
    """What an event file's name says about its writer."""

    created_at: float
    host: str
    pid: int | None
    number: int | None


def writer_in_name(name: str) -> NamedWriter | None:
    """events.out.tfevents.TIME.HOST.PID.NUMBER as TensorBoard's own writers name their files."""
    found = _NAME.search(name)
    if found is None:
        return None
    pid, number = found["pid"], found["number"]
    return NamedWriter(
        created_at=float(found["time"]),
        host=found["host"],
        pid=int(pid) if pid else None,
        number=int(number) if number else None,
    )


class Ownership:
    """Looks at open files of the run's processes and of others; at most once a second, less where /proc is
    large."""

    def __init__(self, run_pids: Callable[[], Collection[int]], *, min_gap_s: float = 1.0) -> None:
        self._run_pids = run_pids
        self._min_gap_s = min_gap_s
        self._next_at = 0.0
        self._next_observation = 0.0
        self._ever_run: set[int] = set()
        self._groups: set[int] = set()
        """Process groups and sessions of the run."""
        self._marks: set[bytes] = set()
        """The run's marker in the environment of its processes."""

    def was_of_run(self, pid: int | None) -> bool:
        """Whether a process of this PID was seen in the run."""
        return pid in self._ever_run

    def observe(self, *, at_once: bool = False) -> set[int]:
        """Remember who is in the run now; without `at_once` as often as it is cheap, and nobody in between."""
        began = time.monotonic()
        if not at_once and began < self._next_observation:
            return set()
        run = set(self._run_pids()) - {os.getpid()}
        for pid in run:
            self._groups |= _groups_of(pid)
        for pid in run - self._ever_run if self._marks else run:
            self._marks |= _marks_of(pid)
        self._groups -= _groups_of(os.getpid())
        self._marks -= _marks_of(os.getpid())
        self._ever_run |= run
        cost = time.monotonic() - began
        self._next_observation = time.monotonic() + max(_OBSERVE_GAP_S, _OBSERVE_COST_FACTOR * cost)
        return run

    def due(self) -> bool:
        """Whether enough time has passed since the last look."""
        return time.monotonic() >= self._next_at

    def look(
        self, unknown: Collection[Path], *, wanted: Callable[[str], bool]
    ) -> tuple[dict[Path, Holder], set[Path]]:
        """(holder of each unknown file that has one, files that the run writes and whose names are
        `wanted`)."""
        began = time.monotonic()
        run = self.observe(at_once=True)
        held: dict[Path, Holder] = {}
        written: set[Path] = set()
        by_identity = {identity: path for path in unknown if (identity := _identity(path)) is not None}
        for pid in sorted(run):
            for identity, target in _written_files(pid, by_identity, wanted):
                if identity in by_identity:
                    held[by_identity[identity]] = _holder(pid, of_run=True)
                if wanted(target):
                    written.add(Path(target))
        missing = {identity: path for identity, path in by_identity.items() if path not in held}
        if missing:
            for pid in _others(run):
                for identity, _ in _written_files(pid, missing, _never):
                    held.setdefault(missing[identity], _holder(pid, of_run=self._is_of_run(pid)))
        for path in unknown:
            if path not in held and (named := self._named_holder(path)) is not None:
                held[path] = named
        cost = time.monotonic() - began
        self._next_at = time.monotonic() + max(self._min_gap_s, _COST_FACTOR * cost)
        return held, written

    def _is_of_run(self, pid: int) -> bool:
        """By having been seen in the run, by an ancestor that was, by group or session, or by the run's marker."""
        if pid in self._ever_run or self._groups & _groups_of(pid) or self._marks & _marks_of(pid):
            return True
        try:
            return any(parent.pid in self._ever_run for parent in psutil.Process(pid).parents())
        except psutil.Error:
            return False

    def _named_holder(self, path: Path) -> Holder | None:
        """The writer that an event file's name tells, where it is a process of this host that can be seen.

        TensorBoard's own writer opens the file for each flush alone, so its descriptor is seldom met. A PID of the run
        on this host is the run's; a living one outside it is another's; one that is gone or only waits to be
        collected, or a name from another host or container, tells nothing.
        """
        named = writer_in_name(path.name)
        if named is None or named.pid is None or named.host != socket.gethostname():
            return None
        holder = _holder(named.pid, of_run=self._is_of_run(named.pid))
        if holder.of_run:
            return holder
        if not 0.0 < holder.started_at <= named.created_at + CLOCK_SLACK_S or _is_zombie(named.pid):
            return None
        return holder


def _groups_of(pid: int) -> set[int]:
    """Process group and session, those of a zombie too."""
    try:
        return {os.getpgid(pid), os.getsid(pid)} - {0}
    except OSError:
        return set()


def _marks_of(pid: int) -> set[bytes]:
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return set()
    return {variable for variable in variables if variable.startswith(MARKER.encode() + b"=")}


def _is_zombie(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _never(_name: str) -> bool:
    return False


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _others(run: set[int]) -> Iterator[int]:
    """PIDs of this user outside the run."""
    user = os.getuid() if hasattr(os, "getuid") else -1
    for name in _listed("/proc"):
        if name.isdigit() and int(name) not in run and int(name) != os.getpid():
            try:
                if Path("/proc", name).stat().st_uid == user:
                    yield int(name)
            except OSError:
                continue


def _written_files(
    pid: int,
    identities: Collection[tuple[int, int]],
    wanted: Callable[[str], bool],
) -> Iterator[tuple[tuple[int, int], str]]:
    """(identity, path) of open files that are sought or wanted and open for writing."""
    folder = f"/proc/{pid}/fd"
    for number in _listed(folder):
        try:
            target = os.readlink(f"{folder}/{number}")  # noqa: PTH115
            if not target.startswith("/") or target.startswith(("/dev/", "/proc/")):
                continue
            status = os.stat(f"{folder}/{number}")  # noqa: PTH116
            identity = status.st_dev, status.st_ino
            if (identity in identities or wanted(target)) and _is_writable(pid, number):
                yield identity, target
        except OSError:
            continue


def _is_writable(pid: int, number: str) -> bool:
    """flags of /proc/PID/fdinfo/N are octal open(2) flags (proc(5)); the access mode is in the lowest two
    bits."""
    with open(f"/proc/{pid}/fdinfo/{number}", encoding="ascii") as file:  # noqa: PTH123
        for line in file:
            if line.startswith("flags:"):
                return int(line.split()[1], 8) & 3 != os.O_RDONLY
    return False


def _listed(folder: str) -> Iterable[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208
    except OSError:
        return ()


def _holder(pid: int, *, of_run: bool) -> Holder:
    try:
        started = psutil.Process(pid).create_time()
    except psutil.Error:
        started = 0.0
    return Holder(pid=pid, of_run=of_run, started_at=started)
