"""The check `exchange`, over records made by hand; tests/trainers runs real process groups for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.judge.exchange import check_exchange
from harness.judge.model import Check
from harness.judge.observe import observe
from harness.record.run_record import open_record
from tests.unit.run_dirs import RunDir

TORCHRUN = {"launcher": "torchrun", "processes": 2, "local": 2, "one_group": True}
TWO_NODES = {"launcher": "torchrun", "processes": 2, "local": 1, "one_group": True}
COPY = ("aaaa", "bbbb")


def rank(number: int | None, *, steps: int = 25, group: int | None = 2, ends: tuple[str, ...] = COPY,
         optimizers: int = 1, seen: bool = True, shapes: tuple[int, ...] = (4, 8), start: str = "0",
         **exchange: Any) -> dict[str, Any]:
    """A process as the journal holds it; `exchange` is what differs from a rank that exchanged nothing."""
    told = {"observed_steps": steps * optimizers, "first": False, "steps": 0, "few_steps": 0, "after": False,
            "whole_steps": 0, "hidden_steps": 0, "whole_after": False, "readable": True, "wrappers": [], "others": [],
            **exchange}
    return {"rank": number, "pid": 100 + (number or 0), "steps": steps, "optimizers_created": optimizers,
            "lr_positive_steps": steps, "scaler_skips": 0, "clean_exit": True, "grad": {"checked": 4, "nonzero": 4},
            "optimizers": [{"steps": steps}] * optimizers, "group_size": group, "devices": ["cpu"], "updated_at": 0.0,
            "marks_at": 16, "exchange": told if seen else None,
            "marks": [{"dtype": "F32", "shape": [size], "changed": True, "end": end, "sha256": start,
                       "uniform": size < 8}
                      for size, end in zip(shapes, ends, strict=True)]}


def judged(place: Path, *processes: dict[str, Any], asked: dict[str, Any] | None = None) -> Check:
    """The check over these processes."""
    with open_record(RunDir(topology=asked or TORCHRUN, processes=processes).write(place)) as record:
        return check_exchange(observe(record))


OTHER = ("cccc", "dddd")
PASSED: dict[str, tuple[dict[str, Any], ...]] = {
    "every-update": (rank(0, steps=25, first=True, hidden_steps=24), rank(1, first=True, hidden_steps=24)),
    "one-step": (rank(0, steps=1, first=True), rank(1, steps=1, first=True)),
    "two-optimizers-once": (rank(0, steps=1, optimizers=2, first=True), rank(1, steps=1, optimizers=2, first=True)),
    "weights-at-every-other-update": (rank(0, whole_steps=12), rank(1, whole_steps=12, ends=OTHER)),
    "stages-of-one-shape": (rank(0, first=True), rank(1, first=True, ends=OTHER, start="1")),
    "stages-of-their-own": (rank(0, first=True), rank(1, first=True, shapes=(4, 9))),
    "sharded": (rank(0, first=True, wrappers=["DTensor"]), rank(1, first=True, wrappers=["DTensor"], ends=OTHER)),
    "wrapped-and-equal": tuple(rank(index, first=True, wrappers=["DistributedDataParallel"]) for index in range(2)),
    "unread-but-wrapped": tuple(rank(index, readable=False, wrappers=["DTensor"]) for index in range(2)),
    "seldom-and-equal": (rank(0, whole_steps=2), rank(1, whole_steps=2)),
    "restarted": (rank(0, hidden_steps=2), rank(1, steps=3), rank(1, hidden_steps=2)),
}
for name in ("every-update", "weights-at-every-other-update", "stages-of-one-shape", "stages-of-their-own", "sharded",
             "wrapped-and-equal"):
    for item in PASSED[name]:
        item["exchange"]["steps"] = 24
for name in ("seldom-and-equal", "restarted"):
    for item in PASSED[name]:
        item["exchange"]["steps"] = 2 if item["steps"] == 25 else 0


@pytest.mark.parametrize("name", PASSED)
def test_what_trains_together_passes(name: str, tmp_path: Path) -> None:
    """Every rank is seen to exchange, or is wrapped where nothing is numbered."""
    assert judged(tmp_path, *PASSED[name]).status.value == "passed"


ALONE: dict[str, tuple[dict[str, Any], ...]] = {
    "same-work": (rank(0), rank(1)),
    "eight": tuple(rank(index, group=8) for index in range(8)),
    "other-data": (rank(0), rank(1, ends=OTHER)),
    "other-data-and-a-logged-mean": (rank(0, few_steps=24), rank(1, few_steps=24, ends=OTHER)),
    "wrapped-and-passed-by": tuple(rank(index, first=True, wrappers=["DistributedDataParallel"]) for index in range(2)),
    "evaluates-at-the-end": (rank(0, after=True), rank(1, after=True, ends=OTHER)),
    "wrapped-with-own-starts": tuple(rank(index, start=str(index), ends=ends, wrappers=["DistributedDataParallel"])
                                     for index, ends in enumerate((COPY, OTHER))),
    "passed-by-and-evaluated": tuple(rank(index, first=True, hidden_steps=2, ends=ends,
                                          wrappers=["DistributedDataParallel"])
                                     for index, ends in enumerate((COPY, OTHER))),
}
for item in ALONE["passed-by-and-evaluated"]:
    item["exchange"]["steps"] = 2


@pytest.mark.parametrize("name", ALONE)
def test_ranks_that_exchange_nothing_fail(name: str, tmp_path: Path) -> None:
    """Seen to have updated each a model of its own."""
    check = judged(tmp_path, *ALONE[name])
    assert (check.status.value, check.reason and check.reason.value) == ("failed", "ranks-trained-alone")


UNPROVEN: dict[str, tuple[dict[str, Any], ...]] = {
    "earlier-probe": (rank(0, seen=False), rank(1, seen=False)),
    "one-unseen": (rank(0, first=True), rank(1, seen=False)),
    "backend-does-not-count": (rank(0, readable=False), rank(1, readable=False)),
    "another-library": (rank(0, others=["horovod"]), rank(1, others=["horovod"])),
    "logged-mean-of-the-same-work": (rank(0, few_steps=24), rank(1, few_steps=24)),
    "logged-mean-of-other-models": (rank(0, few_steps=24), rank(1, few_steps=24, ends=OTHER, shapes=(4, 9))),
    "last-averaging-only": (rank(0, after=True), rank(1, after=True)),
    "one-rank-without": (rank(0, steps=25, first=True), rank(1)),
    "averaged-once-at-the-end": (rank(0, after=True, whole_after=True),
                                 rank(1, after=True, whole_after=True, ends=OTHER)),
    "folds": (rank(0, start="0"), rank(1, start="1", ends=OTHER)),
    "logs-many-numbers": (rank(0, first=True), rank(1, first=True, ends=OTHER)),
    "logs-many-numbers-of-the-same-work": (rank(0, first=True), rank(1, first=True)),
    "passed-by-and-evaluated-often": tuple(rank(index, hidden_steps=12, ends=ends, wrappers=["DistributedDataParallel"])
                                           for index, ends in enumerate((COPY, OTHER))),
    "passed-by-and-averaged-seldom": tuple(rank(index, whole_steps=1, ends=ends, wrappers=["DistributedDataParallel"])
                                           for index, ends in enumerate((COPY, OTHER))),
    "passed-by-and-unread": tuple(rank(index, readable=False, ends=ends, wrappers=["DistributedDataParallel"])
                                  for index, ends in enumerate((COPY, OTHER))),
    "seldom-and-other-copies": (rank(0), rank(1, ends=OTHER)),
}
UNPROVEN["one-rank-without"][0]["exchange"]["steps"] = 24
UPDATES = {"seldom-and-other-copies": 2, "logs-many-numbers": 24, "logs-many-numbers-of-the-same-work": 24,
           "passed-by-and-evaluated-often": 12, "passed-by-and-averaged-seldom": 1}
for name, updates in UPDATES.items():
    for item in UNPROVEN[name]:
        item["exchange"]["steps"] = updates


@pytest.mark.parametrize("name", UNPROVEN)
def test_what_cannot_be_told_is_unproven(name: str, tmp_path: Path) -> None:
    """Not seen, or as well explained by ranks that train together."""
    check = judged(tmp_path, *UNPROVEN[name])
    assert (check.status.value, check.reason and check.reason.value) == ("unproven", "exchange-unproven")


@pytest.mark.parametrize(("processes", "asked", "status"), [
    ((rank(None, group=None, seen=False),), None, "not_applicable"),
    ((rank(0),), None, "not_applicable"),
    ((), None, "not_applicable"),
    ((rank(0, group=1), rank(1, group=1)), None, "not_applicable"),
    ((rank(0),), TWO_NODES, "unproven"),
    ((rank(0, steps=1, first=True),), TWO_NODES, "passed"),
])
def test_one_rank_has_nobody_to_exchange_with(
    processes: tuple[dict[str, Any], ...], asked: dict[str, Any] | None, status: str, tmp_path: Path
) -> None:
    """A learner beside ranks that step nothing is not asked; a rank whose partners are on other nodes is."""
    assert judged(tmp_path, *processes, asked=asked).status.value == status
