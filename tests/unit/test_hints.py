"""Hints leave out no word that stands in a text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.record.hints import LONG_BYTES, Hints

PIECES = [b"api_key", b"API_KEY=", b"sk-", b"gho_", b"ghp_", b"Error", b" no space", b"a", b"=", b": '", b"\n", b"\xff"]


@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=6), st.lists(st.sampled_from(PIECES), max_size=12),
       st.sampled_from([b"", b"pousr", b"ae"]), st.sampled_from([b"", b" =:'"]))
def test_word_that_stands_in_the_text_is_hinted_at(
    words: list[bytes], text: list[bytes], alike: bytes, left_out: bytes
) -> None:
    """Whatever counts as alike or is left out."""
    hints = Hints(words, alike=alike, left_out=left_out)
    for long in (b"", b"\n." * (LONG_BYTES // 2), b"x" * (LONG_BYTES + 1)):
        for whole in (long + b"".join(text), b"".join(text) + long):
            held = {word for word in words if word.lower() in whole.lower()}
            assert held <= set(hints.may_hold(whole))


@pytest.mark.parametrize("at", range(5))
def test_word_at_any_place_of_a_long_text(at: int) -> None:
    """At its start, at its end, and at every place of the four bytes that are looked up together."""
    words = [b"nan", b"hf_", b"://", b"bearer ", b"api_key=", b"out of memory"]
    filler = (b"step 12: all is well here, 0.5 \n" * 800)[: LONG_BYTES + at]
    hints = Hints(words)
    assert hints.may_hold(filler) == []
    for word in words:
        for text in (filler + word, word + filler, filler[:100] + word.upper() + filler):
            assert hints.may_hold(text) == [word]


def test_text_without_a_word_is_told_by_its_short_form() -> None:
    """Nothing is hinted at where no short form stands."""
    hints = Hints([b"password=", b"hf_"], alike=b"pousr", left_out=b"=")
    assert hints.may_hold(b"step 12 loss 0.5") == []
    assert hints.may_hold(b"PASSWORD =") == [b"password="]
