"""Epochs: how many were begun and completed, and whether a limit on them was reached."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from weakref import WeakKeyDictionary

from harness.judge.model import Check, failed, passed, unproven
from harness.judge.observe import Observation, counts_epochs, steps_text
from harness.record.reasons import Reason
from harness.record.store import MetricStore
from harness.record.vocabulary import Phase


def target_epoch(seen: Observation, target: int, source: str) -> Check:
    """The limit is a number of epochs: the last one was completed, by counter, checkpoint or a row that ends it."""
    expected = f"{target} epochs ({source})"
    done, entered = epochs_completed(seen), epochs_entered(seen)
    if done is not None and done >= target:
        return passed("target_step", expected, f"{done:g} epochs, {steps_text(seen)}")
    if entered is not None and entered >= target:
        return unproven("target_step", Reason.TARGET_UNPROVEN, expected, f"epoch {entered} was begun",
                        "nothing was logged or saved at the end of the last epoch")
    if done is None and entered is None:
        return unproven("target_step", Reason.TARGET_UNPROVEN, expected, steps_text(seen), "no epoch was logged")
    known = [epochs for epochs in (done, entered) if epochs is not None]
    return failed("target_step", Reason.TARGET_NOT_REACHED, expected, f"epoch {max(known):g}", "the run ended before")


def epochs_completed(seen: Observation) -> float | None:
    """Epochs that were ended, by the trainer's counter, its epoch rows, its checkpoints, or a row of an epoch's end."""
    known: list[float] = []
    if seen.counter is not None and seen.counter.epoch is not None:
        known.append(round(seen.counter.epoch, 3))
    if counts_epochs(seen) and seen.steps.completed is not None:
        known.append(seen.steps.completed)
    if seen.facts is not None and seen.facts.step_base == 1:
        known += [round(tag.max_finite, 3) for tag in seen.tags
                  if tag.tag in ("epoch", "train/epoch") and tag.fresh_points and tag.max_finite is not None]
    if seen.weights.last_epoch is not None and seen.facts is not None and seen.facts.step_base == 0:
        known.append(seen.weights.last_epoch + (0 if counts_epochs(seen) else 1))
    rows = epoch_rows(seen)
    if rows is not None and rows.completed is not None:
        known.append(rows.completed)
    entered, last = epochs_entered(seen), seen.steps.last
    ends = [tag for tag in seen.tags if tag.last_step is not None and tag.fresh_points
            and (tag.phase is Phase.EVAL or tag.tag.endswith("_epoch"))]
    if entered is not None and last is not None and any((tag.last_step or 0) >= last for tag in ends):
        known.append(entered)
    return max(known, default=None)


def planned_epochs(seen: Observation) -> float | None:
    """Epochs that the run was to have: as the user, the command or the trainer says, or, where steps are the limit,
    what they come to by the length of an epoch. None where that length is not known."""
    counter, rows = seen.counter, epoch_rows(seen)
    if seen.record.spec.max_epochs is not None:
        return seen.record.spec.max_epochs
    if seen.target is None:
        stated = seen.facts.target_epochs if seen.facts else None
        return counter.planned_epochs if stated is None and counter is not None else stated
    if counter is not None and counter.epoch and counter.step:
        return round(counter.epoch * seen.target / counter.step, 3)
    if rows is not None and rows.shares and rows.completed and seen.steps.completed:
        return round(rows.completed * seen.target / seen.steps.completed, 3)
    return round(seen.target / rows.steps_each, 3) if rows is not None and rows.steps_each else None


def epochs_entered(seen: Observation) -> int | None:
    """Epochs that were begun, by a series named `epoch` whose first number is known."""
    rows = epoch_rows(seen)
    if rows is not None:
        return rows.entered
    values = [tag.max_finite for tag in seen.tags if tag.tag == "epoch" and tag.fresh_points]
    known = [value for value in values if value is not None]
    if not known or seen.facts is None or seen.facts.step_base != 0:
        return None
    return int(max(known)) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochRows:
    """What a series named `epoch` of a program of which nothing else is known tells."""

    entered: int
    completed: float | None
    shares: bool = False
    """Whether it counts shares of an epoch, and not epochs."""
    steps_each: int | None = None
    """Steps of every epoch, where all have as many and the last one was logged to its end."""


_READ: WeakKeyDictionary[MetricStore, dict[tuple[str, str, int], EpochRows | None]] = WeakKeyDictionary()
"""What was read of stores that are open, which judging does not change: several checks ask for the same series."""


def epoch_rows(seen: Observation) -> EpochRows | None:
    """Shares of epochs as they are; whole numbers from 0 or 1, where the last epoch counts once it is as long as the
    others, by the steps that were logged. None where the adapter itself knows how its epochs count."""
    tags = [tag for tag in seen.tags if tag.tag.rpartition("/")[2] == "epoch" and tag.fresh_points]
    store = seen.record.store
    if not tags or store is None or (seen.facts is not None and seen.facts.step_base is not None):
        return None
    tag = max(tags, key=lambda item: item.fresh_points)
    known, key = _READ.setdefault(store, {}), (tag.run, tag.tag, seen.steps.cadence)
    if key not in known:
        known[key] = read_epochs(((point.step, point.value) for point in store.iter_series(tag.tag, run=tag.run)),
                                 seen.steps.cadence)
    return known[key]


def read_epochs(points: Iterable[tuple[int, float]], cadence: int) -> EpochRows | None:
    """`points`: (step, epoch), steps rising. `cadence`: distance of logged steps."""
    starts: dict[int, int] = {}
    most, shares, first, last = 0.0, False, None, 0
    for step, value in points:
        if not 0 <= value < 1e9:
            return None
        shares |= not value.is_integer()
        most, first, last = max(most, value), step if first is None else first, step
        starts.setdefault(int(value), step)
    if first is None:
        return None
    if shares:
        return EpochRows(entered=-int(-most // 1), completed=round(most, 3), shares=True)
    base, newest = min(starts), max(starts)
    if base not in (0, 1) or len(starts) != newest - base + 1:
        return None
    entered = newest - base + 1
    lengths = {after - before for before, after in pairwise(starts.values())}
    each = lengths.pop() if len(lengths) == 1 else 0
    rows_end_their_steps = first >= min(cadence, each) - 1
    ends = each > 0 and rows_end_their_steps and last >= starts[newest] + each - min(cadence, each)
    return EpochRows(entered=entered, completed=entered if ends else entered - 1, steps_each=each if ends else None)
