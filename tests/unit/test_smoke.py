"""The capacity smoke: what asks for it, what it launches, and what its facts come to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.command.parse import parse_command
from harness.frameworks.areno import ArenoAdapter
from harness.judge.checks_smoke import check_fits, check_peak_memory
from harness.judge.gates import GATES
from harness.judge.verdict import judge
from harness.record.journal import Journal
from harness.record.run_record import open_record
from harness.record.vocabulary import Decision, GateStatus
from harness.session import smoke_of
from tests.unit.run_dirs import RunDir

GOOD = {"name": "one-step", "argv": ["areno"], "exit_code": 0, "signal": None, "seconds": 9.0, "updates": 1,
        "peak_memory_bytes": 500_000_000, "peak_gpu_bytes": None, "problem": "", "log": "l", "proposals": []}


@pytest.mark.parametrize(
    ("expression", "asked"),
    [
        ("", ""), ("real_step", ""), ("smoke_capacity", "only"), ("not smoke_capacity", ""),
        ("real_step and not smoke_capacity", ""), ("smoke_capacity or real_step", "first"),
        ("smoke_capacity or save_reload", "first"), ("(smoke_capacity)", "only"),
    ],
)
def test_the_marker_asks_for_it(expression: str, asked: str) -> None:
    """Alone it is all that runs; beside others it comes first."""
    assert smoke_of(expression) == asked


def words(flags: str, *, gpu: bool) -> list[tuple[str, ...]]:
    command = parse_command(f"areno train {flags}", Path("/absent"))
    return [smoke.words for smoke in ArenoAdapter().smokes(command, Path("/out/smoke"), gpu=gpu)]


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("--algo gspo --backend cuda", [("--smoke-infer",), ("--smoke-train",)]),
        ("--algo sft --backend cuda", [("--smoke-train",)]),
    ],
)
def test_cuda_uses_arenos_own_smokes(flags: str, expected: list[tuple[str, ...]]) -> None:
    """Rollout and training where there is one, training alone where there is none."""
    assert words(flags, gpu=True) == expected


@pytest.mark.parametrize(("flags", "gpu"), [("--algo ppo --backend mlx", True), ("--algo ppo --backend cuda", False)])
def test_without_cuda_it_is_one_step(flags: str, gpu: bool) -> None:
    """That saves nothing, writes its metrics apart, and takes PPO's actor in; no token limit is touched."""
    (added,) = words(flags, gpu=gpu)
    assert added == ("--max-steps", "1", "--save-interval", "1000000000", "--metrics-log-dir",
                     "/out/smoke/one-step/metrics", "--critic-warmup-steps", "0")


def made(tmp_path: Path, mode: str, *entries: dict[str, Any]) -> Path:
    """A healthy run with these smokes before it."""
    out_dir = RunDir(spec={"smoke": mode}).write(tmp_path / "out")
    with Journal(out_dir / "journal.jsonl") as journal:
        for entry in entries:
            journal.write("smoke", **entry)
    return out_dir


@pytest.mark.parametrize(
    ("entry", "decision", "code"),
    [
        (GOOD, Decision.GO, None),
        ({**GOOD, "updates": None}, Decision.GO, None),
        ({**GOOD, "exit_code": 1}, Decision.NO_GO, "capacity-exceeded"),
        ({**GOOD, "exit_code": None, "signal": "SIGKILL"}, Decision.NO_GO, "capacity-exceeded"),
        ({**GOOD, "updates": 0}, Decision.NO_GO, "capacity-exceeded"),
        ({**GOOD, "peak_memory_bytes": 0}, Decision.CONDITIONAL, "evidence-incomplete"),
        ({"name": "none", "problem": "knows none", "proposals": []}, Decision.CONDITIONAL, "smoke-unavailable"),
    ],
)
def test_facts_of_the_smoke_decide(
    entry: dict[str, Any], decision: Decision, code: str | None, tmp_path: Path
) -> None:
    """A smoke that fails, or makes no update, is no capacity; an unknown one is unproven."""
    with open_record(made(tmp_path, "first", entry)) as record:
        verdict, _ = judge(record)
        codes = {reason.code.value for reason in verdict.reasons if reason.gate == "smoke_capacity"}
        assert (verdict.decision, codes) == (decision, {code} if code else set())


@pytest.mark.parametrize(
    ("entry", "check"), [({**GOOD, "exit_code": 1}, check_fits), ({**GOOD, "peak_memory_bytes": 0}, check_peak_memory)])
def test_each_check_alone_catches_its_fault(entry: dict[str, Any], check: Any, tmp_path: Path) -> None:
    """Without it the run would be GO."""
    fewer = [replace(gate, checks=tuple(one for one in gate.checks if one is not check)) for gate in GATES]
    with open_record(made(tmp_path, "first", entry)) as record:
        assert judge(record)[0].decision is not Decision.GO
        assert judge(record, gates=fewer)[0].decision is Decision.GO


def test_it_is_not_needed_where_nobody_selected_it(tmp_path: Path) -> None:
    """A run without it is GO."""
    with open_record(made(tmp_path, "")) as record:
        verdict, _ = judge(record)
        assert (verdict.decision, verdict.gate("smoke_capacity").status) == (Decision.GO, GateStatus.SKIPPED)


def test_it_cannot_stand_for_the_run(tmp_path: Path) -> None:
    """A session of a smoke alone is NO-GO, for this reason and no other."""
    out_dir = made(tmp_path, "only", GOOD)
    journal = out_dir / "journal.jsonl"
    kept = ('"run-started"', '"command"', '"environment"', '"smoke"', '"run-finished"')
    journal.write_text("".join(line + "\n" for line in journal.read_text().splitlines()
                               if any(event in line for event in kept)))
    with open_record(out_dir) as record:
        verdict, _ = judge(record)
        assert verdict.decision is Decision.NO_GO
        assert [reason.code.value for reason in verdict.reasons] == ["capacity-evidence-only"]
        assert verdict.gate("smoke_capacity").status is GateStatus.PASS
