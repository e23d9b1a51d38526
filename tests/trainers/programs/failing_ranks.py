"""Two gloo ranks that train one regression: `torchrun --nproc-per-node 2 failing_ranks.py --rows FILE --max-steps 32`.

A file `fault` in the working directory says how the second rank fails; without it the job is a healthy one.

| fault | what happens to rank 1 |
| --- | --- |
| raise, kill, memory, hang | at step 3 it raises, is killed, asks for more memory than it may have, stands still |
| worker-killed | its DataLoader worker is killed while it reads row 41 |
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import resource
import signal
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

FAULT = Path("fault").read_text() if Path("fault").exists() else ""
BAD_ROW = 41


class Rows(Dataset):
    """Every second line of the file, from the rank's own on: inputs of 4 numbers and a label."""

    def __init__(self, path: Path, rank: int) -> None:
        self.lines = path.read_text().splitlines()
        self.rank = rank

    def __len__(self) -> int:
        return len(self.lines) // 2

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        number = 2 * index + self.rank
        if number == BAD_ROW and FAULT == "worker-killed":
            os.kill(os.getpid(), signal.SIGKILL)
        row = json.loads(self.lines[number])
        return torch.tensor(row["inputs"]), torch.tensor(row["label"])


def fail() -> None:
    """What happens to rank 1 at step 3."""
    if FAULT == "raise":
        raise RuntimeError("the second rank gives up")
    if FAULT == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if FAULT == "memory":
        resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
        torch.empty(20 << 30, dtype=torch.uint8)
    if FAULT == "hang":
        time.sleep(240)


def main() -> None:
    """Plain gradient descent; rank 0 logs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--max-steps", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--num-workers", type=int, default=1)
    parser.add_argument("--log-dir", type=Path, default=Path("events"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=300))
    rank = dist.get_rank()
    num_workers = args.num_workers if rank == 1 else 0
    loader = iter(DataLoader(Rows(args.rows, rank), batch_size=2, num_workers=num_workers))
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    args.log_dir.mkdir(parents=True, exist_ok=True)
    dist.barrier()
    with (args.log_dir / "metrics.jsonl").open("a") as log:
        for step in range(1, args.max_steps + 1):
            inputs, labels = next(loader)
            if step == 3 and FAULT == "hang":  # whoever is late before that is only slow
                dist.distributed_c10d._set_pg_timeout(datetime.timedelta(seconds=8))
            if rank == 1 and step == 3:
                fail()
            optimizer.zero_grad()
            loss = (model(inputs).squeeze(-1) - labels).square().mean()
            loss.backward()
            for tensor in [loss.detach(), *(parameter.grad for parameter in model.parameters())]:
                dist.all_reduce(tensor)
                tensor /= 2
            optimizer.step()
            if rank == 0:
                norm = torch.cat([parameter.grad.flatten() for parameter in model.parameters()]).norm().item()
                row = {"step": step, "loss": loss.item(), "lr": args.lr, "grad_norm": norm, "time": time.time()}
                log.write(json.dumps(row) + "\n")
                log.flush()
                print(f"step {step}/{args.max_steps} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


main()
