"""What a job uses at one moment: CPU, memory and I/O of its processes by psutil, GPUs by NVML where there is one."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import psutil

from harness.environment import accelerators

GPU_WAIT_S = 0.5
"""How long a report waits for NVML: a broken driver answers never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUse:
    """All devices that the job may use, together."""

    count: int
    percent: float | None
    """Mean utilisation."""
    used_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The processes of a run, together."""

    cpu_percent: float | None = None
    """100 is one core; None at the first look, since it is a mean since the look before."""
    memory_bytes: int | None = None
    """Resident; what processes share is counted in each."""
    read_bytes_per_s: float | None = None
    write_bytes_per_s: float | None = None
    gpu: GpuUse | None = None


@dataclass(frozen=True, slots=True)
class _Counts:
    cpu_s: float = 0.0
    read: int = 0
    written: int = 0


class UsageMeter:
    """Looks at a job now and then; every rate is a mean since the last look."""

    def __init__(self, pids: Callable[[], Collection[int]], environ: Mapping[str, str]) -> None:
        """`pids`: living processes of the run. `environ`: the job's, for the devices that it may use."""
        self.pids = pids
        self.environ = environ
        self._before: dict[int, _Counts] = {}
        self._at = 0.0
        self._gpu: GpuUse | None = None
        self._looking: threading.Thread | None = None

    def look(self) -> Usage:
        """The usage now. Processes that end under the look are left out."""
        now, counts, memory = time.monotonic(), {}, 0
        for pid in self.pids():
            with contextlib.suppress(psutil.Error, OSError):
                process = psutil.Process(pid)
                with process.oneshot():
                    counts[pid] = _counts(process)
                    memory += process.memory_info().rss
        passed, before = now - self._at, self._before
        is_first, self._at, self._before = not self._at, now, counts
        if not counts:
            return Usage(gpu=self._look_at_gpu())
        if is_first or passed <= 0:
            return Usage(memory_bytes=memory, gpu=self._look_at_gpu())
        spent = [_since(count, before.get(pid, _Counts())) for pid, count in counts.items()]
        return Usage(
            cpu_percent=100 * sum(one.cpu_s for one in spent) / passed, memory_bytes=memory,
            read_bytes_per_s=sum(one.read for one in spent) / passed,
            write_bytes_per_s=sum(one.written for one in spent) / passed, gpu=self._look_at_gpu(),
        )

    def _look_at_gpu(self) -> GpuUse | None:
        """In a thread of its own, so that a driver that hangs holds up nothing; while it does, nothing is shown."""
        if self._looking is not None and self._looking.is_alive():
            return None
        self._gpu = None
        self._looking = threading.Thread(target=self._ask_nvml, daemon=True)
        self._looking.start()
        self._looking.join(GPU_WAIT_S)
        return self._gpu

    def _ask_nvml(self) -> None:
        self._gpu = gpu_use(accelerators(self.environ))


PEAK_EVERY_S = 2.0


class Peaks:
    """The most that the processes of a run used at once, looked at every PEAK_EVERY_S; None where nothing was seen."""

    def __init__(self, pids: Callable[[], Collection[int]], environ: Mapping[str, str]) -> None:
        """As for a UsageMeter."""
        self._meter = UsageMeter(pids, environ)
        self._due = 0.0
        self._memory: int | None = None
        self._gpu: int | None = None
        self._looks = 0

    def look(self) -> None:
        """Once a poll; most of them do nothing."""
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + PEAK_EVERY_S
        use, self._looks = self._meter.look(), self._looks + 1
        if use.memory_bytes is not None:
            self._memory = max(self._memory or 0, use.memory_bytes)
        if use.gpu is not None:
            self._gpu = max(self._gpu or 0, use.gpu.used_bytes)

    def to_json(self) -> dict[str, int | None]:
        """The journal's entry `usage`."""
        return {"peak_memory_bytes": self._memory, "peak_gpu_memory_bytes": self._gpu, "looks": self._looks}


def gpu_use(devices: list[dict[str, Any]]) -> GpuUse | None:
    """Devices as `environment.accelerators` gives them, summed up; None where there is none."""
    known = [device for device in devices if device.get("memory_total_bytes")]
    if not known:
        return None
    busy = [device["utilisation_percent"] for device in known if device.get("utilisation_percent") is not None]
    return GpuUse(
        count=len(known), percent=sum(busy) / len(busy) if busy else None,
        used_bytes=sum(device.get("memory_used_bytes") or 0 for device in known),
        total_bytes=sum(device["memory_total_bytes"] for device in known),
    )


def _counts(process: psutil.Process) -> _Counts:
    times = process.cpu_times()
    read = written = 0
    with contextlib.suppress(psutil.Error, AttributeError, OSError):
        moved = process.io_counters()
        read, written = moved.read_bytes, moved.write_bytes
    return _Counts(times.user + times.system, read, written)


def _since(now: _Counts, before: _Counts) -> _Counts:
    """What was used since; a PID that was given to another process counts from nothing."""
    if now.cpu_s < before.cpu_s:
        before = _Counts()
    return _Counts(now.cpu_s - before.cpu_s, max(0, now.read - before.read), max(0, now.written - before.written))
