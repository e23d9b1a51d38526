"""Output of real runs: every recorded log and event file gives the series that its run had, and its run's verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.cli import main
from harness.metrics.command import metrics_report

RECORDED = Path(__file__).with_name("cases") / "recorded"
OUTPUT = RECORDED / "output"
STATES = Path(__file__).parents[1] / "frameworks" / "recorded"
ARENO = {"dpo": (3, 0), "grpo": (3, 0), "gspo": (3, 0), "agentic-gspo": (2, 0), "ppo": (0, 3)}
"""Algorithm -> updates executed and skipped."""


def report(path: Path, *tags: str) -> dict[str, Any]:
    """`metrics` of a recorded file."""
    return metrics_report(path, tags, None)


def history(name: str) -> list[dict[str, Any]]:
    """log_history of a recorded run."""
    rows: list[dict[str, Any]] = json.loads((STATES / name / "trainer_state.json").read_text())["log_history"]
    return rows


@pytest.mark.parametrize("name", ARENO)
def test_log_of_areno_tells_its_updates(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The log alone: an update that was made is never denied, and PPO inside its warm-up made none."""
    executed, skipped = ARENO[name]
    main(["judge", "--log", str(OUTPUT / f"areno-{name}.log"), "--exit-code", "0", "--out-dir", str(tmp_path)])
    answer = json.loads(capsys.readouterr().out)
    observed = json.loads((tmp_path / "train-model.json").read_text())["evidence"]["observed"]
    assert (observed["updates_executed"], observed["updates_skipped"]) == (executed, skipped)
    assert answer["decision"] == ("CONDITIONAL" if executed else "NO-GO")
    codes = {reason["code"] for reason in answer["reasons"]}
    assert ("no-update-executed" in codes) is (executed == 0)
    assert json.loads((tmp_path / "babysit-training.json").read_text())["anomalies_detected"] == []


@pytest.mark.parametrize("name", ["dpo", "grpo", "gspo", "ppo", "sft"])
def test_events_of_trl_are_its_history(name: str) -> None:
    """Each training and evaluation tag: the values of trainer_state.json at its steps, to float32."""
    rows, place = history(f"trl-{name}"), RECORDED / f"trl-{name}"
    known = set(report(place)["keys"])
    compared = 0
    for key in {key for row in rows for key in row} - {"step", "epoch"}:
        tag = f"eval/{key[5:]}" if key.startswith("eval_") else f"train/{key}"
        if tag not in known:
            continue
        series = [(point["step"], point["value"]) for point in report(place, tag)["series"][tag]]
        assert series == [(row["step"], pytest.approx(row[key], rel=1e-6, abs=1e-7)) for row in rows if key in row], tag
        compared += 1
    assert compared >= 5


@pytest.mark.parametrize(("name", "steps"), [("grpo", 5), ("gspo", 5), ("sft", 20), ("ppo", 10)])
def test_bars_of_trl_tell_where_it_came_to(name: str, steps: int) -> None:
    """Standard error alone: loading weights and tokenising are no training."""
    progress = report(OUTPUT / f"{name}.stderr")["progress"]
    assert (progress["step"], progress["total"]) == (steps, steps)


def test_rows_of_grpo_without_completions() -> None:
    """Standard output alone, to the digits that it prints."""
    rows = [(row["step"], pytest.approx(row["loss"], rel=1e-3, abs=1e-9)) for row in history("trl-grpo")
            if "loss" in row]
    series = report(OUTPUT / "grpo.stdout", "loss")["series"]["loss"]
    assert [(point["step"], point["value"]) for point in series] == rows
