"""Save and reload: what the run saved is whole, and loads in a fresh process."""

from __future__ import annotations

import pytest

from harness.fixtures.real_step import RequireCheck
from harness.judge.model import Gate

pytestmark = [pytest.mark.real_step, pytest.mark.save_reload]


def test_saved(require: RequireCheck, save_reload: Gate) -> None:
    """Where saving was asked for, this run saved."""
    require(save_reload, "saved")


def test_complete(require: RequireCheck, save_reload: Gate) -> None:
    """The newest checkpoint is whole, and no save was left half way."""
    require(save_reload, "complete")


def test_delivered(require: RequireCheck, save_reload: Gate) -> None:
    """The last checkpoint is of its own step and lacks no tensor."""
    require(save_reload, "delivered")


def test_finite(require: RequireCheck, save_reload: Gate) -> None:
    """Tensors that only the reload reads are finite."""
    require(save_reload, "finite")


def test_reload(require: RequireCheck, save_reload: Gate) -> None:
    """The delivered checkpoint loads in a fresh process."""
    require(save_reload, "reload")


def test_eval_agrees(require: RequireCheck, save_reload: Gate) -> None:
    """The reloaded model has the evaluation loss that was logged."""
    require(save_reload, "eval_agrees")


def test_resume(require: RequireCheck, save_reload: Gate) -> None:
    """A resumed run goes on as the uninterrupted one (--check-resume)."""
    require(save_reload, "resume")
