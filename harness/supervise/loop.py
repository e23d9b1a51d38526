"""One run under its supervisor: preflight, launch, watch, drain, collect, judge."""

from __future__ import annotations

import os
import selectors
import signal
import time
from dataclasses import replace

from harness import __version__
from harness.errors import LaunchError
from harness.judge.report import write_report
from harness.judge.summary import best_line
from harness.launch import processes
from harness.launch.base import Exit, Handle
from harness.launch.local import LocalLauncher
from harness.launch.watchdog import Reaper
from harness.record import outdir
from harness.record.files import write_json
from harness.record.journal import Journal
from harness.spec import RunSpec
from harness.supervise.collect import Collection
from harness.supervise.preflight import Plan, masked_command, preflight, redactor_for
from harness.supervise.reload import reload_delivered
from harness.watch.pace import Pace
from harness.watch.progress import ProgressWriter

POLL_S = 0.5
"""Seconds between two looks at metric files while nothing else wakes the loop."""


DRAIN_PAUSE_S = 0.2
AT_CAP_S = 60.0
"""How long a trainer may stand at its cap before it is stopped: a final save takes its time."""
OUTPUT_PAUSE_S = 0.05
BUSY_BYTES = 64 << 10
"""After little output the loop pauses, so that a trainer that prints line by line does not wake it each time."""


class Supervisor:
    """One run. `run` returns when the report is written."""

    def __init__(self, spec: RunSpec, owner: int | None) -> None:
        self.spec = spec
        self.owner = owner
        """File descriptor of the owner's pipe; None once it is of no interest any more."""
        self.stop_reason: str | None = None
        self._stage = 0
        self._next_stage_at = 0.0
        self._at_cap_since: float | None = None

    def run(self) -> None:
        """Lease, preflight, launch, watch, collect, judge. ConfigError or LeaseHeld when the out-dir cannot be used."""
        outdir.prepare(self.spec.out_dir)
        with outdir.Lease(self.spec.out_dir):
            outdir.archive_earlier_run(self.spec.out_dir)
            self._run_leased()

    def _run_leased(self) -> None:
        out_dir = self.spec.out_dir
        redactor = redactor_for(self.spec, os.environ)
        asked = replace(self.spec, train_cmd=masked_command(self.spec.train_cmd, redactor))
        write_json(out_dir / outdir.RUN_SPEC, {"harness_version": __version__, **redactor.json(asked.to_json())})
        with Journal(out_dir / outdir.JOURNAL, redact=redactor.json) as journal:
            self.journal = journal
            self.progress = ProgressWriter(out_dir / outdir.PROGRESS, Pace(
                interval_s=self.spec.interval_s, max_interval_s=self.spec.max_interval_s, backoff=self.spec.backoff))
            journal.write(
                "run-started", run_id=self.spec.run_id, session=self.spec.session, harness_version=__version__,
                supervisor_pid=os.getpid(),
            )
            plan = preflight(self.spec, journal=journal, say=self.progress.say, redactor=redactor)
            if plan is not None:
                self._launch_and_watch(plan)
                reload_delivered(plan, journal, self._must_end)
            journal.write("run-finished", stop_reason=self.stop_reason, journal_lines_lost=journal.failed)
        report = write_report(out_dir)
        if report["best_checkpoint"] is not None:
            self.progress.say(f"Best checkpoint: {best_line(report)}")
        self.progress.close()

    def _must_end(self) -> bool:
        """Whether the owner asked for an end, or is gone."""
        if self.owner is not None and _readable(self.owner):
            self._hear_owner()
        return self.stop_reason in ("cancelled", "owner-lost")

    def _launch_and_watch(self, plan: Plan) -> None:
        spec = self.spec
        token = f"{spec.run_id}-{os.getpid()}-{time.time_ns()}"
        processes.adopt_orphans()
        with Reaper(token, spec.out_dir / outdir.JOURNAL, grace_s=spec.stop_grace_s) as reaper:
            launcher = LocalLauncher(token, exclude=frozenset({reaper.pid}))
            collection = Collection(plan, self.journal, launcher)
            with collection:
                try:
                    started = time.time()
                    handle = launcher.submit(plan.argv, cwd=spec.workdir, env=plan.environment)
                except LaunchError as error:
                    self.journal.write("launch-failed", message=str(error))
                    self.progress.say(f"Launch failed: {error}")
                    return
                self.journal.write("attempt-started", attempt=1, launched_at=started, handle=handle.to_json(),
                                   log=outdir.TRAIN_LOG)
                self.progress.say(f"Launching training... PID {handle.pid}")
                collection.launched(started)
                ended = self._watch(plan, launcher, collection, handle, started)
                self._drain(launcher, collection, ended)
                collection.finish()

    def _watch(
        self, plan: Plan, launcher: LocalLauncher, collection: Collection, handle: Handle, started: float
    ) -> Exit:
        """Until the leader ends: output as it comes, metrics every POLL_S, limits when they are due."""
        confirmed = False
        next_poll = 0.0
        with selectors.DefaultSelector() as selector:
            waiting = self._register(selector, launcher)
            while (ended := launcher.poll()) is None:
                if waiting != (launcher.wait_sources(), self.owner):
                    waiting = self._register(selector, launcher)
                for key, _ in selector.select(timeout=max(0.0, min(POLL_S, next_poll - time.monotonic()))):
                    if key.fileobj == self.owner:
                        self._hear_owner()
                if 0 < collection.take_output() < BUSY_BYTES:
                    time.sleep(OUTPUT_PAUSE_S)
                now = time.monotonic()
                if now >= next_poll:
                    collection.poll()
                    if (line := collection.early_stop.check()) is not None:
                        self.progress.say(line)
                        self.ask_stop("early-stop")
                    next_poll = time.monotonic() + max(POLL_S, 10 * (time.monotonic() - now))
                    self.progress.report(collection.snapshot, time.time() - started)
                if not confirmed and self.stop_reason is None and time.time() - started >= self.spec.crash_window_s:
                    confirmed = self._confirm(handle)
                self._enforce(plan, launcher, collection, time.time() - started)
        if not confirmed and ended.code == 0 and self.stop_reason is None:
            self._confirm(handle)
        self.journal.write("attempt-ended", attempt=1, exit_code=ended.code, signal=ended.signal,
                           ended_at=time.time(), seconds=time.time() - started, stop_reason=self.stop_reason,
                           resumed_from=None)
        launcher.leader_ended()
        return ended

    def _register(self, selector: selectors.BaseSelector, launcher: LocalLauncher) -> tuple[list[int], int | None]:
        for key in list(selector.get_map().values()):
            selector.unregister(key.fileobj)
        sources = launcher.wait_sources()
        for source in [*sources, *([self.owner] if self.owner is not None else [])]:
            selector.register(source, selectors.EVENT_READ)
        return sources, self.owner

    def _confirm(self, handle: Handle) -> bool:
        self.journal.write("process-confirmed", pid=handle.pid)
        log = self.spec.out_dir / outdir.TRAIN_LOG
        self.progress.say(f"PID {handle.pid} confirmed running. Watching it (log: {log})")
        return True

    def _hear_owner(self) -> None:
        assert self.owner is not None
        told = os.read(self.owner, 4096)
        if b"cancel" in told:
            self.ask_stop("cancelled")
        if not told:
            self.owner = None
            self.ask_stop("owner-lost")

    def ask_stop(self, reason: str) -> None:
        """Ask for an end of the run; the first reason counts."""
        if self.stop_reason is None:
            self.stop_reason = reason
            self.journal.write("stop-requested", reason=reason)
            self.progress.say(f"Stopping the run: {reason}")

    def _enforce(self, plan: Plan, launcher: LocalLauncher, collection: Collection, age_s: float) -> None:
        limit = self.spec.run_timeout_s
        if limit is not None and age_s >= limit:
            self.ask_stop("timeout")
        if plan.cap_steps is not None and self._is_beyond(collection.completed_steps(), plan.cap_steps):
            self.ask_stop("cap")
        if plan.cap_epochs is not None and collection.completed_epochs() >= plan.cap_epochs:
            self.ask_stop("cap")
        if self.stop_reason is not None:
            self._escalate(launcher)

    def _is_beyond(self, steps: int, cap: int) -> bool:
        """At the cap a trainer may be saving before it ends by itself; beyond it, or after a while, it goes on."""
        if steps < cap:
            return False
        self._at_cap_since = self._at_cap_since or time.monotonic()
        return steps > cap or time.monotonic() - self._at_cap_since > AT_CAP_S

    def _escalate(self, launcher: LocalLauncher) -> None:
        """SIGTERM to the leader, to the group after a grace, then SIGKILL: children must not die before the save."""
        stages = ((signal.SIGTERM, False), (signal.SIGTERM, True), (signal.SIGKILL, True))
        if self._stage >= len(stages) or time.monotonic() < self._next_stage_at:
            return
        number, group = stages[self._stage]
        launcher.signal(number, group=group)
        self.journal.write("signal-sent", signal=number.name, group=group)
        self._stage += 1
        self._next_stage_at = time.monotonic() + self.spec.stop_grace_s

    def _drain(self, launcher: LocalLauncher, collection: Collection, ended: Exit) -> None:
        """After the leader: children may finish within the drain grace, then they are reported and stopped."""
        grace = self.spec.drain_grace_s if ended.code == 0 and self.stop_reason is None else 0.0
        deadline = time.monotonic() + grace
        while (left := launcher.stragglers()) and time.monotonic() < deadline:
            if self.owner is not None and _readable(self.owner):
                self._hear_owner()
                if self.stop_reason is not None:
                    break
            collection.take_output()
            collection.poll()
            time.sleep(DRAIN_PAUSE_S)
        while collection.take_output():
            pass
        if not left:
            return
        self.journal.write("stragglers", processes=[
            {"pid": item.pid, "command": item.command, "detached": item.detached} for item in left])
        self.progress.say(f"Stopping {len(left)} process(es) that outlived the trainer")
        for number, grace_s in ((signal.SIGTERM, min(5.0, self.spec.stop_grace_s)), (signal.SIGKILL, 5.0)):
            launcher.signal(number, group=True)
            until = time.monotonic() + grace_s
            while launcher.stragglers() and time.monotonic() < until:
                collection.take_output()
                time.sleep(OUTPUT_PAUSE_S)
            if not launcher.stragglers():
                break


def _readable(descriptor: int) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        return bool(selector.select(timeout=0))
