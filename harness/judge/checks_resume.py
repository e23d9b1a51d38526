"""The check `resume` of save_reload: a run that is resumed goes on as the one that was never interrupted."""

from __future__ import annotations

from typing import Any

from harness.judge.model import Check, failed, not_applicable, passed, unproven
from harness.judge.observe import Observation
from harness.metrics.resumption import tells_weights
from harness.record.reasons import Reason

NAME = "resume"
_REASONS = {"data-replayed": Reason.RESUME_REPLAYS_DATA, "scheduler-restarted": Reason.RESUME_RESTARTS_SCHEDULER}


def check_resume(seen: Observation) -> Check:
    """Series after the checkpoint agree point by point, exactly or within the stated tolerance."""
    if not seen.record.spec.check_resume:
        return not_applicable(NAME, "--check-resume was not asked for")
    facts: dict[str, Any] = seen.record.last("resume-check") or {}
    expected = "the same series after a resume"
    if not facts or facts.get("problem"):
        return unproven(NAME, Reason.RESUME_UNPROVEN, expected, "no comparison",
                        str(facts.get("problem") or "the check was not made: the run did not end well"))
    at, first = facts.get("at"), facts.get("first")
    if facts.get("exit_code") != 0:
        return failed(NAME, Reason.RESUME_FAILS, expected, f"exit code {facts.get('exit_code')}",
                      f"the command does not go on from its checkpoint of step {at}")
    if restarted := _restarted(seen, facts, expected):
        return restarted
    if not facts.get("points") or not any(tells_weights(str(tag)) for tag in facts.get("tags") or []):
        return unproven(NAME, Reason.RESUME_UNPROVEN, expected, "no telling point after the checkpoint",
                        f"no loss or gradient norm that both runs logged lies after step {at}; log more often")
    observed = f"{facts['points']} points of {', '.join(facts.get('tags') or [])} after step {at}"
    if first:
        shown = (f"{first.get('tag')} at step {first.get('step')}: {first.get('actual')} against "
                 f"{first.get('expected')} (rel {_shown(first.get('rel_error'))})")
        reason = _REASONS.get(str(facts.get("suspected")), Reason.RESUME_DIVERGES)
        return failed(NAME, reason, expected, shown, f"suspected state: {facts.get('suspected')}")
    if (facts.get("last_step") or 0) < (facts.get("expected_last") or 0):
        return failed(NAME, Reason.RESUME_FAILS, expected, f"ended at step {facts.get('last_step')}",
                      f"the uninterrupted run went on to step {facts.get('expected_last')}")
    largest, rtol = facts.get("max_relative") or 0.0, facts.get("rtol") or 0.0
    how = "bit for bit" if facts.get("exact") else f"within {rtol:g} (at most {largest:.2g})"
    return passed(NAME, expected, observed, how)


def _restarted(seen: Observation, facts: dict[str, Any], expected: str) -> Check | None:
    """Whether it trained from the start again: its series begins where the uninterrupted run's does.

    The rows may be a history that the checkpoint brought along: as many updates as the whole run's, or a first row
    that this launch itself made, shows that they are not. Fewer updates show that it went on.
    """
    begins, first = facts.get("begins"), facts.get("expected_begins")
    updates, whole, at = facts.get("updates"), seen.probe.steps, facts.get("at")
    longer = (facts.get("last_step") or 0) > (facts.get("expected_last") or 0)
    later = isinstance(begins, int) and isinstance(first, int) and begins > first
    if longer or later or (updates and whole and updates < whole):
        return None
    if updates and whole:
        return failed(NAME, Reason.RESUME_IGNORED, expected, f"{updates} updates, and {whole} of the whole run",
                      f"it was to go on from step {at}, and trained from the start again")
    if begins is None or first is None:
        return None
    shown = f"its first logged step is {begins}"
    if facts.get("is_live"):
        return failed(NAME, Reason.RESUME_IGNORED, expected, shown,
                      f"it was to go on from step {at}, and trained from the start again")
    return unproven(NAME, Reason.RESUME_UNPROVEN, expected, shown,
                    f"it was to go on from step {at}: these rows may be a history that it restored, or trained anew")


def _shown(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, (int, float)) else "-"
