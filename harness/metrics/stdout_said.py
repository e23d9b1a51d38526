"""What the lines of a trainer's output can say: rows of metrics, progress bars, banners, epochs."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

MAX_EPOCH = 1e9


@dataclass(slots=True, kw_only=True)
class Row:
    """Metrics of one moment."""

    values: dict[str, float]
    step: int | None = None
    step_total: int | None = None
    epoch: float | None = None
    epoch_slack: float = 0.0
    """Half of what the printed epoch was rounded to."""
    num_epochs: int | None = None
    wall_time: float = 0.0
    is_text: bool = False
    """Prose: its step may count within an epoch, and its epoch is none of the metrics."""

    @property
    def is_summary(self) -> bool:
        """Transformers' last row: its train_loss is the mean of the run."""
        return "train_runtime" in self.values

    @property
    def is_evaluation(self) -> bool:
        """Whether it holds an evaluation and no training loss."""
        return is_evaluation(tuple(self.values))

    def moments(self) -> list[tuple[float, float]]:
        """Its epoch and half of what that was rounded to, where it has one."""
        return [] if self.epoch is None else [(self.epoch, self.epoch_slack)]


@lru_cache(maxsize=64)
def is_evaluation(tags: tuple[str, ...]) -> bool:
    """Whether a row of these tags is an evaluation's."""
    return "loss" not in tags and all(tag == "epoch" or tag.startswith(("eval", "val", "test")) for tag in tags)


@dataclass(slots=True, kw_only=True)
class Bar:
    """A progress bar that may be the training's."""

    done: int
    total: int
    rate: float | None
    """Steps per second."""
    epoch: int | None = None
    num_epochs: int | None = None
    counts_epochs: bool = False
    from_zero: bool = False
    """Whether its epochs are known to count from 0."""
    named: bool = False
    values: dict[str, float] = field(default_factory=dict)
    """What the bar of a finished epoch says (Keras)."""
    is_keras: bool = False


@dataclass(slots=True, kw_only=True)
class Banner:
    """A fact that the trainer announces: "start", "stop" (another phase), or a key of _BANNERS."""

    key: str
    value: int = 0


@dataclass(slots=True, kw_only=True)
class EpochLine:
    """`Epoch 2/10` on a line of its own."""

    epoch: int
    num_epochs: int | None


Said = Row | Bar | Banner | EpochLine
