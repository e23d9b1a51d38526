"""What a person reads at the end."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from harness.judge.report import build_report
from harness.judge.summary import clock, render_summary
from tests.unit.run_dirs import RunDir

RUNS = {
    "go": RunDir(),
    "nan": RunDir(loss=(3.0, math.nan, *((1.0,) * 8))),
    "unproven": RunDir(probe=None),
    "cancelled": RunDir(exit_code=143, stop_reason="cancelled", loss=(3.0, 2.0), grad_norm=(1.0, 1.0), lr=(0.1, 0.1),
                        probe={"steps": 2, "optimizers_created": 1, "lr_positive_steps": 2, "clean_exit": True,
                               "grad": {"checked": 2, "nonzero": 2}}),
    "never-updated": replace(RunDir(), probe={"steps": 0, "optimizers_created": 1, "grad": {}}),
}


@pytest.mark.parametrize("name", RUNS)
def test_summary_of_a_run(name: str, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """Heading, fields in order, reasons with remedies, the path of the evidence."""
    report = build_report(RUNS[name].write(tmp_path))
    text = render_summary(report, Path("reports/train-run"))
    assert re.sub(re.escape(str(tmp_path)), "OUT", text) == snapshot


def test_clock_does_not_wrap_at_a_day() -> None:
    """A week-long run has 168 hours."""
    assert clock(7 * 86400 + 61) == "168:01:01"


@pytest.mark.parametrize("event", ["attempt-started", "none"])
def test_heading_of_a_run_that_never_began(event: str, tmp_path: Path) -> None:
    """What was refused before its launch has not trained."""
    out_dir = RUNS["go"].write(tmp_path)
    report = build_report(out_dir)
    if event == "none":
        report["evidence"]["attempts"] = []
    heading = render_summary(report, out_dir).splitlines()[0]
    assert heading == ("Training Complete" if event == "attempt-started" else "Training Not Started")


def test_cap_that_ended_the_run_is_named(tmp_path: Path) -> None:
    """And only one that did."""
    report = build_report(RUNS["go"].write(tmp_path))
    assert "cap" not in render_summary(report, Path("out"))
    report["evidence"]["command"]["stopped_by"] = "cap"
    assert "Terminal state: SUCCEEDED (stopped at the cap by the harness)" in render_summary(report, Path("out"))


def test_one_reason_of_two_checks_stands_once(tmp_path: Path) -> None:
    """With both checks, what each saw, and one remedy."""
    report = build_report(RunDir(loss=(), grad_norm=(), lr=()).write(tmp_path))
    found = [reason for reason in report["evidence"]["reasons"] if reason["code"] == "no-metric-points"]
    text = render_summary(report, tmp_path)
    assert len(found) == 2 and text.count("- no-metric-points (") == 1 == text.count(found[0]["remedy"])
    assert "real_step.fresh, real_step.minimum_evidence" in text


def test_end_that_nobody_saw_is_no_cancellation(tmp_path: Path) -> None:
    """A run that still went on when it was last looked at: the state's word is not left alone."""
    report = build_report(RUNS["cancelled"].write(tmp_path / "a"))
    assert "(its end" not in render_summary(report, tmp_path) and "CANCELLED" in report["summary"]
    out_dir = RUNS["go"].write(tmp_path / "b")
    journal = out_dir / "journal.jsonl"
    kept = [line for line in journal.read_text().splitlines() if '"attempt-ended"' not in line]
    journal.write_text("\n".join(kept) + "\n")
    report = build_report(out_dir)
    assert "end not seen" in report["summary"], report["summary"]
    assert "(its end was not seen)" in render_summary(report, out_dir)
