"""CSV metrics: Lightning's and Keras' tables, growth, rewrites, and what is no table of metrics."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.metrics import collector as collector_module
from harness.metrics.collector import MetricCollector
from harness.metrics.csv import CsvReader, looks_like_csv_metrics, parse_header
from harness.record.store import MetricStore

CASE = Path(__file__).parent / "cases" / "23-lightning-metrics-csv"
RECORDED = Path(__file__).parents[1] / "frameworks" / "recorded"
Series = dict[str, list[tuple[int, float]]]


def take(reader: CsvReader, *, final: bool = False) -> Series:
    """{tag: [(step, value)]} of one poll."""
    found: Series = {}
    for columns in reader.poll(final=final):
        assert hasattr(columns, "events")
        for event in columns.events():
            found.setdefault(event.tag, []).append((event.step, event.value))
    return found


def test_blank_cells_are_absent_and_nan_is_nan() -> None:
    """Train and evaluation rows of Lightning, each with its own blanks."""
    expected = json.loads((CASE / "expected.json").read_text())["version_1"]
    found = take(CsvReader(CASE / "lightning_logs" / "version_1" / "metrics.csv"))
    for tag in ("train_loss_step", "val_loss"):
        assert found[tag] == [(int(step), value) for step, value in expected[tag].items()]
    assert found["val_acc"][-1][0] == 199 and math.isnan(found["val_acc"][-1][1])
    assert found["train_loss_epoch"] == [(99, 1.08), (199, 0.72)]


def test_each_version_is_a_run_and_an_empty_one_has_no_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """version_10 was begun and logged nothing; version_1 is not taken for it."""
    monkeypatch.setattr(collector_module, "_WALK_GAP_S", 0.0)
    with MetricStore.temporary() as store:
        collector = MetricCollector(store, [tmp_path])
        collector.inventory()
        for source in (CASE / "lightning_logs").iterdir():
            (tmp_path / source.name).mkdir()
            (tmp_path / source.name / "metrics.csv").write_bytes((source / "metrics.csv").read_bytes())
        facts = collector.finish(now=time.time(), launched_at=time.time())
        assert {(fact.run, fact.points > 0) for fact in facts} == {
            ("version_0", True), ("version_1", True), ("version_10", False),
        }  # fmt: skip


def test_recorded_lightning_table() -> None:
    """A real one: the last training row is step 29 of 30, counted from 0."""
    found = take(CsvReader(RECORDED / "lightning" / "metrics.csv"))
    assert found["train_loss"][-1] == (29, 0.6862729787826538) and found["val_loss"][-1][0] == 30
    assert max(value for _, value in found["epoch"]) == 3


def test_recorded_keras_table_counts_epochs() -> None:
    """A real one: the step is the epoch, counted from 0."""
    found = take(CsvReader(RECORDED / "keras" / "log.csv"))
    assert [step for step, _ in found["loss"]] == [0, 1, 2] and "epoch" not in found


def test_growing_table_is_read_as_it_grows(tmp_path: Path) -> None:
    """Only lines with their end count."""
    path = tmp_path / "metrics.csv"
    path.write_text("epoch,step,loss\n0,1,2.")
    reader = CsvReader(path)
    assert take(reader) == {}
    with path.open("a") as file:
        file.write("5\n0,2,2.25\n")
    assert take(reader)["loss"] == [(1, 2.5), (2, 2.25)]
    with path.open("a") as file:
        file.write("0,3,1.1")
    assert take(reader, final=True) == {}
    assert [problem.code for problem in reader.problems(final=True)] == ["cut-tail"]


def test_rewritten_header_keeps_all_rows(tmp_path: Path) -> None:
    """Lightning writes the table anew when a new tag appears: no damage, and the new column is read."""
    path = tmp_path / "metrics.csv"
    path.write_text("epoch,step,train_loss\n0,1,2.0\n0,2,1.9\n")
    reader = CsvReader(path)
    assert take(reader)["train_loss"] == [(1, 2.0), (2, 1.9)]
    path.write_text("epoch,step,train_loss,val_loss\n0,1,2.0,\n0,2,1.9,\n0,2,,1.8\n")
    found = take(reader)
    assert found["train_loss"] == [(1, 2.0), (2, 1.9)] and found["val_loss"] == [(2, 1.8)]
    assert reader.problems(final=True) == []


def test_appended_rows_alone_count_after_an_offset(tmp_path: Path) -> None:
    """CSVLogger(append=True): the header before the launch names the columns, the old rows do not count."""
    path = tmp_path / "log.csv"
    path.write_text("epoch,loss\n0,3.0\n")
    reader = CsvReader(path, first_offset=path.stat().st_size)
    with path.open("a") as file:
        file.write("1,2.0\n")
    assert take(reader) == {"loss": [(1, 2.0)]}
    assert reader.bytes_read == len("1,2.0\n")


@pytest.mark.parametrize("header", ["text,label", "0,1,2", "step", "", "a;b;c", "id,name,age"])
def test_other_tables_are_no_metrics(tmp_path: Path, header: str) -> None:
    """A data set below an output directory is left alone."""
    (tmp_path / "data.csv").write_text(header + "\n1,2\n")
    assert looks_like_csv_metrics(tmp_path / "data.csv") is False


def test_semicolons_and_marks_are_understood() -> None:
    """Keras' separator, and the byte order mark of a spreadsheet."""
    assert parse_header("\ufeffepoch;loss".encode()) == (";", ["epoch", "loss"], 0)


def test_cell_that_no_parser_takes_loses_its_row_alone(tmp_path: Path) -> None:
    """A cell above the limit of the csv module."""
    path = tmp_path / "metrics.csv"
    path.write_text(f"step,loss,note\n1,2.0,\n2,1.9,{'x' * 200_000}\n3,1.8,\n")
    reader = CsvReader(path)
    assert take(reader)["loss"] == [(1, 2.0), (3, 1.8)]
    assert [problem.code for problem in reader.problems()] == ["not-parsable"]


def test_unfinished_header_is_no_verdict(tmp_path: Path) -> None:
    """While there is no whole line, nothing is said."""
    (tmp_path / "m.csv").write_text("epoch,st")
    assert looks_like_csv_metrics(tmp_path / "m.csv") is None


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.floats(allow_nan=False, width=32), min_size=1, max_size=20), cuts=st.integers(1, 40))
def test_pieces_give_what_the_whole_gives(
    tmp_path_factory: pytest.TempPathFactory, rows: list[float], cuts: int
) -> None:
    """However the bytes arrive."""
    text = "step,loss\n" + "".join(f"{step},{value!r}\n" for step, value in enumerate(rows))
    path = tmp_path_factory.mktemp("csv") / "metrics.csv"
    reader, found = CsvReader(path), []
    for end in range(0, len(text) + cuts, cuts):
        path.write_text(text[:end])
        found += take(reader).get("loss", [])
    assert found == list(enumerate(rows))


@settings(max_examples=80, deadline=None)
@given(content=st.binary(max_size=300))
def test_no_content_raises(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    """Hostile tables are problems at most."""
    path = tmp_path_factory.mktemp("csv") / "metrics.csv"
    path.write_bytes(b"step,loss\n" + content)
    take(CsvReader(path), final=True)
    path.write_bytes(content)
    take(CsvReader(path), final=True)
    looks_like_csv_metrics(path)


@pytest.mark.parametrize(
    ("header", "unit"), [("epoch,loss", "epoch"), ("epoch,step,loss", "step"), ("step,loss", "step")]
)
def test_unit_of_its_steps_is_told(tmp_path: Path, header: str, unit: str) -> None:
    """An epoch is the step where the header names no other."""
    (tmp_path / "log.csv").write_text(f"{header}\n{','.join('1' * len(header.split(',')))}\n", encoding="utf-8")
    reader = CsvReader(tmp_path / "log.csv")
    list(reader.poll(final=True))
    assert reader.step_unit == unit
