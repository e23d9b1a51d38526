"""A run that others started, watched to its end. It is never signalled: the watch alone ends."""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import time
from dataclasses import dataclass, replace
from pathlib import Path

from harness import __version__
from harness.attach.base import ByteSource
from harness.attach.local_file import LocalFile
from harness.attach.processes import Living, find_named, find_pid, find_writer
from harness.attach.ssh import RemoteFile, SshFile
from harness.attach.target import Target, parse_target
from harness.command.model import TrainingCommand
from harness.environment import commit_facts, record_environment
from harness.errors import CommandError
from harness.judge.report import write_report
from harness.metrics.discovery import walk
from harness.metrics.tracker_end import mlflow_runs, wandb_run
from harness.record import outdir
from harness.record.journal import Journal
from harness.record.redaction import Redactor
from harness.record.vocabulary import TargetType
from harness.spec import RunSpec
from harness.supervise.asserted import copy_log, journal_command, plan_of, write_spec
from harness.supervise.collect import OUTPUT_BURST_BYTES, Collection
from harness.supervise.preflight import Plan, redactor_for
from harness.watch.ending import Ending, ending_of, tracked_ending
from harness.watch.pace import Pace
from harness.watch.progress import ProgressWriter

POLL_S = 0.6
"""Seconds between two looks at a job that others started, also at one that prints without a pause."""
SETTLE_S = 5.0
"""A log that says how the run ended is believed when nothing was added to it for so long."""
WRITER_LOOK_S = 10.0
"""Seconds between two searches for the process that writes a log."""
READ_BYTES = 1 << 20
REPORT_TIMEOUT_S = 60.0


@dataclass(slots=True)
class AttachedJob:
    """The job as its collection sees it: what it prints, and its processes where they are here."""

    source: ByteSource | None
    process: Living | None

    def family(self) -> set[int]:
        """Living processes of the run on this machine, none where none is known."""
        return self.process.family() if self.process is not None else set()

    def leave_out(self, pid: int) -> None:
        """A helper is a child of the watch, never of the job."""

    def read_output(self, timeout_s: float) -> bytes:
        """What the source has now; never waits."""
        return self.source.read(READ_BYTES) if self.source is not None else b""


class AttachedSupervisor:
    """One watch. `run` returns when the report is written."""

    def __init__(self, spec: RunSpec, owner: int | None, *, once: bool = False) -> None:
        """`once`: a single look at what is there now."""
        self.spec = spec
        self.owner = owner
        """File descriptor of the owner's pipe; None once it is of no interest any more."""
        self.once = once
        self.is_running = True
        """Whether the run was still going on when the watch ended."""
        self.stop_reason: str | None = None
        self._wrote_at = time.time()
        self._next_writer_look = 0.0
        self._writer_gone_at: float | None = None
        self._more_logs: list[Path] = []
        """Where else the process prints; taken at the end."""

    def ask_stop(self, reason: str) -> None:
        """End the watch; the first reason counts."""
        self.stop_reason = self.stop_reason or reason

    def run(self) -> None:
        """Find the target, watch it, collect, judge. ConfigError for a target or an out-dir that cannot be used."""
        target = parse_target(self.spec.attach or "", self.spec.workdir)
        process = find_pid(target.pid) if target.pid else find_named(target.name) if target.name else None
        source = self._source(target, process)
        try:
            outdir.prepare(self.spec.out_dir)
            with outdir.Lease(self.spec.out_dir):
                given = [target.path] if target.path is not None else process.logs() if process is not None else []
                outdir.refuse_foreign_files(self.spec.out_dir, given)
                outdir.archive_earlier_run(self.spec.out_dir)
                self._run_leased(target, AttachedJob(source, process))
        finally:
            if source is not None:
                source.close()

    def _source(self, target: Target, process: Living | None) -> ByteSource | None:
        if target.type is TargetType.LOCAL_LOG and target.path is not None:
            return LocalFile(target.path)
        if target.destination is not None:
            return SshFile(RemoteFile(destination=target.destination, path=target.remote_path,
                                      config=self.spec.ssh_config))
        logs = process.logs() if process is not None else []
        self._more_logs = logs[1:]
        return LocalFile(logs[0]) if logs else None

    def _run_leased(self, target: Target, job: AttachedJob) -> None:
        self.target = target
        redactor = redactor_for(self.spec, {**os.environ, **(job.process.environ if job.process else {})})
        spec, plan, command = self._plan(target, job.process, redactor)
        write_spec(spec, plan.redactor)
        with Journal(spec.out_dir / outdir.JOURNAL, redact=plan.redactor.json) as journal:
            self.journal = journal
            self.progress = ProgressWriter(spec.out_dir / outdir.PROGRESS, Pace(
                interval_s=spec.interval_s, max_interval_s=spec.max_interval_s, backoff=spec.backoff))
            journal.write("run-started", run_id=spec.run_id, session=spec.session, harness_version=__version__,
                          supervisor_pid=os.getpid())
            journal.write("attached", target=target.text, target_type=target.type.value)
            journal_command(journal, plan, command)
            if job.process is not None:
                self._record_environment(job.process, spec)
            self._watch_run(plan, job)
            journal.write("run-finished", stop_reason=self.stop_reason, journal_lines_lost=journal.failed)
        write_report(spec.out_dir)
        self.progress.close()

    def _plan(
        self, target: Target, process: Living | None, redactor: Redactor
    ) -> tuple[RunSpec, Plan, TrainingCommand | None]:
        """A process tells its command and directory; of a log alone no command is known."""
        spec = replace(self.spec, probe=False)
        if target.type in (TargetType.WANDB, TargetType.MLFLOW):
            spec = replace(spec, metrics_dir=target.path)
        if process is not None and process.argv:
            told = replace(spec, train_cmd=shlex.join(process.argv), workdir=process.cwd or spec.workdir)
            told_redactor = redactor_for(told, {**os.environ, **process.environ})
            try:
                return told, *plan_of(told, told_redactor)
            except CommandError:
                redactor = told_redactor
        logs = [target.path] if target.type is TargetType.LOCAL_LOG and target.path else []
        return spec, *plan_of(spec, redactor, logs)

    def _record_environment(self, process: Living, spec: RunSpec) -> None:
        environment = record_environment(workdir=spec.workdir, reports=(), environ=process.environ or os.environ,
                                         timeout=REPORT_TIMEOUT_S, interpreter=process.interpreter)
        self.journal.write("environment", environment=environment, commit=commit_facts(spec.workdir))

    def _watch_run(self, plan: Plan, job: AttachedJob) -> None:
        launched = job.process.create_time if job.process is not None else None
        with Collection(plan, self.journal, job, is_launch=False) as collection:
            collection.outputs[plan.spec.out_dir / outdir.TRAIN_LOG] = 0.0
            if plan.facts.reads_output:
                collection.metrics.add_output(plan.spec.out_dir / outdir.TRAIN_LOG)
            self.journal.write(
                "attempt-started", attempt=1, launched_at=launched, log=outdir.TRAIN_LOG, asserted=launched is None,
                handle={"kind": self.target.type.value, "pid": job.process.pid if job.process else None})
            self.progress.say(f"Watching {self.target.text} ({self.target.type.value}); it is never signalled")
            collection.launched(launched or 0.0)
            began = time.time()
            self._follow(plan, job, collection, began)
            self._end(plan, collection, job, launched)

    def _follow(self, plan: Plan, job: AttachedJob, collection: Collection, began: float) -> None:
        """Until the run has ended, the owner has gone, or nothing was written for the idle budget."""
        while self.stop_reason is None:
            taken = collection.take_output()
            points = collection.poll()
            self._note(job)
            for news in collection.check_anomalies():
                self.progress.say(news)
            if taken or points:
                self._wrote_at = time.time()
            current = not taken and (job.source is None or job.source.is_current)
            self.progress.report(collection.snapshot, time.time() - began)
            if current and self._has_ended(plan, job, collection):
                self.is_running = False
                return
            if self.once and current:
                self.stop_reason = "once"
                return
            if not current and time.time() - self._wrote_at >= self.spec.idle_timeout_s:
                self.ask_stop("connection-lost")
            if taken < (1 if self.once else OUTPUT_BURST_BYTES):
                self._wait()

    def _note(self, job: AttachedJob) -> None:
        for notice in job.source.notices() if job.source is not None else []:
            self.journal.write("source-notice", kind=notice.kind, message=notice.message)
            self.progress.say(f"{notice.kind}: {notice.message}")

    def _wait(self) -> None:
        if self.owner is None:
            time.sleep(POLL_S)
            return
        if select.select([self.owner], [], [], POLL_S)[0]:
            told = os.read(self.owner, 4096)
            if b"cancel" in told:
                self.ask_stop("cancelled")
            elif not told:
                self.owner = None
                self.ask_stop("owner-lost")

    def _has_ended(self, plan: Plan, job: AttachedJob, collection: Collection) -> bool:
        """Whether its process is gone; where none is known, whether its log or its tracker says so, or it stands still
        for too long."""
        if self.target.type is TargetType.PID:
            return job.process is None or not job.process.is_alive()
        if self._is_written(job):
            return False
        if self._writer_gone_at is not None and time.monotonic() - self._writer_gone_at >= SETTLE_S:
            return True
        idle_s = time.time() - (self._written_at(job) or self._wrote_at)
        is_settled = idle_s >= SETTLE_S or self.once or self._writer_gone_at is not None
        if is_settled and ending_of(plan.spec.out_dir / outdir.TRAIN_LOG, plan.redactor) is not None:
            return True
        collection.tracked_end = self._tracked_end(collection) if is_settled else None
        if collection.tracked_end is not None:
            return True
        if idle_s < self.spec.idle_timeout_s:
            return False
        self.ask_stop("idle")
        return True

    def _tracked_end(self, collection: Collection) -> Ending | None:
        if self.target.type is TargetType.WANDB:
            return tracked_ending([wandb_run(*told) for told in collection.metrics.wandb_exits().items()])
        if self.target.type is TargetType.MLFLOW and self.target.path is not None:
            return tracked_ending(mlflow_runs(self.target.path))
        return None

    def _written_at(self, job: AttachedJob) -> float:
        """When the target was last written by this machine's clock; 0 where only our own looks tell."""
        if self.target.type is TargetType.LOCAL_LOG and job.source is not None:
            return job.source.written_at
        if self.target.type in (TargetType.WANDB, TargetType.MLFLOW) and self.target.path is not None:
            return max((found.mtime for found in walk(self.target.path) if not isinstance(found, str)), default=0.0)
        return 0.0

    def _is_written(self, job: AttachedJob) -> bool:
        """Whether a process is known that writes a log here: its end is the run's, unless another one goes on."""
        if job.process is not None and job.process.is_alive():
            return True
        if job.process is not None:
            job.process, self._next_writer_look = None, 0.0
            self._writer_gone_at = self._writer_gone_at or time.monotonic()
        if not isinstance(job.source, LocalFile) or time.monotonic() < self._next_writer_look:
            return False
        self._next_writer_look = time.monotonic() + WRITER_LOOK_S / (1 if self._writer_gone_at is None else 4)
        job.process = find_writer(job.source.identity)
        if job.process is None:
            return False
        self._writer_gone_at = None
        self.progress.say(f"PID {job.process.pid} writes it")
        self.journal.write("process-confirmed", pid=job.process.pid)
        return True

    def _end(self, plan: Plan, collection: Collection, job: AttachedJob, launched: float | None) -> None:
        """The last bytes, and the end as far as it was seen: the exit code of another's process never is."""
        while collection.take_output():
            pass
        self._note(job)
        ended_at = time.time()
        written_at = job.source.written_at if job.source is not None else 0.0
        collection.outputs[self.spec.out_dir / outdir.TRAIN_LOG] = written_at or ended_at
        for number, log in enumerate(self._more_logs, start=2):
            with contextlib.suppress(OSError):
                collection.outputs[copy_log(log, number, plan, collection, number)] = log.stat().st_mtime
        if not self.is_running or self.stop_reason == "idle":
            self.journal.write(
                "attempt-ended", attempt=1, exit_code=None, signal=None, ended_at=ended_at,
                seconds=ended_at - launched if launched is not None else None, stop_reason=self.stop_reason,
                resumed_from=None, asserted=True)
        else:
            self.progress.say(f"The watch ends ({self.stop_reason}); the run goes on")
        collection.finish()


