"""Make a tiny Qwen2 with random weights, a character tokenizer and three data sets; no network."""

import json
import sys
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789 +=?.:"
TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}<eos>{% endfor %}"


def main() -> None:
    """The model goes to argv[1], the data beside it."""
    directory = Path(sys.argv[1])
    words = {"<pad>": 0, "<eos>": 1, "<unk>": 2} | {c: i for i, c in enumerate(CHARACTERS, start=3)}
    inner = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Split(Regex("."), behavior="isolated")
    inner.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", chat_template=TEMPLATE
    )
    tokenizer.save_pretrained(directory)
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(words), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=256, pad_token_id=0, eos_token_id=1, bos_token_id=1,
    )  # fmt: skip
    Qwen2ForCausalLM(config).save_pretrained(directory)
    sums = [(a, b) for a in range(10) for b in range(10)]
    write(directory.parent / "sft.jsonl", [{"text": f"{a}+{b}={a + b}."} for a, b in sums])
    write(
        directory.parent / "dpo.jsonl",
        [{"prompt": f"{a}+{b}=", "chosen": f"{a + b}.", "rejected": f"{a + b + 1}?"} for a, b in sums],
    )
    write(directory.parent / "prompts.jsonl", [{"prompt": f"{a}+{b}="} for a, b in sums])


def write(path: Path, rows: list[dict[str, str]]) -> None:
    """One JSON object a line."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
