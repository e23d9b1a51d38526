"""Transformers' Trainer with every TrainingArguments field as a flag, on a GPT-2 made on the spot."""

from dataclasses import dataclass, field

import torch
from transformers import (
    EarlyStoppingCallback,
    GPT2Config,
    GPT2LMHeadModel,
    HfArgumentParser,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)


@dataclass
class ScriptArguments:
    """What this script adds."""

    nan_from_step: int = field(default=-1, metadata={"help": "the loss is NaN from this step on"})
    own_max_steps: int = field(default=-1, metadata={"help": "overwrites --max_steps, as some scripts do"})
    save_state: bool = field(default=True, metadata={"help": "call save_state() at the end"})
    stop_patience: int = field(default=0, metadata={"help": "overfit, with an EarlyStoppingCallback of this patience"})
    exit_early: int = field(default=-1, metadata={"help": "stop training after this step"})


class Sums(torch.utils.data.Dataset):
    """Counting sequences."""

    def __len__(self):
        return 160

    def __getitem__(self, index):
        ids = torch.arange(index, index + 12) % 32
        return {"input_ids": ids, "labels": ids}


class Noise(torch.utils.data.Dataset):
    """Sequences without a rule: what is learnt of some is wrong for others."""

    def __init__(self, seed, num):
        self.ids = torch.randint(0, 32, (num, 12), generator=torch.Generator().manual_seed(seed))

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        return {"input_ids": self.ids[index], "labels": self.ids[index]}


class Poisoned(Trainer):
    """Its loss turns NaN at a step."""

    nan_from_step = -1

    def compute_loss(self, *args, **kwargs):
        loss = super().compute_loss(*args, **kwargs)
        return loss * float("nan") if 0 <= self.nan_from_step <= self.state.global_step + 1 else loss


class StopAfter(TrainerCallback):
    """Ends the training after a step."""

    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop = control.should_training_stop or 0 < self.step <= state.global_step


def main():
    script, args = HfArgumentParser((ScriptArguments, TrainingArguments)).parse_args_into_dataclasses()
    if script.own_max_steps > 0:
        args.max_steps = script.own_max_steps
    torch.manual_seed(args.seed)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=16, n_embd=32, n_layer=2, n_head=2))
    train, evaluation, callbacks = Sums(), Sums(), [StopAfter(script.exit_early)]
    if script.stop_patience:
        train, evaluation = Noise(1, 8), Noise(2, 16)
        callbacks.append(EarlyStoppingCallback(early_stopping_patience=script.stop_patience))
    trainer = Poisoned(model=model, args=args, train_dataset=train, eval_dataset=evaluation, callbacks=callbacks)
    trainer.nan_from_step = script.nan_from_step
    result = trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
    if script.save_state:
        trainer.log_metrics("train", result.metrics)
        trainer.save_state()


if __name__ == "__main__":
    main()
