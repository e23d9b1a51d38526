"""Protobuf's wire format without a schema: the fields of one message.

Source: protobuf.dev/programming-guides/encoding (varint, 64-bit, length-delimited and 32-bit fields).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

_VARINT_BYTES = 10


class Field(NamedTuple):
    """One field: a number in `value`, or bytes in `data`."""

    number: int
    value: int
    data: bytes


def fields(message: bytes) -> Iterator[Field]:
    """The fields in their order; ValueError where the bytes are no message."""
    position, end = 0, len(message)
    while position < end:
        key, position = _varint(message, position)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, position = _varint(message, position)
            yield Field(number, value, b"")
            continue
        if kind == 2:
            length, position = _varint(message, position)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise ValueError(f"a field of wire type {kind}")
        data = message[position : position + length]
        if number == 0 or len(data) < length:
            raise ValueError("a field goes beyond the end")
        position += length
        yield Field(number, 0, data)


def _varint(message: bytes, position: int) -> tuple[int, int]:
    value = 0
    for index in range(_VARINT_BYTES):
        if position + index >= len(message):
            break
        byte = message[position + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, position + index + 1
    raise ValueError("a number without an end")


def number_of(field: Field) -> float:
    """A field of type double or float."""
    if len(field.data) == 8:
        return float(struct.unpack("<d", field.data)[0])
    return float(struct.unpack("<f", field.data)[0]) if len(field.data) == 4 else float(field.value)


def text_of(field: Field) -> str:
    """A field of type string."""
    return field.data.decode("utf-8", "replace")
