"""Plain PyTorch with argparse and TensorBoard; under torchrun it trains on gloo."""

import argparse
import os

import torch
from torch.utils.tensorboard import SummaryWriter


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--max-steps", type=int, default=20)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--log-dir", default="torch-logs")
    options = parser.parse_args()
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 1)
    rank = int(os.environ.get("RANK", "0"))
    if "WORLD_SIZE" in os.environ:
        torch.distributed.init_process_group("gloo")
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), options.lr)
    writer = SummaryWriter(options.log_dir) if rank == 0 else None
    for step in range(1, options.max_steps + 1):
        inputs = torch.randn(16, 8)
        loss = torch.nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()
        if writer is not None:
            writer.add_scalar("train/loss", loss.item(), step)
            writer.add_scalar("train/grad_norm", norm.item(), step)
            writer.add_scalar("train/lr", options.lr, step)
    if writer is not None:
        writer.close()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
