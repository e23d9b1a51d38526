"""Collects the facts of one run into its out-dir while they can be had."""

from __future__ import annotations

import math
import os
import resource
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from harness.checkpoints.inspect import inspect_run
from harness.checkpoints.inventory import Snapshot as SavedBefore
from harness.checkpoints.inventory import take_snapshot
from harness.checkpoints.marks import MARKED, is_delivered, seen_by, told_by_files
from harness.checkpoints.save_errors import find_save_errors, unwritable_root
from harness.diagnosis.read import announced_batch_sizes
from harness.errors import RecordError
from harness.frameworks.registry import effective_values
from harness.frameworks.trackers import TRACKER_NAMES
from harness.launch.base import Watched
from harness.metrics.collector import Latest, MetricCollector, SourceFact
from harness.probe.parsed import read_parsed
from harness.probe.reader import read_probe
from harness.record import outdir
from harness.record.journal import Journal
from harness.record.merge import PRINTED
from harness.record.store import MetricStore
from harness.supervise.anomalies import AnomalyWatch
from harness.supervise.cadence import logging_steps
from harness.supervise.early_stop import EarlyStopWatch
from harness.supervise.log import LogWriter
from harness.supervise.output import read_output
from harness.supervise.preflight import Plan
from harness.supervise.samples import sample_facts
from harness.supervise.stop_trace import printed_stop
from harness.supervise.told_restarts import told_restarts
from harness.supervise.told_updates import told_cuts, told_updates
from harness.watch.ending import Ending, ending_of
from harness.watch.progress import Snapshot, fits, pick_rate, pick_values
from harness.watch.usage import Peaks, UsageMeter

SHARED_DEFAULTS = ("runs", "logs", "lightning_logs", "tb_logs", "outputs", ".", *TRACKER_NAMES)
"""Directories below the working directory that every run of every program may write to when nobody says where."""
CLOCK_ROUNDING_S = 2.0
"""File systems round times; what is older than this before the launch is not of the run."""
OUTPUT_BURST_BYTES = 16 << 20
"""Output that is taken at most before the loop looks at its limits again."""


def _named_roots(plan: Plan) -> list[Path]:
    """Metric directories that the command or --metrics-dir names; the others are defaults that programs share."""
    spec = plan.spec
    named = named_places(plan.argv, spec.workdir)
    named |= {os.path.normpath(spec.metrics_dir)} if spec.metrics_dir else set()
    shared = {os.path.normpath(spec.workdir / name) for name in SHARED_DEFAULTS}
    roots = {Path(root): os.path.normpath(root) for root in plan.facts.metric_roots}
    return [root for root, place in roots.items() if place in named or place not in shared]


def named_places(argv: Iterable[str], workdir: Path) -> set[str]:
    """What words of a command would be as paths."""
    words = {word.rpartition("=")[2] for word in argv}
    return {os.path.normpath(workdir / word) for word in words if word and not word.startswith("-")}


class Collection:
    """Everything that is written down about one launch, apart from the lifecycle itself."""

    def __init__(self, plan: Plan, journal: Journal, launcher: Watched, *, is_launch: bool = True) -> None:
        """`is_launch`: whether the run begins now, so that nothing that is there already is of it."""
        self.plan = plan
        self.journal = journal
        self.launcher = launcher
        out_dir = plan.spec.out_dir
        self.log = LogWriter(out_dir / outdir.TRAIN_LOG, plan.redactor.stream())
        self.store = MetricStore.create(out_dir / outdir.METRICS_DB)
        self.store.redact = plan.redactor.text
        self.metrics = MetricCollector(
            self.store, [Path(root) for root in plan.facts.metric_roots],
            eval_tag_patterns=plan.facts.eval_tags, summary_tag_patterns=plan.facts.summary_tags, out_dir=out_dir,
            explicit_roots=_named_roots(plan), run_pids=launcher.family,
            guessed_roots=[Path(root) for root in plan.facts.metric_guesses],
            resume_from=Path(plan.facts.resume_from) if plan.facts.resume_from else None,
        )
        self.metrics.set_cadence(logging_steps(plan.spec, plan.argv))
        if plan.facts.reads_output and is_launch:
            self.metrics.add_output(out_dir / outdir.TRAIN_LOG)
        self.early_stop = EarlyStopWatch(plan.spec, plan.facts, self.metrics, self.store)
        self.anomalies = AnomalyWatch(plan.spec, plan.facts, journal=journal, launcher=launcher,
                                      redactor=plan.redactor, phase_of=self.store.phase_of)
        self.metrics.listener = self.anomalies.points
        self.usage = UsageMeter(launcher.family, plan.environment)
        self.peaks = Peaks(launcher.family, plan.environment)
        self._launched_at = 0.0
        self._taken_bytes = 0
        """Output since the last poll."""
        self._losses: set[str] = set()
        self.outputs: dict[Path, float] = {}
        """Logs in the out-dir that are read where no metric file gives a point, and when each was last written."""
        self.tracked_end: Ending | None = None
        """What a tracker told of the end, where one is watched."""
        self._is_launch = is_launch
        self._saved_before = SavedBefore()

    def __enter__(self) -> Collection:
        """Take stock of what is there before the launch."""
        if not self._is_launch:
            return self
        found = self.metrics.inventory()
        self.journal.write("inventory", files=len(found), roots=list(self.plan.facts.metric_roots),
                           newest=[{"path": item.path, "size": item.size, "inode": item.inode} for item in found[:50]])
        start = self.plan.facts.start_weights
        self._saved_before = take_snapshot([*self._checkpoint_roots(), *([Path(start)] if start else [])])
        return self

    def _checkpoint_roots(self) -> list[Path]:
        return [Path(root) for root in self.plan.facts.checkpoint_roots]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.log.close()
        self.store.close()

    def launched(self, moment: float) -> None:
        """The job was started; `moment` in seconds since the epoch. The first launch is the run's."""
        self._launched_at = self._launched_at or moment
        self.anomalies.launched(moment)
        self.usage.look()

    @property
    def launched_at(self) -> float:
        """Launch of the first attempt, seconds since the epoch; 0 where nobody tells."""
        return self._launched_at

    def next_attempt(self, number: int) -> None:
        """What the attempt before left behind is read to its end; what comes now belongs to the next one."""
        self._end_log()
        try:
            self.metrics.next_attempt(number, now=time.time(), launched_at=self._launched_at)
        except RecordError as error:
            self._lost(str(error))
        out_dir = self.plan.spec.out_dir
        self.log = LogWriter(out_dir / outdir.train_log(number), self.plan.redactor.stream())
        if self.plan.facts.reads_output and self._is_launch:
            self.metrics.add_output(out_dir / outdir.train_log(number))

    def newest_step(self) -> int | None:
        """The newest training step of the run's own, as the trainer counts; None while there is none."""
        newest = self._newest(own=True)
        return None if newest is None else newest.step

    def take_output(self, wait_s: float = 0.0) -> int:
        """What the job printed, into train.log; how many bytes."""
        taken, asked_at = 0, time.time()
        while data := self.launcher.read_output(wait_s):
            self.log.feed(data)
            self.anomalies.output(data)
            taken += len(data)
            self._taken_bytes += len(data)
            wait_s, asked_at = 0.0, time.time()
            if taken >= OUTPUT_BURST_BYTES:
                return taken
        if self._is_launch:
            self.anomalies.heard_until = asked_at
        return taken

    def poll(self) -> int:
        """Read new metric events; how many. What the disk does not take is reported once, and read again later."""
        self.peaks.look()
        self.metrics.output.set_flooded(self._taken_bytes)
        self._taken_bytes = 0
        try:
            return self.metrics.poll(now=time.time(), launched_at=self._launched_at)
        except RecordError as error:
            self._lost(str(error))
            return 0

    def _lost(self, message: str) -> None:
        if message not in self._losses:
            self._losses.add(message)
            self.journal.write("evidence-lost", message=message)

    def has_nonfinite_loss(self) -> bool:
        """Whether the newest training loss is NaN or infinite."""
        facts = self.plan.facts
        return any(not math.isfinite(latest.value) for (_, tag), latest in self.metrics.latest.items()
                   if fits(tag, facts.loss_tags) and not fits(tag, facts.eval_tags))

    def completed_steps(self) -> int:
        """Completed steps by the newest metric point that is certainly the run's own, 0 while there is none."""
        return self._completed(self._newest(own=True)) if self.plan.facts.step_unit == "step" else 0

    def _completed(self, newest: Latest | None) -> int:
        if newest is None:
            return 0
        return newest.step + (1 if self.plan.facts.step_base == 0 and newest.kind != PRINTED else 0)

    def check_anomalies(self) -> list[str]:
        """Once a poll: what went wrong or is over, to be announced."""
        target = self.plan.spec.max_steps or self.plan.facts.target_steps
        return self.anomalies.check(self.completed_steps(), target, self.metrics.printed.step)

    def completed_epochs(self) -> float:
        """Epochs by the newest point of a tag `epoch`, 0 while there is none."""
        epochs = [latest.value for (_, tag), latest in self.metrics.latest.items()
                  if tag.rpartition("/")[2] == "epoch" and latest.ownership == "own" and latest.kind != PRINTED]
        return max(epochs, default=0.0)

    def _newest(self, *, own: bool = False) -> Latest | None:
        """The furthest point of a training loss or update row; of any tag only where none of those is known."""
        facts = self.plan.facts
        telling = [*facts.executed_tags, *(facts.loss_tags if not facts.executed_tags else ())]
        every = {key: latest for key, latest in self.metrics.latest.items()
                 if not own or (latest.ownership == "own" and latest.kind != PRINTED)}
        logged = {key: latest for key, latest in every.items() if latest.kind != PRINTED}
        every = logged or every
        known = [latest for (_, tag), latest in every.items()
                 if fits(tag, telling) and not fits(tag, facts.eval_tags)]
        return max(known or every.values(), key=lambda latest: latest.step, default=None)

    def snapshot(self) -> Snapshot:
        """The run as a progress line shows it."""
        facts, spec, printed = self.plan.facts, self.plan.spec, self.metrics.printed
        if not self.metrics.latest:
            return Snapshot(step=printed.step, total=spec.max_steps or facts.target_steps or printed.total)
        values = {tag: latest.value for (_, tag), latest in sorted(self.metrics.latest.items(), reverse=True)}
        chosen = pick_values(values, loss=facts.loss_tags, evaluation=facts.eval_tags, lr=facts.lr_tags,
                             grad_norm=facts.grad_norm_tags)
        total = spec.max_steps or facts.target_steps or printed.total
        return Snapshot(step=self._completed(self._newest()), total=total, values=chosen,
                        rate=pick_rate(values), epoch=self.completed_epochs() or None, stage=self._stage(),
                        usage=self.usage.look())

    def _stage(self) -> str:
        """The attempt, and the directory and phases that are being written: a warm-up, a first evaluation."""
        phases = {"eval" if fits(tag, self.plan.facts.eval_tags) else "train" for _, tag in self.metrics.latest}
        return " ".join([f"attempt {self.metrics.attempt}", *sorted(phases)])

    def finish(self) -> None:
        """The last look at every source, and what the supervisor itself cost."""
        self.log.close()
        try:
            sources = self.metrics.finish(now=time.time(), launched_at=self._launched_at)
        except RecordError as error:
            self._lost(str(error))
            sources = self.metrics.sources(final=True)
        out_dir = self.plan.spec.out_dir
        told = self._read_outputs(sources)
        self.anomalies.finish(() if self.log.received else self.outputs)
        self.journal.write("sources", sources=[
            {**source.to_json(), "path": outdir.relative(out_dir, source.path)} for source in sources],
            problems=[problem.message for problem in self.metrics.problems])
        self._end_log(**told)
        probe = read_probe(out_dir / outdir.PROBE_DIR, since=self._launched_at - CLOCK_ROUNDING_S).to_json()
        self.journal.write("probe", facts=probe)
        self.journal.write("parsed", **read_parsed(out_dir / outdir.PROBE_DIR, self._launched_at - CLOCK_ROUNDING_S))
        if self.plan.spec.early_stop_metric is not None:
            self.journal.write("early-stopping", **self.early_stop.facts_json())
        self._inspect_checkpoints(probe)
        self._samples()
        self._effective_values()
        self.journal.write("usage", **self.peaks.to_json())
        self._overhead()

    def _read_outputs(self, sources: list[SourceFact]) -> dict[str, Any]:
        """What the logs say, for the journal; their rows too, where the files hold no point. Adds to `sources`."""
        if not self.outputs:
            return {}
        ends = [found for path in self.outputs if (found := ending_of(path, self.plan.redactor)) is not None]
        ends += [self.tracked_end] if self.tracked_end is not None else []
        found = next((one for one in ends if one.is_bad), ends[-1] if ends else None)
        told: dict[str, Any] = {"ending": {"kind": found.kind.value, "line": found.line} if found else None}
        told["announced_total"] = self.metrics.announced_total
        if self.plan.facts.update_lines and not any(source.points for source in sources):
            told["updates"] = told_updates(self.outputs, self.plan.facts.update_lines)
        told["restarts"] = told_restarts([*self.outputs], self.metrics.restarts, self.plan.redactor)
        if any(source.points for source in sources) or not self.plan.facts.reads_output:
            return told
        followed = {source.path for source in sources}
        for path, written_at in self.outputs.items():
            if str(path) in followed:
                continue
            run = path.stem if len(self.outputs) > 1 else ""
            read = read_output(self.store, path, run=run, written_at=written_at, launched_at=self._launched_at)
            sources.append(read.source)
            told["announced_total"] = read.announced_total or told.get("announced_total")
        return told

    def _end_log(self, **told: Any) -> None:
        self.log.close()
        stop = self.log.stop_trace.found or printed_stop(self.log.tail())
        if stop is not None:
            self.journal.write("trainer-stop", **{**stop, "line": self.plan.redactor.text(stop["line"])})
        exception, is_last = self.log.last_exception()
        printed = self.metrics.printed
        told["printed"] = {"step": printed.step, "total": printed.total, "steps_per_second": printed.steps_per_s}
        told["batch_sizes"] = list(announced_batch_sizes(self.log.path))
        if self.plan.facts.cut_lines:
            told["cuts"] = told_cuts(self.outputs or [self.log.path], self.plan.facts.cut_lines)
        self.journal.write("log-end", exception=self.plan.redactor.text(exception or "") or None, is_last=is_last,
                           bytes=self.log.received, lost_bytes=self.log.lost, **told)

    def _effective_values(self) -> None:
        """The settings that the trainer says it used, for comparison with those that were asked for."""
        try:
            values = effective_values(self.plan.facts, self._is_written)
        except Exception as error:  # files of any content, adapters of anybody: the run is judged without
            self._lost(f"effective values cannot be read: {error!r}"[:500])
            return
        out_dir = self.plan.spec.out_dir
        self.journal.write("effective-values", values={
            key: {"value": item.value, "source": outdir.relative(out_dir, item.source)}
            for key, item in values.items()})

    def _samples(self) -> None:
        """A sample of the last update, where the algorithm makes any."""
        try:
            facts = sample_facts(self.plan, self._is_written)
        except Exception as error:  # files of any content, code of anybody: the run is judged without
            self._lost(f"samples cannot be read: {error!r}"[:500])
            return
        if facts is not None:
            self.journal.write("samples", **facts)

    def _is_written(self, path: Path) -> bool:
        """Whether a file is of this run, by its time; 2 seconds for file systems that round it."""
        try:
            return path.stat().st_mtime >= self._launched_at - CLOCK_ROUNDING_S
        except OSError:
            return False

    def _inspect_checkpoints(self, probe: dict[str, Any]) -> None:
        start = Path(self.plan.facts.start_weights) if self.plan.facts.start_weights else None
        facts = inspect_run(self._checkpoint_roots(), self._saved_before, self._launched_at, start)
        document = facts.to_json()
        out_dir = self.plan.spec.out_dir
        seen = seen_by(probe)
        told = {one.path: told_by_files((Path(file.path) for file in one.files), seen) for one in facts.checkpoints
                if seen.marks and is_delivered(one.path, one.step, facts.latest)}
        document["marks"] = [{"path": outdir.relative(out_dir, path), "word": said.word, "at": said.at}
                             for path, said in told.items() if said.word in MARKED]
        for item in document["checkpoints"]:
            item["path"] = outdir.relative(out_dir, item["path"])
            for file in item["files"]:
                file["path"] = outdir.relative(out_dir, file["path"])
        for key in ("unfinished", "repeated"):
            document[key] = [outdir.relative(out_dir, path) for path in document[key]]
        for key in ("latest", "lost_from"):
            document[key] = outdir.relative(out_dir, document[key]) if document[key] else None
        roots = self._checkpoint_roots()
        document["unwritable"] = unwritable_root(roots)
        document["save_errors"] = [
            {"kind": error.kind, "line": self.plan.redactor.text(error.line), "names_root": error.names_root}
            for error in find_save_errors(out_dir / outdir.TRAIN_LOG, roots)]
        self.journal.write("checkpoints", facts=document)

    def _overhead(self) -> None:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        self.journal.write(
            "overhead", supervisor_cpu_s=round(usage.ru_utime + usage.ru_stime, 3),
            supervisor_rss_bytes=psutil.Process(os.getpid()).memory_info().rss,
            supervisor_peak_rss_bytes=usage.ru_maxrss * 1024,
        )
