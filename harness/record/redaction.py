"""Secrets out of everything that is written, every other byte kept.

Three ways to know a secret: its value (from environment, command and config files, in every usual encoding),
an unambiguous format of its own (`hf_...`, a JWT, a private key), and, in texts and JSON, the name that it
stands under. Logs stream through the first two only, since a log is the trainer's own evidence.
"""

from __future__ import annotations

import base64
import json
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

from harness.record import secret_finder as finder

MASK = "***"
_MASK_BYTES = MASK.encode()
_PIECE_BYTES = 4096
"""A longer secret is searched for in pieces of this size, which bounds what a stream holds back."""
_FEED_BYTES = 1 << 20
_FORMAT_HOLD_BYTES = 8192
"""A token of unambiguous format that has not ended after this many bytes is masked as far as it was seen."""
_PEM_HOLD_BYTES = 16384

Span = tuple[int, int]


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
            hold = min(_unfinished_value(held, self._needles), _unfinished_format(held, self._before))
        parts, position, covered = [], 0, 0
        for start, end in spans:
            if start >= hold:
                break
            parts.append(held[position:start])
            if start or not self._covered:
                parts.append(_MASK_BYTES)
            position, covered = min(end, hold), max(0, end - hold)
        parts.append(held[position:hold])
        if spans and not final and hold == len(held) == spans[-1][1] and self._swallow is None:
            self._swallow = _run_at_end(held, self._before)
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
        parts += [data[position:start], _MASK_BYTES]
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
    found = list(_format_spans(data, before))
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


# Formats


@dataclass(frozen=True, slots=True, kw_only=True)
class _Format:
    """A token that tells itself by its beginning."""

    starts: tuple[bytes, ...]
    whole: re.Pattern[bytes]
    """Group 1 is the secret."""
    open: re.Pattern[bytes]
    """Fully matches what may still become one."""
    run: re.Pattern[bytes] | None
    """Characters with which an over-long one goes on."""
    not_after: bytes = rb"[A-Za-z0-9_]"
    hold_bytes: int = _FORMAT_HOLD_BYTES
    accepts: Callable[[bytes], bool] = bool


def _has_digit(token: bytes) -> bool:
    return re.search(rb"[0-9]", token) is not None


def _token(starts: str, characters: str, least: int, **more: Any) -> _Format:
    names = starts.split()
    head = "(?:" + "|".join(re.escape(name) for name in names) + ")"
    return _Format(
        starts=tuple(name.encode() for name in names),
        whole=re.compile(f"({head}[{characters}]{{{least},}})".encode()),
        open=re.compile(f"{head}[{characters}]*".encode()),
        run=re.compile(f"[{characters}]*".encode()),
        **more,
    )


_NAMED = (
    "password passwd passphrase api_key api-key apikey secret_key access_key access_token auth_token client_secret "
    "private_key"
).split()
_NAMED_VALUE = rb"[^\s'\",;&<>{}()\[\]\\]"


def _named(separators: tuple[str, ...], accepts: Callable[[bytes], bool]) -> _Format:
    """A value behind a name that only a secret has, as `api_key=...` or `"password": "..."`."""
    names = [*_NAMED, *(name.upper() for name in _NAMED)]
    starts = tuple((name + separator).encode() for name in names for separator in separators)
    head = b"(?:" + b"|".join(re.escape(start) for start in starts) + b")['\"]?"
    return _Format(
        starts=starts, not_after=rb"(?!)", accepts=accepts, run=re.compile(_NAMED_VALUE + b"*"),
        whole=re.compile(head + b"(" + _NAMED_VALUE + b"{6,})"), open=re.compile(head + _NAMED_VALUE + b"*"),
    )


def _is_no_plain_value(token: bytes) -> bool:
    return not finder.is_plain(token.decode("utf-8", "replace")) and not token.startswith((b"/", b"./", b"$"))


def _reads_like_a_secret(token: bytes) -> bool:
    return _has_digit(token) and _is_no_plain_value(token) and len(token) >= 8


_JWT_RUN = rb"[A-Za-z0-9_-]"
_FORMATS = (
    # As published by Hugging Face, OpenAI, GitHub, GitLab, Slack and AWS, and in RFC 7519 and RFC 7468.
    _token("hf_", "A-Za-z0-9", 20),
    _token("sk-", "A-Za-z0-9_-", 20, not_after=rb"[A-Za-z0-9_-]", accepts=_has_digit),
    _token("ghp_ gho_ ghu_ ghs_ ghr_", "A-Za-z0-9", 20),
    _token("github_pat_", "A-Za-z0-9_", 20),
    _token("glpat-", "A-Za-z0-9_-", 15),
    _token("xoxa- xoxb- xoxp- xoxr- xoxs-", "A-Za-z0-9-", 10),
    _Format(
        starts=(b"AKIA", b"ASIA"),
        whole=re.compile(rb"(A[KS]IA[A-Z0-9]{16})(?![A-Za-z0-9])"),
        open=re.compile(rb"A[KS]IA[A-Z0-9]{0,16}"),
        run=None,
    ),
    _Format(
        starts=(b"eyJ",),
        not_after=rb"[A-Za-z0-9_-]",
        whole=re.compile(rb"(eyJ%b{8,}\.%b{8,}(?:\.%b*)?)" % (_JWT_RUN, _JWT_RUN, _JWT_RUN)),
        open=re.compile(rb"eyJ%b*(?:\.%b*){0,2}" % (_JWT_RUN, _JWT_RUN)),
        run=re.compile(rb"[A-Za-z0-9_.-]*"),
    ),
    _Format(
        starts=(b"Bearer ", b"bearer ", b"BEARER "),
        whole=re.compile(rb"(?i:bearer) {1,3}([A-Za-z0-9._~+/=-]{8,})"),
        open=re.compile(rb"(?i:bearer) {1,3}[A-Za-z0-9._~+/=-]*"),
        run=re.compile(rb"[A-Za-z0-9._~+/=-]*"),
        accepts=lambda token: _has_digit(token) or len(token) >= 20,
    ),
    _Format(
        starts=(b"://",),
        not_after=rb"(?!)",
        run=None,
        whole=re.compile(
            rb"://(?:[^\s/@:\"'<>?#]{0,256}:(?=[^\s/@\"'<>]{1,256}@))?([^\s/@\"'<>]{1,256})(?=@)"
        ),
        open=re.compile(rb"://[^\s/@\"'<>]{0,513}"),
    ),
    _named(("=",), _is_no_plain_value),
    _named((": ", "': '", '": "', "': ", '": '), _reads_like_a_secret),
    _Format(
        starts=(b"-----BEGIN ",),
        not_after=rb"(?!)",
        hold_bytes=_PEM_HOLD_BYTES,
        run=None,
        whole=re.compile(
            rb"(-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
            rb"(?:(?:[A-Za-z0-9+/=\s\\:,.]|-(?!----)){0,%d}"
            rb"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
            rb"|(?:(?:\s|\\[nr]){1,4}[A-Za-z0-9+/=]{40,200})*))" % _PEM_HOLD_BYTES
        ),
        # Lines of a key and nothing else: an ordinary line after a lone header lets both go.
        open=re.compile(
            rb"-----BEGIN [A-Z0-9 ]{0,60}-{0,5}(?:(?:[\r\n]|\\[nr])"
            rb"(?:[A-Za-z0-9+/=]+|[A-Za-z-]{1,20}: ?[A-Za-z0-9,-]*|-{1,5}[A-Z0-9 ]{0,60}-{0,4})?)*\\?"
        ),
    ),
)
_BY_START = {start: form for form in _FORMATS for start in form.starts}
_NAMES_IN_BYTES = tuple(name.encode() for name in _NAMED)
_ANCHOR = re.compile(b"|".join(re.escape(start) for start in _BY_START))
_ANCHOR_WITHOUT_NAMES = re.compile(
    b"|".join(re.escape(start) for start in _BY_START if not start.lower().startswith(_NAMES_IN_BYTES))
)
"""Seven times as fast, for the usual output that holds none of the names."""
_BEGINNINGS = {start[:size]: _BY_START[start] for start in _BY_START for size in range(1, len(start))}
_LONGEST_START = max(map(len, _BY_START))


def _anchors(data: bytes, position: int, before: bytes) -> Iterator[tuple[int, _Format]]:
    lowered = data.lower()
    named = any(name in lowered for name in _NAMES_IN_BYTES)
    for anchor in (_ANCHOR if named else _ANCHOR_WITHOUT_NAMES).finditer(data, position):
        start = anchor.start()
        left = data[start - 1 : start] if start else before
        form = _BY_START[anchor.group()]
        if not re.match(form.not_after, left):
            yield start, form


def _format_spans(data: bytes, before: bytes) -> Iterator[Span]:
    for start, form in _anchors(data, 0, before):
        match = form.whole.match(data, start)
        if match and match.group(1) != _MASK_BYTES and _accepted(form, match):
            yield match.span(1)


def _accepted(form: _Format, match: re.Match[bytes]) -> bool:
    token = match.group(1)
    if form.starts == (b"://",) and match.start(1) == match.start() + 3:
        # `git@host` names a user; a token that stands there alone is long and not a word.
        return len(token) >= 16 and _has_digit(token)
    return form.accepts(token)


def _unfinished_format(data: bytes, before: bytes) -> int:
    """Where the earliest token stands that the end of `data` may cut short."""
    for start, form in _anchors(data, max(0, len(data) - _PEM_HOLD_BYTES), before):
        if len(data) - start <= form.hold_bytes and form.open.fullmatch(data, start):
            return start
    for size in range(min(_LONGEST_START, len(data)), 0, -1):
        form_begun = _BEGINNINGS.get(data[-size:])
        left = data[-size - 1 : -size] if size < len(data) else before
        if form_begun and not re.match(form_begun.not_after, left):
            return len(data) - size
    return len(data)


def _run_at_end(data: bytes, before: bytes) -> re.Pattern[bytes] | None:
    """The characters of an over-long token that reaches the end of `data`."""
    for start, form in _anchors(data, 0, before):
        match = form.whole.match(data, start)
        if form.run and match and match.end() == len(data) and _accepted(form, match):
            return form.run
    return None
