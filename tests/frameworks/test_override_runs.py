"""Overrides on real programs of every framework: each is placed by the harness as a user asks for it, and the value
that the trainer used stands beside it in the evidence. Those that a program ignores, or cuts short, are found.

Needs an environment made from constraints/trainers.txt; about two minutes in all.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.frameworks import test_trainer_runs as trainer_runs
from tests.frameworks.test_trainer_runs import PROGRAMS, PYTHON, Judge, JudgedRun, script

materials = trainer_runs.materials
judge_run = trainer_runs.judge_run

TRL_YAML = """\
# The example's settings.
model_name_or_path: tiny
dataset_name: sft.jsonl
output_dir: out
learning_rate: 2.0e-5  # TRL's own
max_steps: 8
save_steps: 4
use_cpu: true
bf16: false
dtype: float32
"""
HF_JSON = """{
  "output_dir": "out", "max_steps": 10, "learning_rate": 5e-05, "use_cpu": true, "save_steps": 5,
  "logging_steps": 1, "report_to": "tensorboard"
}
"""
HF_FROM_JSON = """\
import sys

from hf_trainer import Sums
from transformers import GPT2Config, GPT2LMHeadModel, HfArgumentParser, Trainer, TrainingArguments

(args,) = HfArgumentParser((TrainingArguments,)).parse_json_file(sys.argv[1])
model = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=16, n_embd=32, n_layer=2, n_head=2))
Trainer(model=model, args=args, train_dataset=Sums()).train()
"""
LIGHTNING_YAML = """\
trainer:
  max_steps: 20
  log_every_n_steps: 2
  callbacks:
    - class_path: lightning.pytorch.callbacks.EarlyStopping
      init_args:
        monitor: val_loss
        patience: 3  # evaluations
model:
  lr: 0.01
"""
GRPO = """\
from trl_grpo import digits
from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer, ModelConfig, TrlParser

config, model = TrlParser((GRPOConfig, ModelConfig)).parse_args_and_config()
data = load_dataset("json", data_files="prompts.jsonl", split="train")
GRPOTrainer(model=model.model_name_or_path, args=config, train_dataset=data, reward_funcs=digits).train()
"""
TORCH = (PROGRAMS / "torch_argparse.py").read_text(encoding="utf-8")
IGNORES_LR = TORCH.replace("    torch.manual_seed(0)\n", "    torch.manual_seed(0)\n    options.lr = 0.01\n")

HIDDEN = TORCH.replace("    options = ", '''\
    parser.add_argument("--hidden", type=int, default=16)
    parser.add_argument("--config")
    options = ''').replace("torch.nn.Linear(8, 1)", '''\
torch.nn.Sequential(torch.nn.Linear(8, options.hidden), torch.nn.Linear(options.hidden, 1))''')
CONFIG_WINS = HIDDEN.replace("    torch.manual_seed(0)\n", '''\
    with open(options.config) as config:
        for name, value in (line.split(": ") for line in config):
            setattr(options, name, int(value))
    torch.manual_seed(0)
''')
CLICK = """\
import click
import torch
from torch.utils.tensorboard import SummaryWriter


@click.command()
@click.option("--hidden", type=int, default=16)
@click.option("--max-steps", type=int, default=20)
def main(hidden, max_steps):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, hidden), torch.nn.Linear(hidden, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    with SummaryWriter("runs") as writer:
        for step in range(1, max_steps + 1):
            loss = model(torch.randn(16, 8)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            writer.add_scalar("train/loss", loss.item(), step)


main()
"""
BY_HAND = """\
import sys
from types import SimpleNamespace

import yaml

""" + "".join(line for line in HIDDEN.splitlines(keepends=True) if "parse" not in line).replace(
    "    torch.manual_seed(0)\n", '''\
    with open(sys.argv[1]) as config:
        options = SimpleNamespace(**yaml.safe_load(config))
    torch.manual_seed(0)
''')


@dataclass(frozen=True, slots=True, kw_only=True)
class Overridden:
    """A command, what it is given, and where that goes."""

    command: str
    overrides: tuple[tuple[str, Any], ...]
    """(key, value) of each --hp."""
    placed: tuple[str, ...]
    """Part of how each was placed, in the same order."""
    files: dict[str, str] = field(default_factory=dict)
    """Written into the working directory."""


OVERRIDDEN = {
    "hf-flag": Overridden(
        command=script("hf_trainer.py", "--output_dir out --max_steps 10 --use_cpu True --save_steps 5"),
        overrides=(("learning_rate", 3e-4),), placed=("injected as --learning_rate 0.0003",),
    ),
    "hf-json": Overridden(
        command=f"env PYTHONPATH={shlex.quote(str(PROGRAMS))} {PYTHON} train.py args.json",
        overrides=(("learning_rate", 3e-4),), placed=("written to hp-overrides.json as learning_rate",),
        files={"train.py": HF_FROM_JSON, "args.json": HF_JSON},
    ),
    "trl-yaml": Overridden(
        command=script("trl_sft.py", "--config sft.yaml --use_peft True --lora_target_modules q_proj v_proj"),
        overrides=(("learning_rate", 1e-2), ("max_length", 16)),
        placed=("written to hp-overrides.yaml as learning_rate", "injected as --max_length 16"),
        files={"sft.yaml": TRL_YAML},
    ),
    "lightning-cli": Overridden(
        command=script("lightning_cli.py", "fit --config lit.yaml --data.batch_size=8"),
        overrides=(("model.lr", 0.03), ("data.batch_size", 4), ("patience", 4)),
        placed=(
            "injected as --model.lr 0.03", "was --data.batch_size=8",
            "written to hp-overrides.yaml as trainer.callbacks.0.init_args.patience: 4, was 3",
        ),
        files={"lit.yaml": LIGHTNING_YAML},
    ),
    "lightning": Overridden(
        command=script("lightning_script.py"), overrides=(("learning_rate", 0.03),), placed=("--lr 0.03",),
    ),
    "dpo": Overridden(
        command=script(
            "trl_dpo.py",
            f"{trainer_runs.TRL} --dataset_name dpo.jsonl --output_dir out --max_steps 6 --save_steps 3",
        ),
        overrides=(("beta", 0.3), ("lr", 1e-4)), placed=("--beta 0.3", "injected as --learning_rate 0.0001"),
    ),
    "grpo": Overridden(
        command=f"env PYTHONPATH={shlex.quote(str(PROGRAMS))} {PYTHON} train.py --model_name_or_path tiny "
        "--output_dir out --max_steps 4 --per_device_train_batch_size 4 --num_generations 4 --use_cpu True "
        "--bf16 False --max_completion_length 8 --logging_steps 1 --save_steps 2",
        overrides=(("learning_rate", 1e-3), ("num_generations", 2)),
        placed=("injected as --learning_rate 0.001", "was --num_generations 4"),
        files={"train.py": GRPO},
    ),
    "keras": Overridden(
        command=script("keras_fit.py", "--epochs 3"), overrides=(("learning_rate", 0.03),), placed=("--lr 0.03",),
    ),
    "hydra": Overridden(
        command=script("hydra_app.py", "trainer.max_steps=15"),
        overrides=(("optimizer.lr", 2e-2),), placed=("optimizer.lr=",),
    ),
    "torch": Overridden(
        command=script("torch_argparse.py"), overrides=(("learning_rate", 0.08),), placed=("--lr",),
    ),
    "torch-hidden": Overridden(
        command=f"{PYTHON} train.py", overrides=(("hidden", 128),), placed=("injected as --hidden 128",),
        files={"train.py": HIDDEN},
    ),
    "torchrun-hidden": Overridden(
        command=f"{PYTHON} -m torch.distributed.run --standalone --nproc-per-node 2 train.py --hidden 8",
        overrides=(("hidden", 128),), placed=("was --hidden 8",), files={"train.py": HIDDEN},
    ),
    "yaml-hidden": Overridden(
        command=f"{PYTHON} train.py own.yaml", overrides=(("hidden", 128),),
        placed=("written to hp-overrides.yaml as hidden: 128",),
        files={"train.py": BY_HAND, "own.yaml": "hidden: 8\nmax_steps: 20\nlr: 0.05\nlog_dir: logs\n"},
    ),
    "click": Overridden(
        command=f"{PYTHON} train.py", overrides=(("hidden", 128),), placed=("--hidden 128",),
        files={"train.py": CLICK},
    ),
    "jax": Overridden(
        command=script("jax_absl.py"), overrides=(("lr", 0.02),), placed=("--learning_rate",),
    ),
}  # fmt: skip


@pytest.fixture(scope="session", params=sorted(OVERRIDDEN))
def overridden(
    request: pytest.FixtureRequest, judge_run: Judge, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Overridden, JudgedRun]:
    """Each command with its run."""
    asked = OVERRIDDEN[request.param]
    workdir = made(tmp_path_factory.mktemp("overridden"), asked.files)
    options = [word for key, value in asked.overrides for word in ("--hp", f"{key}={value}")]
    return asked, judge_run(asked.command, *options, workdir=workdir)


def made(directory: Path, files: dict[str, str]) -> Path:
    """The directory with these files in it."""
    for name, text in files.items():
        (directory / name).write_text(text, encoding="utf-8")
    return directory


def semantic(run: JudgedRun) -> list[dict[str, Any]]:
    """Overrides of the evidence that are not the harness's own."""
    return [item for item in run.report["evidence"]["command"]["overrides"] if item["kind"] != "observability"]


def test_override_is_placed_where_the_program_reads_it(overridden: tuple[Overridden, JudgedRun]) -> None:
    """By its own flag or in its own config file, once."""
    asked, run = overridden
    found = semantic(run)
    assert [item["key"] for item in found] == [key for key, _ in asked.overrides], run.output
    assert all(place in item["how"] for place, item in zip(asked.placed, found, strict=True)), found


def test_trainer_used_the_value_asked_for(overridden: tuple[Overridden, JudgedRun]) -> None:
    """The effective value in the evidence is the trainer's own record, not the command's."""
    asked, run = overridden
    used = [item["effective_value"] for item in semantic(run)]
    assert used == [pytest.approx(value, rel=1e-5) for _, value in asked.overrides], run.output


def test_overridden_run_ends_with_go(overridden: tuple[Overridden, JudgedRun]) -> None:
    """Every override in effect, and it trained."""
    _, run = overridden
    check = run.check("overrides")
    assert (check["status"], run.decision, run.pytest_exit_code) == ("passed", "GO", 0), (check, run.output)


def test_ignored_override_is_no_go(judge_run: Judge, tmp_path: Path) -> None:
    """The program parses --lr, trains with 0.01 and logs so."""
    run = judge_run(f"{PYTHON} train.py", "--hp", "lr=0.08", workdir=made(tmp_path, {"train.py": IGNORES_LR}))
    assert (run.decision, run.check("overrides")["status"]) == ("NO-GO", "failed"), run.output
    assert run.reasons == {"override-without-effect"}
    assert semantic(run)[0]["effective_value"] == pytest.approx(0.01)


def test_received_and_unused_override_is_said_to_be_received(judge_run: Judge, tmp_path: Path) -> None:
    """What a program does with a value that it parsed is not seen, and the check says so."""
    ignores = HIDDEN.replace("options.hidden", "16")
    run = judge_run(f"{PYTHON} train.py", "--hp", "hidden=128", workdir=made(tmp_path, {"train.py": ignores}))
    assert run.decision == "GO", run.output
    assert "shows no use of it: hidden (argparse in train.py" in run.check("overrides")["why"]
    assert semantic(run)[0]["effect"] == "received"


def test_config_file_that_wins_over_the_flag_is_conditional(judge_run: Judge, tmp_path: Path) -> None:
    """The flag was parsed, then the program put the file's value in its place: whether on purpose is not seen."""
    workdir = made(tmp_path, {"train.py": CONFIG_WINS, "own.yaml": "hidden: 64\n"})
    run = judge_run(f"{PYTHON} train.py --hidden 8 --config own.yaml", "--hp", "hidden=128", "--hp-flag",
                    "hidden=--hidden", workdir=workdir)
    assert (run.decision, run.reasons) == ("CONDITIONAL", {"override-replaced"}), run.output
    assert (semantic(run)[0]["effective_value"], semantic(run)[0]["effect"]) == (64, "replaced")


def test_program_that_reads_its_words_itself_leaves_an_override_unproven(judge_run: Judge, tmp_path: Path) -> None:
    """No parser returned it and nothing printed it."""
    by_hand = HIDDEN.replace("    options = parser.parse_args()", '''\
    import sys
    hidden = int(sys.argv[sys.argv.index("--hidden") + 1])
    options = parser.parse_args([])
    options.hidden = hidden + 0''').replace('"--hidden", type=int, default=16', '"--width"')
    run = judge_run(f"{PYTHON} train.py --hidden 8", "--hp", "hidden=128", "--hp-flag", "hidden=--hidden",
                    workdir=made(tmp_path, {"train.py": by_hand}))
    assert (run.decision, run.reasons) == ("CONDITIONAL", {"override-unproven"}), run.output


def test_own_limit_below_the_cap_of_the_harness_is_named(judge_run: Judge) -> None:
    """The harness would stop the run at 20; the script's own max_steps ends it at 8, and the reason says so."""
    arguments = "--output_dir out --max_steps 40 --own_max_steps 8 --use_cpu True"
    run = judge_run(script("hf_trainer.py", arguments), "--max-steps", "20", "--cap", "harness")
    check = run.check("target_step")
    assert (run.decision, run.reasons) == ("NO-GO", {"target-not-reached"}), run.output
    assert "own limit is 8 (max_steps in" in check["why"] and run.report["total_steps"] == 8, check
