"""Which framework a command belongs to."""

from __future__ import annotations

from harness.command.model import TrainingCommand
from harness.errors import ConfigError
from harness.frameworks.areno import ArenoAdapter
from harness.frameworks.base import FrameworkAdapter
from harness.frameworks.torch import TorchAdapter, UnknownAdapter
from harness.spec import RunSpec

ADAPTERS: tuple[FrameworkAdapter, ...] = (ArenoAdapter(), TorchAdapter())
"""The more specific one first."""
FALLBACK: FrameworkAdapter = UnknownAdapter()


def detect(command: TrainingCommand, spec: RunSpec) -> tuple[FrameworkAdapter, str]:
    """The adapter of a command, and what it was told from; --framework decides.

    Raises ConfigError for a --framework that has no adapter.
    """
    if spec.framework:
        return adapter_named(spec.framework), "--framework"
    for adapter in ADAPTERS:
        reason = adapter.recognise(command)
        if reason:
            return adapter, reason
    return FALLBACK, FALLBACK.recognise(command) or "nothing tells its framework"


def adapter_named(name: str) -> FrameworkAdapter:
    """The adapter of that name; raises ConfigError naming those that there are."""
    for adapter in ADAPTERS:
        if adapter.name == name:
            return adapter
    known = ", ".join(adapter.name for adapter in ADAPTERS)
    raise ConfigError(f"--framework {name}: no such framework here; known are {known}")
