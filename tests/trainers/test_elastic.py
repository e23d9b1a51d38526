"""Workers that torch elastic starts again within one launch: attempts of the run like any other."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from harness.client import ensure_run
from harness.record.store import MetricStore
from harness.spec import RunSpec

PROGRAM = Path(__file__).parent / "programs" / "elastic.py"


def test_restart_by_torchrun_is_an_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank raises once at step 13 of 20, the workers resume at step 10: GO, medium, two attempts, one series."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
             "--max-restarts", "1", str(PROGRAM), "--log-dir", "events"]
    spec = RunSpec(train_cmd=shlex.join(words), out_dir=tmp_path / "out", run_id="elastic", workdir=tmp_path,
                   metrics_dir=tmp_path / "events", max_steps=20)
    out_dir = ensure_run(spec, lambda line: None)
    report = json.loads((out_dir / "train-model.json").read_text())
    assert (report["decision"], report["confidence"], report["total_steps"]) == ("GO", "medium", 20), report["summary"]
    first, second = report["evidence"]["attempts"]
    assert (first["terminal_state"], first["cause"], first["exit_code"]) == (
        "FAILED", "workers failed, and torch elastic started them again", None)
    assert (second["terminal_state"], second["reason"], second["exit_code"], second["resumed_from_step"]) == (
        "SUCCEEDED", "restarted by torch elastic", 0, 10)
    assert first["started_at"] < first["ended_at"] <= second["started_at"] < second["ended_at"]
    observed = report["evidence"]["observed"]
    assert {item["kind"]: item["updates"] for item in observed["witnesses"]} == {"metrics": None, "probe": 20}
    (restarts,) = (check for gate in report["evidence"]["gates"] for check in gate["checks"]
                   if check["name"] == "restarts")
    assert (restarts["status"], restarts["observed"]) == (
        "passed", "attempt 1 from step 1, no end; attempt 2 from step 11, exit code 0")
    with MetricStore.open(out_dir / "metrics.db") as store:
        assert [point.step for point in store.series("train/loss")] == list(range(1, 21))
        assert len({source.writer for source in store.sources() if source.kind == "tensorboard"}) == 2
    (crash,) = json.loads((out_dir / "babysit-training.json").read_text())["anomalies_detected"]
    assert (crash["type"], crash["action_taken"].startswith("recorded; recovered")) == ("crash", True)
