"""What a user sees while the run goes on: announcements, and a progress line at each interval.

Written to a file that any process may follow, since under xdist no worker owns the terminal.
"""

from __future__ import annotations

import contextlib
import math
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.watch.pace import Pace
from harness.watch.usage import GpuUse, Usage

SUMMARY_EVERY = 5
"""Reports after which a summary of them is told."""
_RATE = re.compile(r"(tokens|samples|examples|sequences|seqs)(?:_per_|/)(?:s|sec|second)$", re.IGNORECASE)
_LINE = re.compile(r"\[\d\d:\d\d:\d\d\] Step \d")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The run at one moment, as far as it can be seen."""

    step: int | None = None
    total: int | None = None
    values: dict[str, float] = field(default_factory=dict)
    """Latest loss, lr and grad_norm, by short name."""
    rate: tuple[float, str] | None = None
    """What the trainer itself says of its speed: (142.0, "samples/s")."""
    epoch: float | None = None
    stage: str = ""
    """A name that changes when the run enters another stage."""
    usage: Usage | None = None


def pick_values(
    values: Mapping[str, float], *, loss: Iterable[str], evaluation: Iterable[str], lr: Iterable[str],
    grad_norm: Iterable[str],
) -> dict[str, float]:
    """The values worth a progress line, by short name; of several tags that fit, the first one."""
    found: dict[str, float] = {}
    training = {tag: value for tag, value in values.items() if not fits(tag, evaluation)}
    for name, patterns in (("loss", loss), ("lr", lr), ("grad_norm", grad_norm)):
        match = next((value for tag, value in training.items() if fits(tag, patterns)), None)
        if match is not None:
            found[name] = match
    return found


def pick_rate(values: Mapping[str, float]) -> tuple[float, str] | None:
    """The trainer's own speed, samples before tokens, as (number, "samples/s" or "tokens/s")."""
    found: dict[str, float] = {}
    for tag, value in values.items():
        match = _RATE.search(tag)
        if match is not None and math.isfinite(value):
            found.setdefault("tokens/s" if match.group(1).lower() == "tokens" else "samples/s", value)
    return next(((found[unit], unit) for unit in ("samples/s", "tokens/s") if unit in found), None)


def fits(tag: str, patterns: Iterable[str]) -> bool:
    """Whether a tag matches one of the patterns, without case."""
    return any(re.search(pattern, tag, re.IGNORECASE) for pattern in patterns)


@dataclass(frozen=True, slots=True)
class _Report:
    """A report that was made."""

    age_s: float
    step: int
    loss: float | None


class ProgressWriter:
    """Appends lines; a full disk loses the lines and nothing else."""

    def __init__(self, path: Path, pace: Pace) -> None:
        self.pace = pace
        self._handle = path.open("a", encoding="utf-8", errors="backslashreplace")
        self._made: list[_Report] = []
        """Reports since the last summary, the last one before it first."""
        self._events: list[str] = []
        self._rate: float | None = None

    def say(self, line: str) -> None:
        """One announcement; line breaks inside it become spaces."""
        with contextlib.suppress(OSError, ValueError):
            self._handle.write(" ".join(line.splitlines()) + "\n")
            self._handle.flush()

    def report(self, take: Callable[[], Snapshot], age_s: float) -> None:
        """The progress line, when it is due and there is a step to tell; the first one comes with the first step."""
        if not self.pace.is_due(age_s):
            return
        seen = take()
        if seen.step is None:
            return
        self.pace.observe(loss=seen.values.get("loss"), epoch=seen.epoch, stage=seen.stage)
        self._events += self.pace.reported(age_s)
        self._measure(seen.step, age_s)
        self._made.append(_Report(age_s, seen.step, seen.values.get("loss")))
        self.say(progress_line(seen, next_report_s=self.pace.interval_s, steps_per_s=self._rate))
        if len(self._made) > SUMMARY_EVERY:
            self.say(summary_line(self._made[0], self._made[1:], seen.total, self._events))
            self._made, self._events = self._made[-1:], []

    def _measure(self, step: int, age_s: float) -> None:
        """Steps a second since the last report; none after a step back, the last one while none was made."""
        before = self._made[-1] if self._made else _Report(0.0, step, None)
        if step < before.step:
            self._rate = None
        elif step > before.step and age_s > before.age_s:
            self._rate = (step - before.step) / (age_s - before.age_s)

    def close(self) -> None:
        """Close the file."""
        with contextlib.suppress(OSError):
            self._handle.close()


def is_progress(line: str) -> bool:
    """Whether a line is a progress line, which the next one replaces on a terminal."""
    return _LINE.match(line) is not None


def progress_line(
    seen: Snapshot, *, next_report_s: float, steps_per_s: float | None = None, clock: float | None = None
) -> str:
    """`[HH:MM:SS] Step 1200/10000 (12%) | loss=0.342 | lr=1e-4 | grad_norm=0.8 | 142 samples/s | GPU 94% 18.2/24 GB |
    CPU 310% 4.1 GB | I/O 12.1/0.3 MB/s | ETA 1h 23m | next report in 45s`, without what is not known."""
    step = f"Step {seen.step}"
    if seen.total:
        step += f"/{seen.total} ({100 * (seen.step or 0) // seen.total}%)"
    parts = [step, *(f"{name}={shown(value)}" for name, value in seen.values.items())]
    if rate := seen.rate or (None if steps_per_s is None else (steps_per_s, "steps/s")):
        parts.append(f"{_rounded(rate[0])} {rate[1]}")
    if seen.usage is not None:
        parts += _usage(seen.usage)
    if steps_per_s and seen.total and seen.step is not None:
        parts.append(f"ETA {duration(max(0, seen.total - seen.step) / steps_per_s)}")
    parts.append(f"next report in {math.ceil(next_report_s)}s")
    stamp = time.strftime("%H:%M:%S", time.localtime(clock))
    return f"[{stamp}] " + " | ".join(parts)


def _usage(usage: Usage) -> list[str]:
    parts = [_gpu(usage.gpu)] if usage.gpu is not None else []
    if usage.memory_bytes is not None:
        busy = "" if usage.cpu_percent is None else f"{usage.cpu_percent:.0f}% "
        parts.append(f"CPU {busy}{_size(usage.memory_bytes)}")
    if usage.read_bytes_per_s is not None and usage.write_bytes_per_s is not None:
        parts.append(f"I/O {usage.read_bytes_per_s / 1e6:.1f}/{usage.write_bytes_per_s / 1e6:.1f} MB/s")
    return parts


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.1f} GB" if num_bytes >= 1e9 else f"{num_bytes / 1e6:.0f} MB"


def _gpu(gpu: GpuUse) -> str:
    """`GPU 94% 18.2/24 GB`; of several devices the mean and the sums."""
    name = "GPU" if gpu.count == 1 else f"{gpu.count} GPUs"
    busy = "" if gpu.percent is None else f" {gpu.percent:.0f}%"
    return f"{name}{busy} {gpu.used_bytes / 2**30:.1f}/{gpu.total_bytes / 2**30:.0f} GB"


def summary_line(before: _Report, made: list[_Report], total: int | None, events: list[str]) -> str:
    """What the last reports came to: steps, loss, and what had made them more frequent."""
    last = made[-1]
    steps, passed = last.step - before.step, last.age_s - before.age_s
    parts = [f"Summary of {len(made)} reports in {duration(passed)}: steps {before.step} to {last.step}"
             + (f" of {total}" if total else "") + f" ({_rounded(steps / passed) if passed > 0 else '?'} steps/s)"]
    losses = [one.loss for one in (before, *made) if one.loss is not None]
    finite = [loss for loss in losses if math.isfinite(loss)]
    if losses:
        best = f" (lowest {shown(min(finite))})" if finite else ""
        parts.append(f"loss {shown(losses[0])} to {shown(losses[-1])}{best}")
    told = list(dict.fromkeys(events))
    parts.append("events: " + ", ".join(told[:6]) + (", ..." if len(told) > 6 else "") if told else "no events")
    return " | ".join(parts) + f" | running for {duration(last.age_s)}"


def shown(value: float) -> str:
    """Four digits; small numbers as people write them, `1e-4` and not `0.0001` or `1e-04`."""
    if value and math.isfinite(value) and abs(value) < 1e-3:
        mantissa, _, exponent = f"{value:.3e}".partition("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
    return f"{value:.4g}"


def _rounded(rate: float) -> str:
    return f"{rate:.0f}" if abs(rate) >= 100 else f"{rate:.3g}"


def duration(seconds: float) -> str:
    """`1h 23m`, `4m 10s` or `12s`."""
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600}h {whole % 3600 // 60}m"
    return f"{whole // 60}m {whole % 60}s" if whole >= 60 else f"{whole}s"
