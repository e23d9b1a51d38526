"""Sample coherence: what the policy writes at the last update, and why it was rewarded."""

from __future__ import annotations

import pytest

from harness.fixtures.real_step import RequireCheck
from harness.judge.model import Gate

pytestmark = [pytest.mark.real_step, pytest.mark.sample_coherence]


def test_sample_recorded(require: RequireCheck, sample_coherence: Gate) -> None:
    """A sample of the last update was recorded."""
    require(sample_coherence, "sample_recorded")


def test_sample_text(require: RequireCheck, sample_coherence: Gate) -> None:
    """It is a text: not empty, not byte soup, no loop."""
    require(sample_coherence, "sample_text")


def test_sample_ends(require: RequireCheck, sample_coherence: Gate) -> None:
    """Completions end before their cap."""
    require(sample_coherence, "sample_ends")


def test_sample_reward(require: RequireCheck, sample_coherence: Gate) -> None:
    """Its reward is explained."""
    require(sample_coherence, "sample_reward")


def test_transcript(require: RequireCheck, sample_coherence: Gate) -> None:
    """An agent's transcript is in order."""
    require(sample_coherence, "transcript")
