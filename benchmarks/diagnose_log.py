"""What reading a log of one gigabyte costs, against `grep -c` of the same file in the same run.

    python benchmarks/diagnose_log.py [--mib 1024] [--rounds 3] [--keep FILE]

The log is that of a long run: rows of metrics in four styles, bars behind carriage returns, warnings, 64 caught
exceptions, and an error of rank 1 a little before the end. Prints the median seconds of both, their ratio, and the
highest resident memory of the diagnosis for this log and for one of a sixteenth of its size.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WARNING = "/srv/venv/lib/torch/nn/functional.py:5476: UserWarning: Support for mismatched masks is deprecated.\n"
CAUGHT = """Traceback (most recent call last):
  File "/srv/job/data.py", line 33, in fetch
    return opened.read()
ConnectionError: shard {number} is away
"""
LAST = """[rank1]: Traceback (most recent call last):
[rank1]:   File "/srv/job/train.py", line 88, in step
[rank1]:     loss.backward()
[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.
"""
CHILD = """
import json, resource, sys, time
from pathlib import Path
from harness.diagnosis.report import diagnose
began = time.perf_counter()
found = diagnose([Path(sys.argv[1])], exit_code=1, out_dir=Path(sys.argv[2]))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({"seconds": time.perf_counter() - began, "rss": peak, "cause": found["primary_cause"],
                  "rank": found["first_causal"]["rank"]}))
"""


def block(draw: random.Random, step: int) -> str:
    """About a thousand lines of a run that goes on."""
    lines = []
    for number in range(step, step + 250):
        loss, norm = draw.uniform(0.1, 3), draw.uniform(0.1, 9)
        lines.append(f"2026-01-10 10:{number // 60 % 60:02d}:{number % 60:02d},120 INFO trainer step {number}/9000000 "
                     f"loss={loss:.4f} grad_norm={norm:.3f} lr=1.0e-04 tokens_per_s={draw.randrange(99999)}\n")
        lines.append(f"{{'loss': {loss:.4f}, 'grad_norm': {norm:.4f}, 'learning_rate': 9.8e-05, 'epoch': 1.27}}\n")
        lines.append(f"\r 12%|#2        | {number}/9000000 [10:00<9:00:00,  2.1it/s]")
        lines.append(f"\n[rank{number % 4}]: rollout/rewards_mean={draw.uniform(-1, 1):.5f} rollout/response_len=812\n")
    return "".join(lines)


def write_log(path: Path, mib: int) -> None:
    """A log of that size."""
    draw = random.Random(0)
    blocks = [block(draw, 250 * number) for number in range(40)]
    size, number, every = 0, 0, max(1, (mib << 20) // 64)
    caught = 0
    with path.open("w", encoding="utf-8") as file:
        while size < mib << 20:
            size += file.write(blocks[number % len(blocks)])
            number += 1
            if number % 20 == 0:
                size += file.write(WARNING)
            if size > caught * every:
                size += file.write(CAUGHT.format(number=caught))
                caught += 1
        file.write(LAST)


def seconds_of_grep(path: Path) -> float:
    """Wall time of grep -c, whose output is read: into /dev/null it would stop at its first match."""
    began = time.perf_counter()
    subprocess.run(["grep", "-c", "Traceback", str(path)], stdout=subprocess.PIPE, check=False)
    return time.perf_counter() - began


def diagnosed(path: Path, work: Path) -> dict[str, float]:
    """Seconds and memory of one diagnosis, in a process of its own."""
    done = subprocess.run([sys.executable, "-c", CHILD, str(path), str(work)], stdout=subprocess.PIPE, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    """Print the figures as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="write the log here and leave it")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        log, small = arguments.keep or work / "run.log", work / "small.log"
        write_log(log, arguments.mib)
        write_log(small, max(1, arguments.mib // 16))
        seconds_of_grep(log)
        grep, ours = [], []
        for _ in range(arguments.rounds):
            grep.append(seconds_of_grep(log))
            ours.append(diagnosed(log, work))
        one = statistics.median(grep), statistics.median(found["seconds"] for found in ours)
        print(json.dumps({
            "bytes": log.stat().st_size, "grep_s": round(one[0], 3), "diagnose_s": round(one[1], 3),
            "ratio": round(one[1] / one[0], 1), "rss_mib": round(max(found["rss"] for found in ours) / 2**20, 1),
            "rss_small_mib": round(diagnosed(small, work)["rss"] / 2**20, 1), "cause": ours[0]["cause"],
            "rank": ours[0]["rank"],
        }))


if __name__ == "__main__":
    main()
