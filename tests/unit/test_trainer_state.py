"""trainer_state.json as a metric source and as the trainer's counter, with real states and real rewrites."""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path
from typing import Any

import pytest

from harness.metrics import collector as collector_module
from harness.metrics.collector import MetricCollector, SourceFact
from harness.metrics.trainer_state import History, State, TrainerStateReader, output_directory, read_state
from harness.record.store import MetricStore
from harness.record.vocabulary import Phase

CASES = Path(__file__).parent / "cases"
RECORDED = Path(__file__).parents[1] / "frameworks" / "recorded"
SUMMARY = (r"^(train/)?train_(loss|runtime|samples_per_second|steps_per_second)$",)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every poll looks at directories again."""
    monkeypatch.setattr(collector_module, "_WALK_GAP_S", 0.0)
    monkeypatch.setattr(collector_module, "_WALK_COST_FACTOR", 0)


def rows_to(step: int, *, scale: float = 1.0) -> list[dict[str, Any]]:
    """A loss row for each step."""
    return [
        {"step": s, "epoch": s / 10, "loss": scale * (3.0 - s / 100), "grad_norm": 1.0, "learning_rate": 1e-3}
        for s in range(1, step + 1)
    ]


def write_state(path: Path, step: int, *, planned: int = 20, scale: float = 1.0, summary: bool = False) -> Path:
    """A state as the Trainer writes it."""
    history = rows_to(step, scale=scale)
    if summary:
        history.append({"step": step, "epoch": step / 10, "train_loss": 2.5, "train_runtime": 1.0, "total_flos": 1.0})
    document = {"global_step": step, "max_steps": planned, "epoch": step / 10, "num_train_epochs": 2}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**document, "log_history": history}, indent=2))
    return path


def read_all(path: Path) -> dict[str, dict[int, float]]:
    """{tag: {step: value}}."""
    found: dict[str, dict[int, float]] = {}
    for columns in TrainerStateReader(path).poll(final=True):
        assert hasattr(columns, "events")
        for event in columns.events():
            found.setdefault(event.tag, {})[event.step] = event.value
    return found


class Run:
    """A collector over one output directory."""

    def __init__(self, root: Path, *, resume_from: Path | None = None) -> None:
        self.store = MetricStore.temporary()
        self.collector = MetricCollector(
            self.store, [root], eval_tag_patterns=(r"^eval_",), summary_tag_patterns=SUMMARY, resume_from=resume_from
        )
        self.collector.inventory()
        self.launched_at = time.time()

    def poll(self) -> int:
        """New events."""
        return self.collector.poll(now=time.time(), launched_at=self.launched_at)

    def finish(self) -> list[SourceFact]:
        """All facts."""
        return self.collector.finish(now=time.time(), launched_at=self.launched_at)

    def steps(self, tag: str = "loss") -> list[int]:
        """Steps of a tag's series."""
        return [point.step for point in self.store.series(tag)]


def counters(facts: list[SourceFact]) -> list[tuple[int, int]]:
    """(step, resumed_at) of every source that has a counter."""
    return sorted((fact.counter.step, fact.counter.resumed_at) for fact in facts if fact.counter)


def test_bare_nan_and_infinity_are_values() -> None:
    """The state is no strict JSON; what it says of NaN is a finding, not an error."""
    found = read_all(CASES / "16-trainer-state-bare-nan" / "trainer_state.json")
    assert math.isnan(found["eval_loss"][200]) and math.isinf(found["grad_norm"][150])
    assert min(v for v in found["eval_loss"].values() if math.isfinite(v)) == 0.81


def test_rows_are_of_their_kind(tmp_path: Path) -> None:
    """Six losses, three evaluations, and a summary that is neither."""
    expected = json.loads((CASES / "18-hf-log-history-rows" / "expected.json").read_text())
    run = Run(tmp_path)
    (tmp_path / "trainer_state.json").write_bytes(
        (CASES / "18-hf-log-history-rows" / "trainer_state.json").read_bytes()
    )
    run.finish()
    losses = run.store.series("loss")
    assert (len(losses), losses[-1].value, losses[-1].step) == (
        expected["train_points"], expected["last_train_loss"], expected["last_step"],
    )  # fmt: skip
    assert len(run.store.series("eval_loss")) == expected["eval_points"]
    phases = {tag.tag: tag.phase for tag in run.store.tags()}
    assert (phases["loss"], phases["eval_loss"], phases["train_loss"]) == (Phase.TRAIN, Phase.EVAL, Phase.SUMMARY)
    assert run.store.series("train_steps_per_second")[-1].value == expected["steps_per_second"]


@pytest.mark.parametrize(("name", "step"), [("hf-trainer", 30), ("trl-grpo", 5), ("trl-dpo", 10)])
def test_recorded_states_are_read(name: str, step: int) -> None:
    """States of real runs: their counter, and a loss up to it."""
    state = read_state(RECORDED / name / "trainer_state.json")
    assert isinstance(state, State) and (state.step, state.planned) == (step, step)
    assert max(read_all(RECORDED / name / "trainer_state.json")["loss"]) == step


def test_states_of_one_run_are_one_history(tmp_path: Path) -> None:
    """Each checkpoint repeats the rows before it; every row counts once, whatever is met first."""
    run = Run(tmp_path)
    for step in (5, 10):
        write_state(tmp_path / f"checkpoint-{step}" / "trainer_state.json", step)
    write_state(tmp_path / "trainer_state.json", 12, summary=True)
    facts = run.finish()
    assert run.steps() == list(range(1, 13))
    assert sum(fact.points for fact in facts) == 12 * 4 + 4
    assert counters(facts) == [(5, 0), (10, 0), (12, 0)]
    assert {fact.run for fact in facts} == {""}


def test_states_are_read_as_they_come(tmp_path: Path) -> None:
    """Poll by poll; the series is whole at every moment."""
    run = Run(tmp_path)
    write_state(tmp_path / "checkpoint-5" / "trainer_state.json", 5)
    assert run.poll() == 20 and run.poll() == 0
    write_state(tmp_path / "checkpoint-10" / "trainer_state.json", 10)
    assert run.poll() == 20
    assert run.steps() == list(range(1, 11))


def test_resumed_run_counts_from_its_start(tmp_path: Path) -> None:
    """The rows of the checkpoint that it resumed from are inherited."""
    write_state(tmp_path / "checkpoint-10" / "trainer_state.json", 10)
    run = Run(tmp_path)
    write_state(tmp_path / "checkpoint-20" / "trainer_state.json", 20)
    facts = run.finish()
    assert run.steps() == list(range(11, 21)) and counters(facts) == [(20, 10)]


def test_resume_from_elsewhere_is_known_by_the_flag(tmp_path: Path) -> None:
    """A start checkpoint outside the output directory, as --resume_from_checkpoint names it."""
    write_state(tmp_path / "old" / "checkpoint-10" / "trainer_state.json", 10)
    run = Run(tmp_path / "new", resume_from=tmp_path / "old" / "checkpoint-10")
    write_state(tmp_path / "new" / "checkpoint-12" / "trainer_state.json", 12)
    facts = run.finish()
    assert run.steps() == [11, 12] and counters(facts) == [(12, 10)]


def test_named_start_wins_over_a_later_one(tmp_path: Path) -> None:
    """A later checkpoint that logged nothing since has the same rows; the command says which one it was."""
    write_state(tmp_path / "checkpoint-10" / "trainer_state.json", 10)
    later = write_state(tmp_path / "checkpoint-11" / "trainer_state.json", 10)
    later.write_text(later.read_text().replace('"global_step": 10', '"global_step": 11'))
    run = Run(tmp_path, resume_from=tmp_path / "checkpoint-10")
    write_state(tmp_path / "checkpoint-16" / "trainer_state.json", 16)
    assert counters(run.finish()) == [(16, 10)]


def test_finished_run_that_is_resumed_has_no_row(tmp_path: Path) -> None:
    """0 steps: the state holds the inherited rows and a new summary, and its counter stands still."""
    write_state(tmp_path / "checkpoint-20" / "trainer_state.json", 20)
    run = Run(tmp_path)
    write_state(tmp_path / "trainer_state.json", 20, summary=True)
    facts = run.finish()
    assert run.steps() == [] and counters(facts) == [(20, 20)]
    assert [point.step for point in run.store.series("train_loss")] == [20]


def test_run_that_begins_anew_in_the_same_place_counts(tmp_path: Path) -> None:
    """With the same seed it writes the same bytes again: rewritten, so its own, and not inherited."""
    paths = [tmp_path / f"checkpoint-{step}" / "trainer_state.json" for step in (10, 20)]
    for step, path in zip((10, 20), paths, strict=True):
        write_state(path, step)
        os.utime(path, (time.time() - 60, time.time() - 60))
    run = Run(tmp_path)
    for step, path in zip((10, 20), paths, strict=True):
        write_state(path, step)
    facts = run.finish()
    assert run.steps() == list(range(1, 21)) and counters(facts) == [(10, 0), (20, 0)]


def test_deleted_start_is_still_the_start(tmp_path: Path) -> None:
    """save_total_limit removes the checkpoint that the run resumed from."""
    start = write_state(tmp_path / "checkpoint-10" / "trainer_state.json", 10)
    run = Run(tmp_path)
    write_state(tmp_path / "checkpoint-20" / "trainer_state.json", 20)
    start.unlink()
    assert counters(run.finish()) == [(20, 10)]


def test_untouched_state_counts_nothing(tmp_path: Path) -> None:
    """Last week's state: no point and no counter."""
    write_state(tmp_path / "trainer_state.json", 20)
    run = Run(tmp_path)
    assert run.finish() == [] and run.store.tags() == []


def test_old_state_that_is_copied_in_is_stale(tmp_path: Path) -> None:
    """Copied with its time, it proves nothing."""
    run = Run(tmp_path)
    path = write_state(tmp_path / "trainer_state.json", 20)
    os.utime(path, (time.time() - 86_400, time.time() - 86_400))
    (fact,) = run.finish()
    assert (fact.points, fact.stale_points > 0, fact.counter) == (0, True, None)


def test_half_written_state_is_read_later(tmp_path: Path) -> None:
    """The Trainer writes it in place: what does not parse now may do so at the next look."""
    run = Run(tmp_path)
    path = write_state(tmp_path / "trainer_state.json", 20)
    whole = path.read_text()
    path.write_text(whole[: len(whole) // 2])
    assert run.poll() == 0 and run.collector.sources()[0].problems == ()
    path.write_text(whole)
    assert run.poll() == 80


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"{}", b'{"global_step": 1}', b'{"global_step": true, "log_history": []}', b"\xff"]
)
def test_odd_content_is_a_problem_only_at_the_end(tmp_path: Path, content: bytes) -> None:
    """Nothing raises; the file is named."""
    path = tmp_path / "trainer_state.json"
    path.write_bytes(content)
    reader = TrainerStateReader(path, history=History())
    assert list(reader.poll()) == [] and reader.problems() == []
    assert list(reader.poll(final=True)) == []
    assert [problem.code for problem in reader.problems(final=True)] == ["not-parsable"]


def test_output_directory_is_above_a_checkpoint() -> None:
    """Whose history a state belongs to."""
    assert output_directory(Path("o/checkpoint-3/trainer_state.json")) == Path("o")
    assert output_directory(Path("o/trainer_state.json")) == Path("o")
