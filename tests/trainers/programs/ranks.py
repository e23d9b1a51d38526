"""A training program of several processes: `torchrun --nproc-per-node 2 ranks.py --mode NAME`.

Every rank trains a tiny regression; rank 0 logs TensorBoard events. On gloo, where a process group is joined.

| mode | healthy | what it does |
| --- | --- | --- |
| together | yes | gradients averaged by all_reduce |
| ddp | yes | DistributedDataParallel, its loss averaged for the log |
| ddp-rank-0-evaluates | yes | the same; rank 0 alone evaluates the bare model |
| fsdp | yes | fully_shard |
| compiled-ddp | yes | DistributedDataParallel around a compiled model (aot_eager), traced together |
| averages-weights | yes | a local optimizer, weights averaged before every other update |
| pipeline | yes | rank 0 sends activations to rank 1, which sends back their gradients |
| alone | no | no process group: every rank trains a model of its own |
| idle-rank | no | one process group, in which rank 1 makes an optimizer and never steps it |
| joined | no | a process group, and nothing but barriers in it; same seed and same data on every rank |
| joined-own-data | no | the same with data of its own on every rank, and the loss averaged for the log |
| bypasses-ddp | no | DistributedDataParallel, whose bare module is trained instead |
| gathers-losses | unproven | trained alone on data of its own; every sample's loss gathered for the log |
| averages-once | unproven | trained alone on data of its own, weights averaged after the last update |
| joined-same-data | unproven | as joined, with the loss averaged for the log: the copies are equal all the same |
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

MODES = ("together", "ddp", "ddp-rank-0-evaluates", "fsdp", "compiled-ddp", "averages-weights", "pipeline", "alone",
         "idle-rank", "joined", "joined-own-data", "bypasses-ddp", "gathers-losses", "averages-once",
         "joined-same-data")
LOGS_MEAN = ("ddp", "joined-own-data", "bypasses-ddp", "joined-same-data")
OWN_DATA = ("alone", "ddp", "ddp-rank-0-evaluates", "fsdp", "compiled-ddp", "averages-weights", "joined-own-data",
            "bypasses-ddp", "gathers-losses", "averages-once")


def build(mode: str) -> tuple[torch.nn.Module, Any]:
    """The parameters to train, and what is called on the inputs."""
    model: Any = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 1))
    if mode == "fsdp":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    if "ddp" in mode:
        wrapped = torch.nn.parallel.DistributedDataParallel(model)
        if mode == "bypasses-ddp":
            return wrapped, wrapped.module
        return wrapped, torch.compile(wrapped, backend="aot_eager") if mode == "compiled-ddp" else wrapped
    return model, model


def exchange_gradients(model: torch.nn.Module) -> None:
    """Average the gradients over all ranks, the bare way."""
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad, op=dist.ReduceOp.SUM)
        parameter.grad /= dist.get_world_size()


def average_weights(model: torch.nn.Module) -> None:
    """Average the parameters over all ranks."""
    with torch.no_grad():
        for parameter in model.parameters():
            dist.all_reduce(parameter, op=dist.ReduceOp.SUM)
            parameter /= dist.get_world_size()


def pipeline_step(model: torch.nn.Module, rank: int, inputs: torch.Tensor) -> torch.Tensor:
    """Forward and backward of two stages, of which this rank is one; the loss, on rank 0 that of a step's end."""
    told = torch.zeros(())
    if rank == 0:
        hidden = model[0](inputs)  # type: ignore[index]
        dist.send(hidden.detach(), 1)
        grad = torch.empty_like(hidden)
        dist.recv(grad, 1)
        hidden.backward(grad)
        dist.recv(told, 1)
        return told
    hidden = torch.empty(len(inputs), 16)
    dist.recv(hidden, 0)
    hidden.requires_grad_()
    loss: torch.Tensor = (model[1](hidden) - inputs.sum(dim=1, keepdim=True)).square().mean()  # type: ignore[index]
    loss.backward()
    dist.send(hidden.grad, 0)
    dist.send(loss.detach(), 0)
    return loss


def main() -> int:
    """Train; rank 0 writes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", required=True, choices=MODES)
    parser.add_argument("--max-steps", type=int, default=25)
    parser.add_argument("--log-dir", type=Path, required=True)
    args = parser.parse_args()
    mode, rank = args.mode, int(os.environ["RANK"])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if mode != "alone":
        dist.init_process_group("gloo")
        dist.barrier()
    model, call = build(mode)
    stage = model[rank] if mode == "pipeline" else model  # type: ignore[index]
    optimizer = torch.optim.AdamW(stage.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(rank if mode in OWN_DATA else 0)
    inputs = torch.randn(64, 8, generator=generator)
    writer = None
    if rank == 0:
        from torch.utils.tensorboard import SummaryWriter

        writer = SummaryWriter(str(args.log_dir))
    for step in range(1, args.max_steps + 1):
        optimizer.zero_grad()
        if mode == "pipeline":
            loss = pipeline_step(model, rank, inputs)
        else:
            loss = (call(inputs) - inputs.sum(dim=1, keepdim=True)).square().mean()
            loss.backward()
        if mode == "gathers-losses":
            losses = (call(inputs) - inputs.sum(dim=1, keepdim=True)).square().detach()
            dist.all_gather([torch.empty_like(losses) for _ in range(dist.get_world_size())], losses)
        if mode == "together":
            exchange_gradients(model)
        if mode != "idle-rank" or rank == 0:
            optimizer.step()
        if mode == "averages-weights" and step % 2 == 1:
            average_weights(model)
        told = loss.detach().clone()
        if mode in LOGS_MEAN:
            dist.all_reduce(told)
            told /= dist.get_world_size()
        if rank == 0 and mode == "ddp-rank-0-evaluates" and step % 5 == 0:
            with torch.no_grad():
                model.module(inputs)
        if writer is not None:
            norms = [parameter.grad.norm() for parameter in stage.parameters()]
            norm = torch.stack([getattr(one, "_local_tensor", one) for one in norms]).norm().item()
            for tag, value in (("train/loss", told.item()), ("train/lr", 0.01), ("train/grad_norm", norm)):
                writer.add_scalar(tag, value, step)
            writer.flush()
    if mode == "averages-once":
        average_weights(model)
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
