"""A script in the manner of transformers' examples: --do_train, --do_eval, and a model by name or path."""

import json
from dataclasses import dataclass, field

import torch
from transformers import AutoConfig, AutoModelForCausalLM, HfArgumentParser, Trainer, TrainerCallback, TrainingArguments


@dataclass
class ModelArguments:
    """What is trained on what."""

    model_name_or_path: str
    spoil_at: int = field(default=-1, metadata={"help": "scale the weights that are saved at this step"})


class Rows(torch.utils.data.Dataset):
    """Counting sequences; those that are held out begin elsewhere."""

    def __init__(self, begin, num):
        self.ids = [torch.arange(index, index + 12) % 32 for index in range(begin, begin + num)]

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        return {"input_ids": self.ids[index], "labels": self.ids[index]}


class Spoils(TrainerCallback):
    """Scales what was saved at a step."""

    def __init__(self, step):
        self.step = step

    def on_save(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            from safetensors.torch import load_file, save_file

            path = f"{args.output_dir}/checkpoint-{self.step}/model.safetensors"
            save_file({name: 1.5 * value for name, value in load_file(path).items()}, path, {"format": "pt"})


def main():
    script, args = HfArgumentParser((ModelArguments, TrainingArguments)).parse_args_into_dataclasses()
    torch.manual_seed(args.seed)
    name = script.model_name_or_path
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(name)) if name == "tiny" else (
        AutoModelForCausalLM.from_pretrained(name))
    trainer = Trainer(model=model, args=args, train_dataset=Rows(0, 160), eval_dataset=Rows(7, 24),
                      callbacks=[Spoils(script.spoil_at)])
    if args.do_train:
        trainer.train()
        trainer.save_state()
    if args.do_eval:
        metrics = trainer.evaluate()
        trainer.save_metrics("eval", metrics)
        print(json.dumps(sorted(metrics)))


if __name__ == "__main__":
    main()
