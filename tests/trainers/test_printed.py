"""Runs whose only metrics are those that they print: read while they run, and proof of nothing but a NaN."""

from __future__ import annotations

import json
import secrets
import shlex
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from harness.client import ensure_run, forget_session
from harness.metrics.command import metrics_report
from harness.spec import RunSpec

LOOP = """
import json, sys, time
for step in range(1, 13):
    print(ROW(step), flush=True)
    time.sleep(PAUSE)
"""
UNTIL_SHOWN = """
for _ in range(1200):
    if "/12 (" in open("out/progress.log").read():
        break
    time.sleep(0.1)
"""
DICT = "lambda s: str({'loss': f'{3 / s:.4g}', 'grad_norm': f'{1 / s:.4g}', 'epoch': f'{s / 12:.4g}', 'step': s})"


def run(place: Path, source: str, **options: Any) -> dict[str, Any]:
    """The report of a program under the supervisor."""
    place.mkdir(parents=True, exist_ok=True)
    (place / "train.py").write_text(textwrap.dedent(source))
    values: dict[str, Any] = {
        "train_cmd": shlex.join([sys.executable, str(place / "train.py")]), "workdir": place, "max_steps": 12,
        "out_dir": place / "out", "run_id": "printed", "session": secrets.token_hex(8), "crash_window_s": 0.2,
        "interval_s": 1.0, "stop_grace_s": 1.0, "drain_grace_s": 1.0, **options}
    spec = RunSpec(**values)
    try:
        ensure_run(spec, lambda _line: None)
    finally:
        forget_session(spec.session)
    report: dict[str, Any] = json.loads((place / "out" / "train-model.json").read_text())
    return report


def codes(report: dict[str, Any]) -> set[str]:
    """The reasons of the decision."""
    return {reason["code"] for reason in report["evidence"]["reasons"]}


def loop(row: str, pause: float = 0.02) -> str:
    """A program that prints a row a step and trains nothing."""
    return LOOP.replace("ROW", f"({row})").replace("PAUSE", str(pause))


def test_printed_rows_alone_are_conditional_and_low(tmp_path: Path) -> None:
    """The series is there, with its own reason; its source is in the report; the target is not proven by it."""
    report = run(tmp_path, loop(DICT))
    assert (report["decision"], report["confidence"]) == ("CONDITIONAL", "low")
    assert {"printed-metrics-only", "updates-unproven"} <= codes(report)
    sources = [(one["kind"], one["path"], one["points"]) for one in report["evidence"]["observed"]["sources"]]
    assert sources == [("stdout", "train.log", 36)]
    assert report["final_metrics"]["loss"] == 0.25
    series = metrics_report(tmp_path / "out", ["loss"], None)["series"]["loss"]
    assert [(point["step"], point["value"]) for point in series] == [(s, float(f"{3 / s:.4g}")) for s in range(1, 13)]
    assert report["total_steps"] in (0, None) and report["evidence"]["observed"]["last_step"] is None


def test_printed_nan_is_no_go(tmp_path: Path) -> None:
    """A NaN that was printed is one."""
    report = run(tmp_path, loop("lambda s: f'step {s}: loss={3 / s if s != 7 else float(\"nan\")}'"))
    assert (report["decision"], "loss-not-finite" in codes(report)) == ("NO-GO", True)


def test_what_is_beside_a_loss_is_none(tmp_path: Path) -> None:
    """`best_loss=inf` before the first evaluation, a rounded learning rate, steps that start again: nothing broken."""
    row = ("lambda s: f'step {s % 6}: loss={3 / s:.3f} best_loss={float(\"inf\") if s < 3 else 1.0} lr=0.0000 "
           "grad_norm=0.0'")
    report = run(tmp_path, loop(row))
    assert (report["decision"], report["evidence"]["outcome"]) == ("CONDITIONAL", "unproven"), codes(report)


def test_better_source_wins_whatever_is_printed(tmp_path: Path) -> None:
    """Other values, a NaN and more rows on stdout than in the metric file under another name of the tag."""
    source = """
    import json, pathlib, time
    pathlib.Path("logs").mkdir()
    with open("logs/metrics.jsonl", "w") as file:
        for step in range(1, 13):
            print(f"step {step}: loss={float('nan') if step == 7 else 9.0} tokens_per_second=5.5", flush=True)
            print(f"step {step}: loss=8.0", flush=True)
            print(json.dumps({"step": step, "train/loss": 3 / step}), file=file, flush=True)
            time.sleep(0.02)
    """
    report = run(tmp_path, source)
    assert "loss-not-finite" not in codes(report) and "printed-metrics-only" not in codes(report)
    assert report["final_metrics"] == {"train/loss": 0.25, "tokens_per_second": 5.5}
    keys = metrics_report(tmp_path / "out", [], None)["keys"]
    assert keys == ["tokens_per_second", "train/loss"]


def test_progress_and_values_are_seen_while_it_runs(tmp_path: Path) -> None:
    """Progress lines follow a bar, whose rows are metrics: the step and the total are the bar's."""
    bar = "lambda s: '\\r {:3d}%|####      | {}/12 [00:01<00:01, 2.00it/s]'.format(s * 8, s)"
    report = run(tmp_path, loop(bar, 0.1) + UNTIL_SHOWN, max_steps=None)
    lines = (tmp_path / "out" / "progress.log").read_text()
    assert "/12 (" in lines and "Step " in lines
    assert report["final_metrics"] == {} and "no-metric-points" in codes(report)


def test_early_stop_on_a_printed_evaluation(tmp_path: Path) -> None:
    """Where nothing else holds the metric, what is printed stops the run before its end."""
    source = """
    import time
    for step in range(1, 400):
        print({"eval_loss": f"{1.0 if step < 3 else 2.0}", "epoch": step / 10, "step": step}, flush=True)
        time.sleep(0.1)
    """
    report = run(tmp_path, source, early_stop_metric="eval_loss", early_stop_patience=3, max_steps=400)
    assert (tmp_path / "out" / "train.log").read_text().count("eval_loss") < 399
    assert report["early_stopping"]["triggered"] and report["early_stopping"]["triggered_at_step"] == 4 + 0
    assert report["terminal_state"] == "EARLY_STOPPED"


@pytest.mark.parametrize("secret", ["hunter2hunter2"])
def test_printed_secret_stays_out_of_the_store(tmp_path: Path, secret: str) -> None:
    """A tag that holds a secret is masked in train.log already."""
    place = tmp_path
    report = run(place, loop(f"lambda s: 'step=%d {secret}_loss=%f loss=1.0' % (s, s)"),
                 train_cmd=shlex.join(["env", f"MY_API_KEY={secret}", sys.executable, str(place / "train.py")]))
    assert secret not in json.dumps(report)
    assert secret.encode() not in (place / "out" / "metrics.db").read_bytes()
