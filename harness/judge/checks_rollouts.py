"""Checks of real_step about what an update was made of: response tokens, and sequences that were kept."""

from __future__ import annotations

import re

from harness.judge.model import Check, failed, not_applicable, passed, unproven
from harness.judge.observe import Observation
from harness.record.reasons import Reason
from harness.record.store import TagSummary

ALL_FILTERED = re.compile(r"all agent trajectories were filtered.*")
"""AReno's error after a rollout of which nothing is left."""


def tags_of(seen: Observation, patterns: tuple[str, ...]) -> list[TagSummary]:
    """Series with points of this run, in the order of the patterns."""
    return [tag for pattern in patterns for tag in seen.tags if tag.fresh_points and re.search(pattern, tag.tag)]


def check_response_tokens(seen: Observation) -> Check:
    """Some update was computed on response tokens: a batch of prompts alone teaches nothing."""
    name, expected = "response_tokens", "response tokens above 0 at some update"
    logged = tags_of(seen, seen.facts.response_tags if seen.facts else ())
    if not logged:
        return not_applicable(name, "the trainer logs no response tokens")
    tag = logged[0]
    observed = f"{tag.tag} from {tag.min_finite} to {tag.max_finite}"
    if tag.max_finite is None:
        return unproven(name, Reason.EFFECT_UNPROVEN, expected, f"{tag.tag} is never a finite number",
                        "the trainer does not say how many response tokens its updates had")
    if tag.max_finite <= 0:
        return failed(name, Reason.NO_RESPONSE_TOKENS, expected, observed, "every response was empty or masked")
    return passed(name, expected, observed)


def check_rollouts_kept(seen: Observation) -> Check:
    """Not every row and not every trajectory was left out."""
    name, expected, facts = "rollouts_kept", "sequences that were kept at some step", seen.facts
    if facts is None or not facts.kept_tags:
        return not_applicable(name, "the trainer does not say how many sequences it keeps")
    error = ALL_FILTERED.search(str(seen.record.fact("log-end", "exception") or ""))
    if error:
        return failed(name, Reason.TRAJECTORIES_ALL_FILTERED, expected, "none", error.group(0)[:300])
    kept, skipped = tags_of(seen, facts.kept_tags), tags_of(seen, facts.skipped_tags)
    if not kept:
        return not_applicable(name, "no step was logged")
    counted = [tag.max_finite for tag in kept if tag.max_finite is not None]
    if not counted:
        return unproven(name, Reason.EFFECT_UNPROVEN, expected, f"{kept[0].tag} is never a finite number",
                        "the trainer does not say how many sequences it kept")
    most = max(counted)
    left_out = max((tag.max_finite or 0.0 for tag in skipped), default=0.0)
    observed = f"{most:g} sequences at most in a step, {left_out:g} rows left out as too long"
    if most <= 0:
        return failed(name, Reason.TRAJECTORIES_ALL_FILTERED, expected, observed, "no step kept a sequence")
    cuts = seen.record.fact("log-end", "cuts") or {}
    if cuts.get("rollouts") and cuts["all_cut"] == cuts["rollouts"]:
        return unproven(name, Reason.TRAJECTORIES_ALL_CUT, expected, observed,
                        f"the trainer says of all {cuts['rollouts']} rollouts that the context limit ended every one "
                        "of their trajectories before the agent did")
    return passed(name, expected, observed)
