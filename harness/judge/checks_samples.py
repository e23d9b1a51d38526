"""Checks of sample_coherence: one sample of the last update is text, and its reward is explained."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

from harness.judge.model import Check, Gate, failed, not_applicable, passed, unproven
from harness.judge.observe import Observation
from harness.judge.thresholds import threshold
from harness.record.reasons import Reason
from harness.record.store import TagSummary

CLIPPED = r"(^|/)completions/clipped_ratio$"
LENGTHS = (r"(^|/)completions/max_length$", r"^rollout/response_len_mean$")
CAP = r"(^|/)completions/max_length$"
REWARD_TOLERANCE = 1e-5
"""Relative: event files keep rewards as 32-bit floats."""
MEASURED = ("completion", "chars", "undecodable_share", "repetition")
"""What an entry must hold: absent is not 0."""
ROLES = ("system", "developer", "user", "assistant", "tool", "function")


def not_rollout(seen: Observation) -> str:
    """Why the run needs no sample."""
    if seen.facts is None or seen.facts.algorithm_kind in ("rollout", "agentic"):
        return ""
    return "the algorithm makes no rollouts"


def _samples(seen: Observation) -> dict[str, Any]:
    return seen.record.last("samples") or {}


def check_sample_recorded(seen: Observation) -> Check:
    """A sample of this run was recorded, at its last update or after it."""
    name, expected, facts = "sample_recorded", "a sample of the last update", _samples(seen)
    last = facts.get("last")
    if last is None:
        hint = seen.facts.sample_hint if seen.facts else ""
        why = facts.get("problem") or "no samples file of this run was found"
        return unproven(name, Reason.SAMPLE_MISSING, expected, str(facts.get("file") or "none"),
                        f"{why}; {hint or 'name one with --samples FILE'}")
    step, newest = last.get("step"), seen.steps.last
    absent = [key for key in MEASURED if last.get(key) is None]
    if absent:
        return unproven(name, Reason.SAMPLE_MISSING, expected, str(facts.get("file") or "none"),
                        f"the entry of the sample lacks {', '.join(absent)}")
    if step is None:
        return unproven(name, Reason.SAMPLE_MISSING, expected, f"the last row of {facts.get('file')}",
                        "the row does not say of which step it is; let the program write `step` into it")
    observed = f"step {step} of {facts.get('file')}"
    if newest is not None and step + max(1, seen.steps.largest_gap) < newest:
        return unproven(name, Reason.SAMPLE_MISSING, expected, observed, f"the metrics go on to step {newest}")
    return passed(name, expected, observed)


def check_sample_text(seen: Observation) -> Check:
    """The sample is not empty, can be decoded, and does not run in a loop."""
    name, expected = "sample_text", "a text that is not empty, not byte soup and no loop"
    last, first = _samples(seen).get("last"), _samples(seen).get("first") or {}
    if last is None or any(last.get(key) is None for key in MEASURED):
        return _lengths(seen, name, expected) or not_applicable(name, "no measured sample; see sample_recorded")
    shown = repr(str(last.get("completion")))[:160]
    if not last["chars"]:
        return failed(name, Reason.SAMPLE_EMPTY, expected, shown, "the model ended at once, or wrote blanks only")
    odd, loop = float(last["undecodable_share"]), float(last["repetition"])
    if odd > threshold(seen, "sample_undecodable"):
        return failed(name, Reason.SAMPLE_UNDECODABLE, expected, shown,
                      f"{odd:.0%} of its characters are no text (limit {threshold(seen, 'sample_undecodable'):.0%})")
    limit = threshold(seen, "sample_repetition")
    if loop > limit and float(first.get("repetition") or 0.0) > limit and first.get("step") != last.get("step"):
        return unproven(name, Reason.SAMPLE_REPETITIVE, expected, shown,
                        f"it repeats itself ({loop:.0%}), as the model did at the start")
    if loop > limit:
        return failed(name, Reason.SAMPLE_REPETITIVE, expected, shown,
                      f"it repeats itself: {loop:.0%}, limit {limit:.0%}")
    return _lengths(seen, name, expected) or passed(name, expected, shown)


def _lengths(seen: Observation, name: str, expected: str) -> Check | None:
    """Completions of one token are the end token alone, whatever the one sample shows."""
    for tag in _tags(seen, LENGTHS):
        if tag.last_value is not None and tag.last_value <= 1:
            return failed(name, Reason.SAMPLE_EMPTY, expected, f"{tag.tag}={tag.last_value:g} at the last step",
                          "no completion holds more than its end token")
    return None


def check_sample_ends(seen: Observation) -> Check:
    """Some completion ended by itself, unless the cap on their length is a short one."""
    name, expected = "sample_ends", "completions that end before their cap, or a short cap"
    caps = [tag.max_finite for tag in _tags(seen, (CAP,)) if tag.max_finite is not None]
    shares = [tag.min_finite for tag in _tags(seen, (CLIPPED,)) if tag.min_finite is not None]
    if not caps or not shares:
        return not_applicable(name, "the share of clipped completions is not logged")
    cap, share = max(caps), min(shares)
    observed = f"{share:.0%} clipped at least, cap {cap:g} tokens"
    if share >= 1.0 and cap >= threshold(seen, "sample_cap_tokens"):
        return unproven(name, Reason.SAMPLES_ALL_TRUNCATED, expected, observed,
                        "not one completion of the whole run ended by itself")
    return passed(name, expected, observed)


def check_sample_reward(seen: Observation) -> Check:
    """The sample's reward is stated or computed again, and lies within what the step's rewards were."""
    name, expected, facts = "sample_reward", "a reward that the sample explains", _samples(seen)
    last, again = facts.get("last"), facts.get("recomputed")
    if last is None:
        return not_applicable(name, "no sample; see sample_recorded")
    if not seen.record.spec.reward_check:
        return not_applicable(name, "--no-reward-check: the reward was not computed again")
    if again is None:
        stated = last.get("reward")
        if isinstance(stated, (int, float)) and math.isfinite(stated):
            return passed(name, expected, f"{stated:g}, as the samples file states")
        return unproven(name, Reason.REWARD_NOT_RECOMPUTABLE, expected, "none",
                        "the samples file states no reward, and no reward function of the command can be called")
    values = [float(value) for value in again.get("values") or []]
    if len(values) < 2 or not all(map(math.isfinite, values)):
        return unproven(name, Reason.REWARD_NOT_RECOMPUTABLE, expected, str(again.get("values") or "none"),
                        str(again.get("problem") or "it is not finite"))
    if values[0] != values[1]:
        return unproven(name, Reason.REWARD_NOT_RECOMPUTABLE, expected, f"{values[0]:g}, then {values[1]:g}",
                        "two calls on the same sample give two rewards")
    return _within_step(seen, name, expected, values[0], last.get("step"))


def _within_step(seen: Observation, name: str, expected: str, value: float, step: int | None) -> Check:
    """Against the smallest and the largest reward that were logged at the sample's step."""
    bounds = [_value_at(seen, pattern, step) for pattern in (seen.facts.reward_bounds if seen.facts else ())]
    if len(bounds) == 2 and None in bounds:
        return unproven(name, Reason.REWARD_NOT_RECOMPUTABLE, expected, f"{value:g}, twice the same",
                        f"the rewards of step {step} are not logged, so that nothing says that it is one of them")
    if len(bounds) != 2 or bounds[0] is None or bounds[1] is None:
        return passed(name, expected, f"{value:g}, twice the same", "no bounds of that step's rewards are logged")
    low, high = bounds[0], bounds[1]
    slack = REWARD_TOLERANCE * max(1.0, abs(low), abs(high))
    observed = f"{value:g}, rewards of step {step} from {low:g} to {high:g}"
    if low - slack <= value <= high + slack:
        return passed(name, expected, observed)
    return failed(name, Reason.REWARD_MISMATCH, expected, observed,
                  "the function that the command names does not give the rewards that were trained on")


def _value_at(seen: Observation, pattern: str, step: int | None) -> float | None:
    if seen.record.store is None or step is None:
        return None
    for tag in _tags(seen, (pattern,)):
        for point in seen.record.store.iter_series(tag.tag, run=tag.run):
            if point.step == step:
                return point.value
    return None


def _tags(seen: Observation, patterns: tuple[str, ...]) -> list[TagSummary]:
    return [tag for tag in seen.tags if tag.fresh_points and any(re.search(p, tag.tag) for p in patterns)]


def check_transcript(seen: Observation) -> Check:
    """An agentic sample has its roles in order: a tool's result follows its call, the model has spoken."""
    name, expected = "transcript", "known roles, results after their calls, a turn of the model"
    last = _samples(seen).get("last") or {}
    if not last.get("agentic"):
        return not_applicable(name, "no agentic sample")
    messages = last.get("messages") or []
    problem = _order_problem(messages)
    observed = " ".join(str(item.get("role")) for item in messages) or "no messages"
    if problem:
        return failed(name, Reason.TRANSCRIPT_BROKEN, expected, observed, problem)
    return passed(name, expected, observed)


def _order_problem(messages: list[dict[str, Any]]) -> str:
    called: set[str] = set()
    calls = 0
    for number, item in enumerate(messages):
        if item.get("role") not in ROLES:
            return f"message {number} has the role {item.get('role')!r}"
        if item.get("role") == "tool":
            if calls == 0:
                return f"message {number} is a tool's result that follows no call"
            if item.get("tool_call_id") and called and item["tool_call_id"] not in called:
                return f"message {number} is the result of a call that was not made before it"
        for call in item.get("tool_calls") or []:
            calls += 1
            called |= {call["id"]} if call.get("id") else set()
    if not any(item.get("role") == "assistant" for item in messages):
        return "the model has no turn in it"
    return ""


def sample_evidence(seen: Observation, gates: Iterable[Gate]) -> list[dict[str, Any]]:
    """evidence.samples: the sample of the last update with its verdict."""
    facts = _samples(seen)
    last, again = facts.get("last"), (facts.get("recomputed") or {}).get("values") or []
    if last is None:
        return []
    checks = [check for gate in gates if gate.name == "sample_coherence" for check in gate.checks]
    reasons = [f"{check.name}: {check.reason.value}: {check.why}" for check in checks if check.reason is not None]
    broken = any(check.status.value == "failed" for check in checks)
    return [{
        "step": last.get("step"), "prompt": last.get("prompt"), "completion": last.get("completion"),
        "reward": last.get("reward"), "recomputed_reward": again[0] if again else None,
        "verdict": "incoherent" if broken else "unproven" if reasons else "coherent", "reasons": reasons,
    }]
