"""How many processes a command's launchers are to start, as they themselves are told."""

from __future__ import annotations

from dataclasses import dataclass

from harness.command.model import Launcher, TrainingCommand

PER_GROUP = ("torchrun", "accelerate", "accelerate-launch", "deepspeed")
"""Launchers whose processes are one process group of torch.distributed."""
_PROCESSES = {
    "torchrun": ("nproc-per-node",), "accelerate": ("num-processes",), "accelerate-launch": ("num-processes",),
    "deepspeed": ("num-gpus",), "srun": ("n", "ntasks"), "mpirun": ("n", "np", "c"), "mpiexec": ("n", "np", "c"),
    "orterun": ("n", "np", "c"),
}
_NODES = {"torchrun": ("nnodes",), "deepspeed": ("num-nodes",)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the launchers of a command are told."""

    launcher: str
    """The one that starts the processes; "local" where none does."""
    processes: int | None
    """In all; None where that depends on the machine or a config file."""
    local: int | None
    """Those of them that this command starts itself, without other nodes'."""

    restarts: int = 0
    """How often the launcher may start the processes again."""

    @property
    def one_group(self) -> bool:
        """Whether the processes are to be one process group."""
        return self.launcher in PER_GROUP


    def to_json(self) -> dict[str, str | int | bool | None]:
        """As the journal holds it."""
        return {"launcher": self.launcher, "processes": self.processes, "local": self.local,
                "one_group": self.one_group, "restarts": self.restarts}


def processes_asked(command: TrainingCommand) -> Asked:
    """By the innermost launcher, times the outer ones' unless it counts the nodes itself.

    `srun -n 2 torchrun --nproc-per-node 4` starts 8 processes; with `--nnodes 2` srun's tasks are those nodes.
    """
    found = [launcher for launcher in command.launchers if launcher.name in _PROCESSES]
    if not found:
        return Asked(launcher="local", processes=1, local=1)
    inner = found[-1]
    local, nodes = _per_node(inner, command), _nodes(inner, command)
    total = None if local is None or nodes is None else local * nodes
    if nodes == 1:
        for outer in found[:-1]:
            count = _per_node(outer, command)
            total = None if total is None or count is None else total * count
        local = total
    restarts = _number(_words(inner, command), ("max-restarts",), default=0) or 0
    return Asked(launcher=inner.name, processes=total, local=local, restarts=restarts)


def _per_node(launcher: Launcher, command: TrainingCommand) -> int | None:
    default = 1 if launcher.name == "torchrun" else None
    return _number(_words(launcher, command), _PROCESSES[launcher.name], default=default)


def _nodes(launcher: Launcher, command: TrainingCommand) -> int | None:
    return _number(_words(launcher, command), _NODES.get(launcher.name, ()), default=1)


def _words(launcher: Launcher, command: TrainingCommand) -> tuple[str, ...]:
    return command.argv[launcher.start + 1 : launcher.stop]


def _number(words: tuple[str, ...], names: tuple[str, ...], *, default: int | None) -> int | None:
    """The last value given; None for one that is no plain number, such as `gpu` or `1:4`."""
    found = default
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if word.startswith("-") and name.lstrip("-").replace("_", "-") in names:
            text = value if equals else "".join(words[index + 1 : index + 2])
            found = int(text) if text.isdecimal() and int(text) > 0 else None
    return found
