"""Whether the ranks of a process group trained one model: what they exchanged between their updates."""

from __future__ import annotations

from typing import Any

from harness.judge.model import Check, failed, not_applicable, passed, unproven
from harness.judge.observe import Observation
from harness.judge.topology import topology
from harness.record.reasons import Reason

NAME = "exchange"
EXPECTED = "gradients, weights or activations exchanged between the updates"
PARTED = frozenset({"FullyShardedDataParallel", "DeepSpeedEngine", "DTensor"})
"""Wrappers under which each rank holds a part of its own."""
SELDOM = 0.1
"""Share of the updates below which an exchange may be another one than training's, as that of an evaluation."""


def check_exchange(seen: Observation) -> Check:
    """Ranks that are one process group exchange more than numbers to log while they train."""
    members = _members(seen)
    if not members or (len(members) == 1 and not _shares(members[0]) and not _others_elsewhere(seen)):
        return not_applicable(NAME, "no process group in which several ranks stepped an optimizer")
    exchanges = [item.get("exchange") for item in members]
    if not all(exchanges):
        return unproven(NAME, Reason.EXCHANGE_UNPROVEN, EXPECTED, "not seen",
                        "the probe did not see what the ranks exchanged")
    observed = _told(members)
    if all(map(_shares, members)):
        return _of_sharing(members, observed)
    if len(members) == 1 or any(map(_shares, members)):
        return unproven(NAME, Reason.EXCHANGE_UNPROVEN, EXPECTED, observed, "some of the ranks exchanged nothing")
    why_not = _unseen(members)
    if why_not:
        return unproven(NAME, Reason.EXCHANGE_UNPROVEN, EXPECTED, observed, why_not)
    return failed(NAME, Reason.RANKS_TRAINED_ALONE, EXPECTED, observed,
                  "every rank updated a model of its own" + (", and the copies differ" if _differ(members) else ""))


def _members(seen: Observation) -> list[dict[str, Any]]:
    """The processes that stepped within a group of several, one a rank: of a restarted one, that with most steps."""
    processes: list[dict[str, Any]] = (seen.record.fact("probe", "facts") or {}).get("processes") or []
    found: dict[Any, dict[str, Any]] = {}
    for item in processes:
        key = item.get("pid") if item.get("rank") is None else ("rank", item["rank"])
        is_member = item.get("steps") and (item.get("group_size") or 0) > 1
        if is_member and item["steps"] > found.get(key, {"steps": 0})["steps"]:
            found[key] = item
    return list(found.values())


def _others_elsewhere(seen: Observation) -> bool:
    """Whether ranks of other nodes, which leave no file here, were asked for."""
    used = topology(seen)
    return used.asked is not None and used.local is not None and used.local < used.asked


def _shares(process: dict[str, Any]) -> bool:
    """Whether a rank is seen to have exchanged what may be training's."""
    exchange = process.get("exchange") or {}
    if not exchange.get("readable") and exchange.get("wrappers"):
        return True
    return bool(exchange.get("steps") or (exchange.get("first") and not _has_later_steps(process)))


def _has_later_steps(process: dict[str, Any]) -> bool:
    """Whether more steps were made than one of each optimizer: optimizers that step in turn share one exchange."""
    optimizers = sum(1 for item in process.get("optimizers") or () if item.get("steps"))
    return int(process["exchange"].get("observed_steps") or 0) > max(1, optimizers)


def _of_sharing(members: list[dict[str, Any]], observed: str) -> Check:
    """Of ranks that all exchanged something: whether it can have been what trains one model."""
    exchanges = [item["exchange"] for item in members]
    wrappers = {name for one in exchanges for name in one.get("wrappers") or ()}
    if all(map(_is_whole_often, members)) or wrappers & PARTED:
        return passed(NAME, EXPECTED, observed)
    seldom = all(item["exchange"].get("steps", 0) < SELDOM * item["steps"] and _has_later_steps(item)
                 for item in members)
    is_whole = any(_whole_steps(one) or one.get("whole_after") for one in exchanges)
    starts, differ = _starts(members), _differ(members)
    is_seen = all(one.get("readable") and not one.get("others") for one in exchanges)
    if starts == "same" and differ and wrappers and seldom and is_seen and not is_whole:
        return failed(NAME, Reason.RANKS_TRAINED_ALONE, EXPECTED, observed,
                      f"{', '.join(sorted(wrappers))} was passed by: the copies began equal, and differ")
    why_not = _unfit(starts, differ, seldom, bool(wrappers), is_whole or any(map(_is_sized_by_nobody, exchanges)))
    if why_not and len(members) > 1:
        return unproven(NAME, Reason.EXCHANGE_UNPROVEN, EXPECTED, observed, why_not)
    return passed(NAME, EXPECTED, observed)


def _unfit(starts: str, differ: bool, seldom: bool, wrapped: bool, may_be_whole: bool) -> str:
    """Why what every rank exchanged may have been something else than what trains one model."""
    if starts == "same" and differ:
        return "the ranks began from the same weights, and their copies differ"
    if differ and seldom and not wrapped:
        return "exchanged at few updates, and the ranks' copies of the parameters differ"
    if starts == "same" and not wrapped and not may_be_whole:
        return "fewer elements than are trained; the copies are as equal as after the same work on the same data"
    return ""


def _whole_steps(exchange: dict[str, Any]) -> int:
    """Later updates before which as much was exchanged as is trained; of a record that tells no sizes, all."""
    return int(exchange.get("whole_steps", exchange.get("steps") or 0))


def _is_whole_often(process: dict[str, Any]) -> bool:
    """Whether gradients or weights can have been exchanged at so many updates that the copies may differ between."""
    exchange = process["exchange"]
    return "whole_steps" in exchange and _whole_steps(exchange) >= max(1, SELDOM * process["steps"])


def _is_sized_by_nobody(exchange: dict[str, Any]) -> bool:
    """Whether an exchange was of collectives of C++, or of a single update, whose sizes are not told."""
    return bool(exchange.get("hidden_steps")) or not exchange.get("readable") or not exchange.get("steps")


def _unseen(members: list[dict[str, Any]]) -> str:
    """Why ranks that exchanged nothing that is seen may have trained together, or apart on purpose, all the same."""
    exchanges = [item["exchange"] for item in members]
    if not all(one.get("readable") for one in exchanges):
        return "the backend does not number its collectives, and none was called from Python"
    ways = sorted({way for one in exchanges for way in one.get("others") or ()})
    if ways:
        return f"the ranks may have exchanged through {', '.join(ways)}"
    if any(one.get("few_steps") for one in exchanges) and not _differ(members):
        return "messages of a few numbers only; the copies are as equal as after the same work on the same data"
    if any(one.get("after") for one in exchanges) and not _differ(members):
        return "exchanged after the last update only"
    if all(one.get("whole_after") for one in exchanges):
        return "as many elements as are trained were exchanged after the last update only, as where models are averaged"
    if _starts(members) == "other" and not any(one.get("wrappers") for one in exchanges):
        return "each rank began from other weights: models of their own, as of folds or seeds, or a forgotten exchange"
    return ""


def _columns(members: list[dict[str, Any]]) -> list[tuple[dict[str, Any], ...]]:
    """The small parameters, one a rank; none where the ranks do not hold the same ones, as by shape."""
    marks = [item.get("marks") or [] for item in members]
    shapes = {tuple((mark.get("dtype"), tuple(mark.get("shape") or ())) for mark in one) for one in marks}
    return list(zip(*marks, strict=True)) if len(members) > 1 and len(shapes) == 1 else []


def _starts(members: list[dict[str, Any]]) -> str:
    """Whether what is not uniform, as norms and biases begin, began the "same" or "other" on every rank; else ""."""
    starts = [[mark.get("sha256") for mark in column] for column in _columns(members)
              if not any(mark.get("uniform") for mark in column)]
    if not starts or any(None in column for column in starts):
        return ""
    sizes = {len(set(column)) for column in starts}
    return "same" if sizes == {1} else "other" if sizes == {len(members)} else ""


def _differ(members: list[dict[str, Any]]) -> bool:
    """Whether the ranks hold the same small parameters, as by shape, and each that moved is another on each."""
    if len({item.get("marks_at") for item in members}) != 1:
        return False
    moved = [column for column in _columns(members) if all(mark.get("changed") for mark in column)]
    ends = [[mark.get("end") for mark in column] for column in moved]
    return bool(ends) and all(None not in column and len(set(column)) == len(column) for column in ends)


def _told(members: list[dict[str, Any]]) -> str:
    parts = []
    for item in sorted(members, key=lambda one: one.get("rank") or 0)[:8]:
        one = item["exchange"]
        name = "rank" if item.get("rank") is None else f"rank {item['rank']}"
        later = max(0, int(one.get("observed_steps") or 0) - 1)
        wrappers = f" ({', '.join(one['wrappers'])})" if one.get("wrappers") else ""
        parts.append(f"{name}: before {one.get('steps', 0)} of {later} later updates{wrappers}")
    return "; ".join(parts)
