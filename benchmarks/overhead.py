"""What the harness costs: a job under it against the bare command, and pytest's start with the plugin against without.

    python benchmarks/overhead.py [--seconds 60] [--pairs 3]

Bare command and harness run in turn in one invocation. The job is the bundled trainer, sized to take about --seconds;
its own wall time is taken inside both, so that the start of pytest is told apart. Prints ratios and the supervisor's
CPU time and memory as its report has them.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TRAINER = Path(__file__).parents[1] / "fixtures" / "trainers" / "tiny_lm.py"


def timed(words: list[str], cwd: Path) -> float:
    """Wall seconds of a command that must succeed."""
    began = time.perf_counter()
    done = subprocess.run(words, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{shlex.join(words)} failed:\n{done.stdout.decode(errors='replace')[-3000:]}")
    return time.perf_counter() - began


def job(place: Path, steps: int) -> list[str]:
    """The training command, writing below `place`."""
    return [sys.executable, str(TRAINER), "--max-steps", str(steps), "--save-dir", str(place / "saved"),
            "--log-dir", str(place / "events")]


def steps_for(seconds: float, work: Path) -> int:
    """Steps that take about so many seconds, from two short runs."""
    short, longer = timed(job(work / "a", 100), work), timed(job(work / "b", 500), work)
    per_step = max((longer - short) / 400, 1e-4)
    return max(100, int((seconds - (short - 100 * per_step)) / per_step))


def under_harness(place: Path, steps: int) -> tuple[float, float, dict[str, float]]:
    """(wall of the whole pytest, wall of the job inside, overhead facts)."""
    place.mkdir(parents=True)
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "--pyargs", "harness.acceptance",
             "-m", "real_step", "--train-cmd", shlex.join(job(place, steps))]
    wall = timed(words, place)
    report = json.loads((place / "reports" / "train-run" / "train-model.json").read_text())
    return wall, report["training_duration_seconds"], report["evidence"]["overhead"]


def plugin_start(work: Path, repeats: int) -> tuple[float, float]:
    """Median seconds of an empty pytest session with and without the plugin, in turn."""
    (work / "test_nothing.py").write_text("def test_nothing(): pass\n")
    base = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "test_nothing.py"]
    pairs = [(timed(base, work), timed([*base, "-p", "no:harness.plugin"], work)) for _ in range(repeats)]
    return statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--pairs", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        with_plugin, without = plugin_start(work, 9)
        print(f"pytest start: {with_plugin:.3f} s with the plugin, {without:.3f} s without, "
              f"+{1000 * (with_plugin - without):.0f} ms", flush=True)
        steps = steps_for(arguments.seconds, work)
        ratios, wholes = [], []
        for pair in range(arguments.pairs):
            bare = timed(job(work / f"bare{pair}", steps), work)
            whole, inside, facts = under_harness(work / f"harness{pair}", steps)
            ratios.append(inside / bare)
            wholes.append(whole / bare)
            cpu = facts["supervisor_cpu_s"] / whole
            print(f"{steps} steps: bare {bare:.2f} s, job inside {inside:.2f} s ({ratios[-1]:.4f}), whole pytest "
                  f"{whole:.2f} s ({wholes[-1]:.4f}), supervisor {facts['supervisor_cpu_s']:.2f} s CPU "
                  f"({100 * cpu:.2f}% of a core), {facts['supervisor_rss_bytes'] / 1e6:.0f} MB", flush=True)
        print(f"median ratio: job {statistics.median(ratios):.4f}, whole {statistics.median(wholes):.4f}")


if __name__ == "__main__":
    main()
