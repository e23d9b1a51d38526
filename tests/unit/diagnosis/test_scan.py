"""The scanner hands out every line with a sign, with its number, whatever the log is made of; memory stays flat."""

from __future__ import annotations

import os
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harness.diagnosis import events, scan
from harness.diagnosis.inputs import find_inputs, named_log
from harness.diagnosis.prefixes import split_label, stamp_in
from harness.diagnosis.read import read_run
from harness.diagnosis.scan import LogScanner, has_sign
from harness.errors import ConfigError

PIECES = st.sampled_from([
    b"step 1/9 loss 1.0\n", b"\n", b"\r\n", b"ValueError: x\n", b"\r 10%|#  | 1/9 [00:01<00:09, 1.0it/s]", b"a" * 300,
    b"Traceback (most recent call last):\n", b"  File \"a.py\", line 1, in f\n", b"KILLED\n", b"\x00\xff\xfe\n",
    "下载失败\n".encode(), b"[rank1]: ", b"x" * 70_000 + b"\n", b"out of memory", b"\r", b"During handling of it\n",
])


def naive(data: bytes) -> list[tuple[int, bytes]]:
    """(line, piece) of all pieces with a sign, the slow way."""
    found = []
    for number, line in enumerate(data.split(b"\n"), start=1):
        pieces = line.split(b"\r")
        found += [(number, piece) for piece in pieces if has_sign(piece[: scan.MAX_LINE_BYTES])]
    return found


@settings(max_examples=80, deadline=None)
@given(st.lists(PIECES, max_size=60), st.sampled_from([64, 1000, 256 << 10]))
@example([b"x" * 70_000 + b"\n", b"ValueError: x\n"] * 10, 256 << 10)
def test_lines_with_a_sign_are_handed_out(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes], block: int
) -> None:
    """The same as a plain split finds, with the same numbers; long lines are cut."""
    path = tmp_path_factory.mktemp("scan") / "run.log"
    data = b"".join(pieces)
    path.write_bytes(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan, "BLOCK_BYTES", block)
        lines = [(line.number, line.data.rstrip(b"\r")) for line in LogScanner(path).lines()]
    assert lines == [(number, piece[: scan.MAX_LINE_BYTES]) for number, piece in naive(data)]


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=4000))
def test_no_bytes_are_an_error(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    """Whatever a log holds is read to its end."""
    path = tmp_path_factory.mktemp("bytes") / "run.log"
    path.write_bytes(b"Traceback (most recent call last):\n" + data + b"\nChildFailedError\n" + data)
    assert read_run([named_log(path)], exit_code=1).num_bytes == path.stat().st_size


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=300))
def test_odd_lines_have_no_odd_labels(text: str) -> None:
    """Labels and stamps are taken from anything without an error."""
    labelled = split_label(text.encode("utf-8", "replace"))
    stamp_in(labelled.rest.decode("utf-8", "replace"))
    assert len(labelled.rest) <= len(text.encode("utf-8", "replace"))


@pytest.mark.parametrize("line", [
    b"a" * (10 << 20), b"Error" * (2 << 20), b"\r" * (10 << 20), b"Traceback (most recent call last):" * 300_000,
    b"[rank0]: " * 1_000_000, b"(" * (10 << 20), b"loss nan " * 1_000_000, b"\x1b[0m" * (2 << 20),
], ids=["letters", "errors", "returns", "headers", "labels", "brackets", "nan", "colours"])
def test_line_of_10_mb_is_bounded(line: bytes, tmp_path: Path) -> None:
    """In seconds; what stands behind it is still found."""
    path = tmp_path / "run.log"
    path.write_bytes(line + b"\nTraceback (most recent call last):\n  File \"a.py\", line 1\nKeyError: 'labels'\n")
    began = time.process_time()
    found = read_run(find_inputs([path]).logs, exit_code=1)
    assert time.process_time() - began < 120
    assert found.finding.cause is not None and found.finding.cause.text == "KeyError: 'labels'"


@pytest.mark.parametrize("line", [b"a" * (10 << 20), b"Error: x\n" * (1 << 14)], ids=["one-line", "many"])
def test_memory_is_flat(line: bytes, tmp_path: Path) -> None:
    """A few MiB for a line of 10 MB, and for thousands of lines that tell something."""
    path = tmp_path / "run.log"
    path.write_bytes(line)
    tracemalloc.start()
    read_run(find_inputs([path]).logs, exit_code=1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 24 << 20


def test_many_failures_are_bounded(tmp_path: Path) -> None:
    """600 tracebacks: the first of them, and memory that does not grow with them."""
    path = tmp_path / "run.log"
    one = b"Traceback (most recent call last):\n  File \"a.py\", line 1, in f\n    f()\nKeyError: 'labels'\n"
    path.write_bytes(one * 600)
    tracemalloc.start()
    found = read_run(find_inputs([path]).logs, exit_code=1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.finding.cause is not None and found.finding.cause.place.line == 1
    assert peak < 24 << 20


def test_middle_of_a_flood_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nearly every line is an error, the beginning and the end are read, and that is said."""
    monkeypatch.setattr(events, "MAX_LINES", 1000)
    monkeypatch.setattr(events, "TAIL_BYTES", 1 << 20)
    path = tmp_path / "run.log"
    path.write_bytes(b"Error: x\n" * 500_000 +
                     b"Traceback (most recent call last):\n  File \"a.py\", line 1\nKeyError: 1\n")
    found = read_run(find_inputs([path]).logs, exit_code=1)
    assert any("not read" in problem for problem in found.problems)
    seen = [found.finding.cause, *found.finding.rivals, *found.finding.consequences]
    assert [event.place.line for event in seen if event is not None and event.text == "KeyError: 1"] == [500_001]


def test_pipe_in_place_of_a_log_is_no_log(tmp_path: Path) -> None:
    """It is refused at once, rather than waited for."""
    os.mkfifo(tmp_path / "run.log")
    with pytest.raises(ConfigError):
        find_inputs([tmp_path / "run.log"])
