"""TRL's SFT, with --use_peft for LoRA; every field of its configurations is a flag."""

from datasets import load_dataset
from trl import ModelConfig, ScriptArguments, SFTConfig, SFTTrainer, TrlParser, get_peft_config


def main():
    script, config, model = TrlParser((ScriptArguments, SFTConfig, ModelConfig)).parse_args_and_config()
    dataset = load_dataset("json", data_files=script.dataset_name, split="train")
    held_out = None
    if config.eval_strategy != "no":
        dataset, held_out = dataset.select(range(4)), dataset.select(range(4, len(dataset)))
    trainer = SFTTrainer(
        model=model.model_name_or_path, args=config, train_dataset=dataset, eval_dataset=held_out,
        peft_config=get_peft_config(model),
    )  # fmt: skip
    trainer.train()
    trainer.save_model(config.output_dir)


if __name__ == "__main__":
    main()
