"""Capacity: which sizes of a command cannot be, with their numbers, and what to make smaller where it does not fit.

The sizes themselves are an adapter's (`frameworks.capacity`). Nothing here ever proposes shorter token limits.
"""

from __future__ import annotations

from harness.command.model import Finding
from harness.frameworks.capacity import Capacity
from harness.record.reasons import Reason


def capacity_findings(sizes: Capacity) -> tuple[Finding, ...]:
    """A refusal for each invariant that does not hold, with its numbers; advice for what only wastes room."""
    refused = [_refused(text) for text in (*_positive(sizes), *_divisible(sizes), *_fractions(sizes))]
    advice = []
    if sizes.rollout and sizes.demand is not None and sizes.max_running_prompts is not None and (
        sizes.max_running_prompts > sizes.demand
    ):
        advice.append(f"max_running_prompts {sizes.max_running_prompts} is above the demand of {sizes.batch_size} x "
                      f"{sizes.n_samples} = {sizes.demand} samples: {sizes.max_running_prompts - sizes.demand} places "
                      "stay empty")
    waves = sizes.waves if not refused else None
    if waves is not None and waves > 1 and sizes.demand and sizes.running and sizes.demand % sizes.running:
        advice.append(f"the last of {sizes.waves} waves holds {sizes.demand % sizes.running} of {sizes.running} "
                      f"samples (demand {sizes.demand})")
    return (*refused, *(Finding(code="capacity-advice", message=text, refuses=False) for text in advice))


def _positive(sizes: Capacity) -> list[str]:
    names: tuple[str, ...] = ("batch_size", "mini_bs", "score_micro_bs", "gradient_accumulation_steps", "world_size",
                              "tp_size", "rollout_tp_size")
    names += ("n_samples", "max_running_prompts") if sizes.rollout else ()
    return [f"{name} is {value}: it must be above 0" for name in names
            if (value := getattr(sizes, name)) is not None and value < 1]


def _divisible(sizes: Capacity) -> list[str]:
    found = []
    world, tensor = sizes.world_size, sizes.tp_size
    if world and tensor and world > 0 and tensor > 0 and world % tensor:
        found.append(f"world_size {world} is not divisible by tp_size {tensor} ({world} / {tensor} = "
                     f"{world / tensor:g}), so that there is no whole data-parallel size")
    devices, parallel = sizes.rollout_devices, sizes.rollout_tp_size or tensor
    if devices and parallel and parallel > 0 and devices % parallel:
        found.append(f"{devices} rollout devices are not divisible by rollout_tp_size {parallel}")
    return found


def _fractions(sizes: Capacity) -> list[str]:
    share = sizes.mem_frac
    if share is None or 0 < share <= 1:
        return []
    return [f"mem_frac is {share:g}: it must lie in (0, 1]"]


def _refused(message: str) -> Finding:
    return Finding(code=Reason.CAPACITY_INVARIANT.value, message=message, refuses=True,
                   remedy="change the number that the message names; the token limits stay as they are")


def proposals(sizes: Capacity) -> list[str]:
    """What to change when the job does not fit, in this order: concurrency, microbatch, state; never token limits."""
    found = []
    if sizes.rollout and sizes.running and sizes.running > 1:
        found.append(f"max_running_prompts={max(1, sizes.running // 2)} (from {sizes.running}: fewer samples at once, "
                     "the same samples in all)")
    if sizes.mini_bs and sizes.mini_bs > 1:
        found.append(f"mini_bs={max(1, sizes.mini_bs // 2)} (from {sizes.mini_bs}: smaller microbatches, the same "
                     "batch)")
    if sizes.score_micro_bs and sizes.score_micro_bs > 1 and sizes.rollout:
        found.append(f"score_micro_bs={max(1, sizes.score_micro_bs // 2)} (from {sizes.score_micro_bs})")
    if sizes.rollout and not sizes.drop_rollout_state:
        found.append("drop_rollout_state=true (frees the rollout's cache before training; changes no samples)")
    if sizes.tunes:
        found.append("tune_params=true (the trainer looks for sizes that fit before it trains)")
    return found
