"""The reader of JSON lines: rows, odd rows, damage and growth."""

from __future__ import annotations

import hashlib
import json
import math
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.metrics import jsonl
from harness.metrics.jsonl import JsonlReader, looks_like_metrics, row_metrics
from harness.record.events import MetricEvent
from tests.unit.event_files import codes, drain


def make(path: Path, *lines: str | bytes) -> Path:
    path.write_bytes(b"".join(line if isinstance(line, bytes) else line.encode() + b"\n" for line in lines))
    return path


def test_rows_become_events(tmp_path: Path) -> None:
    """Flat and one level of nesting; text, lists, booleans and null are no metrics."""
    path = make(
        tmp_path / "m.jsonl",
        json.dumps(
            {
                "step": 12,
                "loss": 0.5,
                "eval": {"loss": 1, "name": "x", "deep": {"no": 1}},
                "done": True,
                "note": "hi",
                "list": [1],
                "none": None,
                "timestamp": 1_770_000_000.5,
            }
        ),
    )
    assert drain(JsonlReader(path)) == [
        MetricEvent("loss", 12, 0.5, 1_770_000_000.5),
        MetricEvent("eval/loss", 12, 1.0, 1_770_000_000.5),
    ]


@pytest.mark.parametrize(
    "token", ["NaN", '"nan"', '"NaN"', "Infinity", '"-inf"', "1e999", "-Infinity", '"+Inf"']
)
def test_nonfinite_values_survive(tmp_path: Path, token: str) -> None:
    """However the trainer spells them."""
    ((event),) = drain(JsonlReader(make(tmp_path / "m.jsonl", '{"step": 1, "loss": ' + token + "}")))
    assert isinstance(event, MetricEvent) and not math.isfinite(event.value)
    assert math.isnan(event.value) == ("nan" in token.lower())


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"global_step": 3, "loss": 1}, (3, 0.0, {"loss": 1.0})),
        ({"_step": 3, "_timestamp": 1.77e12, "loss": 1}, (3, 1.77e9, {"loss": 1.0})),
        ({"step": 3.0, "iteration": 9, "loss": 1}, (3, 0.0, {"loss": 1.0})),
        ({"step": 3, "time": 0.25}, (3, 0.0, {"time": 0.25})),
        (
            {"iter": 3, "time": "2026-01-02T03:04:05Z"},
            (3, datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc).timestamp(), {}),
        ),
        (
            {"step": 3, "time": "2026-01-02T05:04:05+02:00"},
            (3, datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc).timestamp(), {}),
        ),
        ({"step": 3, "big": 10**400}, (3, 0.0, {"big": math.inf})),
        ({"loss": 1.0}, None),
        ({"step": "3"}, (3, 0.0, {})),
        ({"step": "3", "loss": "5.25", "lr": "1e-3", "v": "1.2.3", "s": "abc"}, (3, 0.0, {"loss": 5.25, "lr": 1e-3})),
        ({"step": "x"}, None),
        ({"step": "1.5"}, None),
        ({"step": "1e999"}, None),
        ({"step": True}, None),
        ({"step": 1.5}, None),
        ({"step": 1 << 63}, None),
        ({"step": math.nan}, None),
        ({"step": math.inf}, None),
    ],
    ids=str,
)
def test_step_and_time_keys(
    row: dict[str, Any], expected: tuple[int, float, dict[str, float]] | None
) -> None:
    """Step keys by preference; small numbers under a time key are durations; big times are milliseconds."""
    assert row_metrics(row) == expected


def test_lone_surrogate_in_a_key_is_escaped(tmp_path: Path) -> None:
    """JSON may spell half a surrogate pair; no UTF-8 file could hold such a tag."""
    (event,) = drain(JsonlReader(make(tmp_path / "m.jsonl", '{"step": 1, "\\ud800": 1}')))
    assert isinstance(event, MetricEvent) and event.tag == "\\ud800"


def test_bad_lines_are_reported_and_passed_over(tmp_path: Path) -> None:
    """Invalid UTF-8, broken JSON, no object, deep nesting, CRLF, blank lines, a byte order mark."""
    path = make(
        tmp_path / "m.jsonl",
        b"\xef\xbb\xbf" + b'{"step": 1, "loss": 1}\r\n',
        b"\xff\xfe\n",
        "{broken",
        "[1]",
        "[" * 100_000,
        "",
        '{"step": 2, "loss": 2}',
    )
    reader = JsonlReader(path)
    assert [e.step for e in drain(reader)] == [1, 2]
    (problem,) = reader.problems(final=True)
    assert (problem.code, problem.offset) == ("not-parsable", 27)
    assert reader.bytes_read == path.stat().st_size


@pytest.mark.parametrize("chunk", [1 << 20, 700])
def test_huge_line_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    """A line above the limit costs no memory; those around it are read, and the digest covers all."""
    monkeypatch.setattr(jsonl, "MAX_LINE_BYTES", 1000)
    monkeypatch.setattr(jsonl, "CHUNK_BYTES", chunk)
    path = make(
        tmp_path / "m.jsonl",
        '{"step": 1, "loss": 1}',
        '{"step": 9, "x": "' + "y" * 5000 + '"}',
        '{"step": 2, "loss": 2}',
    )
    reader = JsonlReader(path)
    assert [e.step for e in drain(reader)] == [1, 2]
    assert codes(reader, final=True) == ["oversized"]
    assert reader.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_last_line_waits_for_its_newline(tmp_path: Path) -> None:
    """Until the end, when a whole object counts; a cut one is a cut tail."""
    path = make(tmp_path / "m.jsonl", '{"step": 1, "loss": 1}', b'{"step": 2, "loss": 2}')
    reader = JsonlReader(path)
    assert [e.step for e in drain(reader)] == [1] and codes(reader) == []
    assert [e.step for e in drain(reader, final=True)] == [2] and codes(reader, final=True) == []
    with path.open("ab") as file:
        file.write(b'\n{"step": 3, "lo')
    assert drain(reader, final=True) == [] and codes(reader, final=True) == ["cut-tail"]


def test_first_offset_leaves_old_rows_out(tmp_path: Path) -> None:
    """Also a row that was begun before."""
    old = b'{"step": 1, "loss": 1}\n'
    path = make(tmp_path / "m.jsonl", old, '{"step": 2, "loss": 2}')
    assert [e.step for e in drain(JsonlReader(path, first_offset=len(old)))] == [2]
    reader = JsonlReader(path, first_offset=len(old) - 5)
    assert [e.step for e in drain(reader)] == [2] and codes(reader, final=True) == []


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=5,
)
lines = st.one_of(
    st.builds(
        lambda step, row: json.dumps({**row, "step": step}).encode(),
        st.integers(-5, 1 << 40),
        st.dictionaries(st.sampled_from(["loss", "lr", "time", "é", "a/b"]), json_values, max_size=3),
    ),
    st.binary(max_size=20).map(lambda data: data.replace(b"\n", b" ")),
)


@settings(max_examples=100, deadline=None)
@given(rows=st.lists(lines, max_size=8), data=st.data())
def test_growth_in_any_pieces_gives_the_same_as_the_whole(
    tmp_path_factory: pytest.TempPathFactory, rows: list[bytes], data: st.DataObject
) -> None:
    """Any lines, any cuts: the same events, digest and problem as one read; nothing raises."""
    whole = b"".join(row + b"\n" for row in rows)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    folder = tmp_path_factory.mktemp("lines")
    path, once = folder / "grown.jsonl", folder / "whole.jsonl"
    once.write_bytes(whole)
    path.touch()
    reader, found = JsonlReader(path), []
    for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        with path.open("ab") as file:
            file.write(whole[start:end])
        found += drain(reader)
    single = JsonlReader(once)
    assert repr(found) == repr(drain(single))
    assert (reader.sha256, codes(reader, final=True)) == (single.sha256, codes(single, final=True))


@pytest.mark.parametrize(
    ("lines", "verdict"),
    [
        (['{"step": 1, "loss": 0.5}'], True),
        (['{"config": 1}', '{"step": 1, "loss": 0.5}'], True),
        (['{"epoch": 1, "loss": 0.5}'], True),
        (['{"epoch": 1, "name": "a"}'] * 6, False),
        (['{"epoch": 0.5, "loss": 0.5}'] * 6, False),
        (['{"prompt": "a", "completion": "b"}'] * 6, False),
        (['{"prompt": "a", "completion": "b"}'], None),
        ([b'{"step": 1, "loss": 0.5}'], None),
        ([], None),
    ],
    ids=["metrics", "header", "epochs", "no metric", "shares", "dataset", "undecided", "unfinished", "empty"],
)
def test_metric_files_are_told_from_data_sets(
    tmp_path: Path, lines: list[str | bytes], verdict: bool | None
) -> None:
    """By their first lines; undecided until there are enough."""
    assert looks_like_metrics(make(tmp_path / "m.jsonl", *lines)) is verdict


def values(path: Path) -> list[tuple[str, int, float]]:
    return [(e.tag, e.step, e.value) for e in drain(JsonlReader(path)) if isinstance(e, MetricEvent)]


def test_null_under_the_loss_is_nan(tmp_path: Path) -> None:
    """orjson writes NaN as null: under a tag that has numbers, and under the loss from the first row on."""
    path = make(
        tmp_path / "m.jsonl",
        '{"step": 1, "obj": 2.0, "train": {"loss": null}}',
        '{"step": 2, "obj": 2.0, "train": {"loss": 1.0}}',
        '{"step": 3, "obj": null, "train": {"loss": null}}',
        '{"step": 4, "obj": null, "train": {"loss": null}}',
    )
    nan = [(tag, step) for tag, step, value in values(path) if math.isnan(value)]
    assert sorted(nan) == [("obj", 3), ("obj", 4), ("train/loss", 1), ("train/loss", 3), ("train/loss", 4)]
    assert len(values(path)) == 8
    assert looks_like_metrics(make(tmp_path / "n.jsonl", '{"step": 1, "loss": null}'))


def test_null_that_says_not_measured_is_no_value(tmp_path: Path) -> None:
    """An evaluation is not made at each step, and its row has no training loss; a part may be switched off; the mean
    of an epoch stands in its last row; a norm is taken now and then."""
    path = make(
        tmp_path / "m.jsonl",
        '{"step": 1, "loss": 2.0, "train_loss": null, "val_loss": null, "aux_loss": null, "norm": 1, "epoch": 1}',
        '{"step": 2, "loss": 2.0, "train_loss": 2.0, "norm": null, "epoch": 1}',
        '{"step": 2, "loss": null, "val_loss": 3.0, "epoch": 1}',
        '{"step": 3, "loss": 1.0, "train_loss": null, "val_loss": null, "norm": 1, "epoch": null}',
        '{"step": 4, "loss": 1.0, "train_loss": null, "val_loss": null, "norm": null, "epoch": null}',
    )
    assert [(tag, step) for tag, step, value in values(path) if not math.isfinite(value)] == []


@pytest.mark.parametrize("zone", ["Asia/Shanghai", "America/Los_Angeles"])
def test_time_without_a_zone_is_no_clock(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """datetime.utcnow().isoformat() must not be read as local time: the file's own time decides then."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert row_metrics({"step": 1, "time": "2026-01-02T03:04:05.678", "loss": 1}) == (1, 0.0, {"loss": 1.0})
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("token", ["nan", "NaN", "-nan", "inf", "-inf", "Infinity"])
def test_nan_in_pythons_own_spelling_is_read(token: str, tmp_path: Path) -> None:
    """Rows formatted by hand hold `nan`, which is no JSON and must not hide the loss."""
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{{"step": 1, "loss": 2.0}}\n{{"step": 2, "loss": {token}, "note": "a nan, b"}}\n')
    events = [event for batch in JsonlReader(path).poll(final=True) for event in batch.events()]
    losses = [event.value for event in events if event.tag == "loss"]
    assert len(losses) == 2
    assert not math.isfinite(losses[1])


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (['{"epoch": 1, "loss": 3}', '{"epoch": 2, "loss": 2}'],
         [("epoch", 1, 1.0), ("loss", 1, 3.0), ("epoch", 2, 2.0), ("loss", 2, 2.0)]),
        (['{"step": 5, "loss": 3}', '{"epoch": 2, "eval_loss": 2}'], [("loss", 5, 3.0)]),
        (['{"epoch": 1.5, "loss": 3}'], []),
    ],
)  # fmt: skip
def test_whole_epochs_are_steps_where_no_row_has_one(
    tmp_path: Path, rows: list[str], expected: list[tuple[str, int, float]]
) -> None:
    """A loop that logs once an epoch; its epoch stays a metric, too, and the source says what it counts."""
    path = make(tmp_path / "m.jsonl", *rows)
    assert values(path) == expected
    reader = JsonlReader(path)
    list(reader.poll(final=True))
    assert reader.step_unit == ("epoch" if '"epoch": 1,' in rows[0] else "step")
