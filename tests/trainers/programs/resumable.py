"""A program that can be resumed, exactly or not: `resumable.py --save-dir D --log-dir L [--resume FILE]`.

A regression on shuffled batches with dropout, momentum and a decaying learning rate; 40 steps, saved every 10 as
step_NNNNNN.pt, logged at every step with the fingerprint of its batch. `--forget STATE` leaves one state out when it
resumes: data (the order begins again), order (another order), scheduler, optimizer, rng; nothing by default.
`--forget all` trains from the start again. `--refuse` fails when it is asked to resume.
"""

from __future__ import annotations

import argparse
import sys
import time
import zlib
from pathlib import Path

import torch
from torch.utils.tensorboard import SummaryWriter

STEPS, EVERY, BATCH = 40, 10, 8


def batches(seed: int) -> list[list[int]]:
    """Indices of every step's batch."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(0, 64, (BATCH,), generator=generator).tolist() for _ in range(STEPS)]


def main() -> int:
    """Train from the start or from a checkpoint."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--save-dir", type=Path, required=True)
    parser.add_argument("--log-dir", type=Path, required=True)
    parser.add_argument("--max-steps", type=int, default=STEPS)
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--forget", default="")
    parser.add_argument("--refuse", action="store_true")
    args = parser.parse_args()
    if args.resume and args.refuse:
        return 3
    torch.set_num_threads(1)
    torch.manual_seed(0)
    args.save_dir.mkdir(parents=True, exist_ok=True)
    inputs = torch.randn(64, 8)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.1), torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.97)
    order, start = batches(1), 0
    if args.resume and args.forget != "all":
        state = torch.load(args.resume, weights_only=True)
        model.load_state_dict(state["model"])
        start = state["step"]
        if args.forget == "optimizer":
            state["optimizer"]["state"] = {}
        optimizer.load_state_dict(state["optimizer"])
        if args.forget != "scheduler":
            scheduler.load_state_dict(state["scheduler"])
        else:
            for group in optimizer.param_groups:
                group["lr"] = 0.05
        if args.forget != "rng":
            torch.set_rng_state(state["rng"])
        if args.forget == "data":
            order = order[:start] + order
        if args.forget == "order":
            order = batches(2)
    writer = SummaryWriter(str(args.log_dir))
    for step in range(start + 1, args.max_steps + 1):
        rows = order[step - 1]
        optimizer.zero_grad()
        picked = inputs[rows]
        loss = (model(picked) - picked.sum(dim=1, keepdim=True)).square().mean()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 100.0).item()
        values = {"loss": loss.item(), "lr": scheduler.get_last_lr()[0], "grad_norm": norm,
                  "batch_fingerprint": zlib.crc32(bytes(rows)) & 0xFFFFFF}
        if args.forget == "scheduler" and args.resume:
            values["lr"] = optimizer.param_groups[0]["lr"]
        optimizer.step()
        scheduler.step()
        for tag, value in values.items():
            writer.add_scalar(f"train/{tag}", value, step)
        writer.flush()
        print(f"step={step} loss={loss.item():.6f}", flush=True)
        time.sleep(0.02)
        if step % EVERY == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step,
                     "scheduler": scheduler.state_dict(), "rng": torch.get_rng_state()}
            partial = args.save_dir / f".step_{step:06d}.partial"
            torch.save(state, partial)
            partial.rename(args.save_dir / f"step_{step:06d}.pt")
    writer.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
