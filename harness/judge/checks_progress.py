"""Checks of real_step about the run's course: exit, target step, executed and effective updates."""

from __future__ import annotations

from harness.judge.asserted import exit_as_asserted, is_exit_asserted, is_launch_asserted
from harness.judge.model import Check, failed, not_applicable, passed, unproven
from harness.judge.observe import Observation, goes_on, was_stopped
from harness.judge.reach import is_target_met
from harness.judge.updates_seen import CounterSeen
from harness.judge.weights_seen import UNRELATED
from harness.record.journal import Entry
from harness.record.reasons import Reason

OWN_STOP_CODES = (0, 1, 130, 143)
"""Exit codes of a trainer that the harness asked to end: a handler that saves, one that exits 1, 128+2, 128+15."""
OWN_STOP_SIGNALS = ("SIGTERM", "SIGINT")
"""SIGINT: what Python kills itself with when a handler raised KeyboardInterrupt."""


def check_exit(seen: Observation) -> Check:
    """Exit code 0, or the harness ended the run at its cap and the trainer followed its signal."""
    name, expected = "exit", "exit code 0"
    record = seen.record
    ended = record.last_end()
    if ended is None:
        return _no_end(seen)
    if is_exit_asserted(seen):
        return exit_as_asserted(seen)
    code, signal, stop = ended.get("exit_code"), ended.get("signal"), ended.get("stop_reason")
    observed = f"signal {signal}" if signal else f"exit code {code}"
    if stop == "timeout":
        return failed(name, Reason.RUN_TIMEOUT, expected, observed,
                      f"the run was stopped at --run-timeout {record.spec.run_timeout_s:g} s")
    if stop in ("cancelled", "owner-lost"):
        return failed(name, Reason.CANCELLED, expected, observed, f"stopped before its end: {stop}")
    if was_stopped(seen) == "stop-on":
        return failed(name, Reason.STOPPED_ON_ANOMALY, expected, observed, "an anomaly that --stop-on names ended it")
    if was_stopped(seen) in ("cap", "early-stop"):
        wanted, why = "0, 1, 130, 143, SIGTERM or SIGINT after the harness's stop", f"stopped by the harness: {stop}"
        if code in OWN_STOP_CODES or signal in OWN_STOP_SIGNALS:
            return passed(name, wanted, observed, why)
        return failed(name, Reason.EXIT_CODE, wanted, observed, why)
    if told := _infrastructure(seen, ended):
        return failed(name, Reason.INFRASTRUCTURE_FAILURE, expected, observed, told)
    if signal is not None:
        return failed(name, Reason.KILLED_BY_SIGNAL, expected, observed, "the harness did not send it")
    if code != 0:
        early = float(ended.get("seconds") or 0.0) < record.spec.crash_window_s
        reason = Reason.CRASHED_IN_WINDOW if early else Reason.EXIT_CODE
        return failed(name, reason, expected, observed, _log_error(seen) or f"after {ended.get('seconds', 0):.1f} s")
    error, met = _log_error(seen), is_target_met(seen)
    if error and (met is not True or seen.record.fact("log-end", "is_last")):
        report = failed if met is False else unproven
        return report(name, Reason.EXCEPTION_BEHIND_EXIT_0, "no exception that ends the loop", observed, error)
    return passed(name, expected, observed)


def _infrastructure(seen: Observation, ended: Entry) -> str:
    """What of the infrastructure ended the last launch, as the supervisor found in its log; "" for nothing."""
    decided = seen.record.last("restart-decision")
    if decided is None or decided.get("attempt") != ended.get("attempt"):
        return ""
    why_not = f"; not restarted: {decided['why_not']}" if decided.get("why_not") else ""
    return f"{decided.get('cause')}: {decided.get('line')}{why_not}"


def check_early_stopping(seen: Observation) -> Check:
    """The metric that early stopping watches was logged, and got better before it got worse."""
    name, metric = "early_stopping", seen.record.spec.early_stop_metric
    if metric is None:
        return not_applicable(name, "no early stopping was asked for")
    facts = seen.record.last("early-stopping") or {}
    expected = f"evaluations of {metric}"
    if not facts.get("evaluations"):
        return failed(name, Reason.EARLY_STOP_METRIC_MISSING, expected, "none", "the metric was never logged")
    best = f"best {facts.get('best_value')} at step {facts.get('best_step')}"
    observed = f"{facts['evaluations']} of {facts.get('tag')}, {best}"
    if facts.get("never_improved"):
        return unproven(name, Reason.NEVER_IMPROVED, expected, observed, "no evaluation was better than the first")
    return passed(name, expected, observed)


def _no_end(seen: Observation) -> Check:
    record = seen.record
    if record.last("launch-failed"):
        return failed("exit", Reason.LAUNCH_FAILED, "a started process", "none",
                      str(record.fact("launch-failed", "message")))
    if record.last("reaped"):
        return failed("exit", Reason.SUPERVISOR_LOST, "exit code 0", "unknown",
                      "the supervisor was killed; the reaper stopped the trainer")
    if record.last("attempt-started") is None and record.last("stop-requested"):
        return failed("exit", Reason.CANCELLED, "a launched run", "none",
                      f"stopped before its launch: {record.fact('stop-requested', 'reason')}")
    if record.last("attempt-started") is None and record.spec.smoke and record.last("smoke"):
        return failed("exit", Reason.CAPACITY_EVIDENCE_ONLY, "a launched run", "none",
                      "only a smoke ran: capacity evidence only")
    if record.last("attempt-started") is None:
        return failed("exit", Reason.NO_REAL_RUN, "a launched run", "none", "nothing was launched")
    if goes_on(seen):
        return unproven("exit", Reason.RUN_GOES_ON, "exit code 0", "it goes on", "the watch ended before the run")
    return unproven("exit", Reason.RUN_UNFINISHED, "exit code 0", "unknown", "the journal has no end of the run")


def _log_error(seen: Observation) -> str:
    return str(seen.record.fact("log-end", "exception", "") or "")


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
    if seen.weights.compared and seen.weights.change != UNRELATED:
        return failed(name, Reason.NO_UPDATE_EXECUTED, expected, "0 changed tensors",
                      f"the saved weights equal the start {seen.weights.start}")
    if seen.told is not None and not seen.told.executed:
        return failed(name, Reason.NO_UPDATE_EXECUTED, expected, seen.told.text,
                      "its log tells of the whole loop and of no update: empty batches, a warm-up, or skipped steps")
    observed = seen.told.text if seen.told is not None else "nothing that shows an update"
    return unproven(name, Reason.UPDATES_UNPROVEN, expected, observed, _unseen(seen))


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
    if seen.record.last("attempt-started") and not seen.record.last("run-finished"):
        return "the supervisor was gone before it could collect what the probe and the checkpoints tell"
    if is_launch_asserted(seen):
        return "nobody counted applied steps while it ran, and no checkpoint could be compared (--checkpoint-dir)"
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
    if (updates.lr_seen and not updates.lr_positive and not probe.lr_positive_steps) or (
        probe.steps and not probe.lr_positive_steps
    ):
        return _lr_zero(name, expected, executed)
    if (updates.grad_seen and not updates.grad_positive and not probe.grads_nonzero) or (
        probe.grads_checked and not probe.grads_nonzero
    ):
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
