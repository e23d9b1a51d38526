"""Which processes belong to a run: by descent, by process group and by a marker in their environment.

Descent holds while the supervisor lives, since it adopts orphans (PR_SET_CHILD_SUBREAPER, prctl(2)). The marker
holds for ever: a process that forked twice and left its session still carries the environment it was started with.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil

MARKER = "REAL_STEP_RUN_TOKEN"
_PR_SET_CHILD_SUBREAPER = 36
MAX_TASKS = 500
"""Threads whose children are asked for; beyond, looking at every process is no dearer."""


def adopt_orphans() -> bool:
    """Make this process the parent of every orphaned descendant; False where the system has no such thing."""
    if not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def marked_pids(token: str) -> set[int]:
    """Living processes of this user whose environment holds the run's token."""
    needle = f"{MARKER}={token}".encode()
    return {pid for pid in _all_pids() if pid != os.getpid() and needle in _environ(pid).split(b"\0")}


def _all_pids() -> Iterator[int]:
    with contextlib.suppress(OSError):
        yield from (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())


def _environ(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def descendants(pid: int) -> set[int]:
    """PIDs of the living descendants of a process, zombies left out."""
    found = _by_children(pid)
    if found is None:
        try:
            return {child.pid for child in psutil.Process(pid).children(recursive=True) if is_alive(child)}
        except psutil.Error:
            return set()
    return {child for child in found if _state(child) not in ("", "Z", "X")}


def _by_children(pid: int) -> set[int] | None:
    """By the lists that the kernel keeps of each task (proc(5), children), which are many times cheaper to read than
    every process of the machine; None where it keeps none, or the tasks are too many."""
    found, parents, left = set[int](), [pid], MAX_TASKS
    if not Path(f"/proc/{pid}/task/{pid}/children").exists():
        return None
    while parents:
        parent = parents.pop()
        with contextlib.suppress(OSError):
            tasks = os.listdir(f"/proc/{parent}/task")  # noqa: PTH208
            left -= len(tasks)
            if left < 0:
                return None
            for task in tasks:
                with contextlib.suppress(OSError), open(f"/proc/{parent}/task/{task}/children", "rb") as file:  # noqa: PTH123
                    new = {int(child) for child in file.read().split()} - found
                    found |= new
                    parents += new
    return found


def _state(pid: int) -> str:
    """One letter of proc(5), "" for a process that is gone."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
        return file.read(1024).rpartition(b") ")[2][:1].decode()
    return ""


def is_alive(process: psutil.Process) -> bool:
    """Whether the process runs, zombies not counted."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def describe(process: psutil.Process) -> str:
    """Command line of a process, "?" when it is gone."""
    try:
        return " ".join(process.cmdline()) or process.name()
    except psutil.Error:
        return "?"


def send(pid: int, number: int) -> bool:
    """Signal one process; whether it was there."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
        return True
    return False
