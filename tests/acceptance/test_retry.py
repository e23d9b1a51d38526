"""Retry: the same job as the run before it."""

from __future__ import annotations

import pytest

from harness.fixtures.real_step import RequireCheck
from harness.judge.model import Gate

pytestmark = [pytest.mark.real_step, pytest.mark.retry]


def test_settings(require: RequireCheck, retry: Gate) -> None:
    """Only capacity, or what was approved, is another setting."""
    require(retry, "settings")


def test_identity(require: RequireCheck, retry: Gate) -> None:
    """Code, weights, data, framework and environment are those of the run before."""
    require(retry, "identity")


def test_metrics(require: RequireCheck, retry: Gate) -> None:
    """The losses agree where both runs logged them."""
    require(retry, "metrics")
