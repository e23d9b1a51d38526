"""Which of many words may stand in a text, at a fraction of the price of searching for each.

The text is searched in a shortened form: without case, without the bytes that no word holds, and with letters that
are taken for each other. A word that stands in the text stands in its short form too, never the other way round.
"""

from __future__ import annotations

from collections.abc import Iterable

_LOWER = bytes(range(65)) + bytes(range(97, 123)) + bytes(range(91, 256))


class Hints:
    """Built once for a set of words, used for many texts."""

    def __init__(self, words: Iterable[bytes], *, alike: bytes = b"", left_out: bytes = b"") -> None:
        """`words`: what is looked for, in any case. `alike`: lower-case letters that count as the first of them;
        `left_out`: bytes that are dropped though words hold them."""
        every = tuple(dict.fromkeys(words))
        self._table = bytes(alike[0] if byte in alike else byte for byte in _LOWER)
        held = set(b"".join(every).translate(self._table, left_out))
        self._dropped = bytes(byte for byte in range(256) if byte in left_out or self._table[byte] not in held)
        self._words: dict[bytes, list[bytes]] = {}
        for word in every:
            self._words.setdefault(word.translate(self._table, self._dropped), []).append(word)

    def may_hold(self, text: bytes) -> list[bytes]:
        """Words that may stand in the text; most often none."""
        short = text.translate(self._table, self._dropped)
        return [word for hint, words in self._words.items() if hint in short for word in words]
