"""Checkpoints of AReno on MLX, through its own provider; by transformers where AReno is not at hand."""

# mypy: ignore-errors

import os

from _answer import Broken
from _load_transformers import NEW_TOKENS, load_transformers, prompts_of


def load_areno(request, answer):
    """The provider that AReno itself trains and samples with: strict keys, a forward pass, a greedy sample."""
    os.environ.setdefault("MLX_DISABLE_COMPILE", "1")
    try:
        import mlx.core as mx
        from areno.api.backend.mlx.provider import load_provider
        from mlx.utils import tree_flatten
    except ImportError as error:
        answer.note(f"AReno's own loading is not at hand ({error}); loaded by transformers")
        load_transformers(request, answer)
        return
    provider = load_provider(request["path"])
    weights = dict(tree_flatten(provider.model.parameters()))
    if not weights:
        raise Broken("it holds no tensor")
    answer.fields["tensors"] = len(weights)
    answer.note("loaded by AReno's MLX provider")
    ids = provider.tokenizer.encode(prompts_of(request)[0]) or [0]
    logits = provider.model(mx.array([ids]))
    answer.fields["forward_ok"] = bool(mx.isfinite(logits.astype(mx.float32)).all().item())
    if not answer.fields["forward_ok"]:
        answer.fields["error_kind"] = "forward"
        raise Broken("a forward pass gives values that are not finite")
    for prompt in prompts_of(request)[:3]:
        text = _greedy(provider, prompt, mx)
        answer.fields["samples"].append({"prompt": prompt[:2000], "completion": text[:2000]})


def _greedy(provider, prompt, mx):
    ids = list(provider.tokenizer.encode(prompt)) or [0]
    start, end = len(ids), getattr(provider.tokenizer, "eos_token_id", None)
    for _ in range(NEW_TOKENS):
        token = int(provider.model(mx.array([ids]))[0, -1].argmax().item())
        if token == end:
            break
        ids.append(token)
    return provider.tokenizer.decode(ids[start:])
