"""One run under its supervisor: preflight, launches and watching, collection, judgement."""

from __future__ import annotations

import os
import time
from dataclasses import replace

from harness import __version__
from harness.judge.report import write_report
from harness.judge.summary import best_line
from harness.launch import processes
from harness.launch.local import LocalLauncher
from harness.launch.watchdog import Reaper
from harness.record import outdir
from harness.record.files import write_json
from harness.record.journal import Journal
from harness.retry.earlier import Earlier, read_earlier
from harness.spec import RunSpec
from harness.supervise.attempt import Attempt, Run
from harness.supervise.collect import Collection
from harness.supervise.evaluation import evaluate_saved
from harness.supervise.preflight import Plan, masked_command, preflight, redactor_for
from harness.supervise.reload import reload_delivered
from harness.supervise.restarts import RESTART_PAUSES_S, decide
from harness.supervise.resume_check import check_resume
from harness.supervise.retry import compare
from harness.supervise.smoke import run_smokes
from harness.supervise.stopping import Stopping
from harness.watch.pace import Pace
from harness.watch.progress import ProgressWriter


class Supervisor:
    """One run. `run` returns when the report is written."""

    def __init__(self, spec: RunSpec, owner: int | None) -> None:
        """`owner`: file descriptor of the owner's pipe."""
        self.spec = spec
        self.stopping = Stopping(spec, owner)

    def ask_stop(self, reason: str) -> None:
        """Ask for an end of the run; the first reason counts."""
        self.stopping.ask(reason)

    def run(self) -> None:
        """Lease, preflight, launch, watch, collect, judge. ConfigError or LeaseHeld when the out-dir cannot be used."""
        outdir.prepare(self.spec.out_dir)
        earlier = read_earlier(self.spec.retry_of) if self.spec.retry_of else None
        with outdir.Lease(self.spec.out_dir):
            archived = outdir.archive_earlier_run(self.spec.out_dir)
            if earlier is not None and archived is not None and earlier.is_in(self.spec.out_dir):
                earlier = earlier.moved(archived)
            self._run_leased(earlier)

    def _run_leased(self, earlier: Earlier | None) -> None:
        out_dir = self.spec.out_dir
        redactor = redactor_for(self.spec, os.environ)
        asked = replace(self.spec, train_cmd=masked_command(self.spec.train_cmd, redactor))
        write_json(out_dir / outdir.RUN_SPEC, {"harness_version": __version__, **redactor.json(asked.to_json())})
        with Journal(out_dir / outdir.JOURNAL, redact=redactor.json) as journal:
            progress = ProgressWriter(out_dir / outdir.PROGRESS, Pace(
                interval_s=self.spec.interval_s, max_interval_s=self.spec.max_interval_s, backoff=self.spec.backoff))
            self.stopping.open(journal, progress.say)
            journal.write(
                "run-started", run_id=self.spec.run_id, session=self.spec.session, harness_version=__version__,
                supervisor_pid=os.getpid(),
            )
            plan = preflight(self.spec, journal=journal, say=progress.say, redactor=redactor,
                             must_end=self.stopping.must_end, earlier=earlier)
            wanted = plan is not None and not self.stopping.must_end()
            if plan is not None and wanted and self.spec.smoke:
                fits = run_smokes(plan, journal, progress.say, self.stopping.must_end)
                wanted = fits and self.spec.smoke != "only" and not self.stopping.must_end()
            if plan is not None and wanted:
                self._launch_and_watch(plan, journal, progress)
                reload_delivered(plan, journal, self.stopping.must_end)
                evaluate_saved(plan, journal, progress.say, self.stopping.must_end)
                if self.spec.check_resume and self.stopping.reason is None:
                    check_resume(plan, journal, self.stopping.must_end)
                if earlier is not None:
                    compare(earlier, self.spec, journal)
            journal.write("run-finished", stop_reason=self.stopping.reason, journal_lines_lost=journal.failed)
        report = write_report(out_dir)
        if report["best_checkpoint"] is not None:
            progress.say(f"Best checkpoint: {best_line(report)}")
        progress.close()

    def _launch_and_watch(self, plan: Plan, journal: Journal, progress: ProgressWriter) -> None:
        spec = self.spec
        token = f"{spec.run_id}-{os.getpid()}-{time.time_ns()}"
        processes.adopt_orphans()
        with Reaper(token, spec.out_dir / outdir.JOURNAL, grace_s=spec.stop_grace_s) as reaper:
            launcher = LocalLauncher(token, exclude=frozenset({reaper.pid}))
            with Collection(plan, journal, launcher) as collection:
                run = Run(plan=plan, journal=journal, progress=progress, stopping=self.stopping, launcher=launcher,
                          collection=collection)
                if self._attempts(run):
                    collection.finish()

    def _attempts(self, run: Run) -> bool:
        """Launch, and launch again where policy allows it; whether anything was launched."""
        number, began = 1, None
        while True:
            attempt = Attempt(run, number, began)
            handle = attempt.launch()
            if handle is None:
                return number > 1
            ended = attempt.watch(handle)
            attempt.drain(ended)
            decision = decide(ended, run, number)
            if decision is None:
                return True
            run.journal.write("restart-decision", attempt=number, **decision.to_json())
            run.progress.say(decision.line())
            if not decision.restart:
                return True
            self.stopping.wait(RESTART_PAUSES_S[min(number, len(RESTART_PAUSES_S)) - 1])
            if self.stopping.reason is not None:
                return True
            number, began = number + 1, attempt.run_began
            run.collection.next_attempt(number)
