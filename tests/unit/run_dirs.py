"""Out-dirs made by hand, with the journal and metric store that a supervisor would leave."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.frameworks.base import FrameworkFacts
from harness.record import outdir
from harness.record.events import MetricEvent
from harness.record.files import write_json
from harness.record.journal import Journal
from harness.record.store import MetricStore
from harness.spec import RunSpec


@dataclass(frozen=True, kw_only=True)
class RunDir:
    """A healthy run of 10 steps; every field can be changed to break it."""

    facts: FrameworkFacts = field(default_factory=lambda: FrameworkFacts(
        name="torch", reason="train.py imports torch", target_steps=10, target_source="--max-steps"))
    loss: tuple[float, ...] = tuple(3.0 / step for step in range(1, 11))
    grad_norm: tuple[float, ...] = (1.0,) * 10
    lr: tuple[float, ...] = (0.1,) * 10
    extra: dict[str, tuple[float, ...]] = field(default_factory=dict)
    """Further series by tag, at the same steps."""
    overrides: tuple[dict[str, Any], ...] = ()
    effective: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Settings as the trainer says that it used them."""
    first_step: int = 1
    steps: tuple[int, ...] = ()
    """Metric steps; empty for consecutive ones from first_step."""
    exception: str | None = None
    exception_is_last: bool = False
    cuts: dict[str, int] | None = None
    """What the log tells of trajectories that the context cut."""
    argv: tuple[str, ...] = ("python", "train.py")
    exit_code: int | None = 0
    signal: str | None = None
    stop_reason: str | None = None
    probe: dict[str, Any] | None = field(default_factory=lambda: {
        "steps": 10, "optimizers_created": 1, "lr_positive_steps": 10, "scaler_skips": 0, "world_size": None,
        "clean_exit": True, "grad": {"checked": 4, "nonzero": 4}})
    processes: tuple[dict[str, Any], ...] | None = None
    """Processes that the probe saw, instead of the one of `probe`."""
    topology: dict[str, Any] | None = None
    """What the launchers were told to start."""
    checkpoints: dict[str, Any] | None = None
    reload: tuple[dict[str, Any], ...] = ()
    """Facts of reloads."""
    samples: dict[str, Any] | None = None
    resume: dict[str, Any] | None = None
    """What --check-resume found."""
    ended: bool = True
    earlier: int = 0
    """Launches before the one that ended, each of which lost its connection."""
    spec: dict[str, Any] = field(default_factory=dict)

    def write(self, out_dir: Path) -> Path:
        """Make the out-dir."""
        out_dir.mkdir(parents=True, exist_ok=True)
        spec = RunSpec(train_cmd="python train.py", out_dir=out_dir, workdir=out_dir, run_id="made", **self.spec)
        write_json(out_dir / outdir.RUN_SPEC, {"harness_version": "0", **spec.to_json()})
        now = time.time()
        with Journal(out_dir / outdir.JOURNAL) as journal:
            journal.write("run-started", run_id="made", session="", harness_version="0", supervisor_pid=1)
            journal.write("command", text="python train.py", argv=list(self.argv), cwd=str(out_dir),
                          env_changes={}, entrypoint="train.py", facts=self.facts.to_json(),
                          topology=self.topology, overrides=list(self.overrides), findings=[])
            journal.write("environment", environment={
                "host": "here", "os": {"system": "Linux"}, "python": {"version": "3"}, "packages": {"torch": "2"},
                "accelerators": []}, commit={"sha": None, "reason": "not a repository"})
            journal.write("inventory", files=0, roots=[])
            for number in range(1, self.earlier + 1):
                began = now - 60.0 * (self.earlier + 1 - number)
                journal.write("attempt-started", attempt=number, launched_at=began, handle={}, log="train.log")
                journal.write("attempt-ended", attempt=number, exit_code=1, signal=None, ended_at=began + 30,
                              seconds=30.0, stop_reason=None, resumed_from=None)
                journal.write("restart-decision", attempt=number, restart=True, cause="connection-lost",
                              line="ConnectionResetError", why_not="")
            last = self.earlier + 1
            journal.write("attempt-started", attempt=last, launched_at=now, handle={}, log=outdir.train_log(last))
            if self.stop_reason:
                journal.write("signal-sent", signal="SIGTERM", group=False)
            if self.ended:
                journal.write("attempt-ended", attempt=last, exit_code=self.exit_code, signal=self.signal,
                              ended_at=now + 20, seconds=20.0, stop_reason=self.stop_reason, resumed_from=None)
                points = self._metrics(out_dir, now)
                journal.write("sources", sources=[{
                    "kind": "tensorboard", "path": "events", "sha256": None, "bytes_read": 1, "points": points,
                    "stale_points": 0, "foreign_points": 0, "last_step": None, "last_wall_time": None,
                    "still_there": False, "ownership": "own", "problems": []}] if points else [], problems=[])
                if self.effective:
                    journal.write("effective-values", values=self.effective)
                journal.write("log-end", exception=self.exception, is_last=self.exception_is_last, bytes=0,
                              lost_bytes=0, **({"cuts": self.cuts} if self.cuts else {}))
                processes = list(self.processes if self.processes is not None else [self.probe] if self.probe else [])
                journal.write("probe", facts={"loaded": bool(processes), "processes": processes, "problems": []})
                journal.write("checkpoints", facts=self.checkpoints or {"checkpoints": [], "last_step": None})
                for facts in self.reload:
                    journal.write("reload", facts=facts)
                if self.resume is not None:
                    journal.write("resume-check", **self.resume)
                if self.samples:
                    journal.write("samples", **self.samples)
                journal.write("run-finished", stop_reason=self.stop_reason, journal_lines_lost=0)
        return out_dir

    def _metrics(self, out_dir: Path, now: float) -> int:
        events = [MetricEvent(tag, self.steps[index] if self.steps else self.first_step + index, value, now + index)
                  for tag, values in (("train/loss", self.loss), ("train/grad_norm", self.grad_norm),
                                      ("train/lr", self.lr), *self.extra.items())
                  for index, value in enumerate(values)]
        with MetricStore.create(out_dir / outdir.METRICS_DB) as store:
            source = store.add_source(kind="tensorboard", path="events", attempt=self.earlier + 1)
            store.append(source, events, observed_at=now)
        return len(events)
