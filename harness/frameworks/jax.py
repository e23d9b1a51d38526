"""JAX programs (Flax, Optax), of which a run is seen only through what it logs and saves.

Their updates run inside compiled functions, so that no count of them can be had from outside. A logged gradient
norm shows that a step with a gradient ran; it counts as an update where the source applies one. Whether the
weights really moved is shown by saved ones (safetensors).
"""

from __future__ import annotations

from dataclasses import replace

from harness.command.model import TrainingCommand
from harness.frameworks.base import GRAD_NORM_TAG_PATTERNS, FrameworkFacts, Preparation
from harness.frameworks.settings import Settings
from harness.frameworks.source import Program, read_program
from harness.frameworks.torch import plain_facts, stated_directories
from harness.spec import RunSpec

PACKAGES = ("flax", "optax", "jax")
APPLYING = ("apply_updates", "apply_gradients", "incremental_update")
"""Calls of optax and Flax that put an update into the parameters."""
WORKDIR_FLAGS = ("workdir", "work-dir", "logdir", "output-dir")


class JaxAdapter:
    """A program that imports flax, optax or jax."""

    name = "jax"

    def recognise(self, command: TrainingCommand, program: Program) -> str | None:
        """By imports; an optimizer library says more than jax itself."""
        for package in PACKAGES:
            module = program.importer(package)
            if module is not None:
                return f"{program.where(module)} imports {package}"
        return None

    def prepare(self, command: TrainingCommand, spec: RunSpec) -> Preparation:
        """Nothing is added."""
        return Preparation()

    def facts(self, command: TrainingCommand, spec: RunSpec, reason: str) -> FrameworkFacts:
        """As for plain PyTorch, without its probe."""
        facts = plain_facts(self.name, command, spec, reason)
        program = read_program(command, spec.workdir)
        applies = program.does_call(*APPLYING) or ("nnx" in program.names("flax") and program.does_call("update"))
        work = tuple(map(str, stated_directories(Settings(command, spec.workdir), spec, WORKDIR_FLAGS)))
        return replace(
            facts,
            counts_updates_by="metric-rows",
            executed_tags=GRAD_NORM_TAG_PATTERNS if applies else (),
            rows_are_complete=False,
            probe_applies=False,
            metric_roots=tuple(dict.fromkeys((*facts.metric_roots, *work))),
            metric_guesses=tuple(guess for guess in facts.metric_guesses if guess not in work),
            checkpoint_roots=tuple(dict.fromkeys((*facts.checkpoint_roots, *work))),
        )
