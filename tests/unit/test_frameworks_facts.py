"""What the adapters declare of a command: targets, directories, cadence, masking, effective values."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.command.parse import parse_command, with_arguments
from harness.frameworks.base import FrameworkFacts, Preparation
from harness.frameworks.keras import backend_of
from harness.frameworks.registry import detect, effective_values
from harness.spec import RunSpec

HF = "from transformers import HfArgumentParser, TrainingArguments, Trainer\n"
TRL = "from trl import TrlParser, SFTConfig, SFTTrainer\n"
CLI = "from lightning.pytorch.cli import LightningCLI\nLightningCLI(Model)\n"


def prepared(workdir: Path, text: str, **changes: object) -> tuple[Preparation, FrameworkFacts]:
    """What an adapter makes of a command in `workdir`."""
    fixed = {"train_cmd": text, "out_dir": workdir / "report", "workdir": workdir, "run_id": "r"}
    spec = RunSpec(**{**fixed, **changes})  # type: ignore[arg-type]
    command = parse_command(text, workdir)
    adapter, reason = detect(command, spec)
    preparation = adapter.prepare(command, spec)
    words = tuple(word for item in preparation.additions for word in item.words)
    return preparation, adapter.facts(with_arguments(command, words), spec, reason)


def added(workdir: Path, text: str, **changes: object) -> dict[str, str]:
    """{flag: value} that the harness adds, TensorBoard apart, which hangs on the trainer's environment."""
    preparation, _ = prepared(workdir, text, **changes)
    assert all(item.kind == "observability" for item in preparation.additions)
    return {item.key: item.value for item in preparation.additions if item.key != "report_to"}


@pytest.mark.parametrize(
    ("source", "arguments", "expected"),
    [
        (HF, "--output_dir o --max_steps 20", {"logging_steps": "1"}),
        (HF, "--output_dir o --max_steps 400", {"logging_steps": "20"}),
        (HF, "--output_dir o --max_steps 2000", {}),
        (HF, "--output_dir o --max_steps 20 --logging_steps 5", {}),
        (HF, "--output_dir o --max_steps 20 --logging_steps 500", {"logging_steps": "1"}),
        (HF, "--output_dir o --max_steps 20 --logging_steps 0.1", {}),
        (HF, "--output_dir o --max_steps 20 --logging_strategy epoch", {}),
        (HF, "--output_dir o --num_train_epochs 1", {"logging_steps": "10"}),
        (HF, "--output_dir o --num_train_epochs 1 --logging_steps 50", {}),
        (HF, "args.json", {}),
        (TRL, "--output_dir o --max_steps 100", {}),
        (TRL, "--output_dir o --max_steps 10", {"logging_steps": "1"}),
        ("from transformers import Trainer, TrainingArguments\n", "--max_steps 20", {}),
        (CLI, "fit --trainer.max_steps=30", {"trainer.log_every_n_steps": "1"}),
        (CLI, "fit --trainer.max_steps=30 --trainer.log_every_n_steps=10", {}),
        (CLI, "fit", {"trainer.log_every_n_steps": "5"}),
        ("import lightning as L\nL.Trainer(max_steps=5)\n", "", {}),
        ("import torch\n", "--max-steps 20", {}),
    ],
)
def test_cadence_is_set_where_nothing_would_be_logged(
    tmp_path: Path, source: str, arguments: str, expected: dict[str, str]
) -> None:
    """And nowhere else: a program whose flags are not known, or that logs within its target, is left alone."""
    (tmp_path / "t.py").write_text(source)
    (tmp_path / "args.json").write_text(json.dumps({"output_dir": "o", "max_steps": 20}))
    assert added(tmp_path, f"python t.py {arguments}") == expected
    assert added(tmp_path, f"python t.py {arguments}", observability=False) == {}


def test_cap_is_the_target_of_the_cadence(tmp_path: Path) -> None:
    """--max-steps below the program's own limit is what must be logged within."""
    (tmp_path / "t.py").write_text(HF)
    assert added(tmp_path, "python t.py --max_steps 5000", max_steps=40) == {"logging_steps": "2"}


def test_config_alone_gets_a_note(tmp_path: Path) -> None:
    """A program with a config file as its only argument reads no flag beside it: said, not added."""
    (tmp_path / "t.py").write_text(HF)
    (tmp_path / "args.json").write_text(json.dumps({"output_dir": "o", "max_steps": 20}))
    preparation, facts = prepared(tmp_path, "python t.py args.json")
    assert [finding.code for finding in preparation.findings] == ["nothing-logged"]
    assert not preparation.findings[0].refuses
    assert (facts.target_steps, facts.target_source) == (20, "max_steps in args.json")
    assert facts.metric_roots == (str(tmp_path / "o"),)


LOOP = """\
import torch
p.add_argument("--steps", type=int, default=200)
for step in range(1, options.steps + 1):
    pass
"""


@pytest.mark.parametrize(
    ("source", "arguments", "target", "where"),
    [
        (HF, "--output_dir o --max_steps 20", 20, "--max_steps"),
        (HF, "--output_dir o --max_steps -1", None, ""),
        ("from trl import SFTConfig\nSFTConfig(max_steps=7)\n", "", 7, "SFTConfig(max_steps=...) in t.py"),
        ("from trl import SFTConfig\nSFTConfig(max_steps=n)\n", "", None, ""),
        (CLI, "fit --trainer.max_steps=30", 30, "--trainer.max_steps"),
        (
            "from lightning.pytorch.cli import LightningCLI\nLightningCLI(M, trainer_defaults={'max_steps': 9})\n",
            "fit", 9, "trainer_defaults in t.py",
        ),
        ("import lightning as L\nL.Trainer(max_steps=5)\n", "", 5, "Trainer(max_steps=...) in t.py"),
        ("import torch\np.add_argument('--max-steps', default=12)\n", "", 12, "the default of --max-steps in t.py"),
        ("import lightning as L\np.add_argument('--limit', type=int, default=6)\nL.Trainer(max_steps=args.limit)\n", "",
         6, "the default of --limit in t.py"),
        ("import lightning as L\np.add_argument('--limit', default=6)\nL.Trainer(max_steps=args.limit)\n", "--limit 4",
         4, "--limit"),
        ("import lightning as L\np.add_argument('--limit', default=6)\nL.Trainer(max_steps=2 * args.limit)\n", "",
         None, ""),
        (LOOP, "", 200, "the default of --steps in t.py"),
        (LOOP.replace("range(1, options.steps + 1)", "range(9)"), "", None, ""),
        (LOOP + "p.add_argument('--total-timesteps', default=9)\n", "", None, ""),
        (LOOP + "p.add_argument('--epochs', default=9)\n", "", None, ""),
        ("import jax\nflags.DEFINE_integer('num_steps', 8, '')\n", "--num_steps=6", 6, "--num_steps"),
        ("import torch\n", "--config c.yaml", 15, "trainer.max_steps in c.yaml"),
    ],
)  # fmt: skip
def test_target_is_read_with_its_place(
    tmp_path: Path, source: str, arguments: str, target: int | None, where: str
) -> None:
    """Flags before config, config before literals; what only running the program would tell is unknown."""
    (tmp_path / "t.py").write_text(source)
    (tmp_path / "c.yaml").write_text("trainer:\n  max_steps: 15\n")
    _, facts = prepared(tmp_path, f"python t.py {arguments}", observability=False)
    assert (facts.target_steps, facts.target_source) == (target, where)


def test_epochs_are_the_target_without_steps(tmp_path: Path) -> None:
    """Lightning's max_epochs, Keras' fit(epochs=...)."""
    (tmp_path / "l.py").write_text("import lightning as L\nL.Trainer(max_epochs=3)\n")
    (tmp_path / "k.py").write_text("import keras\nmodel.fit(x, epochs=4, callbacks=[CSVLogger('out/log.csv')])\n")
    _, lightning = prepared(tmp_path, "python l.py")
    _, keras = prepared(tmp_path, "python k.py")
    assert (lightning.target_steps, lightning.target_epochs, lightning.step_base) == (None, 3, 0)
    assert (keras.target_epochs, keras.step_unit) == (4, "epoch")
    assert str(tmp_path / "out/log.csv") in keras.metric_roots


@pytest.mark.parametrize(
    ("arguments", "epochs", "source"),
    [("", 5, "the default of --epochs in t.py"), ("--epochs 2", 2, "--epochs"), ("--max_steps 9", 5, "the default of")],
)
def test_epochs_of_a_plain_script(tmp_path: Path, arguments: str, epochs: int, source: str) -> None:
    """Its flag, else the default of it; a limit on steps stands beside them."""
    (tmp_path / "t.py").write_text("import torch\np.add_argument('--epochs', type=int, default=5)\n")
    facts = prepared(tmp_path, f"python t.py {arguments}")[1]
    assert facts.target_epochs == epochs and facts.target_epochs_source.startswith(source)
    assert facts.target_steps == (9 if "max_steps" in arguments else None)


def test_nan_filter_masks_unless_it_is_off(tmp_path: Path) -> None:
    """logging_nan_inf_filter is on by default."""
    (tmp_path / "t.py").write_text(HF)
    assert prepared(tmp_path, "python t.py --output_dir o")[1].masks_nonfinite
    assert not prepared(tmp_path, "python t.py --output_dir o --logging_nan_inf_filter False")[1].masks_nonfinite


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [("", True), ("--save_strategy no", False), ("--save_strategy epoch", True)],
)
def test_trainer_saves_unless_told_not_to(tmp_path: Path, arguments: str, asked: bool) -> None:
    """Its default saves at the end, in the output directory."""
    (tmp_path / "t.py").write_text(HF)
    _, facts = prepared(tmp_path, f"python t.py --output_dir o {arguments}")
    assert facts.checkpoint_asked is asked and facts.checkpoint_roots == (str(tmp_path / "o"),)


def test_rollout_of_trl_must_have_a_signal(tmp_path: Path) -> None:
    """GRPO by its class or subcommand; SFT has none to show."""
    (tmp_path / "g.py").write_text("from trl import GRPOConfig, GRPOTrainer\n")
    (tmp_path / "s.py").write_text(TRL)
    grpo, sft = prepared(tmp_path, "python g.py")[1], prepared(tmp_path, "python s.py")[1]
    assert (grpo.algorithm, grpo.algorithm_kind, bool(grpo.dead_signal_tags)) == ("grpo", "rollout", True)
    assert (sft.algorithm, sft.algorithm_kind, sft.signal_tags) == ("sft", "sft", ())
    assert prepared(tmp_path, "trl rloo --output_dir o")[1].algorithm_kind == "rollout"


def test_validate_of_a_lightning_cli_is_refused(tmp_path: Path) -> None:
    """It trains nothing."""
    (tmp_path / "t.py").write_text(CLI)
    preparation, _ = prepared(tmp_path, "python t.py validate")
    assert [finding.refuses for finding in preparation.findings] == [True]


def test_jax_rows_count_where_the_source_applies_updates(tmp_path: Path) -> None:
    """A gradient norm without an applied update is no update."""
    (tmp_path / "a.py").write_text("import optax\noptax.apply_updates(p, u)\n")
    (tmp_path / "b.py").write_text("import optax\noptax.adam(1)\n")
    assert prepared(tmp_path, "python a.py")[1].executed_tags
    assert not prepared(tmp_path, "python b.py")[1].executed_tags


def values(facts: FrameworkFacts) -> dict[str, object]:
    """What the trainer says it used."""
    return {key: item.value for key, item in effective_values(facts, lambda path: path.name != "old").items()}


def test_effective_values_of_transformers(tmp_path: Path) -> None:
    """Plan and cadence from the state, and the highest learning rate that was logged."""
    rows = [{"step": 1, "learning_rate": 1e-4}, {"step": 2, "learning_rate": 5e-5}]
    state = {"global_step": 2, "max_steps": 2, "logging_steps": 1, "log_history": rows}
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    facts = FrameworkFacts(name="transformers", reason="", checkpoint_roots=(str(tmp_path),))
    assert values(facts) == {"max_steps": 2, "logging_steps": 1, "learning_rate.peak_logged": 1e-4}


def test_effective_values_of_lightning_and_hydra(tmp_path: Path) -> None:
    """hparams.yaml and the CLI's config.yaml; Hydra's composed config."""
    (tmp_path / "version_0").mkdir()
    (tmp_path / "version_0" / "hparams.yaml").write_text("lr: 0.01\n")
    (tmp_path / "version_0" / "config.yaml").write_text("trainer:\n  max_steps: 30\n")
    (tmp_path / "run" / ".hydra").mkdir(parents=True)
    (tmp_path / "run" / ".hydra" / "config.yaml").write_text("optimizer:\n  lr: 1e-2\n")
    lightning = FrameworkFacts(name="lightning", reason="", metric_roots=(str(tmp_path / "version_0"),))
    hydra = FrameworkFacts(name="torch", reason="", metric_roots=(str(tmp_path / "run"),))
    assert values(lightning) == {"lr": 0.01, "trainer.max_steps": 30}
    assert values(hydra) == {"optimizer.lr": 0.01}


def test_effective_values_of_areno(tmp_path: Path) -> None:
    """Every setting of its run config by name."""
    items = [{"key": "lr", "value": 0.001}, {"key": "max_steps", "value": 3}, {"key": "odd", "value": [1]}]
    document = {"settings": {"sections": [{"title": "Basic", "items": items}]}}
    (tmp_path / "areno_run_config.17.json").write_text(json.dumps(document))
    facts = FrameworkFacts(name="areno", reason="", metric_roots=(str(tmp_path),))
    assert values(facts) == {"lr": 0.001, "max_steps": 3}


def test_files_of_other_runs_tell_nothing(tmp_path: Path) -> None:
    """Only what this run wrote."""
    (tmp_path / "hparams.yaml").write_text("lr: 0.01\n")
    facts = FrameworkFacts(name="lightning", reason="", metric_roots=(str(tmp_path),))
    assert effective_values(facts, lambda path: False) == {}


@pytest.mark.parametrize(
    ("source", "arguments", "places"),
    [
        ("import torch\n", "--out ck --lr 0.1", ("checkpoints", "ck")),
        ("import torch\n", "-o a/model.pt", ("checkpoints", "a/model.pt")),
        ("import torch\n", "io.save_to=ck", ("checkpoints", "ck")),
        ("import torch\n", "--output-dir o --export ck", ("o", "ck")),
        ("import torch, argparse\np = argparse.ArgumentParser()\np.add_argument('--model-out', default='m.pt')\n", "",
         ("checkpoints", "m.pt")),
        ("import torch\n", "--dropout 0.1 --layout x --rollout fn --output-freq 10 --save-every 5", ("checkpoints",)),
        ("import torch\n", "--out 5 --save true --output-format json --save-best x", ("checkpoints",)),
        ("import torch\n", "--resume-checkpoint base --load-ckpt b --out s3://b/x", ("checkpoints",)),
    ],
)
def test_place_to_save_by_a_flag_of_an_own_name(
    tmp_path: Path, source: str, arguments: str, places: tuple[str, ...]
) -> None:
    """It is looked at, and nothing says that saving was asked for; numbers, switches and inputs are no places."""
    (tmp_path / "t.py").write_text(source)
    _, facts = prepared(tmp_path, f"python t.py {arguments}")
    found = tuple(str(Path(root).relative_to(tmp_path)) for root in facts.checkpoint_roots)
    assert (found, facts.checkpoint_asked) == (places, False)


@pytest.mark.parametrize(("source", "given", "backend"), [
    ('import os\nos.environ["KERAS_BACKEND"] = "jax"\nimport keras\n', None, "jax"),
    ("from os import environ\nenviron['KERAS_BACKEND']='torch'\n", "tensorflow", "torch"),
    ('os.environ.setdefault("KERAS_BACKEND", "torch")\n', None, "torch"),
    ('os.environ.setdefault("KERAS_BACKEND", "torch")\n', "jax", "jax"),
    ('# os.environ["KERAS_BACKEND"] = "jax"\n', None, ""),
    ("os.environ['KERAS_BACKEND'] = args.backend\n", "jax", "jax"),
    ('os.environ["KERAS_BACKEND"] = "jax"\nos.environ["KERAS_BACKEND"] = "torch"\n', None, ""), ("", None, ""),
])
def test_backend_that_a_program_sets(source: str, given: str | None, backend: str, tmp_path: Path) -> None:
    """By a literal; what is given in the environment else."""
    (tmp_path / "train.py").write_text(source)
    assert backend_of([tmp_path / "train.py", tmp_path / "gone.py"], given) == backend
