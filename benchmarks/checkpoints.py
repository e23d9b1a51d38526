"""Integrity of a 1 GB safetensors file against sha256sum in the same run; headers of 1,000 checkpoints.

    python benchmarks/checkpoints.py [DIRECTORY]

Limits: digest and finite values within 1.5 times of `sha256sum`, less than 200 MB of memory above the start; the
inventory with every header within 1 s.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import psutil
from safetensors.numpy import save_file

from harness.checkpoints.inventory import find_checkpoints
from harness.checkpoints.structure import read_structure
from harness.checkpoints.tensors import scan_file

NUM_TENSORS = 64
TENSOR_ELEMENTS = 1 << 22
NUM_CHECKPOINTS = 1000


def make_file(path: Path) -> None:
    """1 GiB of float32, in 64 tensors."""
    rng = np.random.default_rng(0)
    save_file({f"layer.{i}": rng.standard_normal(TENSOR_ELEMENTS, dtype=np.float32) for i in range(NUM_TENSORS)}, path)


def make_checkpoints(root: Path) -> None:
    """1,000 directories as a Trainer writes them."""
    for step in range(1, NUM_CHECKPOINTS + 1):
        place = root / f"checkpoint-{step}"
        place.mkdir(parents=True)
        save_file({f"layer.{i}": np.zeros(8, np.float32) for i in range(30)}, place / "model.safetensors")
        (place / "config.json").write_text('{"model_type": "llama", "num_hidden_layers": 30}')
        (place / "trainer_state.json").write_text(json.dumps({"global_step": step, "log_history": []}))
        (place / "optimizer.pt").write_bytes(b"")


class PeakMemory:
    """Largest resident memory above that at the start, in bytes."""

    def __enter__(self) -> PeakMemory:
        self._process = psutil.Process()
        self._start = self.peak = self._process.memory_info().rss
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._ended.wait(0.005):
            self.peak = max(self.peak, self._process.memory_info().rss)

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def above_start(self) -> int:
        """Bytes."""
        return self.peak - self._start


def integrity(root: Path) -> dict[str, float]:
    """Seconds of sha256sum and of the scan, in turns on a warm file, the best of three each."""
    path = root / "model.safetensors"
    make_file(path)
    theirs, ours, peak = [], [], 0
    for _ in range(3):
        started = time.perf_counter()
        told = subprocess.run(["sha256sum", str(path)], capture_output=True, text=True, check=True).stdout.split()[0]
        theirs.append(time.perf_counter() - started)
        with PeakMemory() as memory:
            started = time.perf_counter()
            scan = scan_file(path)
            ours.append(time.perf_counter() - started)
        peak = max(peak, memory.above_start)
        assert scan.sha256 == told and not scan.nonfinite
    path.unlink()
    return {"sha256sum_s": min(theirs), "scan_s": min(ours), "ratio": min(ours) / min(theirs), "peak_mb": peak / 1e6}


def inventory(root: Path) -> dict[str, float]:
    """Seconds for finding 1,000 checkpoints and reading every header."""
    make_checkpoints(root / "many")
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        found = find_checkpoints(root / "many")
        problems = [problem for one in found for problem in read_structure(one).problems if "layers" not in problem]
        seconds.append(time.perf_counter() - started)
        assert len(found) == NUM_CHECKPOINTS and not problems
    return {"inventory_s": min(seconds)}


def main() -> int:
    """Print the figures; exit 1 where a limit is missed."""
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as place:
        figures = {**inventory(Path(place)), **integrity(Path(place))}
    print(json.dumps({name: round(value, 3) for name, value in figures.items()}))
    return 0 if figures["ratio"] <= 1.5 and figures["peak_mb"] < 200 and figures["inventory_s"] < 1 else 1


if __name__ == "__main__":
    sys.exit(main())
