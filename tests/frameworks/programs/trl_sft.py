"""TRL's SFT, with --use_peft for LoRA; every field of its configurations is a flag."""

from dataclasses import dataclass, field

from datasets import load_dataset
from transformers import EarlyStoppingCallback
from trl import ModelConfig, ScriptArguments, SFTConfig, SFTTrainer, TrlParser, get_peft_config


@dataclass
class Own:
    """What this script adds."""

    stop_patience: int = field(default=0, metadata={"help": "an EarlyStoppingCallback of this patience"})


def main():
    parser = TrlParser((ScriptArguments, SFTConfig, ModelConfig, Own))
    script, config, model, own = parser.parse_args_and_config()
    dataset = load_dataset("json", data_files=script.dataset_name, split="train")
    held_out = None
    if config.eval_strategy != "no":
        dataset, held_out = dataset.select(range(4)), dataset.select(range(4, len(dataset)))
    trainer = SFTTrainer(
        model=model.model_name_or_path, args=config, train_dataset=dataset, eval_dataset=held_out,
        peft_config=get_peft_config(model),
        callbacks=[EarlyStoppingCallback(early_stopping_patience=own.stop_patience)] if own.stop_patience else [],
    )  # fmt: skip
    trainer.train()
    trainer.save_model(config.output_dir)
    if own.stop_patience:
        trainer.save_state()


if __name__ == "__main__":
    main()
