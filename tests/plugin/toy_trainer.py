"""A trainer of the standard library alone: a line fitted by gradient descent, in a tenth of a second.

It writes metrics.jsonl into --log-dir and safetensors checkpoints step_NNNNNN into --save-dir
(https://huggingface.co/docs/safetensors: 8 bytes of header length, JSON header, little-endian data).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import signal
import struct
import sys
import time
from pathlib import Path

CRASHES = ("exit", "raise", "memory", "hang", "SIGKILL", "SIGBUS", "SIGSEGV")


def save(directory: Path, weights: list[float]) -> None:
    """One float32 tensor `line` of shape [2]."""
    directory.mkdir(parents=True, exist_ok=True)
    header = json.dumps({"line": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    (directory / "model.safetensors").write_bytes(
        struct.pack("<Q", len(header)) + header + struct.pack("<2f", *weights))


def hold(path: Path, text: str, count: int) -> None:
    """Until a file is there that holds a text so many times; two minutes at most."""
    until = time.monotonic() + 120
    while time.monotonic() < until and not (path.exists() and path.read_text(errors="replace").count(text) >= count):
        time.sleep(0.02)


def crash(how: str) -> None:
    """End the process in the way that is asked for: exit code 1, an exception, a signal, too little memory; or hang."""
    if how == "exit":
        os._exit(1)
    if how == "hang":
        time.sleep(600)
    if how == "memory":
        resource.setrlimit(resource.RLIMIT_AS, (400 << 20,) * 2)
        bytearray(2 << 30)
    if how.startswith("SIG"):
        os.kill(os.getpid(), signal.Signals[how])
    raise RuntimeError("told to crash")


def main() -> None:
    """Fit y = 2x + 1."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--max-steps", type=int, default=20)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--sleep", type=float, default=0.0, help="seconds a step")
    parser.add_argument("--log-dir", type=Path, required=True)
    parser.add_argument("--save-dir", type=Path)
    parser.add_argument("--launches", type=Path, help="gets one line a launch")
    parser.add_argument("--hurry-after", type=Path, help="no more sleep once this file is there")
    parser.add_argument("--hold-at", type=int, default=0, help="wait before this step for --hold-for")
    parser.add_argument("--hold-for", nargs=3, default=("", "", "0"), metavar=("PATH", "TEXT", "COUNT"))
    parser.add_argument("--stop-at", type=int, default=0, help="SIGSTOP to itself before this step")
    parser.add_argument("--ignore-term", action="store_true")
    parser.add_argument("--fail", action="store_true", help="raise before the first step")
    parser.add_argument("--child", action="store_true", help="start a process that forks twice and lives on")
    parser.add_argument("--print-env", default="", help="print this variable")
    parser.add_argument("--hub-token", default="")
    parser.add_argument("--crash-at", type=int, default=0, help="end before this step, as --crash-how says")
    parser.add_argument("--crash-how", default="exit", choices=CRASHES)
    parser.add_argument("--crash-with", default="", help="what is printed then")
    parser.add_argument("--drift", type=float, default=0.0, help="every second launch logs a loss so much larger")
    parser.add_argument("--crashes", type=int, default=1, help="so many launches do so")
    arguments = parser.parse_args()
    if arguments.launches:
        with arguments.launches.open("a") as handle:
            handle.write(f"{os.getpid()}\n")
    if arguments.ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if arguments.fail:
        raise RuntimeError("told to fail")
    if arguments.print_env:
        print("variable", os.environ.get(arguments.print_env), "token", arguments.hub_token, flush=True)
    if arguments.child and os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)
    scale = 1.0
    if arguments.drift and len(arguments.launches.read_text().split()) % 2 == 0:
        scale += arguments.drift
    arguments.log_dir.mkdir(parents=True, exist_ok=True)
    weights, rate, draw = [0.0, 0.0], arguments.lr, random.Random(0)
    if arguments.save_dir:
        save(arguments.save_dir / "step_000000", weights)
    with (arguments.log_dir / "metrics.jsonl").open("a") as log:
        for step in range(1, arguments.max_steps + 1):
            if step == arguments.hold_at:
                hold(Path(arguments.hold_for[0]), arguments.hold_for[1], int(arguments.hold_for[2]))
            if step == arguments.stop_at:
                os.kill(os.getpid(), signal.SIGSTOP)
            if step == arguments.crash_at and len(arguments.launches.read_text().split()) <= arguments.crashes:
                print(arguments.crash_with, flush=True)
                crash(arguments.crash_how)
            x = draw.uniform(-1, 1)
            error = weights[0] * x + weights[1] - (2 * x + 1)
            gradient = [2 * error * x, 2 * error]
            weights = [w - rate * g for w, g in zip(weights, gradient, strict=True)]
            norm = (gradient[0] * gradient[0] + gradient[1] * gradient[1]) ** 0.5
            row = {"step": step, "loss": scale * error * error, "lr": rate, "grad_norm": norm, "time": time.time()}
            log.write(json.dumps(row) + "\n")
            log.flush()
            print(f"step={step} loss={scale * error * error:.4f}", flush=True)
            if arguments.hurry_after is None or not arguments.hurry_after.exists():
                time.sleep(arguments.sleep)
    if arguments.save_dir:
        save(arguments.save_dir / f"step_{arguments.max_steps:06d}", weights)


if __name__ == "__main__":
    sys.exit(main())
