"""Hints leave out no word that stands in a text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from harness.record.hints import Hints

PIECES = [b"api_key", b"API_KEY=", b"sk-", b"gho_", b"ghp_", b"Error", b" no space", b"a", b"=", b": '", b"\n", b"\xff"]


@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=6), st.lists(st.sampled_from(PIECES), max_size=12),
       st.sampled_from([b"", b"pousr", b"ae"]), st.sampled_from([b"", b" =:'"]))
def test_word_that_stands_in_the_text_is_hinted_at(
    words: list[bytes], text: list[bytes], alike: bytes, left_out: bytes
) -> None:
    """Whatever counts as alike or is left out."""
    whole = b"".join(text)
    hinted = Hints(words, alike=alike, left_out=left_out).may_hold(whole)
    assert {word for word in words if word.lower() in whole.lower()} <= set(hinted)


def test_text_without_a_word_is_told_by_its_short_form() -> None:
    """Nothing is hinted at where no short form stands."""
    hints = Hints([b"password=", b"hf_"], alike=b"pousr", left_out=b"=")
    assert hints.may_hold(b"step 12 loss 0.5") == []
    assert hints.may_hold(b"PASSWORD =") == [b"password="]
