"""The part of an adapter that knows its trainer's options; an adapter without it leaves them to be read."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from harness.command.model import TrainingCommand
from harness.command.overrides.model import FlagTable
from harness.spec import RunSpec


@runtime_checkable
class KnowsFlags(Protocol):
    """An adapter with a table of options. Data only: the command's own program is read beside it."""

    def override_flags(self, command: TrainingCommand, spec: RunSpec) -> FlagTable:
        """The options that this command's program accepts, as far as the trainer itself declares them."""
        ...


def flag_table(adapter: object, command: TrainingCommand, spec: RunSpec) -> FlagTable:
    """The table of an adapter; an empty one where it has none."""
    return adapter.override_flags(command, spec) if isinstance(adapter, KnowsFlags) else FlagTable()
