"""Secrets out of everything that is written, every other byte kept.

Three ways to know a secret: its value (from environment, command and config files, in every usual encoding),
an unambiguous format of its own (`hf_...`, a JWT, a private key), and, in texts and JSON, the name that it
stands under. Logs stream through the first two only, since a log is the trainer's own evidence; a few names that only a
secret has count as a format.
"""

from __future__ import annotations

import base64
import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

from harness.record import secret_finder as finder
from harness.record.token_formats import (
    MASK,
    MASK_BYTES,
    Span,
    format_spans,
    run_at_end,
    unfinished_format,
)

_PIECE_BYTES = 4096
"""A longer secret is searched for in pieces of this size, which bounds what a stream holds back."""
_FEED_BYTES = 1 << 20


class Redactor:
    """Masks what it knows; immutable once built."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self.values = tuple(sorted({value for value in values if finder.is_findable(value)}))
        needles = {needle for value in self.values for needle in _needles(value)}
        self._needles = tuple(sorted(needles, key=lambda needle: (-len(needle), needle)))

    @classmethod
    def from_run(
        cls, command_words: Sequence[str], environ: Mapping[str, str], config_paths: Iterable[Path] = ()
    ) -> Redactor:
        """Everything secret in a command, the environment it runs in and the config files that it names."""
        values = [*finder.values_in_environment(environ), *finder.values_in_command(command_words)]
        for path in list(config_paths)[: finder.MAX_CONFIG_FILES]:
            values.extend(finder.values_in_config(path))
        return cls(form for value in values for form in (value, value.strip(), value.strip("\"'")))

    def text(self, text: str) -> str:
        """Known values, formats, and values that stand under a secret's name."""
        text = self._known(text)
        return _mask_text(text, finder.spans_by_name(text))

    def json(self, value: Any, name: str = "") -> Any:
        """The same document, with strings masked at any depth; numbers and booleans stay."""
        if isinstance(value, str):
            return MASK if name and _is_secret_key(name, value) else self.text(value)
        if isinstance(value, Mapping):
            return {
                self._known(k) if isinstance(k, str) else k: self.json(v, str(k)) for k, v in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [self.json(item, name) for item in value]
        return value

    def argv(self, words: Sequence[str]) -> list[str]:
        """The words of a command; a word stays one word."""
        masked = []
        for index, word in enumerate(words):
            start = finder.secret_argument(words, index)
            masked.append(self.text(word) if start is None else word[:start] + MASK)
        return masked

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Variables, masked by name and by value."""
        secret = finder.is_secret_at
        return {name: MASK if secret(name, value) else self.text(value) for name, value in environ.items()}

    def stream(self) -> StreamRedactor:
        """A redactor for one stream of bytes."""
        return StreamRedactor(self._needles)

    def _known(self, text: str) -> str:
        data = text.encode("utf-8", "surrogatepass")
        spans = _merge(_spans(data, self._needles, b""))
        return _mask_bytes(data, spans).decode("utf-8", "surrogatepass") if spans else text


class StreamRedactor:
    """Masks known values and unambiguous formats in a stream, the same for every way of cutting it.

    Held back is only what may still become a secret: a beginning of a known value (at most 4 KiB), or a token
    of unambiguous format that has not ended (at most 8 KiB, a private key 16 KiB). No line end is waited for.
    """

    def __init__(self, needles: Sequence[bytes]) -> None:
        self._needles = needles
        self._held = b""
        self._before = b""
        """The last byte that went out, for the left boundary of formats."""
        self._covered = 0
        """Bytes at the start of `_held` for which a mask went out already."""
        self._swallow: re.Pattern[bytes] | None = None
        """Characters of an over-long token that was masked and has not ended."""

    def feed(self, data: bytes) -> bytes:
        """What can go out now."""
        starts = range(0, len(data), _FEED_BYTES)
        return b"".join(self._advance(data[start : start + _FEED_BYTES], final=False) for start in starts)

    def flush(self) -> bytes:
        """What was held back, at the end of the stream."""
        return self._advance(b"", final=True)

    def _advance(self, data: bytes, *, final: bool) -> bytes:
        held = self._held + data
        if self._swallow is not None and held:
            match = self._swallow.match(held, self._covered)
            self._covered = match.end() if match else self._covered
            self._swallow = self._swallow if self._covered == len(held) else None
        spans = _merge([(0, self._covered), *_spans(held, self._needles, self._before)])
        hold = len(held)
        if not final:
            hold = min(_unfinished_value(held, self._needles), unfinished_format(held, self._before))
        parts, position, covered = [], 0, 0
        for start, end in spans:
            if start >= hold:
                break
            parts.append(held[position:start])
            if start or not self._covered:
                parts.append(MASK_BYTES)
            position, covered = min(end, hold), max(0, end - hold)
        parts.append(held[position:hold])
        if spans and not final and hold == len(held) == spans[-1][1] and self._swallow is None:
            self._swallow = run_at_end(held, self._before)
        if hold:
            self._before, self._held, self._covered = held[hold - 1 : hold], held[hold:], covered
        else:
            self._held = held
        return b"".join(parts)


def _is_secret_key(name: str, value: str) -> bool:
    return finder.is_secret_at(name, value, least=finder.Certainty.CERTAIN) and not finder.is_plain(value)


def _mask_text(text: str, found: Iterable[Span]) -> str:
    spans = [span for span in _merge(found) if text[span[0] : span[1]] != MASK]
    if not spans:
        return text
    parts, position = [], 0
    for start, end in spans:
        parts += [text[position:start], MASK]
        position = end
    return "".join(parts) + text[position:]


def _mask_bytes(data: bytes, spans: Sequence[Span]) -> bytes:
    parts, position = [], 0
    for start, end in spans:
        parts += [data[position:start], MASK_BYTES]
        position = end
    return b"".join([*parts, data[position:]])


def _merge(found: Iterable[Span]) -> list[Span]:
    merged: list[Span] = []
    for start, end in sorted(found):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        elif start < end:
            merged.append((start, end))
    return merged


# Known values


def _needles(value: str) -> set[bytes]:
    """The encodings in which a value turns up: as it is, URL, JSON, shell, repr, base64 (both alphabets)."""
    lines = [line.strip() for line in value.splitlines()] if "\n" in value else []
    forms = {form for part in (value, *lines) if finder.is_findable(part) for form in _spellings(part)}
    needles = {form.encode("utf-8", "surrogatepass") for form in forms} | _base64_cores(value)
    return {piece for needle in needles for piece in _pieces(needle)}


def _spellings(value: str) -> set[str]:
    data = value.encode("utf-8", "surrogatepass")
    spelled = {
        value,
        quote(data, safe=""),
        quote(data),
        quote_plus(data),
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        json.dumps(json.dumps(value))[3:-3],
        repr(value)[1:-1],
        re.sub(r'([\\"$`])', r"\\\1", value),
        re.sub(r"([^\w@%+=:,./-])", r"\\\1", value),
    }
    quoted = shlex.quote(value)
    return spelled | {quoted[1:-1] if quoted.startswith("'") else quoted}


def _base64_cores(value: str) -> set[bytes]:
    """The characters that stay the same wherever the value lies in the encoded bytes; 8 of them at least."""
    data = value.encode("utf-8", "surrogatepass")
    cores = set()
    for offset in range(3):
        whole = (offset + len(data)) // 3 * 4
        encoded = base64.b64encode(b"\0" * offset + data)[(0, 2, 3)[offset] : whole]
        cores.update({encoded, encoded.replace(b"+", b"-").replace(b"/", b"_")})
    return {core for core in cores if len(core) >= 8}


def _pieces(needle: bytes) -> Iterator[bytes]:
    if len(needle) <= _PIECE_BYTES:
        yield needle
        return
    for start in range(0, len(needle), _PIECE_BYTES):
        piece = needle[start : start + _PIECE_BYTES]
        yield piece if len(piece) >= 64 else needle[-64:]


def _spans(data: bytes, needles: Sequence[bytes], before: bytes) -> list[Span]:
    found = list(format_spans(data, before))
    for needle in needles:
        start = data.find(needle)
        while start >= 0:
            found.append((start, start + len(needle)))
            start = data.find(needle, start + 1)
    return found


def _unfinished_value(data: bytes, needles: Sequence[bytes]) -> int:
    """Where the earliest beginning of a known value stands that the end of `data` cuts short."""
    hold = len(data)
    for needle in needles:
        start = data.find(needle[:1], max(0, len(data) - len(needle) + 1), hold)
        while start >= 0:
            if needle.startswith(data[start:]):
                hold = start
                break
            start = data.find(needle[:1], start + 1, hold)
    return hold
