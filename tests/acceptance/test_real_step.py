"""Real step: the trainer advanced, updated, and what it left behind says so."""

from __future__ import annotations

import pytest

from harness.fixtures.real_step import RequireCheck
from harness.judge.model import Gate

pytestmark = pytest.mark.real_step


def test_exit(require: RequireCheck, real_step: Gate) -> None:
    """The trainer ended by itself with exit code 0, or at the harness's cap."""
    require(real_step, "exit")


def test_target_step(require: RequireCheck, real_step: Gate) -> None:
    """The target step was reached."""
    require(real_step, "target_step")


def test_updates_executed(require: RequireCheck, real_step: Gate) -> None:
    """Optimizer steps were applied in this run."""
    require(real_step, "updates_executed")


def test_updates_effective(require: RequireCheck, real_step: Gate) -> None:
    """Some applied step had a gradient, a learning rate and something to learn from."""
    require(real_step, "updates_effective")


def test_loss_finite(require: RequireCheck, real_step: Gate) -> None:
    """Every loss was finite at every step."""
    require(real_step, "loss_finite")


def test_grad_norm_finite(require: RequireCheck, real_step: Gate) -> None:
    """Gradient norms were finite but for the loss scaler's skips."""
    require(real_step, "grad_norm_finite")


def test_fresh(require: RequireCheck, real_step: Gate) -> None:
    """The metric points were written by this run."""
    require(real_step, "fresh")


def test_sources_agree(require: RequireCheck, real_step: Gate) -> None:
    """Metric series and checkpoints tell the same last step."""
    require(real_step, "sources_agree")


def test_minimum_evidence(require: RequireCheck, real_step: Gate) -> None:
    """There is a loss series and one witness of an update."""
    require(real_step, "minimum_evidence")


def test_early_stopping(require: RequireCheck, real_step: Gate) -> None:
    """The metric of early stopping was logged and got better before it got worse."""
    require(real_step, "early_stopping")


def test_overrides(require: RequireCheck, real_step: Gate) -> None:
    """The trainer used the values that the overrides asked for."""
    require(real_step, "overrides")


def test_weights(require: RequireCheck, real_step: Gate) -> None:
    """Saved weights are finite and differ from the start."""
    require(real_step, "weights")


def test_parameters_finite(require: RequireCheck, real_step: Gate) -> None:
    """The parameters were finite when the trainer ended."""
    require(real_step, "parameters_finite")


def test_topology(require: RequireCheck, real_step: Gate) -> None:
    """Every process that was asked for took part in one training, on the device that was asked for."""
    require(real_step, "topology")


def test_exchange(require: RequireCheck, real_step: Gate) -> None:
    """The ranks of one process group exchanged more than numbers to log while they trained."""
    require(real_step, "exchange")


def test_expectations(require: RequireCheck, real_step: Gate) -> None:
    """What --expect says holds."""
    require(real_step, "expectations")


def test_restarts(require: RequireCheck, real_step: Gate) -> None:
    """Restarts stayed within their budget and left no step out."""
    require(real_step, "restarts")


def test_response_tokens(require: RequireCheck, real_step: Gate) -> None:
    """Some update was computed on response tokens."""
    require(real_step, "response_tokens")


def test_rollouts_kept(require: RequireCheck, real_step: Gate) -> None:
    """Not every sequence was left out."""
    require(real_step, "rollouts_kept")
