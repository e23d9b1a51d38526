"""Renders references/failure-triage.md from the rules and fixes: `python -m harness.diagnosis.pages REFERENCES_DIR`."""

from __future__ import annotations

import sys
from pathlib import Path

from harness.diagnosis.fixes import FIXES
from harness.diagnosis.model import Role, Rule
from harness.diagnosis.rules import RULES
from harness.record.files import write_text
from harness.record.vocabulary import PrimaryCause

_INTRO = (
    "# Failure triage",
    "",
    "Fix the first causal error, not the last line. Of each process the earliest error counts that it did not go on "
    "from; of several processes the one that failed first by its time stamps. What only follows from another failure "
    "(watchdogs, closed connections, SIGTERM to the healthy, the launcher's own exception) is a cause only where "
    "nothing else was seen, and then with less confidence. torchrun's \"first observed\" is the order of observation.",
    "",
    "`python -m harness diagnose PATH...` applies these rules. A safe fix may be applied as it is; the others need a "
    "person's approval; a dangerous one changes what is trained. *Relaunch* marks what the same job may survive with "
    "nothing changed; *may pass* what can have lain outside the job, so that such a retry is not refused as pointless.",
    "",
)


def render_triage() -> str:
    """The page: one section for each class, one row for each situation, then the fixes."""
    lines = list(_INTRO)
    for cause in PrimaryCause:
        rules = [rule for rule in RULES if rule.cause is cause]
        if rules:
            lines += [f"## {cause.value}", "", "| situation | what happened | ruled out | fixes | |",
                      "| --- | --- | --- | --- | --- |", *map(_row, rules), ""]
    lines += ["## Fixes", "", "| fix | action | risk | expected impact | validate |", "| --- | --- | --- | --- | --- |"]
    lines += [f"| {name} | {fix.action} | {fix.risk.value} | {fix.expected_impact} | `{_cell(fix.validate)}` |"
              for name, fix in FIXES.items()]
    return "\n".join(lines) + "\n"


def _row(rule: Rule) -> str:
    marks = [rule.role.value] if rule.role is not Role.CAUSE else []
    marks += ["relaunch"] if rule.is_infrastructure else ["may pass"] if rule.may_pass else []
    return (f"| {rule.id} ({rule.where.value}, {rule.confidence:g}) | {_cell(rule.says)} | {_cell(rule.rules_out)} | "
            f"{', '.join(rule.fixes)} | {', '.join(marks)} |")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    write_text(Path(sys.argv[1]) / "failure-triage.md", render_triage())
