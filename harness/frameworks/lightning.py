"""Lightning (and pytorch_lightning), read off its 2.6 release and checked against real runs of it.

A metric's step is the number of batches that stepped before it, so it counts from 0; a checkpoint's name holds
completed steps and the epoch, which counts from 0. CSVLogger and TensorBoardLogger write below `version_N`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.command import limits
from harness.command.model import Finding, TrainingCommand
from harness.frameworks import effective, kinds
from harness.frameworks.base import (
    GRAD_NORM_TAG_PATTERNS,
    LOSS_TAG_PATTERNS,
    Addition,
    EffectiveValue,
    FrameworkFacts,
    Preparation,
    Written,
)
from harness.frameworks.classes import find_class
from harness.frameworks.evaluation import Evaluation, without
from harness.frameworks.settings import Setting, Settings
from harness.frameworks.source import UNKNOWN, Program
from harness.record.reasons import Reason
from harness.spec import RunSpec

PACKAGES = ("lightning", "pytorch_lightning")
NAMES = ("LightningCLI", "Trainer", "LightningModule", "LightningDataModule")
LOGGERS = ("CSVLogger", "TensorBoardLogger")
DEFAULT_LOGS = "lightning_logs"
LOG_EVERY_N_STEPS = 50
LOGGED_ROWS = 20
UNKNOWN_TARGET_CADENCE = 5
NOT_TRAINING = ("validate", "test", "predict")
LOSS_TAGS = (*LOSS_TAG_PATTERNS, r"(^|[/_.])loss_(step|epoch)$")
GRAD_NORM_TAGS = (*GRAD_NORM_TAG_PATTERNS, r"grad_[0-9.inf]+_norm_total$")


class LightningAdapter:
    """A program around lightning's Trainer, or a LightningCLI."""

    name = "lightning"

    def recognise(self, command: TrainingCommand, program: Program) -> str | None:
        """By the names that the source takes from it."""
        used = program.user(PACKAGES, NAMES)
        return f"{program.where(used[0])} uses lightning's {used[1]}" if used else None

    def prepare(self, command: TrainingCommand, spec: RunSpec) -> Preparation:
        """For a LightningCLI: a row within the target where its 50 steps would show none."""
        settings = _settings(command, spec)
        if not settings.program.calls("LightningCLI"):
            return Preparation()
        subcommand = next((word for word in command.script_args if not word.startswith("-")), "")
        if subcommand in NOT_TRAINING:
            message = f"`{subcommand}` of a LightningCLI does not train; give its `fit`"
            return Preparation(findings=(Finding(code=Reason.COMMAND_REFUSED.value, message=message, refuses=True),))
        addition = _cadence(spec, settings) if spec.observability else None
        return Preparation(additions=(addition,) if addition is not None else ())

    def facts(self, command: TrainingCommand, spec: RunSpec, reason: str) -> FrameworkFacts:
        """Limits from flags, config and literals; directories from those, from loggers and callbacks."""
        settings = _settings(command, spec)
        target, epochs = _trainer(settings, "max_steps"), _trainer(settings, "max_epochs")
        metric_roots = _metric_roots(command, spec, settings)
        given = (str(spec.checkpoint_dir),) if spec.checkpoint_dir else ()
        callbacks = [_first(call.literals.get("dirpath")) for call in settings.program.calls("ModelCheckpoint")]
        named = tuple(str(spec.workdir / folder) for folder in callbacks if folder)
        checkpoint_roots = tuple(dict.fromkeys((*given, *named, *metric_roots)))
        resume = settings.get("ckpt_path")
        resumed = limits.resume_point(command, spec.workdir, [Path(root) for root in checkpoint_roots])
        if resume.text and resume.text not in ("last", "best", "hpc"):
            resumed = spec.workdir / resume.text
        return FrameworkFacts(
            name=self.name,
            reason=reason,
            step_base=0,
            batch_factors=kinds.LIGHTNING_BATCH,
            loss_tags=LOSS_TAGS,
            grad_norm_tags=GRAD_NORM_TAGS,
            logging_hint="--trainer.log_every_n_steps=1"
            if settings.program.calls("LightningCLI")
            else "log_every_n_steps=1 of the Trainer, and a logger",
            target_steps=target.whole,
            target_source=target.source if target.whole else "",
            target_epochs=epochs.whole if target.whole is None else None,
            target_epochs_source=epochs.source,
            metric_roots=metric_roots,
            checkpoint_roots=checkpoint_roots,
            checkpoint_asked=bool(spec.checkpoint_dir or named),
            resume_from=str(resumed) if resumed else None,
            start_weights=str(resumed) if resumed else None,
            model_class=find_class(settings.program, "LightningModule"),
        )

    def evaluation(
        self, command: TrainingCommand, program: Program, checkpoint: Path, place: Path
    ) -> Evaluation | None:
        """`validate` of a LightningCLI, which takes the flags of `fit`."""
        words = list(command.script_args)
        if not program.calls("LightningCLI") or "fit" not in words:
            return None
        words[words.index("fit")] = "validate"
        own = ("default_root_dir", "logger", "accelerator", "devices", "num_nodes", "strategy")
        words = without(words, "--ckpt_path", *(f"--trainer.{name}" for name in own))
        words += [f"--ckpt_path={checkpoint}", f"--trainer.default_root_dir={place}", "--trainer.logger=CSVLogger",
                  f"--trainer.logger.save_dir={place}", "--trainer.accelerator=cpu", "--trainer.devices=1",
                  "--trainer.num_nodes=1", "--trainer.strategy=auto"]
        return Evaluation(adapter="lightning", argv=(*command.launcher_part, *words))

    def effective_values(self, facts: FrameworkFacts, written: Written) -> dict[str, EffectiveValue]:
        """hparams.yaml of save_hyperparameters(), config.yaml of a LightningCLI."""
        roots = [*facts.metric_roots, *facts.checkpoint_roots]
        values: dict[str, EffectiveValue] = {}
        for path in reversed(effective.find_written(roots, ("hparams.yaml", "config.yaml"), written)):
            values |= effective.config_values(path)
        return values


def _settings(command: TrainingCommand, spec: RunSpec) -> Settings:
    return Settings(command, spec.workdir, constructors=("Trainer",), prefer=("trainer",))


def _trainer(settings: Settings, name: str, default: Any = UNKNOWN) -> Setting:
    """A setting of the Trainer; a LightningCLI may hold its own defaults for it."""
    setting = settings.get(name)
    if setting.known:
        return setting
    for call in settings.program.calls("LightningCLI"):
        defaults = call.literals.get("trainer_defaults")
        if isinstance(defaults, dict) and name in defaults:
            return Setting(value=defaults[name], source=f"trainer_defaults in {call.file}")
    return Setting(value=default, source="the framework's default" if default is not UNKNOWN else "")


def _metric_roots(command: TrainingCommand, spec: RunSpec, settings: Settings) -> tuple[str, ...]:
    named = [spec.metrics_dir] if spec.metrics_dir else []
    for call in settings.program.calls(*LOGGERS):
        folder = _first(call.literals.get("save_dir", call.args[0] if call.args else None))
        named += [spec.workdir / folder] if folder else []
    for flags in (limits.METRIC_DIR_FLAGS, limits.OUTPUT_DIR_FLAGS, limits.SAVE_DIR_FLAGS):
        named += limits.directories(command, spec.workdir, flags)
    default = _trainer(settings, "default_root_dir").text
    named += [spec.workdir / default] if default else [spec.workdir / DEFAULT_LOGS]
    return tuple(dict.fromkeys(map(str, named)))


def _first(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _cadence(spec: RunSpec, settings: Settings) -> Addition | None:
    every = _trainer(settings, "log_every_n_steps", LOG_EVERY_N_STEPS)
    limit = _trainer(settings, "max_steps").whole
    target = min((steps for steps in (spec.max_steps, limit) if steps is not None), default=None)
    if every.number is None or (target is not None and every.number * 2 <= target):
        return None
    if target is None and (every.source.startswith("--") or every.number <= UNKNOWN_TARGET_CADENCE):
        return None
    steps = max(1, target // LOGGED_ROWS) if target is not None else UNKNOWN_TARGET_CADENCE
    key, word = "trainer.log_every_n_steps", f"--trainer.log_every_n_steps={steps}"
    return Addition(key=key, value=str(steps), how=f"injected as {word}", kind="observability", words=(word,))
