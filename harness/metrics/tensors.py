"""Scalars that are stored as a TensorProto (TF2, Keras, flax)."""

from __future__ import annotations

import struct
from typing import Any

# Number in tensorflow/core/framework/types.proto -> struct format of tensor_content, field of single values.
_DTYPES = {
    1: ("<f", "float_val"),
    2: ("<d", "double_val"),
    3: ("<i", "int_val"),
    4: ("<B", "int_val"),
    5: ("<h", "int_val"),
    6: ("<b", "int_val"),
    9: ("<q", "int64_val"),
    10: ("<?", "bool_val"),
    17: ("<H", "int_val"),
    19: ("<e", "half_val"),
    22: ("<I", "uint32_val"),
    23: ("<Q", "uint64_val"),
}
_BFLOAT16, _HALF = 14, 19


def tensor_scalar(tensor: Any) -> float | None:
    """The value of a TensorProto with one element of a numeric type; None where it has none."""
    elements = 1
    for dim in tensor.tensor_shape.dim:
        elements *= dim.size
    if elements != 1 or tensor.tensor_shape.unknown_rank:
        return None
    if tensor.dtype == _BFLOAT16:
        bits = _single(tensor.half_val)
        content = tensor.tensor_content or (b"" if bits is None else struct.pack("<H", bits & 0xFFFF))
        return float(struct.unpack("<f", b"\0\0" + content)[0]) if len(content) == 2 else None
    if tensor.dtype not in _DTYPES:
        return None
    layout, name = _DTYPES[tensor.dtype]
    content = tensor.tensor_content
    if not content:
        number = _single(getattr(tensor, name))
        if tensor.dtype != _HALF or number is None:
            return None if number is None else float(number)
        content = struct.pack("<H", number & 0xFFFF)
    return float(struct.unpack(layout, content)[0]) if len(content) == struct.calcsize(layout) else None


def _single(values: Any) -> Any:
    return values[0] if len(values) == 1 else None
