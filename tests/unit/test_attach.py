"""Sources of bytes of jobs that others started, and the names that a target may have."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.attach.local_file import LocalFile
from harness.attach.processes import find_named, find_pid, find_writer
from harness.attach.target import parse_target
from harness.errors import ConfigError
from harness.watch.ending import EndKind, read_ending

CASES = Path(__file__).with_name("cases")


def take(source: LocalFile) -> bytes:
    """Everything that is there."""
    found = b""
    while True:
        data = source.read(7)
        found += data
        if not data and source.is_current:
            return found


def kinds(source: LocalFile) -> list[str]:
    """What happened."""
    return [notice.kind for notice in source.notices()]


def test_growing_file_is_read_once(tmp_path: Path) -> None:
    """From its beginning, each byte once, nothing at its end."""
    log = tmp_path / "a.log"
    log.write_bytes(b"first line\n")
    source = LocalFile(log)
    assert take(source) == b"first line\n"
    with log.open("ab") as handle:
        handle.write(b"second, without an end")
    assert take(source) == b"second, without an end"
    assert take(source) == b""
    assert kinds(source) == []
    source.close()


def test_rotated_file_is_followed_to_the_new_one(tmp_path: Path) -> None:
    """What was added to the old one before it was closed is not lost."""
    log = tmp_path / "a.log"
    log.write_bytes(b"old ")
    source = LocalFile(log)
    assert take(source) == b"old "
    with log.open("ab") as handle:
        log.rename(tmp_path / "a.log.1")
        handle.write(b"late ")
    log.write_bytes(b"new")
    assert take(source) == b"late new"
    assert kinds(source) == ["rotated"]
    source.close()


@pytest.mark.parametrize("rewritten", [b"short", b"another content that is longer than the old"])
def test_truncated_file_is_read_from_its_start(tmp_path: Path, rewritten: bytes) -> None:
    """Also where it is longer again by the time of the look (copytruncate)."""
    log = tmp_path / "a.log"
    log.write_bytes(b"what was there before\n")
    source = LocalFile(log)
    take(source)
    log.write_bytes(rewritten)
    assert take(source) == rewritten
    assert kinds(source) == ["truncated"]
    source.close()


def test_removed_file_is_reported_once_and_met_again(tmp_path: Path) -> None:
    """The open file is followed; a new one of that name is taken when it comes."""
    log = tmp_path / "a.log"
    log.write_bytes(b"a")
    source = LocalFile(log)
    assert take(source) == b"a"
    log.unlink()
    assert take(source) == b"" == take(source)
    log.write_bytes(b"b")
    assert take(source) == b"b"
    assert kinds(source) == ["vanished", "rotated"]
    source.close()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["append", "rotate", "truncate"]), st.binary(min_size=1, max_size=200)),
                max_size=12))
def test_any_course_of_a_log_yields_every_byte_in_order(
    tmp_path_factory: pytest.TempPathFactory, course: list[tuple[str, bytes]]
) -> None:
    """Looked at after each change, the copy is what was written, whatever became of the file."""
    folder = tmp_path_factory.mktemp("course")
    log, written = folder / "a.log", b""
    log.write_bytes(b"")
    source, copied = LocalFile(log), b""
    for index, (what, data) in enumerate(course):
        data = b"%d:" % index + data
        if what == "rotate":
            log.rename(folder / f"old.{index}")
        with log.open("wb" if what == "truncate" else "ab") as handle:
            handle.write(data)
        written += data
        copied += take(source)
    source.close()
    shutil.rmtree(folder)
    assert copied == written


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a.log", "local-log"), ("pid:77", "pid"), ("proc:train.py", "pid"), ("me@host:/var/log/train.log", "remote-log"),
     ("me@10.0.0.7:logs/a b.log", "remote-log"), ("me@[::1]:/x", "remote-log"), ("wandb:tracked", "wandb"),
     ("mlflow:tracked", "mlflow"), ("pid:1", "local-log")])
def test_targets_are_told_apart(tmp_path: Path, text: str, expected: str) -> None:
    """By their form; a file that is there goes before every other reading of its name."""
    (tmp_path / "a.log").touch()
    (tmp_path / "pid:1").touch()
    (tmp_path / "tracked").mkdir()
    assert parse_target(text, tmp_path).type.value == expected


@pytest.mark.parametrize("text", ["", " ", "missing.log", "pid:", "pid:x", "pid:-1", "pid:99999999999", "proc:", "a\0b",
                                  "wandb:missing", "-oProxyCommand=x@host:/x", "host:/x", "me@host:", "@host:/x"])
def test_odd_targets_are_usage_errors(tmp_path: Path, text: str) -> None:
    """Nothing is guessed, and no word reaches ssh as an option."""
    with pytest.raises(ConfigError):
        parse_target(text, tmp_path)


def wait_until(condition: Callable[[], bool]) -> None:
    """Look until it holds, for minutes at most."""
    until = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < until, "timed out"
        time.sleep(0.02)


@pytest.fixture
def sleepers(tmp_path: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Two processes that run scripts of one name and print into logs."""
    started = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        script = tmp_path / name / "train_for_attach.py"
        script.write_text("import time; print('step=1 loss=0.5', flush=True); time.sleep(600)")
        with (tmp_path / f"{name}.log").open("wb") as log:
            started.append(subprocess.Popen([sys.executable, str(script)], stdout=log, stderr=subprocess.STDOUT,
                                            cwd=tmp_path))
    for name in ("one", "two"):
        wait_until(lambda name=name: (tmp_path / f"{name}.log").stat().st_size > 0)  # type: ignore[misc]
    yield started
    for process in started:
        process.kill()
        process.wait()


def test_process_is_found_with_its_command_and_log(sleepers: list[subprocess.Popen[bytes]], tmp_path: Path) -> None:
    """Command, directory, environment and where its output goes; a reused PID is no match."""
    living = find_pid(sleepers[0].pid)
    assert living.argv[1].endswith("train_for_attach.py")
    assert (living.cwd, living.logs()) == (tmp_path, [tmp_path / "one.log"])
    assert living.is_alive() and living.pid in living.family()
    status = (tmp_path / "two.log").stat()
    writer = find_writer((status.st_dev, status.st_ino))
    assert writer is not None and writer.pid == sleepers[1].pid
    sleepers[0].kill()
    os.waitid(os.P_PID, sleepers[0].pid, os.WEXITED | os.WNOWAIT)
    assert not living.is_alive(), "a zombie does not live"


def test_ambiguous_name_names_the_pids(sleepers: list[subprocess.Popen[bytes]]) -> None:
    """One of them has to be named; when only one is left the name is enough."""
    with pytest.raises(ConfigError) as refused:
        find_named("train_for_attach.py")
    assert all(f"pid:{process.pid}" in str(refused.value) for process in sleepers)
    sleepers[0].kill()
    sleepers[0].wait()
    assert find_named("train_for_attach.py").pid == sleepers[1].pid
    with pytest.raises(ConfigError, match="no process"):
        find_named("no-such-program-anywhere")


def test_gone_process_is_a_usage_error() -> None:
    """A PID that nobody has."""
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    process.wait()
    with pytest.raises(ConfigError, match="no such process"):
        find_pid(process.pid)


ENDINGS = {
    "01-areno-sft-noop/log_after_fix.txt": EndKind.EXCEPTION,
    "04-areno-first-worker-oom/log.txt": EndKind.EXCEPTION,
    "14-sft-all-labels-masked/log.txt": EndKind.COMPLETED,
    "31-elastic-sigkill-rank3/log.txt": EndKind.KILLED,
    "32-elastic-observed-is-not-causal/log.txt": EndKind.EXCEPTION,
    "37-oom-recovered/recovered.txt": EndKind.COMPLETED,
    "37-oom-recovered/exhausted.txt": EndKind.EXCEPTION,
    "40-exit-code-zero-lies/handler.txt": EndKind.INTERRUPTED,
    "40-exit-code-zero-lies/slurm_oom.txt": EndKind.KILLED,
    "40-exit-code-zero-lies/tee.txt": EndKind.EXCEPTION,
    "26-tqdm-rate-and-cr/mixed.txt": None,
    "recorded/output/hf.log": EndKind.COMPLETED,
    "recorded/output/lt.log": EndKind.COMPLETED,
}


@pytest.mark.parametrize("name", ENDINGS)
def test_end_of_a_log_says_how_the_run_ended(name: str) -> None:
    """The last sign counts, and of errors the first."""
    found = read_ending((CASES / name).read_bytes())
    assert (found.kind if found else None) is ENDINGS[name]


@pytest.mark.parametrize(
    "tail", [b"MeanAbsoluteError: 0.25\n", b"step=9 ValueError=3\n", b"received 15 samples\n", b"",
             b"ValueError: a bad row\n" + b"note\n" * 60, b"ValueError: a bad row\nstep=5 loss=0.5\n"])
def test_what_only_looks_like_an_end_is_none(tail: bytes) -> None:
    """Metrics of that name, and errors that the run went on after."""
    assert read_ending(tail) is None


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=4000))
def test_any_bytes_have_an_ending_or_none(tail: bytes) -> None:
    """Nothing of a log's content raises."""
    read_ending(tail)


def test_pipe_is_no_log(tmp_path: Path) -> None:
    """Reading one would take its bytes from whoever they are for."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="not a regular file"):
        LocalFile(tmp_path / "pipe")
