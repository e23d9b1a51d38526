"""The reader of TensorBoard event files: framing, damage, growth, and what counts as a scalar."""

from __future__ import annotations

import hashlib
import json
import math
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto

from harness.metrics import tensorboard
from harness.metrics.model import RestartMarker
from harness.metrics.tensorboard import TensorBoardReader
from harness.metrics.tensors import tensor_scalar
from harness.metrics.tfrecord import masked_crc
from harness.record.events import MetricEvent
from tests.unit.event_files import EPOCH, codes, drain, record, scalar, session_start, version, write

CASES = Path(__file__).parent / "cases"
RECORDED = sorted((CASES / "recorded").rglob("*tfevents*"))
SCALARS = [MetricEvent("loss", step, 2.0 - step / 8, EPOCH + step) for step in range(5)]


def plugin(name: str) -> SummaryMetadata:
    return SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name=name))


def tensor_event(tag: str, step: int, tensor: TensorProto, metadata: SummaryMetadata | None = None) -> Event:
    value = Summary.Value(tag=tag, tensor=tensor)
    if metadata is not None:
        value.metadata.CopyFrom(metadata)
    return Event(wall_time=EPOCH + step, step=step, summary=Summary(value=[value]))


def small_file(path: Path) -> Path:
    return write(path, [version(), *(scalar(e.tag, e.step, e.value) for e in SCALARS)])


@pytest.mark.parametrize("folder", ["float_val", "tensor_content"])
def test_tensor_scalars_are_scalars(folder: str) -> None:
    """Case 29: metadata only on the first event of a tag, and an unset simple_value is not 0.0."""
    expected = json.loads((CASES / "29-tb-tensor-scalars" / "expected.json").read_text())
    (path,) = (CASES / "29-tb-tensor-scalars" / folder).iterdir()
    found = drain(TensorBoardReader(path))
    assert {str(e.step): e.value for e in found} == expected["points"]
    assert {e.tag for e in found} == {expected["tag"]}


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: f"{path.parent.name}-{path.name[-8:]}")
def test_recorded_files_hold_what_event_accumulator_finds(path: Path) -> None:
    """Files that real trainers wrote give the points that TensorBoard's own reader gives."""
    accumulator = EventAccumulator(str(path), size_guidance={"scalars": 0})
    accumulator.Reload()
    expected = {
        (tag, e.step, e.value, e.wall_time)
        for tag in accumulator.Tags()["scalars"]
        for e in accumulator.Scalars(tag)
    }
    reader = TensorBoardReader(path)
    assert set(map(tuple, drain(reader))) == expected
    assert reader.bytes_read == path.stat().st_size
    assert codes(reader, final=True) == []


def test_cut_at_every_byte_keeps_what_is_whole(tmp_path: Path) -> None:
    """A file that ends anywhere gives the whole records before, waits, and is a cut tail only at the end."""
    whole = small_file(tmp_path / "whole").read_bytes()
    boundaries, position = [0], 0
    while position < len(whole):
        position += 16 + int.from_bytes(whole[position : position + 8], "little")
        boundaries.append(position)
    for size in range(len(whole) + 1):
        path = tmp_path / "cut"
        path.write_bytes(whole[:size])
        reader = TensorBoardReader(path)
        records = sum(boundary <= size for boundary in boundaries) - 1
        assert drain(reader) == SCALARS[: max(0, records - 1)]
        assert codes(reader) == []
        assert codes(reader, final=True) == ([] if size in boundaries else ["cut-tail"])
        assert reader.bytes_read == boundaries[records]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_growth_in_any_pieces_gives_the_same_as_the_whole(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Polls between arbitrary appends yield the events of one read, in order, each once, with the same
    digest."""
    folder = tmp_path_factory.mktemp("grow")
    whole = small_file(folder / "whole").read_bytes()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    path = folder / "grown"
    path.touch()
    reader, found = TensorBoardReader(path), []
    for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        with path.open("ab") as file:
            file.write(whole[start:end])
        found += drain(reader)
    once = TensorBoardReader(folder / "whole")
    assert found == drain(once) == SCALARS
    assert (reader.sha256, reader.bytes_read, reader.opened_at) == (once.sha256, once.bytes_read, EPOCH)


@settings(max_examples=150, deadline=None)
@given(position=st.integers(0, 2000), mask=st.integers(1, 255))
def test_flipped_byte_never_yields_a_wrong_value(
    tmp_path_factory: pytest.TempPathFactory, position: int, mask: int
) -> None:
    """Any damaged byte ends the reading at its record and is reported; what was whole before is kept."""
    path = small_file(tmp_path_factory.mktemp("flip") / "events.out.tfevents.1")
    data = bytearray(path.read_bytes())
    position %= len(data)
    data[position] ^= mask
    path.write_bytes(data)
    reader = TensorBoardReader(path)
    found = drain(reader)
    assert found == SCALARS[: len(found)] and len(found) < len(SCALARS)
    (problem,) = reader.problems(final=True)
    assert problem.code in ("bad-crc", "cut-tail")
    assert problem.offset is not None and problem.offset <= position


@settings(max_examples=80, deadline=None)
@given(st.binary(max_size=400))
def test_arbitrary_bytes_never_raise(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    """Whatever is in the file, polling twice is harmless."""
    path = tmp_path_factory.mktemp("junk") / "events.out.tfevents.1"
    path.write_bytes(data)
    reader = TensorBoardReader(path)
    assert drain(reader) == [] and drain(reader) == []


def test_bad_crc_in_the_middle_of_many_keeps_the_part_before(tmp_path: Path) -> None:
    """The record is named by its offset, and later polls give nothing more."""
    path = write(tmp_path / "e.tfevents", [version(), *(scalar("loss", i, i) for i in range(1000))])
    data = bytearray(path.read_bytes())
    position = 0
    for _ in range(501):
        position += 16 + int.from_bytes(data[position : position + 8], "little")
    data[position + 14] ^= 1
    path.write_bytes(data)
    reader = TensorBoardReader(path)
    assert [e.step for e in drain(reader)] == list(range(500))
    (problem,) = reader.problems()
    assert (problem.code, problem.offset, reader.ended, reader.bytes_read) == (
        "bad-crc",
        position,
        "bad-crc",
        position,
    )
    assert drain(reader) == []


@pytest.mark.parametrize("length", [1 << 40, (1 << 64) - 1, tensorboard.MAX_RECORD_BYTES + 1])
def test_hostile_length_allocates_nothing(tmp_path: Path, length: int) -> None:
    """A length with a valid checksum that the file does not hold is waited for, not allocated."""
    header = struct.pack("<Q", length)
    path = small_file(tmp_path / "e.tfevents")
    with path.open("ab") as file:
        file.write(header + struct.pack("<I", masked_crc(header)) + b"x" * 100)
    reader = TensorBoardReader(path)
    tracemalloc.start()
    found = drain(reader)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found == SCALARS
    assert codes(reader, final=True) == ["cut-tail"]
    assert peak < 8 << 20


@pytest.mark.parametrize("damaged", [False, True])
def test_oversized_record_is_checked_and_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damaged: bool
) -> None:
    """Scalars behind a record that is too large to hold are read; its checksum still counts."""
    monkeypatch.setattr(tensorboard, "MAX_RECORD_BYTES", 1000)
    image = Event(
        step=1,
        summary=Summary(
            value=[Summary.Value(tag="image", tensor=TensorProto(dtype=7, string_val=[b"x" * 5000]))]
        ),
    )
    path = write(tmp_path / "e.tfevents", [scalar("loss", 0, 1.0), image, scalar("loss", 1, 0.5)])
    if damaged:
        path.write_bytes(path.read_bytes().replace(b"xxxx", b"xxxy", 1))
    reader = TensorBoardReader(path)
    assert [e.value for e in drain(reader)] == ([1.0] if damaged else [1.0, 0.5])
    assert codes(reader, final=True) == (["bad-crc"] if damaged else [])
    if not damaged:
        assert reader.bytes_read == path.stat().st_size
        assert reader.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_record_larger_than_a_chunk_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scalar beside a payload of several chunks, in one event."""
    monkeypatch.setattr(tensorboard, "CHUNK_BYTES", 64)
    both = scalar("loss", 3, 0.25)
    both.summary.value.add(
        tag="text", tensor=TensorProto(dtype=7, string_val=[b"y" * 3000]), metadata=plugin("text")
    )
    path = write(tmp_path / "e.tfevents", [scalar("loss", 2, 0.5), both, scalar("loss", 4, 0.125)])
    assert [(e.tag, e.step, e.value) for e in drain(TensorBoardReader(path))] == [
        ("loss", 2, 0.5),
        ("loss", 3, 0.25),
        ("loss", 4, 0.125),
    ]


def test_preallocated_zero_tail_is_waited_for(tmp_path: Path) -> None:
    """Zero bytes after the last record are no damage, and records written over them are read."""
    whole = small_file(tmp_path / "whole").read_bytes()
    path = tmp_path / "e.tfevents"
    path.write_bytes(whole[:-40] + bytes(4096))
    reader = TensorBoardReader(path)
    first = drain(reader)
    assert first == SCALARS[: len(first)]
    assert codes(reader) == []
    path.write_bytes(whole + bytes(4096 - 40))
    assert first + drain(reader) == SCALARS
    assert codes(reader, final=True) == []


def test_empty_file_is_no_problem(tmp_path: Path) -> None:
    """A writer that was opened and has written nothing."""
    path = tmp_path / "e.tfevents"
    path.touch()
    reader = TensorBoardReader(path)
    assert drain(reader) == [] and codes(reader, final=True) == []


def test_vanished_file_is_reported_and_may_come_back(tmp_path: Path) -> None:
    """What was read stays; the file under its name again goes on where it was."""
    path = small_file(tmp_path / "e.tfevents")
    reader = TensorBoardReader(path)
    drain(reader)
    moved = path.rename(tmp_path / "moved")
    assert drain(reader) == [] and codes(reader) == ["vanished"]
    moved.rename(path)
    write(path, [scalar("loss", 5, 1.0)], append=True)
    assert [e.step for e in drain(reader)] == [5] and codes(reader) == []


def test_truncated_file_ends_its_reader(tmp_path: Path) -> None:
    """Shorter than what was read: another history begins, which is another source."""
    path = small_file(tmp_path / "e.tfevents")
    reader = TensorBoardReader(path)
    drain(reader)
    path.write_bytes(path.read_bytes()[:30])
    assert drain(reader) == [] and reader.ended == "truncated"


def test_file_rewritten_in_place_ends_its_reader(tmp_path: Path) -> None:
    """Longer than before, and not the same beginning."""
    path = small_file(tmp_path / "e.tfevents")
    reader = TensorBoardReader(path)
    drain(reader)
    with path.open("wb") as file:
        for step in range(50):
            file.write(record(scalar("loss", step, 9.0).SerializeToString()))
    assert drain(reader) == [] and reader.ended == "truncated"


def test_replaced_file_ends_its_reader(tmp_path: Path) -> None:
    """Another inode under the same name."""
    path = small_file(tmp_path / "e.tfevents")
    reader = TensorBoardReader(path)
    drain(reader)
    small_file(tmp_path / "other").replace(path)
    assert drain(reader) == [] and reader.ended == "replaced"


def test_poll_reads_only_new_bytes(tmp_path: Path) -> None:
    """A poll without news opens nothing, and one with news reads from the old end (less the guard)."""
    path = write(tmp_path / "e.tfevents", [version(), *(scalar("loss", i, i) for i in range(2000))])
    reader = TensorBoardReader(path)
    drain(reader)
    before = _bytes_read_by_this_process()
    assert drain(reader) == []
    write(path, [scalar("loss", 2000, 0.5)], append=True)
    assert [e.step for e in drain(reader)] == [2000]
    assert _bytes_read_by_this_process() - before < 2000


def _bytes_read_by_this_process() -> int:
    status = Path("/proc/self/io")
    if not status.exists():
        pytest.skip("the system does not count bytes read")
    return int(status.read_text().split("rchar: ")[1].split()[0])


def test_session_start_is_a_marker_between_its_neighbours(tmp_path: Path) -> None:
    """Its place among the events is kept."""
    path = write(
        tmp_path / "e.tfevents", [scalar("a", 1, 1), scalar("a", 2, 2), session_start(2), scalar("a", 2, 3)]
    )
    kinds = [
        item.step if isinstance(item, RestartMarker) else (item.step, item.value)
        for item in drain(TensorBoardReader(path))
    ]
    assert kinds == [(1, 1.0), (2, 2.0), 2, (2, 3.0)]


def test_other_summaries_are_not_scalars(tmp_path: Path) -> None:
    """Histograms, images, text, hparams, graphs and vectors give no point, and scalars between them do."""
    histogram = Event(
        step=1, summary=Summary(value=[Summary.Value(tag="h", histo=HistogramProto(min=0, max=1))])
    )
    image = Event(
        step=1, summary=Summary(value=[Summary.Value(tag="i", image=Summary.Image(height=1, width=1))])
    )
    vector = TensorProto(
        dtype=1, float_val=[1, 2], tensor_shape=TensorShapeProto(dim=[TensorShapeProto.Dim(size=2)])
    )
    unset = Event(step=1, summary=Summary(value=[Summary.Value(tag="unset")]))
    events = [
        histogram,
        image,
        tensor_event("text", 1, TensorProto(dtype=7, string_val=[b"0.5"]), plugin("text")),
        tensor_event("vector", 1, vector, plugin("scalars")),
        unset,
        tensor_event("hp", 1, TensorProto(dtype=1, float_val=[1.0]), plugin("hparams")),
        tensor_event("hp", 2, TensorProto(dtype=1, float_val=[1.0])),
        Event(graph_def=b"\x00\xff" * 100),
        scalar("loss", 2, 0.5),
    ]
    reader = TensorBoardReader(write(tmp_path / "e.tfevents", events))
    assert [(e.tag, e.step, e.value) for e in drain(reader)] == [("loss", 2, 0.5)]
    assert codes(reader, final=True) == []


def test_record_that_is_no_event_is_reported_and_reading_goes_on(tmp_path: Path) -> None:
    """Checksums say that the writer meant it; the records behind are intact."""
    path = write(tmp_path / "e.tfevents", [scalar("a", 1, 1), b"\xff" * 40, scalar("a", 2, 2)])
    reader = TensorBoardReader(path)
    assert [e.step for e in drain(reader)] == [1, 2]
    assert codes(reader) == ["not-parsable"]


def test_first_offset_hides_old_events_and_keeps_their_metadata(tmp_path: Path) -> None:
    """Only what was appended counts, is digested, and still knows that its tag is text or a scalar."""
    one = TensorProto(dtype=1, float_val=[1.0])
    path = write(
        tmp_path / "e.tfevents", [version(), tensor_event("hp", 1, one, plugin("hparams")), scalar("a", 1, 1)]
    )
    start = path.stat().st_size
    write(path, [tensor_event("hp", 2, one), scalar("a", 2, 2)], append=True)
    reader = TensorBoardReader(path, first_offset=start)
    assert [(e.tag, e.step) for e in drain(reader)] == [("a", 2)]
    assert (reader.first_offset, reader.bytes_read) == (start, path.stat().st_size - start)
    assert reader.sha256 == hashlib.sha256(path.read_bytes()[start:]).hexdigest()


@pytest.mark.parametrize("inside", [0, 7])
def test_first_offset_many_chunks_into_the_file_hides_all_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: int
) -> None:
    """The old part is longer than one read; a record that was cut before the launch is old too."""
    monkeypatch.setattr(tensorboard, "CHUNK_BYTES", 100)
    path = write(tmp_path / "e.tfevents", [scalar("a", step, 1) for step in range(50)])
    start = path.stat().st_size - inside
    write(path, [scalar("a", step, 1) for step in range(50, 60)], append=True)
    reader = TensorBoardReader(path, first_offset=start)
    assert [e.step for e in drain(reader)] == list(range(50, 60))
    assert reader.first_offset == start + inside
    assert reader.sha256 == hashlib.sha256(path.read_bytes()[start + inside :]).hexdigest()


def test_first_offset_inside_a_record_leaves_that_record_out(tmp_path: Path) -> None:
    """A record that was half there before the launch does not count."""
    path = small_file(tmp_path / "e.tfevents")
    reader = TensorBoardReader(path, first_offset=path.stat().st_size - 60)
    assert drain(reader) == SCALARS[-1:]
    assert reader.first_offset + reader.bytes_read == path.stat().st_size


def test_wall_time_that_is_no_time_is_none(tmp_path: Path) -> None:
    """A writer's NaN clock becomes 0.0, which means that the source has none."""
    path = write(tmp_path / "e.tfevents", [scalar("a", 1, 1, math.nan), scalar("a", 2, 1, math.inf)])
    assert [e.wall_time for e in drain(TensorBoardReader(path))] == [0.0, 0.0]


@pytest.mark.parametrize(
    ("tensor", "value"),
    [
        (TensorProto(dtype=2, double_val=[0.1]), 0.1),
        (TensorProto(dtype=2, tensor_content=struct.pack("<d", 0.1)), 0.1),
        (TensorProto(dtype=3, int_val=[-7]), -7.0),
        (TensorProto(dtype=9, int64_val=[1 << 40]), float(1 << 40)),
        (TensorProto(dtype=10, bool_val=[True]), 1.0),
        (TensorProto(dtype=14, half_val=[0x3FC0]), 1.5),
        (TensorProto(dtype=14, tensor_content=b"\xc0\x3f"), 1.5),
        (TensorProto(dtype=19, half_val=[0x3E00]), 1.5),
        (TensorProto(dtype=19, tensor_content=b"\x00\x3e"), 1.5),
        (
            TensorProto(
                dtype=1, float_val=[1.5], tensor_shape=TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)])
            ),
            1.5,
        ),
        (TensorProto(dtype=1), None),
        (TensorProto(dtype=1, tensor_content=b"\x00\x00"), None),
        (TensorProto(dtype=7, string_val=[b"1.5"]), None),
        (TensorProto(dtype=1, float_val=[1.5], tensor_shape=TensorShapeProto(unknown_rank=True)), None),
        (TensorProto(dtype=8, scomplex_val=[1, 2]), None),
    ],
    ids=str,
)
def test_tensor_scalar_reads_every_numeric_type(tensor: TensorProto, value: float | None) -> None:
    """Types as in types.proto; an empty tensor is no 0.0."""
    assert tensor_scalar(tensor) == value


def plain_reading(events: list[Event]) -> list[tuple[Any, ...]]:
    """The same by protobuf alone, one event at a time."""
    plugins: dict[str, str] = {}
    found = []
    for event in events:
        for value in event.summary.value:
            if value.HasField("metadata"):
                plugins.setdefault(value.tag, value.metadata.plugin_data.plugin_name)
            number = None
            if value.WhichOneof("value") == "simple_value":
                number = value.simple_value
            elif value.WhichOneof("value") == "tensor" and plugins.get(value.tag, "") in ("", "scalars"):
                number = tensor_scalar(value.tensor)
                if number is not None:
                    plugins.setdefault(value.tag, "scalars")
            if number is not None:
                wall = event.wall_time if math.isfinite(event.wall_time) else 0.0
                found.append((value.tag, event.step, repr(number), wall))
    return found


floats = st.floats(width=32)
tags = st.sampled_from(["loss", "train/loss", "", "é/λ", "t" * 200])
values = st.builds(
    lambda tag, kind, number, meta: _value(tag, kind, number, meta),
    tags,
    st.sampled_from(["simple", "float", "content", "double", "int", "histo", "none"]),
    floats,
    st.sampled_from([None, "scalars", "text"]),
)
events_strategy = st.builds(
    lambda wall, step, vals: Event(wall_time=wall, step=step, summary=Summary(value=vals)),
    st.one_of(st.floats(), st.just(EPOCH)),
    st.one_of(st.integers(0, 300), st.integers(-(1 << 63), (1 << 63) - 1), st.integers(1 << 34, 1 << 36)),
    st.one_of(st.lists(values, min_size=1, max_size=1), st.lists(values, max_size=3)),
)


def _value(tag: str, kind: str, number: float, meta: str | None) -> Summary.Value:
    value = Summary.Value(tag=tag)
    if kind == "simple":
        value.simple_value = number
    elif kind == "float":
        value.tensor.CopyFrom(TensorProto(dtype=1, float_val=[number]))
    elif kind == "content":
        value.tensor.CopyFrom(TensorProto(dtype=1, tensor_content=struct.pack("<f", number)))
    elif kind == "double":
        value.tensor.CopyFrom(TensorProto(dtype=2, double_val=[number]))
    elif kind == "int":
        value.tensor.CopyFrom(TensorProto(dtype=3, int_val=[3]))
    elif kind == "histo":
        value.histo.CopyFrom(HistogramProto(min=number))
    if meta is not None:
        value.metadata.CopyFrom(plugin(meta))
    return value


@settings(max_examples=200, deadline=None)
@given(st.lists(events_strategy, max_size=12))
def test_template_reading_agrees_with_protobuf(
    tmp_path_factory: pytest.TempPathFactory, events: list[Event]
) -> None:
    """Reading by template gives bit for bit what decoding every event gives, also when learnt in the same
    file."""
    doubled = events + events
    path = write(tmp_path_factory.mktemp("agree") / "e.tfevents", doubled)
    found = [(e.tag, e.step, repr(e.value), e.wall_time) for e in drain(TensorBoardReader(path))]
    assert found == plain_reading(doubled)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=60),
            events_strategy.map(lambda e: e.SerializeToString()).flatmap(
                lambda data: st.integers(0, max(0, len(data) - 1)).map(
                    lambda at: data[:at] + b"\x2a" + data[at + 1 :]
                )
            ),
        ),
        max_size=8,
    )
)
def test_template_reading_agrees_with_protobuf_on_odd_messages(
    tmp_path_factory: pytest.TempPathFactory, payloads: list[bytes]
) -> None:
    """Messages with a byte changed and checksums that fit: the same events as by protobuf, or none."""
    doubled = [data for data in payloads for _ in range(2)]
    path = write(tmp_path_factory.mktemp("odd") / "e.tfevents", doubled)
    whole = [event for event in map(tensorboard._event, doubled) if event is not None]
    found = [
        (e.tag, e.step, repr(e.value), e.wall_time)
        for e in drain(TensorBoardReader(path))
        if isinstance(e, MetricEvent)
    ]
    assert found == plain_reading([event for event in whole if event.WhichOneof("what") == "summary"])
