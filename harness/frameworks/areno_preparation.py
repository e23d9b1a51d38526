"""What an `areno train` command is refused, warned of and given before it runs."""

from __future__ import annotations

from pathlib import Path

from harness.command.model import Finding, TrainingCommand
from harness.frameworks.areno_algorithms import ALGORITHMS, OTHER_ALGORITHM
from harness.frameworks.areno_command import (
    CHECKPOINT_FLAGS,
    DATASET_SUFFIXES,
    SMOKE_FLAGS,
    Invocation,
    number,
    saves_nothing,
)
from harness.frameworks.base import Addition
from harness.record.reasons import Reason
from harness.spec import RunSpec

NOT_TRAINING = {
    "agent": "hands the work to a coding agent",
    "check": "checks the machine",
    "dashboard": "serves a dashboard",
    "env": "prints an environment report",
    "serve": "serves a model",
}


def refusal(command: TrainingCommand, found: Invocation, spec: RunSpec) -> Finding | None:
    """Why the command cannot be a training run."""
    if found.subcommand != "train":
        does = NOT_TRAINING.get(found.subcommand, "is no training command")
        return _refused(f"`{found.shown}` {does}; give the `areno train` command")
    if command.flag("--help", "-h") is not None:
        return _refused("`areno train --help` only prints help; drop the flag")
    for smoke in SMOKE_FLAGS:
        if command.flag(smoke) is not None:
            return _refused(f"{smoke} runs on dummy weights and data and is no training; drop the flag")
    if (command.flag("--model-hub") or "").lower() == "hf":
        return _refused("--model-hub hf is not supported; without it references come from ModelScope")
    for flag in CHECKPOINT_FLAGS:
        reference = command.flag(flag)
        if reference and _means_a_path(reference) and not (spec.workdir / reference).exists():
            return _refused(f"{flag} {reference}: not there (working directory {spec.workdir})")
    return None


def _refused(message: str) -> Finding:
    return Finding(code=Reason.COMMAND_REFUSED.value, message=message, refuses=True)


def advice(command: TrainingCommand, spec: RunSpec) -> tuple[Finding, ...]:
    """What is allowed and probably not meant."""
    findings = []
    target = number(command, "--max-steps")
    if saves_nothing(command):
        message = f"--save-interval is above --max-steps {target} and the end saves nothing: no checkpoint"
        findings.append(Finding(code="nothing-saved", message=message, refuses=False))
    rule = ALGORITHMS.get((command.flag("--algo") or "").strip().lower(), OTHER_ALGORITHM)
    warmup = number(command, rule.warmup, rule.default_warmup) if rule.warmup else None
    if target is not None and warmup is not None and target <= warmup:
        message = f"--max-steps {target} lies inside {rule.warmup} {warmup}: no update of the policy"
        findings.append(Finding(code="inside-critic-warmup", message=message, refuses=False))
    if not spec.observability and not command.flag("--metrics-log-dir"):
        message = "AReno's default --metrics-log-dir is shared by all runs of a machine: give one"
        findings.append(Finding(code="shared-metrics-directory", message=message, refuses=False))
    return tuple(findings)


def metrics_dir(command: TrainingCommand, spec: RunSpec) -> Addition | None:
    """AReno's default directory is one for all runs of the machine, so a run gets its own."""
    if command.flag("--metrics-log-dir") or not spec.observability:
        return None
    directory = str(spec.metrics_dir or spec.out_dir / "metrics")
    return _addition("metrics_log_dir", directory, flag="--metrics-log-dir", kind="observability")


def model_hub(command: TrainingCommand, spec: RunSpec) -> Addition | None:
    """Said on the command line, so that another default of another release changes nothing."""
    if command.flag("--model-hub") is not None:
        return None
    references = [command.flag(flag) for flag in CHECKPOINT_FLAGS]
    dataset = command.flag("--dataset-path")
    if dataset and Path(dataset).suffix.lower() not in DATASET_SUFFIXES:
        references.append(dataset)
    if not any(reference and not (spec.workdir / reference).exists() for reference in references):
        return None
    return _addition("model_hub", "modelscope", flag="--model-hub", kind="semantic")


def step_limit(command: TrainingCommand, spec: RunSpec) -> Addition | None:
    """The cap by AReno's own flag; its learning-rate schedule follows --lr-decay-steps and stays."""
    limit = number(command, "--max-steps")
    if spec.max_steps is None or (limit is not None and limit <= spec.max_steps):
        return None
    return _addition("max_steps", str(spec.max_steps), flag="--max-steps", kind="semantic")


def _addition(key: str, value: str, *, flag: str, kind: str) -> Addition:
    return Addition(key=key, value=value, how=f"injected as {flag} {value}", kind=kind, words=(flag, value))


def _means_a_path(reference: str) -> bool:
    """Whether a reference can only be a local one: a ModelScope id is OWNER/NAME."""
    return reference.startswith(("/", "./", "../", "~")) or reference.count("/") > 1
