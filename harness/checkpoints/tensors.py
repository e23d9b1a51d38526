"""safetensors files, read without trust and in one pass: header, digest, finite values.

Format (github.com/huggingface/safetensors): 8 bytes header length, little endian; a JSON header; the data.
The header is read by hand, since a damaged file must give a reason and never a crash.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeGuard

if TYPE_CHECKING:
    import numpy as np

MAX_HEADER_BYTES = 64 << 20
"""The format allows 100 MB; a header of 64 MiB holds half a million tensors."""
CHUNK_BYTES = 4 << 20
BITS = {
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "U16": 16,
    "I16": 16,
    "U32": 32,
    "I32": 32,
    "U64": 64,
    "I64": 64,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "F8_E5M2FNUZ": 8,
    "F8_E4M3FNUZ": 8,
    "F16": 16,
    "BF16": 16,
    "F32": 32,
    "F64": 64,
    "C64": 64,
}
"""Bits of one element, as safetensors names the types."""
# (view, mask, value): an element is NaN or infinite when `bits & mask == value` (IEEE 754, OCP 8-bit).
_NOT_FINITE = {
    "F64": ("<u8", 0x7FF0 << 48, 0x7FF0 << 48),
    "F32": ("<u4", 0x7F800000, 0x7F800000),
    "C64": ("<u4", 0x7F800000, 0x7F800000),
    "F16": ("<u2", 0x7C00, 0x7C00),
    "BF16": ("<u2", 0x7F80, 0x7F80),
    "F8_E5M2": ("u1", 0x7C, 0x7C),
    "F8_E4M3": ("u1", 0x7F, 0x7F),
    "F8_E8M0": ("u1", 0xFF, 0xFF),
    "F8_E5M2FNUZ": ("u1", 0xFF, 0x80),
    "F8_E4M3FNUZ": ("u1", 0xFF, 0x80),
}
FLOATING = frozenset({*_NOT_FINITE, "F4", "F6_E2M3", "F6_E3M2"})
_RECORD = re.compile(r"((train|training|val|valid|validation|test|eval|epoch|step|min|lowest)_)?loss(es)?(_history)?|"
                     r"history|metrics|best(_\w+)?", re.IGNORECASE)
_HISTORY = re.compile(r"((train|training|val|valid|validation|test|eval|epoch|step)_)?(losses|history|loss_history|"
                      r"metrics)", re.IGNORECASE)
_LEARNED = re.compile(r"weight|bias|kernel|scale|gamma|beta|embedding", re.IGNORECASE)
"""As checkpoints/site/_names.py has them."""
_LFS_POINTER = b"version https://git-lfs"


class TensorFileError(Exception):
    """A file is no whole safetensors file; the message says why, without the path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorInfo:
    """One tensor of a file. Offsets are from the start of the file, in bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What a file says about itself; the tensors by their place, without gap or overlap to its end."""

    tensors: tuple[TensorInfo, ...]
    metadata: dict[str, str]
    data_start: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileScan:
    """One whole pass over a file."""

    header: Header
    sha256: str
    nonfinite: tuple[str, ...]
    """Floating tensors with NaN or infinite values; a mask may hold infinities, a history of losses anything."""


def read_header(path: Path) -> Header:
    """Header of a whole file. Raises TensorFileError with the reason, and OSError."""
    with path.open("rb") as stream:
        return _read_header(stream)


def numbers_inside(path: Path) -> tuple[int | None, int | None]:
    """(step, epoch) as a file's own metadata tells them; None where it does not, or cannot be read."""
    try:
        metadata = read_header(path).metadata
    except (OSError, TensorFileError):
        return None, None
    told = {key: int(value) for key, value in metadata.items() if value.isascii() and value.isdigit()
            and len(value) <= 12}
    step = next((told[key] for key in ("global_step", "step", "num_steps", "iteration") if key in told), None)
    return step, told.get("epoch")


def _read_header(stream: BinaryIO) -> Header:
    size = os.fstat(stream.fileno()).st_size
    head = stream.read(max(8, len(_LFS_POINTER)))
    if size == 0:
        raise TensorFileError("the file is empty")
    if head.startswith(_LFS_POINTER):
        raise TensorFileError("a git-LFS pointer stands in its place; run `git lfs pull`")
    if len(head) < 8:
        raise TensorFileError(f"cut short: {size} bytes do not hold a header length")
    if not any(head):
        raise TensorFileError("it begins with zero bytes: it was never written, or a disk lost it")
    length = int.from_bytes(head[:8], "little")
    if length > size - 8:
        raise TensorFileError(
            f"cut short: a header of {length} bytes is announced, and {size - 8} bytes follow"
        )
    if length > MAX_HEADER_BYTES:
        raise TensorFileError(f"its header of {length} bytes is larger than {MAX_HEADER_BYTES}")
    stream.seek(8)
    entries = _parse(stream.read(length))
    metadata = entries.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise TensorFileError("__metadata__ is no mapping of strings")
    tensors = sorted((_tensor(name, entry, 8 + length) for name, entry in entries.items()), key=_place)
    _check_layout(tensors, 8 + length, size)
    return Header(tensors=tuple(tensors), metadata=metadata, data_start=8 + length, size=size)


def _parse(raw: bytes) -> dict[str, Any]:
    try:
        document = json.loads(raw.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError, MemoryError) as error:
        raise TensorFileError(f"its header is no JSON: {str(error)[:200]}") from error
    if not isinstance(document, dict):
        raise TensorFileError("its header is no JSON object")
    return document


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _tensor(name: str, entry: Any, data_start: int) -> TensorInfo:
    where = f"tensor {name[:200]!r}"
    if not isinstance(entry, dict):
        raise TensorFileError(f"{where}: no description")
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in BITS:
        raise TensorFileError(f"{where}: unknown dtype {str(dtype)[:50]!r}")
    if not _are_counts(shape) or len(shape) > 64:
        raise TensorFileError(f"{where}: its shape is no list of sizes")
    if not _are_counts(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise TensorFileError(f"{where}: its data_offsets are no begin and end")
    bits = math.prod(shape) * BITS[dtype]
    if bits % 8 or bits // 8 != offsets[1] - offsets[0]:
        raise TensorFileError(f"{where}: {dtype} {shape} does not fill {offsets[1] - offsets[0]} bytes")
    return TensorInfo(
        name=name, dtype=dtype, shape=tuple(shape), start=data_start + offsets[0], end=data_start + offsets[1]
    )


def _are_counts(value: Any) -> TypeGuard[list[int]]:
    """Bounded, so that a product of sizes stays a number that can be computed and printed."""
    return isinstance(value, list) and all(type(item) is int and 0 <= item < 1 << 63 for item in value)


def _place(tensor: TensorInfo) -> tuple[int, int]:
    return tensor.start, tensor.end


def _check_layout(tensors: list[TensorInfo], data_start: int, size: int) -> None:
    position = data_start
    for tensor in tensors:
        if tensor.start != position:
            what = "overlaps the tensor before it" if tensor.start < position else "leaves a gap before it"
            raise TensorFileError(f"tensor {tensor.name[:200]!r} {what}")
        position = tensor.end
    if position > size:
        raise TensorFileError(f"cut short: {position - size} of {position} bytes are missing")
    if position < size:
        raise TensorFileError(f"{size - position} bytes follow the last tensor")


def scan_file(path: Path) -> FileScan:
    """Digest and finite values in one pass; memory does not grow with the file.

    Raises TensorFileError, also where the file changes under the reader, and OSError.
    """
    suspects: list[TensorInfo] = []
    digest = hashlib.sha256()
    with path.open("rb") as stream, ThreadPoolExecutor(max_workers=1) as pool:
        header = _read_header(stream)
        stream.seek(0)
        digest.update(stream.read(header.data_start))
        buffers = (bytearray(CHUNK_BYTES), bytearray(CHUNK_BYTES))
        hashing = None
        for turn, (pieces, size) in enumerate(_blocks(header)):
            view = memoryview(buffers[turn % 2])[:size]
            if stream.readinto(view) != size:
                raise TensorFileError("it became shorter while it was read")
            if hashing is not None:
                hashing.result()
            hashing = pool.submit(digest.update, view)
            for tensor, start, end in pieces:
                if not (suspects and suspects[-1] is tensor) and not _is_finite(tensor, view[start:end]):
                    suspects.append(tensor)
        if hashing is not None:
            hashing.result()
        if stream.read(1):
            raise TensorFileError("it grew while it was read")
        nonfinite = [tensor.name for tensor in suspects if not is_record(tensor.name) and not _is_mask(tensor, stream)]
    return FileScan(header=header, sha256=digest.hexdigest(), nonfinite=tuple(nonfinite))


def _blocks(header: Header) -> Iterator[tuple[list[tuple[TensorInfo, int, int]], int]]:
    """The data in blocks of at most CHUNK_BYTES: (pieces of tensors as offsets in the block, its size)."""
    pieces: list[tuple[TensorInfo, int, int]] = []
    filled = 0
    for tensor in header.tensors:
        position = tensor.start
        while position < tensor.end:
            room = (CHUNK_BYTES - filled) // 8 * 8
            if room <= 0:
                yield pieces, filled
                pieces, filled = [], 0
                continue
            take = min(room, tensor.end - position)
            pieces.append((tensor, filled, filled + take))
            position, filled = position + take, filled + take
    if filled:
        yield pieces, filled


def _is_finite(tensor: TensorInfo, data: memoryview) -> bool:
    import numpy as np

    if tensor.dtype not in _NOT_FINITE:
        return True
    view, mask, value = _NOT_FINITE[tensor.dtype]
    bits = np.frombuffer(data, dtype=view)
    hit = (bits & bits.dtype.type(mask)) == bits.dtype.type(value)
    return not hit.any()


def is_record(name: str) -> bool:
    """Whether a tensor is called a value of the run beside its weights: a history of losses, the best metric so far."""
    *places, leaf = re.split(r"[./]", name)
    return _RECORD.fullmatch(leaf) is not None or (
        _LEARNED.fullmatch(leaf) is None and any(_HISTORY.fullmatch(place) for place in places))


def _is_mask(tensor: TensorInfo, stream: BinaryIO) -> bool:
    """Whether infinities are there by design: what is called a mask, without NaN; else -inf beside one other value."""
    import numpy as np

    leaf = re.split(r"[./]", tensor.name)[-1].lower()
    called = "mask" in leaf
    if not called and (leaf == "weight" or (leaf == "bias" and len(tensor.shape) < 2)):
        return False
    low, high = math.inf, -math.inf
    for start in range(tensor.start, tensor.end, CHUNK_BYTES):
        stream.seek(start)
        values = to_float(stream.read(min(CHUNK_BYTES, tensor.end - start)), tensor.dtype)
        if np.isnan(values).any() or (not called and np.isposinf(values).any()):
            return False
        finite = values[np.isfinite(values)]
        low, high = float(finite.min(initial=low)), float(finite.max(initial=high))
        if not called and low < high:
            return False
    return called or low == high


def to_float(data: memoryview | bytes, dtype: str) -> np.ndarray[Any, Any]:
    """Elements as float32, or float64 where float32 could not hold them. F4 and F6 cannot be read."""
    import numpy as np

    if dtype in ("F32", "C64"):
        return np.frombuffer(data, "<f4")
    if dtype == "F64":
        return np.frombuffer(data, "<f8")
    if dtype == "F16":
        return np.frombuffer(data, "<f2").astype(np.float32)
    if dtype == "BF16":
        return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
    if dtype.startswith("F8"):
        table: np.ndarray[Any, Any] = _float8_table(dtype)[np.frombuffer(data, "u1")]
        return table
    kind = {"BOOL": "?", "U": "<u", "I": "<i"}["BOOL" if dtype == "BOOL" else dtype[0]]
    return np.frombuffer(data, kind if kind == "?" else f"{kind}{BITS[dtype] // 8}").astype(np.float64)


def _float8_table(dtype: str) -> np.ndarray[Any, Any]:
    """The 256 values of an 8-bit format (OCP 8-bit floating point 1.0; FNUZ as in arXiv 2206.02915)."""
    import numpy as np

    if dtype == "F8_E8M0":
        values = [math.ldexp(1.0, code - 127) for code in range(255)] + [math.nan]
        return np.array(values, np.float32)
    exponent_bits = 5 if "E5M2" in dtype else 4
    mantissa_bits = 7 - exponent_bits
    is_fnuz = dtype.endswith("FNUZ")
    bias = (1 << (exponent_bits - 1)) - (0 if is_fnuz else 1)
    values = []
    for code in range(256):
        exponent, mantissa = (code & 0x7F) >> mantissa_bits, code & ((1 << mantissa_bits) - 1)
        fraction = mantissa / (1 << mantissa_bits)
        value = math.ldexp(1 + fraction, exponent - bias) if exponent else math.ldexp(fraction, 1 - bias)
        if (is_fnuz and code == 0x80) or (dtype == "F8_E4M3" and code & 0x7F == 0x7F):
            value = math.nan
        elif dtype == "F8_E5M2" and exponent == 31:
            value = math.nan if mantissa else math.inf
        values.append(-value if code & 0x80 else value)
    return np.array(values, np.float32)
