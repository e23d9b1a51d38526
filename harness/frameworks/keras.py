"""Keras 3 (and tf.keras), read off its 3.15 release and checked against real runs of it on torch.

CSVLogger and the TensorBoard callback log once an epoch and count epochs from 0; nothing that they write counts
steps. On torch its optimizers are its own classes, which torch's hooks do not see.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from harness.command import limits
from harness.command.model import TrainingCommand
from harness.frameworks import effective
from harness.frameworks.base import EffectiveValue, FrameworkFacts, Preparation, Written
from harness.frameworks.settings import Settings
from harness.frameworks.source import Program
from harness.frameworks.torch import plain_facts
from harness.spec import RunSpec

PACKAGES = ("keras", "tf_keras", "tensorflow.keras")
MAX_MODELS = 50
"""Saved models that are looked at, newest first."""
EPOCH_NAMES = ("epochs", "num_epochs", "max_epochs", "n_epochs")
LOSS_TAGS = (r"^(epoch_|batch_)?loss$", r"^val_loss$", r"^evaluation_loss_vs_iterations$")
LR_TAGS = (r"^(epoch_)?(lr|learning_rate)$",)
EVAL_TAGS = (r"^val_", r"^(validation|evaluation)[/_]")

BACKEND = "KERAS_BACKEND"
_BACKEND = re.compile(
    r"""(?m)^[^#\n]*\benviron(?:(?P<default>\.setdefault\()|\[)\s*["']KERAS_BACKEND["']\s*(?:\]\s*=|,)\s*"""
    r"""["'](?P<name>[a-z]+)["']""")


class KerasAdapter:
    """A program that imports Keras."""

    name = "keras"

    def recognise(self, command: TrainingCommand, program: Program) -> str | None:
        """By imports, those through tensorflow too."""
        module = program.importer(*PACKAGES)
        if module is not None:
            return f"{program.where(module)} imports keras"
        used = program.user(("tensorflow",), ("keras",))
        return f"{program.where(used[0])} uses tensorflow.keras" if used else None

    def prepare(self, command: TrainingCommand, spec: RunSpec) -> Preparation:
        """Nothing is added: Keras reads no flags."""
        return Preparation()

    def facts(self, command: TrainingCommand, spec: RunSpec, reason: str) -> FrameworkFacts:
        """Epochs from flags, config or the literal of fit(); files from the callbacks' literals."""
        settings = Settings(command, spec.workdir, constructors=("fit",))
        epochs = settings.first(EPOCH_NAMES)
        facts = plain_facts(self.name, command, spec, reason)
        return FrameworkFacts(
            name=self.name,
            reason=reason,
            step_base=0,
            step_unit="epoch",
            loss_tags=LOSS_TAGS,
            lr_tags=LR_TAGS,
            eval_tags=EVAL_TAGS,
            logging_hint="the callback CSVLogger or TensorBoard in fit()",
            target_epochs=epochs.whole,
            target_epochs_source=epochs.source,
            metric_roots=tuple(dict.fromkeys((*_written_to(spec, settings), *facts.metric_roots))),
            metric_guesses=tuple(one for one in facts.metric_guesses if one not in _written_to(spec, settings)),
            checkpoint_roots=tuple(dict.fromkeys((*_saved_to(spec, settings), *facts.checkpoint_roots))),
            checkpoint_asked=facts.checkpoint_asked,
            resume_from=facts.resume_from,
        )

    def effective_values(self, facts: FrameworkFacts, written: Written) -> dict[str, EffectiveValue]:
        """The optimizer's settings from the saved models; the learning rate as theirs, or as the largest of them."""
        models = effective.find_written(facts.checkpoint_roots, ("*.keras",), written)[:MAX_MODELS]
        optimizers = [found for path in models if (found := _optimizer(path))]
        if not optimizers:
            return {}
        values = {key: value for key, value in optimizers[0].items() if value is not None}
        rates = [rate for found in optimizers if isinstance(rate := found.get("learning_rate"), int | float)]
        values.pop("learning_rate", None)
        if rates:
            # A callback may lower it, so that one model alone tells no more than that it was as large.
            ending = "" if len(rates) > 1 and len(set(rates)) == 1 else ".peak_logged"
            values |= {f"{name}{ending}": max(rates) for name in ("learning_rate", "lr")}
        return effective.values_of(values, str(models[0]))


def backend_of(files: Iterable[Path], given: str | None) -> str:
    """The backend that a program itself sets by a literal, `os.environ["KERAS_BACKEND"] = "jax"`, else `given`.

    What `setdefault` sets counts where nothing is given; several contradict each other, so that none counts. Files
    that cannot be read count as none.
    """
    found = set[str]()
    for path in files:
        try:
            found |= {match["name"] for match in _BACKEND.finditer(path.read_text("utf-8", "replace"))
                      if not (given and match["default"])}
        except OSError:
            continue
    return found.pop() if len(found) == 1 else given or ""


def _optimizer(path: Path) -> dict[str, Any]:
    """compile_config's optimizer of a `.keras` file, a zip with config.json in it; empty where it has none."""
    try:
        with zipfile.ZipFile(path) as archive, archive.open("config.json") as stream:
            document = json.loads(stream.read(effective.MAX_BYTES))
        found = document["compile_config"]["optimizer"]["config"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError, zipfile.BadZipFile):
        return {}
    return found if isinstance(found, dict) else {}


def _written_to(spec: RunSpec, settings: Settings) -> list[str]:
    """The file of CSVLogger, the directory of TensorBoard, and those that output flags name."""
    found = [str(spec.metrics_dir)] if spec.metrics_dir else []
    for name, keyword in (("CSVLogger", "filename"), ("TensorBoard", "log_dir")):
        for call in settings.program.calls(name):
            value = call.literals.get(keyword, call.args[0] if call.args else None)
            found += [str(spec.workdir / value)] if isinstance(value, str) else []
    for flags in (limits.OUTPUT_DIR_FLAGS, limits.METRIC_DIR_FLAGS):
        found += map(str, limits.directories(settings.command, spec.workdir, flags))
    return found


def _saved_to(spec: RunSpec, settings: Settings) -> list[str]:
    """The directory of ModelCheckpoint's file, before any `{epoch}` in it."""
    found = []
    for call in settings.program.calls("ModelCheckpoint"):
        value = call.literals.get("filepath", call.args[0] if call.args else None)
        if isinstance(value, str):
            found.append(str((spec.workdir / value.partition("{")[0]).parent))
    return found
