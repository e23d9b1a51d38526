"""What the checkpoints of a run show of its weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.checkpoints.naming import is_named_aside, is_named_delivered, is_named_reference
from harness.record.run_record import RunRecord

OWN_EARLIEST = "own-earliest"
"""The start is the run's own first checkpoint, which is no start of training."""
BEFORE_MARKS = {"holds_start": "held", "moved": "moved"}
"""Lists that out-dirs of the first versions have in the place of `marks`."""
UNRELATED = "unrelated"
UNCHANGED = ("none", "cast-only", "resize-only")


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsSeen:
    """What the checkpoints of this run show; checkpoints.inspect says how they were looked at."""

    found: int = 0
    not_inspected: int = 0
    last_step: int | None = None
    steps: tuple[int, ...] = ()
    """Steps of the checkpoints that are not damaged, rising."""
    last_epoch: int | None = None
    """Highest epoch that a checkpoint's name tells, as the trainer counts."""
    nonfinite: tuple[str, ...] = ()
    newest_damage: str | None = None
    """What is wrong with the newest checkpoint, None when it is whole."""
    start: str | None = None
    change: str | None = None
    """Comparison.kind of the last whole checkpoint against the start; None when there was no start."""
    start_kind: str = ""
    """start-weights, own-step-0 or own-earliest; the last is no start of training, and its equality proves nothing."""
    changed_tensors: int = 0
    max_abs_change: float | None = None
    why_not_compared: str | None = None
    holds_start: tuple[str, ...] = ()
    """Delivered checkpoints with the very parameters that training began with and that moved in memory."""
    moved: tuple[str, ...] = ()
    """Delivered checkpoints with what training made of the parameters, by the probe's digests and values of these."""
    held_at: Mapping[str, int] = field(default_factory=dict)
    """Of these, the steps of all optimizers after which the model was exactly what they hold, where a look saw that."""
    unrelated: tuple[str, ...] = ()
    """Delivered checkpoints whose values are like neither the start nor the end of any parameter."""
    outdated: tuple[str, ...] = ()
    """Checkpoints named by a step that hold the model of an earlier one than that at which they were saved."""
    delivered_unchanged: tuple[str, ...] = ()
    """Delivered models, without a step in their name, that equal the start."""

    @property
    def blamed(self) -> tuple[str, ...]:
        """Those that hold the start and should not: any where none was trained, else what is named as delivered."""
        trained = set(self.moved)
        return tuple(path for path in self.holds_start if path not in trained and (
            not trained or (is_named_delivered(path) and not is_named_reference(path))))

    @property
    def beside(self) -> tuple[str, ...]:
        """Those that hold the start beside a trained one, under names that say neither why nor that it is wrong."""
        return tuple(path for path in self.holds_start if path not in self.blamed and path not in self.moved
                     and not is_named_reference(path))

    @property
    def compared(self) -> bool:
        """Whether there was a start to compare with."""
        return self.change is not None

    @property
    def learnt(self) -> bool:
        """Whether the weights differ from the start by more than decay, a cast, a resize or BatchNorm statistics."""
        return self.change == "changed"


def _compared(reloads: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One comparison a checkpoint, with its path as `end`: of several models in it one that changed is enough."""
    found: dict[str, dict[str, Any]] = {}
    for item in reloads:
        comparison, path = item.get("comparison"), str(item.get("of") or item.get("path"))
        if isinstance(comparison, dict) and (path not in found or comparison.get("kind") == "changed"):
            found[path] = {**comparison, "end": path}
    ends = list(found.values())
    trained = [one for one in ends if one.get("kind") == "changed"]
    return [one for one in ends if not trained or one in trained or not is_named_reference(one["end"])]


def see_weights(record: RunRecord) -> WeightsSeen:
    """From the inventory and the reloads."""
    facts: dict[str, Any] = record.fact("checkpoints", "facts", {}) or {}
    items = [item for item in facts.get("checkpoints", []) if isinstance(item, dict)]
    change = facts.get("change") or {}
    comparison = change.get("comparison") or {}
    newest = items[-1] if items else {}
    reloads = [one for entry in record.every("reload") if isinstance(one := entry.get("facts"), dict)]
    compared = _compared(reloads)
    if compared and (not change or change.get("start_kind") == OWN_EARLIEST):
        # An untrained one among several checkpoints counts; each was compared with a start of its own format.
        change = min(compared, key=lambda found: (
            found.get("start_kind") == OWN_EARLIEST, found.get("kind") == "changed"))
        comparison = change
    told = [*(item for item in facts.get("marks") or [] if isinstance(item, dict)), *(
        {"path": str(item.get("path")), "word": item.get("marks"), "at": item.get("marks_at")}
        for item in reloads if item.get("marks")), *(
        {"path": str(path), "word": word}
        for key, word in BEFORE_MARKS.items() for path in facts.get(key) or ())]
    numbered = {str(item.get("path")) for item in (*items, *reloads) if item.get("step") is not None}
    outdated = [one["path"] for one in told if one["word"] == "stale" and one["path"] in numbered]
    unchanged = [*(facts.get("delivered_unchanged") or ()), *(
        str(found.get("end")) for found in compared
        if found.get("kind") in UNCHANGED and found.get("start_kind") != OWN_EARLIEST)]
    moved = tuple(one["path"] for one in told if one["word"] in ("moved", "stale") and one["path"] not in outdated)
    is_trained = bool(moved) or change.get("kind") == "changed"
    return WeightsSeen(
        found=len(items),
        not_inspected=sum(item.get("status") == "not-inspected" for item in items),
        last_step=facts.get("last_step"),
        steps=tuple(sorted({item["step"] for item in items
                            if isinstance(item.get("step"), int) and item.get("status") != "damaged"})),
        last_epoch=max((item["epoch"] for item in items
                        if isinstance(item.get("epoch"), int) and item.get("status") != "damaged"), default=None),
        nonfinite=tuple(f"{item.get('path')}: {name}" for item in items for name in item.get("nonfinite", [])),
        newest_damage=f"{newest.get('path')}: {'; '.join(newest.get('problems', []))}"
        if newest.get("status") == "damaged" else None,
        start=change.get("start"), change=change.get("kind"), start_kind=str(change.get("start_kind") or ""),
        changed_tensors=int(comparison.get("changed") or 0), max_abs_change=comparison.get("max_abs_change"),
        why_not_compared=facts.get("why_not_compared"),
        holds_start=tuple(one["path"] for one in told if one["word"] == "held"),
        moved=moved,
        held_at={one["path"]: one["at"] for one in told if isinstance(one.get("at"), int)},
        unrelated=tuple(one["path"] for one in told if one["word"] == "unlike" and not (
            is_named_reference(one["path"]) or is_named_aside(one["path"]))),
        outdated=tuple(outdated),
        delivered_unchanged=tuple(path for path in unchanged if not (is_trained and is_named_reference(path))),
    )
