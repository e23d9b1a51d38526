"""Several launches of one run: within the declared budget they are a caveat at most, beyond it a person looks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.judge.report import build_report
from tests.unit.run_dirs import RunDir


def judged(run: RunDir, place: Path) -> tuple[str, str, list[str]]:
    """Decision, confidence and reason codes."""
    report: dict[str, Any] = build_report(run.write(place))
    return report["decision"], report["confidence"], [row["code"] for row in report["evidence"]["reasons"]]


@pytest.mark.parametrize("earlier", [1, 3])
def test_restarts_within_the_budget_are_go(earlier: int, tmp_path: Path) -> None:
    """Continuous steps, each launch ended by infrastructure: medium, and no reason."""
    assert judged(RunDir(earlier=earlier), tmp_path) == ("GO", "medium", [])


def test_restarts_beyond_the_budget_are_conditional(tmp_path: Path) -> None:
    """Five launches where four were declared."""
    assert judged(RunDir(earlier=4), tmp_path)[::2] == ("CONDITIONAL", ["restarts-beyond-budget"])


def test_no_restart_was_declared_with_no_fix(tmp_path: Path) -> None:
    """A second launch is beyond a budget of none."""
    run = replace(RunDir(earlier=1), spec={"fix": False})
    assert judged(run, tmp_path)[::2] == ("CONDITIONAL", ["restarts-beyond-budget"])
