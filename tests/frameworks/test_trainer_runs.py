"""Real programs of every framework under the harness, started as a user starts them: healthy ones end with GO,
broken ones do not, each for its own reason.

Needs an environment made from constraints/trainers.txt; a few minutes in all.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
import venv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = Path(__file__).parent / "programs"
PYTHON = shlex.quote(sys.executable)
BIN = Path(sys.executable).parent
TRL = "--model_name_or_path tiny --use_cpu True --bf16 False --dtype float32"
ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "KERAS_BACKEND": "torch"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Healthy:
    """A command that trains, and what must be known about its run."""

    command: str
    framework: str
    told_from: str
    """Part of the reason for the framework."""
    updates: int
    added: tuple[str, ...] = ()
    """Keys of the flags that the harness adds."""
    effective: tuple[tuple[str, Any], ...] = ()
    """Settings that the trainer says it used."""
    reload: str = ""
    """The loader that its checkpoint is given to; "" for a command that saves nothing."""


def script(name: str, arguments: str = "") -> str:
    """A program of this directory, started by the Python that runs the tests."""
    return f"{PYTHON} {shlex.quote(str(PROGRAMS / name))} {arguments}".strip()


HF_ADDED = ("logging_steps", "report_to")
HEALTHY = {
    "hf": Healthy(
        command=script("hf_trainer.py", "--output_dir out --max_steps 20 --use_cpu True --save_steps 10"),
        framework="transformers", told_from="hf_trainer.py uses transformers.Trainer", updates=20, added=HF_ADDED,
        effective=(("max_steps", 20), ("learning_rate", 5e-05)),
        reload="transformers",
    ),
    "hf-state-only": Healthy(
        command=script(
            "hf_trainer.py",
            "--output_dir out --max_steps 12 --use_cpu True --logging_steps 4 --report_to none --save_steps 6",
        ),
        framework="transformers", told_from="hf_trainer.py", updates=12, added=("report_to",),
        effective=(("logging_steps", 4),),
        reload="transformers",
    ),
    "sft": Healthy(
        command=script("trl_sft.py", f"{TRL} --dataset_name sft.jsonl --output_dir out --max_steps 10 --save_steps 5"),
        framework="trl", told_from="trl_sft.py uses trl.SFT", updates=10, added=HF_ADDED,
        reload="transformers",
    ),
    "lora": Healthy(
        command=script(
            "trl_sft.py",
            f"{TRL} --dataset_name sft.jsonl --output_dir out --max_steps 10 --save_steps 5 --use_peft True "
            "--lora_target_modules q_proj v_proj --learning_rate 1e-2",
        ),
        framework="trl", told_from="trl_sft.py uses trl.SFT", updates=10, added=HF_ADDED,
        effective=(("learning_rate", 0.01),),
        reload="peft",
    ),
    "dpo": Healthy(
        command=script("trl_dpo.py", f"{TRL} --dataset_name dpo.jsonl --output_dir out --max_steps 6 --save_steps 3"),
        framework="trl", told_from="trl_dpo.py uses trl.DPO", updates=6, added=HF_ADDED,
        reload="transformers",
    ),
    "grpo": Healthy(
        command=script("trl_grpo.py", "tiny prompts.jsonl digits"),
        framework="trl", told_from="trl_grpo.py uses trl.GRPO", updates=4, effective=(("max_steps", 4),),
    ),
    "lightning": Healthy(
        command=script("lightning_script.py", "--max_epochs 3 --lr 0.02"),
        framework="lightning", told_from="lightning_script.py uses lightning's", updates=30,
        effective=(("lr", 0.02),),
        reload="lightning",
    ),
    "lightning-cli": Healthy(
        command=script("lightning_cli.py", "fit --trainer.max_steps=30 --model.lr=0.02"),
        framework="lightning", told_from="LightningCLI", updates=30, added=("trainer.log_every_n_steps",),
        effective=(("trainer.max_steps", 30), ("model.lr", 0.02)),
    ),
    "torch": Healthy(
        command=script("torch_argparse.py"), framework="torch", told_from="torch_argparse.py imports torch", updates=20
    ),
    "torch-epochs": Healthy(
        command=script("torch_epochs.py"), framework="torch", told_from="torch_epochs.py imports torch", updates=40
    ),
    "torchrun": Healthy(
        command=f"{shlex.quote(str(BIN / 'torchrun'))} --standalone --nproc-per-node 2 "
        f"{shlex.quote(str(PROGRAMS / 'torch_argparse.py'))} --max-steps 15",
        framework="torch", told_from="launched by torchrun", updates=15,
    ),
    "accelerate": Healthy(
        command=f"{shlex.quote(str(BIN / 'accelerate'))} launch --cpu --num_processes 1 --num_machines 1 "
        f"--mixed_precision no --dynamo_backend no {shlex.quote(str(PROGRAMS / 'hf_trainer.py'))} "
        "--output_dir out --max_steps 10 --use_cpu True --save_steps 5",
        framework="transformers", told_from="hf_trainer.py", updates=10, added=HF_ADDED,
        reload="transformers",
    ),
    "hydra-uv-run": Healthy(
        command=f"{shlex.quote(str(BIN / 'uv'))} run --no-project --python {PYTHON} "
        f"{shlex.quote(str(PROGRAMS / 'hydra_app.py'))} trainer.max_steps=15",
        framework="torch", told_from="hydra_app.py imports torch", updates=15,
        effective=(("trainer.max_steps", 15), ("optimizer.lr", 0.01)),
    ),
    "jax": Healthy(
        command=script("jax_absl.py"), framework="jax", told_from="jax_absl.py imports flax", updates=20,
        reload="safetensors",
    ),
    "keras": Healthy(
        command=script("keras_fit.py", "--epochs 3"), framework="keras", told_from="keras_fit.py imports keras",
        updates=9,
        reload="keras",
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRun:
    """A run as the harness left it."""

    pytest_exit_code: int
    output: str
    report: dict[str, Any]
    out_dir: Path

    @property
    def decision(self) -> str:
        """GO, NO-GO or CONDITIONAL."""
        return str(self.report["decision"])

    @property
    def reasons(self) -> set[str]:
        """Codes of all reasons why the decision is not GO."""
        return {reason["code"] for reason in self.report["evidence"]["reasons"]}

    @property
    def trainer_exit_code(self) -> int:
        """Of the last attempt."""
        return int(self.report["evidence"]["attempts"][-1]["exit_code"])

    def check(self, name: str) -> dict[str, Any]:
        """A check of real_step."""
        gates = {gate["name"]: gate for gate in self.report["evidence"]["gates"]}
        return next(check for check in gates["real_step"]["checks"] if check["name"] == name)

    def effective_values(self) -> dict[str, Any]:
        """What the trainer says it used."""
        entries = [json.loads(line) for line in (self.out_dir / "journal.jsonl").read_text().splitlines()]
        found = [entry for entry in entries if entry["event"] == "effective-values"]
        return {key: item["value"] for key, item in found[-1]["values"].items()}


Judge = Callable[..., JudgedRun]


@pytest.fixture(scope="session")
def materials(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the tiny model and its data."""
    directory = tmp_path_factory.mktemp("materials")
    words = [sys.executable, str(PROGRAMS / "make_model.py"), "tiny"]
    subprocess.run(words, cwd=directory, check=True, timeout=900, env={**os.environ, **ENVIRONMENT})
    return directory


@pytest.fixture(scope="session")
def judge_run(materials: Path, tmp_path_factory: pytest.TempPathFactory) -> Judge:
    """Run a command under the harness in a directory of its own, as a user would; a directory can be used again."""

    def run(command: str, *options: str, workdir: Path | None = None) -> JudgedRun:
        directory = workdir or tmp_path_factory.mktemp("run")
        for item in materials.iterdir():
            if not (directory / item.name).exists():
                (directory / item.name).symlink_to(item)
        out_dir = tmp_path_factory.mktemp("report") / "out"
        words = [sys.executable, "-m", "pytest", "--pyargs", "harness.acceptance", "-m", "real_step"]
        words += ["-p", "no:cacheprovider", "--train-cmd", command, "--out-dir", str(out_dir), *options]
        environment = {**os.environ, **ENVIRONMENT}
        ended = subprocess.run(words, cwd=directory, env=environment, capture_output=True, text=True, timeout=900)
        report = out_dir / "train-model.json"
        assert report.exists(), f"no report; pytest said:\n{ended.stdout[-4000:]}\n{ended.stderr[-4000:]}"
        return JudgedRun(
            pytest_exit_code=ended.returncode, output=ended.stdout, report=json.loads(report.read_text()),
            out_dir=out_dir,
        )  # fmt: skip

    return run


@pytest.fixture(scope="session")
def healthy_run(judge_run: Judge) -> Callable[[str], JudgedRun]:
    """The run of a healthy command by its name, made once."""
    made: dict[str, JudgedRun] = {}

    def run(name: str) -> JudgedRun:
        if name not in made:
            made[name] = judge_run(HEALTHY[name].command)
        return made[name]

    return run


@pytest.fixture(scope="session", params=sorted(HEALTHY))
def healthy(request: pytest.FixtureRequest, healthy_run: Callable[[str], JudgedRun]) -> tuple[Healthy, JudgedRun]:
    """Each healthy command with its run."""
    return HEALTHY[request.param], healthy_run(request.param)


def test_healthy_program_ends_with_go(healthy: tuple[Healthy, JudgedRun]) -> None:
    """What trains is proven, and pytest passes."""
    _, run = healthy
    assert (run.decision, run.pytest_exit_code) == ("GO", 0), run.output


def test_framework_is_told_with_its_reason(healthy: tuple[Healthy, JudgedRun]) -> None:
    """The more specific framework wins and the reason names the place."""
    asked, run = healthy
    command = run.report["evidence"]["command"]
    assert command["framework"] == asked.framework and asked.told_from in command["framework_reason"]


def test_updates_are_counted(healthy: tuple[Healthy, JudgedRun]) -> None:
    """By the best witness of the framework: every update and no more."""
    asked, run = healthy
    counted = run.report["evidence"]["observed"]["updates_executed"], run.report["total_steps"]
    assert counted == (asked.updates, asked.updates)


def test_additions_are_announced(healthy: tuple[Healthy, JudgedRun]) -> None:
    """Flags are added only where the command would log nothing, or nowhere, and each stands in the report."""
    asked, run = healthy
    overrides = run.report["evidence"]["command"]["overrides"]
    assert {(item["key"], item["kind"]) for item in overrides} == {(key, "observability") for key in asked.added}


def test_effective_values_are_read(healthy: tuple[Healthy, JudgedRun]) -> None:
    """The settings that the trainer wrote down are journaled."""
    asked, run = healthy
    values = run.effective_values() if asked.effective else {}
    assert {key: values.get(key) for key, _ in asked.effective} == dict(asked.effective)


@pytest.mark.parametrize("name", sorted(name for name, asked in HEALTHY.items() if asked.reload))
def test_what_was_saved_is_reloaded(name: str, healthy_run: Callable[[str], JudgedRun]) -> None:
    """By the loader that its users will use; a model of transformers makes a forward pass, and nothing is missing."""
    asked, run = HEALTHY[name], healthy_run(name)
    answer = run.report["evidence"]["reload"]
    assert (answer["adapter"], answer["status"], answer["missing"]) == (asked.reload, "ok", []), answer
    assert answer["forward_ok"] is (True if asked.reload in ("transformers", "peft", "keras", "lightning") else None)


def test_lightning_cli_evaluates_what_it_saved(judge_run: Judge) -> None:
    """By its own `validate`: the loss that was logged."""
    run = judge_run(HEALTHY["lightning-cli"].command, "--eval-check")
    gates = {gate["name"]: gate for gate in run.report["evidence"]["gates"]}
    check = next(check for check in gates["save_reload"]["checks"] if check["name"] == "eval_agrees")
    assert check["status"] == "passed", check
    assert "val_loss" in check["observed"] and "own evaluation" in check["observed"]


def test_model_that_evaluates_otherwise_than_it_did_is_no_go(judge_run: Judge) -> None:
    """Finite, changed, loadable, and scaled after its save: the script's own --do_eval tells, as the checkpoint before
    shows that it can.
    """
    run = judge_run(script(
        "hf_clm.py", "--model_name_or_path tiny --do_train --do_eval --output_dir out --max_steps 20 --save_steps 10 "
        "--eval_strategy steps --eval_steps 10 --learning_rate 1e-2 --use_cpu True --spoil_at 20"), "--eval-check")
    assert (run.decision, run.reasons) == ("NO-GO", {"eval-loss-disagrees"}), run.output


def test_key_that_lightning_never_saved_is_no_go(judge_run: Judge) -> None:
    """Its tensors load and are finite; the program's own class would begin with a random bias."""
    run = judge_run(script("lightning_script.py", "--max_epochs 3 --lr 0.02 --drops bias"))
    assert (run.decision, run.reasons) == ("NO-GO", {"reload-failed"}), run.output
    assert run.report["evidence"]["reload"]["missing"] == ["layer.bias"]


@pytest.mark.parametrize(("command", "decision", "reasons"), [
    (script("lightning_script.py", "--max_epochs 3 --lr 0.02 --keeps_start"), "NO-GO", {"weights-unchanged"}),
    (script("keras_fit.py", "--save-once end"), "GO", set()),
    (script("keras_fit.py", "--save-once start"), "NO-GO", {"weights-unchanged"}),
    (script("jax_absl.py", "--orbax_only twice"), "GO", set()),
    (script("jax_absl.py", "--orbax_only start"), "NO-GO", {"weights-unchanged"}),
    (script("jax_absl.py", "--orbax_only once"), "CONDITIONAL", {"weights-not-compared"}),
], ids=lambda value: value.split("/")[-1] if isinstance(value, str) and "/" in value else "")
def test_saved_weights_are_those_that_were_trained(
    command: str, decision: str, reasons: set[str], judge_run: Judge
) -> None:
    """In formats that only their loader reads: by the probe's digests, else against the run's own start; JAX has no
    probe, so that a lone checkpoint is unproven.
    """
    run = judge_run(command)
    assert (run.decision, run.reasons) == (decision, reasons), run.output


def checkpoints_of(path: Path, *options: str) -> dict[str, Any]:
    """What `python -m harness checkpoints` says."""
    words = [sys.executable, "-m", "harness", "checkpoints", str(path), *options]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=900, env={**os.environ, **ENVIRONMENT})
    answer: dict[str, Any] = json.loads(ended.stdout)
    assert ended.returncode == (0 if answer["ok"] else 1)
    return answer


def test_orbax_is_restored(healthy_run: Callable[[str], JudgedRun]) -> None:
    """Beside the safetensors files of the same run, without its program."""
    saved = Path(healthy_run("jax").report["best_checkpoint"]).parent / "orbax"
    found = checkpoints_of(saved, "--verify", "--reload")
    assert (found["ok"], found["reload"]["adapter"], found["reload"]["tensors"]) == (True, "orbax", 4), found


@pytest.mark.parametrize(("change", "told"), [
    ({"hidden_size": 64}, "does not fit this base"), ({"vocab_size": 20}, "only 20 rows"),
    ({"num_hidden_layers": 1}, "fit nowhere"), ({}, ""),
])
def test_adapter_is_held_against_its_base(
    change: dict[str, int], told: str, healthy_run: Callable[[str], JudgedRun], materials: Path, tmp_path: Path
) -> None:
    """Another width, vocabulary or depth than the one that it was trained on fails; the right one loads."""
    from transformers import AutoConfig, Qwen2ForCausalLM

    config = AutoConfig.from_pretrained(materials / "tiny", **change)
    if "num_hidden_layers" in change:
        config.layer_types = config.layer_types[:1]
    Qwen2ForCausalLM(config).save_pretrained(tmp_path / "tiny")
    saved = Path(healthy_run("lora").report["best_checkpoint"])
    answer = checkpoints_of(saved, "--reload", "--base", str(tmp_path / "tiny"))["reload"]
    assert (answer["status"] == "ok") == (not told) and told in (answer["error"] or ""), answer


def test_adapter_without_its_base_is_not_attempted(healthy_run: Callable[[str], JudgedRun], tmp_path: Path) -> None:
    """It names the option that would tell where the base is."""
    saved = Path(healthy_run("lora").report["best_checkpoint"])
    answer = checkpoints_of(saved, "--reload")["reload"]
    assert answer["status"] == "not-attempted" and "--base" in answer["error"]


@pytest.fixture(scope="session")
def resumed(judge_run: Judge, tmp_path_factory: pytest.TempPathFactory) -> tuple[JudgedRun, JudgedRun]:
    """A finished HF run resumed at its end, and the same resumed to go on."""
    directory = tmp_path_factory.mktemp("resumed")
    flags = "--output_dir out --use_cpu True --save_steps 10 --logging_steps 1"
    program = shlex.quote(str(PROGRAMS / "hf_trainer.py"))
    first = f"{sys.executable} {program} {flags} --max_steps 20"
    subprocess.run(
        shlex.split(first), cwd=directory, check=True, timeout=900, capture_output=True,
        env={**os.environ, **ENVIRONMENT},
    )  # fmt: skip
    resume = "--resume_from_checkpoint out/checkpoint-20"
    finished = judge_run(f"{PYTHON} {program} {flags} --max_steps 20 {resume}", workdir=directory)
    going_on = judge_run(f"{PYTHON} {program} {flags} --max_steps 26 {resume}", workdir=directory)
    return finished, going_on


def test_resume_of_a_finished_run_is_no_go(resumed: tuple[JudgedRun, JudgedRun]) -> None:
    """Exit code 0, 20 inherited rows, the target step in the counter, and not one update."""
    run, _ = resumed
    assert (run.trainer_exit_code, run.decision) == (0, "NO-GO") and "no-update-executed" in run.reasons


def test_inherited_rows_do_not_count(resumed: tuple[JudgedRun, JudgedRun]) -> None:
    """The losses in its trainer_state.json are those of the run before."""
    run, _ = resumed
    assert run.check("loss_finite")["status"] == "not_applicable"


def test_resumed_run_that_goes_on_ends_with_go(resumed: tuple[JudgedRun, JudgedRun]) -> None:
    """In the same output directory, counted from where it resumed."""
    _, run = resumed
    updates = run.report["evidence"]["observed"]["updates_executed"]
    assert (run.decision, updates, run.report["total_steps"]) == ("GO", 6, 26), run.output


def test_own_limit_below_the_requested_is_named(judge_run: Judge) -> None:
    """A script that overwrites max_steps ends short of the target, and the reason says by which limit."""
    arguments = "--output_dir out --max_steps 20 --own_max_steps 8 --use_cpu True"
    run = judge_run(script("hf_trainer.py", arguments))
    check = run.check("target_step")
    assert (run.decision, "target-not-reached" in run.reasons) == ("NO-GO", True)
    assert "own limit is 8 (max_steps in" in check["why"], check


def test_stock_logging_without_observability_is_unproven(judge_run: Judge) -> None:
    """logging_steps 500 logs nothing of 20 steps: not broken, and not proven."""
    arguments = "--output_dir out --max_steps 20 --use_cpu True --save_strategy no --save_state False"
    run = judge_run(script("hf_trainer.py", arguments), "--no-observability")
    assert (run.decision, run.report["evidence"]["outcome"]) == ("CONDITIONAL", "unproven")
    assert "no-metric-points" in run.reasons and "--logging_steps" in run.check("minimum_evidence")["why"]


def test_stock_logging_without_tensorboard_ends_with_go(
    judge_run: Judge, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Without TensorBoard the trainer's state and what it prints tell the run; only the cadence is added."""
    python = shlex.quote(str(without_tensorboard(tmp_path_factory.mktemp("bare"))))
    program = shlex.quote(str(PROGRAMS / "hf_trainer.py"))
    run = judge_run(f"{python} {program} --output_dir out --max_steps 10 --use_cpu True --save_steps 5")
    added = [item["key"] for item in run.report["evidence"]["command"]["overrides"]]
    kinds = {item["kind"] for item in run.report["evidence"]["observed"]["sources"] if item["points"]}
    assert (run.decision, added, kinds) == ("GO", ["logging_steps"], {"trainer_state", "stdout"}), run.output


def without_tensorboard(directory: Path) -> Path:
    """An interpreter with every package of this one but TensorBoard."""
    venv.create(directory, symlinks=True)
    (site,) = directory.glob("lib/python*/site-packages")
    for folder in dict.fromkeys(Path(entry) for entry in sys.path if entry.endswith("site-packages")):
        for item in folder.iterdir():
            if not item.name.lower().startswith("tensorboard") and item.suffix != ".pth":
                with contextlib.suppress(FileExistsError):
                    (site / item.name).symlink_to(item)
    return directory / "bin" / "python"


def test_summary_row_is_no_training_loss(judge_run: Judge) -> None:
    """Stock logging leaves only the mean loss of the whole run in trainer_state.json: a count, but no series."""
    run = judge_run(script("hf_trainer.py", "--output_dir out --max_steps 12 --use_cpu True"), "--no-observability")
    assert run.decision == "CONDITIONAL" and "no-metric-points" in run.reasons
    assert run.check("target_step")["status"] == "passed"


def test_nan_behind_the_filter_is_no_go(judge_run: Judge) -> None:
    """Every logged loss is finite; the gradient norm and the weights are not."""
    run = judge_run(script("hf_trainer.py", "--output_dir out --max_steps 12 --nan_from_step 5 --use_cpu True"))
    assert run.check("loss_finite")["status"] == "passed"
    assert run.decision == "NO-GO" and {"grad-norm-not-finite", "weights-not-finite"} & run.reasons


def test_run_that_stops_early_is_no_go(judge_run: Judge) -> None:
    """A callback ends the training at step 7 of 12 with exit code 0."""
    run = judge_run(script("hf_trainer.py", "--output_dir out --max_steps 12 --exit_early 7 --use_cpu True"))
    assert (run.trainer_exit_code, run.decision) == (0, "NO-GO") and "target-not-reached" in run.reasons


def test_ranks_that_train_alone_are_no_go(judge_run: Judge, tmp_path: Path) -> None:
    """torchrun starts two processes, and each trains a model of its own: world size 1, twice."""
    text = (PROGRAMS / "torch_argparse.py").read_text(encoding="utf-8")
    (tmp_path / "train.py").write_text(text.replace('"WORLD_SIZE" in os.environ', "False"), encoding="utf-8")
    torchrun = shlex.quote(str(BIN / "torchrun"))
    run = judge_run(f"{torchrun} --standalone --nproc-per-node 2 train.py --max-steps 15", workdir=tmp_path)
    assert (run.decision, "world-size-not-realised" in run.reasons) == ("NO-GO", True), run.output


def test_epochs_cut_short_are_no_go(judge_run: Judge) -> None:
    """The default of --epochs is 4; the loop ends before the third, with exit code 0."""
    run = judge_run(script("torch_epochs.py", "--break-in-epoch 3"))
    assert (run.trainer_exit_code, run.decision, run.reasons) == (0, "NO-GO", {"target-not-reached"}), run.output


def test_constant_reward_is_no_go(judge_run: Judge) -> None:
    """Groups without any difference teach nothing."""
    run = judge_run(script("trl_grpo.py", "tiny prompts.jsonl constant"))
    assert run.decision == "NO-GO" and "no-learning-signal" in run.reasons, run.output


def test_completions_that_are_not_kept_are_unproven(judge_run: Judge) -> None:
    """Nothing is wrong with the run, and what would show a sample is named."""
    run = judge_run(script("trl_grpo.py", "tiny prompts.jsonl digits silent"))
    assert (run.decision, run.reasons) == ("CONDITIONAL", {"sample-missing"}), run.output
    assert "--log_completions True" in run.output


def test_grpo_sample_is_in_the_evidence(judge_run: Judge) -> None:
    """A completion of the last update, its reward as TRL keeps it."""
    run = judge_run(HEALTHY["grpo"].command)
    (sample,) = run.report["evidence"]["samples"]
    assert (sample["step"], sample["verdict"], isinstance(sample["reward"], float)) == (4, "coherent", True)


def test_keras_without_a_learning_rate_is_no_go(judge_run: Judge) -> None:
    """Its optimizer steps, the losses are finite, and nothing can change."""
    run = judge_run(script("keras_fit.py", "--epochs 2 --lr 0"))
    assert run.decision == "NO-GO" and "lr-zero" in run.reasons, run.output


def test_max_steps_caps_by_the_trainers_flag(judge_run: Judge) -> None:
    """--max-steps below the command's own limit goes into the trainer's flag, announced as semantic."""
    run = judge_run(
        script("hf_trainer.py", "--output_dir out --max_steps 500 --use_cpu True --save_steps 5"), "--max-steps", "10"
    )
    overrides = {item["key"]: item for item in run.report["evidence"]["command"]["overrides"]}
    assert (run.decision, run.report["total_steps"]) == ("GO", 10), run.output
    assert (overrides["max_steps"]["kind"], overrides["max_steps"]["value"]) == ("semantic", "10")


def test_same_directory_can_be_used_again(judge_run: Judge, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The same command twice, with the same seed and no event file: the second run is its own, not the first's."""
    directory = tmp_path_factory.mktemp("again")
    arguments = "--output_dir out --max_steps 10 --use_cpu True --logging_steps 1 --save_steps 5"
    command = script("hf_trainer.py", arguments)
    runs = [judge_run(command, "--no-observability", workdir=directory) for _ in range(2)]
    assert [(run.decision, run.report["evidence"]["observed"]["updates_executed"]) for run in runs] == [("GO", 10)] * 2


OWN_STOPS = {
    "hf": script(
        "hf_trainer.py",
        "--output_dir out --max_steps 400 --use_cpu True --stop_patience 3 --eval_strategy steps --eval_steps 5 "
        "--save_strategy steps --save_steps 5 --save_total_limit 2 --load_best_model_at_end True "
        "--metric_for_best_model eval_loss --learning_rate 1e-2 --logging_steps 1",
    ),
    "lightning": script("lightning_script.py", "--max_epochs 400 --lr 0.1 --stop_patience 3"),
    "keras": script("keras_fit.py", "--epochs 400 --lr 0.1 --stop-patience 3"),
}  # fmt: skip
TRL_OWN_STOP = script(
    "trl_sft.py",
    f"{TRL} --dataset_name sft.jsonl --output_dir out --max_steps 400 --stop_patience 3 --eval_strategy steps "
    "--eval_steps 5 --save_strategy steps --save_steps 5 --save_total_limit 2 --load_best_model_at_end True "
    "--metric_for_best_model eval_loss --learning_rate 1e-2 --logging_steps 1",
)  # fmt: skip


@pytest.mark.parametrize("name", [*OWN_STOPS, "trl"])
def test_trainers_own_early_stopping_is_go(name: str, judge_run: Judge) -> None:
    """A job that overfits is ended by its own callback: EARLY_STOPPED by the trainer, the target is not demanded."""
    run = judge_run(OWN_STOPS[name] if name != "trl" else TRL_OWN_STOP)
    stopping = run.report["early_stopping"]
    assert (run.decision, run.report["terminal_state"]) == ("GO", "EARLY_STOPPED"), run.output
    assert run.report["evidence"]["command"]["stopped_by"] == "trainer"
    assert (stopping["enabled"], stopping["triggered"]) == (True, True)
    assert 0 < stopping["triggered_at_step"] < 4000
    assert run.check("target_step")["status"] == "passed"
    if name != "keras":
        assert stopping["patience"] == 3


@pytest.mark.parametrize("name", OWN_STOPS)
def test_early_stopping_by_the_harness_ends_an_overfitting_job(name: str, judge_run: Judge) -> None:
    """The trainers' own patience is far away; the harness's is used up: SIGTERM, EARLY_STOPPED, and when."""
    command = OWN_STOPS[name].replace("patience 3", "patience 90").replace(" 400", " 100000")
    metric = "val_loss" if name != "hf" else "eval_loss"
    run = judge_run(command, "--early-stop-metric", metric, "--early-stop-patience", "3")
    stopping = run.report["early_stopping"]
    assert run.report["terminal_state"] == "EARLY_STOPPED", run.output
    assert run.report["evidence"]["command"]["stopped_by"] == "early-stop"
    assert (stopping["metric"], stopping["patience"], stopping["triggered"]) == (metric, 3, True)
    assert f"{metric} did not improve for 3 evals" in run.output


def test_early_stopping_by_the_harness_ends_a_trl_job(judge_run: Judge) -> None:
    """SFT that evaluates on what it does not train on: SIGTERM once the patience is used up."""
    command = script(
        "trl_sft.py",
        f"{TRL} --dataset_name sft.jsonl --output_dir out --max_steps 100000 --save_steps 5 --eval_strategy steps "
        "--eval_steps 5 --learning_rate 1e-2",
    )  # fmt: skip
    run = judge_run(command, "--early-stop-metric", "eval_loss", "--early-stop-patience", "3")
    assert run.report["early_stopping"]["triggered"] is True, run.output
    assert run.report["terminal_state"] == "EARLY_STOPPED"


def test_hf_trainer_resumes_within_the_tolerance(judge_run: Judge) -> None:
    """The same losses after checkpoint-10 as without the interruption, the schedule and the data going on."""
    flags = "--output_dir out --max_steps 20 --use_cpu True --save_steps 5 --logging_steps 1"
    run = judge_run(script("hf_trainer.py", flags), "--check-resume")
    gate = next(gate for gate in run.report["evidence"]["gates"] if gate["name"] == "save_reload")
    check = next(check for check in gate["checks"] if check["name"] == "resume")
    assert (run.decision, check["status"]) == ("GO", "passed"), run.output


def retry_gate(run: JudgedRun) -> dict[str, Any]:
    """The checks of the gate `retry` by name."""
    gate = next(gate for gate in run.report["evidence"]["gates"] if gate["name"] == "retry")
    return {"status": gate["status"], **{check["name"]: check for check in gate["checks"]}}


def test_smaller_microbatch_is_the_same_job(healthy_run: Callable[[str], JudgedRun], judge_run: Judge) -> None:
    """Half the samples a device, twice the accumulation: the batch stays, and so does the loss, step by step."""
    first = healthy_run("hf")
    command = HEALTHY["hf"].command + " --per_device_train_batch_size 4 --gradient_accumulation_steps 2"
    retried = judge_run(command, "--retry-of", str(first.out_dir))
    gate = retry_gate(retried)
    assert (retried.decision, gate["status"]) == ("GO", "PASS"), retried.reasons
    assert "per_device_train_batch_size: not given -> 4 (capacity)" in gate["settings"]["observed"]
    assert "points of" in gate["metrics"]["observed"]


def test_smaller_batch_is_another_job(healthy_run: Callable[[str], JudgedRun], judge_run: Judge) -> None:
    """Half the samples alone change what is learned: refused, and capacity is proposed first."""
    command = HEALTHY["hf"].command + " --per_device_train_batch_size 4"
    retried = judge_run(command, "--retry-of", str(healthy_run("hf").out_dir))
    assert retried.reasons == {"retry-setting-changed"}
    assert "first try a smaller --per_device_train_batch_size" in retried.output


def test_unchanged_retry_after_a_nan_is_pointless(judge_run: Judge) -> None:
    """The same command comes to the same NaN; nothing is launched."""
    flags = "--output_dir out --max_steps 6 --use_cpu True --nan_from_step 3 --logging_steps 1"
    command = script("hf_trainer.py", flags)
    first = judge_run(command)
    assert first.decision == "NO-GO"
    assert judge_run(command, "--retry-of", str(first.out_dir)).reasons == {"retry-pointless"}
