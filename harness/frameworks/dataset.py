"""The parts of an adapter that know which dataset a command names, and what it takes from a hub."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from harness.command.model import TrainingCommand
from harness.spec import RunSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedDataset:
    """What a command says about its data."""

    path: str
    """A file or directory seen from the working directory, or OWNER/NAME[:SUBSET[:SPLIT]]; "" where it names none."""
    algorithm: str
    kind: str
    """sft, dpo, rollout, agentic or other."""
    loader: str | None = None
    """FILE[:FUNCTION] that makes the rows which the trainer sees."""
    model_hub: str = "modelscope"
    tokenizer: Path | None = None
    """A local checkpoint whose tokenizer counts the tokens."""
    max_prompt_tokens: int | None = None
    max_new_tokens: int | None = None
    max_length: int | None = None
    """Tokens at which a trainer cuts rows instead of dropping them; AReno has no such thing."""
    batch_size: int = 1
    """Rows of a batch, where rows are cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteAsset:
    """Something that a command takes from ModelScope."""

    flag: str
    kind: str
    """model or dataset."""
    repository: str
    """OWNER/NAME."""
    is_start: bool = False
    """Whether training starts from its weights."""
    is_base: bool = False
    """Whether an adapter is trained on top of its frozen weights."""


@runtime_checkable
class NamesAssets(Protocol):
    """An adapter whose command may name models and datasets of a hub."""

    def remote_assets(self, command: TrainingCommand, spec: RunSpec) -> tuple[RemoteAsset, ...]:
        """All that is no local path."""
        ...


@runtime_checkable
class NamesDataset(Protocol):
    """An adapter whose command names its dataset; without it nothing about the data is known before the launch."""

    def named_dataset(self, command: TrainingCommand, spec: RunSpec) -> NamedDataset | None:
        """The dataset of this command, None where it trains on none that a contract speaks of."""
        ...
