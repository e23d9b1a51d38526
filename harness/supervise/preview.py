"""`python -m harness command`: a training command understood, checked and overridden, without launching it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from typing import Any

from harness.command.bare import complete_bare_script
from harness.command.configs import config_files
from harness.command.limits import epoch_limit, step_limit
from harness.command.model import Finding, TrainingCommand
from harness.command.overrides.model import OverrideRequest, OverrideResult, parse_requests
from harness.command.overrides.resolve import apply_overrides
from harness.command.parse import join_command, parse_command, with_arguments
from harness.command.shell_text import inner_command
from harness.command.validate import validate
from harness.errors import CommandError
from harness.frameworks.base import FrameworkAdapter
from harness.frameworks.flags import flag_table
from harness.frameworks.registry import detect
from harness.record.redaction import Redactor
from harness.record.vocabulary import Reason
from harness.spec import RunSpec
from harness.supervise.preflight import redactor_for


def cap_requests(
    command: TrainingCommand, max_steps: int | None, max_epochs: int | None
) -> tuple[OverrideRequest, ...]:
    """--max-steps and --max-epochs as requests that may go unplaced; none where the command's limit is lower."""
    seen = inner_command(command)
    steps, epochs = step_limit(seen), epoch_limit(seen)
    requests = []
    if max_steps is not None and (steps is None or steps[0] > max_steps):
        requests.append(OverrideRequest(key="max_steps", value=str(max_steps), optional=True))
    if max_epochs is not None and (epochs is None or epochs[0] > max_epochs):
        requests.append(OverrideRequest(key="max_epochs", value=str(max_epochs), optional=True))
    return tuple(requests)


def override_command(
    command: TrainingCommand, adapter: FrameworkAdapter, spec: RunSpec, requests: Sequence[OverrideRequest], *,
    write: bool = True,
) -> OverrideResult:
    """Every request placed in a command, with the options that the adapter knows."""
    return apply_overrides(
        command,
        requests,
        flag_table=flag_table(adapter, inner_command(command), spec),
        workdir=spec.workdir,
        environ=os.environ,
        out_dir=spec.out_dir,
        write=write,
    )


def cap_findings(requests: Sequence[OverrideRequest], result: OverrideResult) -> tuple[Finding, ...]:
    """What a cap does to the run: its schedule, or who stops it where the program has no such limit."""
    findings = []
    for request in requests:
        option = "--" + request.key.replace("_", "-")
        if not request.optional:
            continue
        if request.key in result.unplaced:
            message = f"{option} {request.value}: the program has no such limit that can be told"
            message += "; the harness stops the run there" if request.key == "max_steps" else ""
            findings.append(Finding(code="cap-by-harness", message=message, refuses=False))
        else:
            message = (
                f"{option} {request.value} is given to the program itself, whose learning-rate schedule follows it"
            )
            findings.append(Finding(code="cap-changes-schedule", message=message, refuses=False))
    return tuple(findings)


def preview(
    spec: RunSpec, hp: Sequence[str], hp_flags: Sequence[str], *, max_epochs: int | None = None, write: bool = False
) -> dict[str, Any]:
    """{ok, argv, command, framework, framework_reason, entrypoint, config, overrides, findings}, secrets masked.

    `ok` is false when a finding forbids the launch. With `write` a rewritten config is put into the out-dir.
    Raises ConfigError for requests that cannot be read.
    """
    requests = parse_requests(hp, hp_flags)
    environ = dict(os.environ)
    redactor = redactor_for(spec, environ)
    try:
        command = parse_command(spec.train_cmd, spec.workdir)
    except CommandError as error:
        refusal = Finding(code=Reason.COMMAND_REFUSED.value, message=str(error), refuses=True)
        return _document(spec, redactor, None, (refusal,))
    command = complete_bare_script(command, spec.workdir, environ)
    adapter, reason = detect(_for_detection(command), spec)
    asked = {request.key for request in requests}
    caps = [cap for cap in cap_requests(command, spec.max_steps, max_epochs) if cap.key not in asked]
    result = override_command(command, adapter, spec, (*requests, *caps), write=write)
    preparation = adapter.prepare(result.command, spec)
    words = tuple(word for item in preparation.additions for word in item.words)
    completed = with_arguments(result.command, words)
    findings = (
        *command.findings,
        *result.findings,
        *cap_findings(caps, result),
        *preparation.findings,
        *validate(command, spec.workdir, environ),
    )
    overrides = [item.to_json() for item in result.applied]
    overrides += [
        {"key": item.key, "value": item.value, "how": item.how, "kind": item.kind, "place": item.words[0]}
        for item in preparation.additions
    ]
    document = _document(spec, redactor, completed, findings)
    configs = config_files(_for_detection(completed), spec.workdir)
    document.update(
        framework=adapter.name,
        framework_reason=reason,
        config=[str(config.path) for config in configs],
        overrides=[_masked(item, redactor) for item in overrides],
        written=[str(path) for path in result.files] if result.written else [],
    )
    return document


def _for_detection(command: TrainingCommand) -> TrainingCommand:
    return inner_command(command)


def _masked(item: dict[str, Any], redactor: Redactor) -> dict[str, Any]:
    flag, value = str(item["place"]), str(item["value"])
    hidden = redactor.argv([flag, value])[-1] if flag.startswith("-") else redactor.text(value)
    hidden = redactor.json({str(item["key"]): hidden})[str(item["key"])]
    if hidden != value:
        item = {**item, "value": hidden, "how": item["how"].replace(value, str(hidden))}
    masked: dict[str, Any] = redactor.json(item)
    return masked


def _document(
    spec: RunSpec, redactor: Redactor, command: TrainingCommand | None, findings: tuple[Finding, ...]
) -> dict[str, Any]:
    argv = redactor.argv(list(command.argv)) if command else []
    entrypoint = (command.entrypoint or command.module) if command else None
    text = redactor.text(spec.train_cmd)
    if command is not None:
        masked = redactor.environment(dict(command.env_assignments))
        assignments = [f"{name}={shlex.quote(value)}" for name, value in masked.items()]
        text = " ".join([*assignments, shlex.join(argv)])
        if argv == list(command.argv) and masked == dict(command.env_assignments):
            text = join_command(command)
    return {
        "ok": not any(finding.refuses for finding in findings),
        "argv": argv,
        "command": text,
        "framework": None,
        "framework_reason": None,
        "entrypoint": str(entrypoint) if entrypoint else None,
        "config": [],
        "overrides": [],
        "written": [],
        "findings": [
            {"code": item.code, "message": redactor.text(item.message), "refuses": item.refuses}
            for item in dict.fromkeys(findings)
        ],
    }
