"""What the optimizer probe costs per training step: paired and interleaved in one run.

    python benchmarks/probe_overhead.py [--pairs 3] [--blocks 120] [--steps 10]

Each pair is two interpreters, one with the probe, that train the bundled tiny_lm side by side, in turns:
a block of steps here, a block there, in alternating order, so that a slow moment of the machine meets both.
Printed are, for wall and CPU time, the median over all blocks of (time with / time without), a bootstrap 95%
interval of it and the milliseconds per step; with `--control` the same for pairs in which neither has the
probe. The last line is the probe's own time: steps of an optimizer that does nothing, with the probe less
without.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "harness" / "probe" / "site"
TRAIN = """
import tiny_lm
step = tiny_lm.Trainer(tiny_lm.build_parser().parse_args([])).train_step
"""
IDLE = """
class Idle(torch.optim.Optimizer):
    def step(self, closure=None):
        pass
step = Idle([torch.nn.Parameter(torch.zeros(1)) for _ in range(53)], {"lr": 0.1}).step
"""
LOOP = """
for line in sys.stdin:
    started = time.perf_counter(), time.process_time()
    for _ in range(int(line)):
        step()
    print(time.perf_counter() - started[0], time.process_time() - started[1], flush=True)
"""
START = """
import sys, time, torch
sys.path.insert(0, sys.argv[1])
torch.set_num_threads(1)
"""


Block = tuple[tuple[float, float], tuple[float, float]]
"""(wall, CPU) seconds of a block without the probe, and of the one with it."""


class Worker:
    """A training interpreter that does a block of steps on demand."""

    def __init__(self, job: str, probe_dir: Path | None) -> None:
        env = dict(os.environ)
        if probe_dir is not None:
            env |= {"PYTHONPATH": str(SITE), "REAL_STEP_PROBE_DIR": str(probe_dir)}
        command = [sys.executable, "-c", START + job + LOOP, str(ROOT / "fixtures" / "trainers")]
        self.process = subprocess.Popen(
            command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def block(self, num_steps: int) -> tuple[float, float]:
        """Wall and CPU seconds that a block took."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{num_steps}\n")
        self.process.stdin.flush()
        wall_s, cpu_s = self.process.stdout.readline().split()
        return float(wall_s), float(cpu_s)

    def close(self) -> None:
        """Let the interpreter end."""
        self.process.communicate()


def measure_pair(job: str, treated_dir: Path | None, num_blocks: int, num_steps: int) -> list[Block]:
    """Every block of a pair after a warm-up."""
    plain, treated = Worker(job, None), Worker(job, treated_dir)
    for worker in (plain, treated):
        worker.block(50)
    blocks = []
    for index in range(num_blocks):
        order = (plain, treated) if index % 2 == 0 else (treated, plain)
        times = {worker: worker.block(num_steps) for worker in order}
        blocks.append((times[plain], times[treated]))
    plain.close()
    treated.close()
    return blocks


def interval(ratios: list[float]) -> tuple[float, float]:
    """Bootstrap 95% interval of the median."""
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(2000))
    return medians[50], medians[1949]


def report(name: str, blocks: list[Block], num_steps: int) -> None:
    """One line each for wall and CPU time."""
    for index, clock in enumerate(("wall", "cpu")):
        ratios = [treated[index] / plain[index] for plain, treated in blocks]
        low, high = interval(ratios)
        step_ms = statistics.median(plain[index] for plain, _ in blocks) / num_steps * 1e3
        print(
            f"{name} {clock}: ratio={statistics.median(ratios):.4f} interval={low:.4f}..{high:.4f} "
            f"step_ms={step_ms:.3f} blocks={len(blocks)}",
            flush=True,
        )


def main() -> None:
    """Run the pairs and print the figures."""
    parser = argparse.ArgumentParser(description="Overhead of the optimizer probe per training step.")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--blocks", type=int, default=120)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--control", action="store_true", help="also measure pairs without the probe")
    args = parser.parse_args()
    for name in ("probe", "control") if args.control else ("probe",):
        blocks = []
        for _ in range(args.pairs):
            with tempfile.TemporaryDirectory() as directory:
                treated_dir = Path(directory) if name == "probe" else None
                blocks += measure_pair(TRAIN, treated_dir, args.blocks, args.steps)
                assert name == "control" or list(Path(directory).glob("*.json")), "the probe did not run"
        report(name, blocks, args.steps)
    with tempfile.TemporaryDirectory() as directory:
        blocks = measure_pair(IDLE, Path(directory), 30, 2000)
    own_us = statistics.median((treated[1] - plain[1]) / 2000 * 1e6 for plain, treated in blocks)
    print(f"hook: own_us_per_step={own_us:.2f}")


if __name__ == "__main__":
    main()
