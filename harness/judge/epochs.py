"""Epochs: how many were begun and completed, and whether a limit on them was reached."""

from __future__ import annotations

from harness.judge.model import Check, failed, passed, unproven
from harness.judge.observe import Observation, counts_steps, steps_text
from harness.record.reasons import Reason
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
    if not counts_steps(seen) and seen.steps.completed is not None:
        known.append(seen.steps.completed)
    if seen.facts is not None and seen.facts.step_base == 1:
        known += [round(tag.max_finite, 3) for tag in seen.tags
                  if tag.tag in ("epoch", "train/epoch") and tag.fresh_points and tag.max_finite is not None]
    if seen.weights.last_epoch is not None and seen.facts is not None and seen.facts.step_base == 0:
        known.append(seen.weights.last_epoch + (0 if not counts_steps(seen) else 1))
    entered, last = epochs_entered(seen), seen.steps.last
    ends = [tag for tag in seen.tags if tag.last_step is not None and tag.fresh_points
            and (tag.phase is Phase.EVAL or tag.tag.endswith("_epoch"))]
    if entered is not None and last is not None and any((tag.last_step or 0) >= last for tag in ends):
        known.append(entered)
    return max(known, default=None)


def epochs_entered(seen: Observation) -> int | None:
    """Epochs that were begun, by a series named `epoch` that counts from 0."""
    values = [tag.max_finite for tag in seen.tags if tag.tag == "epoch" and tag.fresh_points]
    known = [value for value in values if value is not None]
    if not known or seen.facts is None or seen.facts.step_base != 0:
        return None
    return int(max(known)) + 1
