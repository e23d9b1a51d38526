"""torchrun with two gloo ranks, one of which fails for real: rank, class and first error are told from what is
printed; once the cause is gone, the same job is retried to GO, and its lineage keeps what failed before."""

from __future__ import annotations

import json
import os
import random
import secrets
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness.client import ensure_run, forget_session
from harness.diagnosis.report import diagnose, read_failure
from harness.record.files import read_json
from harness.spec import RunSpec

PROGRAM = Path(__file__).parent / "programs" / "failing_ranks.py"
BAD_ROW = 41


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """How the second rank fails, and what must be said of it."""

    fault: str
    cause: str
    kinds: tuple[str, ...]
    said: str
    """In the message of the first causal error."""
    rank: int = 1
    status: str = "crashed"
    raised: str = ""
    """The line of the program that the evidence names as the source."""
    flags: tuple[str, ...] = ()
    """What the retry changes beside, and that is capacity."""

    def __str__(self) -> str:
        return self.fault


FAILURES = (
    Failure(fault="raise", cause="process-crash", kinds=("RuntimeError",), said="the second rank gives up",
            raised='raise RuntimeError("the second rank gives up")'),
    Failure(fault="kill", cause="oom", kinds=("SIGKILL",), said="SIGKILL"),
    Failure(fault="memory", cause="oom", kinds=("RuntimeError",), said="you tried to allocate 21474836480 bytes",
            raised="torch.empty(20 << 30, dtype=torch.uint8)"),
    Failure(fault="hang", cause="nccl-distributed", kinds=("RuntimeError",), said="Timed out waiting", rank=0,
            status="hung"),
    Failure(fault="worker-killed", cause="data-pipeline", kinds=("RuntimeError", "ConnectionResetError"), said="",
            flags=("--num-workers", "0")),
)


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks that share two cores."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def words(*flags: str, launcher: tuple[str, ...] = ()) -> list[str]:
    """The command: torchrun of this environment."""
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *launcher,
            str(PROGRAM), "--rows", "rows.jsonl", "--max-steps", "32", "--log-dir", "events", *flags]


def write_rows(place: Path, *, whole: bool = True) -> None:
    """128 rows of a line; without `whole` one of the second rank's lacks its label."""
    draw, rows = random.Random(0), []
    for number in range(128):
        inputs = [draw.uniform(-1, 1) for _ in range(4)]
        rows.append({"inputs": inputs, "label": sum(inputs)} if whole or number != BAD_ROW else {"inputs": inputs})
    (place / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def run(place: Path, out: str, *flags: str, **spec: Any) -> dict[str, Any]:
    """Launch it under the supervisor; train-model.json."""
    session = secrets.token_hex(8)
    try:
        out_dir = ensure_run(RunSpec(
            train_cmd=shlex.join(words(*flags)), out_dir=place / out, run_id=f"ranks-{out}", workdir=place,
            session=session, metrics_dir=place / "events", **spec), lambda line: None)
    finally:
        forget_session(session)
    report: dict[str, Any] = read_json(out_dir / "train-model.json")
    return report


def failure_of(place: Path, out: str) -> dict[str, Any]:
    """check-failed-run.json, whose first causal error stands in the log at the line that it names."""
    found = read_failure(place / out, f"ranks-{out}")
    assert found is not None
    causal = found["first_causal"]
    line = (place / out / causal["file"]).read_text(errors="replace").splitlines()[causal["line"] - 1]
    assert causal["kind"] in line and (causal["kind"].startswith("SIG") or causal["message"][:40] in line), line
    return found


def codes(report: dict[str, Any]) -> set[str]:
    """Its reason codes."""
    return {reason["code"] for reason in report["evidence"]["reasons"]}


def assert_lineage(report: dict[str, Any], cause: str) -> dict[str, Any]:
    """GO at the second try; the first failure is kept with its cause."""
    assert (report["decision"], codes(report)) == ("GO", set()), report["summary"]
    lineage: dict[str, Any] = report["evidence"]["lineage"]
    assert (lineage["tries"], lineage["pass_at_1"], lineage["pass_at_k"]) == (2, False, True)
    assert (lineage["first_failure"]["run_id"], lineage["first_failure"]["primary_cause"]) == ("ranks-first", cause)
    return lineage


@pytest.mark.parametrize("case", FAILURES, ids=str)
def test_rank_that_fails_is_named_and_the_job_retried(case: Failure, tmp_path: Path) -> None:
    """The first error with its rank, its line in the log and in the program; then GO, with the same losses as far as
    the first run came."""
    write_rows(tmp_path)
    (tmp_path / "fault").write_text(case.fault)
    assert run(tmp_path, "first")["decision"] == "NO-GO"
    found = failure_of(tmp_path, "first")
    causal = found["first_causal"]
    assert (found["primary_cause"], causal["rank"], found["run_status"]) == (case.cause, case.rank, case.status)
    assert causal["kind"] in case.kinds and case.said in causal["message"]
    sources = [entry["text"] for entry in found["evidence"] if entry["kind"] == "source"]
    if case.raised:
        lines = [line.strip() for line in PROGRAM.read_text().splitlines()]
        assert sources == [f"raised at {PROGRAM}:{lines.index(case.raised) + 1}"]
    assert any("of 32" in entry["text"] for entry in found["evidence"] if entry["kind"] == "progress")
    if case.fault == "hang":
        assert any(text.endswith("but 1") for text in found["contributing_factors"])
    (tmp_path / "fault").unlink()
    report = run(tmp_path, "second", *case.flags, retry_of=tmp_path / "first")
    lineage = assert_lineage(report, case.cause)
    kinds = {change["key"]: change["kind"] for change in lineage["attempts"][-1]["changes"]}
    assert kinds == ({"num_workers": "capacity"} if case.flags else {})
    gate = next(gate for gate in report["evidence"]["gates"] if gate["name"] == "retry")
    compared = next(check for check in gate["checks"] if check["name"] == "metrics")
    assert compared["status"] == "passed" and "exactly equal" in compared["observed"], compared


def test_row_that_a_worker_cannot_read_is_mended_and_retried(tmp_path: Path) -> None:
    """The KeyError of the second rank's DataLoader worker. Unchanged, the retry is pointless; with the row mended it
    has other data, which a person approves; with both it is GO."""
    write_rows(tmp_path, whole=False)
    assert run(tmp_path, "first")["decision"] == "NO-GO"
    found = failure_of(tmp_path, "first")
    assert (found["primary_cause"], found["first_causal"]["rank"], found["first_causal"]["kind"]) == (
        "data-pipeline", 1, "KeyError")
    refused = run(tmp_path, "unchanged", retry_of=tmp_path / "first")
    assert (codes(refused), refused["evidence"]["attempts"]) == ({"retry-pointless"}, [])
    refusal = read_failure(tmp_path / "unchanged", "ranks-unchanged")
    assert refusal is not None and refusal["primary_cause"] == "config-error"
    write_rows(tmp_path)
    assert codes(run(tmp_path, "mended", retry_of=tmp_path / "first")) == {"retry-identity-differs"}
    report = run(tmp_path, "second", retry_of=tmp_path / "first", approve=("files",))
    lineage = assert_lineage(report, "data-pipeline")
    assert [(item["what"], item["approved"]) for item in lineage["attempts"][-1]["identity"]] == [("files", True)]


def test_log_directory_of_torchrun_is_read(tmp_path: Path) -> None:
    """--log-dir with --redirects: the rank is that of the file; the launcher's own output is not needed."""
    write_rows(tmp_path)
    (tmp_path / "fault").write_text("raise")
    logs = tmp_path / "logs"
    subprocess.run(words(launcher=("--log-dir", str(logs), "--redirects", "3")), cwd=tmp_path, check=False,
                   capture_output=True, timeout=400, env={**os.environ})
    found = diagnose([logs], out_dir=tmp_path)
    assert (found["first_causal"]["rank"], found["first_causal"]["kind"]) == (1, "RuntimeError")
    assert found["first_causal"]["file"].endswith("attempt_0/1/stderr.log")
