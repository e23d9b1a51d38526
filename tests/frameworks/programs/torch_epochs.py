"""Plain PyTorch that knows epochs only: `--epochs` has a default, and one JSON line an epoch is logged."""

import argparse
import json
from pathlib import Path

import torch


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--break-in-epoch", type=int, default=0)
    options = parser.parse_args()
    torch.manual_seed(0)
    Path("logs").mkdir(exist_ok=True)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), options.lr)
    with open("logs/metrics.jsonl", "w", encoding="utf-8") as log:  # noqa: PTH123
        for epoch in range(1, options.epochs + 1):
            if epoch == options.break_in_epoch:
                break
            total = 0.0
            for _ in range(10):
                inputs = torch.randn(16, 8)
                loss = torch.nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.item()
            log.write(json.dumps({"epoch": epoch, "loss": total / 10, "lr": options.lr}) + "\n")


if __name__ == "__main__":
    main()
