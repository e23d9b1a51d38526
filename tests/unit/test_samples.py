"""Rollout samples: read from what trainers write, measured, and judged in both directions."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.frameworks.base import FrameworkFacts
from harness.judge.checks_samples import sample_evidence
from harness.judge.gates import GATES, judge_gates
from harness.judge.model import Gate
from harness.judge.observe import observe
from harness.launch.child import Limits, run_child
from harness.record.redaction import Redactor
from harness.record.run_record import open_record
from harness.samples.model import RolloutSample, text_features
from harness.samples.read import read_samples, sample_of, without_special_tokens
from harness.samples.reward import recompute
from tests.unit.run_dirs import RunDir

CASES = Path(__file__).parent / "cases"
RECORDED = CASES / "recorded" / "samples"
SENTENCE = "the answer is 12"
SOUP = "B\ufffdhe\x16uve$Pay\ufffd\ufffd.\ufffd\x04"
LOOP = "the chart shows " * 40
FACTS = FrameworkFacts(
    name="areno", reason="`areno train`", target_steps=10, target_source="--max-steps", algorithm="gspo",
    algorithm_kind="rollout", reward_bounds=("^train/lr$", "^train/loss$"))
"""The made run logs lr 0.1 and a loss from 3.0 down to 0.3, which stand for a step's least and largest reward."""


def sample(text: str = SENTENCE, **fields: Any) -> dict[str, Any]:
    """A sample as the journal holds it."""
    features = text_features(text)
    return {"step": 10, "agentic": False, "prompt": "5 plus 7?", "completion": text, "reward": None,
            "response_tokens": 5, "chars": features.chars, "undecodable_share": features.undecodable_share,
            "repetition": features.repetition, "messages": [], "num_messages": 0, **fields}


def judged(place: Path, *, facts: FrameworkFacts = FACTS, thresholds: dict[str, float] | None = None,
           reward_check: bool = True, **entry: Any) -> tuple[Gate, list[dict[str, Any]]]:
    """The gate over a run that left this samples entry, and evidence.samples."""
    whole = {"file": "samples.jsonl", "rows": 1, "problem": "", "last": sample(), "first": None,
             "recomputed": {"values": [0.2, 0.2], "problem": ""}, **entry}
    made = RunDir(facts=facts, samples=whole, spec={
        "thresholds": tuple((thresholds or {}).items()), "reward_check": reward_check}).write(place)
    with open_record(made) as record:
        seen = observe(record)
        gates = judge_gates(seen, gates=[gate for gate in GATES if gate.name == "sample_coherence"])
        return gates[0], sample_evidence(seen, gates)


def reasons(gate: Gate) -> dict[str, str]:
    """{check: reason} of what is not passed."""
    return {check.name: check.reason.value for check in gate.checks if check.reason is not None}


def test_sentence_with_its_reward_passes(tmp_path: Path) -> None:
    """Text, of the last step, whose reward lies within that step's."""
    gate, evidence = judged(tmp_path)
    assert (gate.status.value, reasons(gate)) == ("PASS", {})
    assert [(item["verdict"], item["recomputed_reward"]) for item in evidence] == [("coherent", 0.2)]


@pytest.mark.parametrize(("entry", "expected"), [
    ({"last": sample("")}, {"sample_text": "sample-empty"}),
    ({"last": sample(" \n")}, {"sample_text": "sample-empty"}),
    ({"last": sample(SOUP)}, {"sample_text": "sample-undecodable"}),
    ({"last": sample(LOOP)}, {"sample_text": "sample-repetitive"}),
    ({"last": None}, {"sample_recorded": "sample-missing"}),
    ({"last": sample(step=3)}, {"sample_recorded": "sample-missing"}),
    ({"recomputed": {"values": [0.2, 0.3], "problem": ""}}, {"sample_reward": "reward-not-recomputable"}),
    ({"recomputed": {"values": [], "problem": "KeyError: 'answer'"}}, {"sample_reward": "reward-not-recomputable"}),
    ({"recomputed": None}, {"sample_reward": "reward-not-recomputable"}),
    ({"last": sample(step=None)}, {"sample_recorded": "sample-missing", "sample_reward": "reward-not-recomputable"}),
    *(({"last": sample(**{key: None})}, {"sample_recorded": "sample-missing"}) for key in (
        "completion", "chars", "undecodable_share", "repetition")),
    ({"recomputed": {"values": [9.0, 9.0], "problem": ""}}, {"sample_reward": "reward-mismatch"}),
    ({"last": sample(agentic=True, messages=[{"role": "user"}, {"role": "tool"}, {"role": "assistant"}])},
     {"transcript": "transcript-broken"}),
    ({"last": sample(agentic=True, messages=[{"role": "user"}])}, {"transcript": "transcript-broken"}),
    ({"last": sample(agentic=True, messages=[{"role": "robot"}])}, {"transcript": "transcript-broken"}),
])
def test_each_fault_has_its_own_reason(entry: dict[str, Any], expected: dict[str, str], tmp_path: Path) -> None:
    """And nothing else is found wrong with it."""
    gate, _ = judged(tmp_path, **entry)
    assert reasons(gate) == expected
    assert gate.status.value != "PASS"


def test_loop_from_the_start_is_unproven(tmp_path: Path) -> None:
    """What the model did before training, it did not learn."""
    gate, _ = judged(tmp_path, last=sample(LOOP), first=sample(LOOP, step=1))
    assert (gate.status.value, reasons(gate)) == ("PENDING", {"sample_text": "sample-repetitive"})


def test_stated_reward_needs_no_function(tmp_path: Path) -> None:
    """TRL's table holds the reward beside the sample."""
    gate, _ = judged(tmp_path, last=sample(reward=0.5), recomputed=None)
    assert gate.status.value == "PASS"


def test_reward_check_can_be_left_out(tmp_path: Path) -> None:
    """Where calling it costs money."""
    gate, _ = judged(tmp_path, reward_check=False, recomputed=None)
    assert gate.status.value == "PASS"


def test_healthy_transcript_passes(tmp_path: Path) -> None:
    """A call, its result, and the model's word."""
    messages = [{"role": "system"}, {"role": "user"}, {"role": "assistant", "tool_calls": [{"id": "a"}]},
                {"role": "tool", "tool_call_id": "a"}, {"role": "assistant"}]
    gate, _ = judged(tmp_path, last=sample(agentic=True, messages=messages))
    assert gate.status.value == "PASS"


def test_thresholds_can_be_set(tmp_path: Path) -> None:
    """By name."""
    gate, _ = judged(tmp_path, last=sample(LOOP), thresholds={"sample_repetition": 1.0})
    assert gate.status.value == "PASS"


def test_other_algorithms_need_no_sample(tmp_path: Path) -> None:
    """SFT rolls nothing out."""
    gate, _ = judged(tmp_path, facts=FrameworkFacts(name="areno", reason="x", algorithm_kind="sft"))
    assert (gate.status.value, gate.required) == ("SKIPPED", False)


@pytest.mark.parametrize(("clipped", "lengths", "expected"), [
    (1.0, 512.0, {"sample_ends": "samples-all-truncated"}),
    (1.0, 16.0, {}),
    (0.4, 512.0, {}),
    (0.0, 1.0, {"sample_text": "sample-empty"}),
])
def test_clipped_and_empty_series(clipped: float, lengths: float, expected: dict[str, str], tmp_path: Path) -> None:
    """Case 10: every completion cut at a long cap, or nothing but the end token; a short cap clips healthy ones."""
    whole = {"file": "s", "rows": 1, "problem": "", "last": sample(reward=0.31), "first": None, "recomputed": None}
    made = RunDir(facts=FACTS, samples=whole, extra={
        "train/completions/clipped_ratio": (clipped,) * 10, "train/completions/max_length": (lengths,) * 10,
    }).write(tmp_path)
    with open_record(made) as record:
        gate = judge_gates(observe(record), gates=[gate for gate in GATES if gate.name == "sample_coherence"])[0]
    assert reasons(gate) == expected


def test_case_10_samples() -> None:
    """The clipped sample is a loop, the other one is empty."""
    rows = [json.loads(line) for line in (CASES / "10-grpo-all-clipped-or-empty" / "samples.jsonl").open()]
    clipped, empty = (text_features(row["completion"]) for row in rows)
    assert clipped.repetition > 0.8
    assert empty.chars == 0


@pytest.mark.parametrize(("name", "rows", "step"), [
    ("areno-gspo", 3, 2), ("areno-ppo", 3, 2), ("areno-agentic", 2, 1),
])
def test_recorded_areno_samples_are_byte_soup(name: str, rows: int, step: int) -> None:
    """A random model's samples; the last one is that of the last step."""
    read = read_samples(RECORDED / f"{name}.jsonl", [], {})
    assert (read.rows, read.last and read.last.step, read.problem) == (rows, step, "")
    assert read.last is not None
    assert text_features(read.last.completion).undecodable_share > 0.1


def test_recorded_agentic_sample_is_told_from_a_plain_one() -> None:
    """Its transcript comes along."""
    read = read_samples(RECORDED / "areno-agentic.jsonl", [], {})
    assert read.last is not None
    assert read.last.agentic
    assert [item["role"] for item in read.last.messages] == ["system", "user", "assistant"]


def test_parquet_without_pyarrow_is_a_problem_and_no_error(tmp_path: Path) -> None:
    """The child says what it misses."""
    read = read_samples(RECORDED / "trl-grpo.parquet", [sys.executable, "-S"], {"PATH": ""})
    assert read.last is None
    assert "pyarrow" in read.problem


def test_rows_of_other_shapes(tmp_path: Path) -> None:
    """Half lines, lists, other keys, chat lists; the furthest step counts."""
    path = tmp_path / "samples.jsonl"
    path.write_text(
        '{"step": 7, "question": "q", "response": "late"}\n[1, "x", {"output": "from a list", "step": 2}]\n'
        '{"step": 3, "prompt": [{"role": "user", "content": "p"}], "completion": [{"role": "assistant", '
        '"content": "c"}], "advantage": 0.5, "exact": 1.0, "length": -0.25}\nnull\n{"step": 9, "comple')
    read = read_samples(path, [], {})
    assert (read.rows, read.last and read.last.completion, read.first and read.first.prompt) == (3, "late", "q")
    row = sample_of({"completion": [{"role": "assistant", "content": "c"}], "advantage": 0.5, "exact": 1.0, "n": -0.25})
    assert row is not None
    assert (row.completion, row.reward) == ("c", 0.75)


@pytest.mark.parametrize(("steps", "last"), [
    ((None, 3, None), 1), ((3, None), 0), ((None, None), 1), ((0, None), 0), ((0, 1, 1), 1), ((2, 1), 0),
])
def test_row_without_a_step_is_not_the_last(steps: tuple[int | None, ...], last: int, tmp_path: Path) -> None:
    """An absent step is not step 0, and no last one either."""
    path = tmp_path / "samples.jsonl"
    path.write_text("".join(json.dumps({"completion": str(index), **({} if step is None else {"step": step})}) + "\n"
                            for index, step in enumerate(steps)))
    read = read_samples(path, [], {})
    assert read.last is not None and read.last.completion == str(last)


def test_special_tokens_are_no_text() -> None:
    """A completion of an end token alone is empty."""
    assert without_special_tokens("<|im_end|>") == ""
    assert without_special_tokens("<think>so</think> 12<|im_end|>\n</s>") == "<think>so</think> 12"


@given(st.text())
def test_features_are_shares(text: str) -> None:
    """Any text has them, within their bounds."""
    features = text_features(text)
    assert 0 <= features.undecodable_share <= 1
    assert 0 <= features.repetition <= 1
    assert features.chars == len(text.strip())


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), lambda inner: st.lists(inner)
                    | st.dictionaries(st.sampled_from(["completion", "messages", "step", "reward", "x"]), inner)))
def test_any_row_is_a_sample_or_none(row: Any) -> None:
    """Nothing raises."""
    made = sample_of(row)
    assert made is None or isinstance(made.completion, str)


REWARD = """
import random, sys, time
def reward_fn(record):
    {body}
"""


def recomputed(tmp_path: Path, body: str) -> tuple[tuple[float, ...], str]:
    """Both values of a reward function, through a stand-in for AReno's loader that has its interface."""
    package = tmp_path / "areno" / "api"
    package.mkdir(parents=True)
    (package / "rewards.py").write_text(
        "import runpy\nfrom types import SimpleNamespace\n"
        "def RewardRecord(**fields): return SimpleNamespace(**fields)\n"
        "def load_reward_fn(path): return runpy.run_path(path)['reward_fn']\n")
    path = tmp_path / "reward.py"
    path.write_text(REWARD.format(body=body))
    made = RolloutSample(step=1, agentic=False, prompt="p", completion="c", raw_completion="c", source_record={"a": 1})
    found = recompute(path, made, [sys.executable], cwd=tmp_path, environ={"PYTHONPATH": str(tmp_path)})
    return found.values, found.problem


@pytest.mark.parametrize(("body", "values", "problem"), [
    ("return len(record.completion) + record.source_record['a']", (2.0, 2.0), ""),
    ("return record.nothing", (), "nothing"),
    ("sys.exit(0)", (), "SystemExit"),
    ("return float('nan')", (), "nan"),
    ("import os; os._exit(3)", (), "exit code 3"),
    ("print('x' * (32 << 20)); return 1", (), "printed more than"),
])
def test_reward_is_called_twice_in_a_child(
    body: str, values: tuple[float, ...], problem: str, tmp_path: Path
) -> None:
    """Whatever it does ends there."""
    found = recomputed(tmp_path, body)
    assert found[0] == values
    assert problem in found[1]


def test_reward_by_chance_gives_two_values(tmp_path: Path) -> None:
    """Which is what tells it."""
    values, _ = recomputed(tmp_path, "return random.random()")
    assert len(set(values)) == 2


def test_child_is_limited(tmp_path: Path) -> None:
    """In time and in memory, and what it leaves behind is stopped."""
    code = "import time; time.sleep(600)"
    ended = run_child([sys.executable, "-c", code], {}, lambda message: None, cwd=tmp_path, environ={},
                      limits=Limits(seconds=0.5))
    assert ended.code == "timeout"
    code = "x = bytearray(400 << 20)\nimport time; time.sleep(600)"
    ended = run_child([sys.executable, "-c", code], {}, lambda message: None, cwd=tmp_path, environ={},
                      limits=Limits(seconds=240, rss_bytes=200 << 20))
    assert ended.code == "memory"


def test_named_samples_of_another_run_are_not_this_runs(tmp_path: Path) -> None:
    """A file that --samples names and that was there before the launch."""
    from types import SimpleNamespace

    from harness.supervise.samples import sample_facts

    old = tmp_path / "old.jsonl"
    old.write_text(json.dumps({"step": 10, "prompt": "p", "completion": SENTENCE}) + "\n")
    spec = SimpleNamespace(samples=old, out_dir=tmp_path / "out", reward_check=True)
    plan: Any = SimpleNamespace(facts=FACTS, spec=spec, interpreter=None, environment={}, redactor=Redactor())
    stale, fresh = (sample_facts(plan, lambda path, is_new=is_new: is_new) for is_new in (False, True))
    assert stale is not None and fresh is not None
    assert (stale["last"], stale["problem"]) == (None, "it is older than the launch")
    assert fresh["last"]["step"] == 10
