"""Command: what was launched and why it may be."""

from __future__ import annotations

import pytest

from harness.fixtures.real_step import RequireCheck
from harness.judge.model import Gate

pytestmark = [pytest.mark.real_step, pytest.mark.training_command]


def test_command(require: RequireCheck, training_command: Gate) -> None:
    """The command was understood and nothing in it forbade the launch."""
    require(training_command, "command")


def test_policy(require: RequireCheck, training_command: Gate) -> None:
    """No waiver of the policy has passed its end."""
    require(training_command, "policy")


def test_framework(require: RequireCheck, training_command: Gate) -> None:
    """It is stated which framework trains and what told it."""
    require(training_command, "framework")


def test_capacity(require: RequireCheck, training_command: Gate) -> None:
    """The sizes that it states can be."""
    require(training_command, "capacity")
