"""W&B's offline run files and MLflow's local stores, from files that wandb 0.31 and MLflow 3.17 wrote.

cases/recorded/trackers: the page beside them says how they were made.
"""

from __future__ import annotations

import json
import math
import shutil
import sqlite3
import struct
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.metrics import collector as collector_module
from harness.metrics.collector import MetricCollector
from harness.metrics.command import metrics_report
from harness.metrics.mlflow import MlflowDatabaseReader, MlflowReader
from harness.metrics.model import Part
from harness.metrics.tracker_end import TrackedRun, mlflow_runs, wandb_run
from harness.metrics.wandb import WandbReader
from harness.metrics.wire import fields, number_of
from harness.record.store import MetricStore
from harness.watch.ending import EndKind, tracked_ending
from harness.watch.replay import replay

TRACKERS = Path(__file__).parent / "cases" / "recorded" / "trackers"
WANDB = TRACKERS / "wandb" / "offline-run-20261130_100000-example1" / "run-example1.wandb"
PLAIN = TRACKERS / "wandb" / "offline-run-20261130_100002-plain1" / "run-plain1.wandb"
DATABASE = TRACKERS / "mlflow.db"
FILES = TRACKERS / "mlruns"
LOSS = [(step, math.nan if step == 7 else 1 / (step + 1)) for step in range(12)]
EVAL = [(step, 2 / (step + 1)) for step in (3, 7, 11)]


@pytest.fixture
def store() -> Iterator[MetricStore]:
    """A store on no file."""
    with MetricStore.temporary() as opened:
        yield opened


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector_module, "_WALK_GAP_S", 0.0)
    monkeypatch.setattr(collector_module, "_WALK_COST_FACTOR", 0)


def series(path: Path, tag: str) -> list[tuple[int, float | None]]:
    """As `python -m harness metrics` prints it; NaN and infinities by name."""
    report = metrics_report(path, [tag], None)
    assert report["unknown"] == [], report
    return [(point["step"], point.get("repr", point["value"])) for point in report["series"][tag]]


def shown(points: list[tuple[int, float]]) -> list[tuple[int, float | str]]:
    """The same of values."""
    return [(step, value if math.isfinite(value) else repr(value)) for step, value in points]


# -- W&B


@pytest.mark.parametrize("path", [WANDB, WANDB.parent])
def test_wandb_rows_lie_at_the_trainers_step(path: Path) -> None:
    """`train/global_step` of a row is its step, in a file of three blocks; eval rows are rows of their own."""
    loss = [(10 * (i + 1), math.nan if i == 7 else 1 / (i + 1)) for i in range(160)]
    assert series(path, "train/loss") == shown(loss)
    assert series(path, "eval/loss") == [(10 * (i + 1), 2 / (i + 1)) for i in (39, 79, 119, 159)]
    assert metrics_report(path, [], None)["keys"] == ["eval/loss", "train/learning_rate", "train/loss"]


def test_wandb_own_steps_nested_names_and_infinity() -> None:
    """Without a step of the trainer W&B's own counts; a dict in a row gives names with a slash."""
    assert series(PLAIN, "loss") == [*((i, 1 / (i + 1)) for i in range(12)), (20, "inf")]
    assert series(PLAIN, "eval/loss") == [(i, 2 / (i + 1)) for i in (3, 7, 11)]


def test_wandb_configuration_summary_and_start() -> None:
    """What the run says of itself."""
    reader = WandbReader(WANDB)
    list(reader.poll(final=True))
    assert (reader.config["lr"], reader.config["model"]) == (0.001, {"layers": 2})
    assert (reader.summary["best"], reader.summary["train/global_step"]) == (0.0125, 1600)
    assert reader.opened_at == pytest.approx(1796036429, abs=60)
    assert (reader.bytes_read, reader.problems(final=True)) == (WANDB.stat().st_size, [])


@pytest.mark.parametrize("size", [1, 6, 7, 500, 32768, 32770, 40000])
def test_wandb_file_that_grows_gives_the_same(tmp_path: Path, size: int) -> None:
    """Wherever the file is cut, the next poll goes on there."""
    data, path = WANDB.read_bytes(), tmp_path / "run-a.wandb"
    path.write_bytes(data[:size])
    reader, found = WandbReader(path), []
    for _ in range(2):
        for item in reader.poll():
            found += [(event.tag, event.step) for event in item.events()]  # type: ignore[union-attr]
        path.write_bytes(data)
    assert len(found) == 2 * 160 + 4 and reader.problems(final=True) == []


def framed(*records: bytes, damage: int | None = None) -> bytes:
    """A run file of whole records that are shorter than a block."""
    data = b":W&B" + struct.pack("<HB", 0xBEE1, 0)
    for index, record in enumerate(records):
        crc = zlib.crc32(record, zlib.crc32(b"\x01")) ^ (1 if index == damage else 0)
        data += struct.pack("<IHB", crc, len(record), 1) + record
    return data


def tlv(number: int, data: bytes) -> bytes:
    """A length-delimited field of protobuf."""
    def varint(value: int) -> bytes:
        head = bytes([value & 0x7F | (0x80 if value > 0x7F else 0)])
        return head + (varint(value >> 7) if value > 0x7F else b"")

    return varint(number << 3 | 2) + varint(len(data)) + data


def history(**row: object) -> bytes:
    """A history record with values in JSON."""
    return tlv(2, b"".join(tlv(1, tlv(1, key.encode()) + tlv(16, json.dumps(value).encode()))
                           for key, value in row.items()))


def test_wandb_bad_checksum_ends_the_reading(tmp_path: Path) -> None:
    """What was whole before it is kept, and the damage is reported with its place."""
    path = tmp_path / "run-a.wandb"
    rows = [history(_step=step, loss=1.0) for step in range(3)]
    path.write_bytes(framed(*rows, damage=1))
    report = metrics_report(path, ["loss"], None)
    assert [point["step"] for point in report["series"]["loss"]] == [0]
    assert [problem["code"] for problem in report["problems"]] == ["bad-crc"]


def test_wandb_cut_tail_is_a_problem_only_at_the_end(tmp_path: Path) -> None:
    """Half a record."""
    path = tmp_path / "run-a.wandb"
    path.write_bytes(framed(history(_step=1, loss=1.0), history(_step=2, loss=1.0))[:-3])
    reader = WandbReader(path)
    assert [len(item.tag) for item in reader.poll(final=True)] == [1]  # type: ignore[union-attr]
    assert (reader.problems(), [p.code for p in reader.problems(final=True)]) == ([], ["cut-tail"])


def test_wandb_count_of_calls_is_no_step(tmp_path: Path) -> None:
    """Two calls of log() for each step: the steps are said to be unknown."""
    path = tmp_path / "run-a.wandb"
    path.write_bytes(framed(*(history(_step=i, **{"lr" if i % 2 else "loss": 1.0}) for i in range(6))))
    assert [problem["code"] for problem in metrics_report(path, [], None)["problems"]] == ["steps-unknown"]
    path.write_bytes(framed(*(history(_step=i, loss=1.0, **({"eval_loss": 1.0} if i % 2 else {})) for i in range(6))))
    assert metrics_report(path, [], None)["problems"] == []


def test_wandb_typed_values() -> None:
    """Newer writers give numbers as such: a double, a zigzag integer, a truth value."""
    from harness.metrics.wandb import _items

    double = tlv(1, tlv(1, b"a") + bytes([6 << 3 | 1]) + struct.pack("<d", 0.5))
    integer = tlv(1, tlv(1, b"b") + bytes([5 << 3, 7]))
    truth = tlv(1, tlv(1, b"c") + bytes([4 << 3, 1]))
    assert dict(_items(double + integer + truth)) == {"a": 0.5, "b": -4, "c": True}


@pytest.mark.parametrize(("data", "code"), [(b"", 0), (b"\x08\x01", 1), (b"\x08\xff\x01", 255),
                                            (b"\x08" + b"\xff" * 9 + b"\x01", -1)])
def test_wandb_exit_record_tells_the_code(tmp_path: Path, data: bytes, code: int) -> None:
    """Nothing before it is there; an empty record is 0; negative ones are ten bytes long."""
    path = tmp_path / "run-a.wandb"
    path.write_bytes(framed(history(_step=1, loss=1.0)))
    reader = WandbReader(path)
    list(reader.poll())
    assert reader.exit_code is None
    path.write_bytes(framed(history(_step=1, loss=1.0), tlv(18, data)))
    list(reader.poll())
    assert reader.exit_code == code


@pytest.mark.parametrize("path", [WANDB, PLAIN])
def test_wandb_recorded_runs_ended_well(path: Path) -> None:
    """As wandb wrote it."""
    reader = WandbReader(path)
    list(reader.poll(final=True))
    assert reader.exit_code == 0


def test_end_is_told_when_all_runs_have_one() -> None:
    """A bad one before others; none while one goes on, and none of nothing."""
    ended, failed = wandb_run(WANDB, 0), wandb_run(WANDB, 1)
    killed = TrackedRun(name="a", status="KILLED")
    assert tracked_ending([]) is None and tracked_ending([ended, wandb_run(WANDB, None)]) is None
    kinds = [end.kind for runs in ([ended], [failed, ended], [killed]) if (end := tracked_ending(runs)) is not None]
    assert kinds == [EndKind.COMPLETED, EndKind.FAILED, EndKind.INTERRUPTED]


@settings(deadline=None)
@given(st.binary(max_size=300), st.integers(0, 2))
def test_wandb_no_bytes_raise(tmp_path_factory: pytest.TempPathFactory, data: bytes, how: int) -> None:
    """Odd files, odd frames, odd messages: problems, never an exception."""
    path = tmp_path_factory.mktemp("odd") / "run-a.wandb"
    path.write_bytes((data, framed()[:7] + data, framed(data, tlv(2, data), tlv(2, tlv(1, data))))[how])
    reader = WandbReader(path)
    list(reader.poll(final=True))
    reader.problems(final=True)


@given(st.binary(max_size=200))
def test_wire_raises_only_value_errors(data: bytes) -> None:
    """Whatever the bytes are."""
    try:
        for item in fields(data):
            number_of(item)
    except ValueError:
        pass


# -- MLflow


@pytest.mark.parametrize("path", [FILES, FILES.parent / "mlruns" / "157444700987653993"])
def test_mlflow_files(path: Path) -> None:
    """A file for each metric, a directory in a name, NaN and infinities."""
    assert (series(path, "loss"), series(path, "eval/loss")) == (shown(LOSS), EVAL)
    assert series(path, "odd") == [(3, "inf"), (4, "-inf")]


@pytest.mark.parametrize(("path", "number"), [(FILES, 1), (DATABASE, 2), (TRACKERS, 3), (TRACKERS / "wandb", 0)])
def test_mlflow_status_of_every_run(path: Path, number: int) -> None:
    """Of a directory's run files and of a database's table."""
    assert [run.status for run in mlflow_runs(path)] == ["FINISHED"] * number


@pytest.mark.parametrize(("text", "status"), [("status: 1\n", "RUNNING"), ("a: 1\nstatus: 4", "FAILED"),
                                              ("status: KILLED\n", "KILLED"), ("status:\n", None), ("", None)])
def test_mlflow_status_in_a_run_file(tmp_path: Path, text: str, status: str | None) -> None:
    """By number, as MLflow writes it, or by name; a file without one tells nothing."""
    (tmp_path / "1" / "a" / "metrics").mkdir(parents=True)
    (tmp_path / "1" / "a" / "meta.yaml").write_text(text)
    (tmp_path / "1" / "a" / "metrics" / "loss").write_text("1 0.5 1\n")
    assert [run.status for run in mlflow_runs(tmp_path)] == ([status] if status else [])


def test_mlflow_single_file() -> None:
    """One metric's file by its own name."""
    path = next(FILES.glob("*/*/metrics/eval/loss"))
    assert series(path, "eval/loss") == EVAL


def test_mlflow_database_has_its_runs_apart() -> None:
    """Two runs in one database; NaN is a flag there, and the largest double an infinity."""
    report = metrics_report(DATABASE, [], None)
    keys = [key for key in report["keys"] if key.endswith(":loss")]
    assert len(keys) == 2 and all(key.startswith("mlflow.db/1/") for key in keys)
    for key in keys:
        assert series(DATABASE, key) == shown(LOSS)
        assert series(DATABASE, key.replace(":loss", ":odd")) == [(3, "inf"), (4, "-inf")]


def test_mlflow_rows_are_read_once_and_the_writer_is_not_held_up(tmp_path: Path) -> None:
    """The second poll gives the new row alone; a writer with no patience gets through between two reads."""
    path = tmp_path / "mlflow.db"
    shutil.copyfile(DATABASE, path)
    reader = MlflowDatabaseReader(path)
    first = [item for item in reader.poll() if not isinstance(item, Part)]
    assert sum(len(item.tag) for item in first) == 2 * (12 + 3 + 2)  # type: ignore[union-attr]
    with sqlite3.connect(path, timeout=0) as writer:
        run = writer.execute("SELECT run_uuid FROM runs").fetchone()[0]
        writer.execute("INSERT INTO metrics VALUES('loss', 0.25, 1796036460000, ?, 12, 0)", (run,))
    writer.close()
    part, columns = reader.poll()
    assert part == Part(f"1/{run}")
    assert next(iter(columns.events()))[:3] == ("loss", 12, 0.25)  # type: ignore[union-attr]
    assert list(reader.poll()) == [] and reader.problems(final=True) == []


def test_mlflow_database_that_is_locked_is_read_later(tmp_path: Path) -> None:
    """While a writer holds it exclusively nothing is read; afterwards everything is."""
    path = tmp_path / "mlflow.db"
    shutil.copyfile(DATABASE, path)
    reader = MlflowDatabaseReader(path)
    with sqlite3.connect(path, isolation_level=None) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        assert list(reader.poll()) == []
        assert [problem.code for problem in reader.problems()] == ["unreadable"]
        writer.execute("COMMIT")
    writer.close()
    assert len(list(reader.poll())) == 4 and reader.problems() == []


def test_mlflow_database_in_wal_mode_is_followed(tmp_path: Path) -> None:
    """New rows stand in the log beside the file, which itself does not change."""
    path = tmp_path / "mlflow.db"
    shutil.copyfile(DATABASE, path)
    with sqlite3.connect(path, isolation_level=None) as writer:
        writer.execute("PRAGMA journal_mode=WAL")
        reader = MlflowDatabaseReader(path)
        list(reader.poll())
        writer.execute("INSERT INTO metrics SELECT key, value, timestamp, run_uuid, 99, 0 FROM metrics LIMIT 1")
        assert [item.step for item in reader.poll() if not isinstance(item, Part)] == [[99]]  # type: ignore[union-attr]
    writer.close()


def test_mlflow_rows_from_before_the_launch_do_not_count(tmp_path: Path, store: MetricStore) -> None:
    """Of a database that was there, only rows that were added; of a metric's file, only new lines."""
    shutil.copyfile(DATABASE, tmp_path / "mlflow.db")
    shutil.copytree(FILES, tmp_path / "mlruns")
    collector = MetricCollector(store, [tmp_path / "mlflow.db", tmp_path / "mlruns"])
    assert len(collector.inventory()) == 4
    now = time.time()
    assert collector.poll(now=now, launched_at=now) == 0
    with sqlite3.connect(tmp_path / "mlflow.db") as writer:
        run = writer.execute("SELECT run_uuid FROM runs").fetchone()[0]
        writer.execute("INSERT INTO metrics VALUES('loss', 0.5, ?, ?, 50, 0)", (int(now * 1000), run))
    writer.close()
    with next((tmp_path / "mlruns").glob("*/*/metrics/loss")).open("a") as file:
        file.write(f"{int(now * 1000)} 0.25 60\n")
    collector.finish(now=now, launched_at=now)
    assert sorted((tag.last_step, tag.last_value) for tag in store.tags()) == [(50, 0.5), (60, 0.25)]
    assert {source.kind for source in store.sources()} == {"mlflow"}


def test_mlflow_lines_that_are_none(tmp_path: Path) -> None:
    """Early files without a step, and what is no metric."""
    path = tmp_path / "loss"
    path.write_bytes(b"1796036194154 1.5\nnonsense\n1796036194155 x 2\n1796036194156 2.5 3\n1796036194157 9 4")
    reader = MlflowReader(path)
    found = [event[:3] for item in reader.poll(final=True) for event in item.events()]  # type: ignore[union-attr]
    assert found == [("loss", 0, 1.5), ("loss", 3, 2.5)]
    assert [problem.code for problem in reader.problems(final=True)] == ["not-parsable", "cut-tail"]


def test_models_repeat_their_runs_and_are_left_out(tmp_path: Path) -> None:
    """MLflow 3 writes the metrics of a logged model a second time, below models/."""
    shutil.copytree(FILES, tmp_path / "mlruns")
    run = next((tmp_path / "mlruns").glob("*/*/metrics")).parent
    shutil.copytree(run, run.parent / "models" / "m-1")
    assert metrics_report(tmp_path / "mlruns", [], None)["keys"] == ["eval/loss", "loss", "odd"]


def test_replay_reads_trackers() -> None:
    """Early stopping over each of them."""
    one = replay(WANDB, "eval_loss", 2)
    assert (one["triggered"], one["best_step"], one["num_evaluations"]) == (False, 1600, 4)
    two = replay(FILES, "eval_loss", 2)
    assert (two["ok"], two["best_step"], two["best_value"]) == (True, 11, pytest.approx(2 / 12))
    assert not replay(DATABASE, "eval_loss", 2)["ok"]  # two runs hold it
