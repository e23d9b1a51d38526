"""check-failed-run.json: its schema, its order of fixes, its quotes, and the command that writes it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from harness.cli import main
from harness.diagnosis.facts import RunFacts
from harness.diagnosis.fixes import FIXES
from harness.diagnosis.report import diagnose, overrides_of, read_failure, write_failure
from harness.judge.report import build_report, write_report
from harness.judge.summary import render_summary
from harness.record.journal import Journal
from harness.record.schemas import schema_problems
from harness.record.vocabulary import AnomalyType
from tests.unit.diagnosis.rule_logs import OOM, TRAIN, raised
from tests.unit.run_dirs import RunDir

CASES = Path(__file__).parents[1] / "cases"
LOGS = Path(__file__).parent / "logs"
CASE_04 = CASES / "04-areno-first-worker-oom" / "log.txt"
RISKS = ["safe", "needs-approval", "dangerous"]


def of(tmp_path: Path, *paths: Path, **given: Any) -> dict[str, Any]:
    """The document that was written, which meets its schema."""
    document = diagnose(list(paths), out_dir=tmp_path / "out", **given)
    written = json.loads((tmp_path / "out" / "check-failed-run.json").read_text(encoding="utf-8"))
    assert written == document
    assert schema_problems(written, "check-failed-run.json") == []
    return document


def test_quotes_have_file_line_and_text(tmp_path: Path) -> None:
    """Each quoted line stands in its file at its number."""
    document = of(tmp_path, CASE_04)
    lines = CASE_04.read_text().splitlines()
    quoted = [entry for entry in document["evidence"] if entry["line"] is not None]
    assert len(quoted) > 5
    assert all(entry["text"] in lines[entry["line"] - 1] and entry["file"] == str(CASE_04) for entry in quoted)
    assert {entry["kind"] for entry in document["evidence"]} >= {"cause", "source", "progress", "ruled-out"}


def test_fixes_come_by_impact_then_risk(tmp_path: Path) -> None:
    """None of the fixes for memory is safe, so that a person decides; the token limits stand last."""
    document = of(tmp_path, CASE_04)
    assert document["decision"] == "NO-GO"
    assert all(fix["risk"] != "safe" for fix in document["fixes"])
    assert document["fixes"][-1]["risk"] == "dangerous"
    impact = {fix.action: fix.impact for fix in FIXES.values()}
    keys = [(-impact[fix["action"]], RISKS.index(fix["risk"])) for fix in document["fixes"]]
    assert keys == sorted(keys)


@pytest.mark.parametrize(("name", "decision"), [
    ("recorded/areno-failures/modelscope-unreachable.log", "GO"),
    ("recorded/areno-failures/reward-indexerror.log", "NO-GO"),
    ("40-exit-code-zero-lies/handler.txt", "GO"),
])
def test_go_means_that_a_safe_way_exists(name: str, decision: str, tmp_path: Path) -> None:
    """A relaunch after an unreachable hub or a preemption; a reward function is mended by a person."""
    assert of(tmp_path, CASES / name, exit_code=1)["decision"] == decision


def test_suspected_is_less_sure_than_confirmed(tmp_path: Path) -> None:
    """Case 31 without and with the kernel's log."""
    case = CASES / "31-elastic-sigkill-rank3"
    without = of(tmp_path, case / "log.txt")
    confirmed = of(tmp_path, case / "log.txt", dmesg=case / "dmesg.txt")
    assert "suspected" in without["root_cause"] and "confirmed" in confirmed["root_cause"]
    assert without["primary_cause_confidence"] < 0.7 < 0.9 < confirmed["primary_cause_confidence"]
    assert "CUDA" not in without["root_cause"]
    assert "confirmation" in {entry["kind"] for entry in confirmed["evidence"]}


def test_thin_evidence_lowers_the_confidence(tmp_path: Path) -> None:
    """A lone timeout of a collective is a consequence of what is not in the log."""
    log = tmp_path / "a.log"
    log.write_text(raised("RuntimeError: Timed out waiting 1800000ms for recv operation to complete"))
    document = of(tmp_path, log)
    assert document["primary_cause_confidence"] <= 0.5
    assert document["run_status"] == "hung"
    assert any("consequence" in text for text in document["contributing_factors"])


def test_unknown_is_said(tmp_path: Path) -> None:
    """No evidence, no cause, and what to give next."""
    log = tmp_path / "a.log"
    log.write_text("step 1/9 loss 1.0\n")
    document = of(tmp_path, log, exit_code=1)
    assert (document["primary_cause"], document["primary_cause_confidence"]) == ("unknown", 0.0)
    assert document["first_causal"] is None and document["fixes"] == []
    assert document["next_commands"]


def test_recovered_run_says_what_it_ran_with(tmp_path: Path) -> None:
    """Case 37: the batch size that was used, since it is not the one that was asked for."""
    document = of(tmp_path, CASES / "37-oom-recovered" / "recovered.txt", exit_code=0)
    assert (document["run_status"], document["decision"], document["first_causal"]) == ("recovered", "GO", None)
    assert "effective per-device batch size 8 (requested 32)" in document["contributing_factors"]


def test_progress_and_trajectory_before_the_failure(tmp_path: Path) -> None:
    """The last steps and their losses, as the log has them."""
    document = of(tmp_path, CASES / "40-exit-code-zero-lies" / "slurm_oom.txt", exit_code=0)
    texts = [entry["text"] for entry in document["evidence"] if entry["kind"] in ("progress", "trajectory")]
    assert texts[0] == "last progress: step 640 of 1000"
    assert texts[-1] == "step 640: loss=1.72"


def test_exact_command_halves_what_the_command_holds() -> None:
    """The override is worked out from the command itself; AReno's microbatch and Transformers'. What is another job
    then says that it was approved."""
    fix = FIXES["smaller-microbatch"]
    assert overrides_of(fix, "train.py --per_device_train_batch_size 8 --lr 1") == (
        " --hp per_device_train_batch_size=4 --hp gradient_accumulation_steps=2")
    assert overrides_of(fix, "train.py --per_device_train_batch_size=8 --gradient_accumulation_steps 4").endswith("=8")
    assert overrides_of(FIXES["fewer-running-prompts"], "areno train --max-running-prompts 64") == (
        " --hp max_running_prompts=32")
    assert overrides_of(FIXES["lower-lr"], "train.py --learning-rate 1e-4") == (
        " --hp learning_rate=5e-05 --approve learning_rate")
    assert overrides_of(FIXES["lower-lr"], "train.py --lr=0.3 --epochs 2") == " --hp lr=0.15 --approve lr"
    assert overrides_of(FIXES["lower-token-limit"], "areno train --max-new-tokens 512") == (
        " --hp max_new_tokens=256 --approve max_new_tokens")
    assert overrides_of(fix, "train.py --batch 8") == "" == overrides_of(fix, None)
    assert RunFacts().command is None


def test_fixes_that_run_the_job_again_are_retries_of_it(tmp_path: Path) -> None:
    """The run's own request is restated; a refused retry names the run that it was to retry; what others started, and
    what only a log tells of, has no lineage to join."""
    out_dir = RunDir(exit_code=1, spec={"max_steps": 10, "probe": False, "require_gpu": True, "cap": "harness"}).write(
        tmp_path / "run")
    words = shlex.split(diagnose([out_dir], exit_code=-11)["next_commands"][0])
    assert words[0] == "PYTHONFAULTHANDLER=1" and words[words.index("--retry-of") + 1] == str(out_dir)
    assert words[words.index("--out-dir") + 1] == str(out_dir)
    assert words[words.index("--max-steps") + 1] == "10" and words[words.index("--cap") + 1] == "harness"
    assert {"--no-probe", "--require-gpu"} <= set(words) and words[-2:] == ["--train-cmd", "python train.py"]
    nan = RunDir(loss=(float("nan"),) * 10, argv=("python", "train.py", "--lr", "0.5"), spec={"hp": ("lr=0.5", "wd=0")})
    write_report(nan.write(tmp_path / "nan"))
    words = shlex.split(diagnose([tmp_path / "nan"])["next_commands"][-1])
    assert words[-4:] == ["--hp", "lr=0.25", "--approve", "lr"] and "wd=0" in words and "lr=0.5" not in words
    judged = RunDir(exit_code=1, spec={"policy": tmp_path / "policy.toml", "reload_with": "/w/use.py:check",
                                       "reload_timeout_s": 90.0, "eval_check": True}).write(tmp_path / "judged")
    words = shlex.split(diagnose([judged], exit_code=-11)["next_commands"][0])
    for option, value in (("--policy", str(tmp_path / "policy.toml")), ("--reload-with", "/w/use.py:check"),
                          ("--reload-timeout", "90")):
        assert words[words.index(option) + 1] == value
    assert "--eval-check" in words
    attached = RunDir(exit_code=1, spec={"attach": "pid:1"}).write(tmp_path / "attached")
    assert "--retry-of" not in str(diagnose([attached], exit_code=-11)["next_commands"])


def test_secrets_are_masked(tmp_path: Path) -> None:
    """A token of unmistakable format in a quoted line."""
    log = tmp_path / "a.log"
    log.write_text(raised("RuntimeError: bad token hf_" + "AbCdEfGhIjKlMnOpQrStUvWxYz0123456789"))
    of(tmp_path, log)
    assert "AbCdEfGhIjKl" not in (tmp_path / "out" / "check-failed-run.json").read_text()


@pytest.mark.parametrize("words", [["/no/such.log"], [str(CASE_04), "--dmesg", "/no/such"], ["{empty}"]])
def test_paths_that_are_not_there_are_usage_errors(words: list[str], tmp_path: Path, capsys: Any) -> None:
    """Exit code 2 and a message, no traceback."""
    code = main(["diagnose", *(word.format(empty=tmp_path) for word in words), "--out-dir", str(tmp_path / "out")])
    assert code == 2
    assert json.loads(capsys.readouterr().out)["error"]


def test_command_prints_and_writes(tmp_path: Path, capsys: Any) -> None:
    """Exit code 0 where the cause is known; --run-id and --out-dir are kept."""
    code = main(["diagnose", str(CASE_04), "--exit-code", "1", "--out-dir", str(tmp_path), "--run-id", "r7"])
    printed = json.loads(capsys.readouterr().out)
    assert code == 0 and printed["ok"]
    assert printed["path"] == str(tmp_path / "check-failed-run.json")
    assert read_failure(tmp_path, "r7") is not None and read_failure(tmp_path, "other") is None


def test_values_that_are_not_finite_are_named_from_the_metrics(tmp_path: Path) -> None:
    """Exit code 0, nothing in the log, NaN in the metric store."""
    out_dir = RunDir(loss=(3.0, float("nan"), *((1.0,) * 8))).write(tmp_path)
    write_report(out_dir)
    report = build_report(out_dir)
    document = read_failure(out_dir, report["run_id"])
    assert document is not None
    assert (document["primary_cause"], document["run_status"]) == ("nan-inf", "diverged")
    assert document["first_causal"]["kind"] == "loss-not-finite"
    assert "train/loss=nan at step 2" in document["first_causal"]["message"]
    assert any("step 10" in entry["text"] for entry in document["evidence"] if entry["kind"] == "trajectory")
    assert "Root cause (nan-inf" in render_summary(report, out_dir, document)


STOPPED = {
    "nan-inf": ("nan-inf", "diverged"), "oom": ("oom", "degraded"),
    "divergence": ("optimization-divergence", "diverged"),
    "gradient-explosion": ("optimization-divergence", "diverged"), "stalled": ("stalled", "hung"),
    "slow-throughput": ("stalled", "hung"), "crash": ("process-crash", "degraded"),
    "checkpoint-failure": ("io-checkpoint", "degraded"),
}


@pytest.mark.parametrize("kind", AnomalyType, ids=lambda kind: kind.value)
def test_run_that_an_anomaly_stopped_is_diagnosed_by_it(kind: AnomalyType, tmp_path: Path) -> None:
    """--stop-on: the anomaly that ended the run, with its step, not the signal that followed; another one is none."""
    out_dir = RunDir(exit_code=-15, signal="SIGTERM", stop_reason="stop-on").write(tmp_path)
    entry = {"severity": "high", "state": "open", "ended_step": None, "why": None}
    other = next(one for one in AnomalyType if one is not kind)
    with Journal(out_dir / "journal.jsonl") as journal:
        journal.write("anomaly", anomaly=1, type=other.value, step=3, description="seen and left",
                      action_taken="recorded", **entry)
        journal.write("anomaly", anomaly=2, type=kind.value, step=7, description="it went wrong",
                      action_taken=f"the run was stopped (--stop-on {kind.value})", **entry)
    write_report(out_dir)
    document = read_failure(out_dir, "made")
    assert document is not None
    assert (document["primary_cause"], document["run_status"]) == STOPPED[kind.value]
    assert document["first_causal"]["kind"] == f"stopped-on-{kind.value}"
    assert document["first_causal"]["message"] == "step 7: it went wrong"
    assert document["next_commands"]


def test_run_that_was_stopped_right_after_its_error_has_not_crashed(tmp_path: Path) -> None:
    """The lines of the error are the cause where no step followed them; the end was ours."""
    out_dir = RunDir(exit_code=-15, signal="SIGTERM", stop_reason="stop-on").write(tmp_path)
    (out_dir / "train.log").write_text(
        'step=7 loss=0.5\nTraceback (most recent call last):\n  File "train.py", line 3, in step\n    raise\n'
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
    with Journal(out_dir / "journal.jsonl") as journal:
        journal.write("anomaly", anomaly=1, type="oom", severity="high", state="open", ended_step=None, why=None,
                      step=7, description="accelerator memory", action_taken="the run was stopped (--stop-on oom)")
    write_report(out_dir)
    document = read_failure(out_dir, "made")
    assert document is not None
    assert (document["primary_cause"], document["run_status"]) == ("oom", "degraded")
    assert document["first_causal"]["kind"] == "torch.OutOfMemoryError"


@pytest.mark.parametrize(("line", "exit_code"), [
    ("slurmstepd: error: *** JOB 77 ON n3 CANCELLED AT 2026-01-10T04:12:00 DUE TO PREEMPTION ***\n", 143),
    ("slurmstepd: error: *** JOB 77 ON n3 CANCELLED AT 2026-01-10T04:12:00 DUE TO TIME LIMIT ***\n", 143), ("", -15)])
def test_interrupted_run_has_not_crashed(line: str, exit_code: int, tmp_path: Path) -> None:
    """Of evidence.md's five words for the state of a run, `degraded` says that it was ended without its own fault."""
    log = tmp_path / "a.log"
    log.write_text("step 3/9 loss 1.0\n" + line)
    document = of(tmp_path, log, exit_code=exit_code)
    assert (document["primary_cause"], document["run_status"]) == ("interrupted", "degraded")


def test_smoke_that_failed_is_diagnosed_by_its_own_log(tmp_path: Path) -> None:
    """Nothing was launched behind it: its log and its exit code are what there is."""
    out_dir = RunDir().write(tmp_path)
    lines = [line for line in (out_dir / "journal.jsonl").read_text().splitlines() if '"attempt-' not in line]
    (out_dir / "journal.jsonl").write_text("\n".join(lines) + "\n")
    with Journal(out_dir / "journal.jsonl") as journal:
        journal.write("smoke", name="train", exit_code=1, signal=None, seconds=1.0, log="smoke/train/output.log",
                      problem="", proposals=[])
    (out_dir / "smoke" / "train").mkdir(parents=True)
    (out_dir / "smoke" / "train" / "output.log").write_text(raised(OOM, TRAIN))
    document = diagnose([out_dir])
    assert (document["primary_cause"], document["run_status"]) == ("oom", "crashed")
    assert document["first_causal"]["file"] == "smoke/train/output.log"


def test_healthy_run_is_not_diagnosed(tmp_path: Path) -> None:
    """GO: no document is written."""
    out_dir = RunDir().write(tmp_path)
    assert write_failure(out_dir, build_report(out_dir)) is None
    assert not (out_dir / "check-failed-run.json").exists()


def test_damaged_out_dir_is_diagnosed_as_far_as_it_goes(tmp_path: Path) -> None:
    """A journal of nonsense and a log: the log is read."""
    (tmp_path / "journal.jsonl").write_text("{\n[]\n")
    (tmp_path / "train.log").write_text(raised(OOM, TRAIN))
    assert diagnose([tmp_path])["primary_cause"] == "oom"


def test_launcher_alone_names_the_rank_that_ended_by_itself(tmp_path: Path) -> None:
    """torchrun's own output, the ranks' being elsewhere: the one that exited, not the one that it then ended; what
    ended it is in another log, which is asked for."""
    document = of(tmp_path, LOGS / "rule-worker-exit.log", exit_code=1)
    assert (document["primary_cause"], document["first_causal"]["rank"], document["decision"]) == (
        "process-crash", 1, "NO-GO")
    assert document["primary_cause_confidence"] <= 0.4
    assert any("terminated of rank 0" in entry["note"] for entry in document["evidence"])


def test_quoted_frames_are_code(tmp_path: Path) -> None:
    """Not the marks that Python puts below it."""
    document = of(tmp_path, LOGS / "rule-dataset-schema.log", exit_code=1)
    frames = [entry["text"] for entry in document["evidence"] if entry["note"] == "frame"]
    assert frames[-1] == "def __getitem__(self, index): return {'text': 1}['labels']"


def expected(case: str) -> Any:
    """The right values of a case."""
    return json.loads((CASES / case / "expected.json").read_text(encoding="utf-8"))


def ranks_of(document: dict[str, Any], rule: str) -> list[int]:
    """Ranks whose event of a rule is told to follow from the cause."""
    notes = [entry["note"] for entry in document["evidence"] if entry["kind"] == "ruled-out"]
    return sorted({int(note.split()[3]) for note in notes if note.startswith(f"{rule} of rank ")})


def texts(document: dict[str, Any], kind: str) -> list[str]:
    """The evidence of a kind."""
    return [entry["text"] for entry in document["evidence"] if entry["kind"] == kind]


def test_document_of_case_04(tmp_path: Path) -> None:
    """Rank, kind, time and class of the first error; the watchdogs follow; the advice is about memory."""
    right = expected("04-areno-first-worker-oom")
    document = of(tmp_path, CASE_04)
    causal = document["first_causal"]
    assert {key: causal[key] for key in ("rank", "kind", "time")} == {
        key: right["first_causal"][key] for key in ("rank", "kind", "time")}
    assert (document["primary_cause"], right["first_causal"]["class"]) == ("oom", "oom_gpu")
    assert "accelerator memory" in document["root_cause"]
    assert ranks_of(document, "nccl-watchdog") == ranks_of(document, "peer-gone") == right["secondary_ranks"]
    assert not any("NCCL" in fix["action"] or "collective" in fix["action"] for fix in document["fixes"])


def test_document_of_case_19(tmp_path: Path) -> None:
    """Requeued and completed: a note about the preemption, no failure."""
    right = expected("19-resume-overlap-after-requeue")
    document = of(tmp_path, CASES / "19-resume-overlap-after-requeue" / "slurm-77.out", exit_code=0)
    assert (document["run_status"], document["decision"], right["verdict"]) == ("recovered", "GO", "completed")
    assert texts(document, "progress") == [f"last progress: step {right['last_step']} of 500"]
    assert document["contributing_factors"] == [f"recovered from preempted: {right['preempted_attempts']} time(s)"]


@pytest.mark.parametrize("kernel", [False, True])
def test_document_of_case_31(kernel: bool, tmp_path: Path) -> None:
    """Rank and signal; suspected or confirmed; the others were ended after it; the advice is about host memory."""
    right = expected("31-elastic-sigkill-rank3")
    case = CASES / "31-elastic-sigkill-rank3"
    document = of(tmp_path, case / "log.txt", **({"dmesg": case / "dmesg.txt"} if kernel else {}))
    causal = document["first_causal"]
    assert (causal["rank"], causal["kind"], document["primary_cause"]) == (right["root_rank"], right["signal"], "oom")
    assert right["certainty_with_dmesg" if kernel else "certainty_without_dmesg"] in document["root_cause"]
    assert ranks_of(document, "terminated") == [0, 1, 2]
    actions = " ".join(fix["action"] for fix in document["fixes"])
    assert right["class"] == "host_oom" and "host memory" in actions and "microbatch" not in actions


def test_document_of_case_32(tmp_path: Path) -> None:
    """The ValueError ten minutes before the rank that was observed first; the rank that did not time out."""
    right = expected("32-elastic-observed-is-not-causal")
    document = of(tmp_path, CASES / "32-elastic-observed-is-not-causal" / "log.txt")
    causal = document["first_causal"]
    assert (causal["rank"], causal["kind"]) == (right["first_causal"]["rank"], right["first_causal"]["kind"])
    assert (causal["message"], causal["time"][:19]) == ("sample 4711 has no labels", "2026-01-10 03:49:50")
    assert (document["primary_cause"], right["first_causal"]["class"]) == ("data-pipeline", "data")
    assert ranks_of(document, "nccl-watchdog") == [0, 1, 3]
    observed = [entry["note"] for entry in document["evidence"] if "observed rank" in entry["note"]]
    assert len(observed) == 1 and f"observed rank {right['elastic_root_rank']} first" in observed[0]
    assert document["contributing_factors"] == ["every rank timed out in the collective but 2"]


def test_document_of_case_37(tmp_path: Path) -> None:
    """The first OutOfMemoryError of a search that found nothing, not the summary; the recovered one is told above."""
    right = expected("37-oom-recovered")["exhausted.txt"]
    document = of(tmp_path, CASES / "37-oom-recovered" / "exhausted.txt", exit_code=1)
    assert (document["run_status"], right["verdict"]) == ("crashed", "failed")
    assert (document["primary_cause"], right["class"]) == ("oom", "oom_gpu")
    assert (document["first_causal"]["kind"], document["first_causal"]["line"]) == ("torch.cuda.OutOfMemoryError", 3)


@pytest.mark.parametrize(("name", "cause", "status"), [
    ("slurm_oom.txt", "oom", "crashed"), ("tee.txt", "data-pipeline", "crashed"),
    ("handler.txt", "interrupted", "degraded")])
def test_document_of_case_40(name: str, cause: str, status: str, tmp_path: Path) -> None:
    """Exit code 0 behind each: class, first error, last and planned step."""
    right = expected("40-exit-code-zero-lies")[name]
    document = of(tmp_path, CASES / "40-exit-code-zero-lies" / name, exit_code=0)
    assert (document["primary_cause"], document["run_status"]) == (cause, status)
    assert (right["verdict"] == "interrupted") == (cause == "interrupted")
    assert any("exit code is 0" in text for text in document["contributing_factors"])
    if "class" in right:
        assert right["class"] == "host_oom" and document["root_cause"].startswith("The host ran out of memory")
    if "last_step" in right:
        assert texts(document, "progress") == [f"last progress: step {right['last_step']} of {right['planned']}"]
    if "first_causal" in right:
        assert f"{document['first_causal']['kind']}: {document['first_causal']['message']}" == right["first_causal"]


@pytest.mark.parametrize(("name", "cause", "said"), [
    ("gspo-no-loader.log", "data-pipeline", "AReno: dataset"),
    ("reward-indexerror.log", "data-pipeline", "AReno: reward"),
    ("modelscope-unreachable.log", "cloud-permissions-quota", "hub cannot be reached")])
def test_documents_of_recorded_areno_failures(name: str, cause: str, said: str, tmp_path: Path) -> None:
    """Each by its stage."""
    document = of(tmp_path, CASES / "recorded" / "areno-failures" / name, exit_code=1)
    assert (document["primary_cause"], document["run_status"]) == (cause, "crashed")
    assert said in document["root_cause"]
