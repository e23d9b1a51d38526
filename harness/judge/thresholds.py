"""The limits that checks of texts and series compare with, by name; a policy file may set each of them."""

from __future__ import annotations

from harness.judge.observe import Observation
from harness.record.attempts import MAX_RESTARTS

THRESHOLDS: dict[str, tuple[float, str]] = {
    "sample_undecodable": (0.1, "share of characters of a sample that are no text; more is byte soup"),
    "sample_repetition": (0.8, "share of repeated 4-grams (seq-rep-4) of a sample; more is a loop"),
    "on_policy_ratio": (0.05, "distance from 1 of the policy's ratio at the first update; more is no on-policy start"),
    "logprob_difference": (0.1, "mean distance of sampled and trained log-probabilities at the first update, in nats"),
    "ln_2": (1e-6, "a preference loss nearer to ln 2 has not moved"),
    "sample_cap_tokens": (256, "a cap on completions below this is short, and clips healthy samples"),
    "resume_rtol": (1e-4, "relative difference of a resumed series from the uninterrupted one; more is a divergence"),
    "restarts": (MAX_RESTARTS, "launches after the first one that infrastructure may cost; more are not made"),
    "retry_rtol": (0.05, "relative difference of a retry's loss from the run before it at the same step"),
    "retry_atol": (1e-3, "absolute difference that is added to it"),
}
"""{name: (default, meaning)}."""


def threshold(seen: Observation, name: str) -> float:
    """The limit of this run."""
    return dict(seen.record.spec.thresholds).get(name, THRESHOLDS[name][0])
