"""Out-dirs that are left over, odd or hostile: nothing of them is evidence, hangs, or ends in a traceback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from harness.cli import main
from harness.errors import RecordError
from harness.judge.report import write_report
from harness.judge.verify import range_digest, verify
from harness.probe.reader import read_probe
from harness.record import outdir
from harness.record.events import MetricEvent
from harness.record.files import dump_json, read_json, write_json, write_text
from harness.record.journal import Journal, read_journal
from harness.record.run_record import open_record
from harness.record.store import MetricStore
from tests.unit.run_dirs import RunDir


def probe_file(directory: Path, updated_at: float) -> None:
    """One process that stepped, as the probe writes it."""
    directory.mkdir(exist_ok=True)
    grad = {"checked": 1, "nonzero": 1, "nonfinite": 0, "gave_up": 0, "last_nonzero": True}
    (directory / f"{updated_at}.json").write_text(json.dumps({
        "format": 1, "pid": 1, "ppid": 1, "host": "h", "torch": "2", "started_at": updated_at,
        "updated_at": updated_at, "optimizers_created": 1, "steps": 3, "steps_total": 3, "lr_positive_steps": 3,
        "lr_unknown_steps": 0, "scaler_skips": 0, "grad": grad, "optimizers": [], "first_step_at": updated_at,
        "last_step_at": updated_at, "clean_exit": True}))


def test_probe_files_of_before_the_launch_do_not_count(tmp_path: Path) -> None:
    """A process that last wrote before `since` is a problem line, and an old marker says nothing."""
    now = time.time()
    probe_file(tmp_path, now - 100)
    (tmp_path / "loaded").write_text("")
    (tmp_path / "problems.log").write_text("old\n")
    for name in ("loaded", "problems.log"):
        os.utime(tmp_path / name, (now - 100, now - 100))
    stale = read_probe(tmp_path, since=now - 2)
    assert (stale.loaded, stale.processes) == (False, ())
    assert [problem for problem in stale.problems if "not of this run" in problem] == list(stale.problems)
    probe_file(tmp_path, now)
    assert [process.updated_at for process in read_probe(tmp_path, since=now - 2).processes] == [now]
    assert len(read_probe(tmp_path).processes) == 2


@pytest.mark.parametrize("left", ["probe", "train.log", "train.3.log", "metrics.db", "progress.log", "metric-events"])
def test_any_artifact_is_archived(left: str, tmp_path: Path) -> None:
    """An artifact without spec, journal or report is an earlier run's too."""
    if left in ("probe", "metric-events"):
        (tmp_path / left).mkdir()
    else:
        (tmp_path / left).write_text("earlier")
    assert outdir.archive_earlier_run(tmp_path) == tmp_path / "attempts" / "unknown"
    assert [path.name for path in tmp_path.iterdir()] == ["attempts"]


def test_files_of_the_user_are_no_artifacts(tmp_path: Path) -> None:
    """training-notes.log, and a package that happens to be called probe."""
    names = ("training-notes.log", "train_old.log", "train.log.gz")
    for name in names:
        (tmp_path / name).write_text("mine")
    (tmp_path / "probe").mkdir()
    (tmp_path / "probe" / "__init__.py").write_text("")
    assert outdir.archive_earlier_run(tmp_path) is None
    (tmp_path / "train.log").write_text("earlier")
    assert outdir.archive_earlier_run(tmp_path) is not None
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted((*names, "attempts", "probe"))


def test_archiving_goes_on_after_a_kill_at_any_file(tmp_path: Path) -> None:
    """The next call moves the rest into the same directory, whichever rename was the last."""
    code = ("import os, signal, sys\nfrom pathlib import Path\nfrom harness.record import outdir\n"
            "left, rename = [int(sys.argv[2])], Path.rename\n"
            "def dying(self, target):\n"
            "    left[0] -= 1\n"
            "    if left[0] < 0: os.kill(os.getpid(), signal.SIGKILL)\n"
            "    return rename(self, target)\n"
            "Path.rename = dying\n"
            "outdir.archive_earlier_run(Path(sys.argv[1]))\n")
    for moved in range(4):
        place = RunDir().write(tmp_path / str(moved))
        probe_file(place / "probe", 1.0)
        (place / "train.log").write_text("log")
        names = sorted(path.name for path in place.iterdir())
        done = subprocess.run([sys.executable, "-c", code, str(place), str(moved)], check=False, timeout=300)
        assert done.returncode == -signal.SIGKILL
        assert (place / outdir.RUN_SPEC).exists()
        assert outdir.archive_earlier_run(place) == place / "attempts" / "made"
        assert sorted(path.name for path in (place / "attempts" / "made").iterdir()) == names
        assert [path.name for path in place.iterdir()] == ["attempts"]


def test_lone_surrogates_are_written_and_read_back(tmp_path: Path) -> None:
    """The undecodable byte of a command or path goes through every artifact."""
    text = "python \udcff.py"
    dump_json(text).encode()
    write_json(tmp_path / "a.json", {"command": text, "odd": "\ud800"})
    assert read_json(tmp_path / "a.json") == {"command": text, "odd": "\ud800"}
    write_text(tmp_path / "b.txt", text)
    assert (tmp_path / "b.txt").read_bytes() == b"python \xff.py"
    write_text(tmp_path / "c.txt", "\ud800")
    with Journal(tmp_path / "journal.jsonl") as journal:
        journal.write("command", text=text)
    assert read_journal(tmp_path / "journal.jsonl")[0][0]["text"] == text


def test_store_takes_names_that_are_no_utf8(tmp_path: Path) -> None:
    """A path with an undecodable byte and a tag with a lone surrogate are stored escaped."""
    with MetricStore.create(tmp_path / "metrics.db") as store:
        source = store.add_source(kind="jsonl", path="/pr\udcff/metrics.jsonl", run="r\udcff")
        store.append(source, [MetricEvent("loss\ud800", 1, 0.5, 1.0)], observed_at=1.0)
        assert store.sources()[0].path == "/pr\\udcff/metrics.jsonl"
        (tag,) = store.tags()
        assert [point.value for point in store.series(tag.tag, run=tag.run)] == [0.5]


ODD_ENTRIES = [
    ({"event": "sources", "time": 1.0, "sources": 5}, "sources is not a list"),
    ({"event": "sources", "time": 1.0, "sources": [{"sha256": "x"}]}, "sources[0].path is missing"),
    ({"event": "sources", "time": 1.0, "sources": ["x"]}, "sources[0] is not an object"),
    ({"event": "checkpoints", "time": 1.0, "facts": [1]}, "facts is not an object"),
    ({"event": "checkpoints", "time": 1.0, "facts": {"checkpoints": [{"path": "a", "files": 3}]}},
     "files is not a list"),
    ({"event": "probe", "time": 1.0, "facts": [1]}, "facts is not an object"),
    ({"event": "attempt-ended", "time": 1.0, "exit_code": "0"}, "exit_code is not a whole number"),
    ({"event": "attempt-ended", "time": 1.0, "exit_code": False}, "exit_code is not a whole number"),
    ({"event": "command", "time": 1.0, "argv": "x"}, "argv is not a list"),
    ({"event": "stragglers"}, "is not a time"),
    ({"event": "log-end", "time": "x"}, "is not a time"),
    ({"event": "log-end", "time": 1e300}, "is not a time"),
    ({"event": "log-end", "time": True}, "is not a time"),
    ({"event": "log-end", "time": 1.0, "seq": "x"}, "seq"),
    ({"event": 5, "time": 1.0}, "event is not a text"),
    ({"time": 1.0}, "event is not a text"),
]


@pytest.mark.parametrize(("entry", "problem"), ODD_ENTRIES, ids=lambda value: str(value)[:60])
def test_oddly_typed_entries_are_left_out_and_reported(
    entry: dict[str, Any], problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither verify nor the report breaks on them, and the record names them."""
    place = RunDir().write(tmp_path)
    with (place / "journal.jsonl").open("a") as handle:
        handle.write(json.dumps({"seq": 99, **entry}) + "\n")
    with open_record(place) as record:
        assert any(problem in line for line in record.problems), record.problems
    assert main(["verify", str(place)]) == 0
    assert json.loads(capsys.readouterr().out)["decision"] == "GO"


@pytest.mark.parametrize("odd", [5, "x(", [1], [{}], None], ids=str)
def test_no_odd_value_anywhere_is_a_traceback(odd: Any, tmp_path: Path) -> None:
    """Every field of every entry, and every field one level below, replaced: an answer with its exit code."""
    place = RunDir().write(tmp_path)
    entries, _ = read_journal(place / "journal.jsonl")
    spots = [(number, key, inner) for number, entry in enumerate(entries) for key, value in entry.items()
             for inner in (None, *(value if isinstance(value, dict) else ()))]
    for number, key, inner in spots:
        changed = [dict(entry) for entry in entries]
        changed[number][key] = odd if inner is None else {**changed[number][key], inner: odd}
        (place / "journal.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in changed))
        (place / outdir.REPORT).unlink(missing_ok=True)
        assert main(["verify", str(place)]) in (0, 1, 3), (number, key, inner)


def test_what_still_breaks_judging_is_could_not_judge(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 3 with the place, for content that no shape names (a spec's number that is a list)."""
    place = RunDir().write(tmp_path)
    write_json(place / outdir.RUN_SPEC, {**read_json(place / outdir.RUN_SPEC), "loss_tag": ["x"]})
    assert main(["verify", str(place)]) == 3
    assert "cannot be judged" in json.loads(capsys.readouterr().out)["error"]


@pytest.mark.parametrize("name", [outdir.RUN_SPEC, outdir.JOURNAL])
@pytest.mark.parametrize("kind", ["pipe", "device", "directory"])
def test_inputs_that_are_no_files_are_refused(name: str, kind: str, tmp_path: Path) -> None:
    """Neither a hang nor endless reading."""
    place = RunDir().write(tmp_path)
    replace(place / name, kind)
    with pytest.raises(RecordError, match=r"not a regular file"):
        verify(place)


@pytest.mark.parametrize("kind", ["pipe", "device", "directory"])
def test_report_and_lease_that_are_no_files_do_not_hang(kind: str, tmp_path: Path) -> None:
    """A disagreement; the lease says that nobody holds it."""
    place = RunDir().write(tmp_path)
    write_report(place)
    replace(place / outdir.REPORT, kind)
    replace(place / outdir.LEASE, kind)
    assert "not a regular file" in str(verify(place)["disagreements"])
    assert "not a regular file" in range_digest(place / outdir.REPORT, 0, 1 << 60)


def test_huge_json_is_refused(tmp_path: Path) -> None:
    """65 MiB of a sparse file."""
    with (tmp_path / "big.json").open("wb") as handle:
        handle.truncate(65 << 20)
    with pytest.raises(ValueError, match="longer than"):
        read_json(tmp_path / "big.json")


def replace(path: Path, kind: str) -> None:
    """Put something else in the place of a file."""
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()


def test_running_run_is_not_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`running` and no decision, whatever is written so far; exit 1."""
    place = RunDir(ended=False).write(tmp_path)
    with outdir.Lease(place):
        assert main(["verify", str(place)]) == 1
        result = json.loads(capsys.readouterr().out)
    assert (result["ok"], result["running"], result["decision"]) == (False, True, None)
    assert not (place / outdir.REPORT).exists()
    assert verify(place)["running"] is False


def test_count_of_points_says_what_it_takes(capsys: pytest.CaptureFixture[str]) -> None:
    """`metrics --last x` names the value and no function of this program."""
    with pytest.raises(SystemExit) as stopped:
        main(["metrics", ".", "--last", "x"])
    assert stopped.value.code == 2
    assert "'x' is not a count: give a whole number above 0" in capsys.readouterr().err
