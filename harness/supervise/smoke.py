"""-m smoke_capacity: the smallest real allocation or step of the command, with the peak memory of processes and GPUs.

What is launched is the adapter's: its trainer's own smokes where there is a GPU, else one step of the same command.
Everything is written below <out-dir>/smoke. It is evidence of capacity and never of training.
"""

from __future__ import annotations

import re
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.capacity import proposals
from harness.errors import LaunchError, RecordError
from harness.frameworks.capacity import Smoke
from harness.launch.base import Exit
from harness.launch.local import LocalLauncher
from harness.launch.watchdog import Reaper
from harness.metrics.command import metrics_report
from harness.probe import ENV_DIR
from harness.record import outdir
from harness.record.journal import Journal
from harness.supervise.log import LogWriter
from harness.supervise.preflight import Plan
from harness.watch.usage import UsageMeter

LOOK_S = 0.2
"""Seconds between two looks at memory: what lives shorter is not seen."""
LIMIT_S = 1800.0
"""A smoke that takes longer is stopped, where --run-timeout says nothing."""
GRACE_S = 20.0


def run_smokes(plan: Plan, journal: Journal, say: Callable[[str], None], must_end: Callable[[], bool]) -> bool:
    """Run every smoke of the command until one fails, and journal each; whether the job fits."""
    root = plan.spec.out_dir / outdir.SMOKE
    if not plan.smokes:
        journal.write("smoke", name="none", problem="the adapter of this framework knows no smoke", proposals=[])
        return False
    shutil.rmtree(root, ignore_errors=True)
    for smoke in plan.smokes:
        place = root / smoke.name
        place.mkdir(parents=True)
        say(f"Smoke ({smoke.name}): {' '.join(plan.redactor.argv(list(smoke.argv)))}")
        facts = _run(plan, smoke, place, must_end, journal)
        fits = _fits(smoke, facts)
        facts["proposals"] = [] if fits or plan.capacity is None else proposals(plan.capacity)
        journal.write("smoke", **facts)
        say(_line(facts, fits))
        if not fits:
            return False
    return True


def _fits(smoke: Smoke, facts: dict[str, Any]) -> bool:
    return facts["exit_code"] == 0 and (not smoke.executed_tags or bool(facts["updates"]))


def _line(facts: dict[str, Any], fits: bool) -> str:
    gpu = f", GPU {facts['peak_gpu_bytes'] / 1e9:.1f} GB" if facts.get("peak_gpu_bytes") else ""
    verdict = "fits" if fits else f"does not fit: exit code {facts['exit_code']}"
    peak = (facts.get("peak_memory_bytes") or 0) / 1e6
    return f"Smoke ({facts['name']}): {verdict}; peak {peak:.0f} MB{gpu}; capacity evidence only"


def _run(
    plan: Plan, smoke: Smoke, place: Path, must_end: Callable[[], bool], journal: Journal
) -> dict[str, Any]:
    """{name, argv, exit_code, signal, seconds, peak_memory_bytes, peak_gpu_bytes, updates, log, problem}."""
    log = LogWriter(place / "output.log", plan.redactor.stream())
    environ = {key: value for key, value in plan.environment.items() if key != ENV_DIR}
    limit_s, began = plan.spec.run_timeout_s or LIMIT_S, time.monotonic()
    token = f"{plan.spec.run_id}-smoke-{time.time_ns()}"
    ended: Exit | None = None
    problem = ""
    with Reaper(token, plan.spec.out_dir / outdir.JOURNAL, grace_s=GRACE_S) as reaper:
        launcher = LocalLauncher(token, exclude=frozenset({reaper.pid}))
        peaks = _Peaks(UsageMeter(launcher.family, environ))
        try:
            launcher.submit(smoke.argv, cwd=plan.spec.workdir, env=environ)
            while (ended := launcher.poll()) is None:
                log.feed(launcher.read_output(LOOK_S))
                peaks.look()
                if must_end() or time.monotonic() - began > limit_s:
                    problem = "the run was asked to end" if must_end() else f"no end after {limit_s:g} s"
                    break
        except LaunchError as error:
            problem = str(error)
        finally:
            _stop(launcher, log)
    return {
        "name": smoke.name, "argv": plan.redactor.argv(list(smoke.argv)), "exit_code": ended.code if ended else None,
        "signal": ended.signal if ended else None, "seconds": round(time.monotonic() - began, 3),
        "peak_memory_bytes": peaks.memory, "peak_gpu_bytes": peaks.gpu, "updates": _updates(smoke, place),
        "log": outdir.relative(plan.spec.out_dir, str(place / "output.log")),
        "problem": plan.redactor.text(problem or log.last_exception()[0] or "")[:500],
    }


class _Peaks:
    """The most that was seen at one moment; of a GPU what came on top of what others used before."""

    def __init__(self, meter: UsageMeter) -> None:
        self.meter = meter
        self.memory = 0
        self.gpu: int | None = None
        before = meter.look().gpu
        self._before = before.used_bytes if before else 0

    def look(self) -> None:
        usage = self.meter.look()
        self.memory = max(self.memory, usage.memory_bytes or 0)
        if usage.gpu is not None:
            self.gpu = max(self.gpu or 0, usage.gpu.used_bytes - self._before, 0)


def _updates(smoke: Smoke, place: Path) -> int | None:
    """Steps with a tag that proves an update; None for a smoke that writes none."""
    if not smoke.executed_tags:
        return None
    try:
        found = metrics_report(place / "metrics", [], 1)
    except RecordError:
        return 0
    steps = {point["step"] for key, points in found["series"].items()
             if any(re.search(pattern, key) for pattern in smoke.executed_tags) for point in points}
    return len(steps)


def _stop(launcher: LocalLauncher, log: LogWriter) -> None:
    """Whatever is left of it; then the rest of its output."""
    if launcher.pid is not None:
        for number, grace_s in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, 5.0)):
            if launcher.poll() is not None and not launcher.stragglers():
                break
            launcher.signal(number, group=True)
            until = time.monotonic() + grace_s
            while (launcher.poll() is None or launcher.stragglers()) and time.monotonic() < until:
                log.feed(launcher.read_output(LOOK_S))
        while data := launcher.read_output(0.0):
            log.feed(data)
        launcher.leader_ended()
    log.close()
