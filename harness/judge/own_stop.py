"""The trainer's own early stopping: believed by its positive trace alone, never because a run ended short."""

from __future__ import annotations

from dataclasses import dataclass

from harness.judge.observe import Observation, was_stopped


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerStop:
    """A trainer that ended itself early."""

    trace: str
    """What shows it."""
    step: int | None
    """Completed steps at the stop, None where the trace does not tell."""
    metric: str | None = None
    patience: int | None = None


def trainer_stop(seen: Observation) -> TrainerStop | None:
    """The trace of a run that ended by itself with exit code 0; None where there is none."""
    ended = seen.record.last_end()
    if ended is None or ended.get("exit_code") != 0 or was_stopped(seen) is not None:
        return None
    counter = seen.counter
    if counter is not None and counter.patience is not None and (counter.waited or 0) >= counter.patience:
        trace = f"EarlyStoppingCallback waited {counter.waited} of {counter.patience} evaluations in {counter.source}"
        return TrainerStop(trace=trace, step=counter.step, patience=counter.patience)
    found = seen.record.last("trainer-stop")
    if found is None or seen.facts is None or found.get("framework") != seen.facts.name:
        return None
    return TrainerStop(trace=str(found.get("line")), step=None, metric=found.get("metric"),
                       patience=found.get("patience"))


def printed_stop(seen: Observation) -> str:
    """What a run that ended by itself with exit code 0 printed of an early stop in its own words, "" for nothing."""
    ended, found = seen.record.last_end(), seen.record.last("trainer-stop") or {}
    if ended is None or ended.get("exit_code") != 0 or was_stopped(seen) is not None:
        return ""
    return str(found.get("line")) if found.get("framework") == "printed" else ""
