"""Event files for tests, written with TensorBoard's own record writer and messages."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from harness.metrics.model import EventColumns, RestartMarker
from harness.metrics.tfrecord import masked_crc
from harness.record.events import MetricEvent

EPOCH = 1_770_000_000.0


def scalar(tag: str, step: int, value: float, wall_time: float | None = None) -> Event:
    """One event as SummaryWriter.add_scalar makes it."""
    return Event(
        wall_time=EPOCH + step if wall_time is None else wall_time,
        step=step,
        summary=Summary(value=[Summary.Value(tag=tag, simple_value=value)]),
    )


def version(wall_time: float = EPOCH) -> Event:
    """What every event file begins with."""
    return Event(wall_time=wall_time, file_version="brain.Event:2")


def session_start(step: int, wall_time: float = EPOCH) -> Event:
    """What SummaryWriter(purge_step=step) writes."""
    return Event(wall_time=wall_time, step=step, session_log=SessionLog(status=SessionLog.START))


def write(path: Path, events: Iterable[Event | bytes], *, append: bool = False) -> Path:
    """A file of whole records; bytes are written as the data of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab" if append else "wb") as file:
        writer = RecordWriter(file)
        for event in events:
            writer.write(event if isinstance(event, bytes) else event.SerializeToString())
    return path


def record(data: bytes) -> bytes:
    """One record by hand, from the description of the format."""
    header = struct.pack("<Q", len(data))
    return header + struct.pack("<I", masked_crc(header)) + data + struct.pack("<I", masked_crc(data))


def drain(reader: Any, **options: bool) -> list[MetricEvent | RestartMarker]:
    """Everything that one poll gives, one by one."""
    found: list[MetricEvent | RestartMarker] = []
    for item in reader.poll(**options):
        found += item.events() if isinstance(item, EventColumns) else [item]
    return found


def codes(reader: Any, *, final: bool = False) -> list[str]:
    """Codes of a reader's problems."""
    return [problem.code for problem in reader.problems(final=final)]
