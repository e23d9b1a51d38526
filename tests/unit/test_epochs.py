"""Epochs of programs of which nothing else is known: how many were begun and ended, by the rows that they log."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.frameworks.base import FrameworkFacts
from harness.judge.epochs import EpochRows, read_epochs
from harness.judge.report import build_report
from harness.judge.summary import render_summary
from tests.unit.run_dirs import RunDir

EPOCHS = FrameworkFacts(
    name="torch", reason="", target_epochs=5, target_epochs_source="the default of --epochs in t.py"
)


@given(
    epochs=st.integers(2, 9), each=st.integers(1, 12), base=st.integers(0, 1), per_epoch=st.integers(1, 12),
    step_base=st.integers(0, 1), lost=st.integers(0, 3),
)  # fmt: skip
def test_last_epoch_counts_once_it_is_as_long_as_the_others(
    epochs: int, each: int, base: int, per_epoch: int, step_base: int, lost: int
) -> None:
    """Rows at any cadence that divides an epoch, numbers from 0 or 1; without its last rows it was only begun."""
    cadence = max(1, each // per_epoch)
    steps = list(range(cadence, epochs * each + 1, cadence)) if each % cadence == 0 else []
    rows = [(step - 1 + step_base, float((step - 1) // each + base)) for step in steps]
    kept = rows[: len(rows) - lost]
    if not rows or len({value for _, value in kept}) < 2:
        return
    found = read_epochs(iter(kept), cadence)
    whole = len(kept) * cadence // each
    entered = -(-len(kept) * cadence // each)
    assert found is not None and (found.entered, found.completed) == (entered, whole)


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([], None),
        ([(1, 5.0), (2, 6.0)], None),
        ([(1, 0.0), (2, 2.0)], None),
        ([(1, float("nan"))], None),
        ([(1, 0.5), (2, 1.0), (3, 1.5)], EpochRows(entered=2, completed=1.5, shares=True)),
        ([(0, 0.0), (10, 1.0), (20, 2.0)], EpochRows(entered=3, completed=2)),
        ([(10, 0.0)], EpochRows(entered=1, completed=0)),
        ([(3, 0.0), (10, 1.0), (15, 2.0)], EpochRows(entered=3, completed=2)),
        ([(10, 0.0), (20, 1.0), (30, 2.0)], EpochRows(entered=3, completed=3, steps_each=10)),
        ([(0, 0.0), (1, 1.0), (2, 2.0)], EpochRows(entered=3, completed=3, steps_each=1)),
    ],
)
def test_epoch_series(points: list[tuple[int, float]], expected: EpochRows | None) -> None:
    """Resumed or jumping numbers tell nothing; a row that begins an epoch does not end it."""
    cadence = points[1][0] - points[0][0] if len(points) > 1 else 1
    assert read_epochs(points, cadence) == expected


def report(tmp_path: Path, **changes: Any) -> dict[str, Any]:
    """Of ten steps in five epochs of two, as far as not changed."""
    run = replace(RunDir(), **{"facts": EPOCHS, "extra": {"epoch": (0, 0, 1, 1, 2, 2, 3, 3, 4, 4)}, **changes})
    return build_report(run.write(tmp_path / "out"))


def target_step(document: dict[str, Any]) -> dict[str, Any]:
    """The check."""
    gates = {gate["name"]: gate for gate in document["evidence"]["gates"]}
    found: dict[str, Any] = next(check for check in gates["real_step"]["checks"] if check["name"] == "target_step")
    return found


def test_default_number_of_epochs_is_the_target(tmp_path: Path) -> None:
    """A plain script without any limit on its command line, to GO."""
    document = report(tmp_path)
    assert (document["decision"], document["total_epochs"]) == ("GO", 5), document["summary"]
    assert "Epochs completed: 5/5\n" in render_summary(document, tmp_path)
    assert "5 epochs (the default of --epochs in t.py)" in target_step(document)["expected"]


def test_epochs_cut_short_are_no_go(tmp_path: Path) -> None:
    """Two epochs fewer; nothing that is healthy ends so."""
    document = report(tmp_path, facts=replace(EPOCHS, target_epochs=7))
    assert (document["decision"], target_step(document)["status"]) == ("NO-GO", "failed")


def test_last_epoch_without_its_end_is_unproven(tmp_path: Path) -> None:
    """The fifth epoch was begun: not broken, and not proven."""
    document = report(tmp_path, extra={"epoch": (0, 0, 0, 1, 1, 1, 2, 2, 2, 3)}, facts=replace(EPOCHS, target_epochs=4))
    assert (document["decision"], target_step(document)["status"]) == ("CONDITIONAL", "unproven")


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        (replace(EPOCHS, target_steps=50, target_source="max_steps in c.yaml"), "5 epochs (the default of --epochs in"),
        (FrameworkFacts(name="torch", reason="", target_steps=50, target_source="max_steps in c.yaml"),
         "it ended with epoch 5, each of 2 steps: a limit on epochs ended it"),
    ],
)  # fmt: skip
def test_limit_on_epochs_that_ended_the_run_is_named(tmp_path: Path, facts: FrameworkFacts, why: str) -> None:
    """Fifty steps were asked for, five epochs of two steps came."""
    document = report(tmp_path, facts=facts)
    check = target_step(document)
    assert (document["decision"], check["status"]) == ("NO-GO", "failed") and why in check["why"], check


QUARTERS = tuple(0.25 * number for number in range(1, 11))


@pytest.mark.parametrize(
    ("changes", "planned"),
    [
        ({"facts": replace(EPOCHS, target_steps=10)}, 5),
        ({"facts": replace(EPOCHS, target_steps=20)}, 10),
        ({"facts": replace(EPOCHS, target_steps=20), "extra": {"train/epoch": QUARTERS}}, 5),
        ({"facts": replace(EPOCHS, target_steps=10), "extra": {}}, None),
        ({"spec": {"max_epochs": 3}}, 3),
    ],
)  # fmt: skip
def test_planned_epochs(tmp_path: Path, changes: dict[str, Any], planned: float | None) -> None:
    """What the limit on steps comes to, by the length of an epoch; a limit on epochs as it is."""
    assert report(tmp_path, **changes)["evidence"]["requested"]["target_epochs"] == planned
