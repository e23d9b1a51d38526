"""What a run prints against what it logs: agreement within the printed digits, and which of the two counts."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.judge.printed import compare_printed, within_precision
from harness.record.events import MetricEvent
from harness.record.meaning import meaning
from harness.record.store import MetricStore


@pytest.mark.parametrize(("printed", "logged", "agrees"), [
    (5.746, 5.7459, True), (5.746, 5.7449, False), (0.1, 0.10004, True), (0.1234, 0.12346, False),
    (1e-4, 9.9996e-05, True), (0.0, 0.6, False), (0.0, 0.0, True),
    (12345.0, 12345.4, True), (-0.001944, -0.00194353, True),
    (math.nan, math.nan, True), (math.nan, 1.0, False), (math.inf, math.inf, True),
])
def test_printed_digits(printed: float, logged: float, agrees: bool) -> None:
    """Four significant digits at most, fewer where the number ends."""
    assert within_precision(printed, logged) is agrees


@pytest.mark.parametrize(("one", "other", "same"), [
    (("", "loss"), ("", "train/loss"), True), (("", "loss"), ("", "Loss/train"), True),
    (("", "val_loss"), ("validation", "epoch_loss"), True), (("", "loss"), ("", "eval/loss"), False),
    (("", "lr"), ("", "train/learning_rate"), True), (("", "grad_norm"), ("", "train/grad_norm"), True),
    (("", "epoch"), ("", "train/epoch"), True), (("", "loss"), ("", "grad_norm"), False),
])
def test_names_of_one_metric(one: tuple[str, str], other: tuple[str, str], same: bool) -> None:
    """Phases and separators aside; an evaluation is another metric."""
    assert (meaning(*one) == meaning(*other)) is same


def observed(store: MetricStore, **facts: Any) -> Any:
    """The part of an observation that is asked."""
    printed = tuple(tag for tag in store.tags() if tag.kind == "stdout")
    given = SimpleNamespace(prints_what_it_logs=True, **facts)
    return cast(Any, SimpleNamespace(record=SimpleNamespace(store=store), facts=given, printed=printed))


@pytest.mark.parametrize(("shift", "contradicts"), [(0, False), (1, False), (400, True)])
def test_logging_every_ten_against_every_one(shift: int, contradicts: bool) -> None:
    """Rows of every tenth step agree with those of each, one step off too; those of another run do not."""
    with MetricStore.temporary() as store:
        file = store.add_source(kind="tensorboard", path="events", run="")
        log = store.add_source(kind="stdout", path="train.log", run="")
        store.append(file, [MetricEvent("train/loss", step, 3 / (step + 1), 1.0) for step in range(500)], observed_at=1)
        rows = [MetricEvent("loss", step, float(f"{3 / (step + shift + 1):.4g}"), 0.0) for step in range(5, 95, 10)]
        store.append(log, rows, observed_at=1.0)
        (one,) = compare_printed(observed(store))
        assert (one.compared, one.contradicts) == (9, contradicts), str(one)
        summary = {tag.tag: (tag.kind, tag.fresh_points, tag.repeats) for tag in store.tags()}
        assert summary == {"loss": ("stdout", 0, ("", "train/loss")), "train/loss": ("tensorboard", 500, None)}


def test_more_printed_points_do_not_win() -> None:
    """Under the same name the file's series counts, whatever the number of printed rows."""
    with MetricStore.temporary() as store:
        log = store.add_source(kind="stdout", path="train.log", run="")
        store.append(log, [MetricEvent("loss", step, 9.0, 0.0) for step in range(50)], observed_at=1.0)
        assert [tag.fresh_points for tag in store.tags()] == [50]
        file = store.add_source(kind="csv", path="metrics.csv", run="")
        store.append(file, [MetricEvent("loss", 3, 1.0, 0.0)], observed_at=2.0)
        assert [(point.step, point.value) for point in store.series("loss")] == [(3, 1.0)]
