"""Secrets that tell themselves: tokens of a published format, and values behind a name that only a secret has."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from harness.record import secret_finder as finder
from harness.record.hints import Hints

MASK = "***"
MASK_BYTES = MASK.encode()
_FORMAT_HOLD_BYTES = 8192
"""A token of unambiguous format that has not ended after this many bytes is masked as far as it was seen."""
_PEM_HOLD_BYTES = 16384

Span = tuple[int, int]
"""Start and end of a secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
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


def _token(starts: str, characters: str, least: int, **more: Any) -> Format:
    names = starts.split()
    head = "(?:" + "|".join(re.escape(name) for name in names) + ")"
    return Format(
        starts=tuple(name.encode() for name in names),
        whole=re.compile(f"({head}[{characters}]{{{least},}})".encode()),
        open=re.compile(f"{head}[{characters}]*".encode()),
        run=re.compile(f"[{characters}]*".encode()),
        **more,
    )


_NAMED = (
    "password", "passwd", "passphrase", "api_key", "api-key", "apikey", "secret_key", "access_key", "access_token",
    "auth_token", "client_secret", "private_key",
)
_NAMED_VALUE = rb"[^\s'\",;&<>{}()\[\]\\]"


def _named(separators: tuple[str, ...], accepts: Callable[[bytes], bool]) -> Format:
    """A value behind a name that only a secret has, as `api_key=...` or `"password": "..."`."""
    names = [*_NAMED, *(name.upper() for name in _NAMED)]
    starts = tuple((name + separator).encode() for name in names for separator in separators)
    head = b"(?:" + b"|".join(re.escape(start) for start in starts) + b")['\"]?"
    return Format(
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
    Format(
        starts=(b"AKIA", b"ASIA"),
        whole=re.compile(rb"(A[KS]IA[A-Z0-9]{16})(?![A-Za-z0-9])"),
        open=re.compile(rb"A[KS]IA[A-Z0-9]{0,16}"),
        run=None,
    ),
    Format(
        starts=(b"eyJ",),
        not_after=rb"[A-Za-z0-9_-]",
        whole=re.compile(rb"(eyJ%b{8,}\.%b{8,}(?:\.%b*)?)" % (_JWT_RUN, _JWT_RUN, _JWT_RUN)),
        open=re.compile(rb"eyJ%b*(?:\.%b*){0,2}" % (_JWT_RUN, _JWT_RUN)),
        run=re.compile(rb"[A-Za-z0-9_.-]*"),
    ),
    Format(
        starts=(b"Bearer ", b"bearer ", b"BEARER "),
        whole=re.compile(rb"(?i:bearer) {1,3}([A-Za-z0-9._~+/=-]{8,})"),
        open=re.compile(rb"(?i:bearer) {1,3}[A-Za-z0-9._~+/=-]*"),
        run=re.compile(rb"[A-Za-z0-9._~+/=-]*"),
        accepts=lambda token: _has_digit(token) or len(token) >= 20,
    ),
    Format(
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
    Format(
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
_HINTS = Hints(_BY_START, alike=b"pousr", left_out=b" =:'\"")
_BEGINNINGS = {start[:size]: _BY_START[start] for start in _BY_START for size in range(1, len(start))}
_LONGEST_START = max(map(len, _BY_START))


@lru_cache(maxsize=64)
def _any_of(starts: tuple[bytes, ...]) -> re.Pattern[bytes]:
    return re.compile(b"|".join(map(re.escape, starts)))


def _anchors(data: bytes, position: int, before: bytes) -> Iterator[tuple[int, Format]]:
    """Where a token may begin, from `position` on."""
    text = data[position:] if position else data
    hinted = set(_HINTS.may_hold(text))
    starts = tuple(start for start in _BY_START if start in hinted and start in text) if hinted else ()
    for anchor in _any_of(starts).finditer(data, position) if starts else ():
        start = anchor.start()
        left = data[start - 1 : start] if start else before
        form = _BY_START[anchor.group()]
        if not re.match(form.not_after, left):
            yield start, form


def format_spans(data: bytes, before: bytes) -> Iterator[Span]:
    for start, form in _anchors(data, 0, before):
        match = form.whole.match(data, start)
        if match and match.group(1) != MASK_BYTES and _accepted(form, match):
            yield match.span(1)


def _accepted(form: Format, match: re.Match[bytes]) -> bool:
    token = match.group(1)
    if form.starts == (b"://",) and match.start(1) == match.start() + 3:
        # `git@host` names a user; a token that stands there alone is long and not a word.
        return len(token) >= 16 and _has_digit(token)
    return form.accepts(token)


def unfinished_format(data: bytes, before: bytes) -> int:
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


def run_at_end(data: bytes, before: bytes) -> re.Pattern[bytes] | None:
    """The characters of an over-long token that reaches the end of `data`."""
    for start, form in _anchors(data, 0, before):
        match = form.whole.match(data, start)
        if form.run and match and match.end() == len(data) and _accepted(form, match):
            return form.run
    return None
