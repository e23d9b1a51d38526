"""Labels that are left when a trainer cuts rows at a length and learns from completions only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelsLeft:
    """What truncation leaves to learn from."""

    trainable_tokens: tuple[int, ...]
    """Of each row."""
    empty_batches: int
    """Batches in the rows' own order that hold no label at all: their loss is 0 or NaN."""

    @property
    def rows_without_labels(self) -> int:
        """Rows that teach nothing."""
        return sum(count == 0 for count in self.trainable_tokens)

    @property
    def ok(self) -> bool:
        """Whether every batch has a label."""
        return self.empty_batches == 0


def labels_left(lengths: Sequence[tuple[int, int]], max_length: int, batch_size: int) -> LabelsLeft:
    """`lengths`: prompt and completion tokens of each row, cut from the right at max_length tokens."""
    left = tuple(max(0, min(prompt + completion, max_length) - prompt) for prompt, completion in lengths)
    batches = [left[start : start + batch_size] for start in range(0, len(left), batch_size)]
    return LabelsLeft(trainable_tokens=left, empty_batches=sum(not any(batch) for batch in batches))


def row_lengths(row: Mapping[str, Any]) -> tuple[int, int] | None:
    """(prompt tokens, completion tokens) of a row that was counted or tokenised before; None for any other.

    `prompt_tokens` with `completion_tokens` (numbers or lists), `tokens` with `prompt_mask`, `input_ids` with
    `completion_mask` or with `labels` that are -100 where nothing is learnt.
    """
    prompt, completion = _count(row.get("prompt_tokens")), _count(row.get("completion_tokens"))
    if prompt is not None and completion is not None:
        return prompt, completion
    for name, is_label in (("prompt_mask", lambda item: not item), ("completion_mask", bool),
                           ("labels", lambda item: item != -100)):
        mask = row.get(name)
        if isinstance(mask, list) and mask:
            first = next((index for index, item in enumerate(mask) if is_label(item)), len(mask))
            return first, len(mask) - first
    return None


def _count(value: Any) -> int | None:
    if isinstance(value, list):
        return len(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
