"""`python -m harness judge`: runs that others made, by what is left of them. What the user says proves nothing."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from harness.cli import main
from harness.judge.verify import verify
from harness.record.journal import read_journal
from harness.record.store import MetricStore

CASES = Path(__file__).with_name("cases")
RECORDED = CASES / "recorded" / "output"
Answer = dict[str, Any]


def judge(capsys: pytest.CaptureFixture[str], out_dir: Path, *words: str | Path) -> Answer:
    """The command's answer; `code` is its exit code."""
    code = main(["judge", "--out-dir", str(out_dir), *map(str, words)])
    return {"code": code, **json.loads(capsys.readouterr().out)}


def codes(answer: Answer) -> set[str]:
    """Reason codes."""
    return {reason["code"] for reason in answer["reasons"]}


BROKEN: dict[str, tuple[str, list[str], str]] = {
    "areno-first-worker-oom": ("04-areno-first-worker-oom/log.txt", [], "exception-in-log"),
    "areno-dataset-error": ("01-areno-sft-noop/log_after_fix.txt", [], "exception-in-log"),
    "nan behind a finite loss": ("08-hf-nan-behind-finite-loss/filtered.txt", [], "grad-norm-not-finite"),
    "nan from the first row": ("08-hf-nan-behind-finite-loss/zero.txt", [], "grad-norm-not-finite"),
    "every completion empty": ("10-grpo-all-clipped-or-empty/empty.txt", [], "no-effective-update"),
    "all labels masked": ("14-sft-all-labels-masked/log.txt", [], "grad-norm-not-finite"),
    "bar that stops": ("26-tqdm-rate-and-cr/mixed.txt", ["--exit-code", "137"], "exit-code"),
    "rank killed": ("31-elastic-sigkill-rank3/log.txt", [], "killed-by-signal"),
    "data error of one rank": ("32-elastic-observed-is-not-causal/log.txt", [], "exception-in-log"),
    "batch size search exhausted": ("37-oom-recovered/exhausted.txt", [], "exception-in-log"),
    "oom kill behind exit 0": ("40-exit-code-zero-lies/slurm_oom.txt", ["--exit-code", "0"], "target-not-reached"),
    "tee hides the code": ("40-exit-code-zero-lies/tee.txt", ["--exit-code", "0"], "exception-in-log"),
    "handler exits 0": ("40-exit-code-zero-lies/handler.txt", ["--exit-code", "0"], "cancelled"),
    "config conflict": ("57-override-without-effect/ds_conflict/log.txt", [], "exception-in-log"),
    "ended by epochs": ("57-override-without-effect/epoch_cap/log.txt", ["--max-steps", "5000", "--exit-code", "0"],
                        "target-not-reached"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_run_is_no_go_by_its_log(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever exit code is claimed, the log shows the break, and the reason says which."""
    log, words, reason = BROKEN[name]
    answer = judge(capsys, tmp_path, "--log", CASES / log, *words)
    assert (answer["decision"], answer["ok"], answer["code"]) == ("NO-GO", False, 1)
    assert reason in codes(answer)


UNTOLD: dict[str, str] = {
    "no row was valid, exit 0": "01-areno-sft-noop/log.txt",
    "steps without a batch": "02-areno-step-without-update/empty_batch.txt",
    "bar alone": "26-tqdm-rate-and-cr/slow.txt",
}


@pytest.mark.parametrize("name", UNTOLD)
def test_log_that_shows_no_update_is_never_go(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Broken or not: nothing shows an update, and no exit code makes up for that."""
    answer = judge(capsys, tmp_path, "--log", CASES / UNTOLD[name], "--exit-code", "0", "--max-steps", "3",
                   "--launched-at", str(time.time() - 3600), "--train-cmd", "python train.py")
    assert answer["decision"] != "GO"
    assert {"updates-unproven", "no-metric-points"} <= codes(answer)


HEALTHY: dict[str, tuple[str, int | None, int]] = {
    "requeued and resumed": ("19-resume-overlap-after-requeue/slurm-77.out", 500, 10),
    "batch size search that recovered": ("37-oom-recovered/recovered.txt", 100, 5),
    "limit on steps wins": ("57-override-without-effect/max_steps/log.txt", None, 1),
    "loss scaler's first step": ("08-hf-nan-behind-finite-loss/amp_skip.txt", None, 4),
    "hf": ("recorded/output/hf.log", 20, 10),
    "hf resumed": ("recorded/output/hf-resume.log", 30, 5),
    "dpo": ("recorded/output/dpo.stdout", 10, 10),
    "keras": ("recorded/output/ks.log", 9, 3),
    "jax": ("recorded/output/jx.log", 30, 7),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_run_is_conditional_by_its_log(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Never broken, never GO: the right last step and series, and each missing thing is a reason of its own."""
    log, steps, points = HEALTHY[name]
    answer = judge(capsys, tmp_path, "--log", CASES / log)
    assert (answer["decision"], answer["outcome"], answer["confidence"]) == ("CONDITIONAL", "unproven", "low")
    assert answer["total_steps"] == steps
    assert {"command-unknown", "exit-unknown", "launch-time-unknown", "updates-unproven", "env-unrecorded"} <= codes(
        answer)
    with MetricStore.open(tmp_path / "metrics.db") as store:
        assert len(store.series("loss")) == points


def test_later_attempt_in_one_log_wins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Steps 250 and 300 were made twice; the second attempt's values count, and its end is no cancellation."""
    answer = judge(capsys, tmp_path, "--log", CASES / "19-resume-overlap-after-requeue" / "slurm-77.out")
    with MetricStore.open(tmp_path / "metrics.db") as store:
        series = {point.step: point.value for point in store.series("loss")}
    assert (series[250], series[300], series[500]) == (1.48, 1.41, 1.19)
    assert answer["terminal_state"] == "SUCCEEDED"


def test_each_answer_of_the_user_takes_its_reason_away(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The flag that a reason names is what is missing; without weights the word alone stays CONDITIONAL."""
    answer = judge(capsys, tmp_path, "--log", RECORDED / "hf.log", "--exit-code", "0", "--launched-at",
                   "2020-01-01T00:00:00Z", "--train-cmd", "python train.py --max_steps 20", "--pid", "77")
    assert answer["decision"] == "CONDITIONAL"
    assert {"exit-asserted", "freshness-asserted"} <= codes(answer)
    assert not {"command-unknown", "exit-unknown", "launch-time-unknown", "target-unknown"} & codes(answer)
    said = next(entry for entry in read_journal(tmp_path / "journal.jsonl")[0] if entry["event"] == "asserted")
    assert (said["exit_code"], said["pid"], said["launched_at"]) == (0, 77, 1577836800.0)
    for event in ("attempt-started", "attempt-ended"):
        entry = next(entry for entry in read_journal(tmp_path / "journal.jsonl")[0] if entry["event"] == event)
        assert entry["asserted"] is True


def _weights(folder: Path, value: float) -> None:
    import numpy
    from safetensors.numpy import save_file

    folder.mkdir(parents=True)
    save_file({"layer.weight": numpy.full((4, 4), value, dtype="float32") + numpy.arange(4, dtype="float32")},
              folder / "model.safetensors")


def test_weights_of_the_target_step_prove_exit_and_freshness(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A changed checkpoint of step 20, written after the stated launch: the end is no word any more."""
    launched = time.time() - 60
    _weights(tmp_path / "saved" / "checkpoint-0", 0.0)
    _weights(tmp_path / "saved" / "checkpoint-20", 1.0)
    (tmp_path / "hf.log").write_bytes((RECORDED / "hf.log").read_bytes())
    words = ["--log", tmp_path / "hf.log", "--exit-code", "0", "--train-cmd", "python train.py --max_steps 20",
             "--checkpoint-dir", tmp_path / "saved"]
    answer = judge(capsys, tmp_path / "out", *words, "--launched-at", str(launched))
    assert codes(answer) == {"env-unrecorded"}
    assert answer["decision"] == "CONDITIONAL"
    later = judge(capsys, tmp_path / "late", *words, "--launched-at", str(time.time() + 3600))
    assert "exit-asserted" in codes(later), "weights from before the launch prove nothing"
    assert "stale-metrics" in codes(later)
    assert later["decision"] == "NO-GO"


def test_nan_in_the_log_of_any_rank_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A finite log of one rank hides nothing of another's."""
    for rank, value in (("0", "0.5"), ("1", "nan")):
        (tmp_path / f"rank{rank}.log").write_text("".join(
            f"step={step} loss={value if step == 3 else 0.5}\n" for step in range(1, 6)))
    answer = judge(capsys, tmp_path / "out", "--log", tmp_path / "rank0.log", "--log", tmp_path / "rank1.log",
                   "--max-steps", "5")
    assert "loss-not-finite" in codes(answer)
    assert (tmp_path / "out" / "train.2.log").read_bytes() == (tmp_path / "rank1.log").read_bytes()


def test_survived_error_is_no_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Training that goes on after an error, or an error behind the reached target, breaks no run."""
    error = "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\nValueError: a bad sample\n"
    rows = [f"step={step} loss=0.5\n" for step in range(1, 11)]
    (tmp_path / "went-on.log").write_text("".join(rows[:5]) + error + "".join(rows[5:]))
    (tmp_path / "after.log").write_text("".join(rows) + error)
    for name, words in (("went-on", []), ("after", ["--max-steps", "10"])):
        answer = judge(capsys, tmp_path / name, "--log", tmp_path / f"{name}.log", *words)
        assert answer["decision"] == "CONDITIONAL", answer["reasons"]


def test_metric_files_come_before_the_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Full values of a named metrics directory are used, and the log's rounded ones are not stored beside them."""
    metrics = tmp_path / "metrics"
    metrics.mkdir()
    (metrics / "metrics.jsonl").write_text("".join(
        json.dumps({"step": step, "loss": 1.0 / step, "time": time.time()}) + "\n" for step in range(1, 6)))
    (tmp_path / "a.log").write_text("step=5 loss=0.2\nTraining complete\n")
    judge(capsys, tmp_path / "out", "--log", tmp_path / "a.log", "--metrics-dir", metrics, "--max-steps", "5")
    report = json.loads((tmp_path / "out" / "train-model.json").read_text())
    assert [source["kind"] for source in report["evidence"]["observed"]["sources"]] == ["jsonl"]
    assert report["total_steps"] == 5


def test_settings_that_the_user_names_are_held_against_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--hp lr=... that no logged rate comes near is an override without effect."""
    (tmp_path / "a.log").write_text("".join(f"step={n} loss=0.5 lr=0.001\n" for n in range(1, 11)))
    words = ["--log", tmp_path / "a.log", "--max-steps", "10", "--train-cmd", "python train.py --lr 8e-07"]
    answer = judge(capsys, tmp_path / "out", *words, "--hp", "lr=8e-07")
    assert answer["decision"] == "NO-GO"
    assert "override-without-effect" in codes(answer)
    assert "override-without-effect" not in codes(judge(capsys, tmp_path / "right", *words, "--hp", "lr=0.001"))


def test_verify_agrees_with_what_was_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The out-dir is one like any other: judged again from its facts alone, its log still as it was read."""
    judge(capsys, tmp_path, "--log", RECORDED / "hf.log")
    again = verify(tmp_path)
    assert (again["decision"], again["disagreements"]) == ("CONDITIONAL", [])
    with (tmp_path / "train.log").open("r+b") as handle:
        handle.write(b"X")
    assert verify(tmp_path)["disagreements"]


def test_secrets_of_log_and_command_are_masked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither the copy of the log nor any other artifact holds them."""
    secret = "hf_" + "a1B2c3D4e5" * 3 + "xyzw"
    (tmp_path / "a.log").write_text(f"token {secret}\nstep=1 loss=0.5\n")
    out = tmp_path / "out"
    judge(capsys, out, "--log", tmp_path / "a.log", "--train-cmd", f"python train.py --hub-token {secret}")
    for path in out.iterdir():
        assert secret.encode() not in path.read_bytes(), path


def test_users_own_files_are_never_moved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The default out-dir is where the user is: a train.log of theirs stays where it lies."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.log").write_text("step=1 loss=0.5\n")
    assert main(["judge", "--log", "train.log"]) == 2
    assert "--out-dir" in json.loads(capsys.readouterr().out)["error"]
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != ".lease") == ["train.log"]
    assert main(["judge", "--log", "train.log", "--out-dir", "out"]) == 1
    capsys.readouterr()
    assert main(["judge", "--log", "out/train.log", "--out-dir", "out"]) == 2, "an artifact of the run it would move"


@pytest.mark.parametrize(
    "words", [["--log", "missing.log"], ["--log", "."], ["--log", "a.log", "--run-id", "a/b"],
              ["--log", "a.log", "--hp", "lr"], ["--log", "a.log", "--train-cmd", "python 'train.py"]],
    ids=["missing", "directory", "run id", "hp", "command"])
def test_usage_errors_are_told_without_a_traceback(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 2 and one line that says what to give."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.log").write_text("step=1 loss=0.5\n")
    assert main(["judge", "--out-dir", "out", *words]) == 2
    assert json.loads(capsys.readouterr().out)["error"]


@pytest.mark.parametrize("odd", [b"", b"\x00" * 100, b"\xff\xfe" * 50, b"step=1 loss=nan" * 90_000, b"{" * 5000])
def test_odd_logs_are_judged(odd: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No content of a log is a traceback, and none is GO."""
    (tmp_path / "a.log").write_bytes(odd)
    assert judge(capsys, tmp_path / "out", "--log", tmp_path / "a.log", "--exit-code", "0")["decision"] != "GO"


def test_log_older_than_the_launch_is_stale(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Last week's log is no evidence of a run launched since."""
    log = tmp_path / "a.log"
    log.write_bytes((RECORDED / "hf.log").read_bytes())
    os.utime(log, (time.time() - 7 * 86400,) * 2)
    answer = judge(capsys, tmp_path / "out", "--log", log, "--launched-at", str(time.time() - 3600))
    assert (answer["decision"], "stale-metrics" in codes(answer)) == ("NO-GO", True)


def test_named_samples_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--samples: the rollouts of a run that others made are measured as after a run of our own."""
    (tmp_path / "a.log").write_text("step=1 loss=0.5\n")
    (tmp_path / "samples.jsonl").write_text("".join(
        json.dumps({"step": step, "prompt": "1 + 1 =", "completion": "The answer is 2.", "reward": 1.0}) + "\n"
        for step in (1, 2)))
    judge(capsys, tmp_path / "out", "--log", tmp_path / "a.log", "--samples", tmp_path / "samples.jsonl")
    entry = next(e for e in read_journal(tmp_path / "out" / "journal.jsonl")[0] if e["event"] == "samples")
    assert (entry["rows"], entry["last"]["step"]) == (2, 2)


@pytest.mark.parametrize(("limit", "missed"), [("<=2", False), ("<=0.001", True)])
def test_judged_logs_are_held_against_bands_and_a_policy(
    limit: str, missed: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--expect and --policy count for what others ran, too; both stand in the request that is kept."""
    log = tmp_path / "train.log"
    log.write_text("".join(f"step {step}/20 loss {2 / step:.4f}\n" for step in range(1, 21)))
    policy = tmp_path / "policy.toml"
    policy.write_text("[thresholds]\nretry_rtol = 0.01\n")
    answer = judge(capsys, tmp_path / "out", "--log", log, "--exit-code", "0", "--expect", f"loss@20{limit}",
                   "--policy", policy)
    assert ("expect-out-of-band" in codes(answer)) is missed
    assert answer["decision"] == ("NO-GO" if missed else "CONDITIONAL")
    asked = json.loads((tmp_path / "out" / "run-spec.json").read_text())
    assert asked["thresholds"] == [["retry_rtol", 0.01]] and len(asked["policy_digest"]) == 64
    assert asked["policy"] == str(policy)


def test_metrics_beside_the_checkpoints_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--checkpoint-dir` alone names where they are; --metrics-dir counts where both are given."""
    saved = tmp_path / "saved"
    saved.mkdir()
    (saved / "metrics.jsonl").write_text("".join(
        json.dumps({"step": step, "loss": 1 / step}) + "\n" for step in range(1, 6)))
    log = tmp_path / "run.log"
    log.write_text("done\n")
    found = judge(capsys, tmp_path / "a", "--log", log, "--checkpoint-dir", saved, "--exit-code", "0")
    assert found["total_steps"] == 5 and found["final_metrics"]["loss"] == 0.2
    (tmp_path / "logs").mkdir()
    other = judge(capsys, tmp_path / "b", "--log", log, "--checkpoint-dir", saved, "--metrics-dir", tmp_path / "logs",
                  "--exit-code", "0")
    assert other["total_steps"] in (None, 0)
