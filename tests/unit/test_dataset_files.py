"""Readers of data files: the same rows as the whole file at once, however it is cut, and no odd byte is a crash."""

from __future__ import annotations

import importlib.util
import json
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

SITE = Path(__file__).parents[2] / "harness" / "data" / "site"


def load(name: str) -> ModuleType:
    """A module of the child, which is on no path here."""
    spec = importlib.util.spec_from_file_location(name, SITE / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FILES = load("_real_step_files")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-10**6, 10**6) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3), max_leaves=8)


def rows_of(path: Path) -> list[Any]:
    """Every row of a file."""
    return [get() for _, get in FILES.raw_rows(str(path), 10_000)[1]]


@settings(max_examples=120, deadline=None)
@given(rows=st.lists(JSON, max_size=8), indent=st.none() | st.integers(0, 2), chunk=st.integers(1, 40))
def test_array_is_the_same_however_it_is_cut(rows: list[Any], indent: int | None, chunk: int) -> None:
    """An array is read in pieces of any size."""
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        patch.setattr(FILES, "CHUNK", chunk)
        path = Path(place) / "a.json"
        path.write_text(json.dumps(rows, indent=indent), encoding="utf-8")
        assert rows_of(path) == rows


@settings(max_examples=120, deadline=None)
@given(rows=st.lists(JSON, max_size=8), ends=st.sampled_from(["\n", "\r\n", "\n\n"]), last=st.booleans())
def test_lines_are_the_same_with_every_line_end(rows: list[Any], ends: str, last: bool) -> None:
    """Blank lines are none, and the last line needs no end."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "a.jsonl"
        text = ends.join(json.dumps(row) for row in rows) + (ends if last and rows else "")
        path.write_bytes(text.encode())
        assert rows_of(path) == rows


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=200), suffix=st.sampled_from([".json", ".jsonl", ".csv", ".tsv"]))
def test_no_bytes_are_a_crash(data: bytes, suffix: str) -> None:
    """Rows, or an error in words, of the file or of a row."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / f"a{suffix}"
        path.write_bytes(data)
        try:
            gets = [get for _, get in FILES.raw_rows(str(path), 10)[1]]
        except FILES.Unreadable as error:
            assert str(error)
            return
        for get in gets:
            try:
                get()
            except FILES.Unreadable as error:
                assert str(error)


@given(total=st.integers(0, 5000), limit=st.integers(1, 500))
def test_picked_rows_reach_over_the_whole(total: int, limit: int) -> None:
    """At most the limit, the first and the last among them, all of a small dataset."""
    found = FILES.picked(total, limit)
    assert len(found) == min(total, limit) and found == sorted(set(found))
    assert not found or (found[0] == 0 and (limit == 1 or found[-1] == total - 1))


def test_line_that_is_too_long_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has its index and its reason, and the lines around it are read."""
    monkeypatch.setattr(FILES, "MAX_ROW_BYTES", 100)
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(['{"a": 1}', json.dumps({"a": "x" * 1000}), '{"a": 3}']))
    gets = [get for _, get in FILES.raw_rows(str(path), 10)[1]]
    assert (gets[0](), gets[2]()) == ({"a": 1}, {"a": 3})
    with pytest.raises(FILES.Unreadable, match="longer than"):
        gets[1]()
