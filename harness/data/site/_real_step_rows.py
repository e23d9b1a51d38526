"""Looks at rows of a dataset, raw or through a user's loader, in the interpreter that will train.

One JSON request on standard input, JSON lines on the descriptor that it names:
`{"kind": "row", "index": 3, "row": {...}, "areno": {...}}` for each row that was looked at, then one
`{"kind": "end", "total": 10, ...}` or `{"kind": "error", "code": ..., "message": ...}`.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _real_step_areno import Judge, dataset_of, default_rows, judge_of, rows_of  # type: ignore[import-not-found]
from _real_step_files import MAX_ROW_BYTES, Get, Unreadable, die_with_parent, raw_rows  # type: ignore[import-not-found]

Write = Callable[["dict[str, Any]"], None]
LONG_TEXT = 1 << 16
LONG_TEXT_KEPT = 2000
DEPTH = 12


def answer(request: dict[str, Any], write: Write) -> None:
    """Every message but the errors."""
    judge: Judge | None = None
    note: str | None = None
    files: list[str] = []
    if request["mode"] == "raw":
        total, rows = raw_rows(request["path"], request["limit"], first=True)
    elif request["default"]:
        total, rows = default_rows(request)
        judge, note = judge_of(request)
    else:
        dataset = loaded(request)
        total, rows = rows_of(dataset, request["limit"])
        files = cache_files(dataset)
        judge, note = judge_of(request)
    looked = 0
    for index, get in rows:
        looked += 1
        write(one_row(index, get, judge))
    write({"kind": "end", "total": total, "inspected": looked, "areno": judge is not None, "note": note,
           "files": files})


def cache_files(dataset: Any) -> list[str]:
    """The Arrow files that a Dataset lies in."""
    files = getattr(dataset, "cache_files", None) or []
    return [str(item["filename"]) for item in files if isinstance(item, dict) and "filename" in item]


def loaded(request: dict[str, Any]) -> Any:
    """The dataset through the loader; a process that the loader forked ends here."""
    pid = os.getpid()
    try:
        return dataset_of(request)
    finally:
        if os.getpid() != pid:
            os._exit(0)


def one_row(index: int, get: Get, judge: Judge | None) -> dict[str, Any]:
    """The message about one row."""
    try:
        row = get()
    except Unreadable as error:
        return {"kind": "row", "index": index, "code": error.code, "problem": str(error)}
    except Exception as error:
        problem = f"{type(error).__name__}: {str(error)[:300]}"
        return {"kind": "row", "index": index, "code": "row-raised", "problem": problem}
    found = {"kind": "row", "index": index, "row": plain(row)}
    if judge is not None:
        found["areno"] = judge(row)
    return found


def plain(value: Any, depth: int = 0, key: str = "") -> Any:
    """A value as JSON holds it, long texts cut with their length, foreign objects by the name of their type."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        return value if len(value) <= LONG_TEXT else long_text(value, key)
    if isinstance(value, (bytes, bytearray)):
        return {"$bytes": len(value)}
    if depth > DEPTH:
        return {"$type": type(value).__name__}
    if hasattr(value, "items"):
        return {str(name): plain(item, depth + 1, str(name)) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, depth + 1, key) for item in value]
    if hasattr(value, "tolist") and getattr(value, "size", 0) < 1 << 20:
        return plain(value.tolist(), depth + 1, key)
    return {"$type": f"{type(value).__module__}.{type(value).__name__}"}


def long_text(value: str, key: str) -> dict[str, Any]:
    """The beginning of a text, its length, and whether it decodes where it should be base64."""
    found: dict[str, Any] = {"$text": value[:LONG_TEXT_KEPT], "$chars": len(value)}
    if value.startswith("data:") or "base64" in key:
        try:
            base64.b64decode(value.partition(",")[2] if value.startswith("data:") else value, validate=True)
            found["$base64"] = True
        except (binascii.Error, ValueError):
            found["$base64"] = False
    return found


def main() -> None:
    """Answer the request; the process ends here, whatever threads a loader left."""
    die_with_parent()
    sys.path.remove(str(Path(__file__).parent))
    request = json.load(sys.stdin)
    stream = os.fdopen(request["result_fd"], "w", encoding="utf-8")

    def write(message: dict[str, Any]) -> None:
        text = json.dumps(message)
        if len(text) > 2 * MAX_ROW_BYTES:
            problem = f"the row is longer than {2 * MAX_ROW_BYTES >> 20} MiB"
            text = json.dumps({"kind": "row", "index": message.get("index"), "code": "row-too-long",
                               "problem": problem})
        stream.write(text + "\n")

    try:
        answer(request, write)
    except Unreadable as error:
        write({"kind": "error", "code": error.code, "message": str(error)})
    except BaseException as error:
        last = traceback.extract_tb(error.__traceback__)[-1:]
        place = f" ({last[0].filename}, line {last[0].lineno})" if last else ""
        write({"kind": "error", "code": "raised", "message": f"{type(error).__name__}: {str(error)[:600]}{place}"})
    stream.close()
    os._exit(0)


if __name__ == "__main__":
    main()
