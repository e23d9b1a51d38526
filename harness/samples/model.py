"""A rollout sample, and what its text is like in numbers."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

NGRAM_WORDS, NGRAM_CHARS = 4, 8
MIN_UNITS = 40
"""Fewer n-grams than this do not tell a repetition loop from a short answer."""
MANY_WORDS = 20
"""A text with fewer words is taken by characters, as one without spaces must be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutSample:
    """One prompt and what the model made of it, whole."""

    step: int | None
    """As the trainer's own metric series counts; None where the file does not say."""
    agentic: bool
    prompt: str
    completion: str
    """What the model wrote, special tokens left out."""
    raw_completion: str
    """As the file holds it, which is what the reward was given."""
    messages: tuple[Mapping[str, Any], ...] = ()
    """The transcript of an agentic sample."""
    source_record: Mapping[str, Any] | None = None
    """The dataset's row."""
    response_tokens: int | None = None
    reward: float | None = None
    """As the file holds it."""
    extra: Mapping[str, Any] | None = None
    """Fields that a reward function may read: tool_calls, tool_results, final_answer, rendered_completion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFeatures:
    """A text in numbers."""

    chars: int
    """Without surrounding white space."""
    undecodable_share: float
    """Share of characters that no decoder of text gives: U+FFFD, control, surrogate, private, unassigned ones."""
    repetition: float
    """1 - distinct/all over 4-grams of words, or 8-grams of characters where there are few words; 0 for a short text.

    The measure is seq-rep-n of Welleck et al., Neural Text Generation with Unlikelihood Training (2019).
    """


def text_features(text: str) -> TextFeatures:
    """Measure a text; its cost is linear in the length."""
    stripped = text.strip()
    odd = sum(1 for char in stripped if _is_undecodable(char))
    return TextFeatures(
        chars=len(stripped), undecodable_share=odd / len(stripped) if stripped else 0.0,
        repetition=round(_repetition(stripped), 4),
    )


def _is_undecodable(char: str) -> bool:
    if char.isascii():
        return not (char.isprintable() or char in "\n\r\t")
    return char == "\N{REPLACEMENT CHARACTER}" or unicodedata.category(char) in ("Cc", "Cs", "Co", "Cn")


def _repetition(text: str) -> float:
    words = text.split()
    units: Sequence[str] = words if len(words) >= MANY_WORDS else text
    size = NGRAM_WORDS if len(words) >= MANY_WORDS else NGRAM_CHARS
    total = len(units) - size + 1
    if total < MIN_UNITS:
        return 0.0
    distinct = len({tuple(units[start : start + size]) for start in range(total)})
    return 1.0 - distinct / total
