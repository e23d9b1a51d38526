"""Two ranks under torch elastic: `torchrun --max-restarts 1 elastic.py --log-dir DIR`.

At step 13 rank 1 raises, once. The workers that are started again resume at the state of step 10, which rank 0 saved.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.tensorboard import SummaryWriter

STEPS, SAVE_EVERY, FAILS_AT = 20, 5, 13
STATE = Path("state.pt")


def main() -> int:
    """Train; rank 0 writes and saves."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--log-dir", type=Path, required=True)
    args = parser.parse_args()
    rank, start = int(os.environ["RANK"]), os.environ["TORCHELASTIC_RESTART_COUNT"]
    is_first = start == "0"
    torch.set_num_threads(1)
    torch.manual_seed(0)
    # A store of its own for each start: in the agent's, gloo finds the addresses of the start before (torch 2.13).
    dist.init_process_group("gloo", init_method=f"file://{Path(f'store-{start}').resolve()}", rank=rank,
                            world_size=int(os.environ["WORLD_SIZE"]))
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    inputs, done = torch.randn(64, 8), 0
    if not is_first and STATE.exists():
        state = torch.load(STATE, weights_only=True)
        model.load_state_dict(state["model"])
        done = state["done"]
    writer = SummaryWriter(str(args.log_dir)) if rank == 0 else None
    for step in range(done + 1, STEPS + 1):
        if is_first and rank == 1 and step == FAILS_AT:
            raise ValueError("the shard of this rank is gone")
        optimizer.zero_grad()
        loss = (model(inputs) - inputs.sum(dim=1, keepdim=True)).square().mean()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, op=dist.ReduceOp.SUM)
            parameter.grad /= dist.get_world_size()
        optimizer.step()
        if writer is not None:
            norm = torch.cat([parameter.grad.flatten() for parameter in model.parameters()]).norm().item()
            for tag, value in (("train/loss", loss.item()), ("train/lr", 0.01), ("train/grad_norm", norm)):
                writer.add_scalar(tag, value, step)
            writer.flush()
            if step % SAVE_EVERY == 0:
                torch.save({"model": model.state_dict(), "done": step}, STATE)
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
