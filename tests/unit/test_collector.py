"""The collector: what counts as this run's, with real files and real processes."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest

from harness.frameworks.base import EVAL_TAG_PATTERNS
from harness.metrics import collector as collector_module
from harness.metrics import discovery, output, stdout
from harness.metrics.collector import MetricCollector, SourceFact
from harness.metrics.discovery import kind_of
from harness.metrics.ownership import writer_in_name
from harness.record.store import MetricStore
from harness.record.vocabulary import Phase, Standing
from tests.unit.event_files import Event, scalar, session_start, version, write

ROOT = Path(__file__).parents[2]
LAUNCH = 1_770_000_000.0


@pytest.fixture
def store() -> Iterator[MetricStore]:
    """A store on no file."""
    with MetricStore.temporary() as opened:
        yield opened


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every poll looks at directories and processes again, so that tests need not sleep."""
    monkeypatch.setattr(collector_module, "_WALK_GAP_S", 0.0)
    monkeypatch.setattr(collector_module, "_WALK_COST_FACTOR", 0)


def curve(tag: str, *steps: int, offset: float = 1.0) -> list[Event]:
    """Events of one tag, `offset` seconds after the launch."""
    return [scalar(tag, step, 2.0 - step / 100, LAUNCH + offset + step / 1000) for step in steps]


def finish(collector: MetricCollector) -> dict[str, SourceFact]:
    """Facts by file name."""
    return {Path(fact.path).name: fact for fact in collector.finish(now=time.time(), launched_at=LAUNCH)}


def test_new_file_counts_from_its_start(tmp_path: Path, store: MetricStore) -> None:
    """A directory that does not exist before the launch; points arrive in polls."""
    collector = MetricCollector(store, [tmp_path / "logs"])
    assert collector.inventory() == []
    path = write(
        tmp_path / "logs" / "events.out.tfevents.1770000000.vm.17.0", [version(LAUNCH), *curve("loss", 0, 1)]
    )
    assert collector.poll(now=LAUNCH + 1, launched_at=LAUNCH) == 2
    write(path, curve("loss", 2), append=True)
    assert collector.poll(now=LAUNCH + 2, launched_at=LAUNCH) == 1
    assert collector.poll(now=LAUNCH + 3, launched_at=LAUNCH) == 0
    (fact,) = finish(collector).values()
    assert (fact.points, fact.first_step, fact.last_step, fact.ownership, fact.run) == (3, 0, 2, "own", "")
    assert (fact.bytes_read, fact.first_offset, fact.still_there) == (path.stat().st_size, 0, True)
    assert collector.latest["", "loss"].step == 2
    (source,) = store.sources()
    assert (source.node, source.writer, source.opened_at) == ("vm", "vm.17", LAUNCH)


def test_old_file_does_not_count(tmp_path: Path, store: MetricStore) -> None:
    """Last week's event file, untouched by this run: no point, no source."""
    write(tmp_path / "events.out.tfevents.1", curve("loss", 0, 1))
    collector = MetricCollector(store, [tmp_path])
    (old,) = collector.inventory()
    assert (old.kind, Path(old.path).name) == ("tensorboard", "events.out.tfevents.1")
    assert finish(collector) == {} and store.tags() == []


def test_old_file_that_grows_counts_from_its_old_end(tmp_path: Path, store: MetricStore) -> None:
    """Only the new bytes, and they are what the digest is about."""
    path = write(tmp_path / "events.out.tfevents.1", curve("loss", 0, 1))
    size = path.stat().st_size
    collector = MetricCollector(store, [tmp_path], out_dir=tmp_path)
    collector.inventory()
    write(path, curve("loss", 2), append=True)
    (fact,) = finish(collector).values()
    assert (fact.points, fact.first_offset, fact.bytes_read) == (1, size, path.stat().st_size - size)


def test_old_json_lines_that_are_written_anew_count_whole(tmp_path: Path, store: MetricStore) -> None:
    """A trainer opens metrics.jsonl with "w": same inode, longer than before, another content."""
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 900, "loss": 9}\n')
    collector = MetricCollector(store, [tmp_path], out_dir=tmp_path)
    collector.inventory()
    with path.open("w") as file:
        file.write("".join(f'{{"step": {step}, "loss": 1}}\n' for step in range(10)))
    (fact,) = finish(collector).values()
    assert (fact.points, fact.first_offset, fact.last_step) == (10, 0, 9)


def test_old_file_copied_in_is_stale(tmp_path: Path, store: MetricStore) -> None:
    """Its bytes are new, its events are not; ten minutes of clock difference are allowed."""
    old = write(tmp_path / "old" / "events.out.tfevents.1", [scalar("loss", 1, 1, LAUNCH - 7 * 86400)])
    logs = tmp_path / "logs"
    collector = MetricCollector(store, [logs])
    collector.inventory()
    logs.mkdir()
    shutil.copy(old, logs)
    write(
        logs / "events.out.tfevents.2",
        [scalar("loss", 2, 1, LAUNCH - 599), scalar("loss", 3, 1, LAUNCH - 601)],
    )
    facts = finish(collector)
    assert [(f.points, f.stale_points) for f in facts.values()] == [(0, 1), (1, 1)]
    assert [p.step for p in store.series("loss")] == [2]
    assert [p.step for p in store.series("loss", standing=Standing.STALE)] == [1, 3]


def test_old_file_without_a_clock_copied_in_with_its_time_is_stale(
    tmp_path: Path, store: MetricStore
) -> None:
    """`cp -p` keeps the time of modification, which is all that such a source tells."""
    collector = MetricCollector(store, [tmp_path])
    collector.inventory()
    for name, modified in (("old.jsonl", LAUNCH - 86400), ("new.jsonl", LAUNCH + 1)):
        (tmp_path / name).write_text('{"step": 1, "loss": 1}\n')
        os.utime(tmp_path / name, (modified, modified))
    facts = finish(collector)
    assert (facts["old.jsonl"].stale_points, facts["new.jsonl"].points) == (1, 1)


def test_old_file_moved_into_the_directory_does_not_count(tmp_path: Path, store: MetricStore) -> None:
    """The inventory knows inodes, not only names."""
    path = write(tmp_path / "events.out.tfevents.1", curve("loss", 0, 1))
    collector = MetricCollector(store, [tmp_path])
    collector.inventory()
    path.rename(tmp_path / "events.out.tfevents.2")
    assert finish(collector) == {}


def test_file_that_appears_after_the_exit_is_found_by_the_last_poll(
    tmp_path: Path, store: MetricStore
) -> None:
    """A writer that flushes late, in a directory that did not exist."""
    collector = MetricCollector(store, [tmp_path / "logs"])
    collector.inventory()
    collector.poll(now=LAUNCH, launched_at=LAUNCH)
    write(tmp_path / "logs" / "a" / "b" / "events.out.tfevents.1", curve("loss", 5))
    (fact,) = finish(collector).values()
    assert (fact.points, fact.run) == (1, "a/b")


def test_subdirectories_and_roots_are_runs_of_their_own(tmp_path: Path, store: MetricStore) -> None:
    """The first root that has a file gives no prefix; the next one's name keeps it apart; evaluations are
    told."""
    for place in ("one/train", "one/validation", "two"):
        write(tmp_path / place / "events.out.tfevents.1", curve("epoch_loss", 1))
    (tmp_path / "two" / "eval_metrics.jsonl").write_text('{"step": 1, "loss": 1}\n')
    collector = MetricCollector(
        store, [tmp_path / "one", tmp_path / "two"], eval_tag_patterns=EVAL_TAG_PATTERNS
    )
    collector.finish(now=LAUNCH, launched_at=0.0)
    assert [(t.run, t.tag, t.phase) for t in store.tags()] == [
        ("train", "epoch_loss", Phase.TRAIN),
        ("two", "epoch_loss", Phase.TRAIN),
        ("two/eval_metrics", "loss", Phase.EVAL),
        ("validation", "epoch_loss", Phase.EVAL),
    ]


@pytest.mark.parametrize("how", ["truncated", "replaced", "in place"])
def test_file_that_begins_again_is_another_source(tmp_path: Path, store: MetricStore, how: str) -> None:
    """The new content counts whole, the old is kept as the writer before, and the break is reported."""
    path = write(tmp_path / "events.out.tfevents.1", curve("loss", *range(10)))
    collector = MetricCollector(store, [tmp_path])
    collector.poll(now=LAUNCH, launched_at=LAUNCH)
    again = curve("loss", *range(5, 8 if how == "truncated" else 60), offset=100.0)
    if how == "replaced":
        write(tmp_path / "new", again).replace(path)
    else:
        write(path, again)
    facts = collector.finish(now=LAUNCH + 200, launched_at=LAUNCH)
    assert [fact.points for fact in facts] == [10, len(again)]
    assert [problem.code for problem in facts[0].problems] == [
        "replaced" if how == "replaced" else "truncated"
    ]
    assert [p.step for p in store.series("loss")] == list(range(5 + len(again)))


def test_renamed_file_is_followed(tmp_path: Path, store: MetricStore) -> None:
    """Its events are not read twice."""
    path = write(tmp_path / "events.out.tfevents.1", curve("loss", 0, 1))
    collector = MetricCollector(store, [tmp_path])
    collector.poll(now=LAUNCH, launched_at=LAUNCH)
    (tmp_path / "done").mkdir()
    write(path.rename(tmp_path / "done" / path.name), curve("loss", 2), append=True)
    (fact,) = finish(collector).values()
    assert (fact.points, Path(fact.path).parent.name) == (3, "done")


def test_deleted_directory_is_survived_and_reported(tmp_path: Path, store: MetricStore) -> None:
    """What was read is kept; file and directory are said to be gone."""
    logs = tmp_path / "logs"
    write(logs / "events.out.tfevents.1", curve("loss", 0, 1))
    collector = MetricCollector(store, [logs])
    collector.poll(now=LAUNCH, launched_at=LAUNCH)
    shutil.rmtree(logs)
    collector.poll(now=LAUNCH, launched_at=LAUNCH)
    (fact,) = finish(collector).values()
    assert (fact.points, fact.still_there, [p.code for p in fact.problems]) == (2, False, ["vanished"])
    assert [(problem.code, problem.path) for problem in collector.problems] == [("vanished", logs)]
    assert [p.step for p in store.series("loss")] == [0, 1]


def test_restart_marker_reaches_the_store(tmp_path: Path, store: MetricStore) -> None:
    """SummaryWriter(purge_step=2) in the same file."""
    write(
        tmp_path / "events.out.tfevents.1", [*curve("loss", 0, 1, 2, 3), session_start(2), *curve("loss", 2)]
    )
    finish(MetricCollector(store, [tmp_path]))
    assert [p.step for p in store.series("loss")] == [0, 1, 2]


def test_json_lines_that_are_no_metrics_are_left_alone(tmp_path: Path, store: MetricStore) -> None:
    """Data sets, samples and the harness's own journal."""
    (tmp_path / "data.jsonl").write_text('{"prompt": "a", "answer": 1}\n' * 10)
    (tmp_path / "rollout_samples.17.jsonl").write_text('{"step": 1, "reward": 1}\n')
    (tmp_path / "journal.jsonl").write_text('{"step": 1, "reward": 1}\n')
    assert finish(MetricCollector(store, [tmp_path])) == {}


def test_where_it_is_only_known_to_save_a_name_tells_metrics(tmp_path: Path, store: MetricStore) -> None:
    """Predictions have a loss, too; in a directory that is named for metrics each counts."""
    saved, logs = tmp_path / "saved", tmp_path / "logs"
    collector = MetricCollector(store, [logs, saved], guessed_roots=[saved])
    collector.inventory()
    for place in (saved, logs):
        place.mkdir()
        for name in ("predictions.jsonl", "teacher_metrics.jsonl", "Metrics.jsonl", "train-log.jsonl", "labels.csv"):
            rows = "step,loss\n1,2\n2,1\n" if name.endswith("csv") else '{"step": 1, "loss": 2}\n'
            (place / name).write_text(rows)
    collector.poll(now=time.time(), launched_at=time.time() - 1)
    collector.finish(now=time.time(), launched_at=time.time() - 1)
    found = {Path(source.path).relative_to(tmp_path) for source in collector.sources() if source.points}
    assert {path.name for path in found if path.parts[0] == "saved"} == {"Metrics.jsonl", "train-log.jsonl"}
    assert len(found) == 7


def test_walk_survives_loops_and_stays_bounded(
    tmp_path: Path, store: MetricStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Links that lead up, links to nothing, pipes, and more entries than anyone should look at."""
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "tfevents.dangling").symlink_to(tmp_path / "nothing")
    os.mkfifo(tmp_path / "tfevents.pipe")
    path = write(tmp_path / "events.out.tfevents.1", curve("loss", 0))
    (tmp_path / "tfevents.again").symlink_to(path)
    assert len(finish(MetricCollector(store, [tmp_path]))) == 1
    monkeypatch.setattr(discovery, "MAX_ENTRIES", 2)
    bounded = MetricCollector(store, [tmp_path])
    bounded.inventory()
    assert [problem.code for problem in bounded.problems] == ["unreadable"]


WRITER = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from tests.unit.event_files import scalar
from tensorboard.summary.writer.record_writer import RecordWriter
with Path(sys.argv[1]).open("ab") as file:
    RecordWriter(file).write(scalar("loss", 1, 0.5, float(sys.argv[2])).SerializeToString())
    file.flush()
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def writer() -> Iterator[Callable[[Path], int]]:
    """Starts processes that write one event and hold their file open; gives the PID."""
    started: list[subprocess.Popen[str]] = []

    def start(path: Path) -> int:
        path.parent.mkdir(exist_ok=True)
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), str(time.time()), str(ROOT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        return process.pid

    yield start
    for process in started:
        process.communicate()


proc = pytest.mark.skipif(not Path("/proc/self/fdinfo").exists(), reason="no /proc")


@proc
def test_files_of_a_shared_directory_are_sorted_by_who_writes_them(
    tmp_path: Path, store: MetricStore, writer: Callable[[Path], int]
) -> None:
    """The run's own process, another process, and nobody who is seen."""
    write(tmp_path / "events.out.tfevents.0", curve("loss", 0))
    collector = MetricCollector(store, [tmp_path], run_pids=lambda: {own})
    collector.inventory()
    launched = time.time()
    own = writer(tmp_path / "events.out.tfevents.1")
    writer(tmp_path / "events.out.tfevents.2")
    write(tmp_path / "events.out.tfevents.3", [scalar("lr", 1, 1, launched)])
    facts = {Path(f.path).name[-1]: f for f in collector.finish(now=time.time(), launched_at=launched)}
    assert {name: (f.ownership, f.points, f.foreign_points) for name, f in facts.items()} == {
        "1": ("own", 1, 0),
        "2": ("foreign", 0, 1),
        "3": ("unknown", 0, 1),
    }
    assert sum(t.fresh_points for t in store.tags()) == 1


@proc
def test_process_from_before_the_launch_is_foreign_in_any_directory(
    tmp_path: Path, store: MetricStore, writer: Callable[[Path], int]
) -> None:
    """It was there first and has nothing to do with the run, though the directory is the run's own."""
    writer(tmp_path / "late" / "events.out.tfevents.1")
    time.sleep(0.05)
    collector = MetricCollector(store, [tmp_path], run_pids=set)
    (fact,) = collector.finish(now=time.time(), launched_at=time.time() + 3.0)
    assert (fact.ownership, fact.points, fact.foreign_points, fact.last_step) == ("foreign", 0, 1, None)


@proc
def test_process_from_after_the_launch_leaves_an_own_directory_unknown(
    tmp_path: Path, store: MetricStore, writer: Callable[[Path], int]
) -> None:
    """It may be the run's (a container, a daemon's worker): its points count, and the doubt is said."""
    collector = MetricCollector(store, [tmp_path], run_pids=set)
    collector.inventory()
    launched = time.time() - 5
    writer(tmp_path / "events.out.tfevents.1")
    (fact,) = collector.finish(now=time.time(), launched_at=launched)
    assert (fact.ownership, fact.points) == ("unknown", 1)


@proc
def test_event_file_that_the_run_holds_outside_the_roots_is_followed(
    tmp_path: Path, store: MetricStore, writer: Callable[[Path], int]
) -> None:
    """A trainer logs where nobody said; old files beside it are not taken."""
    elsewhere = tmp_path / "elsewhere"
    write(elsewhere / "events.out.tfevents.0", curve("loss", 0))
    pid = writer(elsewhere / "events.out.tfevents.1")
    collector = MetricCollector(store, [tmp_path / "logs"], run_pids=lambda: {pid})
    collector.inventory()
    launched = time.time() - 60
    collector.poll(now=time.time(), launched_at=launched)
    (fact,) = collector.finish(now=time.time(), launched_at=launched)
    assert (Path(fact.path).name, fact.points, fact.ownership) == ("events.out.tfevents.1", 1, "own")


def test_added_root_takes_stock_first(tmp_path: Path, store: MetricStore) -> None:
    """What a directory held when it was named does not count."""
    path = write(tmp_path / "more" / "events.out.tfevents.1", curve("loss", 0))
    collector = MetricCollector(store, [tmp_path / "logs"])
    collector.add_root(tmp_path / "more")
    write(path, curve("loss", 1), append=True)
    (fact,) = finish(collector).values()
    assert (fact.points, fact.first_step) == (1, 1)


def test_source_fact_is_json(tmp_path: Path, store: MetricStore) -> None:
    """Also with a problem in it."""
    path = write(tmp_path / "events.out.tfevents.1", curve("loss", 0, 1))
    path.write_bytes(path.read_bytes()[:-3])
    (fact,) = finish(MetricCollector(store, [tmp_path])).values()
    shown = json.loads(json.dumps(fact.to_json(), allow_nan=False))
    assert [problem["code"] for problem in shown["problems"]] == ["cut-tail"]
    assert (shown["points"], shown["kind"]) == (1, "tensorboard")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("events.out.tfevents.1796014016.vm.13924.0", ("vm", 13924, 0)),
        ("events.out.tfevents.1768000000.node0.1.0.v2", ("node0", 1, 0)),
        ("events.out.tfevents.1768000000.gpu-1.cluster.local.77.3", ("gpu-1.cluster.local", 77, 3)),
        ("events.out.tfevents.1768000000.host", ("host", None, None)),
        ("metrics.jsonl", None),
    ],
)
def test_writer_in_name(name: str, expected: tuple[str, int | None, int | None] | None) -> None:
    """Host and PID, as they inform."""
    found = writer_in_name(name)
    assert (None if found is None else (found.host, found.pid, found.number)) == expected


def test_kind_of_goes_by_name() -> None:
    """Both kinds, and what only looks like them."""
    names = ["events.out.tfevents.1", "a.jsonl", "journal.jsonl", "rollout_samples_3.jsonl", "train.log"]
    assert [kind_of(name) for name in names] == ["tensorboard", "jsonl", None, None, None]


@proc
def test_values_of_a_foreign_file_are_forgotten(
    tmp_path: Path, store: MetricStore, writer: Callable[[Path], int]
) -> None:
    """They were read before their writer was seen; neither progress nor a cap may go by them."""
    collector = MetricCollector(store, [tmp_path], run_pids=set)
    writer(tmp_path / "events.out.tfevents.1")
    time.sleep(0.05)
    collector.poll(now=time.time(), launched_at=time.time() + 3.0)
    assert collector.latest == {}


def test_file_that_is_rewritten_without_end_is_left_at_last(
    tmp_path: Path, store: MetricStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The facts stay bounded, and the last problem says why nothing more was read."""
    monkeypatch.setattr(collector_module, "_MAX_RESTARTS", 2)
    path = tmp_path / "metrics.jsonl"
    collector = MetricCollector(store, [tmp_path])
    for number in range(9, 0, -1):
        path.write_text('{"step": 1, "loss": 1}\n' * number)
        collector.poll(now=LAUNCH, launched_at=LAUNCH)
    facts = collector.finish(now=LAUNCH, launched_at=LAUNCH)
    assert [len(fact.problems) for fact in facts] == [1, 1, 1]


def rows(path: Path, *steps: int) -> Path:
    """Append, as a trainer does that opens its file for each row."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for step in steps:
        with path.open("a") as file:
            file.write(f'{{"step": {step}, "loss": {2 - step / 1e4}}}\n')
    return path


def event_name(host: str, pid: int, created: float | None = None) -> str:
    return f"events.out.tfevents.{int(created or time.time())}.{host}.{pid}.0"


class Launch:
    """A collector with an inventory of the default root `logs` (and of what was named for the run)."""

    def __init__(self, store: MetricStore, place: Path, *named: str, run: Collection[int] = ()) -> None:
        self.logs, self.run = place / "logs", set(run)
        roots = [self.logs, *(place / name for name in named)]
        self.collector = MetricCollector(
            store, roots, run_pids=lambda: self.run, explicit_roots=[place / name for name in named]
        )
        self.collector.inventory()
        self.launched_at = time.time()

    def poll(self) -> None:
        self.collector.poll(now=time.time(), launched_at=self.launched_at)

    def finish(self) -> dict[str, tuple[str, int, int]]:
        """{path below the place: (ownership, points that count, points that do not)}."""
        facts = self.collector.finish(now=time.time(), launched_at=self.launched_at)
        place = self.logs.parent
        return {
            str(Path(fact.path).relative_to(place)): (fact.ownership, fact.points, fact.foreign_points)
            for fact in facts
        }


@pytest.mark.parametrize("mine", ["logs/mine", "logs", "out"])
def test_another_directory_below_a_default_root_does_not_complete_the_run(
    tmp_path: Path, store: MetricStore, mine: str
) -> None:
    """Ours stops at step 20; another process opens, appends and closes logs/other/metrics.jsonl."""
    rows(tmp_path / "logs" / "past" / "metrics.jsonl", 1)
    launch = Launch(store, tmp_path, "out", run=[4_200_001])
    name = event_name(socket.gethostname(), 4_200_001)
    now = time.time()
    write(tmp_path / mine / name, [scalar("loss", step, 1.0, now) for step in range(1, 21)])
    rows(tmp_path / "logs" / "other" / "metrics.jsonl", *range(5001, 5040))
    launch.poll()
    latest = launch.collector.latest.values()
    assert [(latest.step, latest.ownership) for latest in latest] == [(20, "own")]
    facts = launch.finish()
    assert facts == {f"{mine}/{name}": ("own", 20, 0), "logs/other/metrics.jsonl": ("unknown", 0, 39)}
    (aside,) = [fact for fact in launch.collector.sources() if fact.ownership == "unknown"]
    assert aside.set_aside and aside.last_step is None
    assert {point.step for point in store.series("loss")} == set(range(1, 21))


def test_two_writers_that_nobody_saw_leave_both_unknown(tmp_path: Path, store: MetricStore) -> None:
    """Below a default root: either may be the run's; the values say so to progress and cap."""
    launch = Launch(store, tmp_path)
    rows(tmp_path / "logs" / "mine" / "metrics.jsonl", 1, 2)
    launch.poll()
    assert [latest.ownership for latest in launch.collector.latest.values()] == ["own"]
    rows(tmp_path / "logs" / "other" / "metrics.jsonl", 5001)
    launch.poll()
    assert [latest.ownership for latest in launch.collector.latest.values()] == ["unknown"] * 2
    assert launch.finish() == {
        "logs/mine/metrics.jsonl": ("unknown", 2, 0),
        "logs/other/metrics.jsonl": ("unknown", 1, 0),
    }


@pytest.mark.parametrize(
    "files",
    [
        ["logs/metrics.jsonl"],
        ["logs/new/metrics.jsonl", "logs/new/deeper/eval.jsonl"],
        ["logs/train/metrics.jsonl", "logs/validation/metrics.jsonl"],
        ["out/a/metrics.jsonl", "out/b/metrics.jsonl"],
    ],
    ids=str,
)
def test_only_writer_that_appeared_is_the_run(tmp_path: Path, store: MetricStore, files: list[str]) -> None:
    """A healthy run that opens, appends and closes, though last week's runs lie beside it."""
    rows(tmp_path / "logs" / "past" / "metrics.jsonl", 1)
    launch = Launch(store, tmp_path, "out")
    for name in files:
        rows(tmp_path / name, 1, 2)
    assert launch.finish() == dict.fromkeys(files, ("own", 2, 0))


def test_file_beside_the_proven_one_is_the_run_too(tmp_path: Path, store: MetricStore) -> None:
    """Event files by PID, JSON lines in the same new directory and above it by the company they keep."""
    rows(tmp_path / "logs" / "past" / "metrics.jsonl", 1)
    launch = Launch(store, tmp_path, run=[4_200_001])
    name = event_name(socket.gethostname(), 4_200_001)
    write(tmp_path / "logs" / "mine" / "tb" / name, [scalar("loss", 1, 1.0, time.time())])
    rows(tmp_path / "logs" / "mine" / "metrics.jsonl", 1)
    rows(tmp_path / "logs" / "all.jsonl", 1)
    rows(tmp_path / "logs" / "another" / "metrics.jsonl", 1)
    assert {name: owner for name, (owner, *_) in launch.finish().items()} == {
        f"logs/mine/tb/{name}": "own",
        "logs/mine/metrics.jsonl": "own",
        "logs/all.jsonl": "own",
        "logs/another/metrics.jsonl": "unknown",
    }


@pytest.mark.parametrize("root", ["logs", "out"])
def test_run_again_in_the_same_directory_is_own(tmp_path: Path, store: MetricStore, root: str) -> None:
    """The files that were there are gone on with, or begun anew; nobody else was seen."""
    path = rows(tmp_path / root / "metrics.jsonl", 1, 2)
    rows(tmp_path / "out" / "eval" / "metrics.jsonl", 1)
    launch = Launch(store, tmp_path, "out")
    rows(path, 3)
    expected = {f"{root}/metrics.jsonl": ("own", 1, 0)}
    if root == "out":
        rows(tmp_path / "out" / "eval" / "metrics.jsonl", 2)
        expected["out/eval/metrics.jsonl"] = ("own", 1, 0)
    assert launch.finish() == expected


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([("here", 4_200_001, 0.0)], "own"),
        ([("here", 4_200_001, -3600.0)], "unknown"),
        ([("elsewhere", 2, 0.0)], "unknown"),
        ([("here", 4_200_001, 0.0), ("here", 4_200_002, 0.0)], "unknown"),
    ],
    ids=["too fast to be seen", "from before the launch", "another host", "two writers"],
)
def test_event_file_in_a_directory_with_old_ones(
    tmp_path: Path, store: MetricStore, names: list[tuple[str, int, float]], expected: str
) -> None:
    """Its name may speak against the run."""
    write(tmp_path / "logs" / event_name("elsewhere", 1, LAUNCH), curve("loss", 1))
    launch = Launch(store, tmp_path)
    for host, pid, offset in names:
        name = event_name(socket.gethostname() if host == "here" else host, pid, time.time() + offset)
        write(tmp_path / "logs" / name, [scalar("loss", 1, 1.0, time.time())])
    assert {owner for owner, *_ in launch.finish().values()} == {expected}


def test_change_between_inventory_and_launch_is_of_another(tmp_path: Path, store: MetricStore) -> None:
    """Somebody went on with the file before the run was there."""
    path = rows(tmp_path / "logs" / "metrics.jsonl", 1)
    launch = Launch(store, tmp_path)
    rows(path, 2)
    os.utime(path, (launch.launched_at - 5, launch.launched_at - 5))
    assert launch.finish() == {"logs/metrics.jsonl": ("unknown", 1, 0)}


def test_directory_that_was_named_is_no_proof_where_it_held_other_runs(tmp_path: Path, store: MetricStore) -> None:
    """`--log-dir out` with a directory for each run in it; the old files of a proven run's rerun are its own."""
    rows(tmp_path / "out" / "eval" / "metrics.jsonl", 1)
    write(tmp_path / "out" / event_name("elsewhere", 1, LAUNCH), curve("loss", 1))
    launch = Launch(store, tmp_path, "out", run=[4_200_001])
    name = event_name(socket.gethostname(), 4_200_001)
    write(tmp_path / "out" / name, [scalar("loss", 1, 1.0, time.time())])
    rows(tmp_path / "out" / "eval" / "metrics.jsonl", 2)
    rows(tmp_path / "out" / "other" / "metrics.jsonl", 5001)
    assert launch.finish() == {
        f"out/{name}": ("own", 1, 0),
        "out/eval/metrics.jsonl": ("own", 1, 0),
        "out/other/metrics.jsonl": ("unknown", 0, 1),
    }


ORPHAN = """
import os, sys
if os.fork() == 0:
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        sys.stdin.read()
    os._exit(0)
os.wait()
sys.stdin.read()
"""


@proc
@pytest.mark.parametrize("how", ["zombie", "child", "session", "marker", "seen once", "nothing"])
def test_process_that_a_file_names_may_be_the_run_without_being_seen_in_it(
    tmp_path: Path, store: MetricStore, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """By ancestor, session or marker; by having been seen once; a zombie of unknown kin tells nothing."""
    monkeypatch.delenv("REAL_STEP_RUN_TOKEN", raising=False)

    def start(token: str) -> tuple[subprocess.Popen[str], int]:
        process = subprocess.Popen(
            [sys.executable, "-c", ORPHAN],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, **({"REAL_STEP_RUN_TOKEN": token} if token else {})},
        )
        assert process.stdout is not None
        return process, int(process.stdout.readline())

    leader, orphan = start("" if how == "session" else "run")
    other, _ = start("run" if how == "marker" else "")
    pid = {"session": orphan, "child": leader.pid}.get(how, other.pid)
    run = {os.getppid()} if how == "child" else {leader.pid}
    write(tmp_path / "logs" / event_name("elsewhere", 1, LAUNCH), curve("loss", 1))
    launch = Launch(store, tmp_path, run={pid} if how == "seen once" else run)
    launch.collector.observe_run_pids()
    launch.run = run
    name = event_name(socket.gethostname(), pid)
    write(tmp_path / "logs" / name, [scalar("loss", 1, 1.0, time.time())])
    try:
        if how == "zombie":
            other.kill()
            os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
        launch.poll()
        facts = launch.finish()
    finally:
        for process in (leader, other):
            process.kill()
            process.communicate()
    assert facts[f"logs/{name}"][0] == ("foreign" if how == "nothing" else "own")


def test_flooded_output_is_read_little_by_little(
    tmp_path: Path, store: MetricStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the job prints more than can be read, little is read between looks at its pipe; all of it in the end."""
    piece = 64 << 10
    monkeypatch.setattr(stdout, "CHUNK_BYTES", piece)
    monkeypatch.setattr(output, "FLOODED_BYTES_PER_POLL", 2 * piece)
    monkeypatch.setattr(output, "BYTES_PER_POLL", 4 * piece)
    monkeypatch.setattr(output, "MAX_LAG_BYTES", 6 * piece)
    log = tmp_path / "train.log"
    log.write_bytes(b"".join(b"step=%04d loss=0.5 %s\n" % (step, b"." * 80) for step in range(7500)))
    collector = MetricCollector(store, [])
    collector.add_output(log)
    read = []
    for taken in (9 * piece, 9 * piece, 9 * piece, piece, 9 * piece):
        collector.output.set_flooded(taken)
        before = collector.output.files[0].reader.bytes_read
        collector.poll(now=time.time(), launched_at=LAUNCH)
        read.append(round((collector.output.files[0].reader.bytes_read - before) / piece))
    assert read == [2, 4, 2, 3, 0]
    finish(collector)
    assert [point.step for point in store.series("loss")] == list(range(7500))
