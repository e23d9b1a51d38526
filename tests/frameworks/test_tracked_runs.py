"""Runs whose only log is a tracker's local store, written by W&B's and MLflow's own code under the harness."""

from __future__ import annotations

import json
import math
import shlex
import sys
from pathlib import Path

import pytest

from harness.client import ensure_run
from harness.record.store import MetricStore
from harness.spec import RunSpec

PROGRAM = Path(__file__).parent / "programs" / "torch_tracked.py"
TRACKERS: dict[str, tuple[str, dict[str, str]]] = {
    "wandb": ("wandb", {"WANDB_MODE": "offline", "WANDB_SILENT": "true"}),
    "mlflow-files": ("mlflow", {"MLFLOW_TRACKING_URI": "file:./mlruns", "MLFLOW_ALLOW_FILE_STORE": "true"}),
    "mlflow-database": ("mlflow", {"MLFLOW_TRACKING_URI": "sqlite:///mlflow.db"}),
}
KINDS = {"wandb": "wandb", "mlflow-files": "mlflow", "mlflow-database": "mlflow"}


def judged(name: str, place: Path, monkeypatch: pytest.MonkeyPatch, *flags: str) -> Path:
    """Run the program under the supervisor; its out-dir."""
    tracker, environment = TRACKERS[name]
    for key, value in {**environment, "GIT_PYTHON_REFRESH": "quiet"}.items():
        monkeypatch.setenv(key, value)
    words = [sys.executable, str(PROGRAM), "--tracker", tracker, *flags]
    spec = RunSpec(train_cmd=shlex.join(words), out_dir=place / "out", run_id=name, workdir=place)
    return ensure_run(spec, lambda line: None)


@pytest.mark.parametrize("name", TRACKERS)
def test_tracked_run_ends_with_go(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GO, and the series are those that the program logged, value by value."""
    out_dir = judged(name, tmp_path, monkeypatch)
    report = json.loads((out_dir / "train-model.json").read_text())
    assert (report["decision"], report["confidence"], report["total_steps"]) == ("GO", "high", 20), report["summary"]
    truth = json.loads((tmp_path / "truth.json").read_text())
    with MetricStore.open(out_dir / "metrics.db") as store:
        for tag in ("train/loss", "train/grad_norm", "train/lr", "eval/loss"):
            series = {point.step: point.value for point in store.series(tag)}
            assert series == {row["step"]: pytest.approx(row[tag]) for row in truth if tag in row}, tag
        assert {source.kind for source in store.sources() if source.fresh_points} == {KINDS[name]}
    assert report["final_metrics"]["eval/loss"] == pytest.approx(truth[-1]["eval/loss"])
    assert json.loads((out_dir / "babysit-training.json").read_text())["anomalies_detected"] == []


def test_nan_in_a_trackers_store_is_no_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program goes on to its end and exits 0; W&B holds the NaN."""
    out_dir = judged("wandb", tmp_path, monkeypatch, "--nan-from-step", "12")
    report = json.loads((out_dir / "train-model.json").read_text())
    assert (report["decision"], report["evidence"]["outcome"]) == ("NO-GO", "broken")
    assert "loss-not-finite" in {reason["code"] for reason in report["evidence"]["reasons"]}
    with MetricStore.open(out_dir / "metrics.db") as store:
        bad = [point.step for point in store.series("train/loss") if not math.isfinite(point.value)]
    assert bad == list(range(12, 21))
    told = json.loads((out_dir / "babysit-training.json").read_text())["anomalies_detected"]
    assert [(item["step"], item["type"], item["severity"]) for item in told] == [
        (12, "nan-inf", "high"), (15, "nan-inf", "high")], "of the training and of the evaluation"
