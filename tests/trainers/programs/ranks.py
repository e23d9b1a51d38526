"""A training program of several processes: `torchrun --nproc-per-node 2 ranks.py --mode NAME`.

Every rank trains the same tiny regression; rank 0 logs TensorBoard events.

| mode | healthy | what it does |
| --- | --- | --- |
| together | yes | one process group (gloo), gradients averaged |
| alone | no | no process group: every rank trains a model of its own |
| idle-rank | no | one process group, in which rank 1 makes an optimizer and never steps it |
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist


def main() -> int:
    """Train; rank 0 writes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", required=True, choices=("together", "alone", "idle-rank"))
    parser.add_argument("--max-steps", type=int, default=25)
    parser.add_argument("--log-dir", type=Path, required=True)
    args = parser.parse_args()
    rank = int(os.environ["RANK"])
    torch.set_num_threads(1)
    torch.manual_seed(rank if args.mode == "alone" else 0)
    if args.mode != "alone":
        dist.init_process_group("gloo")
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    inputs = torch.randn(64, 8)
    writer = None
    if rank == 0:
        from torch.utils.tensorboard import SummaryWriter

        writer = SummaryWriter(str(args.log_dir))
    for step in range(1, args.max_steps + 1):
        optimizer.zero_grad()
        loss = (model(inputs) - inputs.sum(dim=1, keepdim=True)).square().mean()
        loss.backward()
        if args.mode == "together":
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad, op=dist.ReduceOp.SUM)
                parameter.grad /= dist.get_world_size()
        if args.mode != "idle-rank" or rank == 0:
            optimizer.step()
        if writer is not None:
            norm = torch.cat([parameter.grad.flatten() for parameter in model.parameters()]).norm().item()
            for tag, value in (("train/loss", loss.item()), ("train/lr", 0.01), ("train/grad_norm", norm)):
                writer.add_scalar(tag, value, step)
            writer.flush()
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
