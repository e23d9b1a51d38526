"""Which framework a command belongs to.

An adapter from outside is announced by its distribution as an entry point of the group `ADAPTER_GROUP` that
names the adapter's class; it is asked before those that are here.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from harness.command.model import TrainingCommand
from harness.errors import ConfigError
from harness.frameworks.areno import ArenoAdapter
from harness.frameworks.base import (
    EffectiveValue,
    FrameworkAdapter,
    FrameworkFacts,
    ReadsReports,
    RecognisesConfig,
    TellsEffectiveValues,
    Written,
)
from harness.frameworks.capacity import KnowsSmokes, Smoke
from harness.frameworks.evaluation import Evaluation, KnowsEvaluation
from harness.frameworks.jax import JaxAdapter
from harness.frameworks.keras import KerasAdapter
from harness.frameworks.lightning import LightningAdapter
from harness.frameworks.settings import Settings
from harness.frameworks.source import read_program
from harness.frameworks.torch import TorchAdapter, UnknownAdapter
from harness.frameworks.transformers import TransformersAdapter
from harness.frameworks.trl import TrlAdapter
from harness.spec import RunSpec

ADAPTER_GROUP = "pytest_real_step.frameworks"
RANKS: tuple[tuple[FrameworkAdapter, ...], ...] = (
    (ArenoAdapter(),),
    (TrlAdapter(),),
    (TransformersAdapter(), LightningAdapter(), KerasAdapter()),
    (JaxAdapter(),),
    (TorchAdapter(),),
)
"""The more specific ones first; of one rank none is more specific than another."""
ADAPTERS: tuple[FrameworkAdapter, ...] = tuple(adapter for rank in RANKS for adapter in rank)
FALLBACK: FrameworkAdapter = UnknownAdapter()


def detect(command: TrainingCommand, spec: RunSpec) -> tuple[FrameworkAdapter, str]:
    """The adapter of a command, and what it was told from; --framework decides.

    Where several of one rank fit, the reason names them all. Raises ConfigError for a --framework that has no
    adapter.
    """
    if spec.framework:
        return adapter_named(spec.framework), "--framework"
    program = read_program(command, spec.workdir)
    for rank in (outside_adapters(), *RANKS):
        fitting = [(a, reason) for a in rank if (reason := a.recognise(command, program))]
        if fitting:
            return fitting[0][0], _reason(fitting)
    shaped = _by_config(command, spec)
    if shaped is not None:
        return shaped
    return FALLBACK, FALLBACK.recognise(command, program) or "nothing tells its framework"


def _reason(fitting: list[tuple[FrameworkAdapter, str]]) -> str:
    first, *others = (reason for _, reason in fitting)
    if not others:
        return first
    return f"{first}; {'; '.join(others)}: a tie, which --framework decides"


def _by_config(command: TrainingCommand, spec: RunSpec) -> tuple[FrameworkAdapter, str] | None:
    settings = Settings(command, spec.workdir)
    if settings.config_path is None:
        return None
    for adapter in (*outside_adapters(), *ADAPTERS):
        if isinstance(adapter, RecognisesConfig):
            reason = adapter.recognise_config(settings.config, settings.config_path.name)
            if reason:
                return adapter, reason
    return None


@functools.cache
def outside_adapters() -> tuple[FrameworkAdapter, ...]:
    """Adapters of other distributions, by name; raises ConfigError naming one that cannot be loaded."""
    found = []
    for point in sorted(metadata.entry_points(group=ADAPTER_GROUP), key=lambda point: point.name):
        try:
            adapter: FrameworkAdapter = point.load()()
        except Exception as error:  # whatever a foreign module raises
            raise ConfigError(f"the adapter {point.value} ({point.name}) cannot be loaded: {error!r}") from error
        found.append(adapter)
    return tuple(found)


def adapter_named(name: str) -> FrameworkAdapter:
    """The adapter of that name; raises ConfigError naming those that there are."""
    known = (*outside_adapters(), *ADAPTERS)
    for adapter in known:
        if adapter.name == name:
            return adapter
    raise ConfigError(
        f"--framework {name}: no such framework here; known are {', '.join(adapter.name for adapter in known)}"
    )


def read_reports(
    name: str, environment: dict[str, Any], command: TrainingCommand, *, interpreter: Path | None, workdir: Path,
    environ: Mapping[str, str],
) -> dict[str, Any]:
    """The environment record as the trainer's adapter reads it; unchanged where it reads none."""
    adapter = adapter_named(name) if name != FALLBACK.name else FALLBACK
    if not isinstance(adapter, ReadsReports):
        return environment
    return adapter.read_reports(environment, command, interpreter=interpreter, workdir=workdir, environ=environ)


def smokes_of(name: str, command: TrainingCommand, place: Path, *, gpu: bool) -> tuple[Smoke, ...]:
    """The smokes of a command by its trainer's adapter; none where it knows none."""
    adapter = adapter_named(name) if name != FALLBACK.name else FALLBACK
    return adapter.smokes(command, place, gpu=gpu) if isinstance(adapter, KnowsSmokes) else ()


def evaluation_of(
    name: str, command: TrainingCommand, workdir: Path, checkpoint: Path, place: Path
) -> Evaluation | None:
    """The command that evaluates what a command saved, by its trainer's adapter; None where it knows none."""
    adapter = adapter_named(name) if name != FALLBACK.name else FALLBACK
    if not isinstance(adapter, KnowsEvaluation):
        return None
    return adapter.evaluation(command, read_program(command, workdir), checkpoint, place)


def effective_values(facts: FrameworkFacts, written: Written) -> dict[str, EffectiveValue]:
    """The settings that the trainer says it used; empty where its adapter reads none."""
    for adapter in (*outside_adapters(), *ADAPTERS, FALLBACK):
        if adapter.name == facts.name and isinstance(adapter, TellsEffectiveValues):
            return adapter.effective_values(facts, written)
    return {}
