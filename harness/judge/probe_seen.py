"""What the optimizer probe saw, over all processes of a run."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from harness.judge.chain import chained
from harness.probe.reader import MAX_OPTIMIZERS
from harness.record.attempts import attempts
from harness.record.run_record import RunRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeSeen:
    """What the optimizer probe counted, over all processes of the run."""

    asked: bool = False
    loaded: bool = False
    torch_seen: bool = False
    optimizers: int = 0
    steps: int = 0
    """Most applied steps of one optimizer in one process."""
    lr_positive_steps: int = 0
    grads_checked: int = 0
    grads_nonzero: int = 0
    grads_nonfinite: int = 0
    """Looked-at gradients of applied steps that held NaN or infinite values."""
    params_checked: int = 0
    params_nonfinite: int = 0
    """Parameters that held NaN or infinite values when the interpreter ended."""
    scaler_skips: int = 0
    counts: tuple[int, ...] = ()
    """Applied steps of every optimizer that stepped, over all processes, rising; a loss scaler's skips added."""
    rates: tuple[tuple[float, float], ...] = ()
    """(lowest, highest) learning rate of every optimizer that stepped, over all processes."""
    rates_begun: tuple[float, ...] = ()
    """Rates that parameter groups had at their optimizer's first step, or that their schedulers started from."""
    rates_never_above: tuple[float, ...] = ()
    """The largest rate at the first step of every optimizer that stepped; empty where one rose above its own later, as
    in a warm-up, or tells none."""
    clean: bool = False
    """Whether the process that stepped most ended through its exit handlers; else the counts may lag by a second."""
    is_whole: bool = False
    """Whether every process that stepped ended so: then no applied step of theirs is missing in the counts."""
    updated_at: float = 0.0
    """When the process that stepped most last wrote its counts."""
    in_turn: tuple[int, ...] = ()
    """Applied steps of all optimizers together, of each process whose optimizers followed one another: no two of them
    trained during the same steps."""
    total: int = 0
    """Applied steps of all optimizers of all processes that trained outside a process group; 0 where one was in it."""


def see_probe(record: RunRecord) -> ProbeSeen:
    """The most that one process counted; several starts of one rank are one chain."""
    facts: dict[str, Any] = record.fact("probe", "facts", {}) or {}
    saved = (record.fact("checkpoints", "facts", {}) or {}).get("checkpoints") or []
    processes = chained([item for item in facts.get("processes", []) if isinstance(item, dict)], attempts(record),
                        [item for item in saved if isinstance(item, dict)])

    def most(*path: str) -> int:
        values = []
        for item in processes:
            value: Any = item
            for key in path:
                value = value.get(key) if isinstance(value, dict) else None
            values.append(value if isinstance(value, int) else 0)
        return max(values, default=0)

    first = max(processes, key=_applied, default={})
    return ProbeSeen(
        asked=record.spec.probe, loaded=bool(facts.get("loaded")), torch_seen=bool(processes),
        optimizers=most("optimizers_created"), steps=most("steps"), lr_positive_steps=most("lr_positive_steps"),
        grads_checked=most("grad", "checked"), grads_nonzero=most("grad", "nonzero"),
        grads_nonfinite=most("grad", "nonfinite"), params_checked=most("params", "checked"),
        params_nonfinite=most("params", "nonfinite"),
        scaler_skips=most("scaler_skips"), counts=_counts(processes),
        rates=_rates(processes), rates_begun=_rates_begun(processes), rates_never_above=_rates_never_above(processes),
        clean=bool(first.get("clean_exit")), updated_at=float(first.get("updated_at") or 0.0),
        is_whole=bool(processes) and all(item.get("clean_exit") for item in processes if _applied(item)),
        in_turn=tuple(sorted({count for count in map(_in_turn, processes) if count})), total=_total(processes),
    )


def _in_turn(process: dict[str, Any]) -> int:
    """Steps of optimizers that followed one another, those before this attempt added once; 0 where they did not."""
    listed = [row for row in process.get("optimizers") or [] if isinstance(row, dict) and row.get("steps")]
    turns = sorted((row.get("first_call") or 0, row.get("last_call") or 0) for row in listed)
    total, steps = process.get("steps_total"), sum(int(row["steps"]) for row in listed)
    if not isinstance(total, int) or not 2 <= len(turns) < MAX_OPTIMIZERS or turns[0][0] < 1:
        return 0
    if any(end >= begin for (_, end), (begin, _) in pairwise(turns)):
        return 0
    return total + (steps - total) // len(turns)


def _total(processes: list[dict[str, Any]]) -> int:
    stepped = [item for item in processes if _applied(item)]
    if any((item.get("group_size") or 1) > 1 for item in stepped):
        return 0
    return sum(total for total in (item.get("steps_total") for item in stepped) if isinstance(total, int))


def _applied(process: dict[str, Any]) -> int:
    steps = process.get("steps")
    return steps if isinstance(steps, int) else 0


def _counts(processes: list[dict[str, Any]]) -> tuple[int, ...]:
    found = set()
    for process in processes:
        skips = process.get("scaler_skips") if isinstance(process.get("scaler_skips"), int) else 0
        rows = [item.get("steps") for item in process.get("optimizers") or [] if isinstance(item, dict)]
        found |= {steps + (skips or 0) for steps in (*rows, _applied(process)) if isinstance(steps, int) and steps > 0}
    return tuple(sorted(found))


def _rates(processes: list[dict[str, Any]]) -> tuple[tuple[float, float], ...]:
    found = {(row.get("lr_min"), row.get("lr_max")) for row in _stepped(processes)}
    return tuple(sorted((float(low), float(high)) for low, high in found if low is not None and high is not None))


def _rates_begun(processes: list[dict[str, Any]]) -> tuple[float, ...]:
    found = {float(rate) for row in _stepped(processes) for key in ("lr_first", "lr_initial")
             for rate in row.get(key) or []}
    return tuple(sorted(found))


def _rates_never_above(processes: list[dict[str, Any]]) -> tuple[float, ...]:
    rows = [(max(row.get("lr_first") or [], default=None), row.get("lr_max")) for row in _stepped(processes)]
    found = {float(first) for first, highest in rows if first is not None and highest == first}
    return tuple(sorted(found)) if all(first is not None and first == highest for first, highest in rows) else ()


def _stepped(processes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows = [row for item in processes for row in item.get("optimizers") or [] if isinstance(row, dict)]
    return [row for row in rows if row.get("steps")]
