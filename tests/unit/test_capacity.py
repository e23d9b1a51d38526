"""Sizes of a command: what they come to, which of them cannot be, and what to make smaller."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.capacity import capacity_findings, proposals
from harness.command.parse import parse_command
from harness.frameworks.areno import ArenoAdapter
from harness.frameworks.capacity import Capacity
from harness.judge.checks_command import check_capacity, check_command
from harness.judge.observe import observe
from harness.record.run_record import open_record
from harness.record.vocabulary import CheckStatus
from harness.spec import RunSpec
from tests.unit.run_dirs import RunDir

GOOD = Capacity(rollout=True, batch_size=32, n_samples=8, max_running_prompts=100, mini_bs=16, score_micro_bs=8,
                world_size=8, tp_size=4, mem_frac=0.9)


def sizes_of(flags: str) -> Capacity:
    """What the AReno adapter says of a command."""
    spec = RunSpec(train_cmd="", out_dir=Path("/absent/out"), workdir=Path("/absent"), run_id="r")
    found = ArenoAdapter().capacity(parse_command(f"areno train {flags}", Path("/absent")), spec)
    assert found is not None
    return found


def refused(sizes: Capacity) -> list[str]:
    """Messages of the findings that forbid the launch."""
    return [finding.message for finding in capacity_findings(sizes) if finding.refuses]


def test_demand_waves_and_data_parallel_size() -> None:
    """32 prompts of 8 samples are 256; 100 at once take three waves; 8 devices in fours are two copies."""
    assert (GOOD.demand, GOOD.waves, GOOD.dp_size) == (256, 3, 2)


def test_line_holds_the_numbers() -> None:
    """As the log and the gate show them."""
    assert GOOD.line() == (
        "32 prompts x 8 samples = 256 a step, 100 at once in 3 wave(s); microbatches of 16; "
        "data-parallel 2 = 8 device(s) / tensor-parallel 4")


def test_defaults_are_arenos() -> None:
    """A command that says nothing asks for what its help says."""
    sizes = sizes_of("--backend cuda")
    assert (sizes.demand, sizes.waves, sizes.dp_size, sizes.mini_bs, sizes.mem_frac) == (256, 1, 2, 16, 0.9)


def test_mlx_is_one_device() -> None:
    """Whatever the defaults for CUDA are."""
    sizes = sizes_of("--backend mlx --world-size 8 --tp-size 4")
    assert (sizes.world_size, sizes.tp_size, sizes.dp_size, refused(sizes)) == (1, 1, 1, [])


def test_devices_are_counted() -> None:
    """Lists and inclusive ranges; they replace the world size."""
    assert sizes_of("--backend cuda --train-devices 0..3,8,9").world_size == 6


def test_offline_algorithms_have_no_rollouts() -> None:
    """Their demand is the batch, and nothing is sampled in waves."""
    sizes = sizes_of("--backend mlx --algo sft --batch-size 20")
    assert (sizes.demand, sizes.waves) == (20, None)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--world-size 6", "world_size 6 is not divisible by tp_size 4 (6 / 4 = 1.5)"),
        ("--mem-frac 1.5", "mem_frac is 1.5: it must lie in (0, 1]"),
        ("--mem-frac 0", "mem_frac is 0: it must lie in (0, 1]"),
        ("--mem-frac nan", "mem_frac is nan"),
        ("--batch-size 0", "batch_size is 0"),
        ("--n-samples -1", "n_samples is -1"),
        ("--max-running-prompts 0", "max_running_prompts is 0"),
        ("--mini-bs 0", "mini_bs is 0"),
        ("--rollout-devices 0..4 --rollout-tp-size 2", "5 rollout devices are not divisible by rollout_tp_size 2"),
    ],
)
def test_sizes_that_cannot_be_are_refused_with_their_numbers(flags: str, words: str) -> None:
    """Before the launch, and never with shorter token limits as a remedy."""
    (message,) = refused(sizes_of(f"--backend cuda {flags}"))
    assert words in message


@pytest.mark.parametrize(
    "flags", ["--mem-frac 1", "--world-size 4", "--algo sft --n-samples 0", "--max-running-prompts 7"])
def test_sizes_that_can_be_pass(flags: str) -> None:
    """The bounds themselves; what an algorithm does not read; waves that are not full."""
    assert refused(sizes_of(f"--backend cuda {flags}")) == []


def test_places_that_stay_empty_are_only_advice() -> None:
    """More at once than there are samples wastes room and breaks nothing."""
    (finding,) = capacity_findings(sizes_of("--backend mlx --batch-size 2 --n-samples 2 --max-running-prompts 8"))
    assert not finding.refuses and "2 x 2 = 4 samples" in finding.message


sizes = st.none() | st.integers(min_value=-3, max_value=10_000)


@given(st.builds(
    Capacity, rollout=st.booleans(), batch_size=sizes, n_samples=sizes, max_running_prompts=sizes, mini_bs=sizes,
    score_micro_bs=sizes, gradient_accumulation_steps=sizes, world_size=sizes, tp_size=sizes, rollout_devices=sizes,
    rollout_tp_size=sizes, mem_frac=st.none() | st.floats()))
def test_any_sizes_are_judged_and_proposals_never_touch_token_limits(asked: Capacity) -> None:
    """No input ends in an exception; concurrency comes first, then microbatches."""
    asked.line()
    asked.to_json()
    capacity_findings(asked)
    said = [text.partition("=")[0] for text in proposals(asked)]
    assert not {"max_new_tokens", "max_context_len", "max_prompt_tokens", "batch_size", "n_samples"} & set(said)
    order = ["max_running_prompts", "mini_bs", "score_micro_bs", "drop_rollout_state"]
    assert said == [name for name in order if name in said]


def test_the_check_alone_tells_of_sizes(tmp_path: Path) -> None:
    """An invariant that does not hold fails the gate by its own check, with the numbers."""
    out_dir = RunDir().write(tmp_path / "out")
    journal = out_dir / "journal.jsonl"
    message = "world_size 6 is not divisible by tp_size 4"
    lines = journal.read_text().replace(
        '"findings": []', f'"findings": [{{"code": "capacity-invariant", "message": "{message}", "refuses": true}}]', 1)
    assert message in lines
    journal.write_text(lines)
    with open_record(out_dir) as record:
        seen = observe(record)
        assert check_command(seen).status is CheckStatus.PASSED
        assert (check_capacity(seen).status, check_capacity(seen).why) == (CheckStatus.FAILED, message)
