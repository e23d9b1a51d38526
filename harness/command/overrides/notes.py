"""Options of launchers that have the name of a script's flag: never changed, but told."""

from __future__ import annotations

from collections.abc import Iterator

from harness.command.model import Finding, TrainingCommand
from harness.command.overrides.model import Flag
from harness.command.overrides.synonyms import normal

TORCHRUN_OPTIONS = (
    *("nnodes", "nproc-per-node", "rdzv-backend", "rdzv-endpoint", "rdzv-id", "rdzv-conf", "standalone"),
    *("max-restarts", "monitor-interval", "start-method", "role", "module", "no-python", "run-path", "log-dir"),
    *("redirects", "tee", "local-ranks-filter", "node-rank", "master-addr", "master-port", "local-addr"),
    *("logs-specs", "numa-binding"),
)
"""Options of torchrun in torch 2.13."""


def launcher_options(command: TrainingCommand) -> dict[str, str]:
    """normal name -> the option as the launcher part gives it."""
    names = (word.partition("=")[0] for word in command.launcher_part if word.startswith("-"))
    return {normal(name): name for name in names if normal(name)}


def launcher_owner(command: TrainingCommand, key: str) -> str:
    """The launcher whose option `key` is, as `--num_gpus of deepspeed`; "" where there is none."""
    given = launcher_options(command).get(normal(key))
    launcher = command.launched_by("deepspeed", "torchrun", "accelerate", "accelerate-launch", "srun", "mpirun")
    return f"the launcher ({given} of {launcher or command.program})" if given else ""


def launcher_notes(command: TrainingCommand, flag: Flag) -> Iterator[Finding]:
    """What a user should know where a launcher has, or may take for itself, a flag of this name."""
    given = launcher_options(command)
    for name in flag.names:
        if normal(name) in given:
            message = f"the launcher has {given[normal(name)]} too; only the script's {name} is changed"
            yield Finding(code="launcher-has-it-too", message=message, refuses=False)
    if command.launched_by("torchrun"):
        for name in flag.names:
            same = [option for option in TORCHRUN_OPTIONS if option.startswith(name.lstrip("-").replace("_", "-"))]
            if name.startswith("--") and same:
                message = (
                    f"older releases of torchrun take {name} for their own --{same[0]}: if it stops with "
                    "'ambiguous option', give the script's flag another name"
                )
                yield Finding(code="launcher-may-take-it", message=message, refuses=False)
