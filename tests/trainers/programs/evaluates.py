"""A classifier of two moons in plain torch, which logs eval_loss and saves state dicts, beside them their average:
`evaluates.py --log-dir D --save-dir D [--fault random]`, and `evaluate`, what --reload-with calls.

With the fault the weights of the last file were never trained.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import torch
from torch.utils.tensorboard import SummaryWriter

NUM_STEPS, EVERY = 60, 20


def new_model() -> torch.nn.Sequential:
    """float32[n, 2] -> float32[n, 2] logits."""
    return torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))


def data(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(float32[200, 2] points, int64[200] which moon)."""
    generator = torch.Generator().manual_seed(seed)
    angle = torch.rand(200, generator=generator) * math.pi
    label = torch.arange(200) % 2
    moons = torch.stack([angle.cos() + label, angle.sin() * (1 - 2 * label) + 0.5 * label], dim=1)
    return moons + 0.1 * torch.randn(200, 2, generator=generator), label


def loss_on(model: torch.nn.Module, seed: int) -> torch.Tensor:
    """Mean cross entropy."""
    points, label = data(seed)
    return torch.nn.functional.cross_entropy(model(points), label)


def loaded(path: str) -> torch.nn.Module:
    """The model of a file."""
    model = new_model()
    model.load_state_dict(torch.load(path, weights_only=True))
    return model.eval()


def evaluate(path: str) -> dict[str, Any]:
    """The evaluation of the run, on its own data."""
    with torch.inference_mode():
        return {"eval_loss": loss_on(loaded(path), seed=1)}


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--log-dir", required=True)
    parser.add_argument("--save-dir", type=Path, required=True)
    parser.add_argument("--fault", default="")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = new_model()
    average = [value.clone() for value in model.parameters()]
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    args.save_dir.mkdir(parents=True, exist_ok=True)
    with SummaryWriter(args.log_dir) as writer:
        for step in range(1, NUM_STEPS + 1):
            loss = loss_on(model, seed=0)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            writer.add_scalar("train/loss", loss.item(), step)
            average = [0.95 * old + 0.05 * new.detach() for old, new in zip(average, model.parameters(), strict=True)]
            if step % EVERY == 0:
                with torch.inference_mode():
                    writer.add_scalar("eval/loss", loss_on(model, seed=1).item(), step)
                is_faulty = step == NUM_STEPS and args.fault == "random"
                torch.save((new_model() if is_faulty else model).state_dict(), args.save_dir / f"model_step_{step}.pt")
    names = [name for name, _ in model.named_parameters()]
    torch.save(dict(zip(names, average, strict=True)), args.save_dir / "ema.pt")


if __name__ == "__main__":
    main()
