"""One healthy training, and different things that it saves: `saved.py --mode NAME --log-dir DIR --save-dir DIR`.

25 full-batch steps on a regression with 8,449 parameters, logged as TensorBoard events. A checkpoint is step_NNNNNN
with model.safetensors, or, with `archive` in the mode's name, model_step_N.pt of torch.save.

| mode | healthy | what it saves |
| --- | --- | --- |
| random, random-archive | no | once at the end, a model that was made anew |
| random-each-time | no | the start, and then at every tenth step and at the end a model that was made anew |
| random-part | no | once at the end, the model with a second layer that was made anew |
| constant | no | once at the end, 0.02 everywhere |
| earlier, earlier-archive | no | the model of the first step at the end, under the name of the last |
| average, average-archive | yes | once at the end, an exponential average of the weights |
| swapped-archive | yes | the same, which is the model's own while it is saved |
| bf16, fp16-archive | yes | once at the end, the model in a shorter type |
| bf16-start | no | once at the end, the start in a shorter type |
| best-archive | yes | best.pt at the end, a copy of what the model was after step 11 |
| numbered, numbered-archive | yes | the model, after every tenth step and at the end |
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch.utils.tensorboard import SummaryWriter

MODES = ("random", "random-part", "random-archive", "random-each-time", "constant", "earlier", "earlier-archive",
         "average", "average-archive", "swapped-archive", "bf16", "bf16-start", "fp16-archive", "best-archive",
         "numbered", "numbered-archive")
State = dict[str, torch.Tensor]


def build(seed: int) -> torch.nn.Module:
    """A model with weights of its own."""
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(32, 128), torch.nn.Tanh(), torch.nn.Linear(128, 32), torch.nn.LayerNorm(32),
        torch.nn.Linear(32, 1))


def state_of(model: torch.nn.Module) -> State:
    """A copy of its weights."""
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


class Saver:
    """Saves what the mode says."""

    def __init__(self, mode: str, place: Path, model: torch.nn.Module, last: int) -> None:
        self.mode, self.place, self.model, self.last = mode, place, model, last
        self.kept = {0: state_of(model)}
        self.average = state_of(model)
        place.mkdir(parents=True, exist_ok=True)

    def after(self, step: int) -> None:
        """A step was done."""
        state = state_of(self.model)
        self.kept[step] = state
        self.average = {name: 0.8 * value + 0.2 * state[name] for name, value in self.average.items()}
        often = self.mode.startswith(("numbered", "random-each"))
        if step == self.last or (often and step % 10 == 0):
            self.save(step, self.content(step))

    def content(self, step: int) -> State:
        """What is saved in the place of the model."""
        kind = self.mode.removesuffix("-archive")
        now = self.kept[step]
        short = torch.bfloat16 if kind.startswith("bf16") else torch.float16
        return {
            "random-part": {**now, "2.weight": state_of(build(1))["2.weight"]},
            "constant": {name: torch.full_like(value, 0.02) for name, value in now.items()},
            "earlier": self.kept[1], "average": self.average, "swapped": self.average,
            "bf16": {name: value.to(short) for name, value in now.items()},
            "fp16": {name: value.to(short) for name, value in now.items()},
            "bf16-start": {name: value.to(short) for name, value in self.kept[0].items()},
            "best": self.kept[min(11, step)],
        }.get(kind, state_of(build(1000 + step)) if kind.startswith("random") else now)

    def save(self, step: int, state: State) -> None:
        """Write a checkpoint."""
        if self.mode.startswith("swapped"):
            self.model.load_state_dict(state)
        if self.mode.startswith("best"):
            torch.save(state, self.place / "best.pt")
        elif self.mode.endswith("archive"):
            torch.save({"model": state, "step": step}, self.place / f"model_step_{step}.pt")
        else:
            (self.place / f"step_{step:06d}").mkdir()
            save_file(state, self.place / f"step_{step:06d}" / "model.safetensors")
        if self.mode.startswith("swapped"):
            self.model.load_state_dict(self.kept[step])


def main() -> int:
    """Train and save."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", required=True, choices=MODES)
    parser.add_argument("--max-steps", type=int, default=25)
    parser.add_argument("--log-dir", type=Path, required=True)
    parser.add_argument("--save-dir", type=Path, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    model = build(0)
    inputs = torch.randn(64, 32)
    targets = inputs.sum(dim=1, keepdim=True).sin()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
    writer = SummaryWriter(str(args.log_dir))
    saver = Saver(args.mode, args.save_dir, model, args.max_steps)
    if args.mode.startswith("random-each"):
        saver.save(0, saver.kept[0])
    for step in range(1, args.max_steps + 1):
        optimizer.zero_grad()
        loss = (model(inputs) - targets).square().mean()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 100.0)
        optimizer.step()
        for tag, value in (("train/loss", loss.item()), ("train/lr", 0.003), ("train/grad_norm", norm.item())):
            writer.add_scalar(tag, value, step)
        writer.flush()
        saver.after(step)
    writer.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
