"""A job that prints as fast as it can: under the harness against a plain reader of its pipe, in one run.

    python benchmarks/flood.py [--megabytes 300] [--kinds bars rows info prose errors] [--pairs 2]

The job writes blocks of prepared text to its standard output and notes how long that took. The peer reads the pipe by
1 MB and writes each piece to a file. Checked is that train.log holds every byte. Printed are the job's MB/s under both,
its slow-down, what a further MB costs the supervisor (against a run of 1 MB), and its memory, as its report says.

The pipe holds 1 MB: a job that prints faster than it is read waits in its write, and nothing else grows.
"""

from __future__ import annotations

import argparse
import json
import random
import shlex
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

WORDS = (
    "the", "batch", "loss", "of", "step", "worker", "data", "loader", "rank", "model", "token", "gradient", "shape",
    "float", "error", "info", "warning", "cuda", "memory", "save", "checkpoint", "path", "is", "in", "at", "with",
)
JOB = """
import pathlib, sys, time
block, size, note = pathlib.Path(sys.argv[1]).read_bytes(), int(sys.argv[2]), pathlib.Path(sys.argv[3])
began, left = time.perf_counter(), size
while left > 0:
    left -= sys.stdout.buffer.write(block)
sys.stdout.buffer.flush()
note.write_text(f"{size - left} {time.perf_counter() - began}")
"""


def line(kind: str, number: int, rng: random.Random) -> str:
    """One line, or redraw, of the block."""
    if kind == "bars":
        return f"\r{number // 100:3d}%|{'#' * 8}{' ' * 20}| {number}/10000 [00:01<27:46:40, 9.10it/s]"
    if kind == "rows":
        return f"{{'loss': {rng.random() + 1:.4f}, 'grad_norm': {rng.random()}, 'epoch': {number / 97}}}\n"
    if kind == "info":
        return (f"[INFO|data.py:{number % 900}] 2026-01-07 10:21:{number % 60:02d},118 >> worker {number % 8} handed "
                f"over a batch of 8 samples in {number * 7 % 90} ms, hit rate {rng.random():.2f}\n")
    if kind == "prose":
        return " ".join(rng.choice(WORDS) for _ in range(14)) + f" {rng.random()}\n"
    return (f"Traceback (most recent call last):\n  File \"/opt/train.py\", line {number % 300}, in step\n"
            f"RuntimeError: CUDA error: device-side assert triggered ({number})\n")


def block(kind: str) -> bytes:
    """About 1 MB of whole lines."""
    rng, parts, size, number = random.Random(7), [], 0, 0
    while size < 1 << 20:
        parts.append(line(kind, number := number + 1, rng))
        size += len(parts[-1])
    return "".join(parts).encode()


def told(note: Path) -> tuple[int, float]:
    """(bytes, seconds) of the job."""
    size, seconds = note.read_text().split()
    return int(size), float(seconds)


def plain(command: list[str], place: Path) -> tuple[int, float]:
    """The job with a reader that keeps what it prints."""
    place.mkdir()
    with (place / "out.log").open("wb", buffering=0) as log, subprocess.Popen(
        [*command, str(place / "note")], stdout=subprocess.PIPE, bufsize=0) as process:
        assert process.stdout is not None
        while data := process.stdout.read(1 << 20):
            log.write(data)
    return told(place / "note")


def harness(command: list[str], place: Path) -> tuple[int, float, dict[str, float]]:
    """The job as a training command. It trains nothing, so that the verdict is not asked."""
    place.mkdir()
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "--pyargs", "harness.acceptance",
             "-m", "real_step", "--train-cmd", shlex.join([*command, str(place / "note")])]
    subprocess.run(words, cwd=place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    size, seconds = told(place / "note")
    out_dir = place / "reports" / "train-run"
    if (out_dir / "train.log").stat().st_size < size:
        raise SystemExit(f"{out_dir / 'train.log'} does not hold what the job printed")
    report = json.loads((out_dir / "train-model.json").read_text())
    return size, seconds, report["evidence"]["overhead"]


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--megabytes", type=int, default=300)
    parser.add_argument("--pairs", type=int, default=2)
    parser.add_argument("--kinds", nargs="+", default=["bars", "rows", "info", "prose", "errors"])
    arguments = parser.parse_args()
    for kind in arguments.kinds:
        slower, costs, speeds, memory = [], [], [], 0.0
        for _ in range(arguments.pairs):
            with tempfile.TemporaryDirectory() as directory:
                work = Path(directory)
                (work / "block").write_bytes(block(kind))
                (work / "train.py").write_text(JOB)
                command = [sys.executable, str(work / "train.py"), str(work / "block")]
                size, alone = plain([*command, str(arguments.megabytes * 1_000_000)], work / "plain")
                few, _, idle = harness([*command, "1"], work / "few")
                _, inside, facts = harness([*command, str(arguments.megabytes * 1_000_000)], work / "harness")
            slower.append(inside / alone)
            speeds.append((size / alone / 1e6, size / inside / 1e6))
            costs.append(1e9 * (facts["supervisor_cpu_s"] - idle["supervisor_cpu_s"]) / (size - few))
            memory = max(memory, facts["supervisor_rss_bytes"] / 1e6)
        bare, under = (statistics.median(column) for column in zip(*speeds, strict=True))
        print(f"{kind}: {bare:.0f} MB/s with a plain reader, {under:.0f} MB/s under the harness "
              f"({statistics.median(slower):.2f} times as long); each further MB costs the supervisor "
              f"{statistics.median(costs):.1f} ms of CPU; {memory:.0f} MB of memory", flush=True)


if __name__ == "__main__":
    main()
