"""Checks of real_step about the run's course: exit, target step, executed and effective updates."""

from __future__ import annotations

from harness.judge.model import Check, failed, not_applicable, passed, unproven
from harness.judge.observe import CounterSeen, Observation
from harness.record.vocabulary import Phase, Reason

OWN_STOP_CODES = (0, 1, 143)
"""Exit codes of a trainer that the harness asked to end: a handler that saves, a bare KeyboardInterrupt, 128+15."""
OWN_STOP_SIGNALS = ("SIGTERM",)


def check_exit(seen: Observation) -> Check:
    """Exit code 0, or the harness ended the run at its cap and the trainer followed its signal."""
    name, expected = "exit", "exit code 0"
    record = seen.record
    ended = record.last("attempt-ended")
    if ended is None:
        return _no_end(seen)
    code, signal, stop = ended.get("exit_code"), ended.get("signal"), ended.get("stop_reason")
    observed = f"signal {signal}" if signal else f"exit code {code}"
    if stop == "timeout":
        return failed(name, Reason.RUN_TIMEOUT, expected, observed,
                      f"the run was stopped at --run-timeout {record.spec.run_timeout_s:g} s")
    if stop in ("cancelled", "owner-lost"):
        return failed(name, Reason.CANCELLED, expected, observed, f"stopped before its end: {stop}")
    if stop == "cap":
        if code in OWN_STOP_CODES or signal in OWN_STOP_SIGNALS:
            return passed(name, "0, 1, 143 or SIGTERM after a cap stop", observed, "stopped by the harness at its cap")
        return failed(name, Reason.EXIT_CODE, "0, 1, 143 or SIGTERM after a cap stop", observed, "stopped at its cap")
    if signal is not None:
        return failed(name, Reason.KILLED_BY_SIGNAL, expected, observed, "the harness did not send it")
    if code != 0:
        early = float(ended.get("seconds") or 0.0) < record.spec.crash_window_s
        reason = Reason.CRASHED_IN_WINDOW if early else Reason.EXIT_CODE
        return failed(name, reason, expected, observed, _log_error(seen) or f"after {ended.get('seconds', 0):.1f} s")
    error = _log_error(seen)
    if error and not _target_met(seen):
        return failed(name, Reason.EXCEPTION_BEHIND_EXIT_0, "no exception that ends the loop", observed, error)
    return passed(name, expected, observed)


def _no_end(seen: Observation) -> Check:
    record = seen.record
    if record.last("launch-failed"):
        return failed("exit", Reason.LAUNCH_FAILED, "a started process", "none",
                      str(record.fact("launch-failed", "message")))
    if record.last("reaped"):
        return failed("exit", Reason.SUPERVISOR_LOST, "exit code 0", "unknown",
                      "the supervisor was killed; the reaper stopped the trainer")
    if record.last("attempt-started") is None:
        return failed("exit", Reason.NO_REAL_RUN, "a launched run", "none", "nothing was launched")
    return unproven("exit", Reason.RUN_UNFINISHED, "exit code 0", "unknown", "the journal has no end of the run")


def _log_error(seen: Observation) -> str:
    return str(seen.record.fact("log-end", "exception", "") or "")


def _target_met(seen: Observation) -> bool:
    if seen.target is None:
        epochs, done = seen.facts.target_epochs if seen.facts else None, epochs_completed(seen)
        return epochs is not None and done is not None and done >= epochs
    reached = furthest_step(seen)
    return reached is not None and reached >= seen.target


def furthest_step(seen: Observation) -> int | None:
    """Completed steps by the furthest of metric series, checkpoint names and counter; None when none tells."""
    counted = seen.counter.step if seen.counter else None
    logged = seen.steps.completed if _counts_steps(seen) else None
    known = [step for step in (logged, seen.weights.last_step, counted) if step is not None]
    return max(known, default=None)


def _counts_steps(seen: Observation) -> bool:
    """Whether a metric step is a trainer step: some trainers log once an epoch and count epochs."""
    return seen.facts is None or seen.facts.step_unit == "step"


def check_target_step(seen: Observation) -> Check:
    """The target was reached: completed steps in the trainer's base, or epochs, where those are the limit."""
    name = "target_step"
    if seen.target is None and seen.facts is not None and seen.facts.target_epochs is not None:
        return _target_epoch(seen, seen.facts.target_epochs, seen.facts.target_epochs_source)
    if seen.target is None:
        return unproven(name, Reason.TARGET_UNKNOWN, "a known target", _steps_text(seen),
                        "neither --max-steps, nor the command, nor the trainer's log says how many steps")
    expected = f"{seen.target} steps ({seen.target_source})"
    reached = furthest_step(seen)
    if reached is not None and reached >= seen.target:
        return passed(name, expected, _steps_text(seen))
    if reached is None:
        return _target_unseen(seen, expected)
    window_end = reached + seen.steps.cadence
    probed = seen.probe.steps + _resumed_at(seen)
    comparable = (seen.steps.last is not None and reached <= probed <= window_end) or _saved_counter_lags(seen, probed)
    if comparable and seen.probe.steps and probed >= seen.target:
        return passed(name, expected, f"{_steps_text(seen)}, probe at {probed}",
                      "the probe counts on from the last logged step")
    if seen.steps.base is None and seen.steps.completed == reached and reached + 1 >= seen.target:
        return unproven(name, Reason.TARGET_UNPROVEN, expected, _steps_text(seen),
                        "the first logged step is 0 and nothing tells whether an update came before it")
    beyond_log = seen.target < window_end if seen.steps.cadence > 1 else False
    if beyond_log and not (comparable and seen.probe.steps):
        return unproven(name, Reason.TARGET_UNPROVEN, expected, _steps_text(seen),
                        f"steps are logged every {seen.steps.cadence}, so the last ones may be missing in the log")
    return failed(name, Reason.TARGET_NOT_REACHED, expected, _steps_text(seen, probed if comparable else None),
                  f"{seen.target - reached} step(s) short{_own_limit(seen, reached)}")


def _saved_counter_lags(seen: Observation, probed: int) -> bool:
    """Whether all that tells a step is a checkpoint's copy of the counter, and the run went on after that save."""
    counter = seen.counter
    return counter is not None and not counter.is_final and seen.steps.last is None and probed >= counter.step


def _own_limit(seen: Observation, reached: int) -> str:
    """Which limit of the trainer's own ended the run, where it says so."""
    counter = seen.counter
    if counter is None or counter.planned is None or not reached >= counter.planned:
        return ""
    return f": the trainer's own limit is {counter.planned} (max_steps in {counter.source})"


def _target_epoch(seen: Observation, target: int, source: str) -> Check:
    """The limit is a number of epochs: the last one was completed, by counter, checkpoint or a row that ends it."""
    expected = f"{target} epochs ({source})"
    done, entered = epochs_completed(seen), epochs_entered(seen)
    if done is not None and done >= target:
        return passed("target_step", expected, f"{done:g} epochs, {_steps_text(seen)}")
    if entered is not None and entered >= target:
        return unproven("target_step", Reason.TARGET_UNPROVEN, expected, f"epoch {entered} was begun",
                        "nothing was logged or saved at the end of the last epoch")
    if done is None and entered is None:
        return unproven("target_step", Reason.TARGET_UNPROVEN, expected, _steps_text(seen), "no epoch was logged")
    known = [epochs for epochs in (done, entered) if epochs is not None]
    return failed("target_step", Reason.TARGET_NOT_REACHED, expected, f"epoch {max(known):g}", "the run ended before")


def epochs_completed(seen: Observation) -> float | None:
    """Epochs that were ended, by the trainer's counter, its epoch rows, its checkpoints, or a row of an epoch's end."""
    known: list[float] = []
    if seen.counter is not None and seen.counter.epoch is not None:
        known.append(round(seen.counter.epoch, 3))
    if not _counts_steps(seen) and seen.steps.completed is not None:
        known.append(seen.steps.completed)
    if seen.facts is not None and seen.facts.step_base == 1:
        known += [round(tag.max_finite, 3) for tag in seen.tags
                  if tag.tag in ("epoch", "train/epoch") and tag.fresh_points and tag.max_finite is not None]
    if seen.weights.last_epoch is not None and seen.facts is not None and seen.facts.step_base == 0:
        known.append(seen.weights.last_epoch + (0 if not _counts_steps(seen) else 1))
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


def _target_unseen(seen: Observation, expected: str) -> Check:
    """No series and no checkpoint: the probe alone can say that the run fell short, and not that it reached it."""
    probe = seen.probe
    if probe.steps >= (seen.target or 0) > 0:
        return passed("target_step", expected, f"probe at {probe.steps}", "counted by the probe alone")
    if _probe_would_see(seen) and probe.optimizers:
        return failed("target_step", Reason.TARGET_NOT_REACHED, expected, f"probe at {probe.steps}",
                      "no step was logged and the probe saw no more")
    return unproven("target_step", Reason.TARGET_UNPROVEN, expected, "no step seen",
                    "no metric series and no checkpoint tells the step")


def _resumed_at(seen: Observation) -> int:
    """Completed steps before this attempt, by the counter, else as far as the first logged step tells."""
    if seen.counter is not None:
        return seen.counter.resumed_at
    first, cadence = seen.steps.first, seen.steps.cadence
    if first is None or first <= cadence:
        return 0
    earlier = [step for step in seen.weights.steps if step < first]
    return max([*earlier, first - cadence])


def _steps_text(seen: Observation, probed: int | None = None) -> str:
    parts = []
    if seen.steps.last is not None:
        unit = "" if _counts_steps(seen) else "epoch "
        parts.append(f"metrics at {unit}{seen.steps.completed}")
    if seen.counter is not None:
        parts.append(f"counter at {seen.counter.step}")
    if seen.weights.last_step is not None:
        parts.append(f"checkpoint at {seen.weights.last_step}")
    if probed is not None:
        parts.append(f"probe at {probed}")
    return ", ".join(parts) or "no step seen"


def _probe_would_see(seen: Observation) -> bool:
    applies = seen.facts is None or seen.facts.probe_applies
    return applies and seen.probe.asked and seen.probe.loaded and seen.probe.torch_seen


def check_updates_executed(seen: Observation) -> Check:
    """At least one optimizer step was applied in this attempt, by the best witness that the framework has."""
    name, expected = "updates_executed", "at least 1 applied optimizer step"
    if seen.counter is not None and seen.facts is not None and seen.facts.counts_updates_by == "counter":
        return _counted(seen, seen.counter, name, expected)
    if seen.updates.executed is not None:
        observed = f"{seen.updates.executed} update row(s)"
        if seen.updates.executed > 0:
            return passed(name, expected, observed)
        return failed(name, Reason.NO_UPDATE_EXECUTED, expected, observed,
                      "the trainer recorded no update: empty batches, a warm-up, or skipped steps")
    if seen.probe.steps > 0:
        return passed(name, expected, f"{seen.probe.steps} applied step(s) seen by the probe")
    if seen.weights.learnt:
        return passed(name, expected, f"{seen.weights.changed_tensors} changed tensor(s)",
                      "no torch optimizer stepped; the saved weights show the update")
    if _probe_would_see(seen) and seen.probe.optimizers:
        return failed(name, Reason.NO_UPDATE_EXECUTED, expected, "0 applied steps",
                      f"{seen.probe.optimizers} optimizer(s) were created and none ever stepped")
    if seen.weights.compared:
        return failed(name, Reason.NO_UPDATE_EXECUTED, expected, "0 changed tensors",
                      f"the saved weights equal the start {seen.weights.start}")
    return unproven(name, Reason.UPDATES_UNPROVEN, expected, "nothing that shows an update", _unseen(seen))


def _counted(seen: Observation, counter: CounterSeen, name: str, expected: str) -> Check:
    """By the trainer's counter, which also counts steps that a loss scaler skipped: the probe sees those."""
    observed = f"{counter.executed} step(s) by the trainer's counter ({counter.resumed_at} to {counter.step})"
    if seen.probe.steps > 0:
        return passed(name, expected, f"{seen.probe.steps} applied step(s) seen by the probe, {observed}")
    if counter.executed == 0:
        return failed(name, Reason.NO_UPDATE_EXECUTED, expected, observed,
                      "the run resumed at its own end, or no step was taken")
    if _probe_would_see(seen) and seen.probe.optimizers:
        return failed(name, Reason.NO_UPDATE_EXECUTED, expected, f"0 applied steps, {observed}",
                      f"{seen.probe.scaler_skips} step(s) were skipped by the loss scaler, and none was applied")
    return passed(name, expected, observed)


def _unseen(seen: Observation) -> str:
    if not seen.probe.asked:
        return "the probe was turned off and no checkpoint could be compared"
    if not seen.probe.loaded:
        return "the probe was not loaded by the trainer's Python, and no checkpoint could be compared"
    if not seen.probe.torch_seen:
        return "the trainer did not use torch, and no checkpoint could be compared"
    return "the probe saw torch and no optimizer of it, and no checkpoint could be compared"


def check_updates_effective(seen: Observation) -> Check:
    """Some executed update had a gradient, a learning rate above 0 and, for rollouts, something to learn from."""
    name, expected = "updates_effective", "an applied step with gradient > 0 and lr > 0"
    updates, probe = seen.updates, seen.probe
    executed = updates.executed if updates.executed is not None else probe.steps
    if executed == 0 and not seen.weights.learnt:
        return _effect_without_count(seen, name, expected)
    if updates.signal_seen and not updates.signal_positive:
        return failed(name, Reason.NO_LEARNING_SIGNAL, "rewards that differ within a group at some update",
                      "never", "every advantage is 0, so no update could teach anything")
    if (updates.lr_seen and not updates.lr_positive) or (probe.steps and not probe.lr_positive_steps):
        return _lr_zero(name, expected, executed)
    if (updates.grad_seen and not updates.grad_positive) or (probe.grads_checked and not probe.grads_nonzero):
        return _gradient_zero(seen, name, expected)
    if updates.effective:
        return passed(name, expected, f"{updates.effective} effective row(s)")
    if probe.grads_nonzero and probe.lr_positive_steps:
        return passed(name, expected, f"{probe.grads_nonzero} of {probe.grads_checked} looked-at gradients are not 0")
    if updates.grad_positive and (updates.lr_positive or probe.lr_positive_steps):
        return passed(name, expected, "gradient and learning rate above 0")
    if updates.grad_positive and updates.executed and not updates.lr_seen:
        return passed(name, expected, "gradient above 0; no learning rate is logged")
    if seen.weights.learnt:
        return passed(name, expected, f"{seen.weights.changed_tensors} tensor(s) changed from {seen.weights.start}")
    return unproven(name, Reason.EFFECT_UNPROVEN, expected, "no gradient, lr or comparable weights",
                    "the updates were executed and nothing shows that they did anything")


def _effect_without_count(seen: Observation, name: str, expected: str) -> Check:
    """No update was counted: the log may still tell of an effect, and updates_executed judges whether to believe it."""
    updates = seen.updates
    if updates.executed == 0 or not (updates.grad_seen or updates.lr_seen):
        return not_applicable(name, "no update was counted; see updates_executed")
    if updates.grad_seen and not updates.grad_positive:
        return failed(name, Reason.NO_EFFECTIVE_UPDATE, expected, "grad_norm 0 at every row", "no gradient at all")
    if updates.lr_seen and not updates.lr_positive:
        return failed(name, Reason.LR_ZERO, expected, "lr 0 at every row", "nothing could change")
    return not_applicable(name, "the log tells of gradient and learning rate; see updates_executed")


def _lr_zero(name: str, expected: str, executed: int) -> Check:
    if executed <= 1:
        return unproven(name, Reason.LR_ZERO_WARMUP, expected, "lr 0 at the only step",
                        "one step inside a warm-up cannot show learning")
    return failed(name, Reason.LR_ZERO, expected, f"lr 0 at all {executed} step(s)", "nothing could change")


def _gradient_zero(seen: Observation, name: str, expected: str) -> Check:
    if seen.weights.learnt:
        return passed(name, expected, f"{seen.weights.changed_tensors} tensor(s) changed from {seen.weights.start}",
                      "gradients were not seen, the weights show their effect")
    where = "grad_norm 0 at every row" if seen.updates.grad_seen and not seen.updates.grad_positive else (
        f"0 of {seen.probe.grads_checked} looked-at gradients differ from 0")
    if seen.updates.grad_positive:
        return unproven(name, Reason.EFFECT_UNPROVEN, expected, where,
                        "the log reports a gradient that the probe did not see")
    return failed(name, Reason.NO_EFFECTIVE_UPDATE, expected, where,
                  "every update had a zero gradient: frozen parameters, a detached loss or masked labels")
