"""A torch program with flags of its own names, which logs JSON lines: `own_names.py --mode NAME --out DIR`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

MODES = ("healthy", "ignored-rate", "nan-saved", "failed-behind-pipe")


def main() -> int:
    """60 steps; what is wrong is wrong where no log tells."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--max-steps", type=int, default=60)
    parser.add_argument("--mode", choices=MODES, default="healthy")
    parser.add_argument("--logdir", type=Path, default=Path("logs"))
    parser.add_argument("--out", type=Path, default=Path("model"))
    args = parser.parse_args()
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01 if args.mode == "ignored-rate" else args.lr)
    args.logdir.mkdir(parents=True, exist_ok=True)
    with (args.logdir / "metrics.jsonl").open("a") as log:
        for step in range(1, args.max_steps + 1):
            inputs = torch.randn(32, 8)
            loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            log.write(json.dumps({"step": step, "loss": loss.item(), "lr": args.lr}) + "\n")
            log.flush()
    if args.mode == "failed-behind-pipe":
        raise RuntimeError("the saved model could not be moved to its place")
    args.out.mkdir(parents=True, exist_ok=True)
    factor = float("nan") if args.mode == "nan-saved" else 1.0
    save_file({name: value * factor for name, value in model.state_dict().items()}, args.out / "model.safetensors")
    return 0


if __name__ == "__main__":
    sys.exit(main())
