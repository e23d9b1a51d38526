"""Checks of training_command: was the command understood, and may it be launched."""

from __future__ import annotations

from dataclasses import replace

from harness.judge.asserted import is_launch_asserted
from harness.judge.model import Check, failed, not_applicable, passed, unproven
from harness.judge.observe import Observation
from harness.judge.policy import expired, told
from harness.record.reasons import Reason


def check_command(seen: Observation) -> Check:
    """The command was understood and nothing in it forbids the launch."""
    entry = seen.record.last("command")
    expected = "a command that can be launched"
    if entry is None:
        return unproven("command", Reason.EVIDENCE_INCOMPLETE, expected, "none", "the journal holds no command")
    for finding in entry.get("findings") or []:
        if finding.get("refuses") and finding.get("code") != Reason.CAPACITY_INVARIANT.value:
            check = failed("command", _reason(finding.get("code")), expected, str(entry.get("text")),
                           str(finding.get("message")))
            return replace(check, exact_remedy=str(finding.get("remedy") or ""))
    if is_launch_asserted(seen) and not entry.get("argv"):
        return unproven("command", Reason.COMMAND_UNKNOWN, expected, "none", "nobody said what was run (--train-cmd)")
    return passed("command", expected, str(entry.get("text")))


def check_framework(seen: Observation) -> Check:
    """It is stated which framework was seen and from what."""
    if seen.facts is None:
        return not_applicable("framework", "the command was refused before")
    return passed("framework", "a stated framework", f"{seen.facts.name} ({seen.facts.reason})")


def check_capacity(seen: Observation) -> Check:
    """The sizes that the command states can be: they divide, are above 0, and name how much runs at once."""
    name, entry = "capacity", seen.record.last("command") or {}
    expected = "sizes that divide and are above 0"
    sizes, line = entry.get("capacity"), str(entry.get("capacity_line") or "")
    wrong = [str(item.get("message")) for item in entry.get("findings") or []
             if item.get("code") == Reason.CAPACITY_INVARIANT.value]
    if wrong:
        return failed(name, Reason.CAPACITY_INVARIANT, expected, line or wrong[0], "; ".join(wrong))
    if not sizes:
        return not_applicable(name, "the command states no sizes that its trainer's adapter knows")
    return passed(name, expected, line)


def _reason(code: object) -> Reason:
    try:
        return Reason(str(code))
    except ValueError:
        return Reason.COMMAND_REFUSED


def check_policy(seen: Observation) -> Check:
    """No waiver of the policy has passed its end."""
    name, spec = "policy", seen.record.spec
    if spec.policy_digest is None:
        return not_applicable(name, "no policy was given (--policy)")
    moment = seen.record.entries[0]["time"] if seen.record.entries else 0.0
    over = expired(spec.waivers, moment)
    if over:
        return failed(name, Reason.WAIVER_EXPIRED, "waivers whose end has not come", f"{len(over)} expired",
                      "; ".join(map(told, over)))
    return passed(name, "waivers whose end has not come", "; ".join(map(told, spec.waivers)) or "no waiver")
