"""Reading a trainer's log: every value into metrics.db against a plain scanner, in one run.

    python benchmarks/read_log.py [--megabytes 1000] [--repeats 3] [--keep DIR] [--kinds mixed dense]

Two logs as Transformers writes them. `mixed`: ten redraws of a bar for each row, and other lines around them. `dense`:
nothing but rows, each with four values. Ours places each row at its step, keeps the digest of what it read, writes
SQLite and builds its index. The plain scanner reads chunks of 8 MB, runs one bytes regex over them, parses each number
and keeps nothing. First it is checked that both give the same steps and values of each tag. Every reading is an
interpreter of its own over the same file, in turns; warm page cache, imports not counted. Printed are the medians of
the CPU time, their ratio, and the peak of memory of ours.
"""

from __future__ import annotations

import argparse
import array
import hashlib
import json
import random
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

CHUNK_BYTES = 8 << 20
PAIR = re.compile(rb"'([a-z_]+)': '?(-?[0-9.]+(?:e-?[0-9]+)?|nan|inf)'?(?=[,}])|\| ([0-9]+)/[0-9]+ \[")
Series = dict[str, tuple["array.array[int]", "array.array[float]"]]
"""{tag: (steps, values)}."""
BARS_PER_ROW = 10
TOTAL = 100_000_000
NOISE = (
    "[INFO|trainer.py:2314] 2026-01-07 10:21:33,118 >> dataloader worker 3 handed over a batch of 8 samples\n",
    "/opt/lib/python3.11/site-packages/torch/utils/checkpoint.py:85: UserWarning: None of the inputs have a gradient\n",
    "  warnings.warn('this will be an error in a later version')\n",
    "2026-01-07 10:21:34,921 node0 shard-00017-of-00128.parquet cached in 312 ms, 48 MB, hit rate 0.93\n",
)


def row(step: int, rng: random.Random) -> str:
    """A row of metrics as Transformers prints it."""
    return (
        f"{{'loss': {2 + 3 / (1 + step / 1e4) + rng.random() / 10:.4f}, 'grad_norm': {rng.random() + 0.5}, "
        f"'learning_rate': {1e-4 * (1 - step / TOTAL)}, 'epoch': {step / 1e5:.2f}}}\n"
    )


def bar(step: int) -> str:
    """A redraw of tqdm's bar."""
    return (
        f"\r{100 * step // TOTAL:3d}%|{'#' * 8}{' ' * 20}| {step}/{TOTAL} "
        f"[{step // 3600:02d}:{step // 60 % 60:02d}:{step % 60:02d}<27:46:40, {9 + step % 7 / 10:.2f}it/s]"
    )


def generate(path: Path, kind: str, size: int) -> None:
    """A log of about `size` bytes."""
    rng = random.Random(7)
    step, written = 0, 0
    with path.open("w") as file:
        while written < size:
            parts = []
            for _ in range(1000):
                step += 10
                if kind == "mixed":
                    parts += [bar(step - BARS_PER_ROW + 1 + i) for i in range(BARS_PER_ROW)]
                    parts += [f"\r{' ' * 80}\r", row(step, rng), bar(step), "\n", *NOISE]
                else:
                    parts.append(row(step, rng))
            written += file.write("".join(parts))


def scan(path: Path, *, keep: bool) -> Series:
    """The plain scanner: chunks cut at line ends, one regex for numbers under a key and for the counts of bars, every
    number parsed. A row's step is the count of the bar that is drawn behind it; without any bar, the row's number."""
    kept: Series = {}
    waiting: list[tuple[bytes, float]] = []
    rest, number, step = b"", 0.0, 0
    with path.open("rb", buffering=0) as file:
        while block := file.read(CHUNK_BYTES):
            data = rest + block
            end = data.rfind(b"\n") + 1
            for match in PAIR.finditer(data, 0, end):
                if match[3]:
                    step = int(match[3])
                    if keep and waiting:
                        put(kept, waiting, step)
                else:
                    number = float(match[2])
                    if keep:
                        waiting.append((match[1], number))
            if keep and not step:
                put(kept, waiting, None)
            rest = data[end:]
    return kept


def put(kept: Series, waiting: list[tuple[bytes, float]], step: int | None) -> None:
    """Values whose step is known; None: the number of the row."""
    for tag, number in waiting:
        steps, values = kept.setdefault(tag.decode(), (array.array("q"), array.array("d")))
        steps.append(len(steps) + 1 if step is None else step)
        values.append(number)
    waiting.clear()


def digest(series: Series) -> str:
    """Over the steps and values of each tag in their order."""
    total = hashlib.sha256()
    for tag in sorted(series):
        steps, values = series[tag]
        total.update(tag.encode() + len(steps).to_bytes(8, "big") + steps.tobytes() + values.tobytes())
    return total.hexdigest()


def count(series: Series) -> int:
    """Points of all tags."""
    return sum(len(steps) for steps, _ in series.values())


def read_plain(path: Path, *, check: bool) -> dict[str, object]:
    """CPU seconds, or the digest of what it sees."""
    began = time.process_time()
    found = scan(path, keep=check)
    seconds = time.process_time() - began
    return {"seconds": seconds, "digest": digest(found), "points": count(found)}


def read_ours(path: Path, *, check: bool) -> dict[str, object]:
    """The reader into a metrics.db, as the supervisor does it."""
    from harness.metrics.command import read_output
    from harness.record.store import MetricStore

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with tempfile.TemporaryDirectory() as folder, MetricStore.create(Path(folder) / "metrics.db") as store:
        began = time.process_time()
        read_output(store, path, [])
        seconds = time.process_time() - began
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        found: Series = {}
        for tag in store.tags() if check else ():
            steps, values = found[tag.tag] = array.array("q"), array.array("d")
            for point in store.iter_series(tag.tag):
                steps.append(point.step)
                values.append(point.value)
        size = (Path(folder) / "metrics.db").stat().st_size
    return {"seconds": seconds, "digest": digest(found), "points": count(found),
            "peak_mb": peak / 1024, "rose_mb": (peak - before) / 1024, "store_mb": size / 1e6}


READERS = {"plain": read_plain, "ours": read_ours}


def measured(reader: str, path: Path, *, check: bool) -> dict[str, float]:
    """One reading in an interpreter of its own."""
    command = [sys.executable, __file__, "--reader", reader, "--path", str(path), *(["--check"] if check else [])]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


def compare(path: Path, kind: str, repeats: int) -> None:
    """Check, then measure in turns."""
    seen = {reader: measured(reader, path, check=True) for reader in READERS}
    size = path.stat().st_size
    if seen["plain"]["digest"] != seen["ours"]["digest"]:
        raise SystemExit(f"{kind}: not the same values: {seen}")
    print(f"{kind}: {size / 1e6:.0f} MB, {seen['ours']['points']:,} values, the same on both sides")
    runs: dict[str, list[dict[str, float]]] = {reader: [] for reader in READERS}
    for _ in range(repeats):
        for reader in READERS:
            runs[reader].append(measured(reader, path, check=False))
    medians = {reader: statistics.median(run["seconds"] for run in found) for reader, found in runs.items()}
    peak = max(run["peak_mb"] for run in runs["ours"])
    rose = max(run["rose_mb"] for run in runs["ours"])
    print(f"  plain scanner {medians['plain']:.2f} s, ours {medians['ours']:.2f} s, ratio "
          f"{medians['ours'] / medians['plain']:.2f}; peak memory of ours {peak:.0f} MB ({rose:.0f} MB above the "
          f"start), metrics.db {seen['ours']['store_mb']:.0f} MB")


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--kinds", nargs="+", default=["mixed", "dense"], choices=["mixed", "dense"])
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--reader", choices=READERS, help=argparse.SUPPRESS)
    parser.add_argument("--path", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--check", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.reader:
        print(json.dumps(READERS[arguments.reader](arguments.path, check=arguments.check)))
        return
    with tempfile.TemporaryDirectory() as folder:
        place = arguments.keep or Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        for kind in arguments.kinds:
            path = place / f"{kind}-{arguments.megabytes}.log"
            if not path.exists():
                generate(path, kind, arguments.megabytes * 1_000_000)
            compare(path, kind, arguments.repeats)


if __name__ == "__main__":
    main()
