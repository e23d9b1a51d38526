"""Two gloo ranks, the second of which fails in the way that is asked for: `failing_ranks.py HOW`."""

from __future__ import annotations

import datetime
import os
import resource
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

HOW = sys.argv[1]
BAD_ROW = 20


class Rows(Dataset):
    """64 rows of one number; a worker that reads row 20 dies where that is asked for."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == BAD_ROW and dist.is_initialized() and dist.get_rank() == 1:
            if HOW == "worker-raises":
                raise ValueError(f"sample {index} has no labels")
            if HOW == "worker-killed":
                os.kill(os.getpid(), signal.SIGKILL)
        return torch.ones(1)


def fail() -> None:
    """What happens to rank 1 at step 3."""
    if HOW == "raise":
        raise ValueError("the second rank gives up")
    if HOW == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if HOW == "memory":
        resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
        torch.empty(20 << 30, dtype=torch.uint8)
    if HOW == "hang":
        time.sleep(60)


def main() -> None:
    """32 steps of one sum."""
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=5 if HOW == "hang" else 60))
    rank = dist.get_rank()
    num_workers = 1 if HOW.startswith("worker") and rank == 1 else 0
    loader = iter(DataLoader(Rows(), batch_size=2, num_workers=num_workers))
    for step in range(1, 33):
        value = next(loader).sum()
        if rank == 1 and step == 3:
            fail()
        dist.all_reduce(value)
        if rank == 0:
            print(f"step {step}/32 loss {1 / step:.4f}", flush=True)
    dist.destroy_process_group()


main()
