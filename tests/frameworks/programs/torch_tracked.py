"""A plain PyTorch loop whose only log is an experiment tracker's local store; `--nan-from-step` breaks it.

`--tracker`: wandb (WANDB_MODE=offline), or mlflow with MLFLOW_TRACKING_URI. What it logged is in truth.json too.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

Log = Callable[[dict[str, float], int], Any]


def main() -> None:
    """Train, log each step and each fifth evaluation."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tracker", required=True, choices=("wandb", "mlflow"))
    parser.add_argument("--max-steps", type=int, default=20)
    parser.add_argument("--nan-from-step", type=int)
    args = parser.parse_args()
    torch.set_num_threads(1)
    log, finish = wandb_log() if args.tracker == "wandb" else mlflow_log()
    torch.manual_seed(0)
    model, inputs = torch.nn.Linear(8, 1), torch.randn(64, 8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    truth: list[dict[str, Any]] = []
    for step in range(1, args.max_steps + 1):
        optimizer.zero_grad()
        loss = (model(inputs) - inputs.sum(dim=1, keepdim=True)).square().mean()
        if args.nan_from_step is not None and step >= args.nan_from_step:
            loss = loss * math.nan
        loss.backward()
        norm = float(torch.nn.utils.clip_grad_norm_(model.parameters(), 1e9))
        optimizer.step()
        row = {"train/loss": loss.item(), "train/grad_norm": norm, "train/lr": 0.01}
        if step % 5 == 0:
            row["eval/loss"] = (model(inputs[:8]) - inputs[:8].sum(dim=1, keepdim=True)).square().mean().item()
        log(row, step)
        truth.append({"step": step, **row})
    finish()
    Path("truth.json").write_text(json.dumps(truth))


def wandb_log() -> tuple[Log, Callable[[], Any]]:
    """An offline run."""
    import wandb

    settings = wandb.Settings(x_disable_meta=True, x_disable_stats=True, console="off", save_code=False)
    run = wandb.init(project="example", settings=settings)
    return lambda row, step: run.log(row, step=step), run.finish


def mlflow_log() -> tuple[Log, Callable[[], Any]]:
    """A run in the store that the environment names."""
    import mlflow

    mlflow.start_run()
    return lambda row, step: mlflow.log_metrics(row, step=step), mlflow.end_run


if __name__ == "__main__":
    main()
