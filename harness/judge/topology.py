"""The processes and devices that the run really used, against what was asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from harness.judge.model import Check, failed, not_applicable, passed, unproven
from harness.judge.observe import Observation
from harness.record.reasons import Reason

NAME = "topology"


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """What the probe saw of the processes that made an optimizer."""

    launcher: str
    asked: int | None
    """Processes in all that the launchers were told to start."""
    local: int | None
    """Those of them on this node."""
    one_group: bool
    """Whether the launcher's processes are to be one process group."""
    stepping: int
    """Processes that applied a step, one a rank."""
    idle: tuple[int, ...]
    """Ranks that made an optimizer and applied no step."""
    group_size: int | None
    """Largest process group of torch.distributed that a stepping process was in."""
    devices: tuple[str, ...]
    """Device types that were trained on."""


def topology(seen: Observation) -> Topology:
    """Sum up the probe's processes."""
    asked = seen.record.fact("command", "topology") or {}
    processes: list[dict[str, Any]] = (seen.record.fact("probe", "facts") or {}).get("processes") or []
    stepped = [item for item in processes if item.get("steps")]
    ranks = {_identity(item) for item in stepped}
    idle = {item["rank"] for item in processes
            if item.get("rank") is not None and item.get("optimizers_created") and _identity(item) not in ranks}
    return Topology(
        launcher=asked.get("launcher") or "local", asked=asked.get("processes"), local=asked.get("local"),
        one_group=bool(asked.get("one_group")), stepping=len(ranks), idle=tuple(sorted(idle)),
        group_size=max((item["group_size"] for item in stepped if item.get("group_size")), default=None),
        devices=tuple(sorted({device for item in stepped for device in item.get("devices") or []})),
    )


def _identity(process: dict[str, Any]) -> tuple[str, int | None]:
    """A rank is one process however often it was restarted."""
    rank = process.get("rank")
    return ("rank", rank) if rank is not None else ("pid", process.get("pid"))


def check_topology(seen: Observation) -> Check:
    """Every process that was asked for took part in one training, on the kind of device that was asked for."""
    used = topology(seen)
    device = _device(seen, used)
    if device is not None:
        return device
    if used.asked == 1 and (used.group_size or 1) == 1:
        return not_applicable(NAME, "one process was asked for")
    if used.asked is None and used.group_size is None and used.stepping <= 1:
        return not_applicable(NAME, "the command does not say how many processes it starts")
    wanted = max(used.asked or 0, used.group_size or 0) or used.stepping
    expected = f"{wanted} processes in one training ({used.launcher})"
    observed = f"{used.stepping} stepping, process group of {used.group_size or 'none'}"
    if used.idle:
        ranks = ", ".join(map(str, used.idle[:8]))
        return failed(NAME, Reason.RANK_WITHOUT_UPDATES, expected, observed, f"no applied step in rank {ranks}")
    alone = used.group_size is None or used.group_size < wanted
    if alone and used.stepping > 1 and (used.one_group or used.group_size is not None):
        return failed(NAME, Reason.WORLD_SIZE_NOT_REALISED, expected, observed,
                      "the processes trained side by side, not together")
    if alone or used.stepping < (used.local or used.asked or 1):
        return unproven(NAME, Reason.TOPOLOGY_UNPROVEN, expected, observed, _unseen(seen, used))
    return passed(NAME, expected, observed)


def _device(seen: Observation, used: Topology) -> Check | None:
    """Whether a GPU that was required was trained on; None where that is so or nobody required one."""
    if not seen.record.spec.require_gpu:
        return None
    expected, observed = "training on a GPU (--require-gpu)", ", ".join(used.devices) or "not seen"
    if used.devices == ("cpu",):
        return failed(NAME, Reason.RAN_ON_CPU, expected, observed, "every stepped parameter lies on the CPU")
    if not used.devices and (seen.facts is None or seen.facts.probe_applies):
        return unproven(NAME, Reason.TOPOLOGY_UNPROVEN, expected, observed, _unseen(seen, used))
    return None


def _unseen(seen: Observation, used: Topology) -> str:
    if not seen.probe.asked:
        return "the probe was turned off"
    if not used.stepping:
        return "the probe saw no optimizer step"
    return "the probe did not see every process, or no process group"
