"""A plain training script, which trains as soon as it is imported: a model of its own, whose state_dict it saves."""

import argparse
from pathlib import Path

import torch
from torch import nn
from torch.utils.tensorboard import SummaryWriter

parser = argparse.ArgumentParser()
parser.add_argument("--mode", default="plain")
parser.add_argument("--width", type=int, default=8)
parser.add_argument("--max-steps", type=int, default=25)
parser.add_argument("--save-dir", default="saved")
parser.add_argument("--log-dir", default="events")
args = parser.parse_args()


class Block(nn.Module):
    """A layer and its norm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mix = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.relu(self.mix(self.norm(x)))


class Regressor(nn.Module):
    """Sums of its inputs, more or less."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(inputs, width)
        self.blocks = nn.Sequential(Block(width), Block(width))
        self.last = nn.Linear(width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.blocks(self.first(x)))


torch.manual_seed(0)
model = Regressor(5, width=args.width)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
saved = Path(args.save_dir)
saved.mkdir(exist_ok=True)
torch.save(model.state_dict(), saved / "step_0.pt")
with SummaryWriter(args.log_dir) as writer:
    for step in range(1, args.max_steps + 1):
        x = torch.randn(16, 5)
        loss = (model(x).squeeze(-1) - x.sum(-1)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        writer.add_scalar("train/loss", loss.item(), step)
state = list(model.state_dict().items())
torch.save(dict(state[:-1] if args.mode == "off-by-one" else state), saved / f"step_{args.max_steps}.pt")
