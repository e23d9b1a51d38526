"""A run that others made, judged after its end: what the user says of it and what it left behind, as facts.

Nothing is launched. Command, launch and exit go into the journal as the user's word; the logs are copied through
redaction, metric files and checkpoints are read as after a run of our own.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

from harness import __version__
from harness.command.bare import complete_bare_script
from harness.command.model import Finding, TrainingCommand
from harness.command.overrides.model import parse_requests
from harness.command.parse import parse_command
from harness.command.shell_text import inner_command
from harness.errors import ConfigError
from harness.frameworks.base import FrameworkFacts
from harness.frameworks.registry import adapter_named, detect
from harness.judge.report import write_report
from harness.metrics.tracked import CLOCK_SLACK_S
from harness.record import outdir
from harness.record.files import write_json
from harness.record.journal import Journal
from harness.record.merge import PRINTED
from harness.record.redaction import Redactor
from harness.record.text_file import not_text
from harness.spec import RunSpec
from harness.supervise.collect import Collection, named_places
from harness.supervise.log import LogWriter
from harness.supervise.preflight import Plan, masked_command, redactor_for
from harness.supervise.reload import reload_delivered
from harness.watch.anomalies.output import sign_offsets

CHUNK_BYTES = 1 << 20
MAX_CUTS = 200
"""Lines of one log that tell of harm and between which its steps are looked at."""
NO_COMMAND = "no command was given"
HEAD_BYTES = 256 << 10
SIGNS = {"areno": b" areno.", "transformers": b"***** Running training *****", "lightning": b"`Trainer.fit`"}
"""What only these trainers print."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What the user says of a run that has ended. Times are seconds since the epoch."""

    logs: tuple[Path, ...]
    """Logs of the run, of several ranks or streams, the one that tells its end last."""
    exit_code: int | None = None
    launched_at: float | None = None
    pid: int | None = None


class NothingLeft:
    """The job of a run that has ended: no processes, and its output is read from files."""

    def family(self) -> set[int]:
        """None."""
        return set()

    def leave_out(self, pid: int) -> None:
        """Nothing to leave it out of."""

    def read_output(self, timeout_s: float) -> bytes:
        """None."""
        return b""


def judge_ended(spec: RunSpec, said: Said) -> dict[str, Any]:
    """Collect what is there into the out-dir, judge it, and write train-model.json, which is given back.

    ConfigError for logs that cannot be read and for an out-dir that cannot be used.
    """
    for log in said.logs:
        _readable(log)
    redactor = redactor_for(spec, os.environ)
    plan, command = plan_of(spec, redactor, said.logs)
    outdir.prepare(spec.out_dir)
    with outdir.Lease(spec.out_dir):
        outdir.refuse_foreign_files(spec.out_dir, said.logs)
        outdir.archive_earlier_run(spec.out_dir)
        write_spec(spec, redactor)
        with Journal(spec.out_dir / outdir.JOURNAL, redact=redactor.json) as journal:
            journal.write("run-started", run_id=spec.run_id, session=spec.session, harness_version=__version__,
                          supervisor_pid=os.getpid())
            journal.write("asserted", logs=[str(log) for log in said.logs], exit_code=said.exit_code,
                          launched_at=said.launched_at, pid=said.pid)
            journal_command(journal, plan, command)
            _collect(plan, journal, said)
            reload_delivered(plan, journal, lambda: False)
            journal.write("run-finished", stop_reason=None, journal_lines_lost=journal.failed)
        return write_report(spec.out_dir)


def _readable(log: Path) -> None:
    try:
        odd = not_text(log)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"--log {log}: cannot be read: {why}") from error
    if odd:
        raise ConfigError(f"--log {log}: {odd}")


def write_spec(spec: RunSpec, redactor: Redactor) -> None:
    """run-spec.json, secrets masked."""
    asked = replace(spec, train_cmd=masked_command(spec.train_cmd, redactor))
    write_json(spec.out_dir / outdir.RUN_SPEC, {"harness_version": __version__, **redactor.json(asked.to_json())})


def plan_of(spec: RunSpec, redactor: Redactor, logs: Iterable[Path] = ()) -> tuple[Plan, TrainingCommand | None]:
    """The run as far as its command, --framework and the directories given tell. ConfigError for an odd command.

    Directories that programs write to when nobody names one are left out: they hold other runs too.
    """
    parse_requests(spec.hp)
    command = None
    if spec.train_cmd.strip():
        command = complete_bare_script(parse_command(spec.train_cmd, spec.workdir), spec.workdir, os.environ)
        adapter, reason = detect(inner_command(command), spec)
        facts = adapter.facts(inner_command(command), spec, reason)
    else:
        facts = _facts_without_command(spec, logs)
    argv = command.argv if command else ()
    named = named_places(argv, spec.workdir)
    named |= {os.path.normpath(place) for place in (spec.metrics_dir, spec.checkpoint_dir) if place is not None}
    facts = replace(facts, metric_roots=_below(facts.metric_roots, named),
                    checkpoint_roots=_below(facts.checkpoint_roots, named))
    return Plan(spec=spec, argv=argv, environment=dict(os.environ), facts=facts, redactor=redactor,
                cap_steps=None, cap_epochs=None), command


def _below(roots: tuple[str, ...], named: set[str]) -> tuple[str, ...]:
    """The roots that are named, or lie in a directory that is."""
    return tuple(root for root in roots
                 if any(str(place) in named for place in (Path(os.path.normpath(root)), *Path(root).parents)))


def _facts_without_command(spec: RunSpec, logs: Iterable[Path]) -> FrameworkFacts:
    """What the framework is like, without what only a command would tell of its length."""
    signed = next((name for log in logs for name in _signed_by(log)), None)
    if spec.framework is None and signed is None:
        metrics, saved = spec.metrics_dir, spec.checkpoint_dir
        return FrameworkFacts(name="unknown", reason=NO_COMMAND, checkpoint_asked=saved is not None,
                              metric_roots=(str(metrics or saved),) if metrics or saved else (),
                              metric_guesses=(str(saved),) if saved and not metrics else (),
                              checkpoint_roots=(str(saved),) if saved else ())
    nothing = TrainingCommand(text="", env_assignments=(), argv=("",), program="", entrypoint=None, module=None,
                              script_args=())
    adapter = adapter_named(spec.framework or signed or "")
    facts = adapter.facts(nothing, spec, "--framework" if spec.framework else "what its log prints")
    return replace(facts, target_steps=None, target_source="", target_epochs=None, target_epochs_source="",
                   start_weights=None, resume_from=None)


def _signed_by(log: Path) -> Iterator[str]:
    """Frameworks whose own lines stand at the beginning of a log."""
    try:
        with log.open("rb") as handle:
            head = handle.read(HEAD_BYTES)
    except OSError:
        return
    yield from (name for name, sign in SIGNS.items() if sign in head)


def journal_command(journal: Journal, plan: Plan, command: TrainingCommand | None) -> None:
    """The command as it was run: nothing is added to it, and what is odd about it here forbids nothing."""
    spec, redactor = plan.spec, plan.redactor
    findings = [replace(finding, refuses=finding.refuses and finding.code == "command-refused")
                for finding in (command.findings if command else ())]
    overrides: list[Mapping[str, Any]] = [
        {"key": request.key, "value": request.value, "how": "as the user says", "kind": "semantic", "place": ""}
        for request in parse_requests(spec.hp)]
    journal.write(
        "command", text=masked_command(spec.train_cmd, redactor),
        argv=redactor.argv(list(command.argv)) if command else None, cwd=str(spec.workdir), env_changes={},
        entrypoint=str(command.entrypoint or command.module or "") or None if command else None,
        facts=plan.facts.to_json(), overrides=redactor.json(overrides), findings=[_finding(one) for one in findings])


def _finding(finding: Finding) -> dict[str, Any]:
    return {"code": finding.code, "message": finding.message, "refuses": finding.refuses}


def _collect(plan: Plan, journal: Journal, said: Said) -> None:
    ended_at = max(log.stat().st_mtime for log in said.logs)
    seconds = max(0.0, ended_at - said.launched_at) if said.launched_at is not None else None
    with Collection(plan, journal, NothingLeft(), is_launch=False) as collection:
        journal.write("attempt-started", attempt=1, launched_at=said.launched_at, handle={}, log=outdir.TRAIN_LOG,
                      asserted=True)
        collection.launched(said.launched_at or 0.0)
        collection.poll()
        for number, log in enumerate(said.logs, start=1):
            collection.outputs[copy_log(log, number, plan, collection, len(said.logs))] = log.stat().st_mtime
        journal.write("attempt-ended", attempt=1, exit_code=said.exit_code, signal=None, ended_at=ended_at,
                      seconds=seconds, stop_reason=None, resumed_from=None, asserted=True)
        collection.finish()


def copy_log(log: Path, number: int, plan: Plan, collection: Collection, num_logs: int) -> Path:
    """The log in the out-dir, secrets masked: train.log, train.2.log, ...

    It is read as it is copied, in the order of its lines, so that an error is seen between the steps around it.
    """
    first = number == 1
    place = plan.spec.out_dir / (outdir.TRAIN_LOG if first else f"train.{number}.log")
    writer = collection.log if first else LogWriter(place, plan.redactor.stream())
    in_files = any(latest.kind != PRINTED for latest in collection.metrics.latest.values())
    if plan.facts.reads_output and not in_files and log.stat().st_mtime >= collection.launched_at - CLOCK_SLACK_S:
        collection.metrics.add_output(place, run=place.stem if num_logs > 1 else "")
    with log.open("rb") as handle:
        for piece in _pieces(handle):
            collection.anomalies.output(piece)
            writer.feed(piece)
            collection.poll()
    writer.close()
    return place


def _pieces(handle: IO[bytes]) -> Iterator[bytes]:
    """A file in chunks that begin anew where a line tells of harm, as far as there are not too many such lines."""
    left = MAX_CUTS
    while chunk := handle.read(CHUNK_BYTES):
        cuts = sign_offsets(chunk, left)
        left -= len(cuts)
        for begin, end in pairwise([0, *cuts, len(chunk)]):
            if end > begin:
                yield chunk[begin:end]
