"""The public cases and the recorded failures: every right value of theirs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.diagnosis.infrastructure import infrastructure_cause
from harness.diagnosis.inputs import find_inputs
from harness.diagnosis.model import Event
from harness.diagnosis.read import RunReading, read_run
from harness.record.vocabulary import PrimaryCause
from tests.unit.diagnosis.public_logs import raised

CASES = Path(__file__).parents[1] / "cases"
RECORDED = CASES / "recorded" / "areno-failures"


def expected(case: str) -> Any:
    """The right values of a case."""
    return json.loads((CASES / case / "expected.json").read_text(encoding="utf-8"))


def read(*paths: Path, **given: Any) -> RunReading:
    """What the logs say."""
    return read_run(find_inputs(paths).logs, **given)


def cause(reading: RunReading) -> Event:
    """The first causal error, which must be there."""
    assert reading.finding.cause is not None
    return reading.finding.cause


def rule(event: Event) -> str:
    """The rule that an event met."""
    assert event.rule is not None
    return event.rule.id


def test_the_first_worker_is_found_behind_the_watchdogs_that_stand_first() -> None:
    """Case 04: rank 2's memory, not the timeouts that were flushed before it."""
    right = expected("04-areno-first-worker-oom")
    found = read(CASES / "04-areno-first-worker-oom" / "log.txt")
    event = cause(found)
    assert event.link is not None and event.stamp is not None and event.rule is not None
    assert event.rank == right["first_causal"]["rank"]
    assert event.link.kind == right["first_causal"]["kind"]
    assert event.stamp.text == right["first_causal"]["time"]
    assert (event.rule.cause, event.rule.id) == (PrimaryCause.OOM, "oom-train")
    watchdogs = [item for item in found.finding.consequences if rule(item) == "nccl-watchdog"]
    assert sorted({item.rank for item in watchdogs if item.rank is not None}) == right["secondary_ranks"]


def test_a_requeued_run_that_finished_has_no_cause_of_failure() -> None:
    """Case 19: the preemption of the first attempt was survived."""
    right = expected("19-resume-overlap-after-requeue")
    found = read(CASES / "19-resume-overlap-after-requeue" / "slurm-77.out", exit_code=0)
    assert found.completed == (right["verdict"] == "completed")
    assert found.finding.cause is None
    assert [rule(item) for item in found.finding.recovered] == ["preempted"] * right["preempted_attempts"]
    assert found.last is not None and found.last.step == right["last_step"]


@pytest.mark.parametrize("with_kernel_log", [False, True])
def test_a_killed_rank_is_suspected_and_confirmed(with_kernel_log: bool) -> None:
    """Case 31: rank 3's SIGKILL; host memory is confirmed by the kernel's log alone."""
    right = expected("31-elastic-sigkill-rank3")
    case = CASES / "31-elastic-sigkill-rank3"
    found = read(case / "log.txt", kernel_log=case / "dmesg.txt" if with_kernel_log else None)
    event = cause(found)
    assert (event.rank, event.text) == (right["root_rank"], f"signal {right['signal']}")
    assert event.rule is not None and event.rule.cause is PrimaryCause.OOM
    certainty = "confirmed" if found.finding.confirms is not None else "suspected"
    assert certainty == right["certainty_with_dmesg" if with_kernel_log else "certainty_without_dmesg"]
    terminated = [item.rank for item in found.finding.consequences if rule(item) == "terminated"]
    assert terminated == [0, 1, 2]


def test_a_kernel_log_about_another_process_confirms_nothing(tmp_path: Path) -> None:
    """The kernel killed some other process than the rank."""
    kernel = tmp_path / "dmesg.txt"
    kernel.write_text("[0.9] oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,"
                      "task_memcg=/user.slice,task=java,pid=77,uid=0\n"
                      "[1.0] Out of memory: Killed process 77 (java) total-vm:1kB\n")
    found = read(CASES / "31-elastic-sigkill-rank3" / "log.txt", kernel_log=kernel)
    assert found.finding.confirms is None
    assert rule(cause(found)) == "oom-host-suspected"


@pytest.mark.parametrize("line", [
    "[9.5] NVRM: Xid (PCI:0000:02:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n",
    "[9.5] NVRM: Xid (PCI:0000:00:07): 31, pid=25, name=python3.10, Ch 00000008, intr 00000000. MMU Fault\n",
])
def test_a_driver_s_fault_counts_where_the_run_met_it(line: str, tmp_path: Path) -> None:
    """The kernel's log is about all processes and all times: a run that is well, or failed by its own error, is not
    touched by it; one whose devices failed is."""
    log, kernel = tmp_path / "train.log", tmp_path / "dmesg.txt"
    kernel.write_text(line)
    log.write_text("step 1/2 loss 1.0\nstep 2/2 loss 0.9\n")
    assert read(log, exit_code=0, kernel_log=kernel).completed
    log.write_text(raised("ValueError: bad rate"))
    found = read(log, exit_code=1, kernel_log=kernel).finding
    assert rule(cause(read(log, exit_code=1, kernel_log=kernel))) == "uncaught-exception" and not found.rivals
    log.write_text(raised("RuntimeError: CUDA error: unspecified launch failure"))
    found = read(log, exit_code=1, kernel_log=kernel).finding
    told = {rule(event) for event in [*found.rivals, *found.consequences]}
    assert told == {"gpu-lost" if ": 79," in line else "gpu-xid"}


def test_first_observed_is_not_first() -> None:
    """Case 32: rank 2's ValueError ten minutes before the rank that the agent saw end first."""
    right = expected("32-elastic-observed-is-not-causal")
    found = read(CASES / "32-elastic-observed-is-not-causal" / "log.txt")
    event = cause(found)
    assert event.link is not None and event.rule is not None
    assert (event.rank, event.link.kind) == (right["first_causal"]["rank"], right["first_causal"]["kind"])
    assert event.rule.cause is PrimaryCause.DATA_PIPELINE
    observed = [worker.rank for worker in found.workers if worker.is_first_observed]
    assert observed == [right["elastic_root_rank"]]
    assert found.finding.silent_ranks == (2,)
    assert "nccl-watchdog" in {rule(item) for item in found.finding.consequences}


def test_memory_that_ran_out_and_was_recovered_from_is_no_cause() -> None:
    """Case 37: the search for a batch size ended at 8 of 32 and the run completed."""
    right = expected("37-oom-recovered")["recovered.txt"]
    found = read(CASES / "37-oom-recovered" / "recovered.txt", exit_code=0)
    assert found.completed and found.finding.cause is None
    assert [rule(item) for item in found.finding.recovered] == ["oom-device"] * right["oom_events"]
    assert (found.batch_sizes[0], found.batch_sizes[-1]) == (right["requested_batch"], right["effective_batch"])
    assert found.last is not None and found.last.step == right["steps"]


def test_a_search_that_found_no_batch_size_names_the_memory() -> None:
    """Case 37: the first OutOfMemoryError, not the summary of the search."""
    found = read(CASES / "37-oom-recovered" / "exhausted.txt", exit_code=1)
    event = cause(found)
    assert event.rule is not None and event.rule.cause is PrimaryCause.OOM
    assert event.place.line == 3
    assert not found.completed


@pytest.mark.parametrize(("name", "rule_id"), [
    ("slurm_oom.txt", "oom-host-confirmed"), ("tee.txt", "dataset-schema"), ("handler.txt", "signal-handler"),
])
def test_exit_code_0_hides_no_failure(name: str, rule_id: str) -> None:
    """Case 40: a killed step, a pipe, a signal handler: each exits 0."""
    right = expected("40-exit-code-zero-lies")[name]
    codes = json.loads((CASES / "40-exit-code-zero-lies" / "run.json").read_text())["exit_codes"]
    found = read(CASES / "40-exit-code-zero-lies" / name, exit_code=codes[name])
    assert not found.completed
    event = cause(found)
    assert rule(event) == rule_id
    assert (event.rule is not None and event.rule.cause is PrimaryCause.INTERRUPTED) == (
        right["verdict"] == "interrupted")
    if "last_step" in right:
        assert found.last is not None
        assert (found.last.step, found.planned) == (right["last_step"], right["planned"])
    if "first_causal" in right:
        assert event.link is not None and event.link.text == right["first_causal"]


def test_a_conflict_of_configurations_is_a_configuration_error() -> None:
    """Case 57: both keys stand in the message."""
    right = expected("57-override-without-effect")["ds_conflict"]
    event = cause(read(CASES / "57-override-without-effect" / "ds_conflict" / "log.txt", exit_code=1))
    assert event.rule is not None and event.rule.cause is PrimaryCause.CONFIG_ERROR
    assert event.link is not None
    assert all(key.rpartition(".")[2] in event.link.message for key in right["keys"])


@pytest.mark.parametrize(("name", "rule_id", "kind", "line"), [
    ("gspo-no-loader.log", "dataset-contract", "ValueError", 100),
    ("reward-indexerror.log", "reward", "IndexError", 117),
    ("modelscope-unreachable.log", "hub-unreachable", "socket.gaierror", 81),
])
def test_recorded_areno_failures(name: str, rule_id: str, kind: str, line: int) -> None:
    """A wrong loader, a reward that raises, an unreachable hub behind a chain of five exceptions."""
    event = cause(read(RECORDED / name, exit_code=1))
    assert rule(event) == rule_id
    assert event.link is not None
    assert (event.link.kind, event.link.place.line) == (kind, line)


@pytest.mark.parametrize(("code", "signal", "log", "answer"), [
    (1, None, RECORDED / "modelscope-unreachable.log", "hub-unreachable"),
    (1, None, RECORDED / "reward-indexerror.log", None),
    (0, None, RECORDED / "modelscope-unreachable.log", None),
    (None, "SIGKILL", None, None),
    (None, "SIGKILL", CASES / "40-exit-code-zero-lies" / "slurm_oom.txt", None),
    (1, None, Path("/nonexistent/train.log"), None),
    (1, None, CASES / "37-oom-recovered" / "exhausted.txt", None),
    (-9, None, None, None),
])
def test_infrastructure_is_what_a_relaunch_may_mend(
    code: int | None, signal: str | None, log: Path | None, answer: str | None
) -> None:
    """The question of a restart policy: a reward that raises comes again, an unreachable hub may not."""
    found = infrastructure_cause(code, signal, log)
    assert (None if found is None else found.name) == answer
