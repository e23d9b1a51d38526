"""One launch of the command: watched to the end of its leader, then drained to the end of its last process."""

from __future__ import annotations

import contextlib
import selectors
import signal
import time
from dataclasses import dataclass

from harness.errors import LaunchError
from harness.launch.base import Exit, Handle
from harness.launch.local import LocalLauncher
from harness.record import outdir
from harness.record.journal import Journal
from harness.supervise.collect import Collection
from harness.supervise.preflight import Plan
from harness.supervise.stopping import Stopping, is_readable
from harness.watch.progress import ProgressWriter

POLL_S = 0.7
"""Seconds between two looks at metric files: what is written is noticed within a second."""
POLL_COST_FACTOR = 2
"""A look that takes much CPU time is followed by a pause so many times longer."""
DRAIN_PAUSE_S = 0.2
OUTPUT_PAUSE_S = 0.25
"""After little output the loop is deaf to more for so long, so that a trainer that prints line by line does not wake
it each time; an end of the trainer wakes it all the same."""
BUSY_BYTES = 64 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What all attempts of a run share."""

    plan: Plan
    journal: Journal
    progress: ProgressWriter
    stopping: Stopping
    launcher: LocalLauncher
    collection: Collection


class Attempt:
    """The `number`th launch (from 1) of a run that began at `run_began`, seconds since the epoch."""

    def __init__(self, run: Run, number: int, run_began: float | None = None) -> None:
        self.run = run
        self.number = number
        self.began = 0.0
        """Launch, seconds since the epoch."""
        self.run_began = run_began
        self._next_poll = 0.0
        self._deaf_until = 0.0
        self._confirmed = False

    def launch(self) -> Handle | None:
        """Start the command; None where the system refuses."""
        run, spec = self.run, self.run.plan.spec
        try:
            self.began = time.time()
            self.run_began = self.run_began or self.began
            handle = run.launcher.submit(run.plan.argv, cwd=spec.workdir, env=run.plan.environment)
        except LaunchError as error:
            run.journal.write("launch-failed", message=str(error), attempt=self.number)
            run.progress.say(f"Launch failed: {error}")
            return None
        newest = run.collection.newest_step() if self.number > 1 else None
        run.journal.write("attempt-started", attempt=self.number, launched_at=self.began, handle=handle.to_json(),
                          log=outdir.train_log(self.number), after_step=newest)
        run.progress.say(f"Launching training... PID {handle.pid}")
        run.collection.launched(self.began)
        return handle

    def watch(self, handle: Handle) -> Exit:
        """Until the leader ends: output as it comes, metrics every POLL_S, limits when they are due."""
        run = self.run
        with selectors.DefaultSelector() as selector:
            while (ended := run.launcher.poll()) is None:
                self._await(selector)
                self._take_output()
                if time.monotonic() >= self._next_poll:
                    self._look()
                if not self._confirmed and run.stopping.reason is None and (
                    time.time() - self.began >= run.plan.spec.crash_window_s
                ):
                    self._confirm(handle)
                run.stopping.enforce(run.plan, run.launcher, run.collection, time.time() - (self.run_began or 0.0))
        if not self._confirmed and ended.code == 0 and run.stopping.reason is None:
            self._confirm(handle)
        run.journal.write("attempt-ended", attempt=self.number, exit_code=ended.code, signal=ended.signal,
                          ended_at=time.time(), seconds=time.time() - self.began, stop_reason=run.stopping.reason,
                          resumed_from=None)
        run.launcher.leader_ended()
        return ended

    def _await(self, selector: selectors.BaseSelector) -> None:
        """Wait for output, the leader's end, the owner's word, or the next look, whichever is first."""
        now, stopping = time.monotonic(), self.run.stopping
        deaf = now < self._deaf_until
        wanted = {*self.run.launcher.wait_sources(output=not deaf)}
        wanted |= {stopping.owner} if stopping.owner is not None else set()
        known = {key.fd for key in selector.get_map().values()}
        for descriptor in known - wanted:
            with contextlib.suppress(KeyError, ValueError, OSError):
                selector.unregister(descriptor)
        for descriptor in wanted - known:
            selector.register(descriptor, selectors.EVENT_READ)
        until = min(self._next_poll, now + POLL_S, self._deaf_until if deaf else now + POLL_S)
        for key, _ in selector.select(timeout=max(0.0, until - now)):
            if key.fd == stopping.owner:
                stopping.hear_owner()

    def _take_output(self) -> None:
        now = time.monotonic()
        if now >= self._deaf_until and 0 < self.run.collection.take_output() < BUSY_BYTES:
            self._deaf_until = now + OUTPUT_PAUSE_S

    def _look(self) -> None:
        """Metrics, anomalies, early stopping, and the progress line when it is due."""
        run, began = self.run, time.process_time()
        run.collection.poll()
        for news in run.collection.check_anomalies():
            run.progress.say(news)
            run.progress.pace.eventful("anomaly")
        if run.collection.anomalies.stop is not None:
            run.stopping.ask("stop-on")
        if (line := run.collection.early_stop.check()) is not None:
            run.progress.say(line)
            run.stopping.ask("early-stop")
        self._next_poll = time.monotonic() + max(POLL_S, POLL_COST_FACTOR * (time.process_time() - began))
        run.progress.report(run.collection.snapshot, time.time() - (self.run_began or 0.0))

    def _confirm(self, handle: Handle) -> None:
        self._confirmed = True
        self.run.journal.write("process-confirmed", pid=handle.pid)
        log = self.run.plan.spec.out_dir / outdir.train_log(self.number)
        self.run.progress.say(f"PID {handle.pid} confirmed running. Watching it (log: {log})")

    def drain(self, ended: Exit) -> None:
        """After the leader: children may finish within the drain grace, then they are reported and stopped."""
        run, spec = self.run, self.run.plan.spec
        grace = spec.drain_grace_s if ended.code == 0 and run.stopping.reason is None else 0.0
        deadline = time.monotonic() + grace
        while (left := run.launcher.stragglers()) and time.monotonic() < deadline:
            if run.stopping.owner is not None and is_readable(run.stopping.owner):
                run.stopping.hear_owner()
                if run.stopping.reason is not None:
                    break
            run.collection.take_output()
            run.collection.poll()
            time.sleep(DRAIN_PAUSE_S)
        while run.collection.take_output():
            pass
        if not left:
            return
        run.journal.write("stragglers", processes=[
            {"pid": item.pid, "command": item.command, "detached": item.detached} for item in left])
        run.progress.say(f"Stopping {len(left)} process(es) that outlived the trainer")
        for number, grace_s in ((signal.SIGTERM, min(5.0, spec.stop_grace_s)), (signal.SIGKILL, 5.0)):
            run.launcher.signal(number, group=True)
            until = time.monotonic() + grace_s
            while run.launcher.stragglers() and time.monotonic() < until:
                run.collection.take_output()
                time.sleep(0.05)
            if not run.launcher.stragglers():
                break
