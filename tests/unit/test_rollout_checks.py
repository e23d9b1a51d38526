"""Response tokens, kept sequences and mere advice: broken runs that nothing else catches, and healthy ones."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.frameworks.areno import CUT_LINES
from harness.frameworks.base import FrameworkFacts
from harness.judge.advisories import advisories
from harness.judge.checks_rollouts import check_response_tokens, check_rollouts_kept
from harness.judge.gates import GATES
from harness.judge.observe import observe
from harness.judge.verdict import judge
from harness.record.run_record import RunRecord, open_record
from harness.record.vocabulary import Decision
from harness.supervise.told_updates import told_cuts
from tests.unit.run_dirs import RunDir

LN_2 = 0.6931471805599453


def facts(algorithm: str) -> FrameworkFacts:
    """What the AReno adapter declares of an algorithm, for a run of 10 steps that count from 1."""
    from harness.command.parse import parse_command
    from harness.frameworks.areno import ArenoAdapter
    from harness.spec import RunSpec

    spec = RunSpec(train_cmd="", out_dir=Path("/absent/out"), workdir=Path("/absent"), run_id="r")
    command = parse_command(f"areno train --backend mlx --algo {algorithm} --max-steps 10", Path("/absent"))
    declared = ArenoAdapter().facts(command, spec, "told")
    return replace(declared, step_base=1, algorithm_kind="sft", needs_dataset=False, signal_tags=())


def made(
    tmp_path: Path, algorithm: str, exception: str | None = None, **extra: Any
) -> AbstractContextManager[RunRecord]:
    """A run of ten updates with these series beside loss, gradient and learning rate."""
    series = {tag.replace("__", "/"): tuple(values) for tag, values in extra.items()}
    return open_record(RunDir(facts=facts(algorithm), extra=series, exception=exception).write(tmp_path / "out"))


def titles(opened: AbstractContextManager[RunRecord]) -> list[str]:
    with opened as record:
        return [item["title"] for item in advisories(observe(record))]


HEALTHY = {"rollout__num_sequences": [8.0] * 10, "rollout__total_skipped_long": [3.0] * 10,
           "train__response_len": [0.0, *[4.0] * 9]}
BROKEN = {
    "no-response-tokens": {**HEALTHY, "train__response_len": [0.0] * 10},
    "trajectories-all-filtered": {**HEALTHY, "rollout__num_sequences": [0.0] * 10},
}
CAUGHT_BY = {"no-response-tokens": check_response_tokens, "trajectories-all-filtered": check_rollouts_kept}


def test_healthy_rollouts_pass(tmp_path: Path) -> None:
    """Some rows may be skipped, and a step may be empty."""
    with made(tmp_path, "gspo", **HEALTHY) as record:
        assert judge(record)[0].decision is Decision.GO


@pytest.mark.parametrize("code", BROKEN)
def test_broken_rollouts_are_caught_by_one_check_alone(code: str, tmp_path: Path) -> None:
    """NO-GO for their own reason; without that check nothing else would say so."""
    with made(tmp_path, "gspo", **BROKEN[code]) as record:
        verdict, _ = judge(record)
        assert (verdict.decision, [reason.code.value for reason in verdict.reasons]) == (Decision.NO_GO, [code])
        fewer = [replace(gate, checks=tuple(one for one in gate.checks if one is not CAUGHT_BY[code]))
                 for gate in GATES]
        assert judge(record, gates=fewer)[0].decision is Decision.GO


def test_filtered_trajectories_have_their_own_reason(tmp_path: Path) -> None:
    """AReno's error at a context that is too small for the agent."""
    text = "RuntimeError: all agent trajectories were filtered (0 overlong, 4 invalid); max_context_len=20"
    with made(tmp_path, "gspo", text) as record:
        check = check_rollouts_kept(observe(record))
        assert check.reason is not None and check.reason.value == "trajectories-all-filtered"
        assert "0 overlong, 4 invalid" in check.why


BUILT = "INFO agentic train batch built samples={} train_rows=9 tokens=416 messages=32 tool_calls=0 tool_results=0\n"
CUT = "WARNING agentic rollout stopped at proxy context limit trajectories={} without_prior_turn={}\n"


@pytest.mark.parametrize(("text", "told"), [
    ("step=1 stage=train_end\n", None),
    (BUILT.format(16) * 3, {"rollouts": 3, "all_cut": 0, "cut": 0, "kept": 48}),
    ((CUT.format(16, 0) + BUILT.format(16)) * 2, {"rollouts": 2, "all_cut": 2, "cut": 32, "kept": 32}),
    (CUT.format(16, 4) + BUILT.format(12), {"rollouts": 1, "all_cut": 1, "cut": 12, "kept": 12}),
    (CUT.format(4, 4) + BUILT.format(12), {"rollouts": 1, "all_cut": 0, "cut": 0, "kept": 12}),
    (CUT.format(3, 0) + BUILT.format(16) * 2, {"rollouts": 2, "all_cut": 0, "cut": 3, "kept": 32}),
])
def test_cut_trajectories_are_read_off_the_log(text: str, told: dict[str, int] | None, tmp_path: Path) -> None:
    """A line of those that were cut, then one of those that are trained on; without a first turn one is not kept."""
    (tmp_path / "train.log").write_text(text)
    assert told_cuts([tmp_path / "train.log", tmp_path / "absent.log"], CUT_LINES) == told


@pytest.mark.parametrize(("cuts", "codes", "said"), [
    ({"rollouts": 10, "all_cut": 10, "cut": 80, "kept": 80}, ["trajectories-all-cut"], False),
    ({"rollouts": 10, "all_cut": 9, "cut": 75, "kept": 80}, [], True),
    ({"rollouts": 10, "all_cut": 0, "cut": 0, "kept": 80}, [], False),
    (None, [], False),
])
def test_a_context_that_cuts_every_trajectory_is_not_go(
    cuts: dict[str, int] | None, codes: list[str], said: bool, tmp_path: Path
) -> None:
    """CONDITIONAL, since an agent may be meant to play until its context is full; a few are a finding."""
    series = {tag.replace("__", "/"): tuple(values) for tag, values in HEALTHY.items()}
    made_dir = RunDir(facts=facts("gspo"), extra=series, cuts=cuts).write(tmp_path / "out")
    with open_record(made_dir) as record:
        verdict, _ = judge(record)
        assert [reason.code.value for reason in verdict.reasons] == codes
        assert verdict.decision is (Decision.CONDITIONAL if codes else Decision.GO)
        titled = [item["title"] for item in advisories(observe(record))]
        assert ("trajectories were cut at the context limit" in titled) is said


@pytest.mark.parametrize(
    ("algorithm", "series", "said"),
    [
        ("gspo", {"train__ratio_mean": [1.0] * 10, "train__logp_abs_diff_mean": [0.001] * 10}, []),
        ("gspo", {"train__ratio_mean": [1.001, *[1.4] * 9]}, []),
        ("grpo", {"train__ratio_mean": [1.4] * 10}, ["the first update is not on-policy"]),
        ("grpo", {"train__logp_abs_diff_mean": [0.5] * 10}, ["sampling and training disagree on log-probabilities"]),
        ("dpo", {"train__dpo_loss": [LN_2, *[0.6] * 9], "train__dpo_margin": [0.0, *[0.1] * 9]}, []),
        ("dpo", {"train__dpo_loss": [LN_2] * 10, "train__dpo_margin": [0.0] * 10},
         ["the preference loss stays at ln 2", "no preference moved"]),
        ("sft", {"rollout__total_skipped_long": [2.0] * 10}, ["rows were left out as too long"]),
    ],
)
def test_advice_follows_the_numbers(
    algorithm: str, series: dict[str, list[float]], said: list[str], tmp_path: Path
) -> None:
    """Only the first update is held to be on-policy, and the first preference loss is ln 2 in every run."""
    assert titles(made(tmp_path, algorithm, **series)) == said


def test_advice_decides_nothing(tmp_path: Path) -> None:
    """A run with every advisory is GO all the same."""
    with made(tmp_path, "grpo", train__ratio_mean=[1.4] * 10, train__logp_abs_diff_mean=[0.5] * 10) as record:
        assert judge(record)[0].decision is Decision.GO
