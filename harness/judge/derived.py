"""Whether a setting's value at the first step is made of the one that was parsed, or stands in its place.

Programs normalise their settings where they stand: a share of a rank, a dtype for its name, steps for a ratio. Another
value of the same kind that nothing makes of the parsed one is a replacement, as by a config file that wins.
"""

from __future__ import annotations

import math
import re
from typing import Any

from harness.judge.values import plain, same, same_value

MIN_TEXT = 3
"""Characters of a text from which on another that holds it is taken for one made of it."""
COUNTED = frozenset({
    "accum", "accumulate", "accumulation", "batch", "batches", "batchsize", "bs", "bsz", "iterations", "iters", "step",
    "steps", "worker", "workers",
})
"""Words of the settings that programs divide by the accumulation or by the ranks, or multiply so."""
RESOLVED = frozenset({"all", "auto", "default"})
DTYPES = {
    "bf16": "bfloat16", "bfloat16": "bfloat16", "fp16": "float16", "float16": "float16", "half": "float16",
    "fp32": "float32", "float32": "float32", "float": "float32", "full": "float32", "fp64": "float64",
    "float64": "float64", "double": "float64",
}


def is_derived(name: str, value: Any, later: Any, ranks: set[int]) -> bool:
    """Whether `later` is made of `value`, as a parser returned it under this name.

    `ranks`: sizes of the run's process groups. Text that spells a number is one.
    """
    if value == later:
        return True
    value, spelled = plain(value), value
    if _is_number(value) and _is_number(plain(later)):
        return _is_derived_number(name, value, plain(later), ranks)
    if later is None or later is False:
        return isinstance(value, str) or value in (0, None, False, [])
    if isinstance(value, str) and isinstance(later, str):
        return _is_derived_text(value, later)
    if isinstance(later, list) and _is_list(spelled):
        return same_value(str(spelled), later) or not all(_is_number(plain(item)) for item in later)
    return _kind(value) != _kind(later)


def _is_derived_number(name: str, value: float, later: float, ranks: set[int]) -> bool:
    words = set(re.split(r"[^a-z]+", name.lower()))
    if "seed" in words:
        return True
    if isinstance(value, float) and not value.is_integer() and float(later).is_integer():
        return True
    if any(same(float(later * num), float(value)) or same(float(later), float(value * num)) for num in ranks):
        return True
    if not words & COUNTED or value <= 0 or later <= 0:
        return False
    ratio = max(value, later) / min(value, later)
    return math.isclose(ratio, round(ratio), rel_tol=1e-9)


def _is_derived_text(value: str, later: str) -> bool:
    short, long = value.strip("./").lower(), later.strip("./").lower()
    if long.startswith("torch.") and not short.startswith("torch."):
        return DTYPES.get(short, long[len("torch."):]) == long[len("torch."):]
    if short in RESOLVED or (len(short) >= MIN_TEXT and short in long):
        return True
    is_begin = short.startswith(long) and not short[len(long):][:1].isalnum()
    return len(long) >= MIN_TEXT and (short.endswith(long) or is_begin)


def _is_list(value: Any) -> bool:
    return isinstance(value, list) or (isinstance(value, str) and re.search(r"[\s,]", value.strip()) is not None)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _kind(value: Any) -> str:
    kinds = ((bool, "switch"), ((int, float), "number"), (str, "text"), (list, "list"))
    return next((word for kind, word in kinds if isinstance(value, kind)), "other")
