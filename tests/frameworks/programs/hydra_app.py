"""A Hydra app around plain PyTorch that logs JSON lines into Hydra's own directory."""

import json
from pathlib import Path

import hydra
import torch
from hydra.core.hydra_config import HydraConfig


@hydra.main(config_path="conf", config_name="config", version_base=None)
def main(config):
    torch.manual_seed(config.seed)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.optimizer.lr)
    output = Path(HydraConfig.get().runtime.output_dir)
    with (output / "metrics.jsonl").open("w", encoding="utf-8", buffering=1) as log:
        for step in range(1, config.trainer.max_steps + 1):
            inputs = torch.randn(16, 8)
            loss = torch.nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            log.write(json.dumps({"step": step, "train/loss": loss.item(), "lr": config.optimizer.lr}) + "\n")


if __name__ == "__main__":
    main()
