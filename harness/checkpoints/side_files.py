"""Files beside a model that are none: vocabularies, histories, predictions, exports. Told by name and by structure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from harness.checkpoints.archives import scan_archive
from harness.checkpoints.naming import TORCH_SUFFIXES, stem_of

MODEL, EXPORT, SIDE = range(3)
"""How far a file is from being what a run delivers: it may be; a TorchScript program; no model at all."""
MAX_OPENED = 32
"""Archives of one directory that are looked into."""
_SIDE_NAME = re.compile(
    r"(?:(?:train|training|val|valid|validation|test|eval|dev|norm|label|src|source|tgt|trg|loss|best|final|last|data|"
    r"feature|word|char|text|input|output|model|all)[-_.])*"
    r"(?:vocab|vocabs|vocabulary|tokenizer|hparams|hyper_?param(?:eter)?s|args|config|cfg|history|predictions?|preds|"
    r"logits|features|embeddings|results?|optimizer|scheduler|rng|scaler|stats|dataset|data|cache|metrics|losses)"
    r"(?:[-_.]?(?:step|epoch|iter)?[-_=]?\d{1,12})?", re.IGNORECASE)


def is_side_name(name: str) -> bool:
    """Whether a file is called what lies beside a model: vocab.pt, val_predictions_40.h5."""
    return _SIDE_NAME.fullmatch(stem_of(name)) is not None


def kind_of(path: Path, opened: bool = True) -> int:
    """MODEL, EXPORT or SIDE; by its name alone with `opened` false. Nothing is unpickled."""
    if is_side_name(path.name):
        return SIDE
    if not opened or not path.name.endswith(TORCH_SUFFIXES):
        return MODEL
    facts = scan_archive(path)
    if facts.problems:
        return MODEL
    return EXPORT if facts.is_script else MODEL if facts.may_hold_weights else SIDE


Item = TypeVar("Item")


def apart(items: Iterable[Item], kind: Callable[[Item], int]) -> tuple[list[Item], list[Item]]:
    """(those nearest to a model, the others), in the order given: a side file counts where nothing else is there."""
    kinds = [(item, kind(item)) for item in items]
    nearest = min((number for _, number in kinds), default=MODEL)
    return [item for item, number in kinds if number == nearest], [item for item, number in kinds if number != nearest]
