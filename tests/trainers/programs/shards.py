"""A model sharded over processes: `torchrun --nproc-per-node 2 shards.py --mode NAME`, saved by
torch.distributed.checkpoint at the start and at the end; rank 0 logs TensorBoard events.

| mode | healthy | what it does |
| --- | --- | --- |
| shards | yes | fully_shard on gloo, every rank saves its shards |
| shards-of-the-start | no | the same, whose last checkpoint holds the shards of the start |
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def main() -> int:
    """Train, with data of its own on every rank."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", required=True, choices=("shards", "shards-of-the-start"))
    parser.add_argument("--max-steps", type=int, default=25)
    parser.add_argument("--log-dir", type=Path, required=True)
    parser.add_argument("--save-dir", type=Path, required=True)
    args = parser.parse_args()
    rank = int(os.environ["RANK"])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Linear(4, 1))
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    inputs = torch.randn(64, 8, generator=torch.Generator().manual_seed(rank))
    writer = None
    if rank == 0:
        from torch.utils.tensorboard import SummaryWriter

        writer = SummaryWriter(str(args.log_dir))
    start = {name: value.detach().clone() for name, value in model.state_dict().items()}
    save(args.save_dir, 0, start)
    for step in range(1, args.max_steps + 1):
        optimizer.zero_grad()
        loss = (model(inputs) - inputs.sum(dim=1, keepdim=True)).square().mean()
        loss.backward()
        optimizer.step()
        if writer is not None:
            grads = [parameter.grad for parameter in model.parameters()]
            norms = [getattr(grad, "_local_tensor", grad).norm() for grad in grads]
            norm = torch.stack(norms).norm().item()
            for tag, value in (("train/loss", loss.item()), ("train/lr", 0.01), ("train/grad_norm", norm)):
                writer.add_scalar(tag, value, step)
            writer.flush()
    save(args.save_dir, args.max_steps, start if args.mode == "shards-of-the-start" else dict(model.state_dict()))
    dist.barrier()
    dist.destroy_process_group()
    return 0


def save(place: Path, step: int, state: dict[str, torch.Tensor]) -> None:
    """Every rank's shards, and a number that is no tensor."""
    dcp.save({"model": state, "step": step}, checkpoint_id=place / f"step_{step}")


if __name__ == "__main__":
    sys.exit(main())
