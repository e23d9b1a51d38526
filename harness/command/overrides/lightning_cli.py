"""LightningCLI: nested keys as flags (`--trainer.max_epochs`), read from the classes that it is given."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from harness.command.overrides.arguments import Words
from harness.command.overrides.dataclass_reader import annotation_kind
from harness.command.overrides.document import Document, dotted
from harness.command.overrides.model import Flag
from harness.command.overrides.program import Program

TOP = ("trainer", "model", "data", "optimizer", "lr_scheduler")
SUBCOMMANDS = ("fit", "validate", "test", "predict")
_TRAINER = {
    "max_epochs": "int",
    "min_epochs": "int",
    "max_steps": "int",
    "min_steps": "int",
    "max_time": "",
    "accelerator": "str",
    "devices": "",
    "num_nodes": "int",
    "strategy": "",
    "precision": "",
    "limit_train_batches": "",
    "limit_val_batches": "",
    "limit_test_batches": "",
    "overfit_batches": "",
    "val_check_interval": "",
    "check_val_every_n_epoch": "int",
    "num_sanity_val_steps": "int",
    "log_every_n_steps": "int",
    "accumulate_grad_batches": "int",
    "gradient_clip_val": "float",
    "gradient_clip_algorithm": "str",
    "deterministic": "",
    "benchmark": "",
    "detect_anomaly": "",
    "default_root_dir": "str",
    "enable_checkpointing": "",
    "enable_progress_bar": "",
    "sync_batchnorm": "",
    "use_distributed_sampler": "",
    "reload_dataloaders_every_n_epochs": "int",
}
"""Parameters of lightning.Trainer 2.6 that take one value, and their types."""


def lightning_flags(program: Program, documents: list[Document]) -> Iterator[Flag]:
    """Flags for the trainer, for the parameters of the project's model and data, and for keys of the configs."""
    for name, kind in _TRAINER.items():
        yield Flag(names=(f"--trainer.{name}",), type=kind, place="lightning.Trainer")
    yield Flag(names=("--seed_everything",), place="LightningCLI")
    for node in program.lightning_classes:
        bases = {getattr(base, "attr", getattr(base, "id", "")) for base in node.bases}
        section = "data" if any("Data" in base for base in bases) else "model"
        for name, value_type in _parameters(node):
            yield Flag(names=(f"--{section}.{name}",), type=value_type, place=f"{node.name}.__init__")
    for document in documents:
        for path, leaf in document.leaves.items():
            path = path[1:] if path[0] in SUBCOMMANDS else path
            numbered = any(isinstance(part, int) for part in path)
            if path and path[0] in TOP and leaf.type != "dict" and not numbered:
                yield Flag(names=(f"--{dotted(path)}",), place="its config")


def _parameters(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            for parameter in [*item.args.args[1:], *item.args.kwonlyargs]:
                _, value_type, _ = annotation_kind(parameter.annotation)
                yield parameter.arg, value_type if value_type in ("int", "float") else ""


def last_config(words: Words) -> int:
    """Index after the last `--config FILE`: what stands before it is overruled by the file."""
    stop = 0
    for index, word in enumerate(words):
        name = word.partition("=")[0]
        if name in ("--config", "-c"):
            stop = index + (1 if "=" in word else 2)
    return min(stop, len(words))
