"""TRL: trainers on top of Transformers', read off its 1.16 release and checked against real runs of it.

Its reward_std is that of a whole batch; whether rewards differ within a group, which is what a group-relative
algorithm learns from, is told by frac_reward_zero_std.
"""

from __future__ import annotations

import glob
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.command.model import TrainingCommand
from harness.command.overrides.model import FlagTable
from harness.frameworks.argument_classes import argument_table
from harness.frameworks.base import FrameworkFacts, Preparation
from harness.frameworks.settings import Settings
from harness.frameworks.source import Program
from harness.frameworks.transformers import CONSTRUCTORS, TransformersAdapter, addition
from harness.spec import RunSpec

KINDS = {
    "sft": "sft", "dpo": "dpo", "grpo": "rollout", "rloo": "rollout", "ppo": "rollout", "gspo": "rollout",
    "online_dpo": "rollout", "kto": "dpo", "orpo": "dpo", "cpo": "dpo", "reward": "other", "gkd": "other",
    "bco": "dpo", "nash_md": "rollout", "xpo": "rollout", "prm": "other",
}  # fmt: skip
"""{algorithm: kind}; a trainer's class is the name followed by `Trainer` or `Config`."""
KEEPS_COMPLETIONS = ("grpo", "rloo")
"""Whose configurations have log_completions."""
TRAINER_SUFFIXES = ("Trainer", "Config")
PARSER = "TrlParser"
_NOT_ALGORITHMS = frozenset({"ModelConfig"})


def _classes(algorithm: str) -> tuple[str, ...]:
    stem = {"reward": "Reward", "nash_md": "NashMD", "online_dpo": "OnlineDPO"}.get(algorithm, algorithm.upper())
    return tuple(f"{stem}{suffix}" for suffix in TRAINER_SUFFIXES)


_CLASS_NAMES = tuple(name for algorithm in KINDS for name in _classes(algorithm))


class TrlAdapter(TransformersAdapter):
    """A program around one of TRL's trainers, or its command line."""

    name = "trl"
    constructors = (*_CLASS_NAMES, *CONSTRUCTORS)
    logging_steps = 10
    parsers = ("HfArgumentParser", PARSER)

    def recognise(self, command: TrainingCommand, program: Program) -> str | None:
        """By `trl ...`, or by a trainer of it in the source."""
        found = _cli_words(command)
        if found is not None:
            return f"`{' '.join(['trl', *found[:1]])}` is TRL's command line"
        names = (*_CLASS_NAMES, PARSER)
        used = program.user(("trl",), names)
        if used is not None:
            return f"{program.where(used[0])} uses trl.{used[1]}"
        return None

    def recognise_config(self, config: Mapping[str, Any], name: str) -> str | None:
        """A config file alone says no more than that it is for TrainingArguments."""
        return None

    def algorithm(self, command: TrainingCommand, settings: Settings) -> tuple[str | None, str]:
        """By the command's subcommand, else by the trainer's class; None where several are used."""
        found = _cli_words(command)
        name = found[0] if found else None
        if name is None:
            names = settings.program.names("trl") - _NOT_ALGORITHMS
            used = {known for known in KINDS for cls in _classes(known) if cls in names}
            name = used.pop() if len(used) == 1 else None
        return name, KINDS.get(name or "", "other")

    def prepare(self, command: TrainingCommand, spec: RunSpec) -> Preparation:
        """What transformers' programs are given, and a rollout trainer's completions kept."""
        made = super().prepare(command, spec)
        settings = self._settings(command, spec)
        kept = settings.get("log_completions", False)
        wanted = self.algorithm(command, settings)[0] in KEEPS_COMPLETIONS and spec.observability
        if not wanted or not self._takes_flags(command, settings) or not kept.off:
            return made
        return replace(made, additions=(*made.additions, addition("log_completions", "True")))

    def facts(self, command: TrainingCommand, spec: RunSpec, reason: str) -> FrameworkFacts:
        """Those of transformers, and where a rollout trainer keeps its completions."""
        facts = super().facts(command, spec, reason)
        if facts.algorithm_kind != "rollout":
            return facts
        patterns = tuple(f"{glob.escape(root)}/completions/completions_*.parquet" for root in facts.checkpoint_roots)
        return replace(facts, sample_globs=patterns, sample_hint="give the program --log_completions True")

    def signals(self, kind: str) -> dict[str, Any]:
        """Groups whose rewards are all equal teach nothing."""
        if kind != "rollout":
            return {}
        return {
            "signal_tags": (r"^(train/)?reward_std$",),
            "signal_floor": 1e-6,
            "dead_signal_tags": (r"^(train/)?frac_reward_zero_std$",),
        }

    def override_flags(self, command: TrainingCommand, spec: RunSpec) -> FlagTable:
        """For TRL's own command line the classes that its script of that name is given."""
        found = _cli_words(command)
        if found is None:
            return super().override_flags(command, spec)
        return argument_table(command, spec.workdir, f"trl.scripts.{found[0]}") if found else FlagTable()

    def takes_flags_by_itself(self, command: TrainingCommand) -> bool:
        """`trl sft` and its like read every field of their configuration as a flag, beside --config too."""
        return _cli_words(command) is not None


def _cli_words(command: TrainingCommand) -> tuple[str, ...] | None:
    """The words behind `trl` or `python -m trl...`."""
    if command.module in ("trl", "trl.cli"):
        return command.script_args
    if command.module is not None and command.module.startswith("trl.scripts."):
        return (command.module.rpartition(".")[2], *command.script_args)
    start = len(command.argv) - len(command.script_args)
    if command.module is None and start and Path(command.argv[start - 1]).name == "trl":
        return command.script_args
    return None
