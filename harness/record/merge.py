"""The attempt rule: which points of which writer make up the series of one tag in one run directory.

Two writers whose lifetimes overlap are two writers of one attempt (two ranks, two processes) and are never
stitched: a series follows the lowest of them. A writer that began after another one ended, or that belongs to
a later attempt, is a restart if the train-phase tags that both hold make up more than half of the earlier
one's train-phase points. Of the tags that both hold, the earlier writer's points at or above the restart's
first step are superseded, also beyond the restart's last step: the branch that was abandoned is gone. The
restart's first step is the lowest first step among the shared train-phase tags, so that a tag that is logged
rarely is cut where training went back to. A later writer that is no restart (a closing evaluation, whose file
repeats `train/epoch` in Transformers and `hp_metric` at step 0 in Lightning) cuts nothing; of equal steps its
point counts. A restart marker (TensorBoard's SessionLog START at step N) purges what was written before it at
or above N, in its own file and in the files of writers that ended before it began. Within one writer the last
written point of a step counts.

A lifetime runs from the file's first event to its last by the writer's clock; where a source has no clock, by
the time at which the harness saw its bytes. Kinds (TensorBoard, JSON lines) are never mixed in one series, and what was
printed counts only where no other kind does.
Source: 15 points instead of TensorBoard's 20 on a crash and restart, tensorboard issues 1272, 3570 and 5958.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

KIND_ORDER = ("tensorboard", "jsonl", "csv", "wandb", "mlflow", "trainer_state", "hf_results", "stdout")
PRINTED = "stdout"
"""The last resort: of a series only where no other kind holds it, whatever the number of points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifetime:
    """One source as the rule sees it. Times are seconds since the epoch, steps the trainer's own."""

    source: int
    kind: str
    writer: str
    path: str
    attempt: int
    start: float
    end: float
    train: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """(first step, points) of every train-phase tag that the source holds."""
    purges: tuple[tuple[int, int], ...] = ()
    """Restart markers: (sequence number of the next event, step)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """What one source gives to a series: its points below `cut`, less its own purges."""

    source: int
    cut: int | None
    purges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Segments in the order of their writers, later ones winning where steps are equal."""

    segments: tuple[Segment, ...]
    kind: str
    """Of the segments."""
    writers: tuple[str, ...]
    """Writers of the most crowded attempt; more than one means that they wrote at the same time."""


def make_plan(holders: Sequence[Lifetime], points: Mapping[int, int], writer: str | None = None) -> Plan:
    """The plan for one tag in one run directory: `holders` are the sources that hold it, `points` how many
    each."""
    kind = _leading_kind(holders, points)
    ordered = sorted(
        (h for h in holders if h.kind == kind), key=lambda h: (h.attempt, h.start, h.end, h.path)
    )
    generations = _generations(ordered)
    chosen = [c for c in (_choose(generation, writer) for generation in generations) if c is not None]
    crowded = max(generations, key=len, default=[])
    segments = tuple(
        Segment(source=life.source, cut=_cut(life, chosen[index + 1 :]), purges=life.purges)
        for index, life in enumerate(chosen)
    )
    return Plan(segments=segments, kind=kind, writers=tuple(life.writer for life in sorted(crowded, key=_writer_key)))


def _leading_kind(holders: Sequence[Lifetime], points: Mapping[int, int]) -> str:
    totals: dict[str, int] = {}
    for life in holders:
        totals[life.kind] = totals.get(life.kind, 0) + points.get(life.source, 0)
    if len(totals) > 1:
        totals.pop(PRINTED, None)
    known = {kind: -index for index, kind in enumerate(KIND_ORDER)}
    return max(sorted(totals), key=lambda kind: (totals[kind], known.get(kind, -len(known))), default="")


def _generations(ordered: Sequence[Lifetime]) -> list[list[Lifetime]]:
    """Sources grouped into attempts: a group holds those whose lifetimes overlap."""
    groups: list[list[Lifetime]] = []
    end = float("-inf")
    for life in ordered:
        if groups and life.attempt == groups[-1][-1].attempt and life.start <= end:
            groups[-1].append(life)
            end = max(end, life.end)
        else:
            groups.append([life])
            end = life.end
    return groups


def _choose(generation: Sequence[Lifetime], writer: str | None) -> Lifetime | None:
    named = [life for life in generation if writer is None or life.writer == writer]
    return min(named, key=_writer_key, default=None)


def _writer_key(life: Lifetime) -> tuple[list[tuple[int, str]], str, int]:
    """Natural order, so that rank 2 comes before rank 10."""
    parts = re.split(r"(\d+)", life.writer)
    return [(int(p), "") if p.isdigit() and p.isascii() else (-1, p) for p in parts], life.path, life.source


def _cut(life: Lifetime, later: Sequence[Lifetime]) -> int | None:
    """The step from which on a later writer has superseded `life`; None where none has."""
    cuts = [step for other in later for _, step in other.purges]
    own_points = sum(points for _, points in life.train.values())
    for other in later:
        shared = life.train.keys() & other.train.keys()
        if 2 * sum(life.train[tag][1] for tag in shared) > own_points:
            cuts.append(min(other.train[tag][0] for tag in shared))
    return min(cuts, default=None)
