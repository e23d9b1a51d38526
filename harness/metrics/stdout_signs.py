"""Lines that may say something by their words: most of a log has none of them, or no number behind them."""

from __future__ import annotations

import re
from collections.abc import Iterator

SIGNS = (b"step", b"epoch", b"iter", b"***", b"num ex", b"batch size", b"loss:")
"""Of them each line has one that says anything, but for dicts and bars of tqdm; see read_line."""
_BETWEEN = rb"(?:[ \t\r\x0b\x0c\x1c-\x1f=:#\[\x80-\xff]|\x1b\[[0-9;?]{0,40}[a-z]){0,120}[0-9\x80-\xff]"
"""What may stand between a word and its number: blanks of any script, signs, colours."""
_COUNTED = {
    word: re.compile(word + ends + _BETWEEN)
    for word, ends in ((b"step", b"s?"), (b"epoch", b"s?"), (b"iter", b"(?:ation)?s?"), (b"update", b"s?"))
}
_BANNERS = (b"***", b"num ex", b"batch size")
_OF_BARS = (b"loss:", b"/step")
_COUNTS_FIRST = re.compile(rb"(?:[ \t\r\x0b\x0c\x1c-\x1f\x80-\xff]|\x1b\[[0-9;?]{0,40}[a-z]){0,60}[0-9\x80-\xff]")
"""How a bar of Keras begins."""


def is_signed(low: bytes) -> bool:
    """Whether a text of lower case holds a sign at all."""
    find = low.find  # `in` costs four times as much: it first tries its operand as a number
    for sign in SIGNS:  # noqa: SIM110 (a generator costs twice the time)
        if find(sign) >= 0:
            return True
    return False


def signed_lines(text: bytes) -> dict[int, int]:
    """{start: end} of the lines that read_line may make something of, apart from those with a dict or a bar of tqdm.

    A line that is not among them says nothing; one that is may say nothing all the same.
    """
    low, found = text.lower(), dict[int, int]()
    for at in _starts(low):
        start = low.rfind(b"\n", 0, at) + 1
        if start not in found:
            found[start] = _end_of(low, at)
    return found


def lines_with(text: bytes, sign: bytes) -> dict[int, int]:
    """{start: end} of the lines that hold a sign."""
    found, at = dict[int, int](), text.find(sign)
    while at >= 0:
        end = _end_of(text, at)
        found[text.rfind(b"\n", 0, at) + 1] = end
        at = text.find(sign, end)
    return found


def _starts(low: bytes) -> Iterator[int]:
    """Where in a text of lower case the signs stand, each of a line that bears it rightly."""
    for word, pattern in _COUNTED.items():
        if low.find(word) >= 0:
            for match in pattern.finditer(low):
                yield match.start()
    for word in _BANNERS:
        yield from lines_with(low, word)
    for word in _OF_BARS:
        for start in lines_with(low, word):
            if _COUNTS_FIRST.match(low, start):
                yield start


def _end_of(text: bytes, at: int) -> int:
    end = text.find(b"\n", at)
    return end if end >= 0 else len(text)
