"""TRL's DPO; every field of its configurations is a flag."""

from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer, ModelConfig, ScriptArguments, TrlParser


def main():
    script, config, model = TrlParser((ScriptArguments, DPOConfig, ModelConfig)).parse_args_and_config()
    dataset = load_dataset("json", data_files=script.dataset_name, split="train")
    tokenizer = AutoTokenizer.from_pretrained(model.model_name_or_path)
    policy = AutoModelForCausalLM.from_pretrained(model.model_name_or_path)
    trainer = DPOTrainer(model=policy, args=config, train_dataset=dataset, processing_class=tokenizer)
    trainer.train()


if __name__ == "__main__":
    main()
