"""What train-model.json and babysit-training.json share: how each field is taken from the facts."""

from __future__ import annotations

import re
import shlex
from datetime import datetime, timezone
from typing import Any

from harness.judge import saved
from harness.judge.model import Verdict
from harness.judge.observe import Observation
from harness.judge.reach import furthest_step, matching_count, probe_counts
from harness.metrics.resumption import FINGERPRINT
from harness.record import outdir
from harness.record.run_record import RunRecord
from harness.record.vocabulary import Decision, TerminalState

SCHEMA_VERSION = "1.0"


def common_fields(record: RunRecord, verdict: Verdict) -> dict[str, Any]:
    """The fields that every artifact has and that come out alike in all of a run's."""
    return {
        "schema_version": SCHEMA_VERSION,
        "run_id": record.spec.run_id,
        "timestamp": iso_time(record.entries[-1]["time"] if record.entries else None),
        "duration_seconds": run_seconds(record),
        "decision": verdict.decision.value,
        "confidence": verdict.confidence.value,
        "next_commands": next_commands(record, verdict),
    }


def state_value(state: TerminalState | None) -> str | None:
    """A terminal state as the artifacts hold it, null while the run goes on."""
    return None if state is None else state.value


def completed_steps(seen: Observation) -> int | None:
    """Completed trainer steps by the furthest source; the probe's count where it goes on from that or stands alone."""
    furthest, match = furthest_step(seen), matching_count(seen)
    if seen.target is not None and seen.target in probe_counts(seen):
        match = max(match or 0, seen.target)
    if furthest is None and match is None:
        return seen.probe.steps or None
    return max(furthest or 0, match or 0)


def next_commands(record: RunRecord, verdict: Verdict) -> list[str]:
    """What to run next, ready for a shell."""
    here = shlex.quote(str(record.out_dir))
    if verdict.decision is Decision.GO:
        return [f"python -m harness verify {here}"]
    commands = [f"tail -n 50 {shlex.quote(str(record.out_dir / outdir.TRAIN_LOG))}"] if (
        record.out_dir / outdir.TRAIN_LOG).exists() else []
    return [*commands, f"python -m harness verify {here}"]


def final_metrics(seen: Observation) -> dict[str, float | None]:
    """Last values by tag, without fingerprints of batches.

    Where a tag stands in several run directories, that of the one with most points.
    """
    final: dict[str, float | None] = {}
    for tag in sorted((*seen.printed, *seen.tags), key=lambda tag: tag.fresh_points):
        if tag.fresh_points and not re.search(FINGERPRINT, tag.tag):
            final[tag.tag] = tag.last_value
    return dict(sorted(final.items()))


def best_checkpoint(record: RunRecord) -> str | None:
    """Path of the best by --early-stop-metric, else of the most recent whole one."""
    best = saved.best_checkpoint(record)
    return None if best is None else best.path


def run_seconds(record: RunRecord) -> float:
    """Seconds from the first entry of the journal to the last."""
    return float(record.entries[-1]["time"] - record.entries[0]["time"]) if record.entries else 0.0


def trained_seconds(record: RunRecord) -> float:
    """Seconds that the trainer ran, all attempts together."""
    return sum(float(entry.get("seconds") or 0.0) for entry in record.every("attempt-ended"))


def iso_time(moment: float | None) -> str | None:
    """Seconds since the epoch as ISO-8601 in UTC."""
    if moment is None:
        return None
    return datetime.fromtimestamp(moment, tz=timezone.utc).isoformat(timespec="milliseconds")


def last_value(seen: Observation, names: tuple[str, ...]) -> float | None:
    """Last value of the first tag of one of these names."""
    return next((tag.last_value for tag in seen.tags if tag.tag in names and tag.fresh_points), None)
