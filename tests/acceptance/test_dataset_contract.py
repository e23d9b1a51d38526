"""Dataset: rows that the algorithm can train on, seen before the launch."""

from __future__ import annotations

import pytest

from harness.fixtures.real_step import RequireCheck
from harness.judge.model import Gate

pytestmark = [pytest.mark.real_step, pytest.mark.dataset_contract]


def test_readable(require: RequireCheck, dataset_contract: Gate) -> None:
    """The dataset was there and was read, by the loader that the job uses."""
    require(dataset_contract, "readable")


def test_rows(require: RequireCheck, dataset_contract: Gate) -> None:
    """No row that was looked at breaks the algorithm's contract."""
    require(dataset_contract, "rows")


def test_kept(require: RequireCheck, dataset_contract: Gate) -> None:
    """At least one row that was looked at is trained on."""
    require(dataset_contract, "kept")
