"""The part of an adapter that knows how much its command asks for at once: sizes of batch, rollout and devices.

Demand = batch_size x n_samples; waves = ceil(demand / max_running_prompts); data-parallel size = world_size / tp_size.
Source: AReno's capacity invariants (`areno train --help` names the settings).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from harness.command.model import TrainingCommand
from harness.spec import RunSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """Sizes of one job; None where it does not say and its trainer has no default that is known."""

    rollout: bool
    batch_size: int | None = None
    n_samples: int | None = None
    max_running_prompts: int | None = None
    mini_bs: int | None = None
    score_micro_bs: int | None = None
    gradient_accumulation_steps: int | None = None
    world_size: int | None = None
    tp_size: int | None = None
    rollout_devices: int | None = None
    rollout_tp_size: int | None = None
    mem_frac: float | None = None
    drop_rollout_state: bool = False
    tunes: bool = False
    """Whether the trainer can look for sizes that fit by itself (--tune-params)."""

    @property
    def demand(self) -> int | None:
        """Samples that a step asks for in all."""
        if self.batch_size is None:
            return None
        return self.batch_size * (self.n_samples or 1) if self.rollout else self.batch_size

    @property
    def running(self) -> int | None:
        """How many of them run at once: all, where nothing says less."""
        return self.max_running_prompts if self.max_running_prompts is not None else self.demand

    @property
    def waves(self) -> int | None:
        """Rounds of sampling that a step takes."""
        if not self.rollout or not self.demand or not self.running or self.running < 1:
            return None
        return math.ceil(self.demand / self.running)

    @property
    def dp_size(self) -> int | None:
        """Copies of the model that train side by side; None where the sizes do not divide."""
        if not self.world_size or not self.tp_size or self.world_size % self.tp_size:
            return None
        return self.world_size // self.tp_size

    def line(self) -> str:
        """The sizes in words, for the log and the gate."""
        parts = []
        if self.rollout and self.demand is not None:
            parts.append(f"{self.batch_size} prompts x {self.n_samples} samples = {self.demand} a step, "
                         f"{self.running} at once in {self.waves} wave(s)")
        elif self.batch_size is not None:
            parts.append(f"{self.batch_size} rows a step")
        if self.mini_bs is not None:
            parts.append(f"microbatches of {self.mini_bs}")
        if self.dp_size is not None:
            parts.append(f"data-parallel {self.dp_size} = {self.world_size} device(s) / tensor-parallel {self.tp_size}")
        return "; ".join(parts)

    def to_json(self) -> dict[str, Any]:
        """For the journal: the settings, and what they come to."""
        settings = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {**settings, "demand": self.demand, "waves": self.waves, "dp_size": self.dp_size}


@runtime_checkable
class StatesCapacity(Protocol):
    """An adapter whose command says how much runs at once."""

    def capacity(self, command: TrainingCommand, spec: RunSpec) -> Capacity | None:
        """The sizes of this command with the trainer's defaults; None where it is not the trainer's own."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Smoke:
    """One smallest real allocation or step."""

    name: str
    """As a directory may be called."""
    words: tuple[str, ...]
    """What is added to the command; of a flag that is given twice its program takes the last."""
    argv: tuple[str, ...] = ()
    """The whole command line, once the words stand in it."""
    executed_tags: tuple[str, ...] = ()
    """Patterns of tags of which one must be written below `metrics`; none for a smoke that writes none."""


@runtime_checkable
class KnowsSmokes(Protocol):
    """An adapter that can make a command small."""

    def smokes(self, command: TrainingCommand, place: Path, *, gpu: bool) -> tuple[Smoke, ...]:
        """Smokes in their order, each writing below `place`/NAME; `gpu`: whether the job can use one."""
        ...
