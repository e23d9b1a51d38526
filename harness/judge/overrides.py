"""Whether an override took effect: the value asked for beside the value that the trainer says it used."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from harness.judge.model import Check, failed, not_applicable, passed
from harness.judge.observe import Observation
from harness.record.vocabulary import Reason

LR_KEYS = frozenset({"lr", "learning_rate", "optimizer_lr"})
RELATIVE_TOLERANCE = 1e-5
"""Values pass through float32 in some trainers' records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One override and what was seen of it."""

    key: str
    asked: str
    used: Any
    """None where nothing tells."""
    source: str
    """What tells the used value."""
    holds: bool | None
    """None where nothing tells."""


def effects(seen: Observation) -> list[Effect]:
    """Every override of the command beside its effect, in order."""
    told: dict[str, dict[str, Any]] = seen.record.fact("effective-values", "values", {}) or {}
    return [_effect(seen, item, told) for item in seen.record.fact("command", "overrides", []) or []]


def _effect(seen: Observation, item: dict[str, Any], told: dict[str, dict[str, Any]]) -> Effect:
    key, asked = str(item.get("key")), str(item.get("value"))
    for name in (_setting(str(item.get("place") or "")), key):
        found = _find(told, name)
        if found is not None:
            return Effect(key=key, asked=asked, used=found.get("value"), source=str(found.get("source")),
                          holds=same_value(asked, found.get("value")))
    if key in LR_KEYS or _setting(str(item.get("place") or "")) in LR_KEYS:
        return _lr_effect(seen, key, asked)
    return Effect(key=key, asked=asked, used=None, source="", holds=None)


def _setting(place: str) -> str:
    """`--learning-rate`, `++optim.lr=` or `cfg.yaml:optim.lr` as the trainer's own name of the setting."""
    name = place if place.startswith("-") else place.rpartition(":")[2]
    return name.strip("-+~= ").replace("-", "_")


def _find(told: dict[str, dict[str, Any]], name: str) -> dict[str, Any] | None:
    """The value under this name, or under the one dotted name that ends in it."""
    if not name:
        return None
    if name in told:
        return told[name]
    ending = [value for key, value in told.items() if key.replace("-", "_").endswith("." + name)]
    return ending[0] if len(ending) == 1 else None


def _lr_effect(seen: Observation, key: str, asked: str) -> Effect:
    """A schedule stays at or below the rate asked for; only a constant rate must be equal to it."""
    unknown = Effect(key=key, asked=asked, used=None, source="", holds=None)
    try:
        wanted = float(asked)
    except ValueError:
        return unknown
    if not seen.lr:
        return unknown
    tag = seen.lr[0]
    if tag.max_finite is None or tag.min_finite is None:
        return unknown
    constant = tag.min_finite == tag.max_finite and tag.fresh_points > 1
    reached = math.isclose(tag.max_finite, wanted, rel_tol=1e-4)
    holds = True if reached else False if constant or tag.max_finite > wanted * 1.001 else None
    return Effect(key=key, asked=asked, used=tag.max_finite, source=f"largest {tag.tag}", holds=holds)


def same_value(asked: str, used: Any) -> bool:
    """Whether a value as typed and a value as recorded are one: numbers by value, words without case or quotes."""
    left, right = _plain(asked), _plain(used)
    if isinstance(left, float) and isinstance(right, float):
        return math.isclose(left, right, rel_tol=RELATIVE_TOLERANCE, abs_tol=1e-12)
    return bool(left == right)


def _plain(value: Any) -> Any:
    if isinstance(value, bool):
        return value
    if isinstance(value, (int, float)):
        return float(value)
    if not isinstance(value, str):
        return value
    text = value.strip().strip("'\"")
    words = {"true": True, "false": False, "none": None, "null": None, "yes": True, "no": False}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return json.loads(text)
    except ValueError:
        return text.lower()


def check_overrides(seen: Observation) -> Check:
    """No override is contradicted by the value that the trainer used."""
    name, expected = "overrides", "every override in effect"
    found = effects(seen)
    if not found:
        return not_applicable(name, "nothing was overridden")
    for effect in found:
        if effect.holds is False:
            return failed(name, Reason.OVERRIDE_WITHOUT_EFFECT, f"{effect.key}={effect.asked}",
                          f"{effect.used} ({effect.source})", "the trainer used another value")
    seen_keys = [effect.key for effect in found if effect.holds]
    unseen = ", ".join(effect.key for effect in found if effect.holds is None)
    why = f"nothing tells the value of {unseen}" if unseen else ""
    if not seen_keys:
        return not_applicable(name, why)
    return passed(name, expected, f"seen: {', '.join(seen_keys)}", why)
