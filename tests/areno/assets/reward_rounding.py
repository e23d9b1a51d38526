"""A reward that teaches nothing and looks as if it did (`--reward-fn-path`).

0.9 has no exact float32 value. In groups of 6 AReno's group mean is off by one bit, and dividing by a
standard deviation of 0 plus 1e-8 makes an advantage of -5.96 out of that bit, the same for every sample:
gradients are large, advantages_std is a rounding error, and nothing can be learned.
"""

from __future__ import annotations

from typing import Any


def reward_fn(record: Any) -> float:
    """Always 0.9; use it with `--n-samples 6`."""
    return 0.9
