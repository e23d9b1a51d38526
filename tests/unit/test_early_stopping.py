"""Early stopping: direction from the name, patience, min_delta, and which tag is the metric."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.watch.early_stopping import (
    Decision,
    Direction,
    EarlyStopping,
    direction_of,
    find_metric,
    is_evaluation,
    same_metric,
)

CASES = Path(__file__).parent / "cases"
DIRECTIONS: dict[str, Any] = json.loads((CASES / "49-es-metric-direction" / "expected.json").read_text())
HISTORY: dict[str, list[float]] = json.loads((CASES / "49-es-metric-direction" / "history.json").read_text())
SERIES: list[dict[str, Any]] = json.loads((CASES / "50-es-patience-and-delta" / "series.json").read_text())
STOPS: dict[str, Any] = json.loads((CASES / "50-es-patience-and-delta" / "expected.json").read_text())
values_st = st.lists(st.one_of(st.floats(-10, 10), st.just(math.nan), st.integers(-3, 3).map(float)), max_size=30)


def run(values: list[float], *, patience: int, mode: Direction = "min", min_delta: float = 0.0) -> EarlyStopping:
    """Evaluations at steps 10, 20, 30, ..."""
    stopping = EarlyStopping("eval_loss", patience, mode, min_delta)
    for index, value in enumerate(values):
        stopping.observe(10 * (index + 1), value)
    return stopping


@pytest.mark.parametrize("metric", DIRECTIONS)
def test_direction_of_case_49(metric: str) -> None:
    """Every name of case 49: its direction and best evaluation; what is unknown is asked for."""
    expected = DIRECTIONS[metric]
    direction = direction_of(metric)
    assert (direction or "ask") == expected["direction"]
    if direction is not None:
        assert run(HISTORY[metric], patience=9, mode=direction).best_index == expected["best_index"]


@pytest.mark.parametrize(
    ("metric", "direction"),
    [
        ("loss", "min"), ("validation/epoch_loss", "min"), ("eval_error_rate", "min"),
        ("val_mean_absolute_error", "min"),
        ("val_loss_epoch", "min"), ("eval/cross_entropy", "min"), ("CER", "min"), ("test_rmse", "min"),
        ("val_acc", "max"), ("sparse_categorical_accuracy", "max"), ("eval_rougeL", "max"), ("rouge1", "max"),
        ("eval_f1_macro", "max"), ("eval_roc_auc", "max"), ("recall@10", "max"), ("val_mAP", "max"), ("mAP@50", "max"),
        ("eval_r2_score", "max"), ("eval_reward", "max"), ("success_rate", "max"), ("eval_bleu-4", "max"),
        ("neg_mean_squared_error", None), ("loss_scale", None), ("grad_norm", None), ("rewards_std", None),
        ("learning_rate", None), ("feature_map", None), ("eval_score", None), ("eval_runtime", None), ("", None),
        ("eval_rewards/chosen", None), ("entropy", None), ("eval_", None),
    ],
)
def test_direction_of_names(metric: str, direction: str | None) -> None:
    """Certain from the last word, else unknown."""
    assert direction_of(metric) == direction


@pytest.mark.parametrize("case", SERIES, ids=lambda case: str(case["name"]))
def test_case_50(case: dict[str, Any]) -> None:
    """Stop and best index of the seven series."""
    stopping = run(case["values"], patience=case["patience"], mode=case["mode"], min_delta=case["min_delta"])
    expected = STOPS[case["name"]]
    stop = stopping.decision.stop_index if stopping.decision else None
    assert (stop, stopping.best_index) == (expected["stop_index"], expected["best_index"])


def test_decision_names_step_and_best() -> None:
    """The decision and its line hold the trainer's own steps."""
    stopping = run([1.0, 0.9, 0.95, 0.8], patience=1)
    assert stopping.decision == Decision(stop_index=2, stop_step=30, best_index=1, best_step=20, best_value=0.9)
    assert stopping.line() == (
        "Early stopping triggered at step 30 — eval_loss did not improve for 1 evals (best: 0.9 at step 20)"
    )


def test_nan_counts_as_no_improvement() -> None:
    """NaN never improves, nor does a -inf loss; where nothing was finite there is no best."""
    assert run([1.0, math.nan, math.nan], patience=2).decision == Decision(
        stop_index=2, stop_step=30, best_index=0, best_step=10, best_value=1.0
    )
    stopping = run([math.nan, -math.inf], patience=2)
    assert stopping.decision == Decision(
        stop_index=1, stop_step=20, best_index=None, best_step=None, best_value=None
    )
    assert "no finite value" in stopping.line()
    assert stopping.decision.never_improved


def test_gain_of_exactly_min_delta_is_none() -> None:
    """0.9 - 0.89 is more than 0.01 in binary and not in the log."""
    assert run([0.9, 0.89, 0.8], patience=1, min_delta=0.01).best_index == 0


def test_never_improved() -> None:
    """The best is the first evaluation."""
    decision = run([1.0, 1.0], patience=1).decision
    assert decision is not None and decision.never_improved


@pytest.mark.parametrize(
    ("patience", "mode", "min_delta"), [(0, "min", 0.0), (1, "min", -0.1), (1, "min", math.nan), (1, "auto", 0.0)]
)
def test_what_cannot_be_meant_is_refused(patience: int, mode: Any, min_delta: float) -> None:
    """Refused before launch, not found out after it."""
    with pytest.raises(ValueError):
        EarlyStopping("loss", patience, mode, min_delta)


@given(values_st, st.integers(1, 5), st.sampled_from([0.0, 0.5]))
def test_modes_mirror(values: list[float], patience: int, min_delta: float) -> None:
    """Maximising is minimising the negative."""
    low = run(values, patience=patience, mode="min", min_delta=min_delta)
    high = run([-value for value in values], patience=patience, mode="max", min_delta=min_delta)
    stops = [one.decision.stop_index if one.decision else None for one in (low, high)]
    assert stops[0] == stops[1] and low.best_index == high.best_index


@given(values_st, st.integers(1, 5))
def test_stop_is_patience_after_the_best(values: list[float], patience: int) -> None:
    """Exactly `patience` evaluations lie between; none of them is better, and the best is the best until then."""
    decision = run(values, patience=patience).decision
    if decision is None:
        return
    best = -1 if decision.best_index is None else decision.best_index
    assert decision.stop_index == best + patience
    seen = [value for value in values[: decision.stop_index + 1] if math.isfinite(value)]
    assert decision.best_value == (min(seen) if seen else None)


@given(values_st, st.integers(1, 5))
def test_more_patience_stops_later(values: list[float], patience: int) -> None:
    """Or not at all."""
    first, second = (run(values, patience=n).decision for n in (patience, patience + 1))
    assert second is None or (first is not None and first.stop_index < second.stop_index)


@given(values_st, values_st, st.integers(1, 3))
def test_decision_is_final(values: list[float], later: list[float], patience: int) -> None:
    """What comes after the decision changes nothing."""
    decision = run(values, patience=patience).decision
    if decision is not None:
        assert run(values + later, patience=patience).decision == decision


@pytest.mark.parametrize(
    ("asked", "tag"),
    [
        ("eval_loss", "eval/loss"), ("eval_loss", "val_loss"), ("val/loss", "validation_loss"), ("loss", "eval_loss"),
        ("loss", "val/loss"), ("accuracy", "accuracy"), ("val_loss", "validation/epoch_loss"),
        ("train/loss", "train/loss"),
        ("eval_rewards/margins", "eval/rewards/margins"), ("val_loss", "test_loss"), ("val_loss", "val_loss_epoch"),
        ("valid_Accuracy", "eval/accuracy"), ("eval_valA_loss", "eval_valA_loss"), ("train/loss", "train_loss"),
    ],
)
def test_same_metric(asked: str, tag: str) -> None:
    """Spellings of one evaluation meet."""
    assert same_metric(asked, tag)


@pytest.mark.parametrize(
    ("asked", "tag"),
    [
        ("eval_loss", "loss"), ("eval_loss", "train/loss"), ("loss", "train_loss"), ("train/loss", "eval/loss"),
        ("eval_loss", "eval_accuracy"), ("eval_loss", "eval_valA_loss"), ("loss", "policy_loss"),
        ("eval_loss", "eval_runtime"),
    ],
)
def test_other_metrics_do_not_meet(asked: str, tag: str) -> None:
    """A training loss is no evaluation's."""
    assert not same_metric(asked, tag)


@pytest.mark.parametrize(
    ("asked", "tags", "found"),
    [
        ("loss", ["loss", "eval_loss"], "eval_loss"), ("loss", ["loss", "lr"], "loss"), ("eval_loss", ["loss"], None),
        ("val_loss", ["test_loss", "val_loss"], "val_loss"), ("test_loss", ["test_loss", "val_loss"], "test_loss"),
        ("eval_loss", ["test_loss", "val_loss"], "val_loss"), ("train_loss", ["eval_loss", "train_loss"], "train_loss"),
        ("loss", ["train/loss", "eval/loss"], "eval/loss"), ("eval_loss", [], None),
    ],
)
def test_find_metric(asked: str, tags: list[str], found: str | None) -> None:
    """As it is written first; for a bare name the evaluation."""
    assert find_metric(asked, tags) == found


def test_is_evaluation() -> None:
    """Told from the name."""
    assert is_evaluation("eval/loss") and is_evaluation("val_loss")
    assert not is_evaluation("train/loss") and not is_evaluation("loss") and not is_evaluation("evaluator")
