"""Whether two names mean one metric: `loss` of a printed row and `train/loss` of an event file do."""

from __future__ import annotations

import re

_WORD = re.compile(r"[a-z0-9]+|[^\x00-\x7f]+")
_EVALUATION = frozenset({"eval", "evaluation", "val", "valid", "validation", "test", "dev"})
_SAYS_LITTLE = (frozenset({"train", "training"}), frozenset({"epoch", "step"}))
"""Dropped in turn as long as another word is left: Lightning logs train_loss_step, Keras epoch_loss."""
_SHORT = {"learning": "lr", "rate": "lr", "gradient": "grad", "accuracy": "acc"}


def meaning(run: str, tag: str) -> frozenset[str]:
    """The words of a tag, and of its run directory where that names an evaluation."""
    words = {_SHORT.get(word, word) for word in _WORD.findall(tag.lower())}
    if run.rpartition("/")[2].lower() in _EVALUATION:
        words.add("eval")
    if words & _EVALUATION:
        words = (words - _EVALUATION) | {"eval"}
    for little in _SAYS_LITTLE:
        words = words - little or words
    return frozenset(words)
