"""`compare`: two runs point by point; each hole that peers' comparisons have is a test of ours."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.cli import main
from harness.metrics.compare import compare_series
from tests.unit.run_dirs import RunDir
from tests.unit.test_verify import journaled

RUN = RunDir()
TAGS = ["train/grad_norm", "train/loss", "train/lr"]


def compared(place: Path, capsys: pytest.CaptureFixture[str], a: RunDir, b: RunDir, *flags: str) -> dict[str, Any]:
    """The document of two made runs; its exit code agrees with `ok`."""
    code = main(["compare", str(a.write(place / "a")), str(b.write(place / "b")), *flags])
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert code == (0 if document["ok"] else 1)
    return document


def test_equal_runs_are_equal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every series, point by point, exactly."""
    found = compared(tmp_path, capsys, RUN, RUN)
    assert (found["ok"], found["compared"], found["environment"]) == (True, TAGS, [])
    assert found["series"]["train/loss"]["points"] == 10 and found["series"]["train/loss"]["exact"]


def test_first_divergence_names_step_metric_and_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The earliest step of all metrics, with both values."""
    other = replace(RUN, loss=(*RUN.loss[:6], 0.5, *RUN.loss[7:]), lr=(*RUN.lr[:8], 0.2, 0.2))
    first = compared(tmp_path, capsys, RUN, other)["first"]
    assert (first["tag"], first["step"], first["actual"]) == ("train/loss", 7, 0.5)
    assert math.isclose(first["abs_error"], 0.5 - 3 / 7, rel_tol=1e-6, abs_tol=1e-6) or first["abs_error"] > 0


def test_tolerances(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Relative and absolute; without any the comparison is exact."""
    other = replace(RUN, loss=tuple(value * 1.001 for value in RUN.loss))
    assert not compared(tmp_path / "1", capsys, RUN, other)["ok"]
    assert compared(tmp_path / "2", capsys, RUN, other, "--rtol", "0.01")["ok"]
    assert compared(tmp_path / "3", capsys, RUN, other, "--atol", "0.01")["ok"]


NAN = (math.nan,) * 10
HOLES: dict[str, tuple[RunDir, RunDir, tuple[str, ...]]] = {
    "TRL: a trajectory of NaN equals itself": (replace(RUN, loss=NAN), replace(RUN, loss=NAN), ()),
    "pytest-regressions: equal_nan": (
        replace(RUN, loss=(*RUN.loss[:5], math.nan, *RUN.loss[6:])),
        replace(RUN, loss=(*RUN.loss[:5], math.nan, *RUN.loss[6:])), ("--rtol", "0.5")),
    "Megatron: infinite on both sides": (
        replace(RUN, loss=(*RUN.loss[:9], math.inf)), replace(RUN, loss=(*RUN.loss[:9], math.inf)), ()),
    "AReno: a cut-off run, common steps only": (RUN, replace(RUN, loss=RUN.loss[:7]), ("--rtol", "9")),
    "the reference is the shorter one": (replace(RUN, loss=RUN.loss[:7]), RUN, ("--rtol", "9")),
    "a step that is missing in the middle": (
        RUN, replace(RUN, steps=(1, 2, 3, 5, 6, 7, 8, 9, 10, 11)), ("--rtol", "9")),
    "a metric that one run lacks": (RUN, replace(RUN, grad_norm=()), ()),
    "JAX-Toolbox: slower always passes": (
        replace(RUN, extra={"step_time": (1.0,) * 10}), replace(RUN, extra={"step_time": (9.0,) * 10}),
        ("--metric", "step_time", "--rtol", "0.05")),
    "faster passes": (
        replace(RUN, extra={"step_time": (9.0,) * 10}), replace(RUN, extra={"step_time": (1.0,) * 10}),
        ("--metric", "step_time", "--rtol", "0.05")),
    "no series in common": (replace(RUN, loss=(), grad_norm=(), lr=(), extra={"a": (1.0,)}),
                            replace(RUN, loss=(), grad_norm=(), lr=(), extra={"b": (1.0,)}), ()),
    "no series at all": (replace(RUN, loss=(), grad_norm=(), lr=()), replace(RUN, loss=(), grad_norm=(), lr=()), ()),
    "a metric that neither has": (RUN, RUN, ("--metric", "train/los")),
}


@pytest.mark.parametrize("name", HOLES)
def test_holes_of_peers_are_closed(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """None of these is equal."""
    assert not compared(tmp_path, capsys, HOLES[name][0], HOLES[name][1], *HOLES[name][2])["ok"]


def test_series_of_clocks_are_left_out_unless_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two equal runs never take equally long."""
    a, b = (replace(RUN, extra={"time/step": (value,) * 10, "tokens_per_second": (value,) * 10})
            for value in (1.0, 2.0))
    found = compared(tmp_path, capsys, a, b)
    assert (found["ok"], found["left_out"]) == (True, ["time/step", "tokens_per_second"])


def test_more_than_ten_thousand_points_are_all_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """torchtitan's default reader keeps 10,000; the last of 12,000 differs here."""
    long = tuple(1.0 for _ in range(12_000))
    a = replace(RUN, loss=long, grad_norm=(), lr=())
    found = compared(tmp_path, capsys, a, replace(a, loss=(*long[:11_998], 2.0, 1.0)))
    assert found["first"]["step"] == 11_999


def test_differences_of_environment_and_settings_stand_beside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Packages, weights and settings by name."""
    places = [RUN.write(tmp_path / name) for name in "ab"]
    for place, number in zip(places, "12", strict=True):
        journaled(place, "settings", values={"lr": number, "log_dir": number}, files={"entrypoint": number})
        journaled(place, "model", fingerprint=number)
    assert main(["compare", *map(str, places)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [item["what"] for item in found["environment"]] == ["entrypoint", "model"]
    assert {item["key"]: item["kind"] for item in found["settings"]} == {"lr": "semantic", "log_dir": "observability"}


def test_plain_metric_files_are_compared_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without out-dirs there is no environment to tell."""
    for name in "ab":
        (tmp_path / f"{name}.jsonl").write_text("".join(f'{{"step": {s}, "loss": {3 / s}}}\n' for s in range(1, 6)))
    assert main(["compare", str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["compared"], found["environment"]) == (["loss"], None)


@pytest.mark.parametrize("flags", [("--rtol", "nan"), ("--rtol", "-1"), ("--atol", "inf")])
def test_odd_tolerance_is_a_usage_error(flags: tuple[str, str], tmp_path: Path) -> None:
    """A NaN as tolerance would let everything pass, or nothing."""
    place = str(RUN.write(tmp_path))
    assert main(["compare", place, place, *flags]) == 2
    assert main(["compare", place, str(tmp_path / "none")]) == 2


SERIES = st.dictionaries(st.integers(0, 20), st.floats(allow_nan=True, allow_infinity=True), max_size=10)


@given(SERIES, SERIES, st.sampled_from([0.0, 0.1, 10.0]))
def test_comparison_of_any_series(a: dict[int, float], b: dict[int, float], tolerance: float) -> None:
    """Equal only with the same steps, every value finite; a finite series equals itself."""
    found = compare_series(a, b, rtol=tolerance, atol=tolerance)
    if found.first is None and (a or b):
        assert set(a) == set(b) and all(map(math.isfinite, (*a.values(), *b.values())))
    if a and all(map(math.isfinite, a.values())):
        assert compare_series(a, a, rtol=0.0, atol=0.0).exact
