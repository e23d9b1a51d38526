"""Runs that fail for real, each diagnosed by the supervisor beside its verdict."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.client import ensure_run
from harness.record.schemas import schema_problems
from harness.spec import RunSpec
from tests.plugin.conftest import Project


def failure(project: Project) -> dict[str, Any]:
    """check-failed-run.json of the project's run."""
    found: dict[str, Any] = json.loads((project.out_dir / "check-failed-run.json").read_text())
    assert schema_problems(found, "check-failed-run.json") == []
    return found


def script(project: Project, text: str) -> str:
    """The command of a program written for one test."""
    (project.path / "train.py").write_text(text)
    return shlex.join([sys.executable, "train.py"])


BEGIN = """import os, signal, sys, time
print("step 1/10 loss 2.5", flush=True)
print("step 2/10 loss 2.1", flush=True)
"""
PROGRAMS = {
    "exception": (BEGIN + "raise RuntimeError('told to fail')", "process-crash", "RuntimeError", "crashed"),
    "killed": (BEGIN + "os.kill(os.getpid(), signal.SIGKILL)", "oom", "SIGKILL", "crashed"),
    "bus": (BEGIN + "os.kill(os.getpid(), signal.SIGBUS)", "data-pipeline", "SIGBUS", "crashed"),
    "segfault": (BEGIN + "os.kill(os.getpid(), signal.SIGSEGV)", "process-crash", "SIGSEGV", "crashed"),
    "module": ("import no_such_module_here", "config-error", "ModuleNotFoundError", "crashed"),
    "host-memory": ("import resource\nresource.setrlimit(resource.RLIMIT_AS, (400 << 20,) * 2)\n" + BEGIN +
                    "rows = bytearray(2 << 30)", "oom", "MemoryError", "crashed"),
    "nan": (BEGIN + "loss = float('nan')\nprint('step 3/10 loss nan', flush=True)\n"
            "raise FloatingPointError('loss is nan at step 3')", "nan-inf", "FloatingPointError", "diverged"),
    "pipe": (BEGIN + "import subprocess\n"
             "subprocess.run([sys.executable, '-c', \"{}['labels']\"])\nsys.exit(0)",
             "process-crash", "KeyError", "crashed"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_that_fails_is_diagnosed(project: Project, name: str) -> None:
    """The cause, the first causal error and the run_id of the verdict, on a run made for it."""
    text, cause, kind, status = PROGRAMS[name]
    spec = RunSpec(train_cmd=script(project, text), out_dir=project.out_dir, run_id="failing", workdir=project.path)
    ensure_run(spec, lambda line: None)
    found = failure(project)
    assert (found["primary_cause"], found["first_causal"]["kind"], found["run_status"]) == (cause, kind, status)
    assert found["run_id"] == project.report()["run_id"] == "failing"


def test_wrong_flag_is_a_configuration_error(project: Project) -> None:
    """argparse's refusal, not the exit code that follows."""
    done = project.run("--train-cmd", project.toy("--no-such-flag"))
    found = failure(project)
    assert "Root cause (config-error" in done.stdout and "Approved actions:" in done.stdout
    assert found["primary_cause"] == "config-error"
    assert "--no-such-flag" in found["first_causal"]["message"]
    assert found["next_commands"][0].startswith("pytest ")


def test_next_command_retries_the_run_as_it_was_asked_for(project: Project) -> None:
    """As it is printed: the same job with what the harness was told, in the same out-dir; GO with its lineage."""
    command = project.toy("--crash-at", "8", "--crash-how", "SIGKILL")
    failed = project.run("--train-cmd", command, "--hp", "lr=0.2", "--max-steps", "16", "--metrics-dir", "events",
                         "--expect", "loss@16<=5", "--stop-on", "oom", "--no-fix", "--run-id", "first")
    assert failed.returncode == 1
    again = next(item for item in failure(project)["next_commands"] if item.startswith("pytest "))
    done = subprocess.run([sys.executable, "-m", *shlex.split(again)], cwd=project.path, text=True, timeout=180,
                          capture_output=True, check=False)
    report = project.report()
    assert (done.returncode, report["decision"]) == (0, "GO"), done.stdout
    asked = json.loads((project.out_dir / "run-spec.json").read_text())
    assert (asked["max_steps"], asked["hp"], asked["fix"], asked["stop_on"]) == (16, ["lr=0.2"], False, ["oom"])
    assert [band["upper"] for band in asked["expect"]] == [5]
    lineage = report["evidence"]["lineage"]
    assert (lineage["first_failure"]["run_id"], lineage["tries"], lineage["pass_at_k"]) == ("first", 2, True)
    assert Path(lineage["attempts"][0]["out_dir"]) == project.out_dir / "attempts" / "first"


def test_run_that_stands_still_is_stalled(project: Project) -> None:
    """Its time is up, and nothing in the log says why."""
    project.run("--train-cmd", script(project, BEGIN + "time.sleep(600)"), "--run-timeout", "8")
    found = failure(project)
    assert (found["primary_cause"], found["run_status"]) == ("stalled", "hung")
    assert any("step 2 of 10" in entry["text"] for entry in found["evidence"])


def test_healthy_run_has_no_diagnosis(project: Project) -> None:
    """Nothing failed, so nothing is written."""
    assert project.run("--train-cmd", project.toy()).returncode == 0
    assert not (project.out_dir / "check-failed-run.json").exists()


def test_verify_writes_a_diagnosis_that_is_missing(project: Project) -> None:
    """The same one, from the out-dir alone."""
    project.run("--train-cmd", project.toy("--fail"))
    first = failure(project)
    (project.out_dir / "check-failed-run.json").unlink()
    project.harness("verify", str(project.out_dir))
    assert failure(project) == first


def test_diagnosis_of_an_out_dir_is_written_into_it(project: Project) -> None:
    """`python -m harness diagnose OUT_DIR`: exit code and run_id come from the journal."""
    project.run("--train-cmd", project.toy("--fail"))
    code, answer = project.harness("diagnose", str(project.out_dir))
    assert (code, answer["ok"], answer["primary_cause"]) == (0, True, "process-crash")
    assert answer["run_id"] == project.report()["run_id"]
    assert Path(answer["path"]).parent == project.out_dir


def test_secret_in_a_message_reaches_no_diagnosis(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token of the environment that an exception prints."""
    secret = "s3cr3t-value-of-this-run"
    monkeypatch.setenv("MY_HUB_TOKEN", secret)
    project.run("--train-cmd", script(project, BEGIN + "raise RuntimeError(os.environ['MY_HUB_TOKEN'])"))
    assert secret not in (project.out_dir / "check-failed-run.json").read_text()
