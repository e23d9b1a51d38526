"""How soon the supervisor notices: a NaN line, a NaN event, an exit, a used-up patience; and what watching costs.

    python benchmarks/watch_latency.py [--samples 30] [--seconds 60] [--only nan-line,nan-event,exit,patience,cpu]

Each sample is a run of its own under a real supervisor with --interval 300, so that nothing here is paced by reports.
The job notes the moment (CLOCK_REALTIME of the same machine) just before it writes the bytes, or just before it
exits; the other end is the time of the journal's entry: `anomaly`, `attempt-ended`, `signal-sent`. Prints median, p99
and the worst. `cpu`: the supervisor of a job that prints 100 lines a second and logs each as a metric row, its start
and end left out, as a share of a core.
"""

from __future__ import annotations

import argparse
import json
import math
import secrets
import shlex
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from harness.client import ensure_run, forget_session
from harness.spec import RunSpec

JOB = '''
import json, os, random, sys, time
kind, wait_s = sys.argv[1], float(sys.argv[2])
os.makedirs("events", exist_ok=True)
log = open("events/metrics.jsonl", "a")
def row(step, loss, **more):
    told = {"step": step, "loss": loss, "lr": 0.1, "grad_norm": 1.0, "time": time.time(), **more}
    log.write(json.dumps(told) + "\\n")
    log.flush()
def mark():
    with open("mark.part", "w") as handle: handle.write(repr(time.time()))
    os.rename("mark.part", "mark")
for step in range(1, 6):
    row(step, 1.0 / step, **({"eval_loss": 1.0} if kind == "patience" else {}))
    print(f"step={step} loss={1.0 / step}", flush=True)
time.sleep(wait_s)
mark()
if kind == "nan-line": print("step=6 loss=nan", flush=True)
if kind == "nan-event": row(6, float("nan"))
if kind == "patience": row(6, 0.2, eval_loss=2.0)
if kind == "exit": os._exit(0)
time.sleep(5)
'''
STEADY = '''
import json, os, sys, time
os.makedirs("events", exist_ok=True)
log, began = open("events/metrics.jsonl", "a"), time.monotonic()
for step in range(1, int(100 * float(sys.argv[1])) + 1):
    loss = 1.0 / step
    log.write(json.dumps({"step": step, "loss": loss, "lr": 0.1, "grad_norm": 1.0, "time": time.time()}) + "\\n")
    log.flush()
    print(f"step={step} loss={loss:.6f} lr=0.1 grad_norm=1.0 some more text as jobs print it", flush=True)
    time.sleep(max(0.0, began + step / 100 - time.monotonic()))
'''
NOTICED: dict[str, Callable[[dict[str, Any]], bool]] = {
    "nan-line": lambda entry: entry["event"] == "anomaly" and "nan" in json.dumps(entry),
    "nan-event": lambda entry: entry["event"] == "anomaly" and "nan" in json.dumps(entry),
    "exit": lambda entry: entry["event"] == "attempt-ended",
    "patience": lambda entry: entry["event"] == "signal-sent",
}


def run(place: Path, script: str, *arguments: str, **spec: Any) -> list[dict[str, Any]]:
    """The journal of a run of this script."""
    (place / "job.py").write_text(script)
    asked = RunSpec(
        train_cmd=shlex.join([sys.executable, "job.py", *arguments]), out_dir=place / "out", workdir=place, run_id="r",
        session=secrets.token_hex(8), interval_s=300.0, stop_grace_s=1.0, drain_grace_s=0.0, probe=False,
        metrics_dir=place / "events", **spec)
    ensure_run(asked, lambda line: None)
    forget_session(asked.session)
    lines = (place / "out" / "journal.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines if line.strip()]


def latency_s(kind: str, wait_s: float) -> float:
    """Seconds from the job's mark to the journal's entry; inf where there is none."""
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        stop = {"early_stop_metric": "eval_loss", "early_stop_patience": 5} if kind == "patience" else {}
        journal = run(place, JOB, kind, str(wait_s), **stop)
        mark = float((place / "mark").read_text())
    return min((entry["time"] - mark for entry in journal if NOTICED[kind](entry)), default=math.inf)


def steady_share(seconds: float) -> tuple[float, float]:
    """(share of a core while the job runs, the supervisor's whole CPU seconds) of a job of 100 lines a second."""
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        (place / "job.py").write_text(STEADY)
        asked = RunSpec(
            train_cmd=shlex.join([sys.executable, "job.py", str(seconds)]), out_dir=place / "out", workdir=place,
            run_id="r", session=secrets.token_hex(8), interval_s=30.0,
            metrics_dir=place / "events")
        share = _measured(asked, seconds)
        forget_session(asked.session)
        journal = [json.loads(line) for line in (place / "out" / "journal.jsonl").read_text().splitlines()]
    return share, next(entry["supervisor_cpu_s"] for entry in journal if entry["event"] == "overhead")


def _measured(asked: RunSpec, seconds: float) -> float:
    """CPU seconds of the supervisor between a fifth and nine tenths of the job, by that time."""
    seen: list[float] = []

    def look() -> None:
        journal = asked.out_dir / "journal.jsonl"
        while not journal.exists() or '"attempt-started"' not in journal.read_text():
            time.sleep(0.05)
        pid = json.loads(journal.read_text().splitlines()[0])["supervisor_pid"]
        supervisor = psutil.Process(pid)
        time.sleep(0.2 * seconds)
        before, began = supervisor.cpu_times(), time.monotonic()
        time.sleep(0.7 * seconds)
        after, passed = supervisor.cpu_times(), time.monotonic() - began
        seen.append((after.user + after.system - before.user - before.system) / passed)

    watcher = threading.Thread(target=look)
    watcher.start()
    ensure_run(asked, lambda line: None)
    watcher.join()
    return seen[0]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--samples", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--only", default="nan-line,nan-event,exit,patience,cpu")
    arguments = parser.parse_args()
    for kind in arguments.only.split(","):
        if kind == "cpu":
            share, whole = steady_share(arguments.seconds)
            print(f"100 lines a second for {arguments.seconds:.0f} s: {100 * share:.2f}% of a core while it runs, "
                  f"{whole:.2f} s CPU with start and end", flush=True)
            continue
        values = sorted(latency_s(kind, 0.8 + 0.037 * index) for index in range(arguments.samples))
        p99 = values[min(len(values) - 1, math.ceil(0.99 * len(values)) - 1)]
        print(f"{kind}: median {statistics.median(values):.3f} s, p99 {p99:.3f} s, worst {values[-1]:.3f} s of "
              f"{len(values)}", flush=True)


if __name__ == "__main__":
    main()
