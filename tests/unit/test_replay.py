"""`python -m harness replay`: the decision over every kind of source."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.errors import ConfigError
from harness.metrics.collector import MetricCollector
from harness.record.store import MetricStore
from harness.watch.replay import find_series, replay
from tests.unit.event_files import scalar, write

CASES = Path(__file__).parent / "cases"
SERIES: list[dict[str, Any]] = json.loads((CASES / "50-es-patience-and-delta" / "series.json").read_text())
STOPS: dict[str, Any] = json.loads((CASES / "50-es-patience-and-delta" / "expected.json").read_text())
VALUES = [1.0, 0.9, 0.95, 0.97, 0.8]


def jsonl(path: Path, values: list[float], tag: str = "eval_loss") -> Path:
    """An evaluation every 10 steps, a training loss every 5."""
    lines = []
    for index, value in enumerate(values):
        lines += [json.dumps({"step": 10 * index + 5, "loss": 1}), json.dumps({"step": 10 * (index + 1), tag: value})]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("case", SERIES, ids=lambda case: str(case["name"]))
def test_case_50_from_a_file(tmp_path: Path, case: dict[str, Any]) -> None:
    """The seven series, read back from JSON lines."""
    path = jsonl(tmp_path / "m.jsonl", case["values"])
    result = replay(path, "eval_loss", case["patience"], mode=case["mode"], min_delta=case["min_delta"])
    expected = STOPS[case["name"]]
    assert (result["ok"], result["stop_index"], result["best_index"]) == (
        True, expected["stop_index"], expected["best_index"],
    )
    assert result["triggered"] is (expected["stop_index"] is not None)


def test_result_names_steps_and_direction(tmp_path: Path) -> None:
    """Every field, from the evaluation that a bare name meets."""
    assert replay(jsonl(tmp_path / "m.jsonl", VALUES), "loss", 2) == {
        "ok": True, "triggered": True, "stop_index": 3, "stop_step": 40, "best_index": 1, "best_step": 20,
        "best_value": 0.9, "direction": "min", "metric": "eval_loss", "num_evaluations": 4,
    }


def test_sources_agree(tmp_path: Path) -> None:
    """An event file, trainer_state.json, metrics.csv, a log, a directory and an out-dir."""
    rows = [{"step": 10 * (i + 1), "eval_loss": value, "epoch": i + 1} for i, value in enumerate(VALUES)]
    state = tmp_path / "hf" / "trainer_state.json"
    state.parent.mkdir()
    state.write_text(json.dumps({"global_step": 50, "max_steps": 50, "log_history": rows}))
    table = tmp_path / "csv" / "metrics.csv"
    table.parent.mkdir()
    table.write_text("step,train_loss,val_loss\n" + "".join(f"{r['step']},,{r['eval_loss']}\n" for r in rows))
    log = tmp_path / "train.log"
    log.write_text("".join(f"step={r['step']} eval_loss={r['eval_loss']}\n" for r in rows))
    (tmp_path / "tb").mkdir()
    events = write(tmp_path / "tb" / "events.out.tfevents.1.h.1.0",
                   [scalar("eval/loss", int(r["step"] or 0), float(r["eval_loss"])) for r in rows])
    out_dir = tmp_path / "out"
    out_dir.mkdir()
    with MetricStore.create(out_dir / "metrics.db") as store:
        MetricCollector(store, [tmp_path / "csv"]).finish(now=1.0, launched_at=0.0)
    for path in (state, state.parent, table, log, events, events.parent, out_dir):
        result = replay(path, "eval_loss", 2)
        found = (result["stop_index"], result["stop_step"], result["best_step"], result["best_value"])
        assert found == (3, 40, 20, pytest.approx(0.9)), path


def test_nan_and_all_nan(tmp_path: Path) -> None:
    """A NaN counts as no improvement; the result stays strict JSON."""
    path = jsonl(tmp_path / "m.jsonl", [math.nan, math.nan, 1.0])
    result = replay(path, "eval_loss", 2)
    assert (result["stop_index"], result["best_index"], result["best_value"]) == (1, None, None)
    json.dumps(result, allow_nan=False)


def test_case_16_and_18() -> None:
    """A bare NaN is never the best; the best depends on the metric that is asked for."""
    nan = replay(CASES / "16-trainer-state-bare-nan", "eval_loss", 5)
    assert (nan["triggered"], nan["best_step"], nan["best_value"]) == (False, 100, 0.81)
    rows = CASES / "18-hf-log-history-rows"
    assert (replay(rows, "loss", 5)["best_step"], replay(rows, "accuracy", 5)["best_step"]) == (300, 200)


def test_several_runs_have_to_be_named() -> None:
    """Case 23: the folders of two Lightning runs hold val_loss."""
    root = CASES / "23-lightning-metrics-csv" / "lightning_logs"
    several = replay(root, "val_loss", 1)
    assert not several["ok"] and "version_1:val_loss" in several["error"]
    one = replay(root, "version_1:val_loss", 1)
    assert (one["ok"], one["triggered"], one["best_step"], one["best_value"]) == (True, False, 199, 0.81)


def test_run_directory_tells_the_phase() -> None:
    """Keras: train/ and validation/ hold the same tag."""
    keys = [("train", "epoch_loss"), ("validation", "epoch_loss")]
    assert find_series("val_loss", keys) == find_series("loss", keys) == [("validation", "epoch_loss")]
    assert find_series("train/loss", keys) == [("train", "epoch_loss")]


def test_missing_metric_and_path(tmp_path: Path) -> None:
    """Not ok, and what there is instead."""
    result = replay(jsonl(tmp_path / "m.jsonl", VALUES), "eval_accuracy", 2)
    assert (result["ok"], result["triggered"], result["keys"]) == (False, False, ["eval_loss", "loss"])
    assert "eval_accuracy" in result["error"]
    assert not replay(tmp_path / "absent", "eval_loss", 2)["ok"]


@pytest.mark.parametrize(("patience", "min_delta"), [(0, 0.0), (1, -1.0)])
def test_senseless_settings_are_refused(tmp_path: Path, patience: int, min_delta: float) -> None:
    """A usage error."""
    with pytest.raises(ConfigError):
        replay(tmp_path, "loss", patience, min_delta=min_delta)


@pytest.mark.parametrize(
    ("words", "code", "ok"),
    [
        (["--early-stop-metric", "eval_loss", "--early-stop-patience", "2"], 0, True),
        (["--early-stop-metric", "eval_lossless_ratio", "--early-stop-patience", "2"], 2, False),
        (["--early-stop-metric", "eval_loss", "--early-stop-mode", "max", "--early-stop-min-delta", "0.1"], 0, True),
        (["--early-stop-metric", "eval_f1"], 1, False),
        (["--early-stop-metric", "loss", "--early-stop-min-delta", "nan"], 2, False),
    ],
)
def test_command_line(tmp_path: Path, words: list[str], code: int, ok: bool) -> None:
    """Exit codes: 0, 1 for a missing metric, 2 where --early-stop-mode has to be given."""
    path = jsonl(tmp_path / "m.jsonl", VALUES)
    run = subprocess.run([sys.executable, "-m", "harness", "replay", str(path), *words], capture_output=True, text=True)
    result = json.loads(run.stdout)
    assert (run.returncode, result["ok"]) == (code, ok)
    if "lossless" in words[1]:
        assert "--early-stop-mode" in result["error"]
