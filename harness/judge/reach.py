"""How far the run came: metric series, checkpoint names, the trainer's counter and the probe's counts held together.

Sources may count in different units: updates, micro-steps between updates, epochs, samples. Two that count the same
thing confirm each other; where no two do, nothing is proven, and only a count in the target's own unit can fail a run.
"""

from __future__ import annotations

from harness.judge.epochs import epoch_rows, epochs_completed, target_epoch
from harness.judge.fewer import explains_fewer
from harness.judge.model import Check, failed, not_applicable, passed, unproven
from harness.judge.observe import Observation, counts_steps, steps_text, was_stopped
from harness.judge.own_stop import printed_stop, trainer_stop
from harness.record.reasons import Reason
from harness.record.vocabulary import CheckStatus

MIN_UPDATES, MAX_ACCUMULATION = 5, 256
"""Fewer updates than this do not tell an accumulation factor from chance; no trainer accumulates over more steps."""
PROBE_LAG_S = 2.0
"""Seconds after the last writing of a probe file in which steps may have gone uncounted: one, and one for clocks."""
CUT_SHORT = ("cancelled", "owner-lost", "timeout")
"""Ends from outside, which say nothing of how far the run would have come."""
FAR_BEYOND = 1.5
"""A run that goes on this many times past a limit was not limited by it."""


def furthest_step(seen: Observation) -> int | None:
    """Completed steps by the furthest of metric series, checkpoint names and counter; None when none tells."""
    counted = seen.counter.step if seen.counter else None
    logged = seen.steps.completed if counts_steps(seen) else None
    known = [step for step in (logged, _saved(seen), counted) if step is not None]
    return max(known, default=None)


def probe_counts(seen: Observation) -> tuple[int, ...]:
    """Completed steps by each optimizer that the probe saw, those before this attempt added."""
    resumed = resumed_at(seen)
    return tuple(resumed + count for count in seen.probe.counts)


def resumed_at(seen: Observation) -> int:
    """Completed steps before this attempt, by the counter, else as far as the first logged step tells."""
    if seen.counter is not None:
        return seen.counter.resumed_at
    first, cadence = seen.steps.first, seen.steps.cadence
    if first is None or first <= cadence:
        return 0
    earlier = [step for step in seen.weights.steps if step < first]
    return max([*earlier, first - cadence])


def _in_turn(seen: Observation) -> tuple[int, ...]:
    """Completed steps by optimizers that followed one another."""
    resumed = resumed_at(seen)
    return tuple(resumed + count for count in seen.probe.in_turn)


def matching_count(seen: Observation) -> int | None:
    """The optimizer count that goes on from the metric series, within twice its largest gap; None when none does."""
    logged = seen.steps.completed if counts_steps(seen) else None
    counter = seen.counter
    if logged is None:
        lags = counter is not None and not counter.is_final
        later = [count for count in probe_counts(seen) if counter is not None and count >= counter.step]
        return max(later) if lags and later else None
    fitting = [count for count in probe_counts(seen) if logged <= count <= logged + reach_of_gap(seen)]
    return min(fitting, default=None)


def reach_of_gap(seen: Observation) -> int:
    """Steps that may follow the last logged one without being logged."""
    gap = seen.steps.largest_gap
    return 2 * gap if gap > 1 else 1


def accumulation(seen: Observation) -> int | None:
    """Logged steps an update, where that is a whole number: the series counts micro-steps.

    Where the command states that number, the last update may lack steps of its own.
    """
    logged = seen.steps.completed if counts_steps(seen) else None
    if logged is None:
        return None
    made = logged - resumed_at(seen)
    factors = [factor for count in seen.probe.counts if count >= MIN_UPDATES and (factor := made // count) and (
        made % count == 0 or (made - factor * count < factor and _is_stated(seen, factor)))]
    return next((factor for factor in factors if 2 <= factor <= MAX_ACCUMULATION), None)


def lie_in_one_update(seen: Observation, steps: list[int]) -> bool:
    """Whether checkpoints of these steps have no update between them, as the number of all updates tells: names count
    micro-steps, of which the last update may lack some."""
    last, counts = seen.weights.last_step, seen.probe.counts
    if last is None or len(counts) != 1 or counts[0] < MIN_UPDATES or not seen.probe.is_whole or resumed_at(seen):
        return False
    factor = last // counts[0]
    fits = 2 <= factor <= MAX_ACCUMULATION and last - factor * counts[0] < factor
    return fits and len({step // factor for step in steps}) == 1


def _is_stated(seen: Observation, factor: int) -> bool:
    """Whether the command itself gives this accumulation factor: `--grad-accum 4`, `gradient_accumulation_steps=4`."""
    words = [str(word).lower() for word in seen.record.fact("command", "argv") or []]
    following = [*words[1:], ""]
    return any("accum" in word and (word.endswith(f"={factor}") or after == str(factor))
               for word, after in zip(words, following, strict=True))


def metrics_count_longer(seen: Observation) -> bool:
    """Whether a metric step is several updates, as an epoch is: some optimizer made a multiple of them."""
    logged = seen.steps.completed
    return logged is not None and logged > 0 and any(
        count % logged == 0 and count >= 2 * logged for count in seen.probe.counts)


def saves_count_shorter(seen: Observation) -> bool:
    """Whether checkpoint names count parts of updates, as samples are: a multiple of what some optimizer made."""
    saved = seen.weights.last_step
    return saved is not None and any(
        count >= MIN_UPDATES and saved % count == 0 and saved >= 2 * count for count in seen.probe.counts)


def _saved(seen: Observation) -> int | None:
    return None if saves_count_shorter(seen) else seen.weights.last_step


def check_target_step(seen: Observation) -> Check:
    """The target was reached, or the trainer's own early stopping ended the run before it."""
    check, stop = _reached(seen), trainer_stop(seen)
    if stop is None and check.status is CheckStatus.FAILED and (line := printed_stop(seen)):
        return unproven(check.name, Reason.EARLY_STOP_PRINTED, check.expected, check.observed, f"it printed: {line}")
    if stop is None or check.status is CheckStatus.PASSED:
        return check
    return passed(check.name, "the step of the trainer's own early stopping", steps_text(seen), stop.trace)


def _reached(seen: Observation) -> Check:
    """Completed steps in the trainer's base, or epochs, where those are the limit."""
    name = "target_step"
    if was_stopped(seen) == "early-stop":
        return passed(name, "the step of the early stop", steps_text(seen), "stopped early, as asked for")
    if was_stopped(seen) in CUT_SHORT:
        return not_applicable(name, f"the run was cut short: {was_stopped(seen)}")
    if seen.record.last("attached") is not None and seen.record.last("attempt-ended") is None:
        return not_applicable(name, "the watch ended before the run")
    if seen.target is None and seen.facts is not None and seen.facts.target_epochs is not None:
        return target_epoch(seen, seen.facts.target_epochs, seen.facts.target_epochs_source)
    if seen.target is None:
        return unproven(name, Reason.TARGET_UNKNOWN, "a known target", steps_text(seen),
                        "neither --max-steps, nor the command, nor the trainer's log says how many steps")
    expected = f"{seen.target} steps ({seen.target_source})"
    counted = seen.counter.step if seen.counter else None
    if counted is not None and counted >= seen.target:
        return passed(name, expected, steps_text(seen))
    saved = _saved(seen)
    if saved is not None and saved >= seen.target:
        return _saved_beyond(seen, seen.target, saved, expected)
    logged = seen.steps.completed if counts_steps(seen) else None
    if logged is not None and logged >= seen.target:
        return _logged_beyond(seen, seen.target, logged, expected)
    return _logged_short(seen, seen.target, expected)


def _saved_beyond(seen: Observation, target: int, saved: int, expected: str) -> Check:
    """A checkpoint's number passes the target: believed unless the probe saw all updates, and fewer."""
    counts, shown = probe_counts(seen), steps_text(seen, *seen.probe.counts)
    logged = seen.steps.completed if counts_steps(seen) else None
    goals = {step for step in (target, saved, logged) if step is not None}
    by_probe = seen.facts is None or seen.facts.counts_updates_by == "probe"
    missed = not seen.probe.is_whole and (
        logged is None or logged < target or not seen.train_loss or _logged_in_probes_time(seen) >= target)
    if not by_probe or not counts or missed or max(counts) >= target or explains_fewer(seen, target, goals):
        return passed("target_step", expected, steps_text(seen))
    return _unseen("target_step", expected, shown, f"the checkpoint's number says {saved}, and the probe saw no "
                   f"optimizer apply more than {max(counts)} steps")


def _logged_beyond(seen: Observation, target: int, logged: int, expected: str) -> Check:
    """The series passes the target: believed unless the probe counted something that it cannot be."""
    name, shown = "target_step", steps_text(seen, *(seen.probe.in_turn or seen.probe.counts))
    by_probe = seen.facts is None or seen.facts.counts_updates_by == "probe"
    confirmed = matching_count(seen) is not None or (
        resumed_at(seen) < target and any(count >= target for count in (*probe_counts(seen), *_in_turn(seen))))
    if confirmed or not by_probe:
        return passed(name, expected, shown)
    if logged > FAR_BEYOND * target + reach_of_gap(seen):
        return unproven(name, Reason.TARGET_UNPROVEN, expected, shown,
                        f"the run went far beyond {target}, so {seen.target_source} is not its length in these steps")
    factor = accumulation(seen)
    if factor is not None and _is_stated(seen, factor):
        return passed(name, expected, shown, f"one update in {factor} logged steps, as the command says")
    if factor is not None:
        return unproven(name, Reason.TARGET_UNPROVEN, expected, shown,
                        f"one update in {factor} logged steps, which may be accumulation or steps that failed")
    if not seen.probe.counts or (not seen.probe.clean and _logged_in_probes_time(seen) >= target):
        return passed(name, expected, shown)
    return unproven(name, Reason.TARGET_UNPROVEN, expected, shown,
                    "the probe counted other numbers of applied steps than the log tells")


def _logged_in_probes_time(seen: Observation) -> int:
    """Completed steps that were logged before an unclosed probe file could have missed any.

    A step that comes a second or more after the last writing is written at once: what was logged later than that
    went without one. Series without times are believed.
    """
    store, limit = seen.record.store, seen.probe.updated_at + PROBE_LAG_S
    if store is None or not seen.train_loss:
        return 0
    last = -1
    for tag in seen.train_loss:
        for point in store.iter_series(tag.tag, run=tag.run):
            if not point.wall_time or point.wall_time <= limit:
                last = max(last, point.step)
    return last + (1 if seen.steps.base == 0 else 0)


def _logged_short(seen: Observation, target: int, expected: str) -> Check:
    name = "target_step"
    match, counts, reached = matching_count(seen), probe_counts(seen), furthest_step(seen)
    shown = steps_text(seen, *counts)
    if (match is not None and match >= target) or target in counts:
        return passed(name, expected, shown, "the probe counts on from the last logged step")
    if any(count > target for count in counts):
        why = "no step was logged" if reached is None else "the log counts in another unit than the updates"
        return _unseen(name, expected, shown, why) if reached is not None else passed(
            name, expected, shown, "counted by the probe alone")
    if reached is None:
        return _unseen(name, expected, shown, "no metric series, checkpoint or counter tells the step")
    if seen.steps.base is None and seen.steps.completed == reached and reached + 1 >= target and match is None:
        return _unseen(name, expected, shown, "the first logged step is 0 and nothing tells whether it was an update")
    within_gap = seen.steps.largest_gap > 1 and target <= reached + reach_of_gap(seen)
    lone = seen.steps.lone_last is not None and seen.steps.lone_last >= target
    if match is not None and (seen.probe.clean or not within_gap):
        return _short(seen, target, reached, expected, shown)
    if within_gap or lone:
        return _unseen(name, expected, shown, "the last steps may be missing in the log, which is kept at intervals")
    if counts and seen.counter is None and accumulation(seen) is None:
        return _unseen(name, expected, shown, "the log and the probe count different things")
    return _short(seen, target, reached, expected, shown)


def _unseen(name: str, expected: str, shown: str, why: str) -> Check:
    return unproven(name, Reason.TARGET_UNPROVEN, expected, shown, why)


def _short(seen: Observation, target: int, reached: int, expected: str, shown: str) -> Check:
    return failed("target_step", Reason.TARGET_NOT_REACHED, expected, shown,
                  f"{target - reached} step(s) short{_own_limit(seen, reached)}")


def _own_limit(seen: Observation, reached: int) -> str:
    """Which limit of the trainer's own ended the run, as far as the trainer or the run's course says so."""
    counter = seen.counter
    if counter is not None and counter.planned is not None and reached >= counter.planned:
        return f": the trainer's own limit is {counter.planned} (max_steps in {counter.source})"
    done = epochs_completed(seen)
    if counter is not None and counter.planned_epochs and counter.epoch and counter.epoch >= counter.planned_epochs:
        return f": the trainer's own limit is {counter.planned_epochs:g} epochs (in {counter.source})"
    epochs = seen.facts.target_epochs if seen.facts else None
    if epochs is not None and done is not None and done >= epochs and seen.facts is not None:
        return f": {epochs} epochs ({seen.facts.target_epochs_source}) ended it"
    rows = epoch_rows(seen)
    if rows is not None and rows.steps_each and rows.entered > 1:
        return f": it ended with epoch {rows.entered}, each of {rows.steps_each} steps: a limit on epochs ended it"
    return ""


def is_target_met(seen: Observation) -> bool | None:
    """Whether the target was reached; None where that is unproven or there is none."""
    if seen.target is None and (seen.facts is None or seen.facts.target_epochs is None):
        return None
    if seen.target is None:
        epochs, done = seen.facts.target_epochs if seen.facts else None, epochs_completed(seen)
        return None if epochs is None or done is None else done >= epochs
    status = _reached(seen).status.value
    return {"passed": True, "failed": False}.get(status)
