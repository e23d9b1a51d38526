"""Several launches of one run: within the declared budget they are a caveat at most, beyond it a person looks."""

from __future__ import annotations

import time
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


def process(restart: int, steps: int, began: float) -> dict[str, Any]:
    """A rank that torch elastic started for the `restart`th time again; `began`: seconds after now."""
    now = time.time()
    return {"steps": steps, "optimizers_created": 1, "lr_positive_steps": steps, "scaler_skips": 0, "world_size": 1,
            "rank": 0, "restart": restart, "started_at": now + began, "updated_at": now + began + 2.0,
            "clean_exit": True, "grad": {"checked": 4, "nonzero": 4}}


def elastic(declared: int, *, steps: tuple[int, ...] = (), **spec: Any) -> RunDir:
    """A launch whose workers were started again after its fifth logged step."""
    return RunDir(processes=(process(0, 5, 0.2), process(1, 5, 4.5)), steps=steps, spec=spec,
                  topology={"launcher": "torchrun", "processes": 1, "local": 1, "one_group": True,
                            "restarts": declared})


def test_workers_started_again_as_declared_are_go(tmp_path: Path) -> None:
    """torchrun --max-restarts 1, also where the harness itself may restart nothing: two attempts, ten updates."""
    run = elastic(1, fix=False)
    assert judged(run, tmp_path) == ("GO", "medium", [])
    report = build_report(tmp_path)
    first, second = report["evidence"]["attempts"]
    assert (first["terminal_state"], second["terminal_state"]) == ("FAILED", "SUCCEEDED")
    assert (second["resumed_from_step"], report["evidence"]["observed"]["updates_executed"]) == (5, 10)


def test_workers_started_again_beyond_what_was_declared_are_conditional(tmp_path: Path) -> None:
    """By a policy that allows none."""
    assert judged(elastic(1, thresholds=(("restarts", 0),)), tmp_path)[::2] == (
        "CONDITIONAL", ["restarts-beyond-budget"])


def test_steps_that_are_missing_between_two_starts_are_a_gap(tmp_path: Path) -> None:
    """The workers went on at step 15 and nothing was saved or logged after step 5."""
    run = elastic(1, steps=(1, 2, 3, 4, 5, 15, 16, 17, 18, 19))
    run = replace(run, facts=replace(run.facts, target_steps=19))
    assert "restart-gap" in judged(run, tmp_path)[2]
