"""Plain PyTorch is told from imports, and its facts from the command's own flags."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.command.parse import parse_command
from harness.errors import ConfigError
from harness.frameworks.base import FrameworkFacts
from harness.frameworks.registry import detect
from harness.frameworks.source import read_module
from harness.spec import RunSpec


def spec_of(workdir: Path, **changes: object) -> RunSpec:
    fixed = {"train_cmd": "", "out_dir": workdir / "out", "workdir": workdir, "run_id": "r"}
    return RunSpec(**{**fixed, **changes})  # type: ignore[arg-type]


def facts_of(text: str, workdir: Path, **changes: object) -> FrameworkFacts:
    spec, command = spec_of(workdir, **changes), parse_command(text, workdir)
    adapter, reason = detect(command, spec)
    return adapter.facts(command, spec, reason)


@pytest.mark.parametrize(
    ("source", "text", "name"),
    [
        ("import torch", "python t.py", "torch"),
        ("from torch.nn import Linear", "python t.py", "torch"),
        ("def f():\n    import torch.optim as o", "python t.py", "torch"),
        ("import torchvision", "python t.py", "unknown"),
        ("import numpy", "python t.py", "unknown"),
        ("import torch\n(", "python t.py", "unknown"),
        ("x = 'import torch'", "python t.py", "unknown"),
        ("import numpy", "torchrun --nproc-per-node 2 t.py", "torch"),
        ("import numpy", "python -m torch.distributed.run t.py", "torch"),
        ("import torch", "python -m pkg", "unknown"),
        ("import torch", "areno train --algo sft", "areno"),
    ],
)
def test_framework_is_told_from_the_command(tmp_path: Path, source: str, text: str, name: str) -> None:
    """By imports and launchers; nothing is executed and nothing is guessed."""
    (tmp_path / "t.py").write_text(source + "\n")
    adapter, reason = detect(parse_command(text, tmp_path), spec_of(tmp_path))
    assert adapter.name == name and reason


def test_framework_option_decides(tmp_path: Path) -> None:
    """--framework wins over imports; an unknown one is a usage error that lists the known."""
    command = parse_command("python t.py", tmp_path)
    adapter, reason = detect(command, spec_of(tmp_path, framework="torch"))
    assert (adapter.name, reason) == ("torch", "--framework")
    with pytest.raises(ConfigError, match="areno, trl, transformers, lightning, keras, jax, torch"):
        detect(command, spec_of(tmp_path, framework="no-such"))


def test_hostile_source_is_no_framework(tmp_path: Path) -> None:
    """A source that no parser can take is read as nothing."""
    for name, source in (
        ("deep.py", b"(" * 100_000),
        ("nul.py", b"\0import torch"),
        ("latin.py", b"\xff\xfe"),
    ):
        (tmp_path / name).write_bytes(source)
        assert read_module(tmp_path / name) is None
    assert read_module(tmp_path / "none.py") is None


def test_facts_come_from_flags(tmp_path: Path) -> None:
    """Target, directories and resume point, with where the target was read."""
    facts = facts_of(
        "python t.py --max-steps 20 --save-dir ck --log-dir runs/a --resume ck/step_000010", tmp_path
    )
    assert (facts.target_steps, facts.target_source) == (20, "--max-steps")
    assert (facts.metric_roots, facts.checkpoint_roots) == (
        (str(tmp_path / "runs/a"),),
        (str(tmp_path / "ck"),),
    )
    assert facts.checkpoint_asked and facts.resume_from == facts.start_weights == str(
        tmp_path / "ck/step_000010"
    )
    assert facts.probe_applies and FrameworkFacts.from_json(facts.to_json()) == facts


def test_facts_without_flags_name_the_defaults(tmp_path: Path) -> None:
    """Nothing is claimed to have been asked."""
    facts = facts_of("python t.py", tmp_path)
    assert facts.metric_roots == tuple(
        str(tmp_path / n) for n in ("runs", "logs", "lightning_logs", "tb_logs")
    )
    assert facts.checkpoint_roots == (str(tmp_path / "checkpoints"),)
    assert (facts.checkpoint_asked, facts.target_steps, facts.resume_from, facts.probe_applies) == (
        False,
        None,
        None,
        True,
    )


def test_options_name_directories(tmp_path: Path) -> None:
    """--metrics-dir and --checkpoint-dir come first; --output-dir alone does not ask for saving."""
    facts = facts_of("python t.py", tmp_path, metrics_dir=tmp_path / "m", checkpoint_dir=tmp_path / "c")
    assert (facts.metric_roots, facts.checkpoint_roots) == ((str(tmp_path / "m"),), (str(tmp_path / "c"),))
    assert facts.checkpoint_asked
    output = facts_of("python t.py --output-dir o", tmp_path)
    assert output.checkpoint_roots == (str(tmp_path / "o"),) and not output.checkpoint_asked
    assert {str(tmp_path / "o/runs"), str(tmp_path / "o")} <= set(output.metric_roots)


def test_metrics_are_looked_for_where_it_saves(tmp_path: Path) -> None:
    """In a directory that is given or named for it, not in a file that it saves, nor in a default that others share."""
    assert str(tmp_path / "c") in facts_of("python t.py", tmp_path, checkpoint_dir=tmp_path / "c").metric_roots
    assert str(tmp_path / "kept") in facts_of("python t.py --out kept", tmp_path).metric_roots
    saved = facts_of("python t.py --out model.pt", tmp_path)
    assert str(tmp_path / "model.pt") not in saved.metric_roots and str(tmp_path / "model.pt") in saved.checkpoint_roots
    assert str(tmp_path / "checkpoints") not in saved.metric_roots
    assert facts_of("python t.py --out kept", tmp_path).metric_guesses == (str(tmp_path / "kept"),)
    assert facts_of("python t.py --log-dir l", tmp_path, checkpoint_dir=tmp_path / "c").metric_guesses == ()


def test_state_of_a_transformers_trainer_is_looked_for_where_it_saves(tmp_path: Path) -> None:
    """Where nothing tells its output directory; the default of one stays, and a known one is no guess."""
    source = "import json\nfrom transformers import HfArgumentParser, Trainer, TrainingArguments\n" \
        "args = HfArgumentParser(TrainingArguments).parse_json_file('cfg.json')\nTrainer(args=args).train()\n"
    (tmp_path / "run.py").write_text(source)
    facts = facts_of("python run.py cfg", tmp_path, checkpoint_dir=tmp_path / "c")
    assert facts.name == "transformers" and facts.metric_guesses == (str(tmp_path / "c"),)
    assert facts.metric_roots[:2] == (str(tmp_path / "trainer_output"), str(tmp_path / "c"))
    told = facts_of("python run.py --output_dir c", tmp_path, checkpoint_dir=tmp_path / "c")
    assert (told.metric_roots[0], told.metric_guesses) == (str(tmp_path / "c"), ())
