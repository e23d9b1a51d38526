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
from harness.watch.progress import Snapshot, duration, progress_line
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


def test_progress_line_shows_what_is_known(snapshot: SnapshotAssertion) -> None:
    """With and without a total, values and an estimate."""
    full = Snapshot(step=1200, total=10000, values={"loss": 0.34211, "lr": 1e-4, "tokens_per_s": 142.0})
    lines = [progress_line(full, next_report_s=45, eta_s=4980, clock=0.0),
             progress_line(Snapshot(step=3), next_report_s=30, clock=0.0)]
    assert [re.sub(r"\[\d\d:\d\d:\d\d\]", "[HH:MM:SS]", line) for line in lines] == snapshot


@pytest.mark.parametrize(("seconds", "text"), [(0, "0s"), (59.4, "59s"), (250, "4m 10s"), (4980, "1h 23m")])
def test_durations_are_readable(seconds: float, text: str) -> None:
    """The two largest units."""
    assert duration(seconds) == text


def test_clock_does_not_wrap_at_a_day() -> None:
    """A week-long run has 168 hours."""
    assert clock(7 * 86400 + 61) == "168:01:01"
