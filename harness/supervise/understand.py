"""What a command will be once the harness has read it: overrides placed, caps decided, additions made, all checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.capacity import capacity_findings
from harness.command.bare import complete_bare_script
from harness.command.limits import epoch_limit, step_limit
from harness.command.model import Finding, TrainingCommand
from harness.command.overrides.help_text import run_help
from harness.command.overrides.model import FlagTable, Override, OverrideRequest, OverrideResult, parse_requests
from harness.command.overrides.resolve import apply_overrides
from harness.command.overrides.surface import add_arguments
from harness.command.parse import parse_command
from harness.command.shell_text import inner_command
from harness.command.validate import validate
from harness.frameworks.areno_build import unknown_flags
from harness.frameworks.base import FrameworkAdapter, FrameworkFacts, Preparation
from harness.frameworks.capacity import Capacity, StatesCapacity
from harness.frameworks.dataset import NamedDataset, NamesAssets, NamesDataset, RemoteAsset
from harness.frameworks.flags import flag_table
from harness.frameworks.registry import detect
from harness.frameworks.trackers import with_trackers
from harness.record.redaction import Redactor
from harness.spec import RunSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Understanding:
    """A command before launch, secrets in it."""

    command: TrainingCommand
    """With overrides, caps and additions."""
    framework: str
    framework_reason: str
    facts: FrameworkFacts
    preparation: Preparation
    overrides: tuple[Override, ...]
    """The user's, the caps' and the harness's own, in this order."""
    findings: tuple[Finding, ...]
    written: tuple[Path, ...]
    """Rewritten config files in the out-dir."""
    dataset: NamedDataset | None
    """What the command trains on, where its adapter can tell."""
    assets: tuple[RemoteAsset, ...]
    """What it takes from a hub."""
    capacity: Capacity | None
    """How much it asks for at once, where its adapter can tell."""

    @property
    def refused(self) -> bool:
        """Whether nothing may be launched."""
        return any(finding.refuses for finding in self.findings)


def understand(spec: RunSpec, environ: Mapping[str, str], *, write: bool) -> Understanding:
    """Read, detect, override, complete and check; with `write` a rewritten config goes into the out-dir.

    CommandError when the text is no command; ConfigError for an override that cannot be read or a framework that is
    not known.
    """
    requests = parse_requests(spec.hp, spec.hp_flags)
    command = complete_bare_script(parse_command(spec.train_cmd, spec.workdir), spec.workdir, environ)
    adapter, reason = detect(inner_command(command), spec)
    asked = {request.key for request in requests}
    caps = [cap for cap in cap_requests(command, spec) if cap.key not in asked]
    result = _override(command, adapter, spec, (*requests, *caps), environ, write=write)
    preparation = adapter.prepare(inner_command(result.command), spec)
    completed, unplaced = add_arguments(
        result.command, tuple(word for item in preparation.additions for word in item.words))
    additions = tuple(Override(key=item.key, value=item.value, how=item.how, kind=item.kind, place=item.words[0])
                      for item in preparation.additions if unplaced is None)
    sizes = adapter.capacity(inner_command(result.command), spec) if isinstance(adapter, StatesCapacity) else None
    findings = (*command.findings, *((unplaced,) if unplaced else ()), *result.findings,
                *cap_findings(caps, result, spec), *preparation.findings,
                *_built_findings(result.command, spec, environ),
                *(capacity_findings(sizes) if sizes is not None else ()),
                *validate(command, spec.workdir, environ))
    return Understanding(
        command=completed, framework=adapter.name, framework_reason=reason,
        facts=with_trackers(adapter.facts(inner_command(completed), spec, reason), completed, spec, environ),
        preparation=preparation,
        overrides=(*result.applied, *additions), findings=tuple(dict.fromkeys(findings)),
        written=tuple(result.files) if result.written else (),
        dataset=adapter.named_dataset(inner_command(completed), spec) if isinstance(adapter, NamesDataset) else None,
        assets=adapter.remote_assets(inner_command(completed), spec) if isinstance(adapter, NamesAssets) else (),
        capacity=sizes,
    )


def _override(
    command: TrainingCommand, adapter: FrameworkAdapter, spec: RunSpec, requests: Sequence[OverrideRequest],
    environ: Mapping[str, str], *, write: bool,
) -> OverrideResult:
    table = flag_table(adapter, inner_command(command), spec) if requests else FlagTable()
    return apply_overrides(
        command, requests, flag_table=table, workdir=spec.workdir, environ=environ, out_dir=spec.out_dir, write=write,
    )


def _built_findings(command: TrainingCommand, spec: RunSpec, environ: Mapping[str, str]) -> tuple[Finding, ...]:
    """Of a command that the harness built: every flag is one of the installed version."""
    if not spec.built_from:
        return ()
    argv = inner_command(command).argv
    output = run_help((*argv[:argv.index("train") + 1], "--help"), spec.workdir, {**environ})
    return unknown_flags(argv, output)


def cap_requests(command: TrainingCommand, spec: RunSpec) -> tuple[OverrideRequest, ...]:
    """--max-steps and --max-epochs as requests that may go unplaced; none where the command's limit is lower already.

    With --cap harness nothing is asked of the program, so that its schedule stays.
    """
    if spec.cap == "harness":
        return ()
    seen = inner_command(command)
    steps, epochs = step_limit(seen), epoch_limit(seen)
    requests = []
    if spec.max_steps is not None and (steps is None or steps[0] > spec.max_steps):
        requests.append(OverrideRequest(key="max_steps", value=str(spec.max_steps), optional=True))
    if spec.max_epochs is not None and (epochs is None or epochs[0] > spec.max_epochs):
        requests.append(OverrideRequest(key="max_epochs", value=str(spec.max_epochs), optional=True))
    return tuple(requests)


def cap_findings(
    requests: Sequence[OverrideRequest], result: OverrideResult, spec: RunSpec
) -> tuple[Finding, ...]:
    """What a cap does to the run: its schedule, or who stops it where the program has no such limit."""
    findings = []
    for request in requests:
        option = "--" + request.key.replace("_", "-")
        if request.key in result.unplaced:
            message = f"{option} {request.value}: the program has no such limit that can be told; "
            message += "the harness stops the run there"
            findings.append(Finding(code="cap-by-harness", message=message, refuses=False))
        else:
            message = (f"{option} {request.value} is given to the program itself, whose learning-rate schedule may "
                       "follow it; --cap harness stops the run there and keeps the schedule")
            findings.append(Finding(code="cap-changes-schedule", message=message, refuses=False))
    return tuple(findings)


def masked_override(item: Override, redactor: Redactor) -> dict[str, Any]:
    """{key, value, how, kind, place} with a secret value masked, a short one after its flag too."""
    value = str(item.value)
    hidden = redactor.argv([item.place, value])[-1] if item.place.startswith("-") else redactor.text(value)
    hidden = str(redactor.json({item.key: hidden})[item.key])
    document = item.to_json()
    if hidden != value:
        document = {**document, "value": hidden, "how": item.how.replace(value, hidden)}
    masked: dict[str, Any] = redactor.json(document)
    return masked
