"""--check-resume: the command once more to a checkpoint, stopped there, resumed to its end, and compared.

Both launches write below <out-dir>/resume-check: the directories that the command names are replaced in its words,
so that the judged run's own files stay as they are.
"""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.checkpoints.inventory import take_inventory
from harness.command.limits import RESUME_FLAGS
from harness.command.overrides.model import FlagTable, OverrideRequest, parse_requests
from harness.command.overrides.resolve import apply_overrides
from harness.command.parse import parse_command
from harness.errors import HarnessError, LaunchError
from harness.launch.local import LocalLauncher
from harness.launch.watchdog import Reaper
from harness.metrics.command import open_metrics
from harness.metrics.resumption import COMPARED_TAGS, Resumption, compare_resumption
from harness.probe import ENV_DIR
from harness.record import outdir
from harness.record.journal import Journal
from harness.record.run_record import open_record
from harness.record.store import MetricStore
from harness.supervise.log import LogWriter
from harness.supervise.preflight import Plan
from harness.supervise.resumed import beginning

POLL_S = 0.1
SPARE_S = 120.0
"""A launch of the check may take this much longer than twice the judged run."""
KEPT_S = 20.0
"""How long a stopped launch has to end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where one launch of the check writes."""

    root: Path
    argv: tuple[str, ...]
    saves: tuple[Path, ...]
    metrics: tuple[Path, ...]


class Unproven(Exception):
    """Why the check could not be made."""


def check_resume(plan: Plan, journal: Journal, must_end: Callable[[], bool]) -> None:
    """Make the check on a run that ended well, and journal it."""
    root = plan.spec.out_dir / outdir.RESUME_CHECK
    with open_record(plan.spec.out_dir) as record:
        if record.fact("attempt-ended", "exit_code") != 0:
            return
        seconds = float(record.fact("attempt-ended", "seconds") or 0.0)
        facts_of_saving = record.fact("checkpoints", "facts", {}) or {}
    steps = {item["step"] for item in facts_of_saving.get("checkpoints", []) if item.get("step")}
    try:
        facts = _check(plan, root, sorted(steps), seconds, must_end, journal)
    except (Unproven, HarnessError, OSError) as error:
        facts = {"problem": plan.redactor.text(str(error))[:500]}
    journal.write("resume-check", **facts)


def _check(plan: Plan, root: Path, steps: list[int], seconds: float, must_end: Callable[[], bool],
           journal: Journal) -> dict[str, Any]:
    middle = steps[:-1]
    if not middle:
        raise Unproven("the run saved no checkpoint before its last step; save more often")
    at = middle[len(middle) // 2]
    root.mkdir(parents=True, exist_ok=True)
    limit = 2 * seconds + SPARE_S
    first = _place(plan, root / "first", plan.argv)
    second = _place(plan, root / "second", plan.argv)
    runner = _Runner(plan, journal, must_end)
    checkpoint = runner.until_saved(first, at, limit)
    resumed = _with_resume(plan, second, checkpoint)
    launched, probed = time.time(), second.root / outdir.PROBE_DIR
    code = runner.to_its_end(replace(second, argv=resumed), limit, probed)
    found = compare_resumption(_series(plan.spec.out_dir, plan), _joined(plan, second), at, rtol=_rtol(plan))
    return {"at": at, "checkpoint": outdir.relative(plan.spec.out_dir, str(checkpoint)), "exit_code": code,
            "argv": plan.redactor.argv(list(resumed)), **_facts(found),
            **beginning(plan.spec.out_dir, second.metrics, second.saves, probed, tags=found.tags, at=at,
                        launched=launched)}


def _rtol(plan: Plan) -> float:
    return dict(plan.spec.thresholds).get("resume_rtol", 1e-4)


def _facts(found: Resumption) -> dict[str, Any]:
    return {"points": found.points, "exact": found.exact, "suspected": found.suspected, "rtol": found.rtol,
            "max_relative": found.max_relative, "last_step": found.last_step, "expected_last": found.expected_last,
            "first": {**found.first.to_json(), "tag": found.tag} if found.first else None, "tags": list(found.tags)}


def _place(plan: Plan, root: Path, argv: tuple[str, ...]) -> Place:
    """The command's words with every directory that it writes to below `root`."""
    saves, metrics = ([os.path.normpath(path) for path in roots]
                      for roots in (plan.facts.checkpoint_roots, plan.facts.metric_roots))
    moved: dict[str, Path] = {}
    words = []
    for word in argv:
        head, equals, value = word.rpartition("=")
        place = os.path.normpath(plan.spec.workdir / value) if value and not value.startswith("-") else ""
        if place in saves or place in metrics:
            target = moved.setdefault(place, root / f"{len(moved)}-{Path(place).name}")
            words.append(f"{head}{equals}{target}")
        else:
            words.append(word)
    mine = tuple(moved[place] for place in saves if place in moved)
    if not mine:
        raise Unproven("the command does not name the directory that it saves to; give it by its flag")
    root.mkdir(parents=True, exist_ok=True)
    return Place(root=root, argv=tuple(words), saves=mine,
                 metrics=tuple(dict.fromkeys([*(moved[place] for place in metrics if place in moved), *mine])))


def _with_resume(plan: Plan, place: Place, checkpoint: Path) -> tuple[str, ...]:
    """The command's words with the flag that resumes from a checkpoint; --help tells it where the source does not."""
    command = parse_command(shlex.join(place.argv), plan.spec.workdir)
    named = {request.key: request.flag for request in parse_requests(
        ("resume=x",), tuple(text for text in plan.spec.hp_flags if text.startswith("resume=")))}
    keys = ("resume",) if named["resume"] else tuple(dict.fromkeys(
        ["resume", "resume_from_checkpoint", "ckpt_path", *(flag.replace("-", "_") for flag in RESUME_FLAGS)]))
    for key, optional in [*((key, True) for key in keys), *((key, False) for key in keys[:3])]:
        request = OverrideRequest(key=key, value=str(checkpoint), flag=named.get(key), optional=optional)
        result = apply_overrides(command, (request,), flag_table=FlagTable(), workdir=plan.spec.workdir,
                                 environ=plan.environment, out_dir=place.root, write=False)
        if result.applied and not any(finding.refuses for finding in result.findings):
            return result.command.argv
    raise Unproven("no flag of the command resumes from a checkpoint that can be told; name it with "
                   "--hp-flag resume=--flag")


class _Runner:
    """Launches a command of the check, its output below its place; whatever it leaves is stopped."""

    def __init__(self, plan: Plan, journal: Journal, must_end: Callable[[], bool]) -> None:
        self.plan = plan
        self.journal = journal
        self.must_end = must_end
        self.environ: Mapping[str, str] = {key: value for key, value in plan.environment.items() if key != ENV_DIR}

    def until_saved(self, place: Place, step: int, limit_s: float) -> Path:
        """Until the checkpoint of that step is whole; its path. The launch is stopped then."""
        found: list[Path] = []

        def is_saved() -> bool:
            every = take_inventory(place.saves).checkpoints
            found[:] = [one.path for one in every if one.step == step]
            later = any(one.step is not None and one.step > step for one in every)
            return bool(found) and (later or self._is_old(found))

        code = self._run(place, is_saved, limit_s)
        if not found:
            is_saved()
        if not found:
            raise Unproven(f"the command run again made no checkpoint of step {step} (exit code {code}); "
                           f"see {place.root / 'output.log'}")
        return found[-1]

    @staticmethod
    def _is_old(paths: list[Path]) -> bool:
        """Whether nothing was written into a checkpoint for a while, so that it is whole."""
        files = [item for path in paths for item in (path.rglob("*") if path.is_dir() else (path,)) if item.is_file()]
        return bool(files) and time.time() - max(item.stat().st_mtime for item in files) > 1.0

    def to_its_end(self, place: Place, limit_s: float, probed: Path) -> int | None:
        """Exit code; None for a signal. Unproven where it did not end. The probe, where asked for, counts there."""
        if self.plan.spec.probe:
            probed.mkdir(exist_ok=True)
            self.environ = {**self.environ, ENV_DIR: str(probed)}
        code = self._run(place, lambda: False, limit_s)
        if code is None:
            raise Unproven(f"the resumed command did not end within {limit_s:.0f} s; see {place.root / 'output.log'}")
        return code

    def _run(self, place: Place, is_enough: Callable[[], bool], limit_s: float) -> int | None:
        token = f"{self.plan.spec.run_id}-resume-{time.time_ns()}"
        log = LogWriter(place.root / "output.log", self.plan.redactor.stream())
        deadline = time.monotonic() + limit_s
        with Reaper(token, self.plan.spec.out_dir / outdir.JOURNAL, grace_s=KEPT_S) as reaper:
            launcher = LocalLauncher(token, exclude=frozenset({reaper.pid}))
            try:
                launcher.submit(place.argv, cwd=self.plan.spec.workdir, env=self.environ)
            except LaunchError as error:
                raise Unproven(str(error)) from error
            try:
                while (ended := launcher.poll()) is None and time.monotonic() < deadline:
                    log.feed(launcher.read_output(POLL_S))
                    if self.must_end() or is_enough():
                        break
                stopped = ended is None
            finally:
                self._stop(launcher, log)
        if self.must_end():
            raise Unproven("the run was asked to end")
        return None if stopped or ended is None else ended.code

    @staticmethod
    def _stop(launcher: LocalLauncher, log: LogWriter) -> None:
        import signal

        for number, grace_s in ((signal.SIGTERM, KEPT_S), (signal.SIGKILL, 5.0)):
            if launcher.poll() is not None and not launcher.stragglers():
                break
            launcher.signal(number, group=True)
            until = time.monotonic() + grace_s
            while (launcher.poll() is None or launcher.stragglers()) and time.monotonic() < until:
                log.feed(launcher.read_output(POLL_S))
        while data := launcher.read_output(0.0):
            log.feed(data)
        launcher.leader_ended()
        log.close()


def _series(path: Path, plan: Plan) -> dict[str, dict[int, float]]:
    """{tag: {step: value}} of what is compared, from an out-dir or a directory of metric files."""
    problems: list[dict[str, Any]] = []
    with open_metrics(path, problems) as store:
        return _of_store(store, plan)


def _of_store(store: MetricStore, plan: Plan) -> dict[str, dict[int, float]]:
    facts = plan.facts
    patterns = (*facts.loss_tags, *facts.lr_tags, *facts.grad_norm_tags, *COMPARED_TAGS)
    found: dict[str, dict[int, float]] = {}
    for tag in store.tags():
        summed = any(re.search(pattern, tag.tag) for pattern in facts.summary_tags)
        if not summed and any(re.search(pattern, tag.tag, re.IGNORECASE) for pattern in patterns):
            points = found.setdefault(tag.tag, {})
            points |= {point.step: point.value for point in store.iter_series(tag.tag, run=tag.run)}
    return found


def _joined(plan: Plan, place: Place) -> dict[str, dict[int, float]]:
    found: dict[str, dict[int, float]] = {}
    for directory in place.metrics:
        if directory.exists():
            for tag, points in _series(directory, plan).items():
                found.setdefault(tag, {}).update(points)
    return found
