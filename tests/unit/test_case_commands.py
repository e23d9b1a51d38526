"""The public cases of the watch through the commands that a user runs: every right value is in what they write."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NoReturn

import pytest

from harness.cli import main
from harness.record.store import MetricStore

CASES = Path(__file__).with_name("cases")


def expected(case: str) -> Any:
    """The right values of a case."""
    return json.loads(next(CASES.glob(f"{case}-*")).joinpath("expected.json").read_text())


def of(case: str, name: str = "") -> Path:
    """A file of a case."""
    return next(CASES.glob(f"{case}-*")) / name


class Said:
    """What a command answers, and what it wrote."""

    def __init__(self, capsys: pytest.CaptureFixture[str], out_dir: Path) -> None:
        self.capsys = capsys
        self.out_dir = out_dir

    def run(self, *words: str | Path) -> dict[str, Any]:
        """A command's strict JSON."""
        main([str(word) for word in words])
        answer: dict[str, Any] = json.loads(self.capsys.readouterr().out, parse_constant=no_constant)
        return answer

    def judge(self, log: Path, *words: str | Path) -> dict[str, Any]:
        """`judge` of a log."""
        return self.run("judge", "--log", log, "--out-dir", self.out_dir, *words)

    def written(self, name: str = "train-model.json") -> dict[str, Any]:
        """An artifact, which must be strict JSON."""
        document: dict[str, Any] = json.loads((self.out_dir / name).read_text(), parse_constant=no_constant)
        return document

    @property
    def observed(self) -> dict[str, Any]:
        """What train-model.json observed."""
        found: dict[str, Any] = self.written()["evidence"]["observed"]
        return found

    @property
    def anomalies(self) -> list[tuple[int | None, str, str]]:
        """(step, type, severity) of babysit-training.json."""
        return [(item["step"], item["type"], item["severity"])
                for item in self.written("babysit-training.json")["anomalies_detected"]]

    def check(self, name: str) -> dict[str, Any]:
        """A check of train-model.json."""
        return next(check for gate in self.written()["evidence"]["gates"] for check in gate["checks"]
                    if check["name"] == name)


def no_constant(text: str) -> NoReturn:
    """NaN and Infinity are no JSON."""
    raise AssertionError(f"bare {text} in JSON")


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Said:
    """Commands with an out-dir of their own."""
    return Said(capsys, tmp_path / "out")


@pytest.mark.parametrize("name", ["log.txt", "log_after_fix.txt"])
def test_01_a_run_without_a_row_made_no_update(said: Said, name: str) -> None:
    """Both builds fail for their data, whatever the exit code; two epochs are no two steps."""
    right, code = expected("01")[name], json.loads(of("01", "run.json").read_text())["exit_codes"][name]
    assert code == right["exit_code"]
    answer = said.judge(of("01", name), "--exit-code", str(code))
    assert (answer["decision"], answer["outcome"], answer["total_steps"]) == ("NO-GO", "broken", None)
    assert said.written()["evidence"]["attempts"][0]["exit_code"] == right["exit_code"]
    failure = said.written("check-failed-run.json")
    assert (right["class"], failure["primary_cause"]) == ("dataset_contract", "data-pipeline")
    assert "stalled" not in {kind for _, kind, _ in said.anomalies}
    if "first_error" in right:
        told = f"{failure['first_causal']['kind']}: {failure['first_causal']['message']}"
        assert told.startswith(right["first_error"])
        assert answer["terminal_state"] == "FAILED"
    else:
        assert said.check("updates_executed")["status"] == "failed"
        assert said.observed["updates_executed"] == right["optimizer_steps"]
        (dropped,) = (entry for entry in failure["evidence"] if entry["note"] == "rows that were left out")
        assert (dropped["line"], "stage=sft_dataset_filter skipped_long_or_empty=3" in dropped["text"]) == (2, True)


def test_01_rows_are_skipped_and_no_schema_error(said: Said) -> None:
    """An empty and a null response; the prompt over its budget needs AReno's tokenizer (tests/areno)."""
    assert expected("01")["rows"] == ["skip_empty_response", "skip_null", "skip_over_prompt_budget"]
    answer = said.run("inspect-dataset", "--dataset-path", of("01", "dataset.jsonl"), "--algo", "sft",
                      "--max-prompt-tokens", "8")
    assert (answer["verdicts"]["skip"], answer["verdicts"]["fatal"], answer["ok"]) == (2, 0, False)


@pytest.mark.parametrize("name", ["empty_batch.txt", "critic_warmup.txt"])
def test_02_printed_steps_are_no_updates(said: Said, name: str) -> None:
    """Three printed steps: no update, and one. A skip is neither a failure nor a stall."""
    right = expected("02")[name]
    answer = said.judge(of("02", name), "--exit-code", "0")
    check = said.check("updates_executed")
    assert said.observed["updates_executed"] == right["policy_updates"]
    assert (check["status"] == "failed") is not right["real_step_advanced"]
    assert (answer["decision"] == "NO-GO") is not right["real_step_advanced"]
    assert answer["total_steps"] != right["printed_step"] and said.anomalies == []
    skipped = right.get("skipped_policy_steps", [])
    assert said.observed["updates_skipped"] == len(skipped)
    assert not skipped or f"skipped (steps {', '.join(map(str, skipped))})" in check["observed"]


def test_02_critic_alone_is_no_policy_step(said: Said, tmp_path: Path) -> None:
    """The same run, stopped inside the critic's warm-up."""
    lines = of("02", "critic_warmup.txt").read_text().splitlines()
    log = tmp_path / "warm-up.log"
    log.write_text("\n".join([line for line in lines if "step=2 " not in line]) + "\n")
    answer = said.judge(log, "--exit-code", "0")
    assert (answer["decision"], said.observed["updates_executed"], said.observed["updates_skipped"]) == ("NO-GO", 0, 2)


@pytest.mark.parametrize("name", ["filtered.txt", "zero.txt", "amp_skip.txt"])
def test_08_masked_nan_and_a_scaler_skip(said: Said, name: str) -> None:
    """The first sign is the gradient norm's, at its step; one skip is a note that passes."""
    right = expected("08")[name]
    answer = said.judge(of("08", name), "--exit-code", "0", "--hp", "logging_steps=10", "--framework", "transformers")
    norms = [point for point in said.run("metrics", said.out_dir, "--metric", "grad_norm")["series"]["grad_norm"]
             if point["value"] is None]
    if right["verdict"] == "nan":
        assert (answer["decision"], answer["outcome"]) == ("NO-GO", "broken")
        first = right.get("first_step", 10 * (right.get("first_row", 0) + 1))
        assert (norms[0]["step"], said.anomalies) == (first, [(first, "nan-inf", "high")])
        assert said.written("babysit-training.json")["evidence"]["incidents"][0]["metric"] == right.get(
            "signal", "grad_norm")
        assert said.written("check-failed-run.json")["primary_cause"] == "nan-inf"
    else:
        assert answer["decision"] == "CONDITIONAL"
        assert (len(norms), said.anomalies) == (right["nonfinite_rows"], [(10, "nan-inf", "low")])
        assert said.written("babysit-training.json")["evidence"]["anomalies"][0]["recovered"]
        assert answer["final_metrics"]["loss"] == 0.745


def test_08_loss_0_beside_a_nan_norm_is_never_the_best(said: Said) -> None:
    """`replay`: a masked NaN is no value; what was logged before it is."""
    zero = said.run("replay", of("08", "zero.txt"), "--early-stop-metric", "loss", "--early-stop-patience", "3")
    assert (zero["ok"], zero["triggered"], zero["best_value"]) == (True, True, None)
    filtered = said.run("replay", of("08", "filtered.txt"), "--early-stop-metric", "loss")
    assert filtered["best_value"] == 2.371


def test_16_bare_nan_is_read_and_written_strictly(said: Said, tmp_path: Path) -> None:
    """A state that is no strict JSON: its values count, its best is not NaN, and what is written is strict."""
    right = expected("16")
    log = tmp_path / "a.log"
    log.write_text("Training complete\n")
    answer = said.judge(log, "--metrics-dir", of("16"), "--framework", "transformers", "--exit-code", "0")
    assert right["parse"] == "ok" and answer["decision"] == "NO-GO" and answer["total_steps"] == 200
    report = said.run("metrics", of("16"), "--last", "9")
    bad = [{"key": key, "step": point["step"]} for key in ("grad_norm", "eval_loss")
           for point in report["series"][key] if point["value"] is None]
    assert (report["ok"], bad) == (True, right["non_finite"])
    assert [(step, kind) for step, kind, _ in said.anomalies] == [(150, "nan-inf"), (200, "nan-inf")]
    best = said.run("replay", of("16"), "--early-stop-metric", "eval_loss")
    assert {"step": best["best_step"], "eval_loss": best["best_value"]} == right["best_finite_eval"]
    assert said.written()["best_checkpoint"] is None
    assert right["evidence_must_be_strict_json"] and said.written("babysit-training.json")


def test_18_rows_are_told_by_their_keys(said: Said, tmp_path: Path) -> None:
    """Six training rows, three evaluations and a summary that is neither a step nor a loss."""
    right = expected("18")
    log = tmp_path / "a.log"
    log.write_text("Training complete\n")
    answer = said.judge(log, "--metrics-dir", of("18"), "--framework", "transformers", "--exit-code", "0")
    assert (answer["decision"], answer["total_steps"]) == ("CONDITIONAL", right["last_step"])
    final = answer["final_metrics"]
    assert (final["loss"], final["train_steps_per_second"], final["train_runtime"]) == (
        right["last_train_loss"], right["steps_per_second"], 512.4)
    assert (said.anomalies, said.observed["updates_executed"]) == ([], 300)
    series = said.run("metrics", of("18"), "--last", "99")["series"]
    assert [point["step"] for point in series["loss"]] == list(range(50, 301, 50))
    assert len(series["loss"]) == right["train_points"]
    assert [point["step"] for point in series["eval_loss"]] == [100, 200, 300]
    assert len(series["eval_loss"]) == right["eval_points"]
    for metric in ("eval_loss", "eval_accuracy"):
        best = said.run("replay", of("18"), "--early-stop-metric", metric)
        assert {"step": best["best_step"], "value": best["best_value"]} == right[f"best_{metric}"]


def test_19_requeued_attempts_in_one_log(said: Said) -> None:
    """Completed, two attempts, the second one's values; the preemption ended the first and no more."""
    right = expected("19")
    answer = said.judge(of("19", "slurm-77.out"), "--exit-code", "0")
    assert (right["verdict"], answer["terminal_state"], answer["decision"]) == (
        "completed", "SUCCEEDED", "CONDITIONAL")
    assert (answer["total_steps"], said.anomalies) == (right["last_step"], [])
    first, second = said.written()["evidence"]["attempts"]
    assert len(said.written()["evidence"]["attempts"]) == right["attempts"]
    assert (first["cause"].startswith("preempted"), right["preempted_attempts"]) == (True, 1)
    assert (second["resumed_from_step"], second["cause"], second["terminal_state"]) == (200, None, "SUCCEEDED")
    with MetricStore.open(said.out_dir / "metrics.db") as store:
        series = {point.step: point.value for point in store.series("loss")}
    assert list(series) == list(range(50, 501, 50)) and len(series) == right["points"]
    assert {step: series[int(step)] for step in right["loss_at"]} == right["loss_at"]
    assert said.check("restarts")["status"] == "passed"


def test_23_versions_of_lightning_are_runs(said: Said) -> None:
    """Blank cells are absent, nan is NaN, and the newest version, which is empty, is named."""
    right, root = expected("23"), of("23", "lightning_logs")
    report = said.run("metrics", root, "--last", "9")
    for tag in ("train_loss_step", "val_loss"):
        points = {str(point["step"]): point["value"] for point in report["series"][f"version_1:{tag}"]}
        assert points == right["version_1"][tag]
    epochs = {point["step"]: point["value"] for point in report["series"]["version_1:train_loss_epoch"]}
    assert epochs == {99: 1.08, 199: 0.72}
    assert [{"key": "val_acc", "step": point["step"]} for point in report["series"]["version_1:val_acc"]
            if point["value"] is None] == right["version_1"]["nan"]
    one = said.run("metrics", root / "version_1", "--metric", "val_loss", "--last", "1")["series"]["val_loss"]
    assert (one[0]["step"], one[0]["value"], right["version_1"]["last_step"]) == (199, 0.81, 199)
    (empty,) = (problem for problem in report["problems"] if problem["code"] == "no-metric-points")
    assert (Path(empty["path"]).parent.name, right["newest_dir_has_data"]) == (right["newest_dir"], False)
    assert not said.run("metrics", root / right["newest_dir"])["ok"]


@pytest.mark.parametrize("name", ["slow.txt", "fast.txt", "mixed.txt"])
@pytest.mark.parametrize("command", ["metrics", "watch"])
def test_26_bars_tell_step_total_and_rate(said: Said, command: str, name: str) -> None:
    """s/it is turned over; an evaluation's bar and the first step's warm-up are neither progress nor rate."""
    right = expected("26")[name]
    answer = said.run(command, of("26", name), *(["--once"] if command == "watch" else []))
    assert answer["progress"] == {"step": right.get("last_step", right.get("last_train_step")), "total": right["total"],
                                  "steps_per_second": pytest.approx(right["steps_per_second"])}
    assert answer["ok"] or command == "watch"


def test_37_search_for_a_batch_size(said: Said) -> None:
    """Recovered: 32 was asked for, 8 was trained with, and the evidence says both."""
    right = expected("37")["recovered.txt"]
    answer = said.judge(of("37", "recovered.txt"), "--exit-code", "0")
    assert (right["verdict"], answer["terminal_state"], answer["decision"]) == (
        "completed", "SUCCEEDED", "CONDITIONAL")
    assert answer["total_steps"] == right["steps"]
    assert said.observed["per_device_batch_size"] == {
        "requested": right["requested_batch"], "effective": right["effective_batch"]}
    assert any("batch size was lowered" in finding["title"] for finding in said.written()["findings"])
    assert [kind for _, kind, _ in said.anomalies] == ["oom"]
    assert said.written("babysit-training.json")["evidence"]["anomalies"][0]["recovered"]
    told = said.run("diagnose", of("37", "recovered.txt"), "--exit-code", "0", "--out-dir", said.out_dir)
    assert (told["run_status"], told["first_causal"]) == ("recovered", None)
    assert f"recovered from oom-device: {right['oom_events']} time(s)" in told["contributing_factors"]


def test_37_exhausted_search_names_the_memory(said: Said) -> None:
    """The first OutOfMemoryError and not the search's own summary."""
    right = expected("37")["exhausted.txt"]
    answer = said.judge(of("37", "exhausted.txt"), "--exit-code", "1")
    failure = said.written("check-failed-run.json")
    assert (right["verdict"], answer["terminal_state"]) == ("failed", "FAILED")
    assert (right["class"], failure["primary_cause"]) == ("oom_gpu", "oom")
    assert (failure["first_causal"]["kind"], failure["first_causal"]["line"]) == ("torch.cuda.OutOfMemoryError", 3)
    assert {kind for _, kind, _ in said.anomalies} == {"oom", "crash"}


@pytest.mark.parametrize("name", ["slurm_oom.txt", "tee.txt", "handler.txt"])
def test_40_planned_steps_decide_and_not_exit_code_0(said: Said, name: str) -> None:
    """A killed step, a pipe to tee, a signal handler: three ways to exit 0."""
    right, code = expected("40")[name], json.loads(of("40", "run.json").read_text())["exit_codes"][name]
    answer = said.judge(of("40", name), "--exit-code", str(code))
    failure = said.written("check-failed-run.json")
    assert (code, answer["decision"]) == (0, "NO-GO")
    assert answer["terminal_state"] == {"failed": "FAILED", "interrupted": "CANCELLED"}[right["verdict"]]
    causes = {"slurm_oom.txt": "oom", "tee.txt": "data-pipeline", "handler.txt": "interrupted"}
    assert failure["primary_cause"] == causes[name]
    if "last_step" in right:
        requested = said.written()["evidence"]["requested"]["target_steps"]
        assert (answer["total_steps"], requested) == (right["last_step"], right["planned"])
    if "first_causal" in right:
        causal = failure["first_causal"]
        assert f"{causal['kind']}: {causal['message']}" == right["first_causal"]
        assert any("exit code is 0" in text for text in failure["contributing_factors"])
    if right.get("class") == "host_oom":
        assert failure["first_causal"]["kind"] == "oom-host-confirmed"


@pytest.mark.parametrize("metric", expected("49"))
def test_49_direction_is_certain_or_asked_for(said: Said, tmp_path: Path, metric: str) -> None:
    """Every name of the case through `replay`; where it is not certain, a usage error that names the flag."""
    right, values = expected("49")[metric], json.loads(of("49", "history.json").read_text())[metric]
    path = tmp_path / "m.jsonl"
    path.write_text("".join(json.dumps({"step": 10 * (i + 1), metric: value}) + "\n" for i, value in enumerate(values)))
    words = ("replay", path, "--early-stop-metric", metric, "--early-stop-patience", "9")
    if right["direction"] == "ask":
        assert main([str(word) for word in words]) == 2
        assert "--early-stop-mode" in said.capsys.readouterr().out
        return
    answer = said.run(*words)
    assert (answer["direction"], answer["best_index"], answer["triggered"]) == (
        right["direction"], right["best_index"], False)
    assert math.isclose(answer["best_value"], values[right["best_index"]])


@pytest.mark.parametrize("case", json.loads(of("50", "series.json").read_text()), ids=lambda case: str(case["name"]))
def test_50_patience_and_delta(said: Said, tmp_path: Path, case: dict[str, Any]) -> None:
    """The seven series through `replay`: where it stops, and which evaluation was the best."""
    right, path = expected("50")[case["name"]], tmp_path / "m.jsonl"
    path.write_text("".join(json.dumps({"step": i, "eval_x": value}) + "\n" for i, value in enumerate(case["values"])))
    answer = said.run("replay", path, "--early-stop-metric", "eval_x", "--early-stop-mode", case["mode"],
                      "--early-stop-patience", str(case["patience"]), "--early-stop-min-delta", str(case["min_delta"]))
    assert (answer["stop_index"], answer["best_index"]) == (right["stop_index"], right["best_index"])
    assert answer["triggered"] is (right["stop_index"] is not None)
