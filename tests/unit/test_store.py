"""The metric store: what goes in comes out, the attempt rule, and what a killed writer leaves."""

from __future__ import annotations

import itertools
import math
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import RecordError
from harness.record.events import EventColumns, MetricEvent
from harness.record.merge import Lifetime, make_plan
from harness.record.store import MetricStore
from harness.record.vocabulary import Phase, Standing

ROOT = Path(__file__).parents[2]


def rows(tag: str, steps: range | list[int], value: float = 1.0, start: float = 1000.0) -> list[MetricEvent]:
    """Points of one tag, a second apart."""
    return [MetricEvent(tag, step, value, start + index) for index, step in enumerate(steps)]


def fill(
    store: MetricStore,
    writer: str,
    events: list[MetricEvent],
    *,
    run: str = "",
    kind: str = "tensorboard",
    attempt: int = 1,
    observed_at: float = 1.0,
    standing: Standing = Standing.FRESH,
) -> int:
    """One source with these events."""
    source = store.add_source(
        kind=kind, path=f"/logs/{run}/{writer}", run=run, writer=writer, attempt=attempt
    )
    store.append(source, events, observed_at=observed_at, standing=standing)
    return source


@pytest.fixture
def store() -> MetricStore:
    """A store on no file."""
    return MetricStore.temporary()


def steps(store: MetricStore, tag: str, **options: object) -> list[int]:
    return [point.step for point in store.series(tag, **options)]  # type: ignore[arg-type]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b/c", "é"]),
            st.integers(-(1 << 63), (1 << 63) - 1),
            st.floats(),
            st.floats(0, 4e9),
        ),
        max_size=60,
    )
)
def test_series_gives_the_last_written_of_each_step_in_step_order(
    events: list[tuple[str, int, float, float]],
) -> None:
    """Within one writer: any steps, any values, NaN and infinities too, any order (-0.0 becomes 0.0)."""
    with MetricStore.temporary() as store:
        source = store.add_source(kind="jsonl", path="/m.jsonl")
        store.append(source, [MetricEvent(*event) for event in events], observed_at=5.0)
        for tag in ("a", "b/c", "é"):
            expected = {step: (repr(value + 0.0), wall) for t, step, value, wall in events if t == tag}
            found = store.series(tag)
            assert [(p.step, repr(p.value), p.wall_time) for p in found] == [
                (step, *expected[step]) for step in sorted(expected)
            ]
            assert store.series(tag, last=3) == found[-3:]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from(["loss", "lr"]), st.integers(0, 20), st.floats()), max_size=8),
        max_size=6,
    )
)
def test_summary_says_what_the_series_says(batches: list[list[tuple[str, int, float]]]) -> None:
    """Counts, ends and extremes of tags() are those of series(), however the events were batched."""
    with MetricStore.temporary() as store:
        source = store.add_source(kind="jsonl", path="/m.jsonl")
        for batch in batches:
            store.append(source, [MetricEvent(t, s, v, 0.0) for t, s, v in batch], observed_at=5.0)
        for summary in store.tags():
            series = store.series(summary.tag)
            finite = [point.value for point in series if math.isfinite(point.value)]
            odd = [point.step for point in series if not math.isfinite(point.value)]
            assert summary.points == sum(t == summary.tag for batch in batches for t, _, _ in batch)
            assert (summary.fresh_points, summary.first_step, summary.last_step) == (
                len(series),
                series[0].step,
                series[-1].step,
            )
            assert repr(summary.last_value) == repr(series[-1].value)
            assert (summary.nonfinite, summary.first_nonfinite_step) == (len(odd), min(odd, default=None))
            assert (summary.min_finite, summary.max_finite) == (
                min(finite, default=None),
                max(finite, default=None),
            )


def test_restart_supersedes_the_abandoned_branch(store: MetricStore) -> None:
    """Also beyond the restart's last step, and for a tag that is logged rarely from where training went back
    to."""
    fill(store, "first", rows("loss", range(21)) + rows("rare", [0, 10, 20]))
    fill(store, "second", rows("loss", range(6, 15), 2.0, start=5000.0) + rows("rare", [], start=5000.0))
    assert steps(store, "loss") == list(range(15))
    assert [p.value for p in store.series("loss")][5:7] == [1.0, 2.0]
    assert steps(store, "rare") == [0, 10, 20]
    fill(
        store, "third", rows("loss", range(9, 12), 3.0, start=9000.0) + rows("rare", [30], 3.0, start=9000.0)
    )
    assert steps(store, "loss") == list(range(12))
    assert steps(store, "rare") == [0, 30]


def test_files_found_in_the_wrong_order_merge_by_their_clocks(store: MetricStore) -> None:
    """Tensorboard issue 5958: discovery order is not writing order."""
    fill(store, "second", rows("loss", range(6, 15), 2.0, start=5000.0))
    fill(store, "first", rows("loss", range(11)))
    assert [p.value for p in store.series("loss")] == [1.0] * 6 + [2.0] * 9


def test_concurrent_writers_are_never_stitched(store: MetricStore) -> None:
    """Two ranks that write at the same time: the series is the lowest one's, in natural order, and both are
    named."""
    fill(store, "host.10", rows("loss", range(5, 10), 10.0, start=1002.0))
    fill(store, "host.9", rows("loss", range(8), 9.0))
    (summary,) = store.tags()
    assert summary.writers == ("host.9", "host.10")
    assert {p.value for p in store.series("loss")} == {9.0}
    assert steps(store, "loss") == list(range(8))
    assert steps(store, "loss", writer="host.10") == list(range(5, 10))


def test_declared_attempt_is_a_restart_whatever_the_clocks_say(store: MetricStore) -> None:
    """A requeue on a node whose clock lags: the supervisor knows the attempt."""
    fill(store, "a", rows("loss", range(11)))
    fill(store, "b", rows("loss", range(6, 15), 2.0, start=1001.0), attempt=2)
    assert steps(store, "loss") == list(range(15)) and store.series("loss")[6].value == 2.0


def test_closing_evaluation_cuts_nothing(store: MetricStore) -> None:
    """Transformers' evaluate() writes a second file that repeats train/epoch: the training curve stays."""
    store.phase_of = lambda _run, tag: Phase.EVAL if tag.startswith("eval/") else Phase.TRAIN
    train = [event for tag in ("train/loss", "train/lr", "train/epoch") for event in rows(tag, range(1, 21))]
    fill(store, "p.0", train + rows("eval/loss", [10, 20]))
    fill(store, "p.1", rows("eval/loss", [20], 0.5, start=3000.0) + rows("train/epoch", [5], start=3000.0))
    assert steps(store, "train/loss") == list(range(1, 21))
    assert steps(store, "train/epoch") == list(range(1, 21))
    assert [(p.step, p.value) for p in store.series("eval/loss")] == [(10, 1.0), (20, 0.5)]


def test_restart_marker_purges_inside_its_file_and_in_earlier_ones(store: MetricStore) -> None:
    """SessionLog START at step N: what was written before at or above N is void, what comes after it
    counts."""
    fill(store, "old", rows("other", range(10)), observed_at=1.0)
    source = fill(store, "new", rows("loss", range(10), start=2000.0))
    store.add_purge(source, 4)
    store.append(
        source, rows("loss", [5, 6], 2.0, start=3000.0) + rows("other", [12], start=3000.0), observed_at=2.0
    )
    assert [(p.step, p.value) for p in store.series("loss")] == [
        (0, 1.0),
        (1, 1.0),
        (2, 1.0),
        (3, 1.0),
        (5, 2.0),
        (6, 2.0),
    ]
    assert steps(store, "other") == [0, 1, 2, 3, 12]


def test_sources_without_a_clock_are_ordered_by_when_they_were_seen(store: MetricStore) -> None:
    """Wall time 0.0 means that the source has none."""
    timeless = [event._replace(wall_time=0.0) for event in rows("loss", range(10))]
    fill(store, "b", timeless, observed_at=10.0)
    fill(store, "a", [e._replace(value=2.0) for e in timeless[5:7]], observed_at=20.0)
    assert [p.value for p in store.series("loss")] == [1.0] * 5 + [2.0] * 2


def test_kinds_are_not_mixed(store: MetricStore) -> None:
    """The same tag in JSON lines and TensorBoard: one source, the fuller, TensorBoard when equal."""
    fill(store, "m.jsonl", rows("loss", range(3), 1.0), kind="jsonl")
    fill(store, "ev", rows("loss", range(3), 2.0, start=9000.0))
    assert [p.value for p in store.series("loss")] == [2.0] * 3


def test_run_directories_are_apart(store: MetricStore) -> None:
    """Keras writes the same tag to train/ and validation/: without a run the train phase's series is
    given."""
    store.phase_of = lambda run, _tag: Phase.EVAL if run == "validation" else Phase.TRAIN
    fill(store, "v", rows("epoch_loss", range(30), 3.0), run="validation")
    fill(store, "t", rows("epoch_loss", range(10), 2.0), run="train")
    assert {p.value for p in store.series("epoch_loss")} == {2.0}
    assert {p.value for p in store.series("epoch_loss", run="validation")} == {3.0}
    assert [(t.run, t.phase) for t in store.tags()] == [("train", Phase.TRAIN), ("validation", Phase.EVAL)]


def test_only_fresh_points_make_a_series(store: MetricStore) -> None:
    """Stale and foreign ones are kept, counted and given only when asked for."""
    fill(store, "old", rows("loss", range(9)), standing=Standing.STALE)
    source = fill(store, "new", rows("loss", [100, 101], 2.0, start=9000.0))
    assert steps(store, "loss") == [100, 101]
    assert steps(store, "loss", standing=Standing.STALE) == list(range(9))
    store.set_standing(source, Standing.FOREIGN, only=Standing.FRESH)
    (summary,) = store.tags()
    assert (summary.points, summary.fresh_points, summary.last_step, steps(store, "loss")) == (
        11,
        0,
        None,
        [],
    )
    assert [(s.fresh_points, s.stale_points, s.foreign_points) for s in store.sources()] == [
        (0, 9, 0),
        (0, 0, 2),
    ]


def test_event_view_shows_names(tmp_path: Path) -> None:
    """The file can be asked with any SQLite tool; NULL is NaN and nothing else."""
    with MetricStore.create(tmp_path / "metrics.db") as store:
        fill(
            store,
            "w",
            [MetricEvent("loss", 1, math.nan, 2.0), MetricEvent("loss", 2, -math.inf, 3.0)],
            run="r",
        )
    with sqlite3.connect(tmp_path / "metrics.db") as db:
        found = db.execute(
            "SELECT run, writer, tag, phase, step, value, wall_time, standing FROM event"
        ).fetchall()
    db.close()
    assert found == [
        ("r", "w", "loss", "train", 1, None, 2.0, "fresh"),
        ("r", "w", "loss", "train", 2, -math.inf, 3.0, "fresh"),
    ]


def test_transaction_is_all_or_nothing(store: MetricStore) -> None:
    """A poll that fails half-way leaves nothing."""
    source = store.add_source(kind="jsonl", path="/m.jsonl")
    with pytest.raises(ZeroDivisionError), store.transaction():
        store.append(source, rows("loss", range(3)), observed_at=1.0)
        raise ZeroDivisionError
    assert store.tags() == []


def test_create_refuses_an_existing_store(tmp_path: Path) -> None:
    """An earlier run's metrics are never written over."""
    MetricStore.create(tmp_path / "metrics.db").close()
    with pytest.raises(RecordError, match="exists"):
        MetricStore.create(tmp_path / "metrics.db")


def test_open_store_cannot_be_written(tmp_path: Path) -> None:
    """Judging changes no evidence."""
    MetricStore.create(tmp_path / "metrics.db").close()
    with MetricStore.open(tmp_path / "metrics.db") as store, pytest.raises(RecordError, match=r"metrics\.db"):
        store.add_source(kind="jsonl", path="/m.jsonl")


@pytest.mark.parametrize("content", [b"", b"not a database", b"SQLite format 3\0" + b"\xff" * 5000])
def test_damaged_store_is_a_record_error(tmp_path: Path, content: bytes) -> None:
    """The message names the path; so does the one about a missing store."""
    path = tmp_path / "metrics.db"
    with pytest.raises(RecordError, match=r"metrics\.db"):
        MetricStore.open(path)
    path.write_bytes(content)
    with pytest.raises(RecordError, match=r"metrics\.db"):
        MetricStore.open(path)


def test_cut_store_is_a_record_error(tmp_path: Path) -> None:
    """Half a file, as a full disk or a broken copy leaves it."""
    path = tmp_path / "metrics.db"
    with MetricStore.create(path) as store:
        fill(store, "w", rows("loss", range(5000)))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(RecordError, match=r"metrics\.db"), MetricStore.open(path) as store:
        store.tags()
        store.series("loss")


def test_reader_sees_what_a_living_writer_committed(tmp_path: Path) -> None:
    """While the run goes on."""
    with (
        MetricStore.create(tmp_path / "metrics.db") as writer,
        MetricStore.open(tmp_path / "metrics.db") as reader,
    ):
        source = fill(writer, "w", rows("loss", range(3)))
        assert steps(reader, "loss") == [0, 1, 2]
        with writer.transaction():
            writer.append(source, rows("loss", [3]), observed_at=2.0)
            assert steps(reader, "loss") == [0, 1, 2]
        assert steps(reader, "loss") == [0, 1, 2, 3]


KILLED = """
import os, signal, sys
from pathlib import Path
from harness.record.store import MetricStore
from harness.record.events import MetricEvent
store = MetricStore.create(Path(sys.argv[1]))
source = store.add_source(kind="jsonl", path="/m.jsonl")
store.append(source, [MetricEvent("loss", step, 1.0, 0.0) for step in range(1000)], observed_at=1.0)
store._db.execute("PRAGMA cache_size=10")
with store.transaction():
    more = [MetricEvent("loss", step, 1.0, 0.0) for step in range(1000, 200000)]
    store.append(source, more, observed_at=1.0)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_store_of_a_killed_writer_is_readable_also_read_only(tmp_path: Path) -> None:
    """SIGKILL inside a transaction that had already reached the file: the committed part is there, nothing is
    changed."""
    out_dir = tmp_path / "out"
    out_dir.mkdir()
    done = subprocess.run([sys.executable, "-c", KILLED, str(out_dir / "metrics.db")], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    assert (out_dir / "metrics.db-journal").stat().st_size > 0
    copied = shutil.copytree(out_dir, tmp_path / "copy")
    for path in (*copied.iterdir(), copied):
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = {path.name: path.read_bytes() for path in copied.iterdir()}
    with MetricStore.open(copied / "metrics.db") as store:
        assert steps(store, "loss") == list(range(1000))
    assert {path.name: path.read_bytes() for path in copied.iterdir()} == before


@pytest.mark.skipif(os.name != "posix", reason="threads and memory as on Linux")
def test_a_million_points_are_written_and_read_in_flat_memory(tmp_path: Path) -> None:
    """A poll of a million events in batches, then one of ten series; memory stays far below the data."""
    tags = [f"t{i}" for i in range(10)]
    size, count = 20_000, 10
    tracemalloc.start()
    with MetricStore.create(tmp_path / "metrics.db") as store:
        source = store.add_source(kind="tensorboard", path="/e")
        for batch in range(count):
            first = batch * size // 10
            store.append_columns(
                source,
                EventColumns(
                    tags,
                    [i % 10 for i in range(size)],
                    [first + i // 10 for i in range(size)],
                    [0.5] * size,
                    [1.0] * size,
                ),
                observed_at=1.0,
            )
        assert sum(1 for _ in store.iter_series("t3")) == size * count // 10
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 12 << 20


lifetimes = st.builds(
    lambda source, writer, start, length, first, points: Lifetime(
        source=source,
        kind="tensorboard",
        writer=writer,
        path=f"/{source}",
        attempt=1,
        start=float(start),
        end=float(start + length),
        train={"loss": (first, points)},
    ),
    st.integers(0, 1000),
    st.sampled_from(["a", "b", "c2", "c10"]),
    st.integers(0, 50),
    st.integers(0, 10),
    st.integers(0, 30),
    st.integers(1, 30),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(lifetimes, max_size=6, unique_by=lambda life: life.source))
def test_plan_keeps_one_writer_at_a_time_in_order(lives: list[Lifetime]) -> None:
    """Chosen writers never overlap, come in the order of time, and each restart cuts those before it."""
    plan = make_plan(lives, {life.source: 1 for life in lives})
    by_source = {life.source: life for life in lives}
    chosen = [by_source[segment.source] for segment in plan.segments]
    assert bool(chosen) == bool(lives)
    for earlier, later in itertools.pairwise(chosen):
        assert earlier.end < later.start
    for index, segment in enumerate(plan.segments):
        later_firsts = [life.train["loss"][0] for life in chosen[index + 1 :]]
        assert segment.cut == min(later_firsts, default=None)
