"""Which framework a command belongs to: by command line, by source over the project's modules, by config."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from harness.command.parse import parse_command
from harness.errors import ConfigError
from harness.frameworks import registry
from harness.frameworks.registry import ADAPTERS, detect
from harness.frameworks.source import MAX_FILES, UNKNOWN, read_program
from harness.spec import FRAMEWORKS, RunSpec


def spec_of(workdir: Path, framework: str | None = None) -> RunSpec:
    return RunSpec(train_cmd="", out_dir=workdir / "out", workdir=workdir, run_id="r", framework=framework)


def told(workdir: Path, text: str) -> tuple[str, str]:
    """(framework, reason)."""
    adapter, reason = detect(parse_command(text, workdir), spec_of(workdir))
    return adapter.name, reason


SOURCES = [
    ("from transformers import Trainer, TrainingArguments", "transformers"),
    ("import transformers\ntransformers.Trainer()", "transformers"),
    ("import transformers as tf\nx = tf.Seq2SeqTrainer()", "transformers"),
    ("from transformers import AutoModel\nimport torch", "torch"),
    ("from trl import SFTTrainer\nfrom transformers import TrainingArguments", "trl"),
    ("from trl import GRPOConfig, GRPOTrainer\nimport torch", "trl"),
    ("import lightning as L\nL.Trainer()", "lightning"),
    ("import pytorch_lightning as pl\npl.Trainer()", "lightning"),
    ("from lightning.pytorch.cli import LightningCLI", "lightning"),
    ("from lightning.fabric import Fabric\nimport torch", "torch"),
    ("import keras\nimport torch", "keras"),
    ("from tensorflow import keras", "keras"),
    ("import tensorflow as tf\ntf.keras.Sequential()", "keras"),
    ("import jax, optax", "jax"),
    ("from flax import nnx\nimport torch", "jax"),
    ("import torch", "torch"),
    ("try:\n    import torch\nexcept ImportError:\n    torch = None", "torch"),
    ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch", "unknown"),
    ("import numpy", "unknown"),
    ("# import torch", "unknown"),
]


@pytest.mark.parametrize(("source", "framework"), SOURCES)
def test_source_tells_the_framework(tmp_path: Path, source: str, framework: str) -> None:
    """The more specific one wins; a model taken from a library makes no trainer."""
    (tmp_path / "t.py").write_text(source + "\n")
    name, reason = told(tmp_path, "python t.py")
    assert name == framework and "t.py" in reason


COMMANDS = [
    ("trl sft --model_name_or_path m", "trl", "trl sft"),
    ("python -m trl.scripts.dpo --x", "trl", "trl dpo"),
    ("accelerate launch --num_processes 2 -m axolotl.cli.train c.yml", "transformers", "Axolotl"),
    ("llamafactory-cli train c.yaml", "transformers", "LLaMA-Factory"),
    ("axolotl train c.yml", "transformers", "Axolotl"),
    ("swift sft --model m", "transformers", "ms-swift"),
    ("env A=1 uv run trl grpo", "trl", "trl grpo"),
    ("torchrun --nproc-per-node 2 none.py", "torch", "torchrun"),
    ("areno train --algo sft", "areno", "areno train"),
]


@pytest.mark.parametrize(("text", "framework", "words"), COMMANDS)
def test_command_tells_the_framework(tmp_path: Path, text: str, framework: str, words: str) -> None:
    """Console scripts, modules and launchers, without any source to read."""
    name, reason = told(tmp_path, text)
    assert name == framework and words in reason


def test_imports_are_followed_into_the_project(tmp_path: Path) -> None:
    """Over a package, a relative import and a src folder; the reason names the file that tells."""
    (tmp_path / "src" / "pkg").mkdir(parents=True)
    (tmp_path / "train.py").write_text("from pkg.main import run\nrun()\n")
    (tmp_path / "src" / "pkg" / "__init__.py").write_text("")
    (tmp_path / "src" / "pkg" / "main.py").write_text("from . import loop\n")
    (tmp_path / "src" / "pkg" / "loop.py").write_text("from transformers import Trainer\n")
    name, reason = told(tmp_path, "python train.py")
    assert (name, reason) == ("transformers", "loop.py (used by train.py) uses transformers.Trainer")


def test_module_of_the_project_is_read(tmp_path: Path) -> None:
    """`python -m pkg.train` starts a file of the working directory."""
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "train.py").write_text("import lightning as L\nL.Trainer()\n")
    assert told(tmp_path, "python -m pkg.train")[0] == "lightning"


def test_installed_packages_are_not_followed(tmp_path: Path) -> None:
    """What lies in an environment below the project says nothing of the program."""
    inside = tmp_path / "site-packages"
    inside.mkdir()
    (inside / "lib.py").write_text("import torch\n")
    (tmp_path / "t.py").write_text("import lib\n")
    (tmp_path / "lib.py").symlink_to(inside / "lib.py")
    assert read_program(parse_command("python site-packages/x.py", tmp_path), tmp_path).modules == ()


def test_nothing_is_executed(tmp_path: Path) -> None:
    """Reading a program leaves no trace of it."""
    (tmp_path / "t.py").write_text("import torch\nopen('ran', 'w')\n")
    told(tmp_path, "python t.py")
    assert not (tmp_path / "ran").exists()


def test_following_is_bounded(tmp_path: Path) -> None:
    """A project of thousands of modules costs no more than the bound, and circles end."""
    for index in range(MAX_FILES + 20):
        (tmp_path / f"m{index}.py").write_text(f"import m{index + 1}, m0\n")
    program = read_program(parse_command("python m0.py", tmp_path), tmp_path)
    assert (len(program.modules), program.truncated) == (MAX_FILES, True)


def test_tie_is_named(tmp_path: Path) -> None:
    """Two trainers of one rank: the reason names both and what decides."""
    (tmp_path / "t.py").write_text("from transformers import Trainer\nimport lightning as L\nL.Trainer()\n")
    name, reason = told(tmp_path, "python t.py")
    assert name == "transformers"
    assert "transformers.Trainer" in reason and "lightning's Trainer" in reason and "--framework decides" in reason
    assert detect(parse_command("python t.py", tmp_path), spec_of(tmp_path, "lightning"))[0].name == "lightning"


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("base_model: m\ndatasets: []\nmicro_batch_size: 1\n", "Axolotl"),
        ("stage: sft\nfinetuning_type: lora\nmodel_name_or_path: m\n", "LLaMA-Factory"),
        ("output_dir: o\nper_device_train_batch_size: 1\n", "TrainingArguments"),
    ],
)
def test_config_tells_where_nothing_else_does(tmp_path: Path, config: str, words: str) -> None:
    """A console script of which nothing is known, with a config of a known shape."""
    (tmp_path / "c.yaml").write_text(config)
    name, reason = told(tmp_path, "my-trainer --config c.yaml")
    assert name == "transformers" and words in reason and "c.yaml" in reason


def test_accepted_names_are_those_of_the_adapters() -> None:
    """--framework takes every adapter and nothing else."""
    assert sorted(FRAMEWORKS) == sorted(adapter.name for adapter in ADAPTERS)


def test_literals_of_a_program_are_read(tmp_path: Path) -> None:
    """Constructor arguments, flags and their defaults; what is no literal is unknown."""
    (tmp_path / "t.py").write_text(
        textwrap.dedent("""
        import argparse
        from absl import flags
        parser = argparse.ArgumentParser()
        parser.add_argument("--max-steps", "-n", type=int, default=20)
        parser.add_argument("--lr", default=get())
        flags.DEFINE_integer("num_steps", 7, "help")
        Trainer(max_steps=30, lr=x, **more)
        """)
    )
    program = read_program(parse_command("python t.py", tmp_path), tmp_path)
    assert program.flags() == {"max_steps": 20, "n": 20, "lr": UNKNOWN, "num_steps": 7}
    (call,) = program.calls("Trainer")
    assert (call.literals, call.is_open) == ({"max_steps": 30, "lr": UNKNOWN}, True)


EIGHTH = '''
from harness.frameworks.base import FrameworkFacts, Preparation

class MyAdapter:
    name = "mine"
    def recognise(self, command, program):
        module = program.importer("mylib")
        return f"{program.where(module)} imports mylib" if module else None
    def prepare(self, command, spec):
        return Preparation()
    def facts(self, command, spec, reason):
        return FrameworkFacts(name=self.name, reason=reason, step_base=1)
'''
ASK = """
import sys
from pathlib import Path
from harness.command.parse import parse_command
from harness.frameworks.registry import detect
from harness.spec import RunSpec
here = Path.cwd()
spec = RunSpec(train_cmd="", out_dir=here / "o", workdir=here, run_id="r", framework=(sys.argv[1:] or [None])[0])
command = parse_command("python t.py", here)
adapter, reason = detect(command, spec)
print(adapter.name, "|", reason, "|", adapter.facts(command, spec, reason).step_base)
"""


@pytest.mark.parametrize(("argument", "reason"), [("", "t.py imports mylib"), ("mine", "--framework")])
def test_an_eighth_adapter_comes_from_outside(tmp_path: Path, argument: str, reason: str) -> None:
    """A distribution announces its adapter as an entry point; it is asked first and can be named."""
    (tmp_path / "my_adapter.py").write_text(EIGHTH)
    info = tmp_path / "my_adapter-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-adapter\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[{registry.ADAPTER_GROUP}]\nmine = my_adapter:MyAdapter\n")
    (tmp_path / "t.py").write_text("import mylib, torch\n")
    (tmp_path / "ask.py").write_text(ASK)
    words = [sys.executable, "ask.py", *argument.split()]
    ended = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert ended.stdout.strip() == f"mine | {reason} | 1", ended.stderr


def test_adapter_that_cannot_be_loaded_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A usage error that says which one, not a traceback."""
    from importlib.metadata import EntryPoint

    broken = EntryPoint(name="bad", value="no_such_module:Adapter", group=registry.ADAPTER_GROUP)
    monkeypatch.setattr(registry.metadata, "entry_points", lambda group: [broken])
    registry.outside_adapters.cache_clear()
    with pytest.raises(ConfigError, match=r"no_such_module:Adapter \(bad\)"):
        registry.outside_adapters()
    registry.outside_adapters.cache_clear()
