"""AReno's command line taken apart: where its CLI stands, and what single flags say."""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass
from pathlib import Path

from harness.command.model import TrainingCommand
from harness.spec import RunSpec

CLI_MODULES = ("areno.cli.main", "areno.cli.train")
"""What `python -m` starts; the second one is the `train` command itself."""
SMOKE_FLAGS = ("--smoke-train", "--smoke-infer")
CHECKPOINT_FLAGS = ("--ckpt", "--ref-ckpt", "--critic-ckpt", "--reward-ckpt")
LORA_FLAGS = ("--lora-rank", "--lora-adapter-path", "--qlora", "--q4")
"""With any of these a checkpoint holds adapter weights, or weights under other names than the start's."""
DATASET_SUFFIXES = {".json", ".jsonl", ".parquet", ".csv", ".tsv", ".arrow"}
"""A --dataset-path that ends so is a file for AReno, whether it exists or not."""
REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
DEFAULT_SAVE_INTERVAL = 100
DEFAULT_MEM_FRAC = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """Where AReno's CLI stands in a command."""

    cli: tuple[str, ...]
    """The words that start the CLI, launchers included; a command name may follow them."""
    subcommand: str

    @property
    def shown(self) -> str:
        """As a person would name it."""
        return f"areno {self.subcommand}".strip()

    @classmethod
    def find(cls, command: TrainingCommand) -> Invocation | None:
        """The program word `areno` or `python -m areno.cli...`, and the command that follows it."""
        start = len(command.argv) - len(command.script_args)
        if command.module in CLI_MODULES:
            cli = command.argv[:start]
            if command.module == CLI_MODULES[0]:
                return cls(cli=cli, subcommand=_first(command.script_args))
            return cls(cli=(*cli[:-1], CLI_MODULES[0]), subcommand="train")
        programs = [index for index, word in enumerate(command.argv[:start]) if Path(word).name == "areno"]
        if command.module is not None or not programs:
            return None
        cli = command.argv[: programs[-1] + 1]
        return cls(cli=cli, subcommand=_first(command.argv[len(cli) :]))


def backend_of(command: TrainingCommand) -> str:
    """cuda, mlx or npu: --backend, else the host's, which is mlx on a Mac."""
    return (command.flag("--backend") or ("mlx" if platform.system() == "Darwin" else "cuda")).strip().lower()


def devices(text: str | None) -> int | None:
    """How many `0,2` or `0..7,10` names; None where it names none that can be counted."""
    found = 0
    for part in (text or "").split(","):
        first, dots, last = part.strip().partition("..")
        if not first.isdigit() or (dots and not last.isdigit()):
            return None
        found += int(last) - int(first) + 1 if dots else 1
    return found


def share(text: str | None) -> float:
    """Of the memory, AReno's default where it is no number."""
    try:
        return float(text) if text is not None else DEFAULT_MEM_FRAC
    except ValueError:
        return DEFAULT_MEM_FRAC


def _first(words: tuple[str, ...]) -> str:
    return words[0] if words else ""


def number(command: TrainingCommand, flag: str, default: int | None = None) -> int | None:
    """The integer that a flag gives, else the default; what is no integer AReno itself refuses."""
    value = command.flag(flag)
    if value is None:
        return default
    try:
        return int(value)
    except ValueError:
        return default


def saves_nothing(command: TrainingCommand) -> bool:
    """Whether the run ends before its first save; AReno has no final one."""
    target = number(command, "--max-steps")
    interval = number(command, "--save-interval", DEFAULT_SAVE_INTERVAL)
    if target is None or interval is None or not command.flag("--save-path"):
        return False
    return interval > target


def directory(command: TrainingCommand, spec: RunSpec, flag: str) -> tuple[str, ...]:
    """AReno expands no `~`, and neither does a launch without a shell."""
    value = command.flag(flag)
    return (str(spec.workdir / value),) if value else ()


def trains_adapter(command: TrainingCommand) -> bool:
    """Whether the weights of the start stay as they are."""
    return any(command.flag(flag) is not None for flag in LORA_FLAGS)
