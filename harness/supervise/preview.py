"""`python -m harness command`: a training command understood, checked and overridden, without launching it."""

from __future__ import annotations

import os
import shlex
from typing import Any

from harness.command.configs import config_files
from harness.command.model import Finding, TrainingCommand
from harness.command.parse import join_command
from harness.command.shell_text import inner_command
from harness.errors import CommandError
from harness.record.reasons import Reason
from harness.record.redaction import Redactor
from harness.spec import RunSpec
from harness.supervise.dataset import look_at_dataset
from harness.supervise.preflight import redactor_for
from harness.supervise.understand import masked_override, understand


def preview(spec: RunSpec, *, write: bool = False) -> dict[str, Any]:
    """{ok, argv, command, framework, framework_reason, entrypoint, config, overrides, findings}, secrets masked.

    `ok` is false when a finding forbids the launch, one about the dataset that the command names too. With `write` a
    rewritten config is put into the out-dir.
    Raises ConfigError for requests that cannot be read.
    """
    environ = dict(os.environ)
    redactor = redactor_for(spec, environ)
    try:
        understood = understand(spec, environ, write=write)
    except CommandError as error:
        refusal = Finding(code=Reason.COMMAND_REFUSED.value, message=str(error), refuses=True)
        return _document(spec, redactor, None, (refusal,))
    findings = understood.findings
    if understood.dataset is not None and not understood.refused:
        child = {**environ, **dict(understood.command.env_assignments)}
        findings += look_at_dataset(understood.command, understood.dataset, spec, child, redactor)[1]
    document = _document(spec, redactor, understood.command, findings)
    configs = config_files(inner_command(understood.command), spec.workdir)
    document.update(
        framework=understood.framework,
        framework_reason=understood.framework_reason,
        config=[str(config.path) for config in configs],
        overrides=[masked_override(item, redactor) for item in understood.overrides],
        written=[str(path) for path in understood.written],
    )
    return document


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
