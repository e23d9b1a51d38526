"""Atomic writes and strict JSON: an artifact is whole or it is not there."""

from __future__ import annotations

import json
import math
import os
import re
import stat
import tempfile
from pathlib import Path
from typing import Any

MAX_JSON_BYTES = 64 << 20
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def strict(value: Any) -> Any:
    """`value` with every non-finite float as `{"value": null, "repr": "nan"}`, so that strict JSON can hold it."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"value": None, "repr": repr(value)}
    if isinstance(value, dict):
        return {str(key): strict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [strict(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    return value


def dump_json(value: Any, *, indent: int | None = 2) -> str:
    """Strict JSON text (RFC 8259: no NaN, no Infinity).

    A lone surrogate, which is how Python holds an undecodable byte of a command or a path, is escaped, so that the
    text is UTF-8 and reads back as the same string.
    """
    text = json.dumps(strict(value), indent=indent, ensure_ascii=False, allow_nan=False)
    return _LONE_SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def write_text(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Replace `path` by `text` at once: temporary file beside it, fsync, os.replace. Raises OSError.

    Undecodable bytes that the text holds as surrogates are written as they were.
    """
    try:
        data = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        data = text.encode("utf-8", "backslashreplace")
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as handle:
            handle.write(data)
            handle.flush()
            os.fsync(handle.fileno())
        temporary.chmod(mode)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    """Atomic write of strict JSON with a final newline."""
    write_text(path, dump_json(value) + "\n")


def open_regular(path: Path) -> int:
    """A descriptor to read a regular file; OSError, or ValueError for a pipe, a device or a directory."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError("not a regular file")
    return descriptor


def read_json(path: Path) -> Any:
    """Parsed JSON of a regular file of at most 64 MiB. OSError, or ValueError for anything else."""
    with os.fdopen(open_regular(path), "rb") as handle:
        data = handle.read(MAX_JSON_BYTES + 1)
    if len(data) > MAX_JSON_BYTES:
        raise ValueError(f"longer than {MAX_JSON_BYTES} bytes")
    try:
        return json.loads(data)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
