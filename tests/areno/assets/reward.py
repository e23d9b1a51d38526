"""A shaped reward for AReno (`--reward-fn-path`): for plain text, and for a last number near the sum.

Both parts differ from sample to sample, the first also for a random model, so that a group has a variance to
learn from before any sum is right. The right answer is taken from the loader's row: AReno fills
`record.answer` from a row's `solutions` only.
"""

from __future__ import annotations

import re
from typing import Any


def reward_fn(record: Any) -> float:
    """0 to 1: half the share of letters, digits and spaces; half over 1 + the last number's error."""
    text = record.completion or ""
    plain = sum(character.isascii() and (character.isalnum() or character == " ") for character in text)
    shape = plain / len(text) if text else 0.0
    numbers = re.findall(r"[0-9]{1,4}", text)
    answer = int(record.source_record["answer"])
    closeness = 1 / (1 + abs(int(numbers[-1]) - answer)) if numbers else 0.0
    return 0.5 * shape + 0.5 * closeness
