"""Updates that a trainer's own lines tell, where a run that others made left its log alone, and trajectories that the
context cut, which no file tells.

No witness: what was printed proves nothing. But a log of a whole loop without one such line shows that no update was
made, and one with some shows that the run is not to be called one without.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

CHUNK_BYTES = 1 << 20
MAX_LISTED = 100
"""Skipped steps that are listed; further ones are counted."""


def told_updates(logs: Iterable[Path], lines: tuple[str, ...]) -> dict[str, Any] | None:
    """{executed, last_step, skipped, skipped_steps} of all logs; None where they show no loop of this trainer.

    `lines`: FrameworkFacts.update_lines.
    """
    patterns = [re.compile(text.encode()) for text in lines]
    executed, skipped, is_loop = set[int](), set[int](), False
    for chunk in _whole_lines(logs):
        executed |= {int(match[1]) for match in patterns[0].finditer(chunk)}
        skipped |= {int(match[1]) for match in patterns[1].finditer(chunk)}
        is_loop = is_loop or patterns[2].search(chunk) is not None
    if not (is_loop or executed or skipped):
        return None
    left_out = sorted(skipped - executed)
    return {"executed": len(executed), "last_step": max(executed, default=None), "skipped": len(left_out),
            "skipped_steps": left_out[:MAX_LISTED]}


def told_cuts(logs: Iterable[Path], lines: tuple[str, ...]) -> dict[str, int] | None:
    """{rollouts, all_cut, cut, kept}: rollouts of all logs, those in which the context limit cut every trajectory that
    was kept, and trajectories that were cut and that were kept. None where the logs tell of no rollout.

    `lines`: FrameworkFacts.cut_lines.
    """
    pattern = re.compile("|".join(lines).encode())
    rollouts = all_cut = cut = kept = pending = 0
    for chunk in _whole_lines(logs):
        for match in pattern.finditer(chunk):
            if match[1] is not None:
                pending = max(0, int(match[1]) - int(match[2]))
                continue
            rollouts, kept, cut = rollouts + 1, kept + int(match[3]), cut + pending
            all_cut += int(match[3]) <= pending and pending > 0
            pending = 0
    return {"rollouts": rollouts, "all_cut": all_cut, "cut": cut, "kept": kept} if rollouts else None


def _whole_lines(logs: Iterable[Path]) -> Iterator[bytes]:
    """Chunks that end with a line; a longer line is cut."""
    for log in logs:
        rest = b""
        try:
            handle = log.open("rb")
        except OSError:
            continue
        with handle:
            while block := handle.read(CHUNK_BYTES):
                data = rest + block
                end = data.rfind(b"\n") + 1 or len(data)
                yield data[:end]
                rest = data[end:]
        yield rest
