"""A learning rate that comes to 0 long before the end of the run is said, and decides nothing."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.judge.advisories import advisories
from harness.judge.observe import Observation, observe
from harness.judge.rates import idle_steps
from harness.judge.verdict import judge
from harness.record.run_record import open_record
from harness.record.vocabulary import Decision
from tests.unit.run_dirs import RunDir

TITLE = "the learning rate was 0 for the last part of the run"
COSINE = (*[0.05 * (1 + math.cos(math.pi * step / 9)) for step in range(9)], 0.0)
SHORT = (0.1, 0.07, 0.03, *[0.0] * 7)
"""A schedule whose total is 3 steps in a run of 10."""


@pytest.mark.parametrize(
    ("rates", "other", "said"),
    [
        (SHORT, None, True),
        ((0.1, *[0.0] * 9), None, True),
        (SHORT, SHORT, True),
        (SHORT, (0.0,) * 10, True),
        ((0.0, *SHORT[:-1]), None, True),
        (COSINE, None, False),
        ((0.0, 0.05, *COSINE[:8]), None, False),
        ((*COSINE[:7], 0.0, 0.0, 0.0), None, False),
        ((0.1,) * 10, None, False),
        ((0.1, 0.0, 0.0, 0.0, 0.1, 0.0, 0.0, 0.1, 0.0, 0.0), None, False),
        (SHORT, (0.1,) * 10, False),
        ((*[0.1] * 3, *[1e-12] * 7), None, False),
    ],
)
def test_rate_that_rests(
    rates: tuple[float, ...], other: tuple[float, ...] | None, said: bool, tmp_path: Path
) -> None:
    """The end of a schedule, a warm-up, restarts, a group that trains on are healthy; a frozen group tells nothing."""
    extra = {} if other is None else {"train/lr/head": other}
    with open_record(RunDir(lr=rates, extra=extra).write(tmp_path / "out")) as record:
        found = [item for item in advisories(observe(record)) if item["title"] == TITLE]
        assert bool(found) is said
        assert judge(record)[0].decision is Decision.GO
    for item in found:
        assert "T_max" in item["fix"] and "train/lr" in item["description"], item


@pytest.mark.parametrize(
    ("optimizers", "expected"),
    [
        ([(100, 25, 0)], (75, 100)),
        ([(100, 99, 0)], None),
        ([(100, 0, 0)], None),
        ([(100, 0, 100)], None),
        ([(4, 1, 0)], None),
        ([(100, 25, 0), (100, 100, 0)], None),
        ([(100, 25, 0), (0, 0, 0)], (75, 100)),
        ([], None),
    ],
)
def test_steps_at_rate_0_by_the_probe(optimizers: list[tuple[int, int, int]], expected: object) -> None:
    """Where nothing logs the rate; a run whose rate is 0 throughout has a check of its own."""
    rows = [{"steps": steps, "lr_positive_steps": positive, "lr_unknown_steps": unknown}
            for steps, positive, unknown in optimizers]
    facts: dict[str, Any] = {"processes": [{"steps": max((row[0] for row in optimizers), default=0),
                                            "optimizers": rows}]}
    record = SimpleNamespace(fact=lambda event, key, default=None: facts)
    assert idle_steps(cast(Observation, SimpleNamespace(record=record))) == expected
