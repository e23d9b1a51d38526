"""The trainer's counter in the checks: updates, target, epochs, agreement; each in both directions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.frameworks.base import FrameworkFacts
from harness.judge.checks_evidence import check_minimum_evidence, check_sources_agree
from harness.judge.checks_progress import check_updates_executed
from harness.judge.observe import Observation
from harness.judge.probe_seen import ProbeSeen, see_probe
from harness.judge.reach import check_target_step
from harness.judge.updates_seen import CounterSeen, StepsSeen, Updates
from harness.judge.weights_seen import WeightsSeen
from harness.record.reasons import Reason
from harness.record.run_record import RunRecord
from harness.record.store import TagSummary
from harness.record.vocabulary import CheckStatus, Phase
from harness.spec import RunSpec

NO_ROWS = Updates(
    executed=None, effective=None, lr_seen=False, lr_positive=False, grad_seen=False, grad_positive=False,
    signal_seen=False, signal_positive=False,
)  # fmt: skip
FACTS = FrameworkFacts(name="transformers", reason="", step_base=1, counts_updates_by="counter")
RECORD = RunRecord(
    out_dir=Path(), entries=(), store=None, problems=(),
    spec=RunSpec(train_cmd="python train.py", out_dir=Path(), workdir=Path(), run_id="made"),
)
PROBED = ProbeSeen(asked=True, loaded=True, torch_seen=True, optimizers=1)


def observation(**changes: Any) -> Observation:
    """A run of which nothing is known but what is given; unknown fields keep their emptiest value."""
    values: dict[str, Any] = {
        "record": RECORD, "facts": FACTS, "tags": (), "train_loss": (), "eval_loss": (), "grad_norm": (),
        "lr": (), "steps": StepsSeen(), "updates": NO_ROWS, "probe": ProbeSeen(), "weights": WeightsSeen(),
        "target": None, "target_source": "", "counter": None,
    }  # fmt: skip
    names = Observation.__dataclass_fields__.keys()
    return Observation(**{key: value for key, value in {**values, **changes}.items() if key in names})


def tag(name: str, last: int, phase: Phase = Phase.TRAIN, value: float = 1.0) -> TagSummary:
    """A series that ends at `last`."""
    return TagSummary(
        tag=name, run="", phase=phase, points=1, fresh_points=1, first_step=0, last_step=last, last_value=value,
        nonfinite=0, first_nonfinite_step=None, min_finite=value, max_finite=value, last_wall_time=0.0, writers=(),
    )  # fmt: skip


def counter(step: int, **changes: Any) -> CounterSeen:
    """A counter of this run."""
    return CounterSeen(step=step, source="out/trainer_state.json", **changes)


@pytest.mark.parametrize(
    ("seen", "status"),
    [
        (observation(counter=counter(20)), CheckStatus.PASSED),
        (observation(counter=counter(20, resumed_at=10)), CheckStatus.PASSED),
        (observation(counter=counter(20, resumed_at=20)), CheckStatus.FAILED),
        (observation(counter=counter(0)), CheckStatus.FAILED),
        (observation(counter=counter(20), probe=replace(PROBED, steps=18, scaler_skips=2)), CheckStatus.PASSED),
        (observation(counter=counter(20), probe=replace(PROBED, scaler_skips=20)), CheckStatus.FAILED),
        (observation(counter=counter(20, resumed_at=20), probe=replace(PROBED, steps=20)), CheckStatus.PASSED),
    ],
)
def test_updates_are_those_of_this_attempt(seen: Observation, status: CheckStatus) -> None:
    """Above the resume point, and applied: a step that the loss scaler skipped is none."""
    assert check_updates_executed(seen).status is status


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (observation(target=20, counter=counter(20)), None),
        (observation(target=20, counter=counter(20), steps=StepsSeen(first=10, last=10, cadence=10, base=1)), None),
        (observation(target=20, counter=counter(8, planned=8)), Reason.TARGET_NOT_REACHED),
        (observation(target=20, counter=counter(19, planned=20)), Reason.TARGET_NOT_REACHED),
        (observation(target=20, counter=counter(12, planned=20), probe=replace(PROBED, steps=20, counts=(20,))),
         None),
        (
            observation(target=20, counter=counter(12, is_final=True), probe=replace(PROBED, steps=12, counts=(12,))),
            Reason.TARGET_NOT_REACHED,
        ),
    ],
)
def test_target_is_reached_by_the_counter(seen: Observation, reason: Reason | None) -> None:
    """One step short is short, and a limit of the trainer's own is named."""
    check = check_target_step(seen)
    assert check.reason is reason
    if reason is not None:
        assert ("own limit is 8" in check.why) is (seen.counter is not None and seen.counter.planned == 8)


ROWS = StepsSeen(first=1, last=20, cadence=1, base=1)


@pytest.mark.parametrize(
    ("seen", "status"),
    [
        (observation(steps=ROWS, counter=counter(20, is_final=True)), CheckStatus.NOT_APPLICABLE),
        (observation(steps=ROWS, counter=counter(12, is_final=True)), CheckStatus.FAILED),
        (observation(steps=ROWS, counter=counter(12)), CheckStatus.NOT_APPLICABLE),
        (observation(steps=ROWS, counter=counter(30)), CheckStatus.FAILED),
        (observation(steps=replace(ROWS, largest_gap=10), counter=counter(25, is_final=True)),
         CheckStatus.NOT_APPLICABLE),
        (observation(steps=replace(ROWS, last=1), counter=counter(20, is_final=True)), CheckStatus.NOT_APPLICABLE),
    ],
)
def test_metrics_and_counter_must_agree(seen: Observation, status: CheckStatus) -> None:
    """TensorBoard at 20 against the trainer's last word at 12; a checkpoint's copy may lag, a single row tells none."""
    assert check_sources_agree(seen).status is status


LIGHTNING = FrameworkFacts(name="lightning", reason="", step_base=0, target_epochs=3, target_epochs_source="flag")
KERAS = replace(LIGHTNING, name="keras", step_unit="epoch")
ENTERED = (tag("train_loss", 27), tag("epoch", 27, value=2.0))


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (observation(facts=LIGHTNING, weights=WeightsSeen(last_epoch=2)), None),
        (observation(facts=LIGHTNING, weights=WeightsSeen(last_epoch=1)), Reason.TARGET_NOT_REACHED),
        (
            observation(
                facts=LIGHTNING, steps=StepsSeen(first=0, last=27, base=0),
                tags=(*ENTERED, tag("val_loss", 29, Phase.EVAL)),
            ),
            None,
        ),
        (observation(facts=LIGHTNING, steps=StepsSeen(first=0, last=27, base=0), tags=ENTERED), Reason.TARGET_UNPROVEN),
        (observation(facts=LIGHTNING), Reason.TARGET_UNPROVEN),
        (observation(facts=KERAS, steps=StepsSeen(first=0, last=2, base=0)), None),
        (observation(facts=KERAS, steps=StepsSeen(first=0, last=1, base=0)), Reason.TARGET_NOT_REACHED),
        (
            observation(
                facts=replace(FACTS, target_epochs=2, target_epochs_source="flag"), counter=counter(9, epoch=2.0)
            ),
            None,
        ),
    ],
)  # fmt: skip
def test_epochs_are_a_target(seen: Observation, reason: Reason | None) -> None:
    """The last epoch was completed: by a checkpoint, a row of its end, the trainer's counter, or a row an epoch."""
    assert check_target_step(seen).reason is reason


def test_summary_alone_is_no_metric_point() -> None:
    """The mean loss of the whole run is no series; the reason names what would make the trainer log."""
    tags = (tag("train_loss", 20, Phase.SUMMARY), tag("epoch", 20))
    check = check_minimum_evidence(observation(facts=replace(FACTS, logging_hint="--logging_steps 1"), tags=tags))
    assert check.reason is Reason.NO_METRIC_POINTS and "--logging_steps 1" in check.why


UNKNOWN = FrameworkFacts(name="unknown", reason="")
LOGGED = StepsSeen(first=1, last=100, base=1)
SAVED = WeightsSeen(found=1, last_step=100, steps=(100,))


def probed(*counts: int, **changes: Any) -> ProbeSeen:
    """All processes ended through their exit handlers."""
    values = {"steps": max(counts), "counts": counts, "total": sum(counts), "clean": True, "is_whole": True}
    return replace(PROBED, **{**values, **changes})


def saved_at_100(probe: ProbeSeen, argv: str = "python train.py", **changes: Any) -> Observation:
    """A loop of its own that logs to step 100 and saves ckpt_100."""
    record = replace(RECORD, entries=({"event": "command", "argv": argv.split()},))
    return observation(**{"target": 100, "facts": UNKNOWN, "steps": LOGGED, "weights": SAVED, "probe": probe,
                          "record": record, **changes})


@pytest.mark.parametrize("seen", [
    saved_at_100(probed(1)),
    saved_at_100(probed(3)),
    saved_at_100(probed(37)),
    saved_at_100(probed(25)),
    saved_at_100(probed(60, total=120)),
    saved_at_100(probed(1), steps=StepsSeen(first=100, last=100, cadence=100, largest_gap=100, base=1)),
    saved_at_100(probed(1), weights=replace(SAVED, steps=(50, 100))),
    saved_at_100(probed(37), "python train.py --grad-accum 2"),
    saved_at_100(probed(37), "python train.py --fp16"),
    saved_at_100(probed(37), "python train.py --resume last.pt"),
    saved_at_100(probed(1), "python train.py --max_train_samples 1000"),
    saved_at_100(probed(50, total=100, in_turn=(99,)), weights=WeightsSeen()),
])  # fmt: skip
def test_a_checkpoints_number_does_not_outweigh_fewer_updates(seen: Observation) -> None:
    """A whole count of the updates that stays below the number, with nothing that explains it."""
    assert check_target_step(seen).reason is Reason.TARGET_UNPROVEN


@pytest.mark.parametrize("seen", [
    saved_at_100(probed(100)),
    saved_at_100(probed(33), "python train.py --grad-accum 3"),
    saved_at_100(probed(12), "python train.py gradient_accumulation_steps=8"),
    saved_at_100(probed(25), "python train.py --accum 4"),
    saved_at_100(probed(97), "deepspeed train.py"),
    saved_at_100(probed(30, 70)),
    saved_at_100(probed(20, 500)),
    saved_at_100(probed(37), "python train.py --total-timesteps 100"),
    saved_at_100(probed(37), "python train.py --train-samples=100"),
    saved_at_100(ProbeSeen(asked=True)),
    saved_at_100(probed(37, clean=False, is_whole=False)),
    saved_at_100(probed(37), facts=replace(UNKNOWN, counts_updates_by="counter")),
    saved_at_100(probed(10), steps=replace(LOGGED, first=91), weights=replace(SAVED, steps=(90, 100))),
    saved_at_100(probed(10), steps=replace(LOGGED, first=100), weights=replace(SAVED, steps=(90, 100))),
    saved_at_100(probed(7), "python train.py --resume last.pt", steps=replace(LOGGED, first=100, cadence=100)),
    saved_at_100(probed(50, total=100, in_turn=(100,)), weights=WeightsSeen()),
    saved_at_100(probed(30, 70, in_turn=(100,))),
])  # fmt: skip
def test_fewer_updates_than_the_checkpoints_number_may_be_right(seen: Observation) -> None:
    """Stated accumulation, a loss scaler, optimizers that share the steps, a resume, steps of another unit."""
    assert check_target_step(seen).status is CheckStatus.PASSED


@pytest.mark.parametrize(("turns", "total", "counted"), [
    (((50, 1, 50), (50, 51, 100)), 100, (100,)),
    (((60, 1, 60), (60, 51, 110)), 100, ()),
    (((50, 1, 99), (50, 2, 100)), 100, ()),
    (((50, 0, 0), (50, 0, 0)), 100, ()),
    (((100, 1, 100),), 100, ()),
])  # fmt: skip
def test_optimizers_are_added_only_where_they_followed_one_another(
    turns: tuple[tuple[int, int, int], ...], total: int, counted: tuple[int, ...]
) -> None:
    """Overlapping ranges, and a probe that did not tell them, add nothing; steps before a restart count once."""
    rows = [{"steps": steps, "first_call": begin, "last_call": end} for steps, begin, end in turns]
    process = {"steps": max(row["steps"] for row in rows), "steps_total": total, "optimizers": rows}
    entry = {"event": "probe", "facts": {"loaded": True, "processes": [process]}}
    assert see_probe(replace(RECORD, entries=(entry,))).in_turn == counted


@pytest.mark.parametrize(
    ("rows", "begun", "never_above"),
    [
        ([([0.2, 0.1], [], 0.2)], (0.1, 0.2), (0.2,)),
        ([([0.0], [0.1], 0.1)], (0.0, 0.1), ()),
        ([([0.2], [], 0.2), ([0.0], [], 0.1)], (0.0, 0.2), ()),
        ([([0.2], [], 0.2), ([], [], None)], (0.2,), ()),
        ([([0.2], [], 0.2), ([0.1], [0.3], 0.1)], (0.1, 0.2, 0.3), (0.1, 0.2)),
    ],
)
def test_rates_that_optimizers_began_with(
    rows: list[tuple[list[float], list[float], float | None]], begun: tuple[float, ...], never_above: tuple[float, ...]
) -> None:
    """The largest of each tells the base rate only where none of them warmed up."""
    optimizers = [{"steps": 9, "lr_first": first, "lr_initial": initial, "lr_min": 0.0, "lr_max": highest}
                  for first, initial, highest in rows]
    facts = {"loaded": True, "processes": [{"steps": 9, "optimizers": optimizers}], "problems": []}
    seen = see_probe(replace(RECORD, entries=({"event": "probe", "facts": facts},)))
    assert (seen.rates_begun, seen.rates_never_above) == (begun, never_above)
