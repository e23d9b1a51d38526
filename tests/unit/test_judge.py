"""Judging: no verdict is GO without positive evidence, whatever lies in the out-dir."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import RecordError
from harness.frameworks.base import FrameworkFacts
from harness.judge.gates import GateSpec, gate_status, judge_gates
from harness.judge.model import not_applicable
from harness.judge.report import build_report
from harness.judge.verdict import judge
from harness.record.journal import read_journal
from harness.record.run_record import open_record
from harness.record.vocabulary import Decision, GateStatus, TerminalState
from tests.unit.run_dirs import RunDir

PLAIN = RunDir()


def report_of(run: RunDir, place: Path) -> dict[str, Any]:
    """The report on a made run."""
    return build_report(run.write(place))


def codes(report: dict[str, Any]) -> set[str]:
    """Its reason codes."""
    return {reason["code"] for reason in report["evidence"]["reasons"]}


def test_healthy_run_is_go_with_high_confidence(tmp_path: Path) -> None:
    """Metrics and probe are two independent witnesses."""
    report = report_of(PLAIN, tmp_path)
    assert (report["decision"], report["confidence"]) == ("GO", "high")
    assert report["evidence"]["observed"]["updates_executed"] == 10


BROKEN: dict[str, tuple[RunDir, str]] = {
    "exit code": (replace(PLAIN, exit_code=3), "exit-code"),
    "signal": (replace(PLAIN, exit_code=None, signal="SIGKILL"), "killed-by-signal"),
    "timeout": (replace(PLAIN, exit_code=143, stop_reason="timeout", spec={"run_timeout_s": 20.0}), "run-timeout"),
    "cancelled": (replace(PLAIN, exit_code=143, stop_reason="cancelled"), "cancelled"),
    "unfinished": (replace(PLAIN, ended=False), "run-unfinished"),
    "short": (replace(PLAIN, loss=PLAIN.loss[:9], grad_norm=(1.0,) * 9, lr=(0.1,) * 9,
                      probe={**(PLAIN.probe or {}), "steps": 9}), "target-not-reached"),
    "no target": (replace(PLAIN, facts=replace(PLAIN.facts, target_steps=None)), "target-unknown"),
    "no step": (replace(PLAIN, probe={**(PLAIN.probe or {}), "steps": 0}), "no-update-executed"),
    "no witness": (replace(PLAIN, probe=None), "updates-unproven"),
    "nan": (replace(PLAIN, loss=(*PLAIN.loss[:5], math.nan, *PLAIN.loss[6:])), "loss-not-finite"),
    "inf": (replace(PLAIN, loss=(*PLAIN.loss[:5], math.inf, *PLAIN.loss[6:])), "loss-not-finite"),
    "nan gradient": (replace(PLAIN, grad_norm=(1.0, math.nan, *((1.0,) * 8))), "grad-norm-not-finite"),
    "last gradient": (replace(PLAIN, grad_norm=(*((1.0,) * 9), math.inf),
                              probe={**(PLAIN.probe or {}), "scaler_skips": 1}), "grad-norm-not-finite"),
    "lr 0": (replace(PLAIN, lr=(0.0,) * 10, probe={**(PLAIN.probe or {}), "lr_positive_steps": 0}), "lr-zero"),
    "no gradient": (replace(PLAIN, grad_norm=(0.0,) * 10, probe={
        **(PLAIN.probe or {}), "grad": {"checked": 4, "nonzero": 0}}), "no-effective-update"),
    "one step in a hundred": (replace(PLAIN, probe={**(PLAIN.probe or {}), "steps": 1}), "target-unproven"),
    "steps that failed": (replace(PLAIN, steps=tuple(range(4, 44, 4)), facts=replace(PLAIN.facts, target_steps=40)),
                          "target-unproven"),
    "nan gradient seen by the probe": (replace(PLAIN, grad_norm=(), probe={
        **(PLAIN.probe or {}), "grad": {"checked": 4, "nonzero": 4, "nonfinite": 1}}), "grad-norm-not-finite"),
    "another's steps": (replace(PLAIN, first_step=5001, probe={**(PLAIN.probe or {}), "steps": 7}),
                        "target-unproven"),
    "closing row": (replace(PLAIN, steps=(1, 2, 3, 4, 5, 6, 7, 100), loss=PLAIN.loss[:8], grad_norm=(1.0,) * 8,
                            lr=(0.1,) * 8, facts=replace(PLAIN.facts, target_steps=100),
                            probe={**(PLAIN.probe or {}), "steps": 7}), "target-not-reached"),
    "no metrics": (replace(PLAIN, loss=(), grad_norm=(), lr=()), "no-metric-points"),
    "no loss": (replace(PLAIN, loss=()), "no-recognised-metrics"),
    "saving asked": (replace(PLAIN, facts=replace(PLAIN.facts, checkpoint_asked=True)), "checkpoint-missing"),
    "masked nan": (replace(PLAIN, facts=replace(PLAIN.facts, masks_nonfinite=True), grad_norm=()),
                   "finiteness-unproven"),
    "no signal": (replace(PLAIN, facts=replace(PLAIN.facts, signal_tags=("train/grad_norm",), signal_floor=2.0)),
                  "no-learning-signal"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_or_unproven_run_has_its_own_reason(name: str, tmp_path: Path) -> None:
    """One thing wrong: never GO, and the reason says which thing."""
    run, reason = BROKEN[name]
    report = report_of(run, tmp_path)
    assert report["decision"] != "GO"
    assert reason in codes(report)


HEALTHY: dict[str, RunDir] = {
    "dense, then every 100": replace(
        PLAIN, steps=(*range(10), 100, 200), loss=(1.0,) * 12, grad_norm=(1.0,) * 12, lr=(0.1,) * 12,
        facts=replace(PLAIN.facts, target_steps=250), probe={**(PLAIN.probe or {}), "steps": 250}),
    "powers of two": replace(
        PLAIN, steps=(1, 2, 4, 8, 16, 32), loss=(1.0,) * 6, grad_norm=(1.0,) * 6, lr=(0.1,) * 6,
        facts=replace(PLAIN.facts, target_steps=60), probe={**(PLAIN.probe or {}), "steps": 60}),
    "metric steps are epochs": replace(
        PLAIN, facts=replace(PLAIN.facts, target_steps=500), probe={**(PLAIN.probe or {}), "steps": 500}),
    "micro-steps logged": replace(PLAIN, steps=tuple(range(4, 44, 4)), facts=replace(PLAIN.facts, target_steps=40),
                                  argv=("python", "train.py", "--grad-accum", "4")),
    "lr rounded to 0 in the log": replace(PLAIN, lr=(0.0,) * 10),
    "norm taken after zero_grad": replace(PLAIN, grad_norm=(0.0,) * 10),
    "two optimizers, the series counts the slower": replace(PLAIN, first_step=0, probe={
        **(PLAIN.probe or {}), "steps": 50, "optimizers": [{"steps": 10}, {"steps": 50}]}),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_run_with_odd_logging_is_go(name: str, tmp_path: Path) -> None:
    """Irregular intervals, other units, rounded values: the probe's count decides."""
    report = report_of(HEALTHY[name], tmp_path)
    assert (report["decision"], codes(report)) == ("GO", set())


def test_own_earliest_checkpoint_is_no_start(tmp_path: Path) -> None:
    """Two equal checkpoints of the run itself prove nothing against it, and nothing for it."""
    run = replace(PLAIN, checkpoints={
        "checkpoints": [{"path": "b", "step": 10, "status": "whole"}], "last_step": 10,
        "change": {"start": "a", "start_kind": "own-earliest", "end": "b", "kind": "none", "comparison": {}}})
    report = report_of(run, tmp_path)
    assert (report["decision"], codes(report)) == ("CONDITIONAL", {"weights-not-compared"})


ARCHIVE = {"path": "a.pt", "step": 10, "status": "not-inspected"}
LOADED = {"path": "a.pt", "step": 10, "adapter": "torch", "status": "ok", "tensors": 2, "values_read": True}


@pytest.mark.parametrize(("loaded", "decision", "reasons"), [
    ({}, "CONDITIONAL", {"weights-not-compared"}),
    ({"marks": ""}, "CONDITIONAL", {"weights-not-compared"}),
    ({"marks": "moved"}, "GO", set()),
    ({"marks": "held"}, "NO-GO", {"weights-unchanged"}),
    ({"marks": "unlike"}, "CONDITIONAL", {"weights-unrelated"}),
    ({"marks": "unlike", "path": "out/critic.pt", "comparison": {
        "kind": "changed", "start_kind": "own-step-0", "changed": 2}}, "GO", set()),
    ({"marks": "stale", "marks_at": 1}, "CONDITIONAL", {"weights-outdated"}),
    ({"marks": "stale", "marks_at": 1, "step": None, "path": "best.pt"}, "GO", set()),
    ({"comparison": {"kind": "unrelated", "start_kind": "own-step-0", "changed": 2}}, "CONDITIONAL",
     {"weights-unrelated"}),
    ({"comparison": {"kind": "unrelated", "start_kind": "start-weights", "changed": 2}, "marks": "moved"}, "GO", set()),
    ({"comparison": {"kind": "changed", "start_kind": "own-step-0", "changed": 2}, "marks": "unlike"}, "CONDITIONAL",
     {"weights-unrelated"}),
    ({"comparison": {"kind": "changed", "start_kind": "own-step-0", "changed": 2}}, "GO", set()),
    ({"comparison": {"kind": "changed", "start_kind": "own-earliest", "changed": 2}}, "GO", set()),
    ({"comparison": {"kind": "none", "start_kind": "own-earliest"}}, "CONDITIONAL", {"weights-not-compared"}),
    ({"comparison": {"kind": "none", "start_kind": "start-weights"}}, "NO-GO", {"weights-unchanged"}),
    ({"comparison": {"kind": "none", "start_kind": "start-weights"}, "marks": "moved"}, "NO-GO", {"weights-unchanged"}),
    ({"comparison": {"kind": "decay-only", "start_kind": "own-step-0", "changed": 2}}, "NO-GO",
     {"no-effective-update"}),
    ({"status": "refused", "error": "a class"}, "CONDITIONAL", {"reload-refused"}),
])
def test_archive_is_compared_by_its_loader(
    loaded: dict[str, Any], decision: str, reasons: set[str], tmp_path: Path
) -> None:
    """Against a start, else by the probe's marks; with neither it is unproven, and unread it is the reload's to say."""
    run = replace(PLAIN, checkpoints={"checkpoints": [ARCHIVE], "last_step": 10, "latest": "a.pt"},
                  reload=({**LOADED, **loaded},))
    report = report_of(run, tmp_path)
    assert (report["decision"], codes(report)) == (decision, reasons), report["summary"]


@pytest.mark.parametrize(("more", "decision", "reasons"), [
    ({}, "CONDITIONAL", {"weights-not-compared"}), ({"moved": ["b"]}, "GO", set()),
    ({"holds_start": ["b"]}, "NO-GO", {"weights-unchanged"}),
    ({"marks": [{"path": "b", "word": "moved", "at": 7}]}, "GO", set()),
    ({"marks": [{"path": "b", "word": "held"}]}, "NO-GO", {"weights-unchanged"}),
    ({"marks": [{"path": "b", "word": "moved"}, {"path": "final", "word": "unlike"}]}, "CONDITIONAL",
     {"weights-unrelated"}),
    ({"marks": [{"path": "b", "word": "moved"}, {"path": "teacher.pt", "word": "unlike"}]}, "GO", set()),
    ({"marks": [{"path": "b", "word": "stale", "at": 1}]}, "CONDITIONAL", {"weights-outdated"})])
def test_lone_checkpoint_needs_a_start_or_marks(
    more: dict[str, Any], decision: str, reasons: set[str], tmp_path: Path
) -> None:
    """A whole and finite one alone is no evidence that anything was learnt."""
    run = replace(PLAIN, checkpoints={
        "checkpoints": [{"path": "b", "step": 10, "status": "whole"}], "last_step": 10, "latest": "b", **more},
        reload=({**LOADED, "path": "b"},))
    report = report_of(run, tmp_path)
    assert (report["decision"], codes(report)) == (decision, reasons), report["summary"]


@pytest.mark.parametrize(("held", "decision", "reasons"), [
    ("out/reference.pt", "GO", set()), ("out/before.pt", "GO", set()), ("out/untrained.safetensors", "GO", set()),
    ("out/ref/model.safetensors", "GO", set()), ("out/target_net.pt", "GO", set()),
    ("out/best.pt", "NO-GO", {"weights-unchanged"}), ("out/model.pt", "NO-GO", {"weights-unchanged"}),
    ("out/step_10", "NO-GO", {"weights-unchanged"}), ("out/final.ckpt", "NO-GO", {"weights-unchanged"}),
    ("out/other.pt", "CONDITIONAL", {"start-beside-trained"})])
def test_start_beside_a_trained_checkpoint_is_judged_by_its_name(
    held: str, decision: str, reasons: set[str], tmp_path: Path
) -> None:
    """A reference is meant to be kept, the best one is not; alone, each is the untrained model."""
    for name, more, expected in (("both", {"moved": ["out/policy.pt"]}, (decision, reasons)),
                                 ("alone", {}, ("NO-GO", {"weights-unchanged"}))):
        run = replace(PLAIN, checkpoints={
            "checkpoints": [{"path": "b", "step": 10, "status": "whole"}], "last_step": 10, "latest": "b",
            "holds_start": [held], **more}, reload=({**LOADED, "path": "b"},))
        report = report_of(run, tmp_path / name)
        assert (report["decision"], codes(report)) == expected, report["summary"]


def test_survived_exception_of_a_reached_target_is_go(tmp_path: Path) -> None:
    """A traceback in the log fails a run that fell short, not one that came to its target."""
    assert report_of(replace(PLAIN, exception="ConnectionError: reset"), tmp_path / "a")["decision"] == "GO"
    cut = replace(PLAIN, loss=PLAIN.loss[:5], grad_norm=(1.0,) * 5, lr=(0.1,) * 5, exception="RuntimeError: x",
                  probe={**(PLAIN.probe or {}), "steps": 5})
    assert {"exception-behind-exit-0", "target-not-reached"} <= codes(report_of(cut, tmp_path / "b"))


def test_exception_that_ends_the_log_behind_exit_0_is_unproven(tmp_path: Path) -> None:
    """A pipe or a handler has the exit code: what failed after the last step is not known."""
    report = report_of(replace(PLAIN, exception="OSError: x", exception_is_last=True), tmp_path)
    assert (report["decision"], codes(report)) == ("CONDITIONAL", {"exception-behind-exit-0"})


def test_warm_up_alone_is_unproven(tmp_path: Path) -> None:
    """One step at lr 0 is a warm-up, not a fault."""
    run = replace(PLAIN, loss=(1.0,), grad_norm=(1.0,), lr=(0.0,), facts=replace(PLAIN.facts, target_steps=1),
                  probe={**(PLAIN.probe or {}), "steps": 1, "lr_positive_steps": 0})
    report = report_of(run, tmp_path)
    assert (report["decision"], codes(report)) == ("CONDITIONAL", {"lr-zero-warmup"})


@pytest.mark.parametrize(("steps", "decision"), [(10, "GO"), (9, "NO-GO"), (0, "NO-GO")])
def test_series_from_step_0_needs_a_count(steps: int, decision: str, tmp_path: Path) -> None:
    """Points 0 to 9 are 10 updates only if 10 were applied."""
    run = replace(PLAIN, first_step=0, probe={**(PLAIN.probe or {}), "steps": steps})
    assert report_of(run, tmp_path)["decision"] == decision


def test_series_from_step_0_without_a_count_is_unproven(tmp_path: Path) -> None:
    """Weights show updates, not how many."""
    change = {"start": "a", "end": "b", "kind": "changed", "comparison": {"changed": 3}}
    run = replace(PLAIN, first_step=0, probe=None, checkpoints={
        "checkpoints": [{"path": "b", "step": None, "status": "whole"}], "last_step": None, "change": change})
    report = report_of(run, tmp_path)
    assert (report["decision"], codes(report)) == ("CONDITIONAL", {"target-unproven"})


@pytest.mark.parametrize(("change", "reason"), [("none", "weights-unchanged"), ("cast-only", "weights-unchanged"),
                                                ("decay-only", "no-effective-update")])
def test_weights_that_did_not_learn_are_no_go(change: str, reason: str, tmp_path: Path) -> None:
    """Equal, merely cast or merely decayed weights contradict every log."""
    run = replace(PLAIN, checkpoints={
        "checkpoints": [{"path": "b", "step": 10, "status": "whole"}], "last_step": 10,
        "change": {"start": "a", "start_kind": "own-step-0", "end": "b", "kind": change,
                   "comparison": {"changed": 0}}})
    report = report_of(run, tmp_path)
    assert (report["decision"], codes(report)) == ("NO-GO", {reason})


def test_nan_is_never_infrastructure(tmp_path: Path) -> None:
    """A cancelled run that had gone NaN is broken: a retry would be pointless."""
    run = replace(PLAIN, exit_code=143, stop_reason="cancelled", loss=(math.nan,) * 10)
    assert report_of(run, tmp_path)["evidence"]["outcome"] == "broken"
    cut = replace(PLAIN, exit_code=143, stop_reason="cancelled", loss=PLAIN.loss[:5])
    assert report_of(cut, tmp_path / "cut")["evidence"]["outcome"] == "infrastructure"


def test_gate_without_a_passed_check_is_not_pass() -> None:
    """Nothing but not-applicable checks proves nothing."""
    assert gate_status([]) is GateStatus.PENDING
    assert gate_status([not_applicable("a", "b")]) is GateStatus.PENDING


def test_run_without_real_step_gate_is_no_go(tmp_path: Path) -> None:
    """A session that judged no real run is not completion."""
    with open_record(PLAIN.write(tmp_path)) as record:
        empty = GateSpec(name="env_facts", checks=(), events=("run-started", "environment"))
        verdict, seen = judge(record, gates=[empty])
        assert verdict.decision is Decision.NO_GO
        assert judge_gates(seen, gates=()) == ()


@pytest.mark.parametrize("name", ["run-spec.json", "journal.jsonl"])
def test_missing_artifact_is_a_clear_error(name: str, tmp_path: Path) -> None:
    """No traceback: RecordError that names the file."""
    PLAIN.write(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(RecordError, match=name):
        build_report(tmp_path)


@pytest.mark.parametrize("damage", [b"", b"not a database", b"SQLite format 3\0" + b"\0" * 4000])
def test_damaged_metric_store_is_not_go(damage: bytes, tmp_path: Path) -> None:
    """Metrics that cannot be read are missing evidence, and the finding names the file."""
    PLAIN.write(tmp_path)
    (tmp_path / "metrics.db").write_bytes(damage)
    report = build_report(tmp_path)
    assert report["decision"] != "GO"
    assert any("metrics.db" in finding["description"] for finding in report["findings"])


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_go_is_lost_when_journal_lines_are(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whatever is cut out of the journal, judging does not crash; and without an end or witness it is never GO."""
    place = PLAIN.write(tmp_path_factory.mktemp("run"))
    lines = (place / "journal.jsonl").read_bytes().splitlines(keepends=True)
    kept = data.draw(st.lists(st.booleans(), min_size=len(lines), max_size=len(lines)))
    cut = data.draw(st.integers(0, 40))
    text = b"".join(line for line, keep in zip(lines, kept, strict=True) if keep)
    (place / "journal.jsonl").write_bytes(text[: len(text) - cut] if cut < len(text) else text)
    report = build_report(place)
    events = {entry["event"] for entry in read_journal(place / "journal.jsonl")[0]}
    if not {"attempt-ended", "probe", "command", "environment"} <= events:
        assert report["decision"] != "GO"


@settings(max_examples=60, deadline=None)
@given(
    exit_code=st.sampled_from([0, 0, 0, 1, 143, None]),
    stop=st.sampled_from([None, None, "cap", "timeout", "cancelled"]),
    loss=st.lists(st.floats(width=32), max_size=12), steps=st.integers(0, 12), target=st.sampled_from([None, 0, 5, 10]),
    grad=st.lists(st.floats(width=32).map(abs), max_size=12), first=st.integers(0, 2000),
)
def test_go_implies_its_evidence(
    exit_code: int | None, stop: str | None, loss: list[float], steps: int, target: int | None, grad: list[float],
    first: int, tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """GO only with a good end, finite losses, an applied update and a known target; and judging never crashes."""
    run = replace(
        PLAIN, exit_code=exit_code, signal=None if exit_code is not None else "SIGKILL", stop_reason=stop,
        loss=tuple(loss), grad_norm=tuple(grad), lr=(0.1,) * len(loss), first_step=first,
        facts=replace(PLAIN.facts, target_steps=target), probe={**(PLAIN.probe or {}), "steps": steps},
        spec={"run_timeout_s": 1.0} if stop == "timeout" else {})
    report = report_of(run, tmp_path_factory.mktemp("run"))
    if report["decision"] == "GO":
        assert report["terminal_state"] in (TerminalState.SUCCEEDED.value, TerminalState.EARLY_STOPPED.value)
        assert loss
        assert all(math.isfinite(value) for value in loss)
        assert steps > 0
        assert target is not None


def test_facts_survive_the_journal() -> None:
    """FrameworkFacts -> JSON -> FrameworkFacts is the identity; a newer journal's keys are ignored."""
    facts = FrameworkFacts(name="areno", reason="r", step_base=0, executed_tags=("^train/",), target_steps=3)
    assert FrameworkFacts.from_json({**json.loads(json.dumps(facts.to_json())), "later": 1}) == facts


LAUNCHED = {"attempt-started", "attempt-ended", "sources", "log-end", "probe", "checkpoints", "run-finished"}
STOPPED_AT_ITS_FIRST = {
    "event": "early-stopping", "metric": "eval_loss", "tag": "eval/loss", "evaluations": 4, "triggered": True,
    "triggered_at_step": 10, "never_improved": True, "best_step": 1, "best_value": 1.0}
EDITED: dict[str, tuple[RunDir, set[str], list[dict[str, Any]]]] = {
    "launch-failed": (PLAIN, LAUNCHED, [{"event": "launch-failed", "message": "no memory"}]),
    "no-real-run": (PLAIN, LAUNCHED, []),
    "env-unrecorded": (PLAIN, {"environment"}, []),
    "never-improved": (replace(PLAIN, spec={"early_stop_metric": "eval_loss"}), set(), [STOPPED_AT_ITS_FIRST]),
    "effect-unproven": (replace(PLAIN, grad_norm=(), lr=(), probe={
        **(PLAIN.probe or {}), "grad": {"checked": 0, "nonzero": 0}}), set(), []),
    "checkpoint-unreadable": (replace(PLAIN, checkpoints={"last_step": None, "checkpoints": [
        {"path": "b", "step": 10, "status": "damaged", "problems": ["cut short"]}]}), set(), []),
}


@pytest.mark.parametrize("reason", EDITED)
def test_what_the_journal_lacks_or_tells_has_its_reason(reason: str, tmp_path: Path) -> None:
    """Entries taken out of a healthy journal, or put into it: never GO, and the reason says why."""
    run, gone, more = EDITED[reason]
    run.write(tmp_path)
    journal = tmp_path / "journal.jsonl"
    kept = [entry for entry in map(json.loads, journal.read_text().splitlines()) if entry["event"] not in gone]
    added = [{"seq": 90 + index, "time": kept[-1]["time"], **entry} for index, entry in enumerate(more)]
    journal.write_text("".join(json.dumps(entry) + "\n" for entry in (*kept, *added)))
    report = build_report(tmp_path)
    assert report["decision"] != "GO"
    assert reason in codes(report)


def test_missing_metric_store_is_incomplete_evidence(tmp_path: Path) -> None:
    """Sources were read and their store is gone: unproven, and not said to have logged nothing."""
    PLAIN.write(tmp_path)
    (tmp_path / "metrics.db").unlink()
    report = build_report(tmp_path)
    assert report["decision"] != "GO"
    assert "evidence-incomplete" in codes(report)


def test_wall_time_beside_the_training_is_told(tmp_path: Path) -> None:
    """Of a run that ended; one without an end has none."""
    ended = report_of(PLAIN, tmp_path / "a")["evidence"]["overhead"]["wall_added_s"]
    assert ended is not None
    assert ended >= 0
    assert report_of(replace(PLAIN, ended=False), tmp_path / "b")["evidence"]["overhead"]["wall_added_s"] is None


def test_plugin_knows_every_gate() -> None:
    """Markers and fixture modules are named after the gates that are judged."""
    from harness import plugin
    from harness.judge.gates import GATES

    assert tuple(gate.name for gate in GATES) == plugin.GATES


@pytest.mark.parametrize(("tag", "known"), [
    ("train/nll", True), ("nll", True), ("train_cross_entropy", True), ("train/xent", True),
    ("train/objective", False), ("ce", False), ("train/nll_weight", False),
])
def test_a_name_that_can_only_be_a_loss_needs_no_flag(tag: str, known: bool, tmp_path: Path) -> None:
    """Where no series is called a loss; a NaN in it is one, and beside a loss it is asked nothing."""
    nll = tuple(3.0 / step for step in range(1, 11))
    with open_record(replace(PLAIN, loss=(), extra={tag: nll}).write(tmp_path / "out")) as record:
        codes = [reason.code.value for reason in judge(record)[0].reasons]
        assert ("no-recognised-metrics" not in codes) is known
    broken = {tag: (*nll[:5], float("nan"), *nll[6:])}
    for loss, found in (((), known), (nll, False)):
        with open_record(replace(PLAIN, loss=loss, extra=broken).write(tmp_path / f"nan{len(loss)}")) as record:
            codes = [reason.code.value for reason in judge(record)[0].reasons]
            assert ("loss-not-finite" in codes) is found
