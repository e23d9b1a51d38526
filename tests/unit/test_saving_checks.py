"""The gate save_reload: each of its checks has broken runs that only it sees, and healthy ones that pass it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from harness.frameworks.base import FrameworkFacts
from harness.judge.gates import GATES
from harness.judge.report import build_report
from harness.judge.saved import best_checkpoint, saved_checkpoints
from harness.judge.verdict import judge
from harness.record.run_record import open_record
from tests.unit.run_dirs import RunDir

SAVE_RELOAD = next(gate for gate in GATES if gate.name == "save_reload")
FACTS = FrameworkFacts(
    name="torch", reason="train.py imports torch", target_steps=10, target_source="--max-steps", checkpoint_asked=True,
    checkpoint_roots=("/runs/saved",))
CHANGED = {"start": "step_0", "kind": "changed", "start_kind": "own-step-0", "comparison": {"changed": 3}}


def whole(step: int | None, path: str | None = None, **more: Any) -> dict[str, Any]:
    return {"path": path or f"step_{step}", "step": step, "status": "whole", **more}


def facts(*checkpoints: dict[str, Any], **more: Any) -> dict[str, Any]:
    found = [item for item in checkpoints if item["status"] != "damaged"]
    return {"checkpoints": list(checkpoints), "last_step": found[-1]["step"] if found else None,
            "latest": found[-1]["path"] if found else None, "change": CHANGED if found else None, **more}


def ok(**more: Any) -> dict[str, Any]:
    return {"path": "step_10", "step": 10, "adapter": "transformers", "status": "ok", "tensors": 5, "forward_ok": True,
            **more}


HEALTHY = RunDir(facts=FACTS, checkpoints=facts(whole(0), whole(10)), reload=(ok(),))
ERROR = {"kind": "disk-full", "line": "OSError: [Errno 28] No space left on device", "names_root": False}


@dataclass(frozen=True, kw_only=True)
class Broken:
    """A run with one fault."""

    check: str
    code: str = ""
    """The reason, where the name of the case is another."""
    decision: str = "NO-GO"
    checkpoints: dict[str, Any] = field(default_factory=lambda: facts(whole(0), whole(10)))
    reload: tuple[dict[str, Any], ...] = (ok(),)
    resume: dict[str, Any] | None = None
    """The entry of a resume that was asked for."""

    def run(self) -> RunDir:
        spec = {"check_resume": True} if self.resume is not None else {}
        return replace(HEALTHY, checkpoints=self.checkpoints, reload=self.reload, resume=self.resume, spec=spec)


PARTED = {"at": 5, "exit_code": 0, "points": 15, "tags": ["train/loss"], "suspected": "rng", "first": {
    "tag": "train/loss", "step": 6, "expected": 0.5, "actual": 0.6, "rel_error": 0.2}}


DAMAGED = {"path": "step_10", "step": 10, "status": "damaged", "problems": ["model.safetensors: cut short"]}
BROKEN = {
    "checkpoint-missing": Broken(check="saved", decision="CONDITIONAL", checkpoints=facts(), reload=()),
    "save-path-unwritable": Broken(check="saved", checkpoints=facts(unwritable="/runs/saved"), reload=()),
    "disk-full": Broken(check="saved", checkpoints=facts(save_errors=[ERROR]), reload=()),
    "checkpoint-unreadable": Broken(check="complete", checkpoints=facts(whole(5), DAMAGED)),
    "checkpoint-unfinished": Broken(
        check="complete", checkpoints=facts(whole(0), whole(5), unfinished=["tmp-checkpoint-10"])),
    "checkpoint-lacks-tensors": Broken(
        check="delivered", checkpoints=facts(whole(0), whole(10), lost=["head.weight"], lost_from="step_0")),
    "checkpoint-repeated": Broken(
        check="delivered", checkpoints=facts(whole(0), whole(5), whole(10), repeated=["step_10", "step_5"])),
    "weights-not-finite": Broken(check="finite", reload=(ok(adapter="lightning", values_read=True, nonfinite=["w"]),)),
    "reload-failed": Broken(check="reload", reload=(ok(status="failed", error="lm_head.weight is missing"),)),
    "forward-not-finite": Broken(
        check="reload", reload=(ok(status="failed", error="not finite", error_kind="forward"),)),
    "reload-refused": Broken(check="reload", decision="CONDITIONAL", reload=(ok(status="refused", error="mkdir"),)),
    "reload-not-attempted": Broken(
        check="reload", decision="CONDITIONAL",
        reload=(ok(status="not-attempted", error="900 GB", command="python -m harness checkpoints x --reload"),)),
    "evidence-incomplete": Broken(check="reload", decision="CONDITIONAL", reload=()),
    "resume-diverges": Broken(check="resume", resume=PARTED),
    "resume-replays-data": Broken(check="resume", resume={**PARTED, "suspected": "data-replayed"}),
    "resume-restarts-scheduler": Broken(check="resume", resume={**PARTED, "suspected": "scheduler-restarted"}),
    "resume-ignored": Broken(
        check="resume", resume={**PARTED, "first": None, "begins": 1, "expected_begins": 1, "is_live": True}),
    "resume-unproven-by-its-history": Broken(
        check="resume", decision="CONDITIONAL", code="resume-unproven",
        resume={**PARTED, "first": None, "begins": 1, "expected_begins": 1, "is_live": False}),
    "resume-fails": Broken(check="resume", resume={"at": 5, "exit_code": 1}),
    "resume-unproven": Broken(check="resume", decision="CONDITIONAL", resume={"problem": "no flag resumes"}),
    "resume-unproven-by-its-rate": Broken(
        check="resume", decision="CONDITIONAL", code="resume-unproven",
        resume={**PARTED, "first": None, "tags": ["train/lr", "train/batch_fingerprint"]}),
    "eval-loss-disagrees": Broken(
        check="eval_agrees", checkpoints=facts(whole(0), whole(10, metrics={"eval/loss": 0.5})),
        reload=(ok(eval_loss=2.5),)),
    "eval-not-logged": Broken(
        check="eval_agrees", decision="CONDITIONAL", reload=(ok(function={
            "name": "own.py:check", "status": "ok", "metrics": {"accuracy": 0.9}, "nonfinite": []}),)),
    "reload-refuted": Broken(
        check="eval_agrees", reload=(ok(function={"name": "own.py:check", "status": "refuted", "error": "9"}),)),
    "reload-function-failed": Broken(
        check="eval_agrees", decision="CONDITIONAL",
        reload=(ok(function={"name": "own.py:check", "status": "raised", "error": "ValueError: no"}),)),
}


def judged(run: RunDir, place: Path) -> dict[str, Any]:
    return build_report(run.write(place))


def test_saved_and_reloaded_run_is_go(tmp_path: Path) -> None:
    """And its evidence tells the reload."""
    report = judged(HEALTHY, tmp_path)
    assert (report["decision"], report["evidence"]["reload"]["status"]) == ("GO", "ok"), report["summary"]
    assert report["best_checkpoint"] == "step_10"


@pytest.mark.parametrize("reason", BROKEN)
def test_fault_has_its_reason_and_only_its_check_sees_it(reason: str, tmp_path: Path) -> None:
    """With the check removed the run is GO."""
    broken = BROKEN[reason]
    out_dir = broken.run().write(tmp_path)
    report = build_report(out_dir)
    given = {(item["code"], item["gate"], item["check"]) for item in report["evidence"]["reasons"]}
    expected = (broken.code or reason, "save_reload", broken.check)
    assert (report["decision"], given) == (broken.decision, {expected}), report["summary"]
    kept = tuple(check for check in SAVE_RELOAD.checks if check.__name__.removeprefix("check_").removeprefix(
        "saved_") != broken.check)
    assert len(kept) == len(SAVE_RELOAD.checks) - 1
    without = replace(SAVE_RELOAD, checks=kept)
    with open_record(out_dir) as record:
        verdict, _ = judge(record, gates=[without if gate is SAVE_RELOAD else gate for gate in GATES])
    left = verdict.gate("save_reload")
    assert not any(check.reason for check in left.checks)


def test_every_check_of_the_gate_has_a_broken_run() -> None:
    """No check without a negative control."""
    names = {check.__name__.removeprefix("check_").removeprefix("saved_") for check in SAVE_RELOAD.checks}
    assert {broken.check for broken in BROKEN.values()} == names


def test_saving_that_nobody_asked_for_is_not_needed(tmp_path: Path) -> None:
    """Neither asked nor found: SKIPPED, and the run may be GO."""
    run = replace(HEALTHY, facts=replace(FACTS, checkpoint_asked=False), checkpoints=None, reload=())
    report = judged(run, tmp_path)
    gate = next(gate for gate in report["evidence"]["gates"] if gate["name"] == "save_reload")
    assert (report["decision"], gate["status"], gate["required"]) == ("GO", "SKIPPED", False)


HEALTHY_SAVES = {
    "error-elsewhere": facts(whole(0), whole(10), save_errors=[ERROR]),
    "error-that-was-got-over": facts(whole(0), whole(10), save_errors=[{**ERROR, "names_root": True}]),
    "litter-of-an-earlier-try": facts(whole(0), whole(10), unfinished=["tmp-checkpoint-10"]),
    "untrained-start-repeated": facts(whole(0), whole(10), whole(None, "final")),
    "scratch-file-of-the-job": facts(whole(0), whole(10), unfinished=["tmp_model.pt"]),
    "plain-tensors": facts(whole(0), whole(10)),
}


@pytest.mark.parametrize("name", HEALTHY_SAVES)
def test_healthy_save_is_go(name: str, tmp_path: Path) -> None:
    """What looks like a fault and is none."""
    assert judged(replace(HEALTHY, checkpoints=HEALTHY_SAVES[name]), tmp_path)["decision"] == "GO"


def test_stop_in_the_middle_of_a_save_is_no_fault(tmp_path: Path) -> None:
    """The harness stopped it: the last whole checkpoint counts."""
    run = replace(HEALTHY, checkpoints=facts(whole(0), whole(10), unfinished=["tmp-checkpoint-12"]), exit_code=None,
                  signal="SIGTERM", stop_reason="cap")
    report = judged(run, tmp_path)
    assert report["decision"] == "GO", report["summary"]


def test_rate_of_zero_moves_no_weight(tmp_path: Path) -> None:
    """Equal checkpoints between which the learning rate was 0 are no fault."""
    same = facts(whole(0), whole(8), whole(10), repeated=["step_10", "step_8"])
    assert judged(replace(HEALTHY, checkpoints=same, lr=(0.1,) * 8 + (0.0,) * 2), tmp_path)["decision"] == "GO"


@pytest.mark.parametrize(("updates", "repeated", "is_equal"), [
    (15, (120, 124), False), (15, (112, 124), True), (124, (120, 124), True), (1, (120, 124), True),
    (14, (120, 124), True), (62, (123, 124), True),
])
def test_no_update_lies_within_an_accumulation(
    updates: int, repeated: tuple[int, int], is_equal: bool, tmp_path: Path,
) -> None:
    """Steps 120 and 124 of 8 micro-steps an update may be equal: 15 updates were made by the one and by the other."""
    early, late = repeated
    same = facts(whole(0), whole(early), whole(late), repeated=[f"step_{late}", f"step_{early}"])
    probe = {"steps": updates, "optimizers_created": 1, "lr_positive_steps": updates, "scaler_skips": 0,
             "world_size": None, "clean_exit": True, "grad": {"checked": 4, "nonzero": 4}}
    run = replace(HEALTHY, checkpoints=same, probe=probe, loss=tuple(3.0 / step for step in range(1, 125)),
                  grad_norm=(1.0,) * 124, lr=(0.1,) * 124, reload=(ok(path=f"step_{late}", step=late),))
    codes = {item["code"] for item in judged(run, tmp_path)["evidence"]["reasons"]}
    assert ("checkpoint-repeated" in codes) is is_equal, codes


def test_gradient_of_zero_moves_no_weight(tmp_path: Path) -> None:
    """Rewards that are all the same at the end give no gradient; the run learnt before."""
    same = facts(whole(0), whole(8), whole(10), repeated=["step_10", "step_8"])
    assert judged(replace(HEALTHY, checkpoints=same, grad_norm=(1.0,) * 8 + (0.0,) * 2), tmp_path)["decision"] == "GO"


@pytest.mark.parametrize("odd", [{"status": "fine"}, {"forward_ok": 3}, {"notes": 3}, {"tensors": "many"}])
def test_odd_reload_is_no_evidence(odd: dict[str, Any], tmp_path: Path) -> None:
    """A status that is none, and fields of another type: a report is written, and a GO rests on none of them."""
    report = judged(replace(HEALTHY, reload=(ok(**odd),)), tmp_path)
    assert report["decision"] == ("GO" if "forward_ok" in odd else "CONDITIONAL"), report["summary"]


def test_full_disk_leaves_what_was_whole_the_best(tmp_path: Path) -> None:
    """The reason is the disk's, and the best is the one before."""
    named = {**ERROR, "names_root": True}
    report = judged(replace(HEALTHY, checkpoints=facts(whole(0), whole(5), DAMAGED, save_errors=[named]), reload=(
        ok(path="step_5", step=5),)), tmp_path)
    assert (report["best_checkpoint"], [item["code"] for item in report["evidence"]["reasons"]]) == (
        "step_5", ["disk-full"])


def test_best_is_by_the_metric_of_early_stopping(tmp_path: Path) -> None:
    """By its value at each checkpoint's step; all are listed with their metrics."""
    run = replace(HEALTHY, checkpoints=facts(whole(2), whole(4), whole(10)), loss=(3, 2, 1, 0.5, 1, 2, 3, 4, 5, 6),
                  spec={"early_stop_metric": "train/loss"})
    with open_record(run.write(tmp_path)) as record:
        best, saved = best_checkpoint(record), saved_checkpoints(record)
    assert best is not None and (best.step, best.metrics["train/loss"]) == (4, 0.5)
    assert [one.metrics["train/loss"] for one in saved] == [2, 0.5, 6]


def test_evaluation_between_saves_counts_for_the_next(tmp_path: Path) -> None:
    """AReno's metric steps count from 0: step_000005 is log step 4."""
    run = replace(HEALTHY, facts=replace(FACTS, step_base=0), first_step=0, checkpoints=facts(whole(5), whole(10)),
                  loss=tuple(float(step) for step in range(10)))
    with open_record(run.write(tmp_path)) as record:
        assert [one.metrics["train/loss"] for one in saved_checkpoints(record)] == [4.0, 9.0]


def test_damaged_checkpoint_is_never_the_best(tmp_path: Path) -> None:
    """Whatever its metric says."""
    damaged = {**DAMAGED, "metrics": {"eval_loss": 0.0}}
    run = replace(HEALTHY, checkpoints=facts(whole(5, metrics={"eval_loss": 1.0}), damaged),
                  spec={"early_stop_metric": "eval_loss"})
    with open_record(run.write(tmp_path)) as record:
        best = best_checkpoint(record)
    assert best is not None and best.step == 5


def test_command_lists_a_runs_checkpoints_with_its_metrics(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of an out-dir: where the run saved, with the values of metrics.db at each step."""
    import json

    import numpy as np
    from safetensors.numpy import save_file

    from harness.cli import main

    for step in (2, 4, 10):
        place = tmp_path / "saved" / f"step_{step}"
        place.mkdir(parents=True)
        save_file({"w": np.full(4, step, np.float32)}, place / "model.safetensors")
    items = [whole(step, f"saved/step_{step}") for step in (2, 4, 10)]
    replace(HEALTHY, checkpoints=facts(*items, roots=[str(tmp_path / "saved")]),
            loss=(3, 2, 1, 0.5, 1, 2, 3, 4, 5, 6)).write(tmp_path)
    assert main(["checkpoints", str(tmp_path), "--metric", "train/loss"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [item["metrics"]["train/loss"] for item in answer["checkpoints"]] == [2, 0.5, 6]
    assert (answer["best"], answer["latest"]) == (str(tmp_path / "saved/step_4"), str(tmp_path / "saved/step_10"))


@pytest.mark.parametrize(("words", "code"), [(["none"], 2), ([".", "--metric", "blorp"], 2), (["."], 1)])
def test_command_tells_usage_from_an_empty_directory(
    words: list[str], code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No such path, a metric whose direction cannot be told, and a directory without checkpoints."""
    from harness.cli import main

    monkeypatch.chdir(tmp_path)
    assert main(["checkpoints", *words]) == code
    assert '"ok": false' in capsys.readouterr().out
