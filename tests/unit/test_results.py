"""*_results.json of Transformers: read where nothing else holds what they say."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harness.metrics.collector import MetricCollector
from harness.metrics.command import metrics_report
from harness.metrics.model import EventColumns
from harness.metrics.results import ResultsReader, looks_like_results
from harness.metrics.tracked import SourceFact
from harness.record.store import MetricStore
from harness.record.vocabulary import Phase

RECORDED = Path(__file__).parents[1] / "frameworks" / "recorded" / "hf-trainer"
EVAL = {"epoch": 1.0, "eval_loss": 0.4, "eval_runtime": 0.2, "eval_samples": 12}
TRAIN = {"epoch": 1.0, "train_loss": 1.2, "train_runtime": 9.0, "train_samples": 80}
State = list[dict[str, Any]]
SUMMARY = (r"^train_(loss|runtime)",)


def written(place: Path, name: str, content: dict[str, Any]) -> Path:
    """As save_metrics() writes it."""
    place.mkdir(exist_ok=True)
    (place / name).write_text(json.dumps(content, indent=4, sort_keys=True))
    return place / name


def state(place: Path, rows: State, *, step: int = 20, epoch: float = 1.0) -> None:
    """As save_state() writes it."""
    written(place, "trainer_state.json", {"global_step": step, "max_steps": step, "epoch": epoch, "log_history": rows})


def series(place: Path, tag: str) -> list[tuple[int, float]]:
    """(step, value), through `metrics`."""
    found = metrics_report(place, [tag], None)["series"].get(tag, [])
    return [(point["step"], point["value"]) for point in found]


def test_evaluation_after_the_last_state_is_read_at_its_step(tmp_path: Path) -> None:
    """The state lacks the row, and tells the step by its epoch."""
    state(tmp_path, [{"step": 20, "loss": 0.9, "epoch": 1.0}])
    written(tmp_path, "eval_results.json", EVAL)
    assert series(tmp_path, "eval_loss") == [(20, 0.4)]
    assert series(tmp_path, "loss") == [(20, 0.9)]


def test_what_the_state_holds_is_told_once(tmp_path: Path) -> None:
    """Two evaluations in the history, the last of them in the results too."""
    rows = [{"step": 10, "eval_loss": 0.6, "epoch": 0.5}, {"step": 20, "eval_loss": 0.4, "epoch": 1.0}]
    state(tmp_path, rows)
    written(tmp_path, "eval_results.json", EVAL)
    written(tmp_path, "all_results.json", EVAL | TRAIN)
    assert series(tmp_path, "eval_loss") == [(10, 0.6), (20, 0.4)]


def test_all_results_counts_where_it_stands_alone(tmp_path: Path) -> None:
    """Beside the parts it says the same again."""
    alone = written(tmp_path / "a", "all_results.json", EVAL | TRAIN)
    state(tmp_path / "a", [])
    assert looks_like_results(alone) is True
    assert (series(tmp_path / "a", "eval_loss"), series(tmp_path / "a", "train_loss")) == ([(20, 0.4)], [(20, 1.2)])
    beside = written(tmp_path / "b", "all_results.json", EVAL | TRAIN)
    written(tmp_path / "b", "eval_results.json", EVAL)
    assert looks_like_results(beside) is False


def test_step_that_nothing_tells_is_a_problem(tmp_path: Path) -> None:
    """Without a state, and with one of another epoch: the value counts, its step does not."""
    written(tmp_path, "eval_results.json", EVAL)
    for _ in range(2):
        report = metrics_report(tmp_path, ["eval_loss"], None)
        assert report["series"]["eval_loss"][0]["value"] == 0.4
        assert "steps-unknown" in {problem["code"] for problem in report["problems"]}
        state(tmp_path, [{"step": 5, "loss": 1.0}], step=5, epoch=0.25)


def test_recorded_results_of_a_real_run(tmp_path: Path) -> None:
    """With their state beside them the history leads; without it the values are the results'."""
    whole = json.loads((RECORDED / "trainer_state.json").read_text())
    results = json.loads((RECORDED / "eval_results.json").read_text())
    (tmp_path / "eval_results.json").write_bytes((RECORDED / "eval_results.json").read_bytes())
    (value,) = (value for _, value in series(tmp_path, "eval_loss"))
    assert value == results["eval_loss"] == 4.245750904083252
    kept = [row for row in whole["log_history"] if "eval_loss" in row]
    (tmp_path / "trainer_state.json").write_text(json.dumps(whole))
    assert series(tmp_path, "eval_loss") == [(row["step"], row["eval_loss"]) for row in kept]


def collected(
    place: Path, before: dict[str, Any] | None, after: dict[str, Any]
) -> tuple[list[SourceFact], MetricStore]:
    """A run that writes `after` where `before` lay."""
    if before is not None:
        written(place, "eval_results.json", before)
    store = MetricStore.temporary()
    collector = MetricCollector(store, [place], eval_tag_patterns=(r"^eval_",), summary_tag_patterns=SUMMARY)
    collector.inventory()
    time.sleep(0.01)
    written(place, "eval_results.json", after)
    return collector.finish(now=time.time(), launched_at=time.time() - 1), store


@pytest.mark.parametrize("before", [None, {**EVAL, "eval_loss": 0.9}, EVAL])
def test_rewritten_results_are_the_runs_own(tmp_path: Path, before: dict[str, Any] | None) -> None:
    """Written whole, as the state is, also with the very same numbers; its rows are evaluations."""
    facts, store = collected(tmp_path, before, EVAL)
    (fact,) = [fact for fact in facts if fact.kind == "hf_results"]
    assert (fact.points, fact.stale_points) == (len(EVAL), 0)
    assert {tag.tag: tag.phase for tag in store.tags()}["eval_loss"] is Phase.EVAL
    store.close()


def test_results_of_before_the_launch_do_not_count(tmp_path: Path) -> None:
    """Last week's evaluation in the same output directory."""
    written(tmp_path, "eval_results.json", EVAL)
    with MetricStore.temporary() as store:
        collector = MetricCollector(store, [tmp_path])
        collector.inventory()
        collector.finish(now=time.time(), launched_at=time.time())
        assert [tag for tag in store.tags() if tag.fresh_points] == []


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
                    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4))
ODD = [b"", b"{", b"[1]", b"\xff\xfe", b"null", b'{"eval_loss": NaN}', b'{"eval_loss": 1e999, "eval_runtime": 1}',
       b'{"eval_loss": "nan"}', b'{"eval_samples": ' + b"9" * 400 + b"}", b"[" * 5000]


@settings(max_examples=80, deadline=None)
@given(st.one_of(JSON.map(lambda value: json.dumps(value).encode()), st.binary(max_size=60), st.sampled_from(ODD)))
@example(b'{"eval_loss": NaN, "eval_runtime": 1}')
def test_content_of_any_kind_is_no_error(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    """Numbers, or a problem, or nothing."""
    path = tmp_path_factory.mktemp("r") / "eval_results.json"
    path.write_bytes(content)
    looks_like_results(path)
    reader = ResultsReader(path)
    for columns in reader.poll(final=True):
        assert isinstance(columns, EventColumns) and len(columns.tag) == len(columns.value)
    reader.problems(final=True)


def test_nan_in_results_is_a_value(tmp_path: Path) -> None:
    """Python writes it bare."""
    path = written(tmp_path, "eval_results.json", {**EVAL, "eval_loss": math.nan})
    reader = ResultsReader(path)
    columns = next(iter(reader.poll(final=True)))
    assert list(reader.poll(final=True)) == []
    assert isinstance(columns, EventColumns)
    assert math.isnan(dict(zip(columns.tags, columns.value, strict=True))["eval_loss"])
