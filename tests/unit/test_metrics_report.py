"""`python -m harness metrics`: what it prints, from files, directories and out-dirs."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from harness.metrics.command import metrics_report
from harness.record.events import MetricEvent
from harness.record.store import MetricStore
from harness.record.vocabulary import Standing
from tests.unit.event_files import EPOCH, scalar, write

CASES = Path(__file__).parent / "cases"


def strict(report: dict[str, Any]) -> dict[str, Any]:
    """The report as a reader of strict JSON gets it."""
    parsed: dict[str, Any] = json.loads(json.dumps(report, allow_nan=False))
    return parsed


@pytest.mark.parametrize("path", [CASES / "27-tb-restart-overlap", CASES / "27-tb-restart-overlap" / "run"])
def test_restart_is_merged(path: Path) -> None:
    """Case 27: 15 points, the later file wins, and the abandoned branch sets no minimum."""
    expected = json.loads((CASES / "27-tb-restart-overlap" / "expected.json").read_text())
    report = strict(metrics_report(path, [expected["tag"]], None))
    series = report["series"][expected["tag"]]
    lowest = min(series, key=lambda point: point["value"])
    assert (report["ok"], report["keys"], report["unknown"], report["problems"]) == (
        True,
        [expected["tag"]],
        [],
        [],
    )
    assert [point["step"] for point in series] == list(range(expected["points"]))
    assert series[-1]["value"] == pytest.approx(expected["last"]["value"])
    assert (lowest["step"], lowest["value"]) == (
        expected["min"]["step"],
        pytest.approx(expected["min"]["value"]),
    )
    assert series[6]["value"] == expected["step_6"]


def test_tensor_scalars_of_both_folders() -> None:
    """Case 29: two run directories, so their keys name them."""
    expected = json.loads((CASES / "29-tb-tensor-scalars" / "expected.json").read_text())
    keys = ["float_val:loss", "tensor_content:loss"]
    report = strict(metrics_report(CASES / "29-tb-tensor-scalars", keys, None))
    assert (report["ok"], report["keys"]) == (True, keys)
    for key in keys:
        assert {str(p["step"]): p["value"] for p in report["series"][key]} == expected["points"]


def test_keys_without_series_when_nothing_is_asked(tmp_path: Path) -> None:
    """A file with two tags."""
    path = write(tmp_path / "events.out.tfevents.1", [scalar("b", 1, 1), scalar("a", 1, 1)])
    report = strict(metrics_report(path, [], None))
    assert report == {
        "ok": True,
        "path": str(path),
        "keys": ["a", "b"],
        "unknown": [],
        "ambiguous": [],
        "series": {},
        "progress": None,
        "problems": [],
    }


def test_nonfinite_values_are_null_with_their_name(tmp_path: Path) -> None:
    """Strict JSON has no NaN; a wall time that the source lacks is null too."""
    path = tmp_path / "metrics.jsonl"
    path.write_text(
        '{"step": 1, "loss": NaN}\n{"step": 2, "loss": "-inf"}\n{"step": 3, "loss": 0.5, "time": 1.77e9}\n'
    )
    assert strict(metrics_report(path, ["loss"], None))["series"]["loss"] == [
        {"step": 1, "value": None, "repr": "nan", "wall_time": None},
        {"step": 2, "value": None, "repr": "-inf", "wall_time": None},
        {"step": 3, "value": 0.5, "wall_time": 1.77e9},
    ]


def test_last_keeps_the_end_of_each_series(tmp_path: Path) -> None:
    """In step order, also when events came out of order."""
    path = write(tmp_path / "events.out.tfevents.1", [scalar("a", step, step) for step in (3, 1, 4, 2)])
    report = metrics_report(path, ["a"], 2)
    assert [point["step"] for point in report["series"]["a"]] == [3, 4]
    assert metrics_report(path, ["a"], 0)["series"]["a"] == []


def test_unknown_metric_is_not_ok(tmp_path: Path) -> None:
    """Those that are there are still given."""
    path = write(tmp_path / "events.out.tfevents.1", [scalar("a", 1, 1)])
    report = metrics_report(path, ["a", "nope"], None)
    assert (report["ok"], report["unknown"], list(report["series"])) == (False, ["nope"], ["a"])


def test_bare_tag_of_several_runs_is_ambiguous(tmp_path: Path) -> None:
    """The problem says which runs hold it; a tag that one run holds needs no name of a run."""
    write(tmp_path / "x" / "events.out.tfevents.1", [scalar("a", 1, 1), scalar("only", 1, 1)])
    write(tmp_path / "y" / "events.out.tfevents.1", [scalar("a", 1, 1)])
    report = metrics_report(tmp_path, ["a", "only", "y:a"], None)
    assert (report["unknown"], report["ambiguous"]) == ([], ["a"])
    assert (report["ok"], sorted(report["series"])) == (False, ["only", "y:a"])
    assert report["problems"][0]["code"] == "ambiguous-metric" and "x, y" in report["problems"][0]["message"]


def test_damage_is_a_problem_beside_what_was_whole(tmp_path: Path) -> None:
    """A bad checksum: the part before is given, with path and offset of the damage."""
    path = write(tmp_path / "events.out.tfevents.1", [scalar("a", step, step) for step in range(3)])
    data = bytearray(path.read_bytes())
    data[-6] ^= 1
    path.write_bytes(data)
    report = metrics_report(tmp_path, ["a"], None)
    assert report["ok"] and [point["step"] for point in report["series"]["a"]] == [0, 1]
    assert (report["problems"][0]["code"], report["problems"][0]["path"]) == ("bad-crc", str(path.resolve()))


@pytest.mark.parametrize("what", ["missing", "empty directory", "empty file", "damaged store"])
def test_nothing_readable_is_not_ok(tmp_path: Path, what: str) -> None:
    """With a problem that says why."""
    path = tmp_path / "nothing"
    if what == "empty directory":
        path.mkdir()
    elif what == "empty file":
        path = tmp_path / "events.out.tfevents.1"
        path.touch()
    elif what == "damaged store":
        path.mkdir()
        (path / "metrics.db").write_bytes(b"no database" * 100)
    report = strict(metrics_report(path, ["a"], None))
    assert (report["ok"], report["keys"], report["unknown"]) == (False, [], ["a"])
    assert report["problems"] and report["problems"][0]["message"]


@pytest.mark.parametrize("name", ["", "metrics.db"])
def test_out_dir_is_answered_from_its_store(tmp_path: Path, name: str) -> None:
    """Only fresh points make series; others are said to be there."""
    with MetricStore.create(tmp_path / "metrics.db") as store:
        for standing, value in ((Standing.STALE, 9.0), (Standing.FRESH, 1.0)):
            source = store.add_source(kind="tensorboard", path=f"/logs/{standing.value}")
            store.append(
                source,
                [MetricEvent("loss", 1, value, EPOCH), MetricEvent("lr", 1, math.nan, EPOCH)],
                observed_at=EPOCH,
                standing=standing,
            )
    report = strict(metrics_report(tmp_path / name, ["loss"], None))
    assert report["series"]["loss"] == [{"step": 1, "value": 1.0, "wall_time": EPOCH}]
    assert [problem["code"] for problem in report["problems"]] == ["stale-points"]


def test_last_alone_gives_the_end_of_every_series(tmp_path: Path) -> None:
    """The newest values at a glance."""
    path = tmp_path / "m.jsonl"
    path.write_text('{"step": 1, "a": 1, "b": 2}\n{"step": 2, "a": 3}\n')
    report = strict(metrics_report(path, [], 1))
    found = {tag: [(p["step"], p["value"]) for p in points] for tag, points in report["series"].items()}
    assert (report["ok"], found) == (True, {"a": [(2, 3.0)], "b": [(1, 2.0)]})
