"""The trainer's own early stopping: recognised by its trace, and by nothing else."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.frameworks.base import FrameworkFacts
from harness.judge.report import build_report
from harness.metrics.trainer_state import State, read_state
from harness.supervise.stop_trace import StopTrace, printed_stop
from tests.unit.run_dirs import RunDir

LIGHTNING = ("Monitored metric val_loss did not improve in the last 3 records. Best score: 0.481. "
             "Signaling Trainer to stop.")
LINES = {
    "lightning": LIGHTNING,
    "lightning-threshold": "Stopping threshold reached: val_acc = 0.99 > 0.95. Signaling Trainer to stop.",
    "keras": "Epoch 7: early stopping",
}
OTHERS = (
    "Monitored metric val_loss = nan is not finite. Previous best value was 0.4. Signaling Trainer to stop.",
    "Divergence threshold reached: val_loss = 12 > 10. Signaling Trainer to stop.",
    "Monitored metric val_loss improved. New best score: 0.4",
    "will use Epoch 7: early stopping soon", "early stopping is enabled", "Epoch 7: early stopping patience=3",
)


@pytest.mark.parametrize("name", LINES)
@given(cuts=st.lists(st.integers(0, 400), max_size=6), noise=st.binary(max_size=200),
       end=st.sampled_from(["\n", "\r\n", ""]))
def test_lines_are_found_however_they_are_cut(name: str, cuts: list[int], noise: bytes, end: str) -> None:
    """In any pieces, behind any bytes."""
    data = noise + b"\n" + (LINES[name] + end).encode()
    trace, places = StopTrace(), sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    for begin, stop in itertools.pairwise(places):
        trace.feed(data[begin:stop])
    trace.end()
    assert trace.found is not None
    assert trace.found["framework"] == name.partition("-")[0]
    assert trace.found["line"] == LINES[name].removesuffix(".")


@pytest.mark.parametrize("line", OTHERS)
def test_other_lines_are_no_trace(line: str) -> None:
    """Nor is a stop for a metric that is not finite, or diverges: that is no healthy end."""
    data = f"step 1\n{line}\n".encode()
    for cut in range(len(data)):
        trace = StopTrace()
        trace.feed(data[:cut])
        trace.feed(data[cut:])
        trace.end()
        assert trace.found is None


def state(tmp_path: Path, callbacks: Any) -> State:
    """A trainer_state.json with these stateful_callbacks."""
    path = tmp_path / "trainer_state.json"
    path.write_text(json.dumps({"global_step": 40, "log_history": [], "stateful_callbacks": callbacks}))
    read = read_state(path)
    assert isinstance(read, State)
    return read


def callback(patience: Any, waited: Any) -> dict[str, Any]:
    """As Transformers writes it."""
    return {"EarlyStoppingCallback": {"args": {"early_stopping_patience": patience, "early_stopping_threshold": 0.0},
                                      "attributes": {"early_stopping_patience_counter": waited}}}


def test_state_tells_what_was_waited(tmp_path: Path) -> None:
    """Of one callback or of several."""
    assert (state(tmp_path, callback(3, 2)).patience, state(tmp_path, callback(3, 2)).waited) == (3, 2)
    several = {"EarlyStoppingCallback": [callback(4, 1)["EarlyStoppingCallback"]]}
    assert state(tmp_path, several).patience == 4


@given(odd=st.recursive(st.none() | st.integers() | st.text(max_size=3), lambda inner: st.lists(inner, max_size=3)
                        | st.dictionaries(st.sampled_from(["args", "attributes", "x"]), inner, max_size=3)))
def test_odd_callbacks_are_none(odd: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whatever stands there."""
    read = state(tmp_path_factory.mktemp("state"), {"EarlyStoppingCallback": odd})
    assert read.patience is None or read.waited is not None
    assert state(tmp_path_factory.mktemp("state"), odd).patience is None


SHORT = RunDir(loss=(3.0, 2.0, 1.0, 0.9), grad_norm=(1.0,) * 4, lr=(0.1,) * 4, probe={
    "steps": 4, "optimizers_created": 1, "lr_positive_steps": 4, "clean_exit": True,
    "grad": {"checked": 3, "nonzero": 3}})


def report_with(tmp_path: Path, run: RunDir, **trace: Any) -> dict[str, Any]:
    """The report of a run whose journal holds this trace."""
    run.write(tmp_path)
    journal = tmp_path / "journal.jsonl"
    entries = [json.loads(line) for line in journal.read_text().splitlines()]
    if trace:
        entries.insert(-1, {"seq": 99, "time": entries[-1]["time"], "event": "trainer-stop", **trace})
    journal.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    report: dict[str, Any] = build_report(tmp_path)
    return report


KERAS = {"framework": "keras", "line": LINES["keras"], "metric": None, "patience": None}


def test_short_run_with_a_trace_is_early_stopped(tmp_path: Path) -> None:
    """4 of 10 steps: EARLY_STOPPED by the trainer, GO; the same run without the trace is short."""
    run = replace(SHORT, facts=replace(SHORT.facts, name="keras"))
    stopped = report_with(tmp_path / "a", run, **KERAS)
    assert (stopped["decision"], stopped["terminal_state"]) == ("GO", "EARLY_STOPPED"), stopped["summary"]
    assert stopped["evidence"]["command"]["stopped_by"] == "trainer"
    assert stopped["early_stopping"] == {
        "enabled": True, "metric": None, "patience": None, "triggered": True, "triggered_at_step": 4}
    short = report_with(tmp_path / "b", run)
    assert (short["decision"], short["terminal_state"]) == ("NO-GO", "SUCCEEDED")
    assert "target-not-reached" in {reason["code"] for reason in short["evidence"]["reasons"]}


@pytest.mark.parametrize(("run", "trace"), [
    (replace(SHORT, facts=replace(SHORT.facts, name="torch")), KERAS),
    (replace(SHORT, facts=replace(SHORT.facts, name="keras"), exit_code=1), KERAS),
    (replace(SHORT, facts=replace(SHORT.facts, name="keras"), exit_code=143, stop_reason="cancelled"), KERAS),
], ids=["another framework", "a crash", "a cancelled run"])
def test_trace_alone_is_not_enough(run: RunDir, trace: dict[str, Any], tmp_path: Path) -> None:
    """It is the framework's own word about a run that ended well by itself."""
    report = report_with(tmp_path, run, **trace)
    assert report["decision"] == "NO-GO"
    assert report["early_stopping"]["triggered"] is False


def test_run_that_reached_its_target_was_not_stopped_early(tmp_path: Path) -> None:
    """The patience may be used up at the very last step."""
    facts = FrameworkFacts(name="keras", reason="r", target_steps=10, target_source="--max-steps")
    run = replace(RunDir(), facts=facts)
    report = report_with(tmp_path, run, **KERAS)
    assert (report["decision"], report["terminal_state"]) == ("GO", "SUCCEEDED")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("step 29\nEarly stopping at step 30: val loss did not improve\n", True),
        ("INFO | Early stopping triggered after 12 epochs\nsaved model\n", True),
        ("early stopping!", True), ("Early stopping.\n", True), ("Stopping early, no improvement\n", True),
        ("Training stopped early (patience 5)\n", True),
        ("EarlyStopping counter: 3 out of 7\n", False), ("early_stopping=True patience=5\n", False),
        ("Early stopping: disabled\n", False), ("early stopping patience 5\n", False), ("", False),
        ("Early stopping triggered\n" + "step\n" * 30, False),
    ],
)
def test_early_stop_in_a_programs_own_words(text: str, found: bool) -> None:
    """A line among the last ones that says that it happened; settings and counters are none."""
    assert (printed_stop(text.encode()) is not None) is found


def test_printed_early_stop_is_neither_go_nor_broken(tmp_path: Path) -> None:
    """Words prove nothing, and a program's own early stopping is no fault; of a reached target it says nothing."""
    printed = {"framework": "printed", "line": "Early stopping at step 4", "metric": None, "patience": None}
    report = report_with(tmp_path / "a", SHORT, **printed)
    assert report["decision"] == "CONDITIONAL" and "early-stop-printed" in report["summary"], report["summary"]
    assert report_with(tmp_path / "b", SHORT)["decision"] == "NO-GO"
    assert report_with(tmp_path / "c", RunDir(), **printed)["decision"] == "GO"
    failed = report_with(tmp_path / "d", replace(SHORT, exit_code=1), **printed)
    assert (failed["decision"], "target-not-reached" in failed["summary"]) == ("NO-GO", True)
