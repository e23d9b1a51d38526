"""`areno env --json` and `areno check`: read line by line, and judged by what the job needs."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.frameworks.areno_reports import documents, needed_failures, parse_check, with_findings
from harness.frameworks.base import FrameworkFacts
from harness.judge.observe import observe
from harness.judge.verdict import judge
from harness.record.run_record import open_record
from harness.record.vocabulary import Decision
from tests.unit.run_dirs import RunDir

NO_GPU = """AReno check: not ready

OK   Python >= 3.10
     found 3.11.7
OK   PyTorch import
     2.13.0+cpu
FAIL PyTorch CUDA build
     torch.version.cuda=None
FAIL NVIDIA GPU visibility
     no GPUs reported by torch
WARN flash_attn import
     ModuleNotFoundError: No module named 'flash_attn'
FAIL hf_cache writable
     /nowhere

Next:
  Install a CUDA-enabled PyTorch build; CPU-only torch cannot run AReno.
  Make at least one NVIDIA GPU visible to the process.
"""
"""As AReno 0.10.0 prints it on a machine without a GPU."""
READY = NO_GPU.replace("FAIL", "OK  ").partition("Next:")[0]


def environment(check: str, gpu_count: int = 0, accelerators: tuple[str, ...] = ()) -> dict[str, Any]:
    """An environment record before its reports are read."""
    return {
        "host": "here", "os": {"system": "Linux"}, "python": {"version": "3"}, "packages": {"areno": "0.10.0"},
        "accelerators": [{"name": name} for name in accelerators],
        "trainer_report": {"name": "areno env", "exit_code": 0, "output": {"torch": {"device_count": gpu_count}}},
        "trainer_check": {"name": "areno check", "exit_code": 1, "output": check, "error": None},
    }


def read(check: str, backend: str, **rest: Any) -> dict[str, Any]:
    return with_findings(environment(check, **rest), backend, interpreter=None, workdir=Path("/absent"), environ={})


def test_lines_details_and_steps_are_read() -> None:
    """Each finding with its detail, each step a line."""
    parsed = parse_check(NO_GPU)
    assert parsed["findings"][0] == {"status": "OK", "name": "Python >= 3.10", "detail": "found 3.11.7"}
    assert [item["status"] for item in parsed["findings"]] == ["OK", "OK", "FAIL", "FAIL", "WARN", "FAIL"]
    assert parsed["next"][1] == "Make at least one NVIDIA GPU visible to the process."


@given(st.text() | st.lists(st.sampled_from(["OK   a", "FAIL b", "     c", "Next:", "  d", ""])).map("\n".join))
def test_any_output_is_read(text: str) -> None:
    """Nothing that a program prints ends in an exception, and every finding has a known status."""
    parsed = parse_check(text)
    assert all(item["status"] in ("OK", "WARN", "FAIL") and item["name"] for item in parsed["findings"])


@pytest.mark.parametrize(
    ("backend", "needed"),
    [
        ("mlx", []), ("npu", []),
        ("cuda", ["PyTorch CUDA build: torch.version.cuda=None",
                  "NVIDIA GPU visibility: no GPUs reported by torch"]),
    ],
)
def test_only_what_the_backend_needs_stands_in_its_way(backend: str, needed: list[str]) -> None:
    """Without a GPU MLX trains; another hub's cache is needed by nobody."""
    assert needed_failures(parse_check(NO_GPU)["findings"], backend) == needed


def test_no_backend_trains_without_torch() -> None:
    """What every job needs."""
    findings = parse_check("FAIL PyTorch import\n     no module\n")["findings"]
    assert needed_failures(findings, "mlx") == ["PyTorch import: no module"]


def verdict_of(tmp_path: Path, told: dict[str, Any], *, needs_gpu: bool) -> tuple[Decision, list[str]]:
    """The decision on a healthy run with this environment record."""
    facts = FrameworkFacts(name="torch", reason="told", target_steps=10, needs_gpu=needs_gpu)
    out_dir = RunDir(facts=facts).write(tmp_path / "out")
    journal = out_dir / "journal.jsonl"
    entries = [json.loads(line) for line in journal.read_text().splitlines()]
    for entry in entries:
        if entry["event"] == "environment":
            entry["environment"] = told
    journal.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    with open_record(out_dir) as record:
        verdict, _ = judge(record)
        assert observe(record).facts is not None
        return verdict.decision, [reason.code.value for reason in verdict.reasons]


def test_mlx_goes_on_without_a_gpu(tmp_path: Path) -> None:
    """`areno check` says not ready, and the job needs nothing of what fails."""
    assert verdict_of(tmp_path, read(NO_GPU, "mlx"), needs_gpu=False) == (Decision.GO, [])


def test_cuda_without_a_gpu_has_one_reason(tmp_path: Path) -> None:
    """The missing GPU, said once."""
    assert verdict_of(tmp_path, read(NO_GPU, "cuda"), needs_gpu=True) == (Decision.NO_GO, ["gpu-missing"])


def test_cuda_with_a_gpu_and_a_failing_check_is_not_ready(tmp_path: Path) -> None:
    """The trainer cannot use the device that is there."""
    told = read(NO_GPU, "cuda", accelerators=("H200",))
    assert verdict_of(tmp_path, told, needs_gpu=True) == (Decision.NO_GO, ["trainer-not-ready"])


def test_a_gpu_that_only_the_trainer_sees_counts(tmp_path: Path) -> None:
    """Where NVML is not there, AReno's torch is a witness."""
    assert verdict_of(tmp_path, read(READY, "cuda", gpu_count=1), needs_gpu=True) == (Decision.GO, [])


def test_a_check_that_says_nothing_is_unproven(tmp_path: Path) -> None:
    """A program of that name that prints no finding vouches for nothing."""
    assert verdict_of(tmp_path, read("hello\n", "mlx"), needs_gpu=False) == (
        Decision.CONDITIONAL, ["env-unrecorded"])


def test_documents_of_a_checkout_are_digested(tmp_path: Path) -> None:
    """Where the imported package lies in a checkout, and where the job runs in one."""
    checkout = tmp_path / "AReno"
    (checkout / "areno").mkdir(parents=True)
    (checkout / "areno" / "__init__.py").touch()
    (checkout / "AGENTS.md").write_text("how to work here")
    digest = hashlib.sha256(b"how to work here").hexdigest()
    expected = {"checkout": str(checkout), "AGENTS.md": digest, "CODEMAP.md": None}
    environ = {**os.environ, "PYTHONPATH": str(checkout)}
    assert documents(Path(sys.executable), tmp_path / "job", environ) == expected
    assert documents(None, checkout / "areno", {}) == expected


def test_an_installation_is_no_checkout(tmp_path: Path) -> None:
    """Nothing is digested that does not lie beside the package."""
    (tmp_path / "AGENTS.md").write_text("of another project")
    assert documents(None, tmp_path, {}) == {"checkout": None, "AGENTS.md": None, "CODEMAP.md": None}
