"""A user's reward function on a recorded sample: called twice in a child, through the trainer's own loader."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.launch.child import Limits, run_child
from harness.samples.model import RolloutSample

SCRIPT = Path(__file__).parent / "site" / "_real_step_reward.py"
LIMITS = Limits(seconds=120.0, rss_bytes=4 << 30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recomputed:
    """Both values of the two calls; none where `problem` says why."""

    values: tuple[float, ...] = ()
    problem: str = ""


def recompute(
    reward: Path, sample: RolloutSample, python: Sequence[str], *, cwd: Path, environ: Mapping[str, str]
) -> Recomputed:
    """Call the function of the file `reward` on the sample, twice. Nothing here raises for what the function does."""
    answers: list[dict[str, Any]] = []
    request = {"reward": str(reward), "record": reward_record(sample)}
    ended = run_child([*python, str(SCRIPT)], request, answers.append, cwd=cwd, environ=environ, limits=LIMITS)
    answer = answers[-1] if answers else {}
    if ended.problem or "problem" in answer:
        return Recomputed(problem=str(answer.get("problem") or ended.problem)[:500])
    values = answer.get("values")
    if not isinstance(values, list) or not values:
        return Recomputed(problem="it gave no value")
    numbers = tuple(float(value) for value in values)
    if not all(map(math.isfinite, numbers)):
        return Recomputed(problem=f"it gave {numbers[0]!r}")
    return Recomputed(values=numbers)


def reward_record(sample: RolloutSample) -> dict[str, Any]:
    """The fields of AReno's RewardRecord (areno.api.rewards) that the recorded sample tells."""
    source = dict(sample.source_record or {})
    answer = source.get("solutions")
    if sample.agentic:
        answer = source.get("answer", answer)
    return {
        "prompt": sample.prompt, "completion": sample.raw_completion, "rendered_completion": sample.raw_completion,
        "final_answer": sample.raw_completion, "answer": answer, "messages": [dict(item) for item in sample.messages],
        "source_record": source, **(sample.extra or {}),
    }
