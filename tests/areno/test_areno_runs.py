"""Real AReno runs on a CPU under the harness: what trains ends with GO, what only looks like it does not.

Needs an environment made from constraints/areno.txt, in which AReno trains with MLX.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ASSETS = Path(__file__).parent / "assets"
SFT_STEPS = 40
GSPO_STEPS = 5
ENVIRONMENT = {"MLX_DISABLE_COMPILE": "1", "HF_HUB_OFFLINE": "1"}
"""Compiling takes MLX up to 18 s on a CPU, and some of its compiled steps fail there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRun:
    """A run as the harness left it."""

    pytest_exit_code: int
    output: str
    report: dict[str, Any]
    save_path: Path

    @property
    def decision(self) -> str:
        """GO, NO-GO or CONDITIONAL."""
        return str(self.report["decision"])

    @property
    def reasons(self) -> set[str]:
        """Codes of all reasons why the decision is not GO."""
        return {reason["code"] for reason in self.report["evidence"]["reasons"]}

    @property
    def updates(self) -> tuple[int, int]:
        """Executed and effective updates."""
        observed = self.report["evidence"]["observed"]
        return observed["updates_executed"], observed["updates_effective"]

    @property
    def trainer_exit_code(self) -> int:
        """Of the last attempt."""
        return int(self.report["evidence"]["attempts"][-1]["exit_code"])


def quoted(path: Path) -> str:
    """A path as a word of a command line."""
    return shlex.quote(str(path))


@pytest.fixture(scope="session")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the tiny model in `tiny` and the additions in `data.jsonl`."""
    directory = tmp_path_factory.mktemp("areno")
    for script, target in (("make_tiny.py", "tiny"), ("make_data.py", "data.jsonl")):
        subprocess.run([sys.executable, ASSETS / script, target], cwd=directory, check=True, timeout=900)
    return directory


@pytest.fixture(scope="session")
def judge_run(workspace: Path) -> Callable[[str, str], JudgedRun]:
    """Run `areno train` with these flags under the harness, as a user would."""

    def run(name: str, flags: str) -> JudgedRun:
        areno = quoted(Path(sys.executable).parent / "areno")
        save_path, out_dir = workspace / name / "checkpoints", workspace / name / "report"
        common = "--backend mlx --dataset-path data.jsonl --max-prompt-tokens 64 --max-new-tokens 12"
        command = f"{areno} train {common} --save-path {quoted(save_path)} {flags}"
        return judged(["--train-cmd", command, "--out-dir", str(out_dir)], workspace, out_dir, save_path)

    return run


def judged(
    options: list[str], workspace: Path, out_dir: Path, save_path: Path, marker: str = "real_step"
) -> JudgedRun:
    """`pytest -m real_step` with these options in the workspace."""
    words = [sys.executable, "-m", "pytest", "--pyargs", "harness.acceptance", "-m", marker]
    ended = subprocess.run(
        [*words, "-p", "no:cacheprovider", *options], cwd=workspace, capture_output=True, text=True, timeout=900,
        env={**os.environ, **ENVIRONMENT, "HOME": str(workspace)},
    )
    report = out_dir / "train-model.json"
    assert report.exists(), f"no report; pytest said:\n{ended.stdout[-4000:]}\n{ended.stderr[-4000:]}"
    return JudgedRun(
        pytest_exit_code=ended.returncode, output=ended.stdout, report=json.loads(report.read_text()),
        save_path=save_path,
    )


BuildAndJudge = Callable[..., JudgedRun]


@pytest.fixture(scope="session")
def build_and_judge(workspace: Path) -> BuildAndJudge:
    """`pytest -m real_step --algo ... --hp ...`: the harness builds the command, launches and judges it."""

    def run(
        name: str, algo: str, *hp: str, ckpt: Path | str = "tiny", marker: str = "real_step", **options: Path | str
    ) -> JudgedRun:
        save_path, out_dir = workspace / name / "checkpoints", workspace / name / "report"
        given = {"ckpt": ckpt, "dataset_path": "data.jsonl", "save_path": save_path, **options}
        settings = {**SMALL, **dict(text.split("=", 1) for text in hp)}
        words = ["--algo", algo, "--out-dir", str(out_dir)]
        for option, value in given.items():
            words += [f"--{option.replace('_', '-')}", str(value)]
        for key, value in settings.items():
            words += ["--hp", f"{key}={value}"]
        return judged(words, workspace, out_dir, save_path, marker)

    return run


def checks_of(run: JudgedRun, gate: str) -> dict[str, dict[str, str]]:
    """Checks of one gate by name."""
    found = next(item for item in run.report["evidence"]["gates"] if item["name"] == gate)
    return {check["name"]: check for check in found["checks"]}


def rollout_options(reward: str = "reward.py", loader: str = "loader_rollout.py") -> dict[str, Path]:
    """Loader and reward of a rollout algorithm."""
    return {"dataset_loader_fn": ASSETS / loader, "reward_fn_path": ASSETS / reward}


AGENT = {**rollout_options("reward_agent.py", "loader_agent.py"), "agent_fn": ASSETS / "agent_two_turns.py"}
SMALL = {
    "backend": "mlx", "batch_size": 4, "n_samples": 4, "mini_bs": 4, "epochs": 1, "max_steps": 3, "save_interval": 3,
    "max_prompt_tokens": 64, "max_new_tokens": 12, "lr": "1e-3",
}
"""The --hp of a run of three steps."""


def rollout_flags(reward: str, steps: int, n_samples: int = 4) -> str:
    """Flags of a rollout algorithm with one of the rewards beside this file."""
    return (
        f"--dataset-loader-fn {quoted(ASSETS / 'loader_rollout.py')} "
        f"--reward-fn-path {quoted(ASSETS / reward)} "
        f"--batch-size 4 --n-samples {n_samples} --mini-bs 4 --epochs 1 --max-steps {steps} "
        f"--save-interval {steps} --lr 1e-3"
    )


@pytest.fixture(scope="session")
def sft_run(build_and_judge: BuildAndJudge) -> JudgedRun:
    """SFT on the additions, long enough for its samples to be sentences."""
    return build_and_judge(
        "sft", "sft", "batch_size=20", "mini_bs=20", "epochs=100", f"max_steps={SFT_STEPS}",
        f"save_interval={SFT_STEPS}", "lr=1e-2", dataset_loader_fn=ASSETS / "loader_sft.py")


@pytest.fixture(scope="session")
def start(sft_run: JudgedRun) -> Path:
    """The checkpoint that SFT saved."""
    return sft_run.save_path / f"step_{SFT_STEPS:06d}"


@pytest.fixture(scope="session")
def gspo_run(build_and_judge: BuildAndJudge, start: Path) -> JudgedRun:
    """GSPO from the checkpoint that SFT saved, with token limits of the user's own."""
    return build_and_judge("gspo", "gspo", "max_new_tokens=11", "max_context_len=75", ckpt=start, **rollout_options())


@pytest.fixture(scope="session")
def grpo_run(build_and_judge: BuildAndJudge, start: Path) -> JudgedRun:
    """GRPO from the same checkpoint."""
    return build_and_judge("grpo", "grpo", ckpt=start, **rollout_options())


@pytest.fixture(scope="session")
def ppo_past_warmup(build_and_judge: BuildAndJudge, start: Path) -> JudgedRun:
    """PPO from the same checkpoint, with a warm-up of one step."""
    return build_and_judge("ppo-past", "ppo", "critic_warmup_steps=1", ckpt=start, **rollout_options())


@pytest.fixture(scope="session")
def dpo_run(build_and_judge: BuildAndJudge, start: Path) -> JudgedRun:
    """DPO from the same checkpoint: the right sum against its neighbour."""
    return build_and_judge("dpo", "dpo", ckpt=start, dataset_loader_fn=ASSETS / "loader_dpo.py")


@pytest.fixture(scope="session")
def agentic_run(build_and_judge: BuildAndJudge, start: Path) -> JudgedRun:
    """GSPO of the agent that plays two turns."""
    return build_and_judge("agentic", "gspo", ckpt=start, **AGENT)


@pytest.fixture(scope="session")
def ppo_run(judge_run: Callable[[str, str], JudgedRun]) -> JudgedRun:
    """PPO that ends inside its critic warm-up of 20 steps."""
    return judge_run("ppo", f"--algo ppo --ckpt tiny {rollout_flags('reward.py', 3)}")


@pytest.fixture(scope="session")
def constant_run(judge_run: Callable[[str, str], JudgedRun]) -> JudgedRun:
    """GSPO whose rewards are all 1.0."""
    return judge_run("constant", f"--algo gspo --ckpt tiny {rollout_flags('reward_constant.py', 3)}")


@pytest.fixture(scope="session")
def rounding_run(judge_run: Callable[[str, str], JudgedRun]) -> JudgedRun:
    """GSPO whose rewards are all 0.9, in groups of 6."""
    flags = rollout_flags("reward_rounding.py", 3, n_samples=6)
    return judge_run("rounding", f"--algo gspo --ckpt tiny {flags}")


def test_sft_ends_with_go(sft_run: JudgedRun) -> None:
    """A real SFT run is proven."""
    assert (sft_run.decision, sft_run.pytest_exit_code) == ("GO", 0), sft_run.output


def test_sft_updates_are_counted(sft_run: JudgedRun) -> None:
    """Every step of it updated the model."""
    assert sft_run.updates == (SFT_STEPS, SFT_STEPS)


def test_sft_checkpoint_is_reported(sft_run: JudgedRun) -> None:
    """The checkpoint is named after completed steps, as is total_steps, although event steps count from 0."""
    steps = [checkpoint["step"] for checkpoint in sft_run.report["all_checkpoints"]]
    assert (sft_run.report["total_steps"], steps) == (SFT_STEPS, [SFT_STEPS])


@pytest.mark.parametrize("run", ["sft_run", "gspo_run"])
def test_checkpoint_is_reloaded_by_areno(run: str, request: pytest.FixtureRequest) -> None:
    """Through AReno's own provider, with a forward pass."""
    judged: JudgedRun = request.getfixturevalue(run)
    answer = judged.report["evidence"]["reload"]
    assert (answer["adapter"], answer["status"], answer["forward_ok"]) == ("areno", "ok", True), answer
    assert "loaded by AReno's MLX provider" in answer["notes"]


def test_sft_metrics_directory_is_announced(sft_run: JudgedRun) -> None:
    """The flag that the harness added stands in the report."""
    overrides = sft_run.report["evidence"]["command"]["overrides"]
    assert ("metrics_log_dir", "observability") in [(item["key"], item["kind"]) for item in overrides]


def test_sft_dataset_is_in_the_evidence(sft_run: JudgedRun) -> None:
    """Where the rows came from, their digest, and that every one of them was looked at."""
    dataset = sft_run.report["evidence"]["dataset"]
    assert dataset["source"] == "data.jsonl" and dataset["fingerprint"].startswith("sha256:")
    assert dataset["rows_seen"] == dataset["rows_total"] > 0


TRAINED = ["gspo_run", "grpo_run", "ppo_past_warmup", "dpo_run", "agentic_run"]
SAMPLED = [name for name in TRAINED if name != "dpo_run"]


@pytest.mark.parametrize("run", TRAINED)
def test_every_algorithm_ends_with_go(run: str, request: pytest.FixtureRequest) -> None:
    """A real run of it is proven, with weights as a witness."""
    judged: JudgedRun = request.getfixturevalue(run)
    assert (judged.decision, judged.pytest_exit_code, judged.report["confidence"]) == ("GO", 0, "high"), judged.output


@pytest.mark.parametrize("run", TRAINED)
def test_updates_are_counted(run: str, request: pytest.FixtureRequest) -> None:
    """Every step updated the policy, but for PPO's critic warm-up; whether each was effective hangs on the samples."""
    judged: JudgedRun = request.getfixturevalue(run)
    executed, effective = judged.updates
    assert executed == (2 if run == "ppo_past_warmup" else 3) >= effective >= 1


@pytest.mark.parametrize("run", SAMPLED)
def test_sample_and_reward_are_explained(run: str, request: pytest.FixtureRequest) -> None:
    """A sentence that SFT taught, and the reward that the function gives for it."""
    judged: JudgedRun = request.getfixturevalue(run)
    (sample,) = judged.report["evidence"]["samples"]
    assert (sample["verdict"], "the answer is" in sample["completion"]) == ("coherent", True), sample
    assert 0 <= sample["recomputed_reward"] <= 1


def test_token_limits_arrive_unchanged(gspo_run: JudgedRun) -> None:
    """max_new_tokens and max_context_len as the user gave them, in the command and in what AReno resolved."""
    argv, used = gspo_run.report["evidence"]["command"]["argv"], gspo_run.report["evidence"]["command"]["overrides"]
    assert argv[argv.index("--max-new-tokens") + 1] == "11" and argv[argv.index("--max-context-len") + 1] == "75"
    assert {item["key"]: item["effective_value"] for item in used}["max_new_tokens"] == 11


def test_agentic_algorithm_is_named(agentic_run: JudgedRun) -> None:
    """It is agentic by its agent, and its transcript is in order."""
    evidence = agentic_run.report["evidence"]
    checks = {check["name"]: check["status"] for gate in evidence["gates"] for check in gate["checks"]}
    assert (evidence["algorithm"], checks["transcript"]) == ({"name": "gspo", "kind": "agentic"}, "passed")


@pytest.fixture(scope="session")
def random_run(build_and_judge: BuildAndJudge) -> JudgedRun:
    """The same GSPO from random weights."""
    return build_and_judge("random", "gspo", **rollout_options())


def test_random_model_is_no_go_for_its_sample(random_run: JudgedRun) -> None:
    """It trains, and what it writes is byte soup."""
    assert (random_run.decision, random_run.updates[0]) == ("NO-GO", 3)
    assert random_run.reasons == {"sample-undecodable"}


def test_prompts_that_are_all_too_long_are_never_launched(build_and_judge: BuildAndJudge, start: Path) -> None:
    """The dataset says so before the launch."""
    run = build_and_judge("long", "gspo", "max_prompt_tokens=4", ckpt=start, **rollout_options())
    assert (run.decision, run.reasons, run.report["evidence"]["attempts"]) == ("NO-GO", {"dataset-all-dropped"}, [])


@pytest.mark.skipif(any(Path("/dev").glob("nvidia[0-9]*")), reason="this machine has a GPU")
def test_cuda_without_a_gpu_is_never_launched(build_and_judge: BuildAndJudge) -> None:
    """`areno check` fails as it does for MLX, and here the job needs what is missing."""
    run = build_and_judge("cuda", "gspo", "backend=cuda", **rollout_options())
    assert (run.decision, run.reasons, run.report["evidence"]["attempts"]) == ("NO-GO", {"gpu-missing"}, [])


def test_mlx_goes_on_with_the_reports_read(gspo_run: JudgedRun) -> None:
    """Findings and next steps of `areno check` stand in the evidence, and none of them is in the way."""
    environment = gspo_run.report["evidence"]["environment"]
    check = environment["trainer_check"]
    assert {item["status"] for item in check["findings"]} >= {"OK", "FAIL"} and check["next"]
    assert (check["backend"], check["needed_failures"]) == ("mlx", [])
    assert environment["trainer_report"]["output"]["areno"]["version"] == "0.10.0"
    assert set(environment["trainer_report"]["documents"]) == {"checkout", "AGENTS.md", "CODEMAP.md"}


def test_topology_is_what_areno_resolved(gspo_run: JudgedRun) -> None:
    """One device, from the run's own configuration."""
    topology = gspo_run.report["evidence"]["topology"]
    assert (topology["world_size"], topology["tp_size"], topology["dp_size"]) == (1, 1, 1)


def test_context_that_is_too_small_for_the_agent_is_no_go(build_and_judge: BuildAndJudge, start: Path) -> None:
    """Only the rollout shows it: every trajectory is left out."""
    run = build_and_judge("context", "gspo", "max_context_len=12", ckpt=start, **AGENT)
    assert run.decision == "NO-GO" and run.trainer_exit_code == 1
    assert "trajectories-all-filtered" in run.reasons, run.reasons


def test_ppo_inside_its_warmup_is_no_go(ppo_run: JudgedRun) -> None:
    """The step moved and the exit code is 0, yet the policy was never updated."""
    assert (ppo_run.trainer_exit_code, ppo_run.updates[0], ppo_run.decision) == (0, 0, "NO-GO")


def test_ppo_inside_its_warmup_has_its_reason(ppo_run: JudgedRun) -> None:
    """It is told apart from a run that learned nothing."""
    assert "no-update-executed" in ppo_run.reasons


@pytest.mark.parametrize("run", ["constant_run", "rounding_run"])
def test_equal_rewards_are_no_go(run: str, request: pytest.FixtureRequest) -> None:
    """Rewards that never differ within a group teach nothing, whatever gradient AReno makes of rounding."""
    judged: JudgedRun = request.getfixturevalue(run)
    assert (judged.trainer_exit_code, judged.decision) == (0, "NO-GO")


@pytest.mark.parametrize("run", ["constant_run", "rounding_run"])
def test_equal_rewards_have_their_reason(run: str, request: pytest.FixtureRequest) -> None:
    """The updates were executed, so the reason is the missing signal."""
    judged: JudgedRun = request.getfixturevalue(run)
    assert "no-learning-signal" in judged.reasons


# name: (flags, class of the cause, kind of the first error, (own reasons, number of launches))
FAILURES = {
    "reward": (
        f"--algo gspo --ckpt tiny {rollout_flags('reward_raising.py', 1)}", "data-pipeline", "IndexError",
        ({"exit-code", "crashed-in-window"}, 1)),
    "loader": (
        f"--algo gspo --ckpt tiny {rollout_flags('reward.py', 1)}".replace("loader_rollout.py", "loader_wrong.py"),
        "data-pipeline", None, ({"dataset-loader-required"}, 0)),
    "hub": (
        f"--algo gspo --ckpt some-org/missing-model {rollout_flags('reward.py', 1)}", "cloud-permissions-quota", None,
        ({"hub-unreachable"}, 0)),
}


@pytest.mark.parametrize("name", FAILURES)
def test_failure_is_diagnosed(
    name: str, judge_run: Callable[[str, str], JudgedRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reward that raises, rows of another contract, a hub out of reach: each by its class, before or after launch."""
    monkeypatch.setenv("MODELSCOPE_ENDPOINT", "http://127.0.0.1:9")
    flags, cause, kind, (codes, launches) = FAILURES[name]
    run = judge_run(f"failure-{name}", flags)
    found = json.loads((run.save_path.parent / "report" / "check-failed-run.json").read_text())
    assert run.decision == "NO-GO" and run.reasons & codes
    assert len(run.report["evidence"]["attempts"]) == launches
    assert (found["primary_cause"], found["run_id"]) == (cause, run.report["run_id"])
    assert kind is None or found["first_causal"]["kind"] == kind
    assert f"Root cause ({cause}" in run.output


def test_smoke_alone_is_capacity_evidence_only(build_and_judge: BuildAndJudge) -> None:
    """One step of PPO, past its warm-up, fits; its memory is told; nothing was saved, and nothing was proven."""
    run = build_and_judge("smoke", "ppo", "save_interval=1", marker="smoke_capacity", **rollout_options())
    smoke = checks_of(run, "smoke_capacity")
    assert {check["status"] for check in smoke.values()} == {"passed"}, smoke
    assert "MB" in smoke["peak_memory"]["observed"] and not run.save_path.exists()
    assert (run.decision, run.pytest_exit_code, run.reasons) == ("NO-GO", 1, {"capacity-evidence-only"})
    assert "capacity evidence only" in run.output and run.report["evidence"]["attempts"] == []


def test_smoke_that_fails_blocks_the_run(build_and_judge: BuildAndJudge) -> None:
    """What to make smaller is told in its order, and is never a token limit."""
    run = build_and_judge("smoke-fails", "gspo", marker="smoke_capacity or real_step",
                          **rollout_options("reward_raising.py"))
    assert (run.decision, run.reasons, run.report["evidence"]["attempts"]) == ("NO-GO", {"capacity-exceeded"}, [])
    remedy = next(reason["remedy"] for reason in run.report["evidence"]["reasons"])
    assert remedy.index("max_running_prompts=8") < remedy.index("mini_bs=2") and "token" not in remedy
    failure = json.loads((run.save_path.parent / "report" / "check-failed-run.json").read_text())
    assert (failure["primary_cause"], failure["first_causal"]["kind"]) == ("data-pipeline", "IndexError")


Retried = Callable[..., JudgedRun]


@pytest.fixture
def retried(workspace: Path, start: Path, request: pytest.FixtureRequest) -> Retried:
    """One GSPO job of two steps, run again and again in a place of its own: `run(name, *options, flags=, rollout=)`.

    `rollout`: the flags that name its reward and its loader.
    """
    place = workspace / request.node.name

    def run(name: str, *options: str, rollout: str, flags: str = "") -> JudgedRun:
        areno = quoted(Path(sys.executable).parent / "areno")
        command = (f"{areno} train --backend mlx --dataset-path data.jsonl --max-prompt-tokens 64 --max-new-tokens 12 "
                   f"--algo gspo --ckpt {quoted(start)} --save-path {quoted(place / name / 'saved')} {flags} {rollout}")
        return judged(["--train-cmd", command, "--out-dir", str(place / name), *options], workspace, place / name,
                      place / name / "saved")

    return run


def test_mended_loader_is_retried_to_go_with_its_lineage(workspace: Path, tmp_path: Path, retried: Retried) -> None:
    """Rows of another contract launch nothing; another loader is another file, which is approved. The refused run is a
    row of the ledger and no try."""
    loader = tmp_path / "loader.py"
    loader.write_text((ASSETS / "loader_wrong.py").read_text())
    rollout = rollout_flags("reward.py", 2).replace(quoted(ASSETS / "loader_rollout.py"), quoted(loader))
    first = retried("first", rollout=rollout)
    assert (first.decision, first.reasons, first.report["evidence"]["attempts"]) == (
        "NO-GO", {"dataset-loader-required"}, [])
    retry_of = ("--retry-of", str(first.save_path.parent))
    loader.write_text((ASSETS / "loader_rollout.py").read_text())
    assert retried("mended", *retry_of, rollout=rollout).reasons == {"retry-identity-differs"}
    second = retried("second", *retry_of, "--approve", "files", rollout=rollout)
    assert (second.decision, second.reasons) == ("GO", set())
    lineage = second.report["evidence"]["lineage"]
    assert (lineage["first_failure"]["primary_cause"], lineage["tries"], lineage["pass_at_k"]) == (
        "data-pipeline", 1, True)
    assert [row["launched"] for row in lineage["attempts"]] == [False, True]


def test_mended_reward_is_retried_to_go_with_its_lineage(tmp_path: Path, retried: Retried) -> None:
    """A reward that raises: unchanged the retry is pointless; mended in place it is another file, which is approved.

    Fewer concurrent prompts beside it are capacity. Rollouts are sampled, so that their losses are not compared.
    """
    reward = tmp_path / "reward.py"
    reward.write_text((ASSETS / "reward_raising.py").read_text())

    def run(name: str, *options: str, flags: str = "") -> JudgedRun:
        return retried(name, *options, flags=flags, rollout=rollout_flags(str(reward), 2))

    first = run("first")
    assert first.decision == "NO-GO"
    retry_of = ("--retry-of", str(first.save_path.parent))
    assert run("unchanged", *retry_of).reasons == {"retry-pointless"}
    reward.write_text((ASSETS / "reward.py").read_text())
    assert run("mended", *retry_of).reasons == {"retry-identity-differs"}
    second = run("approved", *retry_of, "--approve", "files", flags="--max-running-prompts 4")
    assert (second.decision, second.reasons) == ("GO", set())
    lineage = second.report["evidence"]["lineage"]
    assert (lineage["first_failure"]["primary_cause"], lineage["pass_at_1"], lineage["pass_at_k"]) == (
        "data-pipeline", False, True)
    changes = {change["key"]: change["kind"] for change in lineage["attempts"][-1]["changes"]}
    assert changes == {"max_running_prompts": "capacity", "resolved_max_running_prompts": "capacity"}


def test_context_that_cuts_every_second_turn_is_not_go(build_and_judge: BuildAndJudge, start: Path) -> None:
    """The first turns are trained on and every file looks as ever; the output tells that no agent played to its end."""
    run = build_and_judge("second-turns", "gspo", "max_context_len=28", ckpt=start, **AGENT)
    assert run.trainer_exit_code == 0 and run.updates[0] == 3
    assert run.decision != "GO" and "trajectories-all-cut" in run.reasons, run.reasons
