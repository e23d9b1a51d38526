"""A numpy model that logs metrics.jsonl and saves a padded checkpoint every 5 steps: `saves_to_disk.py SAVE_DIR`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

STEPS = 20
PADDING = np.zeros(1 << 19, dtype=np.float32)
"""2 MiB, so that a small disk takes few of them."""


def main() -> int:
    """20 steps of gradient descent; saved at the start and every 5 steps."""
    saves, logs = Path(sys.argv[1]), Path("events")
    for place in (saves, logs):
        place.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    inputs = random.normal(size=(64, 8)).astype(np.float32)
    targets = inputs @ np.arange(8, dtype=np.float32)
    weight = np.zeros(8, dtype=np.float32)
    with (logs / "metrics.jsonl").open("a") as log:
        for step in range(STEPS + 1):
            if step:
                error = inputs @ weight - targets
                gradient = 2 * inputs.T @ error / len(error)
                weight -= 0.05 * gradient
                row = {"step": step, "loss": float((error**2).mean()), "lr": 0.05,
                       "grad_norm": float(np.linalg.norm(gradient))}
                log.write(json.dumps(row) + "\n")
                log.flush()
                print(f"step={step} loss={row['loss']:.4f}", flush=True)
            if step % 5 == 0:
                partial = saves / f".step_{step:06d}.safetensors"
                save_file({"weight": weight, "padding": PADDING}, partial)
                partial.rename(saves / f"step_{step:06d}.safetensors")
    return 0


if __name__ == "__main__":
    sys.exit(main())
