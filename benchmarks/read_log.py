"""Reading a trainer's log: every value into metrics.db against a plain scanner, in one run.

    python benchmarks/read_log.py [--megabytes 1000] [--repeats 3] [--keep DIR] [--kinds mixed dense ...]

Logs as programs write them. `mixed`: Transformers, ten redraws of a bar for each row, and other lines around them;
`barred`: the same with one redraw and no other lines. Nothing but rows, each with four values: `dense` as Transformers
4 prints them, `quoted` as 5 does, `evals` with an evaluation after every 20th, `often` after every 5th, `banner` behind
the words that tell the steps of an epoch, `json` as JSON lines, `pairs` as key=value, both with a step. `wide` has
twelve values. In `turns` and `pair-turns` two programs' rows take turns (two optimizers, a policy and its reward), as
dicts behind a banner and as key=value. `ranks` and `pair-ranks`: four ranks that print the same, interleaved. `areno`:
its own lines, among them the samples. `bar-evals`: `barred` with an evaluation after every 20th row.

Ours places each row at its step, keeps the digest of what it read, writes SQLite and builds its index. The plain
scanner reads chunks of 8 MB, runs one bytes regex over them, parses each number and keeps nothing. First it is
checked that both give the same steps and values of each tag. Every reading is an interpreter of its own over the same
file, in turns; warm page cache, imports not counted. Printed are the medians of the CPU time, their ratio, and the peak
of memory of ours.
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
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

CHUNK_BYTES = 8 << 20
_ANY = rb"(-?[0-9.]+(?:e-?[0-9]+)?|nan|inf)"
DICT_PAIR = re.compile(rb"'([a-z_]+)': '?" + _ANY + rb"'?(?=[,}])|\| ([0-9]+)/[0-9]+ \[")
PAIRS = {
    "json": re.compile(rb'"([a-z_]+)": ' + _ANY + rb"(?=[,}])|\| ([0-9]+)/[0-9]+ \["),
    **dict.fromkeys(("pairs", "pair-turns", "pair-ranks"),
                    re.compile(rb"([a-z_]+)=" + _ANY + rb"(?=\s)|\| ([0-9]+)/[0-9]+ \[")),
    "areno": re.compile(rb"(?:'|metric=)([a-z_]+)(?:': | value=)" + _ANY + rb"(?=[,}\s])| step=([0-9]+)"),
}
Series = dict[str, tuple["array.array[int]", "array.array[float]"]]
"""{tag: (steps, values)}."""
BANNER = (
    "***** Running training *****\n  Num examples = 776\n  Num Epochs = 1,000,000\n"
    "  Total train batch size (w. parallel, distributed & accumulation) = 8\n"
    "  Total optimization steps = 97,000,000\n"
)
KINDS = ("mixed", "barred", "bar-evals", "dense", "quoted", "evals", "often", "wide", "banner", "turns", "ranks",
         "json", "pairs", "pair-turns", "pair-ranks", "areno")
STEP_BY_STEP = frozenset({"json", "pairs", "pair-turns", "pair-ranks", "banner", "turns", "areno"})
EVALS = {"evals": 20, "bar-evals": 20, "often": 5}
RANKS = 4
BARS_PER_ROW = 10
TOTAL = 100_000_000
WIDE = ("reward", "kl", "entropy", "clip_ratio", "length_mean", "length_max", "rate_seen", "value_loss")
NOISE = (
    "[INFO|trainer.py:2314] 2026-01-07 10:21:33,118 >> dataloader worker 3 handed over a batch of 8 samples\n",
    "/opt/lib/python3.11/site-packages/torch/utils/checkpoint.py:85: UserWarning: None of the inputs have a gradient\n",
    "  warnings.warn('this will be an error in a later version')\n",
    "2026-01-07 10:21:34,921 node0 shard-00017-of-00128.parquet cached in 312 ms, 48 MB, hit rate 0.93\n",
)


def row(step: int, rng: random.Random, kind: str = "dense") -> str:
    """A row of metrics as the programs print it."""
    loss, norm = 2 + 3 / (1 + step / 1e4) + rng.random() / 10, rng.random() + 0.5
    rate, epoch = 1e-4 * (1 - step / TOTAL), step / 1e5
    if kind == "json":
        return json.dumps({"step": step, "loss": round(loss, 4), "grad_norm": norm, "lr": rate, "kl": loss / 7}) + "\n"
    if kind == "pairs":
        return f"step={step} loss={loss:.4f} grad_norm={norm} lr={rate} kl={loss / 7:.6f}\n"
    if kind == "pair-turns":
        return (f"step={step} d_loss={loss:.4f} grad_norm={norm} lr={rate}\n"
                f"step={step} g_loss={loss / 2:.4f} reward={norm / 3:.6f} kl={loss / 7:.6f}\n")
    if kind == "areno":
        return areno(step, loss, norm, rate)
    if kind == "quoted":
        return (f"{{'loss': '{loss:.4g}', 'grad_norm': '{norm:.4g}', 'learning_rate': '{rate:.4g}', "
                f"'epoch': '{epoch:.4g}'}}\n")
    text = f"{{'loss': {loss:.4f}, 'grad_norm': {norm}, 'learning_rate': {rate}, 'epoch': {epoch:.2f}}}\n"
    if kind in ("banner", "turns"):
        text = text.replace(f"{epoch:.2f}", repr(step / 97))
    if kind == "turns":
        text += f"{{'reward': {norm / 3:.4f}, 'kl': {loss / 7}, 'epoch': {step / 97!r}}}\n"
    if kind == "wide":
        more = "".join(f", '{name}': {rng.random() * 9}" for name in WIDE)
        text = text.replace(", 'epoch'", f"{more}, 'epoch'")
    if step % (10 * EVALS.get(kind, step)) == 0 and kind in EVALS:
        text += f"{bar(step)}\n\r{' ' * 80}\r" * (kind == "bar-evals")
        text += f"{{'eval_loss': {loss:.4f}, 'eval_runtime': {norm:.4f}, 'epoch': {epoch:.2f}}}\n"
    return text


def areno(step: int, loss: float, norm: float, rate: float) -> str:
    """What AReno prints in a step."""
    head = f"2026-11-30 04:{step // 60 % 60:02d}:{step % 60:02d} INFO areno.api.trainers.policy_only.PolicyOnlyTrainer"
    sample = {"kind": "rollout", "epoch": 0, "step": step, "prompt": "what is 4 plus 4?", "completion": "8",
              "prompt_tokens": list(range(24)), "response_tokens": list(range(16))}
    stats = {"policy_loss": loss, "total_loss": loss, "advantage_mean": norm, "response_len": 16.0, "ratio_mean": 1.0,
             "ratio_std": norm / 9, "loss": loss, "lr": rate, "grad_norm": norm, "step_rollout_time_s": norm / 7}
    return (f"{head} policy_only.py:723 - rollout_completion={json.dumps(sample)}\n" * 4
            + f"{head} policy_only.py:215 - epoch=0 step={step} metric=reward_mean value={norm:.6f}\n"
            f"{head} policy_only.py:220 - epoch=0 step={step} metric=rollout_logprob_mean value={-loss:.6f}\n"
            f"{head} policy_only.py:244 - epoch=0 step={step} role=policy stage=train_start\n"
            f"{head} policy_only.py:258 - epoch=0 step={step} role=policy stage=train_end\n"
            f"{head} policy_only.py:260 - epoch=0 step={step} train_stats={stats}\n")


def by_ranks(text: str, rng: random.Random) -> str:
    """A row of each rank, in any order."""
    return "".join(f"[rank{rank}]: {text}" for rank in rng.sample(range(RANKS), RANKS))


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
        written += file.write({"banner": BANNER, "turns": BANNER, "barred": bar(0), "bar-evals": bar(0)}.get(kind, ""))
        while written < size:
            parts = []
            for _ in range(1000):
                step += 10
                if kind == "mixed":
                    parts += [bar(step - BARS_PER_ROW + 1 + i) for i in range(BARS_PER_ROW)]
                    parts += [f"\r{' ' * 80}\r", row(step, rng), bar(step), "\n", *NOISE]
                elif kind in ("barred", "bar-evals"):
                    parts += [f"\r{' ' * 80}\r", row(step, rng, kind), bar(step), "\n"]
                elif kind.endswith("ranks"):
                    parts.append(by_ranks(row(step // 10, rng, "pairs" if kind == "pair-ranks" else "dense"), rng))
                else:
                    parts.append(row(step // 10 if kind in STEP_BY_STEP else step, rng, kind))
            written += file.write("".join(parts))


def scan(path: Path, pattern: re.Pattern[bytes], *, keep: Callable[[re.Match[bytes], float], None] | None) -> None:
    """The plain scanner: chunks cut at line ends, one regex for numbers under a key and for the counts of bars, every
    number parsed."""
    rest, number = b"", 0.0
    with path.open("rb", buffering=0) as file:
        while block := file.read(CHUNK_BYTES):
            data = rest + block
            end = data.rfind(b"\n") + 1
            for match in pattern.finditer(data, 0, end):
                number = float(match[3] or match[2])
                if keep:
                    keep(match, number)
            rest = data[end:]


class Kept:
    """What the scanner sees. A row's step is its own, or the count of the bar that is drawn behind it; without any, the
    number of the row."""

    def __init__(self, kind: str) -> None:
        self.series: Series = {}
        self._kind, self._step, self._rows = kind, 0, 0
        self._waiting: list[tuple[bytes, float]] = []

    def __call__(self, match: re.Match[bytes], number: float) -> None:
        """A number that was found."""
        if match[3] or match[1] == b"step":
            self._step = int(number)
            for tag, value in self._waiting:
                self._put(tag, self._step, value)
            self._waiting.clear()
        elif self._kind in ("mixed", "barred", "bar-evals"):
            self._waiting.append((match[1], number))
        else:
            self._rows += match[1] == b"loss"
            self._put(match[1], self._step or self._rows, number)

    def _put(self, tag: bytes, step: int, value: float) -> None:
        steps, values = self.series.setdefault(tag.decode(), (array.array("q"), array.array("d")))
        if steps and steps[-1] == step:
            values[-1] = value
            return
        steps.append(step)
        values.append(value)


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


def read_plain(path: Path, kind: str, *, check: bool) -> dict[str, object]:
    """CPU seconds, or the digest of what it sees."""
    kept = Kept(kind)
    began = time.process_time()
    scan(path, PAIRS.get(kind, DICT_PAIR), keep=kept if check else None)
    seconds = time.process_time() - began
    return {"seconds": seconds, "digest": digest(kept.series), "points": count(kept.series)}


def read_ours(path: Path, kind: str, *, check: bool) -> dict[str, object]:
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
            if kind == "areno" and tag.tag == "epoch":
                continue  # it stands before its step, where the scanner cannot place it
            steps, values = found[tag.tag] = array.array("q"), array.array("d")
            for point in store.iter_series(tag.tag):
                steps.append(point.step)
                values.append(point.value)
        size = (Path(folder) / "metrics.db").stat().st_size
    return {"seconds": seconds, "digest": digest(found), "points": count(found),
            "peak_mb": peak / 1024, "rose_mb": (peak - before) / 1024, "store_mb": size / 1e6}


READERS = {"plain": read_plain, "ours": read_ours}


def measured(reader: str, path: Path, kind: str, *, check: bool) -> dict[str, float]:
    """One reading in an interpreter of its own."""
    command = [sys.executable, __file__, "--reader", reader, "--path", str(path), "--kinds", kind,
               *(["--check"] if check else [])]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


def compare(path: Path, kind: str, repeats: int) -> None:
    """Check, then measure in turns."""
    seen = {reader: measured(reader, path, kind, check=True) for reader in READERS}
    size = path.stat().st_size
    if seen["plain"]["digest"] != seen["ours"]["digest"]:
        raise SystemExit(f"{kind}: not the same values: {seen}")
    print(f"{kind}: {size / 1e6:.0f} MB, {seen['ours']['points']:,} values, the same on both sides")
    runs: dict[str, list[dict[str, float]]] = {reader: [] for reader in READERS}
    for _ in range(repeats):
        for reader in READERS:
            runs[reader].append(measured(reader, path, kind, check=False))
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
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--reader", choices=READERS, help=argparse.SUPPRESS)
    parser.add_argument("--path", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--check", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.reader:
        print(json.dumps(READERS[arguments.reader](arguments.path, arguments.kinds[0], check=arguments.check)))
        return
    with tempfile.TemporaryDirectory() as folder:
        place = arguments.keep or Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        for kind in arguments.kinds:
            path = place / f"{kind}-{arguments.megabytes}.log"
            if not path.exists():
                generate(path, kind, arguments.megabytes * 1_000_000)
            compare(path, kind, arguments.repeats)
            if arguments.keep is None:
                path.unlink()


if __name__ == "__main__":
    main()
