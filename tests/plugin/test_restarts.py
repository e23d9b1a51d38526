"""Policy: only what infrastructure ended is launched again, unchanged, three times at most."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from harness.diagnosis.infrastructure import infrastructure_cause

from .conftest import Project, reasons, wait_until

TRACE = "Traceback (most recent call last):\n  File \"train.py\", line 1, in <module>\n"
INFRASTRUCTURE = {
    "preempted": [
        "slurmstepd: error: *** JOB 77 ON n3 CANCELLED AT 2026-01-05T10:00:00 DUE TO PREEMPTION ***",
        "slurmstepd: error: *** JOB 7 ON n3 CANCELLED DUE TO PREEMPTION ***\n" + TRACE + "KeyboardInterrupt",
        "2026-01-05 job was preempted by a job of higher priority",
    ],
    "node-failure": [
        "srun: error: Node failure on n4\nslurmstepd: error: *** STEP 7.0 ON n4 CANCELLED DUE TO NODE FAILURE ***",
        TRACE + "RuntimeError: DataLoader worker (pid 7) exited unexpectedly\nsrun: error: Node failure on n4",
    ],
    "node-died": [
        TRACE + "ray.exceptions.NodeDiedError: the node of this task has died",
    ],
    "connection-lost": [
        TRACE + "ConnectionResetError: [Errno 104] Connection reset by peer",
        TRACE + "requests.exceptions.ConnectionError: ('Connection aborted.', RemoteDisconnected('Remote end closed'))",
        TRACE + "requests.exceptions.ChunkedEncodingError: ('Connection broken: IncompleteRead(3 bytes read)')",
    ],
    "hub-unreachable": [
        TRACE + "OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them",
        TRACE + "socket.gaierror: [Errno -3] Temporary failure in name resolution\n\x1b[31mcleaning up\x1b[0m",
        TRACE + "requests.exceptions.ReadTimeout: HTTPSConnectionPool(host='h', port=443): Read timed out.",
        TRACE + "huggingface_hub.errors.HfHubHTTPError: 504 Server Error: Gateway Time-out for url: https://h/m",
        TRACE + "google.api_core.exceptions.DeadlineExceeded: 504 Deadline Exceeded: the hub's deadline exceeded",
    ],
}
NEVER = {
    "nothing": "",
    "a Python exception": TRACE + "ValueError: bad shape",
    "a data error": TRACE + "KeyError: 'prompt'",
    "a NaN": "step 4 loss: nan\n" + TRACE + "ConnectionResetError: Connection reset by peer",
    "out of memory": TRACE + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
    "the kernel's OOM killer": "slurmstepd: error: Detected 1 oom-kill event(s)\nJOB 7 CANCELLED DUE TO PREEMPTION",
    "a time limit": "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 10:00 DUE TO TIME LIMIT ***",
    "a wrong address": TRACE + "requests.exceptions.ConnectionError: [Errno 111] Connection refused",
    "a missing right": TRACE + "requests.exceptions.HTTPError: 403 Client Error: Forbidden for url: https://h",
    "a missing model": TRACE + "huggingface_hub.errors.HfHubHTTPError: 404 Client Error: Not Found",
    "another rank's death": TRACE + "torch.distributed.DistBackendError: NCCL error: Connection reset by peer",
    "a survived exception": TRACE + "ConnectionResetError: reset\n" + TRACE + "RuntimeError: shapes differ",
    "talk of preemption": "preemption checkpointing is enabled\n" + TRACE + "RuntimeError: shapes differ",
    "an offline environment": TRACE + "huggingface_hub.errors.OfflineModeIsEnabled: offline mode is enabled.",
    "a dead worker's pipe": TRACE.replace("train.py", "/usr/lib/python3.11/multiprocessing/connection.py")
        + "ConnectionResetError: [Errno 104] Connection reset by peer",
    "a taken port": TRACE + "OSError: [Errno 98] Address already in use",
    "a full disk": TRACE + "OSError: [Errno 28] No space left on device",
    "a broken driver": TRACE + "RuntimeError: CUDA error: unspecified launch failure",
}


@pytest.mark.parametrize(("name", "tail"), [(name, tail) for name, tails in INFRASTRUCTURE.items() for tail in tails])
def test_infrastructure_is_told(name: str, tail: str, tmp_path: Path) -> None:
    """By what the scheduler or the last exception says; an exit code 0 has no cause."""
    log = tmp_path / "train.log"
    log.write_text(f"step=1 loss=0.3\n{tail}\n", encoding="utf-8")
    found = infrastructure_cause(1, None, log)
    assert found is not None
    assert found.name == name
    assert found.line in tail
    assert infrastructure_cause(0, None, log) is None


@pytest.mark.parametrize("name", NEVER)
def test_what_the_trainer_did_itself_is_no_infrastructure(name: str, tmp_path: Path) -> None:
    """Nor what only the sender of a signal knows."""
    log = tmp_path / "train.log"
    log.write_text(NEVER[name], encoding="utf-8")
    for code, killed_by in ((1, None), (None, "SIGKILL")):
        assert infrastructure_cause(code, killed_by, log) is None


RESET = TRACE + "ConnectionResetError: [Errno 104] Connection reset by peer"


def crashing(project: Project, text: str, crashes: int) -> str:
    """The toy, whose first launches end before step 8."""
    return project.toy("--crash-at", "8", "--crash-with", text, "--crashes", str(crashes))


def test_three_restarts_and_no_more(project: Project) -> None:
    """Four launches that all lose their connection: infrastructure, and the command to run again."""
    done = project.run("--train-cmd", crashing(project, RESET, 9))
    report = project.report()
    assert (done.returncode, len(project.launches)) == (1, 4)
    assert report["evidence"]["outcome"] == "infrastructure"
    assert "infrastructure-failure" in reasons(report)
    assert [row["cause"] for row in report["evidence"]["attempts"]] == ["connection-lost"] * 4
    assert any("needs approval" in item["title"] and "3 restarts were made" in item["description"]
               for item in report["findings"])
    assert {path.name for path in project.out_dir.glob("train*.log")} == {
        "train.log", "train.2.log", "train.3.log", "train.4.log"}
    code, result = project.harness("verify", str(project.out_dir))
    assert (code, result["disagreements"]) == (1, [])


def test_restart_reaches_the_target(project: Project) -> None:
    """One lost connection: launched again with the unchanged command; GO, medium, in two attempts."""
    done = project.run("--train-cmd", crashing(project, RESET, 1))
    report = project.report()
    assert done.returncode == 0, done.stdout
    assert (report["decision"], report["confidence"], len(project.launches)) == ("GO", "medium", 2)
    assert "Restarting the unchanged command (connection-lost: ConnectionResetError" in done.stdout
    assert any(item["title"].startswith("the run was restarted") for item in report["findings"])


@pytest.mark.parametrize(("flags", "text"), [
    (("--no-fix",), RESET), ((), NEVER["a Python exception"]), ((), NEVER["out of memory"]), ((), NEVER["a NaN"]),
    ((), NEVER["a data error"]),
], ids=["no-fix", "exception", "oom", "nan", "data"])
def test_others_are_never_restarted(project: Project, flags: tuple[str, ...], text: str) -> None:
    """One launch; with --no-fix the report still says that infrastructure ended it."""
    done = project.run("--train-cmd", crashing(project, text, 9), *flags)
    assert (done.returncode, len(project.launches)) == (1, 1)
    outcome = project.report()["evidence"]["outcome"]
    assert outcome == ("infrastructure" if flags else "broken")


def test_ctrl_c_between_two_attempts_ends_the_run(project: Project) -> None:
    """The pause before a restart, here the third one's ten seconds, hears it: no further launch, and a report."""
    pytest_process = project.start("--train-cmd", crashing(project, RESET, 9))
    wait_until(lambda: sum(entry["event"] == "restart-decision" for entry in project.events()) == 3)
    pytest_process.send_signal(signal.SIGINT)
    pytest_process.communicate(timeout=400)
    assert len(project.launches) == 3
    assert project.report()["decision"] == "NO-GO"
