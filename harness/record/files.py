"""Atomic writes and strict JSON: an artifact is whole or it is not there."""

from __future__ import annotations

import json
import math
import os
import tempfile
from pathlib import Path
from typing import Any


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
    """Strict JSON text (RFC 8259: no NaN, no Infinity)."""
    return json.dumps(strict(value), indent=indent, ensure_ascii=False, allow_nan=False)


def write_text(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Replace `path` by `text` at once: temporary file beside it, fsync, os.replace. Raises OSError."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape", newline="") as handle:
            handle.write(text)
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
