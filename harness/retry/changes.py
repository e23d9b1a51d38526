"""What a retry changes in its settings, each of a kind: capacity, semantic, observability or unknown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import Any

from harness.frameworks.base import FrameworkFacts
from harness.judge.values import same_value

CAPACITY, SEMANTIC, OBSERVABILITY, UNKNOWN = "capacity", "semantic", "observability", "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One setting that is not what it was."""

    key: str
    before: str | None
    """None where the setting was not given."""
    after: str | None
    kind: str
    """capacity, semantic, observability or unknown."""
    approved: bool

    @property
    def allowed(self) -> bool:
        """Whether the job is still the same by this setting, or a person said so."""
        return self.approved or self.kind in (CAPACITY, OBSERVABILITY)

    def to_json(self) -> dict[str, Any]:
        """For the journal and the evidence."""
        return asdict(self)


def find_changes(
    before: Mapping[str, str], after: Mapping[str, str], facts: FrameworkFacts, approve: Iterable[str]
) -> tuple[Change, ...]:
    """Every setting that is given otherwise, in order of its name. Values are compared as trainers read them."""
    approved = {plain(key) for key in approve}
    found = []
    for key in sorted(set(before) | set(after)):
        old, new = before.get(key), after.get(key)
        if old == new or (old is not None and new is not None and same_value(old, new)):
            continue
        kind = kind_of(key, facts, before, after)
        found.append(Change(key=key, before=old, after=new, kind=kind,
                            approved=plain(key) in approved or last_part(key) in approved))
    return tuple(found)


def kind_of(key: str, facts: FrameworkFacts, before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """By the adapter's declaration. A factor of the batch is capacity while their product stays, else semantic."""
    name = plain(key)
    factors = dict(_factor(item) for item in facts.batch_factors)
    if last_part(name) in factors:
        old, new = batch_of(factors, before), batch_of(factors, after)
        return SEMANTIC if old is None or new is None or old != new else CAPACITY
    for kind, names in ((CAPACITY, facts.capacity_settings), (OBSERVABILITY, facts.observability_settings),
                        (SEMANTIC, facts.semantic_settings)):
        if any(name == one or last_part(name) == one or fnmatchcase(name, one) or fnmatchcase(last_part(name), one)
               for one in names):
            return kind
    return SEMANTIC if last_part(name) == "world_size" else UNKNOWN


def batch_of(factors: Mapping[str, str], values: Mapping[str, str]) -> int | None:
    """Samples of one update; None where a factor is no number, or is given in two ways."""
    product = 1
    for name, default in factors.items():
        given = {value for key, value in values.items() if last_part(key) == name}
        text = next(iter(given), default) if len(given) < 2 else ""
        number = _whole(text)
        if number is None:
            return None
        product *= number
    return product


def plain(key: str) -> str:
    """The name as it is compared: `--Learning-Rate`, `config:optim.lr` as `learning_rate`, `optim.lr`."""
    name = key.lstrip("-+").replace("-", "_").lower()
    head, colon, tail = name.partition(":")
    return tail if colon and head.rstrip("0123456789") in ("config", "launcher_config") and tail else name


def last_part(key: str) -> str:
    """The last part of a dotted name, as it is compared."""
    return plain(key).rpartition(".")[2]


def _factor(item: str) -> tuple[str, str]:
    name, _, default = item.partition("=")
    return name, default


def _whole(text: str) -> int | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return int(number) if math.isfinite(number) and number > 0 and number.is_integer() else None
