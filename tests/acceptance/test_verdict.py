"""Verdict: the decision that all gates lead to."""

from __future__ import annotations

import pytest

from harness.judge.require import require_decision
from harness.session import JudgedRun

pytestmark = pytest.mark.real_step


def test_decision_is_go(real_run: JudgedRun) -> None:
    """The run is a GO (or CONDITIONAL where --accept-conditional says so)."""
    require_decision(real_run.verdict, out_dir=real_run.out_dir, accept_conditional=real_run.accept_conditional)
