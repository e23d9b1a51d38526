"""Rows as a person can read them: long texts and data URLs shortened, long lists cut, secrets masked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from harness.data.model import Sample
from harness.record.redaction import Redactor

TEXT_CHARS = 240
LIST_ITEMS = 12
_DATA_URL = re.compile(r"data:[\w.+/-]{0,80}(?:;[\w=.+-]{1,40}){0,4},")
_BASE64_TEXT = re.compile(r"[A-Za-z0-9+/=_\s-]{200,}")


def sample_of(rows: list[Any], redactor: Redactor) -> Sample:
    """The fields of all these rows in their order, and the rows themselves, shortened and without secrets."""
    keys = dict.fromkeys(str(key) for row in rows if isinstance(row, Mapping) for key in row)
    return Sample(keys=tuple(redactor.text(key) for key in keys),
                  samples=tuple(shortened(redactor.json(row)) for row in rows))


def shortened(value: Any) -> Any:
    """The same value, readable."""
    if isinstance(value, str):
        return short_text(value, len(value))
    if isinstance(value, Mapping):
        if "$text" in value:
            return short_text(str(value["$text"]), int(value.get("$chars", 0)))
        return {key: shortened(item) for key, item in value.items()}
    if isinstance(value, list):
        kept = [shortened(item) for item in value[:LIST_ITEMS]]
        return kept if len(value) <= LIST_ITEMS else [*kept, f"… ({len(value)} items)"]
    return value


def short_text(text: str, length: int) -> str:
    """The beginning of a text with its length; of a data URL its head only."""
    head = _DATA_URL.match(text)
    if head is not None:
        return f"{head.group()}… ({length} characters)" if length > TEXT_CHARS else text
    if length <= TEXT_CHARS:
        return text
    kept = 32 if _BASE64_TEXT.fullmatch(text[:TEXT_CHARS]) and " " not in text[:TEXT_CHARS] else TEXT_CHARS
    return f"{text[:kept]}… ({length} characters)"
