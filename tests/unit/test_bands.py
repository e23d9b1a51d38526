"""Reference bands: what --expect says, in both directions, and a baseline that is made of good runs only."""

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
from harness.errors import ConfigError
from harness.judge.bands import Band, Target, parse_band, parse_target
from harness.judge.bands_file import read_bands
from harness.judge.report import build_report
from harness.spec import RunSpec
from tests.unit.run_dirs import RunDir
from tests.unit.test_verify import journaled

RATE = tuple(1000.0 + step for step in range(10))
RUN = RunDir(extra={"tokens_per_s": RATE, "eval_loss": (3.0, 2.0, 1.5, 1.6, 1.7, 1.8, 1.9, 2.0, 2.1, 2.2)})


@pytest.mark.parametrize(("text", "target", "limits"), [
    ("train/loss@100<=2.4", Target(tag="train/loss", function="at", step=100), "<= 2.4"),
    (" last( train/loss ) < 1e-3 ", Target(tag="train/loss", function="last"), "< 0.001"),
    ("median(tokens_per_s[50:])>=1200", Target(tag="tokens_per_s", function="median", start=50), ">= 1200"),
    ("mean(a.b-c[:20]) > -.5", Target(tag="a.b-c", function="mean", stop=20), "> -0.5"),
    ("max(grad_norm)<=10", Target(tag="grad_norm", function="max"), "<= 10"),
    ("best(eval_loss)<=2", Target(tag="eval_loss", function="best"), "<= 2"),
    ("'train loss (smooth)'@5<=1", Target(tag="train loss (smooth)", function="at", step=5), "<= 1"),
    ("peak_memory<=16GiB", Target(tag="peak_memory", function="meter"), "<= 17179869184 bytes"),
    ("peak_gpu_memory < 80 GB", Target(tag="peak_gpu_memory", function="meter"), "< 80000000000 bytes"),
    ("run-1:loss@3>=0", Target(tag="run-1:loss", function="at", step=3), ">= 0"),
])
def test_expressions(text: str, target: Target, limits: str) -> None:
    """A point, the last, the best, a window, a meter; each is written again as it was read."""
    band = parse_band(text)
    assert (band.target, band.limits) == (target, limits)
    assert parse_target(target.text) == target
    assert Band.from_json(json.loads(json.dumps(band.to_json()))) == band


@pytest.mark.parametrize(("text", "column", "says"), [
    ("", 1, "what is measured"), ("train/loss<=2", 11, "which point"), ("train/loss@x<=2", 12, "no step"),
    ("train/loss@5", 13, "a comparison"), ("train/loss@5<=", 15, "a number"), ("train/loss@5<=nan", 15, "finite"),
    ("train/loss@5<=1e999", 15, "finite"), ("train/loss@5<=2 3", 17, "unit"), ("train/loss@5<=2<=3", 16, "ended"),
    ("loss[5:]<=2", 5, "needs a function"), ("median(loss[5])<=2", 13, "START:STOP"),
    ("mode(loss)<=2", 1, "not one of"),
    ("median(loss[9:5])<=2", 13, "no step is"), ("last(loss[5:])<=2", 10, "no window"), ("best(foo)<=2", 6, "improves"),
    ("median(loss<=2", 12, "')'"), ("a@1 == 2", 5, "not a sign"), ("''@1<=2", 1, "no name"), ("x" * 600, 0, "longer"),
    ("__import__('os')<=1", 1, "not one of"), ("a@1<=5parsecs", 6, "no unit"), ("median(loss@5)<=1", 12, "one step"),
])
def test_odd_expression_is_refused_with_its_column(text: str, column: int, says: str) -> None:
    """What is wrong and where it stands."""
    with pytest.raises(ConfigError) as caught:
        parse_band(text)
    assert says in str(caught.value)
    assert not column or f"column {column}:" in str(caught.value)


@given(st.text(max_size=60) | st.text("abl/_@()[]:<>=0123456789. '\"", max_size=60))
def test_any_text_is_a_band_or_a_usage_error(text: str) -> None:
    """Nothing else is raised, and what is read is written and read again as the same."""
    try:
        band = parse_band(text)
    except ConfigError:
        return
    assert Band.from_json(band.to_json()) == band
    assert (band.lower is None) != (band.upper is None)


def judged(run: RunDir, place: Path, *texts: str) -> dict[str, Any]:
    """The report of a made run with these expectations."""
    bands = tuple(band.to_json() for band in read_bands(texts, place))
    where = replace(run, spec={**run.spec, "expect": bands}).write(place)
    journaled(where, "usage", peak_memory_bytes=1 << 30, peak_gpu_memory_bytes=None, looks=3)
    return build_report(where)


def test_run_inside_its_bands_is_go(tmp_path: Path) -> None:
    """Every function over real points, a meter, another spelling of an evaluation."""
    report = judged(RUN, tmp_path, "train/loss@10<=0.31", "last(train/loss)<0.31", "best(eval_loss)<=1.5",
                    "best(val/loss)<=1.5", "median(tokens_per_s[5:])>=1004", "mean(tokens_per_s[1:11])>=1004",
                    "min(train/lr)>=0.1", "max(train/grad_norm[2:5])<=1", "peak_memory<=1GiB")
    assert (report["decision"], report["evidence"]["reasons"]) == ("GO", [])
    told = report["evidence"]["expectations"]
    assert [item["reason"] for item in told] == [None] * 9 and told[2]["observed"] == 1.5


@pytest.mark.parametrize(("text", "code"), [
    ("train/loss@10<=0.29", "expect-out-of-band"), ("last(train/loss)<0.3", "expect-out-of-band"),
    ("median(tokens_per_s[5:])>=1200", "expect-out-of-band"), ("median(tokens_per_s[5:])<=1000", "expect-out-of-band"),
    ("train/los@10<=9", "expect-metric-missing"), ("train/loss@11<=9", "expect-metric-missing"),
    ("peak_gpu_memory<=1GB", "expect-metric-missing"), ("median(tokens_per_s[9:])>=1", "expect-too-few-points"),
    ("median(tokens_per_s[5:100])>=1", "expect-too-few-points"),
    ("mean(tokens_per_s[50:])>=1", "expect-too-few-points"),
    ("max(odd)<=9", "expect-not-finite"), ("odd@3<=9", "expect-not-finite"), ("last(ends)<=9", "expect-not-finite"),
    ("min(odd[1:5])>=-9", "expect-not-finite"),
])
def test_missing_nan_few_and_outside_each_have_their_reason(text: str, code: str, tmp_path: Path) -> None:
    """An otherwise healthy run is NO-GO by this check alone."""
    run = replace(RUN, extra={**RUN.extra, "odd": (1.0, 1.0, math.nan, *(1.0,) * 7), "ends": (*(1.0,) * 9, math.inf)})
    report = judged(run, tmp_path, text)
    assert report["decision"] == "NO-GO"
    assert {(reason["check"], reason["code"]) for reason in report["evidence"]["reasons"]} == {("expectations", code)}


TOML = """
[provenance]
command = "python train.py"
commit = "abc"
host = "here"
date = "2026-01-01"

[[band]]
expect = "train/loss@10"
value = 0.3
lower = 0.29
upper = 0.31

[[band]]
expect = "median(tokens_per_s[5:])"
lower = 1000
unit = "tokens/s"
points = 4
"""


def test_file_of_bands(tmp_path: Path) -> None:
    """Values, limits, unit and provenance come into the evidence."""
    (tmp_path / "bands.toml").write_text(TOML)
    report = judged(RUN, tmp_path / "run", str(tmp_path / "bands.toml"))
    told = report["evidence"]["expectations"]
    assert (report["decision"], told[0]["provenance"]["commit"], told[1]["unit"]) == ("GO", "abc", "tokens/s")


@pytest.mark.parametrize(("old", "new", "says"), [
    ("upper = 0.31", "uper = 0.31", "did you mean upper?"), ("value = 0.3", "value = 0.5", "value 0.5 is not"),
    ("lower = 1000", "", "neither lower nor upper"), ("lower = 0.29", "lower = nan", "no finite number"),
    ("lower = 0.29", "lower = 0.4", "above upper"), ("points = 4", "points = 0", "no count"),
    ('expect = "train/loss@10"', 'expect = "train/loss"', "which point"),
    ("[[band]]", "[[bands]]", "did you mean band?"),
    ("upper = 0.31", "upper = ", "not TOML"), ('commit = "abc"', 'comit = "abc"', "did you mean commit?"),
])
def test_odd_file_is_refused(old: str, new: str, says: str, tmp_path: Path) -> None:
    """Unknown keys by the nearest known one, numbers that contradict each other, no TOML at all."""
    (tmp_path / "bands.toml").write_text(TOML.replace(old, new))
    with pytest.raises(ConfigError, match=r"bands\.toml") as caught:
        read_bands(["bands.toml"], tmp_path)
    assert says in str(caught.value)


def test_bands_survive_the_run_spec(tmp_path: Path) -> None:
    """They reach the supervisor as JSON."""
    bands = tuple(band.to_json() for band in read_bands(["a@1<=2"], tmp_path))
    spec = RunSpec(train_cmd="x", out_dir=tmp_path, workdir=tmp_path, run_id="r", expect=bands)
    assert RunSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec


# -- baseline


def baseline(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    """`python -m harness baseline`: exit code and document."""
    code = main(["baseline", *words])
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return code, document


def made(place: Path, factor: float = 1.0, **more: Any) -> str:
    """A run whose losses are scaled."""
    run = replace(RUN, loss=tuple(value * factor for value in RUN.loss), **more).write(place)
    journaled(run, "usage", peak_memory_bytes=int(1000 * factor), peak_gpu_memory_bytes=None, looks=1)
    return str(run)


def test_baseline_of_several_runs_has_tolerances(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its own runs lie inside, a run outside their noise does not, and the file says where it is from."""
    runs = [made(tmp_path / name, factor) for name, factor in (("a", 1.0), ("b", 1.01), ("c", 0.99))]
    out = tmp_path / "bands.toml"
    code, document = baseline(capsys, *runs, "--out", str(out))
    assert (code, document["tolerances"]) == (0, True)
    assert {band["expect"] for band in document["bands"]} == {
        "train/loss@10", "best(eval_loss)", "median(tokens_per_s[5:])", "peak_memory"}
    for factor, decision in ((1.0, "GO"), (1.01, "GO"), (1.2, "NO-GO"), (0.8, "NO-GO")):
        run = replace(RUN, loss=tuple(value * factor for value in RUN.loss))
        bands = [band.to_json() for band in read_bands([str(out)], tmp_path) if band.target.tag != "peak_memory"]
        place = replace(run, spec={"expect": tuple(bands)}).write(tmp_path / f"judged-{factor}")
        report = build_report(place)
        assert report["decision"] == decision
    assert report["evidence"]["expectations"][0]["provenance"]["runs"] == "made, made, made"


def test_baseline_of_one_run_has_no_tolerance(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It says so, and such a file is no expectation."""
    out = tmp_path / "bands.toml"
    code, document = baseline(capsys, made(tmp_path / "a"), "--out", str(out))
    assert (code, document["tolerances"]) == (0, False) and "2 runs" in document["note"]
    with pytest.raises(ConfigError, match="neither lower nor upper"):
        read_bands([str(out)], tmp_path)


def test_baseline_is_never_made_of_broken_or_other_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A NaN, another job, a directory that is none, the same run twice: nothing is written."""
    good, out = made(tmp_path / "a"), tmp_path / "bands.toml"
    broken = str(replace(RUN, loss=(*RUN.loss[:9], math.nan)).write(tmp_path / "nan"))
    code, document = baseline(capsys, good, broken, "--out", str(out))
    assert (code, document["refused"][0]["run"]) == (1, broken) and "loss-not-finite" in document["refused"][0]["why"]
    other = made(tmp_path / "other")
    journaled(Path(other), "settings", values={"lr": "1"}, files={})
    assert baseline(capsys, good, other, "--out", str(out))[1]["refused"][0]["why"] == "lr"
    assert baseline(capsys, good, str(tmp_path / "none"), "--out", str(out))[0] == 2
    assert baseline(capsys, good, good, "--out", str(out))[0] == 2
    assert baseline(capsys, good, "--out", str(out), "--metric", "no@1")[0] == 2
    assert not out.exists()
