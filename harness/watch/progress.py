"""What a user sees while the run goes on: announcements, and a progress line at each interval.

Written to a file that any process may follow, since under xdist no worker owns the terminal.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The run at one moment, as far as it can be seen."""

    step: int | None = None
    total: int | None = None
    values: dict[str, float] = field(default_factory=dict)
    """Latest loss, lr, grad_norm and rates, by short name."""


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
    for tag, value in training.items():
        if tag.endswith(("tokens_per_s", "samples_per_s", "tokens_per_second", "samples_per_second")):
            found[tag.rpartition("/")[2]] = value
            break
    return found


def fits(tag: str, patterns: Iterable[str]) -> bool:
    """Whether a tag matches one of the patterns, without case."""
    return any(re.search(pattern, tag, re.IGNORECASE) for pattern in patterns)


class ProgressWriter:
    """Appends lines; a full disk loses the lines and nothing else."""

    def __init__(self, path: Path, *, interval_s: float) -> None:
        self.interval_s = interval_s
        self._handle = path.open("a", encoding="utf-8", errors="backslashreplace")
        self._due = 0.0
        self._last_step: tuple[float, int] | None = None

    def say(self, line: str) -> None:
        """One announcement; line breaks inside it become spaces."""
        with contextlib.suppress(OSError, ValueError):
            self._handle.write(" ".join(line.splitlines()) + "\n")
            self._handle.flush()

    def report(self, snapshot: Snapshot, age_s: float) -> None:
        """The progress line, when it is due and there is a step to tell; the first one comes with the first step."""
        if snapshot.step is None or age_s < self._due:
            return
        self._due = age_s + self.interval_s
        self.say(progress_line(snapshot, next_report_s=self.interval_s, eta_s=self._eta(snapshot, age_s)))

    def _eta(self, snapshot: Snapshot, age_s: float) -> float | None:
        previous, self._last_step = self._last_step, (age_s, snapshot.step or 0)
        if previous is None or snapshot.total is None or snapshot.step is None or snapshot.step <= previous[1]:
            return None
        rate = (snapshot.step - previous[1]) / max(age_s - previous[0], 1e-9)
        return max(0, snapshot.total - snapshot.step) / rate

    def close(self) -> None:
        """Close the file."""
        with contextlib.suppress(OSError):
            self._handle.close()


def progress_line(
    snapshot: Snapshot, *, next_report_s: float, eta_s: float | None = None, clock: float | None = None
) -> str:
    """`[HH:MM:SS] Step 1200/10000 (12%) | loss=0.342 | lr=0.0001 | ... | ETA 1h 23m | next report in 45s`."""
    step = f"Step {snapshot.step}"
    if snapshot.total:
        step += f"/{snapshot.total} ({100 * (snapshot.step or 0) // snapshot.total}%)"
    parts = [step, *(f"{name}={value:.4g}" for name, value in snapshot.values.items())]
    if eta_s is not None:
        parts.append(f"ETA {duration(eta_s)}")
    parts.append(f"next report in {next_report_s:.0f}s")
    stamp = time.strftime("%H:%M:%S", time.localtime(clock))
    return f"[{stamp}] " + " | ".join(parts)


def duration(seconds: float) -> str:
    """`1h 23m`, `4m 10s` or `12s`."""
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600}h {whole % 3600 // 60}m"
    return f"{whole // 60}m {whole % 60}s" if whole >= 60 else f"{whole}s"
