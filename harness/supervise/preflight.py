"""Before the launch: the command understood and checked, the environment recorded, everything announced."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from harness.checkpoints.function import function_of, runs_when_imported
from harness.command.interpreter import interpreter_path
from harness.command.model import Finding, TrainingCommand
from harness.command.modules import module_file, source_roots
from harness.command.overrides.surface import add_arguments
from harness.command.shell_text import inner_command
from harness.command.topology import processes_asked
from harness.data.hub import HubAsset
from harness.data.hub_cache import cached_model
from harness.environment import commit_facts, num_gpus, record_environment
from harness.errors import CommandError
from harness.frameworks.base import FrameworkFacts
from harness.frameworks.capacity import Capacity, Smoke
from harness.frameworks.classes import Sources, find_sources
from harness.frameworks.recorded import command_settings
from harness.frameworks.registry import read_reports, smokes_of
from harness.frameworks.settings import Settings
from harness.judge.policy import expired
from harness.judge.policy import told as told_waiver
from harness.probe import ENV_DIR, site_dir
from harness.probe.parsed import ENV_ASKED, asked
from harness.record import outdir
from harness.record.files import write_text
from harness.record.journal import Journal
from harness.record.reasons import Reason
from harness.record.redaction import Redactor
from harness.record.secret_finder import named_config_files
from harness.retry.earlier import Earlier
from harness.spec import RunSpec
from harness.supervise.assets import with_assets
from harness.supervise.dataset import announced, look_at_dataset
from harness.supervise.references import named_reference
from harness.supervise.retry import model_facts, retry_findings, setting_findings
from harness.supervise.understand import Understanding, masked_override, understand

Say = Callable[[str], None]
REPORT_TIMEOUT_S = 60.0
"""Time limit of each of the trainer's own reports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What will be launched, with secrets; never written anywhere as it stands."""

    spec: RunSpec
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    facts: FrameworkFacts
    redactor: Redactor
    cap_steps: int | None
    """Completed steps at which the harness itself stops the run; None where the command's own limit does."""
    cap_epochs: int | None
    """The same for epochs."""
    interpreter: Path | None = None
    """The trainer's Python, where it can be told."""
    program: Sources | None = None
    """The program's own files, where it is one of torch."""
    capacity: Capacity | None = None
    smokes: tuple[Smoke, ...] = ()
    """What -m smoke_capacity runs."""


def redactor_for(spec: RunSpec, environ: Mapping[str, str]) -> Redactor:
    """A redactor that knows the secrets of the command, the environment and the config files the command names."""
    try:
        words = shlex.split(spec.train_cmd)
    except ValueError:
        words = spec.train_cmd.split()
    words += spec.hp
    return Redactor.from_run(words, environ, named_config_files(words, spec.workdir))


def preflight(
    spec: RunSpec, *, journal: Journal, say: Say, redactor: Redactor, must_end: Callable[[], bool],
    earlier: Earlier | None = None,
) -> Plan | None:
    """The plan, or None when a finding forbids the launch; either way everything learnt is in the journal.

    `must_end`: whether who asked wants nothing any more; children that fetch or load are stopped then.
    `earlier`: the run that this one retries.
    """
    if over := expired(spec.waivers, time.time()):
        _journal_command(journal, spec, redactor)
        say(f"Not launched: waivers of the policy have passed their end: {'; '.join(map(told_waiver, over))}")
        return None
    environ = dict(os.environ)
    try:
        understood = understand(spec, environ, write=True)
        localised, about_assets, had = with_assets(understood, spec, environ, must_end)
        if localised != spec:
            understood = understand(localised, environ, write=True)
    except CommandError as error:
        finding = Finding(code=Reason.COMMAND_REFUSED.value, message=str(error), refuses=True)
        _journal_command(journal, spec, redactor, findings=(finding,))
        _announce_refusal((finding,), say, redactor)
        return None
    say(f"Parsed command: {masked_command(spec.train_cmd, redactor)}")
    command, facts, findings = understood.command, understood.facts, (*understood.findings, *about_assets)
    settings = command_settings(command, spec, redactor)
    reference = named_reference("model", settings, command.directory or spec.workdir)
    model = had.start or had.base
    if model is None and not understood.assets:
        model = _cached(reference, facts, {**environ, **dict(command.env_assignments)})
    start = model.local_path if model is not None and model is not had.base else None
    if start is not None and facts.start_weights is None and any(start.glob("*.safetensors")):
        facts = replace(facts, start_weights=str(start))
    for finding in about_assets:
        if not finding.refuses:
            say(finding.message)
    say(f"Framework detected: {understood.framework} ({understood.framework_reason})")
    overrides = [masked_override(item, redactor) for item in understood.overrides]
    for item in overrides:
        say(f"HP override: {item['key']}={item['value']} ({item['how']})")
    if understood.capacity is not None:
        say(f"Capacity: {understood.capacity.line()}")
    changes = dict(command.env_assignments)
    changes |= _child_changes(spec, {**environ, **changes}, overrides)
    child = {**environ, **changes}
    told = partial(_journal_command, journal, spec, redactor, command=command, facts=facts, overrides=overrides,
                   changes=changes, sizes=understood.capacity)
    findings += _trains_again(spec, command)
    told(findings=findings)
    journal.write("settings", **settings)
    another_job = setting_findings(earlier, spec, facts, journal) if earlier is not None else ()
    if another_job:
        findings += another_job
        told(findings=findings)
    interpreter = interpreter_path(command, spec.workdir, child)
    environment = record_environment(
        workdir=spec.workdir, reports=understood.preparation.trainer_reports, environ=child,
        timeout=REPORT_TIMEOUT_S, interpreter=interpreter,
    )
    environment = read_reports(understood.framework, environment, inner_command(command), interpreter=interpreter,
                               workdir=spec.workdir, environ=child)
    journal.write("environment", environment=environment, commit=commit_facts(spec.workdir))
    findings += _missing_gpu(spec, facts, environment) or _not_ready(environment)
    if not any(finding.refuses for finding in findings):
        facts_of_data, about_data = look_at_dataset(
            command, understood.dataset, spec, {**environ, **dict(command.env_assignments)}, redactor,
            must_end, had.dataset_commit)
        if not facts_of_data["needed"]:
            facts_of_data |= named_reference("dataset", settings, command.directory or spec.workdir) or {}
        journal.write("dataset", **facts_of_data)
        findings += about_data
        for line in announced(facts_of_data):
            say(line)
    weights = model_facts(facts, redactor, model)
    if weights["source"] is None:
        weights |= reference or {}
    journal.write("model", **weights)
    if earlier is not None and not another_job and (about_retry := retry_findings(earlier, spec, facts, journal)):
        findings += about_retry
        told(findings=findings)
    if any(finding.refuses for finding in findings):
        _announce_refusal(findings, say, redactor)
        return None
    if spec.probe:
        (spec.out_dir / outdir.PROBE_DIR).mkdir(exist_ok=True)
    _write_command(spec, command, changes, redactor)
    say(f"Command written to: {spec.out_dir / outdir.RUN_COMMAND}")
    return Plan(spec=spec, argv=command.argv, environment=child, facts=facts, redactor=redactor,
                cap_steps=_cap(spec.max_steps, facts.target_steps),
                cap_epochs=_cap(spec.max_epochs, facts.target_epochs), interpreter=interpreter,
                program=find_sources(Settings(inner_command(command), spec.workdir)),
                capacity=understood.capacity, smokes=_smokes(understood, spec, environment))


def _smokes(understood: Understanding, spec: RunSpec, environment: Mapping[str, Any]) -> tuple[Smoke, ...]:
    """The smokes with their whole command lines; none where none was asked for."""
    if not spec.smoke:
        return ()
    known = smokes_of(understood.framework, inner_command(understood.command), spec.out_dir / outdir.SMOKE,
                      gpu=num_gpus(environment) > 0)
    found = []
    for smoke in known:
        command, unplaced = add_arguments(understood.command, smoke.words)
        if unplaced is None:
            found.append(replace(smoke, argv=command.argv))
    return tuple(found)


def _child_changes(
    spec: RunSpec, environ: Mapping[str, str], overrides: Sequence[Mapping[str, Any]]
) -> dict[str, str]:
    """The environment changes that the harness makes, each of which is announced."""
    changes = {"PYTHONUNBUFFERED": "1"}
    if spec.probe:
        earlier = environ.get("PYTHONPATH")
        changes["PYTHONPATH"] = os.pathsep.join([str(site_dir()), *([earlier] if earlier else [])])
        changes[ENV_DIR] = str(spec.out_dir / outdir.PROBE_DIR)
        changes |= {ENV_ASKED: names} if (names := asked(overrides)) else {}
    return changes


def _cap(asked: int | None, own: float | None) -> int | None:
    """The harness stops a run at its cap only where the command's own limit does not end it there or before."""
    return None if asked is None or (own is not None and own <= asked) else asked


def _journal_command(
    journal: Journal,
    spec: RunSpec,
    redactor: Redactor,
    *,
    command: TrainingCommand | None = None,
    facts: FrameworkFacts | None = None,
    overrides: Sequence[Mapping[str, Any]] = (),
    changes: Mapping[str, str] | None = None,
    findings: tuple[Finding, ...] = (),
    sizes: Capacity | None = None,
) -> None:
    journal.write(
        "command",
        text=masked_command(spec.train_cmd, redactor),
        argv=redactor.argv(list(command.argv)) if command else None,
        cwd=str(spec.workdir),
        env_changes=redactor.environment(changes or {}),
        entrypoint=str(command.entrypoint) if command and command.entrypoint else command.module if command else None,
        facts=facts.to_json() if facts else None,
        topology=processes_asked(inner_command(command)).to_json() if command else None,
        overrides=list(overrides),
        capacity=sizes.to_json() if sizes else None,
        capacity_line=sizes.line() if sizes else None,
        findings=[{"code": f.code, "message": f.message, "refuses": f.refuses,
                   **({"remedy": f.remedy} if f.remedy else {})} for f in findings],
    )


def masked_command(text: str, redactor: Redactor) -> str:
    """A command line with its secrets masked, a short one after its flag too."""
    try:
        words = shlex.split(text)
    except ValueError:
        return redactor.text(text)
    masked = redactor.argv(words)
    return text if masked == words else shlex.join(masked)


def _cached(
    reference: Mapping[str, Any] | None, facts: FrameworkFacts, environ: Mapping[str, str]
) -> HubAsset | None:
    """A named model that lies in Hugging Face's cache, where the adapter found none that training starts from."""
    if reference is None or reference["local_path"] or facts.start_weights or facts.base_weights:
        return None
    return cached_model(str(reference["source"]), reference["revision"], environ)


def _trains_again(spec: RunSpec, command: TrainingCommand) -> tuple[Finding, ...]:
    """The function of --reload-with in the program itself, which would train once more, over what it saved."""
    inner = inner_command(command)
    entrypoint = inner.entrypoint or (module_file(inner.module, source_roots(inner, spec.workdir)) if inner.module
                                      else None)
    function = function_of(spec.reload_with) if spec.reload_with else None
    if function is None or entrypoint is None or entrypoint.resolve() != function.path.resolve() or (
            not runs_when_imported(function.path)):
        return ()
    message = (f"--reload-with {function}: it is the program itself, which trains wherever it is imported, since it "
               f'has no `if __name__ == "__main__":`; put {function.name} into a file of its own')
    return (Finding(code=Reason.COMMAND_REFUSED.value, message=message, refuses=True),)


def _missing_gpu(spec: RunSpec, facts: FrameworkFacts, environment: Mapping[str, Any]) -> tuple[Finding, ...]:
    """A GPU that the job needs and that is not there forbids the launch; the gate env_facts says so too."""
    if not (spec.require_gpu or facts.needs_gpu) or num_gpus(environment):
        return ()
    why = "--require-gpu" if spec.require_gpu else "the command trains with CUDA"
    return (Finding(code=Reason.GPU_MISSING.value, message=f"{why}: no GPU is visible", refuses=True),)


def _not_ready(environment: Mapping[str, Any]) -> tuple[Finding, ...]:
    """The trainer's own check of the machine fails on something that this job needs."""
    needed = (environment.get("trainer_check") or {}).get("needed_failures") or []
    if not needed:
        return ()
    message = f"the trainer's own check fails on what this job needs: {'; '.join(map(str, needed))}"[:2000]
    return (Finding(code=Reason.TRAINER_NOT_READY.value, message=message, refuses=True),)


def _write_command(
    spec: RunSpec, command: TrainingCommand, changes: Mapping[str, str], redactor: Redactor
) -> None:
    """run-command.txt: working directory, changed environment, and the command, quoted for a shell."""
    lines = [f"cd {shlex.quote(str(spec.workdir))}"]
    masked = redactor.environment(changes)
    lines += [f"export {name}={shlex.quote(value)}" for name, value in masked.items()]
    lines.append(shlex.join(redactor.argv(list(command.argv))))
    write_text(spec.out_dir / outdir.RUN_COMMAND, "\n".join(lines) + "\n")


def _announce_refusal(findings: tuple[Finding, ...], say: Say, redactor: Redactor) -> None:
    for finding in findings:
        if finding.refuses:
            say(f"Not launched: {redactor.text(finding.message)}")
