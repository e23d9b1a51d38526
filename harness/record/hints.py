"""Which of many words may stand in a text, at a fraction of the price of searching for each.

A short text is searched in a shortened form: without case, without the bytes that no word holds, and with letters that
are taken for each other. In a long one every four bytes are looked up at once, in a table that holds four of each word.
What is answered may be wrong the one way only: a word that stands in the text is always named.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_LOWER = bytes(range(65)) + bytes(range(97, 123)) + bytes(range(91, 256))
LONG_BYTES = 16 << 10
"""From here on a text is worth the table."""
_GRAM = 4
_FACTOR = 0x9E3779B1
"""Spreads four bytes over the table (Knuth's multiplicative hashing)."""
_BITS = 18
_USUAL = b" etaoinsrlhdcumpfg=:._"
"""Bytes that are frequent in logs, most frequent first."""


class Hints:
    """Built once for a set of words, used for many texts."""

    def __init__(self, words: Iterable[bytes], *, alike: bytes = b"", left_out: bytes = b"") -> None:
        """`words`: what is looked for, in any case. `alike`: lower-case letters that count as the first of them;
        `left_out`: bytes that are dropped though words hold them."""
        every = tuple(dict.fromkeys(words))
        self._every = every
        self._table = bytes(alike[0] if byte in alike else byte for byte in _LOWER)
        held = set(b"".join(every).translate(self._table, left_out))
        self._dropped = bytes(byte for byte in range(256) if byte in left_out or self._table[byte] not in held)
        self._words: dict[bytes, list[bytes]] = {}
        for word in every:
            self._words.setdefault(word.translate(self._table, self._dropped), []).append(word)

    def may_hold(self, text: bytes) -> list[bytes]:
        """Words that may stand in the text; most often none."""
        if len(text) >= LONG_BYTES:
            return self._in_long(text)
        short = text.translate(self._table, self._dropped)
        return [word for hint, words in self._words.items() if hint in short for word in words]

    def _in_long(self, text: bytes) -> list[bytes]:
        import numpy as np

        low, (table, by_gram) = text.translate(_LOWER), self._grams
        found: set[bytes] = set()
        for offset in range(_GRAM):
            grams = np.frombuffer(low, "<u4", (len(low) - offset) // _GRAM, offset)
            hits = table.take((grams * np.uint32(_FACTOR)) >> np.uint32(32 - _BITS)).nonzero()[0]
            for gram in set(grams[hits].tolist()) if len(hits) else ():
                found.update(by_gram.get(gram, ()))
        end = low[-_GRAM:]
        return [word for word in self._every
                if word in found or end.endswith(word.lower()) or (len(word) < _GRAM - 1 and word.lower() in low)]

    @cached_property
    def _grams(self) -> tuple[npt.NDArray[np.bool_], dict[int, list[bytes]]]:
        """Where the table is set, and the words that hold four bytes."""
        import numpy as np

        by_gram: dict[int, list[bytes]] = {}
        for word in self._every:
            for gram in _grams_of(word.lower()) if len(word) >= _GRAM - 1 else ():
                by_gram.setdefault(int.from_bytes(gram, "little"), []).append(word)
        table = np.zeros(1 << _BITS, dtype=np.bool_)
        keys = np.array(list(by_gram), dtype=np.uint32)
        table[(keys * np.uint32(_FACTOR)) >> np.uint32(32 - _BITS)] = True
        return table, by_gram


def _grams_of(word: bytes) -> list[bytes]:
    """Four bytes of a word, the least usual ones; of one of three bytes all that it may begin."""
    if len(word) < _GRAM:
        return [word + bytes([byte]) for byte in range(256)]
    pieces = [word[at : at + _GRAM] for at in range(len(word) - _GRAM + 1)]
    return [min(pieces, key=lambda piece: sum(_weight(byte) for byte in piece))]


def _weight(byte: int) -> int:
    place = _USUAL.find(byte)
    return 0 if place < 0 else len(_USUAL) - place
