"""Series held together point by point, and what a resumed run's first difference points to."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from harness.metrics.compare import compare_series
from harness.metrics.resumption import compare_resumption

SERIES = st.dictionaries(st.integers(0, 50), st.floats(-1e6, 1e6), min_size=1)


@given(SERIES)
def test_series_equals_itself(series: dict[int, float]) -> None:
    """Exactly."""
    found = compare_series(series, dict(series), rtol=0, atol=0)
    assert (found.first, found.exact, found.points) == (None, True, len(series))


@given(SERIES, st.data())
def test_shorter_series_is_not_equal(series: dict[int, float], data: st.DataObject) -> None:
    """A missing step is a difference at that step, whatever the tolerance."""
    gone = data.draw(st.sampled_from(sorted(series)))
    found = compare_series(series, {key: value for key, value in series.items() if key != gone}, rtol=1e9, atol=1e9)
    assert found.first is not None
    assert (found.first.step, found.first.actual, found.exact) == (gone, None, False)


@given(SERIES, st.sampled_from([math.nan, math.inf, -math.inf]), st.data())
def test_what_is_not_finite_equals_nothing(series: dict[int, float], odd: float, data: st.DataObject) -> None:
    """Not even itself."""
    step = data.draw(st.sampled_from(sorted(series)))
    both = {**series, step: odd}
    found = compare_series(both, dict(both), rtol=1e9, atol=1e9)
    assert found.first is not None
    assert (found.first.step, found.exact) == (step, False)


def test_first_difference_has_its_errors() -> None:
    """Absolute and relative, at the first step beyond the tolerance."""
    found = compare_series({1: 1.0, 2: 2.0, 3: 4.0}, {1: 1.0, 2: 2.0001, 3: 5.0}, rtol=1e-3, atol=0)
    assert found.first is not None
    assert (found.first.step, found.first.absolute, found.first.relative) == (3, 1.0, 0.25)
    assert compare_series({1: 1.0}, {1: 1.0, 2: 3.0}, rtol=0, atol=0, whole=False).first is None


RATE = {step: 0.1 * 0.9**step for step in range(1, 21)}
LOSS = {step: 5.0 / step for step in range(1, 21)}


def suspected(loss: dict[int, float], rate: dict[int, float]) -> str:
    """Of a resume at step 10."""
    return compare_resumption({"loss": LOSS, "lr": RATE}, {"loss": loss, "lr": rate}, 10, rtol=1e-6).suspected


def after(series: dict[int, float], **changes: float) -> dict[int, float]:
    """The steps after 10, with changes `s12=...`."""
    return {step: changes.get(f"s{step}", value) for step, value in series.items() if step > 10}


def test_suspect_is_told_by_what_parts_first() -> None:
    """Schedule before loss; a loss at the first step is data or chance, at a later one the optimizer."""
    restarted = {step: RATE[step - 10] for step in range(11, 21)}
    assert suspected(after(LOSS, s12=9.0), restarted) == "scheduler-restarted"
    assert suspected(after(LOSS), after(RATE, s13=1.0)) == "scheduler"
    assert suspected(after(LOSS, s11=9.0), after(RATE)) == "data-order or rng"
    assert suspected(after(LOSS, s12=9.0), after(RATE)) == "optimizer"
    assert suspected(after(LOSS), after(RATE)) == ""


def test_resume_that_ends_early_is_told() -> None:
    """By the last steps of both."""
    found = compare_resumption({"loss": LOSS}, {"loss": {11: LOSS[11]}}, 10, rtol=0)
    assert (found.first, found.last_step, found.expected_last) == (None, 11, 20)
