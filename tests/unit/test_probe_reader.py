"""The reader of probe files: whole files are facts, anything else is a problem and never an exception."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.checkpoints.marks import seen_by
from harness.probe.reader import MAX_FILE_BYTES, ProbeFacts, read_probe

GRAD = {"checked": 5, "nonzero": 5, "nonfinite": 0, "gave_up": 0, "last_nonzero": True}
OPTIMIZER = {
    "class": "torch.optim.adamw.AdamW",
    "steps": 25,
    "lr_positive_steps": 24,
    "lr_unknown_steps": 0,
    "params": 4,
}
MARK = {"dtype": "F32", "shape": [4], "sha256": "0" * 64, "changed": True, "end": "1" * 64,
        "values": "AACAPwAAAEAAAEBAAADAfw==", "values_last": None}
LOOK = {"at": 16, "time": 5.0, "path": "/out/model.pt", "sha256": ["0123abcd"], "values": ["fwCB", None]}
WHOLE: dict[str, Any] = {
    "format": 1,
    "pid": 41,
    "ppid": 40,
    "host": "node-1",
    "rank": 0,
    "local_rank": None,
    "world_size": 2,
    "group_size": 2,
    "devices": ["cpu"],
    "torch": "2.13.0+cpu",
    "started_at": 1.5,
    "updated_at": 9,
    "optimizers_created": 1,
    "steps": 25,
    "steps_total": 25,
    "optimizers": [OPTIMIZER],
    "lr_positive_steps": 24,
    "lr_unknown_steps": 0,
    "scaler_skips": 2,
    "grad": GRAD,
    "params": {"checked": 4, "nonfinite": 0},
    "marks": [MARK],
    "marks_at": 16,
    "looks": [LOOK, {"at": 25, "time": 6.0, "path": None, "sha256": [None]}],
    "exchange": {"observed_steps": 25, "first": True, "steps": 24, "few_steps": 0, "after": False, "readable": True,
                 "whole_steps": 0, "hidden_steps": 24, "whole_after": False,
                 "wrappers": ["DistributedDataParallel"], "others": []},
    "first_step_at": 2.0,
    "last_step_at": 8.0,
    "clean_exit": True,
}
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)
REUSED_DIR = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)


def read(directory: Path, content: bytes | str | dict[str, Any]) -> ProbeFacts:
    """Facts of a directory with one file of this content."""
    text = json.dumps(content) if isinstance(content, dict) else content
    (directory / "node-41.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_probe(directory)


def test_missing_directory_holds_nothing(tmp_path: Path) -> None:
    """No directory: not loaded, no process, no problem."""
    assert read_probe(tmp_path / "nowhere") == ProbeFacts(loaded=False, processes=(), problems=())


def test_directory_that_is_a_file_is_a_problem(tmp_path: Path) -> None:
    """It is said rather than raised."""
    (tmp_path / "file").write_text("")
    assert read_probe(tmp_path / "file").problems == ("probe directory: Not a directory",)


def test_whole_file_is_read(tmp_path: Path) -> None:
    """Every field arrives."""
    (process,) = read(tmp_path, WHOLE).processes
    assert (process.pid, process.rank, process.local_rank, process.world_size) == (41, 0, None, 2)
    assert (process.steps, process.lr_positive_steps, process.scaler_skips) == (25, 24, 2)
    assert (process.updated_at, process.grad.last_nonzero, process.optimizers[0].num_params) == (9.0, True, 4)
    assert (process.marks[0].values, process.marks[0].values_last) == ((1.0, 2.0, 3.0, 0.0), ())
    assert [(look.at, look.path, look.sha256) for look in process.looks] == [
        (16, "/out/model.pt", ("0123abcd",)), (25, None, ("",))]
    assert process.looks[0].values == ((127, 0, -127), ())


def test_values_are_kept_of_the_process_that_trained_most(tmp_path: Path) -> None:
    """Thousands of ranks would be hundreds of megabytes; among equals it is the one that saved."""
    for pid, more in ((40, {"looks": []}), (42, {"steps": 24, "optimizers": []})):
        (tmp_path / f"node-{pid}.json").write_text(json.dumps({**WHOLE, "pid": pid, **more}), encoding="utf-8")
    facts = read(tmp_path, WHOLE).to_json()
    assert {item["pid"]: (bool(item["looks"]), bool(item["marks"][0]["values"])) for item in facts["processes"]} == {
        40: (False, False), 41: (True, True), 42: (False, False)}
    assert seen_by(facts).looks == facts["processes"][1]["looks"]


def test_to_json_is_json_and_names_no_directory(tmp_path: Path) -> None:
    """A process is named by its file alone, so that the facts can be read elsewhere."""
    text = json.dumps(read(tmp_path, WHOLE).to_json(), allow_nan=False)
    assert json.loads(text)["processes"][0]["path"] == "node-41.json"
    assert str(tmp_path) not in text


def test_steps_is_the_most_of_any_process(tmp_path: Path) -> None:
    """Ranks of one job do the same steps; they are not added up."""
    (tmp_path / "node-40.json").write_text(json.dumps({**WHOLE, "pid": 40}), encoding="utf-8")
    facts = read(tmp_path, WHOLE)
    assert (len(facts.processes), facts.steps) == (2, 25)


def test_partial_and_foreign_names_are_passed_over(tmp_path: Path) -> None:
    """What the probe is just writing is neither a fact nor a problem."""
    (tmp_path / "node-41.json.41.partial").write_text("{", encoding="utf-8")
    (tmp_path / "readme").write_text("x", encoding="utf-8")
    assert read_probe(tmp_path) == ProbeFacts(loaded=False, processes=(), problems=())


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"format": 2}, "format 2, not 1"),
        ({"pid": "41"}, "pid is not a count"),
        ({"steps": True}, "steps is not a count"),
        ({"steps": -1}, "steps is not a count"),
        ({"steps": 25.0}, "steps is not a count"),
        ({"steps_total": 2**70}, "steps_total is not a count"),
        ({"updated_at": float("nan")}, "updated_at is not a time"),
        ({"updated_at": float("inf")}, "updated_at is not a time"),
        ({"host": "a\x1b[2J"}, "host is not a short text"),
        ({"host": "x" * 1000}, "host is not a short text"),
        ({"clean_exit": 1}, "clean_exit is not a flag"),
        ({"grad": None}, "grad. is not an object"),
        ({"grad": {**GRAD, "nonzero": 6}}, "more nonzero gradients than looks"),
        ({"optimizers": [OPTIMIZER] * 17}, "optimizers is not a short list"),
        ({"optimizers": [{**OPTIMIZER, "steps": 26}]}, "an optimizer with more steps than steps"),
        ({"steps": 26}, "more steps than steps_total"),
        ({"lr_positive_steps": 26}, "more steps with a learning rate than steps"),
        ({"last_step_at": None}, "steps without a time"),
        ({"marks": [{**MARK, "values": "AAA"}]}, "values is no list of values"),
        ({"marks": [{**MARK, "values": "AAA="}]}, "values is no list of values"),
        ({"marks": [{**MARK, "values_last": 7}]}, "marks.values_last is not a short text"),
        ({"looks": [{**LOOK, "path": "a\n"}]}, "looks.path is not a short text"),
        ({"looks": [{**LOOK, "at": -1}]}, "looks.at is not a count"),
        ({"looks": [{**LOOK, "sha256": ["../x"]}]}, "looks.sha256 holds what is no digest"),
        ({"looks": [LOOK] * 41}, "looks is not a short list"),
        ({"looks": [{**LOOK, "values": ["A"]}]}, "looks.values is no list of values"),
        ({"looks": [{**LOOK, "values": [7]}]}, "looks.values is no list of values"),
        ({"unmarked": -1}, "unmarked is not a count"),
    ],
)
def test_odd_field_makes_the_file_a_problem(tmp_path: Path, change: dict[str, Any], problem: str) -> None:
    """A file with one field that cannot be is no evidence, and the problem names the field."""
    facts = read(tmp_path, {**WHOLE, **change})
    assert (facts.processes, facts.problems) == ((), (f"'node-41.json': {problem}",))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe\x00",
        b"[1, 2]",
        b"null",
        b'{"format": 1',
        b'{"format": ' + b"9" * 5000 + b"}",
        b"[" * 100_000,
        b'{"format": ' + b" " * MAX_FILE_BYTES + b"1}",
    ],
    ids=["empty", "not-utf8", "list", "null", "cut", "huge-number", "deep", "long"],
)
def test_content_that_is_no_process_is_a_problem(tmp_path: Path, content: bytes) -> None:
    """Cut, hostile and overlong content is reported once and raises nothing."""
    facts = read(tmp_path, content)
    assert facts.processes == ()
    assert len(facts.problems) == 1


def test_pipe_and_link_are_not_opened(tmp_path: Path) -> None:
    """A pipe would block and a link may lead anywhere: both are problems."""
    os.mkfifo(tmp_path / "a.json")
    (tmp_path / "b.json").symlink_to("/dev/zero")
    assert len(read_probe(tmp_path).problems) == 2


def test_notes_of_the_probe_are_problems(tmp_path: Path) -> None:
    """Its own failures are passed on, without control characters."""
    (tmp_path / "problems.log").write_text("pid 1: write: \x1b[2Jfull\n" * 500, encoding="utf-8")
    problems = read_probe(tmp_path).problems
    assert problems[0] == "pid 1: write: ?[2Jfull"
    assert len(problems) == 100


@REUSED_DIR
@given(st.binary(max_size=300))
def test_any_bytes_are_read_without_an_exception(tmp_path: Path, content: bytes) -> None:
    """Random bytes are never a process."""
    assert read(tmp_path, content).processes == ()


@REUSED_DIR
@given(st.integers(min_value=0, max_value=len(json.dumps(WHOLE)) - 1))
def test_any_cut_is_a_problem(tmp_path: Path, length: int) -> None:
    """A file that was cut anywhere is not a process."""
    facts = read(tmp_path, json.dumps(WHOLE)[:length])
    assert (len(facts.processes), len(facts.problems)) == (0, 1)


@REUSED_DIR
@given(st.dictionaries(st.sampled_from(sorted(WHOLE)), ANY_JSON, min_size=1, max_size=3))
def test_any_fields_give_facts_that_are_strict_json(tmp_path: Path, change: dict[str, Any]) -> None:
    """Whatever stands in a field, the facts can be written as strict JSON and counts agree."""
    facts = read(tmp_path, {**WHOLE, **change})
    json.dumps(facts.to_json(), allow_nan=False)
    assert len(facts.processes) + len(facts.problems) == 1
    assert all(
        process.lr_positive_steps <= process.steps <= process.steps_total for process in facts.processes
    )
