"""Capacity: the smallest real allocation or step fits. It is no evidence of training."""

from __future__ import annotations

import pytest

from harness.fixtures.real_step import RequireCheck
from harness.judge.model import Gate

pytestmark = [pytest.mark.smoke_capacity]


def test_fits(require: RequireCheck, smoke_capacity: Gate) -> None:
    """Every smoke of the command ends well."""
    require(smoke_capacity, "fits")


def test_peak_memory(require: RequireCheck, smoke_capacity: Gate) -> None:
    """How much memory it took is known."""
    require(smoke_capacity, "peak_memory")
