"""Who may end a run and how: its owner, a limit, an early stop; first asked, then told, then killed."""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Callable

from harness.launch.local import LocalLauncher
from harness.record.journal import Journal
from harness.spec import RunSpec
from harness.supervise.collect import Collection
from harness.supervise.preflight import Plan

AT_CAP_S = 60.0
"""How long a trainer may stand at its cap before it is stopped: a final save takes its time."""
STAGES = ((signal.SIGTERM, False), (signal.SIGTERM, True), (signal.SIGKILL, True))
"""SIGTERM to the leader, to the group after a grace, then SIGKILL: children must not die before the save."""


class Stopping:
    """The one place that asks for the end of a run; the first reason counts."""

    def __init__(self, spec: RunSpec, owner: int | None) -> None:
        self.spec = spec
        self.owner = owner
        """File descriptor of the owner's pipe; None once it is of no interest any more."""
        self.reason: str | None = None
        self._journal: Journal | None = None
        self._say: Callable[[str], None] | None = None
        self._stage = 0
        self._next_stage_at = 0.0
        self._at_cap_since: float | None = None

    def open(self, journal: Journal, say: Callable[[str], None]) -> None:
        """Where a stop is written down; one that was asked for before is now."""
        self._journal, self._say = journal, say
        if self.reason is not None:
            self._tell(self.reason)

    def ask(self, reason: str) -> None:
        """Ask for an end of the run."""
        if self.reason is None:
            self.reason = reason
            self._tell(reason)

    def _tell(self, reason: str) -> None:
        if self._journal is not None and self._say is not None:
            self._journal.write("stop-requested", reason=reason)
            self._say(f"Stopping the run: {reason}")

    def hear_owner(self) -> None:
        """What the owner says: `cancel`, or its end."""
        assert self.owner is not None
        told = os.read(self.owner, 4096)
        if b"cancel" in told:
            self.ask("cancelled")
        if not told:
            self.owner = None
            self.ask("owner-lost")

    def must_end(self) -> bool:
        """Whether the owner asked for an end, or is gone; looks whether it has something to say."""
        if self.owner is not None and is_readable(self.owner):
            self.hear_owner()
        return self.reason in ("cancelled", "owner-lost")

    def wait(self, seconds: float) -> None:
        """Sleep, but for a word of the owner."""
        until = time.monotonic() + seconds
        while self.reason is None and (left := until - time.monotonic()) > 0:
            if self.owner is None:
                time.sleep(min(left, 0.1))
            elif is_readable(self.owner, min(left, 0.1)):
                self.hear_owner()

    def enforce(self, plan: Plan, launcher: LocalLauncher, collection: Collection, age_s: float) -> None:
        """Look at the limits; `age_s`: seconds since the run's first launch. Signals are sent when they are due."""
        limit = self.spec.run_timeout_s
        if limit is not None and age_s >= limit:
            self.ask("timeout")
        if plan.cap_steps is not None and self._is_beyond(collection.completed_steps(), plan.cap_steps):
            self.ask("cap")
        if plan.cap_epochs is not None and collection.completed_epochs() >= plan.cap_epochs:
            self.ask("cap")
        if self.reason is not None:
            self._escalate(launcher)

    def _is_beyond(self, steps: int, cap: int) -> bool:
        """At the cap a trainer may be saving before it ends by itself; beyond it, or after a while, it goes on."""
        if steps < cap:
            return False
        self._at_cap_since = self._at_cap_since or time.monotonic()
        return steps > cap or time.monotonic() - self._at_cap_since > AT_CAP_S

    def _escalate(self, launcher: LocalLauncher) -> None:
        if self._stage >= len(STAGES) or time.monotonic() < self._next_stage_at:
            return
        number, group = STAGES[self._stage]
        launcher.signal(number, group=group)
        if self._journal is not None:
            self._journal.write("signal-sent", signal=number.name, group=group)
        self._stage += 1
        self._next_stage_at = time.monotonic() + self.spec.stop_grace_s


def is_readable(descriptor: int, timeout_s: float = 0.0) -> bool:
    """Whether there is something to read, or an end of file."""
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        return bool(selector.select(timeout=timeout_s))
