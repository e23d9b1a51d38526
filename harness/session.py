"""What the plugin's hooks delegate to: one object per pytest process, and the report of the session.

Judging is imported where it is used: most pytest sessions that load the plugin judge nothing.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness import options
from harness.errors import HarnessError
from harness.record.run_id import run_id_or_new

if TYPE_CHECKING:
    from harness.judge.model import Verdict

SESSION_KEY = "real_step_session"
RUN_ID_KEY = "real_step_run_id"
REPORT_WAIT_S = 120.0
"""How long the controller waits for a supervisor that is still writing when the tests are over."""
NO_SOURCE = (
    "no training command: give --train-cmd \"python train.py ...\" (or ini key real_step_train_cmd), "
    "--algo A --ckpt C --dataset-path P for an AReno command, --demo for the bundled job, --attach TARGET for one that "
    "others started, or --run OUT_DIR for a run that is there"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRun:
    """What the acceptance tests read: the verdict and where its evidence lies."""

    verdict: Verdict
    out_dir: Path
    accept_conditional: bool


class HarnessSession:
    """Resolves the request once, launches at most one run, and knows how the session is to end."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        given: dict[str, Any] = getattr(config, "workerinput", {})
        self.is_worker = bool(given)
        self.token: str = given.get(SESSION_KEY) or secrets.token_hex(8)
        self.run_id: str = given.get(RUN_ID_KEY) or ""
        self.report: dict[str, Any] | None = None
        self.failure: str | None = None
        self._request: options.Request | None = None
        self._outcome: JudgedRun | Exception | None = None
        """What `judged_run` came to: it is asked again by every rerun, and launches once."""
        self._running = ""
        self._is_live = False
        """Whether the terminal's last line is a progress line that the next one replaces."""
        self._told_by = ""
        """The test that said why the run could not be judged."""

    def resolve(self) -> options.Request | None:
        """The request, None without a source. ConfigError for options that cannot be used."""
        if self._request is None:
            values = options.values_of(self.config)
            values["smoke"] = smoke_of(getattr(self.config.option, "markexpr", ""))
            self.run_id = run_id_or_new(self.run_id or values.get("run_id"))
            self._request = options.resolve(
                values, invocation_dir=Path(self.config.invocation_params.dir), session=self.token,
                new_run_id=lambda: self.run_id,
            )
        return self._request

    def refuse_retry(self) -> None:
        """ConfigError for a run that cannot be retried, as its evidence tells; the supervisor looks again."""
        request = self.resolve()
        if request is not None and request.spec is not None and request.spec.retry_of is not None:
            from harness.retry.earlier import read_earlier

            read_earlier(request.spec.retry_of)

    def worker_input(self) -> dict[str, str]:
        """What an xdist worker must share with the controller."""
        self.resolve()
        return {SESSION_KEY: self.token, RUN_ID_KEY: self.run_id}

    def judged_run(self) -> JudgedRun:
        """Launch or find the run, wait for it, judge it. An error of the harness fails without a traceback."""
        request = self.resolve()
        if request is None:
            pytest.fail(NO_SOURCE, pytrace=False)
        if self._outcome is None:
            try:
                self._outcome = self._launch_and_judge(request)
            except Exception as error:  # also a bug of the harness: it must not launch again
                self._outcome, self._told_by = error, self._running
        outcome = self._outcome
        if isinstance(outcome, HarnessError):
            pytest.fail(f"could not judge: {_printable(outcome)}", pytrace=False)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _launch_and_judge(self, request: options.Request) -> JudgedRun:
        from harness import client
        from harness.judge.verdict import judge
        from harness.record.run_record import open_record

        try:
            if request.spec is not None:
                out_dir = client.ensure_run(request.spec, self.show)
            else:
                out_dir = client.wait_until_written(request.out_dir, self.show)
        finally:
            self._on_terminal(self._end_live)
        with open_record(out_dir, request.asked) as record:
            verdict, _ = judge(record)
        return JudgedRun(verdict=verdict, out_dir=out_dir, accept_conditional=request.accept_conditional)

    def about_to_run(self, item: pytest.Item) -> None:
        """Once a test has said why the run could not be judged, the others refer to it in one line."""
        self._running = item.nodeid
        failed = isinstance(self._outcome, HarnessError) and item.nodeid != self._told_by
        if failed and "real_run" in getattr(item, "fixturenames", ()):
            pytest.fail(f"could not judge: see {self._told_by}", pytrace=False)

    def show(self, line: str) -> None:
        """One line on the terminal, through pytest's capture; a worker has no terminal (see progress.log)."""
        self._on_terminal(lambda terminal: self._write(terminal, line))

    def _on_terminal(self, act: Callable[[pytest.TerminalReporter], None]) -> None:
        terminal = self.config.pluginmanager.getplugin("terminalreporter")
        if terminal is None or self.is_worker:
            return
        capture = self.config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled() if capture is not None else contextlib.nullcontext():
            act(terminal)

    def _write(self, terminal: pytest.TerminalReporter, line: str) -> None:
        """On a terminal a progress line stands where the last one stood; elsewhere each is a line."""
        from harness.watch.progress import is_progress

        if is_progress(line) and terminal.isatty and not os.environ.get("CI"):
            if not self._is_live:
                terminal.ensure_newline()
            width = shutil.get_terminal_size().columns
            terminal.rewrite(line[:width - 1], erase=True)
            terminal.flush()
            self._is_live = True
            return
        self._end_live(terminal)
        terminal.ensure_newline()
        terminal.write_line(line)

    def _end_live(self, terminal: pytest.TerminalReporter) -> None:
        """What comes after a live line stands on a line of its own."""
        if self._is_live:
            terminal.write("\n", flush=True)
            self._is_live = False

    def finish(self, session: pytest.Session, exitstatus: int) -> None:
        """On the controller: the report is there whatever happened, and a run that is not GO does not exit 0."""
        if self.is_worker or self._request is None or self.config.option.collectonly:
            return
        from harness import client

        client.forget_session(self.token)
        if self._request.spec is not None and not client.is_session_run(self._request.out_dir, self.token):
            return
        if self._request.run_dir is not None and not session.testscollected:
            return
        try:
            self.report = self._report(self._request.out_dir)
        except (HarnessError, OSError) as error:
            self.failure = str(error)
        if exitstatus == pytest.ExitCode.OK and not self._acceptable():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _report(self, out_dir: Path) -> dict[str, Any]:
        from harness.judge.report import build_report, write_report
        from harness.record import outdir

        deadline = time.monotonic() + REPORT_WAIT_S
        while outdir.is_held(out_dir) and time.monotonic() < deadline:
            time.sleep(0.1)
        asked = self._request.asked if self._request is not None else {}
        if asked or (out_dir / outdir.REPORT).exists():
            return build_report(out_dir, asked)
        return write_report(out_dir)

    def _acceptable(self) -> bool:
        if self.report is None:
            return False
        accepted = {"GO"}
        if self._request is not None and self._request.accept_conditional:
            accepted.add("CONDITIONAL")
        return self.report["decision"] in accepted

    def collected(self, items: list[pytest.Item]) -> None:
        """UsageError when acceptance tests are selected and nothing says what to judge.

        pytest-timeout's limit is for tests: the run has --run-timeout, so its fixture is left out of the count.
        """
        acceptance = [item for item in items if "real_run" in getattr(item, "fixturenames", ())]
        if self.config.pluginmanager.hasplugin("timeout"):
            for item in acceptance:
                item.add_marker(pytest.mark.timeout(func_only=True))
        if acceptance and not (self.is_worker or self.config.option.collectonly or self.resolve()):
            raise pytest.UsageError(NO_SOURCE)

    def render(self, terminal: pytest.TerminalReporter) -> None:
        """The summary of the run on the terminal."""
        if self.failure is not None:
            terminal.section("real step", sep="-")
            terminal.write_line(f"No report: {self.failure}")
        if self.report is not None and self._request is not None:
            from harness.diagnosis.report import read_failure
            from harness.judge.summary import render_summary

            terminal.section("real step", sep="-")
            out_dir = self._request.out_dir
            failure = read_failure(out_dir, self.report["run_id"])
            terminal.write_line(render_summary(self.report, out_dir, failure))


def smoke_of(expression: str) -> str:
    """What `-m` asks of the smoke: "" for none, "only" where no real run is asked for, else "first"."""
    words = set(re.findall(r"\w+", re.sub(r"not\s+\w+", "", expression)))
    if "smoke_capacity" not in words:
        return ""
    return "first" if words - {"smoke_capacity", "or", "and", "not"} else "only"


def _printable(error: HarnessError) -> str:
    """Its message without lone surrogates, which no terminal and no xdist channel takes."""
    return str(error).encode("utf-8", "backslashreplace").decode()
