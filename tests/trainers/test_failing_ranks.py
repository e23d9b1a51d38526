"""torchrun with two gloo ranks, one of which fails for real: the rank and the class are told from what is printed."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.client import ensure_run
from harness.diagnosis.report import diagnose, read_failure
from harness.spec import RunSpec

PROGRAM = Path(__file__).parent / "programs" / "failing_ranks.py"
HOWS = {
    "raise": ("process-crash", 1, "ValueError", "crashed"),
    "kill": ("oom", 1, "SIGKILL", "crashed"),
    "memory": ("oom", 1, "RuntimeError", "crashed"),
    "hang": ("nccl-distributed", 0, "RuntimeError", "hung"),
    "worker-raises": ("data-pipeline", 1, "ValueError", "crashed"),
    "worker-killed": ("data-pipeline", 1, "RuntimeError or ConnectionResetError", "crashed"),
}


def words(how: str, *flags: str) -> list[str]:
    """The command: torchrun of this environment, on a free port of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    return [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", port, *flags,
            str(PROGRAM), how]


@pytest.mark.parametrize("how", HOWS)
def test_failing_rank_is_named(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One merged log, under the supervisor, which writes the diagnosis."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    spec = RunSpec(train_cmd=shlex.join(words(how)), out_dir=tmp_path / "out", run_id="ranks", workdir=tmp_path)
    out_dir = ensure_run(spec, lambda line: None)
    found: dict[str, Any] | None = read_failure(out_dir, "ranks")
    assert found is not None
    cause, rank, kind, status = HOWS[how]
    causal = found["first_causal"]
    assert (found["primary_cause"], causal["rank"], found["run_status"]) == (cause, rank, status)
    assert causal["kind"] in kind.split(" or ")
    assert any("of 32" in entry["text"] for entry in found["evidence"] if entry["kind"] == "progress")
    if how == "hang":
        assert any(text.endswith("but 1") for text in found["contributing_factors"])


def test_log_directory_of_torchrun_is_read(tmp_path: Path) -> None:
    """--log-dir with --redirects: the rank is that of the file; the launcher's own output is not needed."""
    logs = tmp_path / "logs"
    subprocess.run(words("raise", "--log-dir", str(logs), "--redirects", "3"), cwd=tmp_path, check=False,
                   capture_output=True, timeout=120, env={**os.environ, "OMP_NUM_THREADS": "1"})
    found = diagnose([logs], out_dir=tmp_path)
    assert (found["first_causal"]["rank"], found["first_causal"]["kind"]) == (1, "ValueError")
    assert found["first_causal"]["file"].endswith("attempt_0/1/stderr.log")
