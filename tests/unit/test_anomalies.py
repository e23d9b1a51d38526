"""Detectors: a healthy series never alarms, a broken one always does, and what is over ends as recovered."""

from __future__ import annotations

import ast
import math
import random
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.record.vocabulary import AnomalyType, Severity
from harness.watch.anomalies import board as boards
from harness.watch.anomalies.board import Board, Change
from harness.watch.anomalies.model import Point, Recovery, Role, Sighting
from harness.watch.anomalies.output import Output
from harness.watch.anomalies.stall import Stall

CASES = Path(__file__).with_name("cases")
TAGS = {Role.LOSS: "train/loss", Role.GRAD_NORM: "train/grad_norm", Role.LR: "train/lr", Role.RATE: "tokens_per_s"}
Series = Callable[[int, random.Random], float]


class Run:
    """A board with a clock of its own."""

    def __init__(self, *, skips: int | None = None, interval_s: float = 30.0, is_unclipped: bool = False) -> None:
        self.now = 0.0
        self.skips = skips
        self.counted_at: float | None = None
        self.board = Board(
            stall=Stall(interval_s=interval_s, started_at=0.0), clock=lambda: self.now,
            wall=lambda: 1e9 + self.now, is_unclipped=is_unclipped, scaler_skips=lambda: self.skips,
            skips_counted_at=lambda: self.counted_at)
        self.changes: list[Change] = []

    def step(self, step: int, seconds: float = 1.0, **values: float) -> list[Change]:
        """One step, logged and seen `seconds` after the last one; values by role name."""
        self.now += seconds
        found = self.board.points(
            Point(TAGS[Role(name)], Role(name), step, value, 1e9 + self.now, True) for name, value in values.items())
        found += self.board.tick()
        self.changes += found
        return found

    def text(self, data: bytes) -> list[Change]:
        """Output."""
        found = self.board.text(data)
        self.changes += found
        return found

    def began(self) -> list[AnomalyType]:
        """Types of what began, in order."""
        return [change.sighting.type for change in self.changes if change.recovery is None]

    def ended(self) -> list[AnomalyType]:
        """Types of what is over."""
        return [change.sighting.type for change in self.changes if change.recovery is not None]


def noise(rng: random.Random, spread: float) -> float:
    """A factor around 1, skewed as losses of small batches are."""
    return math.exp(rng.gauss(0.0, spread))


HEALTHY: dict[str, Series] = {
    "constant": lambda i, rng: 2.0 * noise(rng, 0.2),
    "constant near zero": lambda i, rng: 1e-6 * noise(rng, 0.5),
    "negative": lambda i, rng: -5.0 + rng.gauss(0, 0.5),
    "decaying": lambda i, rng: (0.05 + 10.0 * math.exp(-i / 40)) * noise(rng, 0.15),
    "decaying by a power": lambda i, rng: 11.0 / (1 + i) ** 0.3 * noise(rng, 0.1),
    "warm-up": lambda i, rng: (12.0 if i < 10 else 12.0 * math.exp(-(i - 10) / 60) + 0.3) * noise(rng, 0.1),
    "warm restarts": lambda i, rng: (0.5 + math.exp(-i / 50) + 0.15 * math.cos(i / 8)) * noise(rng, 0.05),
    "sawtooth of epochs": lambda i, rng: (1.0 + 2.0 * math.exp(-i / 80) - 0.1 * (i % 50) / 50) * noise(rng, 0.05),
    "one outlier": lambda i, rng: 40.0 if i == 77 else 2.0 * noise(rng, 0.1),
}


@pytest.mark.parametrize("name", HEALTHY)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), every=st.sampled_from([1, 10, 500]), length=st.integers(1, 400))
def test_healthy_run_never_alarms(name: str, seed: int, every: int, length: int) -> None:
    """Whatever the loss looks like, with a gradient norm, learning rate and throughput that go with it."""
    rng, run = random.Random(seed), Run()
    for i in range(length):
        run.step((i + 1) * every, seconds=0.5 * every * noise(rng, 0.25), loss=HEALTHY[name](i, rng),
                 grad_norm=(0.3 + 5.0 * math.exp(-i / 20)) * noise(rng, 0.4), lr=1e-4 * min(1.0, i / 10),
                 rate=(300.0 if i < 3 else 1500.0) * noise(rng, 0.2))
    assert run.changes == [], run.changes[0]


DIVERGING: dict[str, Series] = {
    "back to the start": lambda i, rng: (0.5 + 2.5 * math.exp(-i / 20) + 4.0 * max(0, i - 100) / 50) * noise(rng, 0.1),
    "exponential": lambda i, rng: 0.5 * noise(rng, 0.1) * (1.0 if i < 60 else 1.1 ** (i - 60)),
    "jump to a plateau": lambda i, rng: (10.8 if i > 80 else 2.0 + 8.8 * math.exp(-i / 10)) * noise(rng, 0.02),
    "from the start": lambda i, rng: (1.0 + 0.05 * i) * noise(rng, 0.02),
}


@pytest.mark.parametrize("name", DIVERGING)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), every=st.sampled_from([1, 10, 500]))
def test_diverging_loss_always_alarms_once(name: str, seed: int, every: int) -> None:
    """One anomaly of severity medium, which stays open."""
    rng, run = random.Random(seed), Run()
    for i in range(200):
        run.step((i + 1) * every, loss=DIVERGING[name](i, rng))
    assert (run.began(), run.ended()) == ([AnomalyType.DIVERGENCE], [])
    assert run.changes[0].sighting.severity is Severity.MEDIUM


@pytest.mark.parametrize("name", DIVERGING)
def test_policy_loss_never_diverges(name: str) -> None:
    """Its height says nothing."""
    rng, run = random.Random(0), Run()
    for i in range(200):
        run.board.points([Point("pg_loss", Role.POLICY_LOSS, i, DIVERGING[name](i, rng), 0.0, True)])
    assert run.board.open == []


def test_divergence_that_comes_back_is_recovered() -> None:
    """A bump of fifty steps."""
    rng, run = random.Random(1), Run()
    for i in range(300):
        run.step(i, loss=(3.0 if 100 <= i < 150 else 0.5 + math.exp(-i / 20)) * noise(rng, 0.05))
    assert (run.began(), run.ended()) == ([AnomalyType.DIVERGENCE], [AnomalyType.DIVERGENCE])


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32), growth=st.floats(1.3, 10.0), calm=st.integers(12, 200))
def test_exploding_gradient_always_alarms_and_recovers(seed: int, growth: float, calm: int) -> None:
    """Twenty steps of growth; back at its old height it is over."""
    rng, run = random.Random(seed), Run()
    for i in range(calm + 80):
        high = growth ** (i - calm) if calm <= i < calm + 20 else 1.0
        run.step(i, grad_norm=high * noise(rng, 0.2))
    assert run.began() == [AnomalyType.GRADIENT_EXPLOSION]
    assert run.ended() == [AnomalyType.GRADIENT_EXPLOSION]


@pytest.mark.parametrize(("is_unclipped", "began"), [(True, [AnomalyType.GRADIENT_EXPLOSION]), (False, [])])
def test_absolute_bound_counts_only_where_nothing_clips(is_unclipped: bool, began: list[AnomalyType]) -> None:
    """A norm of 2000 from the start is normal for a loss that is a sum."""
    run = Run(is_unclipped=is_unclipped)
    for i in range(50):
        run.step(i, grad_norm=2000.0)
    assert run.began() == began


def test_zero_median_gives_no_ratio() -> None:
    """Gradients that are zero at most steps."""
    run = Run()
    for i in range(100):
        run.step(i, grad_norm=0.7 if i % 3 == 0 else 0.0)
    assert run.began() == []


# NaN


@settings(max_examples=50, deadline=None)
@given(at=st.integers(0, 30), length=st.integers(1, 5), value=st.sampled_from([math.nan, math.inf, -math.inf]),
       role=st.sampled_from(["loss", "lr"]))
def test_nan_that_passes_is_recovered(at: int, length: int, value: float, role: str) -> None:
    """One anomaly at its first step, over at the third finite value."""
    run = Run()
    for i in range(50):
        run.step(i + 1, **{"loss": 1.0, "lr": 0.1, role: value if at <= i < at + length else 1.0})
    (began, ended) = run.changes
    assert (began.sighting.step, began.sighting.type) == (at + 1, AnomalyType.NAN_INF)
    assert began.sighting.severity is (Severity.HIGH if role == "loss" else Severity.MEDIUM)
    assert ended.recovery is not None
    assert ended.recovery.step == at + length + 3


def test_incident_holds_the_last_ten_points() -> None:
    """Of loss, gradient norm and learning rate, up to the value itself."""
    run = Run()
    for i in range(30):
        run.step(i, lr=0.1 * i, grad_norm=2.0, loss=math.nan if i == 25 else 3.0)
    incident = next(change.incident for change in run.changes if change.incident)
    assert (incident.point.step, incident.point.tag) == (25, "train/loss")
    assert [step for step, _ in incident.last_points["loss"]] == list(range(16, 26))
    assert [len(values) for values in incident.last_points.values()] == [10, 10, 10]
    assert sum(change.incident is not None for change in run.changes) == 1


@pytest.mark.parametrize("skips", [None, 12])
@pytest.mark.parametrize("length", [1, 2, 12])
def test_scaler_skips_are_a_note(skips: int | None, length: int) -> None:
    """Infinite norms at the start, beside finite losses, that end: severity low, recovered."""
    run = Run(skips=skips)
    for i in range(30):
        run.step(i, loss=2.0, grad_norm=math.inf if i < length else 1.0)
    assert [change.sighting.severity for change in run.changes] == [Severity.LOW, Severity.LOW]
    assert run.ended() == [AnomalyType.NAN_INF]


def test_gradient_that_no_skip_explains_is_grave() -> None:
    """The probe counted no skip; a few seconds later that is sure."""
    run = Run(skips=0)
    run.step(1, loss=2.0, grad_norm=1.0)
    run.step(2, loss=2.0, grad_norm=math.nan)
    run.now += 5.0
    (worse,) = run.board.tick()
    assert (worse.sighting.severity, worse.sighting.step) == (Severity.HIGH, 2)


def test_skip_that_is_counted_only_at_the_next_step_explains() -> None:
    """Steps of a minute: until counts of a time after the row are there nothing is concluded from them."""
    for counted, expected in ((1, []), (0, [Severity.HIGH])):
        run = Run(skips=0)
        run.step(1, 60.0, loss=2.0, grad_norm=1.0)
        run.counted_at = 1e9 + run.now
        run.step(2, 60.0, loss=2.0, grad_norm=math.inf)
        run.now += 50.0
        assert run.board.tick() == []
        run.skips, run.counted_at = counted, 1e9 + run.now
        assert [change.sighting.severity for change in run.board.tick()] == expected


def test_skips_that_the_output_tells_explain() -> None:
    """DeepSpeed's own loss scaler is seen by no probe."""
    run = Run(skips=0)
    run.text(b"[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768\n")
    run.step(1, loss=2.0, grad_norm=math.inf)
    run.now += 5.0
    assert run.board.tick() == []


def test_too_many_skips_in_a_row_are_none() -> None:
    """No loss scaler skips for ever."""
    run = Run()
    for i in range(20):
        run.step(i, loss=2.0, grad_norm=math.nan)
    assert [change.sighting.severity for change in run.changes] == [Severity.LOW, Severity.HIGH]


HF = {"filtered": [(Severity.LOW, 20), (Severity.HIGH, 20)], "zero": [(Severity.LOW, 10), (Severity.HIGH, 10)],
      "amp_skip": [(Severity.LOW, 10), (Severity.LOW, 10)]}


@pytest.mark.parametrize("name", HF)
@pytest.mark.parametrize("order", [("loss", "grad_norm"), ("grad_norm", "loss")])
def test_masked_nan_is_told_from_a_skip(name: str, order: tuple[str, str]) -> None:
    """Case 08: a loss of exactly 0.0 beside a NaN norm is masked NaN, from the norm's first row on."""
    run = Run()
    text = (CASES / "08-hf-nan-behind-finite-loss" / f"{name}.txt").read_text()
    for number, line in enumerate(text.splitlines(), start=1):
        row = ast.literal_eval(re.sub(r"\b(nan|inf)\b", r"'\1'", line))
        run.step(10 * number, **{key: float(row[key]) for key in order})
    told = [(change.sighting.severity, change.sighting.step) for change in run.changes]
    assert told in (HF[name], HF[name][1:])
    assert (run.ended() == [AnomalyType.NAN_INF]) is (name == "amp_skip")


@pytest.mark.parametrize("order", [("loss", "grad_norm"), ("grad_norm", "loss")])
def test_loss_and_gradient_that_are_nan_together_are_one_anomaly(order: tuple[str, str]) -> None:
    """Whichever of them stands first in the row, the loss names it; and it is over when the loss is finite again."""
    run = Run()
    for i in range(20):
        run.step(i, **dict.fromkeys(order, math.nan if i in (7, 8) else 1.0))
    last = {change.number: change for change in run.changes}
    assert len(last) == 1
    (told,) = last.values()
    assert (told.sighting.severity, told.sighting.step, told.sighting.subject) == (Severity.HIGH, 7, "train/loss")
    assert told.recovery is not None and told.recovery.step == 11


def test_gradient_that_is_nan_at_another_step_than_the_loss_is_another_anomaly() -> None:
    """Two steps, two entries."""
    run = Run()
    for i in range(20):
        run.step(i, loss=math.nan if i == 12 else 1.0, grad_norm=math.nan if i == 5 else 1.0)
    assert {change.number: change.sighting.step for change in run.changes} == {1: 5, 2: 12}


def test_nan_in_other_tags_is_one_note() -> None:
    """An evaluation metric that is NaN by design, in a hundred tags."""
    run = Run()
    run.board.points([])
    found = run.board.points(
        Point(f"eval/metric_{i}", Role.OTHER, 1, math.nan, 0.0, False) for i in range(100))
    assert [change.sighting.severity for change in found] == [Severity.LOW]
    assert found[0].incident is None


def test_series_that_another_source_takes_over_is_no_second_anomaly() -> None:
    """What was printed is logged later: the same NaN, told again from the first step on."""
    run = Run()
    for step in range(1, 20):
        run.board.points([Point("loss", Role.LOSS, step, math.nan if step == 5 else 1.0, 0.0, True)])
    run.board.rename("loss", "train/loss")
    found: list[Change] = []
    for step in range(1, 30):
        found += run.board.points([Point("train/loss", Role.LOSS, step, math.nan if step == 5 else 1.0, 1e9, True)])
    assert found == []


# stalls


@settings(max_examples=50, deadline=None)
@given(gap=st.floats(0.5, 600.0), interval=st.floats(1.0, 300.0), seed=st.integers(0, 2**32))
def test_stall_is_told_after_its_budget_and_not_before(gap: float, interval: float, seed: int) -> None:
    """The larger of 2 x --interval and 10 x the median gap, whatever the cadence; heartbeats change nothing."""
    rng, run = random.Random(seed), Run(interval_s=interval)
    for i in range(20):
        run.step(i * 10, seconds=gap * rng.uniform(0.9, 1.1), loss=1.0)
    assert run.changes == []
    budget = run.board.stall.budget_s
    assert max(2 * interval, 8 * gap) <= budget <= max(2 * interval, 12 * gap)
    run.now += budget * 0.99
    run.text(b"heartbeat\n")
    assert run.board.tick() == []
    run.now += budget * 0.02
    (stalled,) = run.board.tick()
    assert (stalled.sighting.type, stalled.sighting.step) == (AnomalyType.STALLED, 190)
    assert run.board.tick() == []
    assert [change.recovery is not None for change in run.step(200, loss=1.0)] == [True]


def test_start_up_has_half_an_hour() -> None:
    """A model that compiles for 29 minutes is no stall; for 31 it is one."""
    run = Run()
    run.now = 29 * 60.0
    assert run.board.tick() == []
    run.now = 31 * 60.0
    (stalled,) = run.board.tick()
    assert (stalled.sighting.type, stalled.sighting.step) == (AnomalyType.STALLED, None)


def test_lumps_of_a_buffered_writer_are_its_pace() -> None:
    """Points of 120 s arrive at once, as TensorBoard flushes: looks that saw one are counted, not points."""
    run = Run()
    for lump in range(10):
        run.now += 120.0
        run.board.points(Point("train/loss", Role.LOSS, lump * 120 + i, 1.0, 0.0, True) for i in range(120))
        assert run.board.tick() == []


def test_another_witness_keeps_a_stall_away() -> None:
    """The probe or a bar goes on while nothing is logged."""
    run = Run()
    for i in range(10):
        run.step(i, loss=1.0)
    for step in range(100):
        run.now += 30.0
        run.board.printed(step)
        assert run.board.tick() == []


def test_after_the_target_no_step_is_expected() -> None:
    """A long upload is no stall."""
    run = Run()
    for i in range(10):
        run.step(i, loss=1.0)
    run.now += 3600.0
    assert run.board.tick(may_stall=False) == []


# throughput


@pytest.mark.parametrize("told", [True, False])
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), factor=st.floats(2.6, 50.0))
def test_slow_steps_always_alarm_and_recover(told: bool, seed: int, factor: float) -> None:
    """By a tag that tells tokens per second, else by the writers' clocks."""
    rng, run = random.Random(seed), Run(interval_s=300.0)
    for i in range(220):
        slow = factor if 100 <= i < 150 else 1.0
        values = {"rate": 1000.0 / slow * noise(rng, 0.05)} if told else {"loss": 1.0}
        run.step(i, seconds=0.5 * slow * noise(rng, 0.05), **values)
    assert (run.began(), run.ended()) == ([AnomalyType.SLOW_THROUGHPUT], [AnomalyType.SLOW_THROUGHPUT])


def test_evaluations_and_saves_are_no_slow_steps() -> None:
    """Every tenth step takes twenty times as long."""
    run = Run()
    for i in range(300):
        run.step(i, seconds=10.0 if i % 10 == 0 else 0.5, loss=1.0)
    assert run.began() == []


# output


SIGNS = {
    b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB": AnomalyType.OOM,
    b"torch.cuda.OutOfMemoryError: CUDA out of memory.": AnomalyType.OOM,
    b"RuntimeError: CUDA error: out of memory": AnomalyType.OOM,
    b"XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate": AnomalyType.OOM,
    b"MemoryError": AnomalyType.OOM,
    b"slurmstepd: error: Detected 1 oom_kill event in StepId=4522.batch.": AnomalyType.OOM,
    b"OSError: [Errno 12] Cannot allocate memory": AnomalyType.OOM,
    b"RuntimeError: CUDA error: an illegal memory access was encountered": AnomalyType.CRASH,
    b"RuntimeError: CUDA error: device-side assert triggered": AnomalyType.CRASH,
    b"torch.distributed.DistBackendError: NCCL error in: ../ProcessGroupNCCL.cpp:1691": AnomalyType.CRASH,
    b"RuntimeError: DataLoader worker (pid 4242) is killed by signal: Killed.": AnomalyType.CRASH,
    b"  rank 3 failed (exitcode: -9) local_rank: 3": AnomalyType.CRASH,
    b"Segmentation fault (core dumped)": AnomalyType.CRASH,
    b"OSError: [Errno 28] No space left on device: '/data/checkpoint-100/model.safetensors'":
        AnomalyType.CHECKPOINT_FAILURE,
    b"PermissionError: [Errno 13] Permission denied: '/ckpt/step_10'": AnomalyType.CHECKPOINT_FAILURE,
    b"RuntimeError: [enforce fail at inline_container.cc:672] . unexpected pos 64 vs 0 while saving":
        AnomalyType.CHECKPOINT_FAILURE,
    b"ERROR failed to save checkpoint to s3": AnomalyType.CHECKPOINT_FAILURE,
    b" 42%|####  | 42/100 [00:10<00:13, 4.2it/s, loss=nan]": AnomalyType.NAN_INF,
    b"Epoch 3: loss: nan - acc: 0.1": AnomalyType.NAN_INF,
}
INNOCENT = (
    b"INFO loss=0.5 lr=0.1", b"best loss: inf", b"UserWarning: this may run out of memory",
    b"set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation", b"NCCL version 2.19.3+cuda12.1",
    b"[Errno 13] Permission denied: '/proc/1/maps'", b"room booked", b"val_loss=nan_policy", b"max_loss=inf",
    b"No space left on device: '/root/.cache/wandb'", b"Saving model checkpoint to out/checkpoint-20", b"loss=nano",
    b"torchelastic: exitcode 0", b"information: nan_to_num is on", b"\xff\xfe\x00nan inf oom",
)


@pytest.mark.parametrize("line", SIGNS, ids=lambda line: line.decode()[:40])
def test_line_is_known(line: bytes) -> None:
    """One sighting of its type, with the step that was printed last."""
    (found,) = Output().feed(b"step=7 loss=0.5\n" + line + b"\n", 3)
    assert isinstance(found, Sighting)
    assert (found.type, found.step) == (SIGNS[line], 7)


@pytest.mark.parametrize("line", INNOCENT)
def test_innocent_line_is_passed_over(line: bytes) -> None:
    """What only looks alike."""
    assert Output().feed(line + b"\n") == []


@settings(max_examples=100, deadline=None)
@given(order=st.permutations(sorted(SIGNS)), cuts=st.lists(st.integers(0, 4000), max_size=20))
def test_chunks_do_not_matter(order: list[bytes], cuts: list[int]) -> None:
    """However the bytes are cut, the same types are found."""
    data = b"".join(b"step=1\n" + line + b"\n" for line in order)
    whole = {type(item) and item.type for item in Output().feed(data)}
    output, found, begin = Output(), set(), 0
    for end in [*sorted(cut for cut in cuts if cut < len(data)), len(data)]:
        found |= {item.type for item in output.feed(data[begin:end])}
        begin = end
    assert found == whole == set(SIGNS.values())


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=2000))
def test_any_bytes_are_no_error(data: bytes) -> None:
    """Nor are they kept."""
    output = Output()
    output.feed(data)
    output.finish()
    assert len(output._rest) <= 4096


def test_traceback_out_of_a_save_is_a_failed_checkpoint() -> None:
    """Whatever the exception says; an interrupt there is none."""
    trace = (b"Traceback (most recent call last):\n"
             b'  File "/lib/torch/serialization.py", line 1002, in save\n    with _open_zipfile_writer(f) as z:\n%s\n')
    (found,) = Output().feed(trace % b"RuntimeError: basic_ios::clear: iostream error")
    assert (found.type, "iostream" in found.description) == (AnomalyType.CHECKPOINT_FAILURE, True)
    assert Output().feed(trace % b"KeyboardInterrupt") == []


@pytest.mark.parametrize(
    ("log", "types"),
    [("37-oom-recovered/recovered.txt", [AnomalyType.OOM]), ("37-oom-recovered/exhausted.txt", [AnomalyType.OOM]),
     ("40-exit-code-zero-lies/slurm_oom.txt", [AnomalyType.OOM]), ("40-exit-code-zero-lies/tee.txt", []),
     ("40-exit-code-zero-lies/handler.txt", []), ("02-areno-step-without-update/critic_warmup.txt", []),
     ("26-tqdm-rate-and-cr/mixed.txt", [])])
def test_cases_from_bug_reports(log: str, types: list[AnomalyType]) -> None:
    """Memory that ran out is seen; a skipped step, another exception and a bar of an evaluation are no anomaly."""
    output = Output()
    data = (CASES / log).read_bytes()
    assert [item.type for item in [*output.feed(data), *output.finish()]] == types


def test_error_is_over_when_steps_follow() -> None:
    """Points that were made before it say nothing, though they are read after it."""
    run = Run()
    run.step(1, loss=1.0)
    run.text(b"torch.OutOfMemoryError: CUDA out of memory.\n")
    late = Point("train/loss", Role.LOSS, 2, 1.0, 1e9 + run.now - 0.5, True)
    assert run.board.points([late, late._replace(step=3)]) == []
    assert run.step(4, loss=1.0) == []
    (over,) = run.step(5, loss=1.0)
    assert isinstance(over.recovery, Recovery)
    assert over.sighting.type is AnomalyType.OOM


def test_flood_is_counted_and_not_listed() -> None:
    """A hundred thousand episodes of one type keep the journal short."""
    run = Run()
    for i in range(200):
        run.text(b"torch.OutOfMemoryError: CUDA out of memory.\n")
        run.step(2 * i, loss=1.0)
        run.step(2 * i + 1, loss=1.0)
    assert len(run.began()) == boards.MAX_LISTED
    assert run.board.unlisted == {"oom": 200 - boards.MAX_LISTED}


def feed_all(run: Run, points: Iterable[Point]) -> list[Change]:
    """All at once."""
    return run.board.points(points)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(list(Role)), st.integers(-3, 50), st.floats(allow_nan=True), st.floats(0, 9)),
                max_size=200))
def test_any_points_are_no_error(rows: list[tuple[Role, int, float, float]]) -> None:
    """Any order, any values; every recovery had a beginning."""
    run = Run()
    found = feed_all(run, (Point(role.value, role, step, value, wall, True) for role, step, value, wall in rows))
    begun = {change.number for change in found if change.recovery is None}
    assert {change.number for change in found if change.recovery is not None} <= begun
