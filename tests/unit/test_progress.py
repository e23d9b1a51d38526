"""What a user sees while the run goes on, and how often."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from harness.watch.pace import Pace
from harness.watch.progress import (
    ProgressWriter,
    Snapshot,
    duration,
    is_progress,
    pick_rate,
    progress_line,
    shown,
)
from harness.watch.usage import GpuUse, Usage, UsageMeter, gpu_use

GPU = GpuUse(count=1, percent=94.0, used_bytes=int(18.2 * 2**30), total_bytes=24 * 2**30)
VALUES = {"loss": 0.342, "lr": 1e-4, "grad_norm": 0.8}
SNAPSHOTS = {
    "the documented line": (Snapshot(step=1200, total=10000, values=VALUES, rate=(142.0, "samples/s"),
                                     usage=Usage(gpu=GPU)), 45.0, 8800 / 4980),
    "without a GPU": (Snapshot(step=1200, total=10000, values=VALUES, rate=(13421.7, "tokens/s"), usage=Usage(
        cpu_percent=312.4, memory_bytes=4_100_000_000, read_bytes_per_s=12.1e6, write_bytes_per_s=3e5)), 30.0, 2.0),
    "eight GPUs": (Snapshot(step=1, usage=Usage(gpu=GpuUse(
        count=8, percent=None, used_bytes=160 * 2**30, total_bytes=640 * 2**30))), 300.0, None),
    "a step alone": (Snapshot(step=3), 30.0, None),
    "no total": (Snapshot(step=3, values={"loss": math.nan}), 30.0, 0.25),
}


def without_time(lines: Sequence[str]) -> list[str]:
    """Lines with their clock replaced."""
    return [re.sub(r"\[\d\d:\d\d:\d\d\]", "[HH:MM:SS]", line) for line in lines]


def test_progress_lines_show_what_is_known(snapshot: SnapshotAssertion) -> None:
    """With and without a total, a GPU, a speed, an estimate."""
    lines = {name: without_time([progress_line(seen, next_report_s=due, steps_per_s=rate)])[0]
             for name, (seen, due, rate) in SNAPSHOTS.items()}
    assert lines == snapshot
    assert all(is_progress(line.replace("HH:MM:SS", "01:02:03")) for line in lines.values())


def test_documented_line_is_met_exactly() -> None:
    """Character by character."""
    seen, due, rate = SNAPSHOTS["the documented line"]
    line, = without_time([progress_line(seen, next_report_s=due, steps_per_s=rate)])
    assert line == ("[HH:MM:SS] Step 1200/10000 (12%) | loss=0.342 | lr=1e-4 | grad_norm=0.8 | 142 samples/s | "
                    "GPU 94% 18.2/24 GB | ETA 1h 23m | next report in 45s")


def series(writer: ProgressWriter, points: Sequence[tuple[float, int, float]]) -> None:
    """Feed (age, step, loss)."""
    for age, step, loss in points:
        writer.report(lambda step=step, loss=loss: Snapshot(step=step, total=1000, values={"loss": loss}), age)


def test_every_fifth_report_is_summed_up(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """Eleven reports, a loss that jumps once: two summaries among them."""
    writer = ProgressWriter(tmp_path / "progress.log", Pace(interval_s=10, backoff=False))
    series(writer, [(10.0 * n, 20 * n, 1.0 if n < 7 else 0.5) for n in range(12)])
    writer.close()
    assert without_time((tmp_path / "progress.log").read_text().splitlines()) == snapshot


def test_reports_become_rarer_up_to_the_maximum(tmp_path: Path) -> None:
    """30, 45, 67.5 ... 300 seconds apart; the line says which."""
    writer = ProgressWriter(tmp_path / "progress.log", Pace(interval_s=30, max_interval_s=300))
    series(writer, [(float(age), age, 1.0) for age in range(2000)])
    writer.close()
    told = re.findall(r"next report in (\d+)s", (tmp_path / "progress.log").read_text())
    assert told == ["30", "45", "68", "102", "152", "228", "300", "300", "300", "300", "300"]


def test_without_backoff_the_interval_stays(tmp_path: Path) -> None:
    """--no-backoff."""
    writer = ProgressWriter(tmp_path / "progress.log", Pace(interval_s=30, max_interval_s=300, backoff=False))
    series(writer, [(float(age), age, 1.0) for age in range(301)])
    writer.close()
    assert (tmp_path / "progress.log").read_text().count("next report in 30s") == 11


def uneventful(pace: Pace, reports: int) -> float:
    """Make so many reports of a run in which nothing happens; the age at the last one."""
    age = 0.0
    for _ in range(reports):
        while not pace.is_due(age):
            age += 1
        pace.observe(loss=1.0, epoch=1.0, stage="train")
        pace.reported(age)
    return age


EVENTS = {
    "a loss that fell by more than 5%": ({"loss": 0.94, "epoch": 1.2, "stage": "train"}, True),
    "a loss that rose by more than 5%": ({"loss": 1.06, "epoch": 1.2, "stage": "train"}, True),
    "a loss that is NaN": ({"loss": math.nan, "epoch": 1.2, "stage": "train"}, True),
    "a new epoch": ({"loss": 1.0, "epoch": 2.0, "stage": "train"}, True),
    "a new stage": ({"loss": 1.0, "epoch": 1.2, "stage": "eval train"}, True),
    "less than 5%": ({"loss": 0.96, "epoch": 1.9, "stage": "train"}, False),
    "nothing known": ({"loss": None, "epoch": None, "stage": ""}, False),
}


@pytest.mark.parametrize("name", EVENTS)
def test_events_reset_the_interval(name: str) -> None:
    """And what is none lets it grow."""
    pace = Pace(interval_s=30, max_interval_s=300)
    age = uneventful(pace, 4)
    assert pace.interval_s == pytest.approx(30 * 1.5**3)
    shown_now, is_event = EVENTS[name]
    pace.observe(**shown_now)  # type: ignore[arg-type]
    told = pace.reported(age + 200)
    assert bool(told) is is_event
    assert pace.interval_s == (30 if is_event else pytest.approx(30 * 1.5**4))


def test_anomaly_brings_the_next_report_forward() -> None:
    """It is due as if the interval had never grown: at once, where that time is over."""
    pace = Pace(interval_s=30, max_interval_s=300)
    age = uneventful(pace, 8)
    assert not pace.is_due(age + 100)
    pace.eventful("nan-inf")
    assert pace.is_due(age + 30)
    assert not pace.is_due(age + 29)
    assert pace.reported(age + 30) == ["nan-inf"]
    assert pace.interval_s == 30


@given(st.lists(st.tuples(st.floats(0, 100), st.booleans()), max_size=60), st.floats(0.1, 100), st.floats(0.1, 1000))
def test_interval_stays_between_its_bounds(course: list[tuple[float, bool]], least: float, most: float) -> None:
    """Whatever happens, a report is never further away than the larger of both."""
    pace, age = Pace(interval_s=least, max_interval_s=most), 0.0
    for passed, happens in course:
        age += passed
        if happens:
            pace.eventful("x")
        if pace.is_due(age):
            pace.reported(age)
        assert least <= pace.interval_s <= max(least, most)
        assert pace.is_due(age + max(least, most))


@given(st.floats(-1e300, 1e300) | st.just(math.nan))
def test_numbers_are_shown_and_read_back(value: float) -> None:
    """In four digits; no exponent with a zero in front, no plus."""
    text = shown(value)
    assert math.isnan(value) or float(text) == pytest.approx(value, rel=1e-3)
    assert not re.search(r"e-0", text)


@pytest.mark.parametrize(("tag", "told"), [
    ("train/tokens_per_s", "5 tokens/s"), ("train/samples_per_second", "5 samples/s"), ("tokens_per_sec", "5 tokens/s"),
    ("perf/examples/sec", "5 samples/s"), ("seqs_per_s", "5 samples/s"), ("steps_per_second", None), ("tokens", None),
    ("tokens_per_step", None),
])
def test_speed_is_told_by_its_tag(tag: str, told: str | None) -> None:
    """In the trainer's own unit."""
    rate = pick_rate({tag: 5.0})
    assert (None if rate is None else f"{rate[0]:g} {rate[1]}") == told


@pytest.mark.parametrize(("seconds", "text"), [(0, "0s"), (59.4, "59s"), (250, "4m 10s"), (4980, "1h 23m")])
def test_durations_are_readable(seconds: float, text: str) -> None:
    """The two largest units."""
    assert duration(seconds) == text


def test_usage_of_a_real_process_tree(tmp_path: Path) -> None:
    """A child that computes, holds 200 MB and writes 50 MB, below a shell that waits: all of it is seen."""
    work = ("import os, sys; held = b'x' * (200 << 20)\nf = open(sys.argv[1], 'wb')\n"
            "for _ in range(50): f.write(os.urandom(1 << 20))\nf.flush(); os.fsync(f.fileno())\n"
            "print('written', flush=True)\nwhile True: pass")
    child = subprocess.Popen([sys.executable, "-c", work, str(tmp_path / "written")], stdout=subprocess.PIPE)
    assert child.stdout is not None
    meter = UsageMeter(lambda: {child.pid, 2**22 + 1}, os.environ)
    try:
        first = meter.look()
        child.stdout.readline()
        until = psutil.Process(child.pid).cpu_times().user + 0.5
        while psutil.Process(child.pid).cpu_times().user < until:
            time.sleep(0.05)
        second = meter.look()
    finally:
        child.kill()
        child.communicate()
    assert first.cpu_percent is None
    assert second.cpu_percent is not None and 0 < second.cpu_percent < 130
    assert second.memory_bytes is not None and second.memory_bytes > 200 << 20
    assert second.write_bytes_per_s is not None
    assert meter.look().memory_bytes is None


def test_devices_are_summed_up() -> None:
    """Mean utilisation, sums of memory; a device that tells nothing is left out."""
    one = {"memory_total_bytes": 100, "memory_used_bytes": 40, "utilisation_percent": 50}
    two = {"memory_total_bytes": 100, "memory_used_bytes": None, "utilisation_percent": None}
    odd = {"memory_total_bytes": None, "memory_used_bytes": None}
    assert gpu_use([one, two, odd]) == GpuUse(count=2, percent=50.0, used_bytes=40, total_bytes=200)
    assert gpu_use([odd]) is None
