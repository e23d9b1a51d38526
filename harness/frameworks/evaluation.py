"""A command's own evaluation mode: the same program on what it saved, without training, where a framework knows one."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from harness.command.model import TrainingCommand
from harness.frameworks.source import Program


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Which saved models the mode takes, and its words."""

    adapter: str
    """The loader whose checkpoints it takes, see `harness.checkpoints.reload.Target`."""
    argv: tuple[str, ...]


@runtime_checkable
class KnowsEvaluation(Protocol):
    """An adapter whose programs can evaluate what they saved."""

    def evaluation(
        self, command: TrainingCommand, program: Program, checkpoint: Path, place: Path
    ) -> Evaluation | None:
        """The command that evaluates `checkpoint` on a CPU and writes below `place` alone; None where it has none."""
        ...


def without(words: Sequence[str], *names: str) -> list[str]:
    """Words without these flags, those below them (`--a.b` is below `--a`) and all their values."""
    wanted, kept, skips = [name.replace("_", "-") for name in names], list[str](), False
    for word in words:
        is_flag = word.startswith("-") and not word[1:2].isdigit()
        if is_flag:
            flag = word.partition("=")[0].rstrip("+").replace("_", "-")
            skips = any(flag == name or flag.startswith(f"{name}.") for name in wanted)
        if not skips:
            kept.append(word)
    return kept


def mentions(program: Program, *texts: str) -> bool:
    """Whether the program's own files hold all of these: a flag that no code reads changes nothing."""
    left = set(texts)
    for module in program.modules:
        with contextlib.suppress(OSError):
            source = module.path.read_text(encoding="utf-8", errors="replace")
            left -= {text for text in left if text in source}
    return not left


def is_on(value: str | None) -> bool:
    """Whether a switch is given, alone or with a word for true."""
    return value is not None and value.lower() in ("", "true", "1", "yes", "y", "t", "on")
