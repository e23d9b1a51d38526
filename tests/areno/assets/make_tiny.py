"""Make a tiny random Qwen3 and its tokenizer: `python make_tiny.py DIRECTORY [--seed N]`.

No network and nothing downloaded: the tokenizer is trained on the sentences of `make_data.py`, the weights
are drawn from the seed. The same seed gives the same files, so two runs can be compared.
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

from make_data import sentences

VOCAB_SIZE = 320
SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def make_tokenizer(directory: Path) -> int:
    """Train a byte-level BPE and write it with its chat template; returns the number of tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    bpe.train_from_iterator(sentences(), trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        model_max_length=4096,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(directory)
    return len(tokenizer)


def make_model(directory: Path, *, num_tokens: int, seed: int) -> int:
    """Write a 2-layer Qwen3 of hidden size 64 as safetensors; returns its number of parameters."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=num_tokens,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=4096,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=SPECIAL_TOKENS.index("<|im_end|>"),
        pad_token_id=SPECIAL_TOKENS.index("<|endoftext|>"),
    )
    model = Qwen3ForCausalLM(config)
    model.save_pretrained(directory)
    return sum(parameter.numel() for parameter in model.parameters())


def make_tiny(directory: Path, *, seed: int = 0) -> str:
    """Write tokenizer and model into `directory` and return a line that says what was made."""
    directory.mkdir(parents=True, exist_ok=True)
    num_tokens = make_tokenizer(directory)
    num_parameters = make_model(directory, num_tokens=num_tokens, seed=seed)
    digest = hashlib.sha256((directory / "model.safetensors").read_bytes()).hexdigest()
    return f"{directory}: {num_tokens} tokens, {num_parameters} parameters, sha256 {digest[:16]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    print(make_tiny(arguments.directory, seed=arguments.seed))


if __name__ == "__main__":
    main()
