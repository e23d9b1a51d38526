"""Whether a value as typed and a value as a program recorded it are one."""

from __future__ import annotations

import json
import math
import re
from pathlib import PurePosixPath
from typing import Any

RELATIVE_TOLERANCE = 1e-5
"""Values pass through float32 in some trainers' records; whole numbers are compared exactly."""


def same_value(asked: str, used: Any) -> bool:
    """Whether a value as typed and a value as recorded are one: numbers by value, words without case or quotes,
    lists item by item, paths by what was typed of them."""
    return same(plain(asked), plain(used)) or _same_text(asked, used) or _same_list(asked, used)


def same(left: Any, right: Any) -> bool:
    """Whether two values, as `plain` gives them, are one: whole numbers exactly, others within float32."""
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(same(a, b) for a, b in zip(left, right, strict=True))
    if isinstance(left, float) and isinstance(right, float):
        both_nan = math.isnan(left) and math.isnan(right)
        return both_nan or math.isclose(left, right, rel_tol=RELATIVE_TOLERANCE, abs_tol=1e-12)
    if isinstance(left, int) and isinstance(right, float):
        return same(float(left), right)
    return bool(left == right)


def _same_text(asked: str, used: Any) -> bool:
    """`cosine` is SchedulerType.COSINE, `bfloat16` torch.bfloat16, `out` /home/me/out."""
    if not isinstance(used, str):
        return False
    word = asked.strip().strip("'\"")
    member = re.fullmatch(r"(?:[A-Z]\w*|torch|jnp|np|numpy)\.(\w+)", used)
    if member is not None and member.group(1).lower() == word.lower():
        return True
    parts = tuple(part for part in PurePosixPath(word).parts if part not in ("..", "~"))
    return bool(parts) and used.startswith("/") and PurePosixPath(used).parts[-len(parts):] == parts


def _same_list(asked: str, used: Any) -> bool:
    """`a b`, `a,b` and `a` as a trainer records them: a list."""
    right = plain(used)
    if not isinstance(right, list):
        return False
    if not right:
        return plain(asked) in (None, "")
    words = [plain(word) for word in re.split(r"[\s,]+", asked.strip().strip("[]()")) if word]
    return same(words, right)


def plain(value: Any) -> Any:
    """Text as the value that it spells; whole numbers stay whole."""
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if not isinstance(value, str):
        return value
    text = value.strip().strip("'\"")
    words = {"true": True, "false": False, "none": None, "null": None, "yes": True, "no": False, "on": True,
             "off": False}
    if text.lower() in words:
        return words[text.lower()]
    number = number_of(text)
    if number is not None:
        return int(text) if re.fullmatch(r"[-+]?[0-9]{1,300}", text) else number
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        return text.lower()
    return [plain(item) for item in read] if isinstance(read, list) else read


def number_of(text: str) -> float | None:
    """The number that a text spells, None where it spells none."""
    try:
        return float(text)
    except ValueError:
        return None
