"""Environment: what the run ran on."""

from __future__ import annotations

import pytest

from harness.fixtures.real_step import RequireCheck
from harness.judge.model import Gate

pytestmark = [pytest.mark.real_step, pytest.mark.env_facts]


def test_environment(require: RequireCheck, env_facts: Gate) -> None:
    """Host, interpreter, packages and accelerators are recorded."""
    require(env_facts, "environment")


def test_gpu(require: RequireCheck, env_facts: Gate) -> None:
    """A required GPU is visible."""
    require(env_facts, "gpu")


def test_commit(require: RequireCheck, env_facts: Gate) -> None:
    """The commit and its diff are recorded."""
    require(env_facts, "commit")


def test_trainer(require: RequireCheck, env_facts: Gate) -> None:
    """The trainer's own check of the machine passes on what the job needs."""
    require(env_facts, "trainer")
