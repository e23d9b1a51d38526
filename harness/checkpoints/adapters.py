"""LoRA adapters against their start: lora_B is made of zeros, so that any other element was trained.

Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models", section 4.1. Other initialisations of PEFT
(PiSSA, LoftQ, OLoRA) begin elsewhere, and then the config says so.
"""

from __future__ import annotations

import json
from pathlib import Path

from harness.checkpoints.compare import MAX_NAMES, Comparison
from harness.checkpoints.huggingface import held_tensors
from harness.checkpoints.inventory import Checkpoint
from harness.checkpoints.tensors import TensorInfo

CHUNK_BYTES = 1 << 20


def from_zero(one: Checkpoint) -> Comparison | None:
    """An adapter's lora_B tensors against zeros; None where it is none, or where they did not start there."""
    if not one.weights or not _starts_at_zero(one.weights[0].parent):
        return None
    held, unreadable = held_tensors(one.weights)
    factors = {name: place for name, place in held.items() if "lora_B" in name or "lora_embedding_B" in name}
    if unreadable or not factors:
        return None
    try:
        changed = [name for name, (path, tensor) in sorted(factors.items()) if _has_value(path, tensor)]
    except OSError:
        return None
    return Comparison(
        compared=len(factors), changed=len(changed), changed_names=tuple(changed[:MAX_NAMES]), max_abs_change=None,
        buffers_changed=0, cast=0, resized=0, missing=(), added=(), decay_factor=None)


def _starts_at_zero(directory: Path) -> bool:
    """Whether adapter_config.json asks for the initialisation with zeros, which is the default."""
    try:
        with (directory / "adapter_config.json").open("rb") as stream:
            config = json.loads(stream.read(1 << 20))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(config, dict) and config.get("init_lora_weights", True) in (True, "gaussian")


def _has_value(path: Path, tensor: TensorInfo) -> bool:
    """Whether any element is other than 0; a negative zero is counted, which only training makes."""
    with path.open("rb") as stream:
        stream.seek(tensor.start)
        left = tensor.end - tensor.start
        while left > 0 and (part := stream.read(min(CHUNK_BYTES, left))):
            if part.count(0) != len(part):
                return True
            left -= len(part)
    return False
