"""A run that others made: what is known of its command, launch and end is the user's word.

Such a run is CONDITIONAL at best, unless its weights prove that it came to its target after it was launched; what
shows that it is broken (an error that ends the log, a target that was missed) fails here as anywhere.
"""

from __future__ import annotations

from harness.judge.model import Check, failed, passed, unproven
from harness.judge.observe import Observation
from harness.judge.reach import is_target_met
from harness.record.reasons import Reason
from harness.record.vocabulary import TerminalState

_BAD_ENDS = {
    "exception": Reason.EXCEPTION_IN_LOG, "interrupted": Reason.CANCELLED, "killed": Reason.KILLED_BY_SIGNAL,
    "failed": Reason.EXIT_CODE,
}


def is_launch_asserted(seen: Observation) -> bool:
    """Whether the launch was not seen by the harness."""
    return bool(seen.record.fact("attempt-started", "asserted"))


def is_exit_asserted(seen: Observation) -> bool:
    """Whether the exit was not seen by the harness."""
    return bool(seen.record.fact("attempt-ended", "asserted"))


def ending(seen: Observation) -> tuple[str, str]:
    """(kind, line) of what its log or its tracker says of the end, ("", "") where it says nothing."""
    found = seen.record.fact("log-end", "ending") or {}
    return str(found.get("kind") or ""), str(found.get("line") or "")


def exit_as_asserted(seen: Observation) -> Check:
    """The exit code as the user gives it, held against the end of the log."""
    name, expected = "exit", "exit code 0, witnessed"
    code = seen.record.fact("attempt-ended", "exit_code")
    observed = "unknown" if code is None else f"exit code {code}, as the user says"
    kind, line = ending(seen)
    if code not in (None, 0):
        return failed(name, Reason.EXIT_CODE, expected, observed, line or "the user says that it failed")
    if kind in _BAD_ENDS:
        report = unproven if is_target_met(seen) is True else failed
        return report(name, _BAD_ENDS[kind], expected, observed, f"it ends with: {line}")
    if code is None:
        return unproven(name, Reason.EXIT_UNKNOWN, expected, observed, "no exit code was given (--exit-code)")
    if weights_prove(seen):
        return passed(name, expected, observed, "a whole checkpoint of the target step, written after the launch")
    return unproven(name, Reason.EXIT_ASSERTED, expected, observed, "nothing but the user's word tells it")


def fresh_as_asserted(seen: Observation, points: int) -> Check:
    """Whose the points are and when they were made, where some were found."""
    name, expected = "fresh", "metric points written by this run"
    if seen.record.fact("attempt-started", "launched_at") is None:
        return unproven(name, Reason.LAUNCH_TIME_UNKNOWN, expected, f"{points} points of any age",
                        "no time of the launch was given (--launched-at)")
    if weights_prove(seen):
        return passed(name, expected, f"{points} points since the launch", "the weights were written after it")
    return unproven(name, Reason.FRESHNESS_ASSERTED, expected, f"{points} points since the launch",
                    "that they are of this run is the user's word")


def weights_prove(seen: Observation) -> bool:
    """Whether saved weights of the target step differ from a start and were written after the stated launch."""
    weights = seen.weights
    launched = seen.record.fact("attempt-started", "launched_at") is not None
    reached = seen.target is not None and weights.last_step is not None and weights.last_step >= seen.target
    return launched and reached and weights.learnt and not weights.nonfinite and weights.newest_damage is None


def asserted_state(seen: Observation, *, exit_failed: bool, target_failed: bool) -> TerminalState:
    """How a run ended whose end nobody saw: by its log, and by whether it came to its target."""
    if seen.record.fact("attempt-ended", "stop_reason") == "idle":
        return TerminalState.TIMEOUT
    if exit_failed and ending(seen)[0] == "interrupted":
        return TerminalState.CANCELLED
    return TerminalState.FAILED if exit_failed or target_failed else TerminalState.SUCCEEDED
