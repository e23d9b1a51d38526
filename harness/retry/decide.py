"""Whether a retry may be launched: what it changes, and whether changing nothing can help at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.command.model import Finding
from harness.frameworks.base import FrameworkFacts
from harness.record.reasons import Reason
from harness.retry.changes import OBSERVABILITY, SEMANTIC, Change, find_changes
from harness.retry.earlier import Earlier
from harness.retry.identity import IdentityDifference, identity_differences, is_proven

SETTINGS = "settings"
"""What --approve names where the earlier run recorded no settings."""
CAUSE = "cause"
"""What --approve names where the cause was mended out of this harness's sight (a cache, a service)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPlan:
    """What was found before the launch."""

    changes: tuple[Change, ...]
    identity: tuple[IdentityDifference, ...]
    findings: tuple[Finding, ...]
    """Those that refuse the launch."""

    def to_json(self, earlier: Earlier, approve: Iterable[str]) -> dict[str, Any]:
        """The journal's entry `retry`."""
        return {
            "of": str(earlier.out_dir), "of_run_id": earlier.run_id, "approve": list(approve),
            "changes": [change.to_json() for change in self.changes],
            "identity": [item.to_json() for item in self.identity],
            "attempts": [dict(row) for row in earlier.attempts],
        }


def plan_settings(
    earlier: Earlier, settings: Mapping[str, str], facts: FrameworkFacts, approve: Sequence[str]
) -> RetryPlan:
    """What the commands alone tell: every changed setting, and the refusals that these amount to."""
    changes = find_changes(earlier.settings or {}, settings, facts, approve) if earlier.settings is not None else ()
    findings = [_refused(change, facts) for change in changes if not change.allowed]
    if earlier.settings is None and SETTINGS not in approve:
        findings.append(_finding(
            Reason.RETRY_SETTING_CHANGED, "the earlier run recorded no settings, so that nobody can tell what changed",
            f"compare the commands yourself, then give --approve {SETTINGS}"))
    return RetryPlan(changes=tuple(changes), identity=(), findings=tuple(findings))


def plan_retry(
    earlier: Earlier, settings: Mapping[str, str], identity: Mapping[str, Any], facts: FrameworkFacts,
    approve: Sequence[str],
) -> RetryPlan:
    """Every change and difference, and the refusals that they amount to."""
    told = plan_settings(earlier, settings, facts, approve)
    changes, findings = told.changes, [*told.findings]
    differences = tuple(
        item for item in identity_differences(earlier.identity, identity, approve)
        if earlier.launched or is_proven(earlier.identity.get(item.what)))  # what was not launched used nothing
    findings += [_identity_refused(item) for item in differences if item.differs and not item.approved]
    touched = [change.key for change in changes if change.kind != OBSERVABILITY]
    touched += [item.what for item in differences if item.differs and item.what != "harness_version"]
    if findings or touched or not earlier.recurs or earlier.is_infrastructure:
        return RetryPlan(changes=changes, identity=differences, findings=tuple(findings))
    if CAUSE in approve:
        differences = (*differences, IdentityDifference(
            what=CAUSE, before=earlier.recurs, after="mended, as a person says", known=False, approved=True))
    else:
        findings.append(_finding(
            Reason.RETRY_POINTLESS,
            f"run {earlier.run_id} ended with {earlier.recurs}, which is the job's own, and nothing was changed",
            "mend the cause that check-failed-run.json names, then retry with --approve for what you changed, which is "
            f"named when it is seen; where it lies outside the job's files, with --approve {CAUSE}"))
    return RetryPlan(changes=changes, identity=differences, findings=tuple(findings))


def _refused(change: Change, facts: FrameworkFacts) -> Finding:
    what = "changes what is learned" if change.kind == SEMANTIC else "is of no kind that is known"
    told = f"{change.key} was {_given(change.before)} and is {_given(change.after)}, which {what}"
    first = f"first try {' or '.join(facts.capacity_first)}; else " if facts.capacity_first else ""
    return _finding(Reason.RETRY_SETTING_CHANGED, f"not the same job: {told}",
                    f"{first}set it back, or give --approve {change.key}")


def _identity_refused(item: IdentityDifference) -> Finding:
    return _finding(Reason.RETRY_IDENTITY_DIFFERS,
                    f"not the same job: {item.what} was {item.before} and is {item.after}"[:1000],
                    f"restore it, or give --approve {item.what}")


def _given(value: str | None) -> str:
    return "not given" if value is None else value


def _finding(reason: Reason, message: str, remedy: str) -> Finding:
    return Finding(code=reason.value, message=f"{message}; {remedy}", refuses=True, remedy=remedy)
