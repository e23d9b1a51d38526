"""Plain PyTorch programs, and every program of which nothing is known.

The source is read, never run, and no import is followed.
"""

from __future__ import annotations

import ast
import warnings
from pathlib import Path

from harness.command import limits
from harness.command.model import TrainingCommand
from harness.frameworks.base import FrameworkFacts, Preparation
from harness.spec import RunSpec

TORCH_LAUNCHERS = ("torchrun",)
DEFAULT_METRIC_DIRS = ("runs", "logs", "lightning_logs", "tb_logs")
"""Where SummaryWriter and the loggers built on it write by default, below the working directory."""
OUTPUT_METRIC_DIRS = ("runs", "logs", "tensorboard")
"""The same below an output directory that the command names."""
DEFAULT_CHECKPOINT_DIR = "checkpoints"
MAX_SOURCE_BYTES = 2 << 20


class TorchAdapter:
    """A program that imports torch. Steps are counted by the optimizer probe."""

    name = "torch"

    def recognise(self, command: TrainingCommand) -> str | None:
        """By the imports of the entrypoint, or by torch's own launcher."""
        launcher = _torch_launcher(command)
        if launcher is not None:
            return f"launched by {launcher}"
        script = command.entrypoint
        if script is None or "torch" not in imported_packages(script):
            return None
        return f"{script.name} imports torch"

    def prepare(self, command: TrainingCommand, spec: RunSpec) -> Preparation:
        """Nothing is added: flags of a program that is not known cannot be guessed."""
        return Preparation()

    def facts(self, command: TrainingCommand, spec: RunSpec, reason: str) -> FrameworkFacts:
        """What the command's own flags say, else the places where such programs write by default."""
        return _plain_facts(self.name, command, spec, reason)


class UnknownAdapter:
    """The fallback. The probe stays, since it does nothing in a process that does not import torch."""

    name = "unknown"

    def recognise(self, command: TrainingCommand) -> str | None:
        """Every command."""
        if command.entrypoint is None:
            return "no script whose imports could tell the framework"
        return f"no framework is told by the imports of {command.entrypoint.name}"

    def prepare(self, command: TrainingCommand, spec: RunSpec) -> Preparation:
        """Nothing is added."""
        return Preparation()

    def facts(self, command: TrainingCommand, spec: RunSpec, reason: str) -> FrameworkFacts:
        """As for plain PyTorch; none of it claims that torch is there."""
        return _plain_facts(self.name, command, spec, reason)


def imported_packages(script: Path) -> frozenset[str]:
    """Top-level names that a Python file imports, anywhere in it; empty for what does not parse here."""
    try:
        with script.open("rb") as stream:
            source = stream.read(MAX_SOURCE_BYTES)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source, str(script))
        nodes = list(ast.walk(tree))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
    return frozenset(name.partition(".")[0] for name in names)


def _torch_launcher(command: TrainingCommand) -> str | None:
    launcher_words = command.argv[: len(command.argv) - len(command.script_args)]
    for word in launcher_words:
        if Path(word).name in TORCH_LAUNCHERS:
            return Path(word).name
        if word in ("torch.distributed.run", "torch.distributed.launch"):
            return f"python -m {word}"
    return None


def _plain_facts(name: str, command: TrainingCommand, spec: RunSpec, reason: str) -> FrameworkFacts:
    limit = limits.step_limit(command)
    save_dirs = limits.directories(command, spec.workdir, limits.SAVE_DIR_FLAGS)
    output_dirs = limits.directories(command, spec.workdir, limits.OUTPUT_DIR_FLAGS)
    given = (spec.checkpoint_dir,) if spec.checkpoint_dir else ()
    checkpoint_roots = (*given, *save_dirs, *output_dirs) or (spec.workdir / DEFAULT_CHECKPOINT_DIR,)
    resume = limits.resume_point(command, spec.workdir, checkpoint_roots)
    return FrameworkFacts(
        name=name,
        reason=reason,
        target_steps=limit[0] if limit else None,
        target_source=limit[1] if limit else "",
        metric_roots=_absolute(_metric_roots(command, spec, (*save_dirs, *output_dirs))),
        checkpoint_roots=_absolute(checkpoint_roots),
        checkpoint_asked=bool(given or save_dirs),
        resume_from=str(resume) if resume else None,
        start_weights=str(resume) if resume else None,
    )


def _metric_roots(command: TrainingCommand, spec: RunSpec, written_to: tuple[Path, ...]) -> tuple[Path, ...]:
    given = (spec.metrics_dir,) if spec.metrics_dir else ()
    named = (*given, *limits.directories(command, spec.workdir, limits.METRIC_DIR_FLAGS))
    if named:
        return named
    below_output = tuple(root / name for root in written_to for name in OUTPUT_METRIC_DIRS)
    return (*below_output, *(spec.workdir / name for name in DEFAULT_METRIC_DIRS))


def _absolute(paths: tuple[Path, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(path) for path in paths))
