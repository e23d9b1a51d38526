"""The program's own evaluation mode: its words, its limits, and what is read of it."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from harness.checkpoints.inventory import find_checkpoints
from harness.command.parse import parse_command
from harness.frameworks.base import FrameworkFacts
from harness.frameworks.registry import evaluation_of
from harness.record.redaction import Redactor
from harness.spec import RunSpec
from harness.supervise.evaluation import _evaluated, _was_one_process
from harness.supervise.preflight import Plan

CLI = "from lightning.pytorch.cli import LightningCLI\nLightningCLI(Model)\n"
NO_MODE = "from transformers import HfArgumentParser, TrainingArguments, Trainer\n"
HF = NO_MODE + "def main(args):\n    return args.do_train, args.do_eval\n"
LIT_WORDS = ("--ckpt_path=/c --trainer.default_root_dir=/p --trainer.logger=CSVLogger --trainer.logger.save_dir=/p "
             "--trainer.accelerator=cpu --trainer.devices=1 --trainer.num_nodes=1 --trainer.strategy=auto")
HF_WORDS = "--model_name_or_path /c --output_dir /p --report_to none --use_cpu True"


@pytest.mark.parametrize(("framework", "source", "given", "expected"), [
    ("lightning", CLI, "fit --config c.yaml --model.lr=0.1", f"validate --config c.yaml --model.lr=0.1 {LIT_WORDS}"),
    ("lightning", CLI, "--config c.yaml fit", f"--config c.yaml validate {LIT_WORDS}"),
    ("lightning", CLI, "fit --ckpt_path last --trainer.devices -1 --trainer.logger+=WandbLogger "
     "--trainer.logger.project x --trainer.strategy ddp --trainer.max_steps 9",
     f"validate --trainer.max_steps 9 {LIT_WORDS}"),
    ("lightning", CLI, "test", None), ("lightning", "import lightning\n", "fit", None),
    ("transformers", HF, "--do_train --do_eval --model_name_or_path m --output_dir o --bf16 True",
     f"--do_eval --bf16 True {HF_WORDS}"),
    ("transformers", HF, "--do-train True --do_eval=True --model-name-or-path=m --output-dir=o --report_to wandb "
     "mlflow --push_to_hub --hub_model_id a/b --logging_dir=l", f"--do_eval=True --hub_model_id a/b {HF_WORDS}"),
    ("transformers", HF, "--do_train --model_name_or_path m --output_dir o", None),
    ("transformers", HF, "--do_train False --do_eval --model_name_or_path m --output_dir o", None),
    ("transformers", HF, "--do_train --do_eval --output_dir o", None),
    ("transformers", "import argparse\n", "--do_train --do_eval --model_name_or_path m --output_dir o", None),
    ("transformers", NO_MODE, "--do_train --do_eval --model_name_or_path m --output_dir o", None),
    ("torch", "import torch\n", "--do_train --do_eval --model_name_or_path m --output_dir o", None),
    ("unknown", "", "fit", None),
])
def test_words_of_the_mode(framework: str, source: str, given: str, expected: str | None, tmp_path: Path) -> None:
    """The same command without training, from what was saved, into a place of its own, on a CPU, told to no tracker."""
    (tmp_path / "train.py").write_text(source)
    command = parse_command(f"python train.py {given}", tmp_path)
    found = evaluation_of(framework, command, tmp_path, Path("/c"), Path("/p"))
    assert (found and shlex.join(found.argv)) == (expected and f"python train.py {expected}")


PROGRAM = HF.replace("from", "if False: from", 1) + """
import json, os, sys, time
place = sys.argv[sys.argv.index("--output_dir") + 1]
"""


def evaluated(body: str, place: Path, seconds: float = 60.0, before: str = "") -> dict[str, Any]:
    """What the mode of a program with this body comes to."""
    (place / "train.py").write_text(PROGRAM + body)
    saved = place / "saved" / "checkpoint-10"
    saved.mkdir(parents=True)
    save_file({"w": torch.ones(4)}, saved / "model.safetensors")
    (saved / "config.json").write_text('{"model_type": "gpt2"}')
    words = [*shlex.split(before), sys.executable, "train.py", "--do_train", "--do_eval", "--model_name_or_path", "m",
             "--output_dir", "saved"]
    spec = RunSpec(train_cmd=shlex.join(words), out_dir=place / "out", workdir=place, run_id="made")
    plan = Plan(
        spec=spec, argv=tuple(words), environment={"PATH": "/usr/bin:/bin"}, redactor=Redactor.from_run((), {}, ()),
        facts=FrameworkFacts(name="transformers", reason=""), cap_steps=None, cap_epochs=None)
    return _evaluated(plan, find_checkpoints(place / "saved")[-1], seconds, lambda line: None, lambda: False)


@pytest.mark.parametrize(("body", "metrics"), [
    ("json.dump({'eval_loss': 0.5, 'eval_runtime': 3.0, 'epoch': 1, 'eval_note': 'x'}, open(place + "
     "'/eval_results.json', 'w'))", {"eval_loss": 0.5}),
    ("print({'eval_loss': '0.512', 'eval_runtime': '3.1', 'eval_accuracy': '0.9', 'epoch': '1'})",
     {"eval_loss": 0.512, "eval_accuracy": 0.9}),
    ("open(place + '/metrics.csv', 'w').write('epoch,step,val_loss\\n0,0,0.25\\n')", {"val_loss": 0.25}),
])
def test_evaluations_are_read_where_they_are_written(body: str, metrics: dict[str, float], tmp_path: Path) -> None:
    """A file of results, metric files, or the output; times and rates are no evaluation."""
    facts = evaluated(body, tmp_path)
    assert (facts["status"], facts["metrics"]) == ("ok", metrics), facts
    assert [path.name for path in (tmp_path / "saved").iterdir()] == ["checkpoint-10"]


@pytest.mark.parametrize(("body", "told"), [
    ("sys.exit('no CPU here')", "exit code 1; no CPU here"), ("time.sleep(600)", "did not end within 2 s"), ("", ""),
    ("open(place + '/eval_results.json', 'w').write('[' * 100000)", ""),
    ("json.dump({'eval_loss': float('nan')}, open(place + '/eval_results.json', 'w'))", ""),
])
def test_mode_that_tells_nothing(body: str, told: str, tmp_path: Path) -> None:
    """It fails, hangs, or writes nothing that can be read: nothing follows for the model."""
    facts = evaluated(body, tmp_path, 2.0 if "sleep" in body else 60.0)
    assert (facts["status"], facts["metrics"]) == ("failed", {})
    assert told in (facts["error"] or "")


@pytest.mark.parametrize(("probed", "is_one"), [
    ({}, True), ({"processes": [{"world_size": None}]}, True), ({"processes": [{"world_size": 1}, {}]}, True),
    ({"processes": [{"world_size": 2}]}, False), ({"processes": [{"group_size": 4}]}, False),
])
def test_evaluations_of_several_processes_are_not_repeated(probed: dict[str, Any], is_one: bool) -> None:
    """Each saw a part of the data, which one process alone does not."""
    assert _was_one_process(probed) is is_one


@pytest.mark.parametrize("before", ["torchrun --nproc-per-node 2", "mpirun -n 4"])
def test_job_of_several_processes_is_none_for_here(before: str, tmp_path: Path) -> None:
    """Nor one without time left."""
    assert evaluated("", tmp_path, before=before)["status"] == "not-made"
    (tmp_path / "b").mkdir()
    assert evaluated("", tmp_path / "b", seconds=0.0)["status"] == "not-made"
