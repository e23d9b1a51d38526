"""TRL's GRPO with its settings in the source, as many examples have them."""

import sys

from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer


def digits(completions, **kwargs):
    """The share of digits in what was written."""
    return [sum(character.isdigit() for character in text) / max(1, len(text)) for text in completions]


def constant(completions, **kwargs):
    """A reward from which nothing can be learned."""
    return [1.0 for _ in completions]


def main():
    model, data, reward = sys.argv[1:4]
    config = GRPOConfig(
        output_dir="grpo-out", max_steps=4, per_device_train_batch_size=4, num_generations=4,
        max_completion_length=8, logging_steps=1, learning_rate=1e-3, save_strategy="steps", save_steps=2,
        use_cpu=True, report_to="none", bf16=False, log_completions="silent" not in sys.argv,
    )  # fmt: skip
    dataset = load_dataset("json", data_files=data, split="train")
    trainer = GRPOTrainer(
        model=model, args=config, train_dataset=dataset, reward_funcs=digits if reward == "digits" else constant
    )
    trainer.train()


if __name__ == "__main__":
    main()
