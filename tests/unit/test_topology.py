"""The check `topology`, over records made by hand; real process groups run in tests/trainers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.judge.model import Check
from harness.judge.observe import observe
from harness.judge.topology import check_topology
from harness.record.run_record import open_record
from tests.unit.run_dirs import RunDir

TORCHRUN = {"launcher": "torchrun", "processes": 2, "local": 2, "one_group": True}
MPI = {"launcher": "mpirun", "processes": 2, "local": 2, "one_group": False}
TWO_NODES = {"launcher": "torchrun", "processes": 4, "local": 2, "one_group": True}


def rank(number: int | None, *, steps: int = 10, group: int | None = 2, device: str = "cpu") -> dict[str, Any]:
    """A process as the journal holds it."""
    return {"rank": number, "pid": 100 + (number or 0), "steps": steps, "optimizers_created": 1,
            "lr_positive_steps": steps, "scaler_skips": 0, "clean_exit": True, "grad": {"checked": 4, "nonzero": 4},
            "group_size": group, "devices": [device] if steps else [], "updated_at": 0.0}


def judged(place: Path, asked: dict[str, Any] | None, *processes: dict[str, Any], **spec: Any) -> Check:
    """The check over these processes."""
    made = RunDir(topology=asked, processes=processes, spec=spec).write(place)
    with open_record(made) as record:
        return check_topology(observe(record))


@pytest.mark.parametrize(("asked", "processes"), [
    (TORCHRUN, (rank(0), rank(1))),
    (TORCHRUN, (rank(0), rank(1), rank(1))),
    (MPI, (rank(0), rank(1))),
    (TWO_NODES, (rank(0, group=4), rank(1, group=4))),
    ({**TORCHRUN, "processes": None, "local": None}, (rank(0), rank(1))),
])
def test_ranks_of_one_group_pass(asked: dict[str, Any], processes: tuple[dict[str, Any], ...], tmp_path: Path) -> None:
    """As many as asked for, in one group of that size; a restarted rank is one rank."""
    assert judged(tmp_path, asked, *processes).status.value == "passed"


@pytest.mark.parametrize("asked", [None, {"launcher": "local", "processes": 1, "local": 1, "one_group": False}])
def test_one_process_has_no_topology(asked: dict[str, Any] | None, tmp_path: Path) -> None:
    """Nothing to compare."""
    assert judged(tmp_path, asked, rank(None, group=None)).status.value == "not_applicable"


@pytest.mark.parametrize(("asked", "processes", "status", "reason"), [
    (TORCHRUN, (rank(0, group=None), rank(1, group=None)), "failed", "world-size-not-realised"),
    (TORCHRUN, (rank(0, group=1), rank(1, group=1)), "failed", "world-size-not-realised"),
    (MPI, (rank(0, group=1), rank(1, group=1)), "failed", "world-size-not-realised"),
    (TORCHRUN, (rank(0), rank(1, steps=0)), "failed", "rank-without-updates"),
    (MPI, (rank(None, group=None), {**rank(None, group=None), "pid": 7}), "unproven", "topology-unproven"),
    (TORCHRUN, (rank(0),), "unproven", "topology-unproven"),
    (TORCHRUN, (), "unproven", "topology-unproven"),
    (TWO_NODES, (rank(0, group=2), rank(1, group=2)), "failed", "world-size-not-realised"),
])
def test_what_was_not_realised(
    asked: dict[str, Any], processes: tuple[dict[str, Any], ...], status: str, reason: str, tmp_path: Path
) -> None:
    """Side by side, idle, or not seen: each with its own reason."""
    check = judged(tmp_path, asked, *processes)
    assert (check.status.value, check.reason and check.reason.value) == (status, reason)


@pytest.mark.parametrize(("processes", "status", "reason"), [
    ((rank(None, group=None, device="cuda"),), "not_applicable", None),
    ((rank(None, group=None),), "failed", "ran-on-cpu"),
    ((), "unproven", "topology-unproven"),
])
def test_required_gpu_must_be_trained_on(
    processes: tuple[dict[str, Any], ...], status: str, reason: str | None, tmp_path: Path
) -> None:
    """A GPU that is visible and not used is no GPU run."""
    check = judged(tmp_path, None, *processes, require_gpu=True)
    assert (check.status.value, check.reason and check.reason.value) == (status, reason)
