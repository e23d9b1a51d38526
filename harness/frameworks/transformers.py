"""Transformers' Trainer, and the tools built on it; read off its 5.24 release and checked against real runs of it.

Its own count of steps stands in trainer_state.json, beside every checkpoint and, after `save_state()`, in the
output directory; a step that a loss scaler skipped counts there too. Steps count from 1. The log replaces a NaN
loss by an average (logging_nan_inf_filter), so that only the gradient norm or the weights show it. `train_loss`
of the last row is the mean of the whole run.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from harness.command import limits
from harness.command.interpreter import interpreter_path
from harness.command.model import Finding, TrainingCommand
from harness.command.modules import find_module
from harness.command.overrides.model import FlagTable
from harness.frameworks import effective, kinds
from harness.frameworks.argument_classes import argument_table
from harness.frameworks.base import (
    EVAL_TAG_PATTERNS,
    Addition,
    EffectiveValue,
    FrameworkFacts,
    Preparation,
    Written,
)
from harness.frameworks.evaluation import Evaluation, is_on, mentions, without
from harness.frameworks.settings import Settings, is_config_alone
from harness.frameworks.source import Program
from harness.spec import RunSpec

TRAINER_NAMES = (
    "Trainer", "Seq2SeqTrainer", "TrainingArguments", "Seq2SeqTrainingArguments", "HfArgumentParser",
)  # fmt: skip
"""Names of which one is used by a program that trains with it; a model alone is used by many others."""
CONSTRUCTORS = ("TrainingArguments", "*TrainingArguments")
CONSOLE_SCRIPTS = {
    "llamafactory-cli": ("train", "LLaMA-Factory"),
    "axolotl": ("train", "Axolotl"),
    "swift": ("sft", "ms-swift"),
}
"""{console script: (the command that trains, name)}."""
TOOL_MODULES = {"axolotl.cli.train": "Axolotl", "llamafactory.launcher": "LLaMA-Factory", "swift.cli.sft": "ms-swift"}
CONFIG_SHAPES = (
    ("Axolotl", frozenset({"base_model", "datasets", "micro_batch_size"})),
    ("LLaMA-Factory", frozenset({"stage", "finetuning_type", "model_name_or_path"})),
    ("TrainingArguments", frozenset({"output_dir", "per_device_train_batch_size"})),
)
"""Top-level keys that a config file of that tool holds all of."""
LOSS_TAGS = (r"^(train/)?loss$", r"^eval[/_](.+_)?loss$")
LR_TAGS = (r"^(train/)?(learning_rate|lr)$",)
GRAD_NORM_TAGS = (r"^(train/)?grad_norm$",)
EVAL_TAGS = (*EVAL_TAG_PATTERNS, r"^predict[/_]")
SUMMARY_TAGS = (
    r"^(train/)?train_(loss|runtime|samples_per_second|steps_per_second|tokens_per_second)$",
    r"^(train/)?total_flos$",
)
STATE_KEYS = (
    "max_steps", "num_train_epochs", "train_batch_size", "logging_steps", "eval_steps", "save_steps",
)  # fmt: skip
LOGGING_STEPS = 500
"""Default of the Trainer; trl's configurations have 10."""
LOGGED_ROWS = 20
"""About so many rows of the target are logged where the harness sets the cadence."""
UNKNOWN_TARGET_CADENCE = 10
OUTPUT_DIR = "trainer_output"


class TransformersAdapter:
    """A program around transformers.Trainer."""

    name = "transformers"
    constructors: tuple[str, ...] = CONSTRUCTORS
    logging_steps = LOGGING_STEPS
    parsers: tuple[str, ...] = ("HfArgumentParser",)
    """Classes that make every TrainingArguments field a flag."""

    def recognise(self, command: TrainingCommand, program: Program) -> str | None:
        """By a console script, the names that the source takes from it, or the shape of the config file."""
        script = Path(command.program).name
        words = [Path(word).name for word in command.argv[: len(command.argv) - len(command.script_args)]]
        for name, (_, tool) in CONSOLE_SCRIPTS.items():
            if script == name or (words and words[-1] == name):
                return f"`{name}` is {tool}, which trains with transformers.Trainer"
        if command.module in TOOL_MODULES:
            return f"{command.module} is {TOOL_MODULES[command.module]}, which trains with transformers.Trainer"
        used = program.user(("transformers",), TRAINER_NAMES)
        if used is not None:
            return f"{program.where(used[0])} uses transformers.{used[1]}"
        return None

    def recognise_config(self, config: Mapping[str, Any], name: str) -> str | None:
        """By the shape of a config file; asked where neither command nor source tells."""
        for tool, keys in CONFIG_SHAPES:
            if keys <= config.keys():
                return f"{name} has the shape of a config of {tool} ({', '.join(sorted(keys))})"
        return None

    def prepare(self, command: TrainingCommand, spec: RunSpec) -> Preparation:
        """Logging where the command would log nothing within the target, or nowhere."""
        settings = self._settings(command, spec)
        if not self._takes_flags(command, settings):
            return Preparation(findings=self._advice(command, spec, settings))
        if not spec.observability:
            return Preparation()
        additions = [self._cadence(spec, settings), *self._sink(command, spec, settings)]
        return Preparation(additions=tuple(addition for addition in additions if addition is not None))

    def facts(self, command: TrainingCommand, spec: RunSpec, reason: str) -> FrameworkFacts:
        """The facts of this run, from flags, config file and literals of the source."""
        settings = self._settings(command, spec)
        target = settings.get("max_steps")
        epochs = settings.get("num_train_epochs")
        output = settings.get("output_dir", OUTPUT_DIR)
        told = settings.get("output_dir").text
        roots = self._roots(spec, output.text)
        resume = limits.resume_point(command, spec.workdir, [Path(root) for root in roots])
        strategy = settings.get("save_strategy", "steps")
        algorithm, kind = self.algorithm(command, settings)
        return FrameworkFacts(
            name=self.name,
            reason=reason,
            capacity_settings=kinds.TRANSFORMERS_CAPACITY, batch_factors=kinds.TRANSFORMERS_BATCH,
            capacity_first=("a smaller --per_device_train_batch_size, --gradient_accumulation_steps raised to match",
                            "--gradient_checkpointing True"),
            step_base=1,
            counts_updates_by="counter",
            loss_tags=LOSS_TAGS,
            lr_tags=LR_TAGS,
            grad_norm_tags=GRAD_NORM_TAGS,
            eval_tags=EVAL_TAGS,
            summary_tags=SUMMARY_TAGS,
            total_steps_tags=(),
            prints_what_it_logs=True,
            masks_nonfinite=not settings.get("logging_nan_inf_filter", True).off,
            logging_hint="--logging_steps 1 --report_to tensorboard"
            if self._takes_flags(command, settings)
            else "logging_steps=1 in its arguments, or trainer.save_state()",
            target_steps=target.whole,
            target_source=target.source if target.whole else "",
            target_epochs=epochs.whole if target.whole is None else None,
            target_epochs_source=epochs.source,
            metric_roots=self._metric_roots(command, spec, settings, told),
            metric_guesses=(str(spec.checkpoint_dir),) if spec.checkpoint_dir and not told else (),
            checkpoint_roots=roots,
            checkpoint_asked=bool(spec.checkpoint_dir)
            or (output.known and strategy.known and str(strategy.value).lower() != "no"),
            resume_from=str(resume) if resume else None,
            start_weights=str(resume) if resume else _local_model(settings, spec),
            algorithm=algorithm,
            algorithm_kind=kind,
            **self.signals(kind),
        )

    def effective_values(self, facts: FrameworkFacts, written: Written) -> dict[str, EffectiveValue]:
        """TrainingArguments from the event file, plan and cadence from trainer_state.json, the peak learning rate."""
        roots = [*facts.metric_roots, *facts.checkpoint_roots]
        values: dict[str, EffectiveValue] = {}
        for path in reversed(effective.find_written(roots, ("events.out.tfevents*",), written)):
            values |= effective.event_file_arguments(path)
        states = effective.find_written(roots, ("trainer_state.json",), written)
        if states:
            state = effective.read_json(states[0])
            picked = {key: state[key] for key in STATE_KEYS if state.get(key) is not None}
            picked |= _peak_rate(state)
            values |= effective.values_of(picked, str(states[0]))
        return values

    def evaluation(
        self, command: TrainingCommand, program: Program, checkpoint: Path, place: Path
    ) -> Evaluation | None:
        """Of a script with --do_train and --do_eval, as those of transformers: the model from what was saved."""
        given = [command.flag("--do_train"), command.flag("--do_eval")]
        model, output = command.flag("--model_name_or_path"), command.flag("--output_dir")
        if not all(map(is_on, given)) or not model or not output or not (
                program.names("transformers") & set(self.parsers) and mentions(program, ".do_train", ".do_eval")):
            return None
        words = without(
            command.script_args, "--do_train", "--do_predict", "--model_name_or_path", "--output_dir", "--report_to",
            "--resume_from_checkpoint", "--push_to_hub", "--logging_dir", "--use_cpu", "--no_cuda")
        words += ["--model_name_or_path", str(checkpoint), "--output_dir", str(place), "--report_to", "none",
                  "--use_cpu", "True"]
        return Evaluation(adapter="transformers", argv=(*command.launcher_part, *words))

    def override_flags(self, command: TrainingCommand, spec: RunSpec) -> FlagTable:
        """The fields of TrainingArguments and its kin, as the installed release declares them."""
        return argument_table(command, spec.workdir)

    # What trl does otherwise

    def algorithm(self, command: TrainingCommand, settings: Settings) -> tuple[str | None, str]:
        """(name, kind) of the algorithm."""
        return None, "other"

    def signals(self, kind: str) -> dict[str, Any]:
        """Facts about the signal that a rollout algorithm learns from."""
        return {}

    def takes_flags_by_itself(self, command: TrainingCommand) -> bool:
        """Whether the program is a command of the framework that reads its flags."""
        return False

    # Settings

    def _settings(self, command: TrainingCommand, spec: RunSpec) -> Settings:
        return Settings(command, spec.workdir, constructors=self.constructors)

    def _takes_flags(self, command: TrainingCommand, settings: Settings) -> bool:
        """A parser over the arguments class reads every field as a flag, but for a config file alone."""
        if self.takes_flags_by_itself(command):
            return True
        uses_parser = bool(settings.program.names("transformers", "trl") & set(self.parsers))
        return uses_parser and not is_config_alone(command)

    def _roots(self, spec: RunSpec, output: str | None) -> tuple[str, ...]:
        given = (spec.checkpoint_dir,) if spec.checkpoint_dir else ()
        directories = [*given, spec.workdir / (output or OUTPUT_DIR)]
        return tuple(dict.fromkeys(str(directory) for directory in directories))

    def _metric_roots(
        self, command: TrainingCommand, spec: RunSpec, settings: Settings, output: str | None
    ) -> tuple[str, ...]:
        """Where it saves counts too where nothing tells the output directory: its trainer_state.json lies there."""
        logging_dir = settings.get("logging_dir").text or dict(command.env_assignments).get("TENSORBOARD_LOGGING_DIR")
        named = [spec.workdir / logging_dir] if logging_dir else []
        own = [spec.metrics_dir] if spec.metrics_dir else []
        saved = [spec.checkpoint_dir] if spec.checkpoint_dir and not output else []
        return tuple(dict.fromkeys(map(str, [*own, spec.workdir / (output or OUTPUT_DIR), *named, *saved])))

    # Observability

    def _cadence(self, spec: RunSpec, settings: Settings) -> Addition | None:
        """Rows within the target: stock logging every 500 steps shows nothing of 20."""
        if str(settings.get("logging_strategy", "steps").value).lower() == "epoch":
            return None
        target = _smaller(spec.max_steps, settings.get("max_steps").whole)
        every = settings.get("logging_steps", self.logging_steps)
        if every.number is not None and (0 < every.number < 1 or (target and every.number * 2 <= target)):
            return None
        if target is None and every.source.startswith("--"):
            return None
        if target is None and every.number is not None and every.number <= UNKNOWN_TARGET_CADENCE:
            return None
        steps = max(1, target // LOGGED_ROWS) if target else UNKNOWN_TARGET_CADENCE
        return addition("logging_steps", str(steps))

    def _sink(self, command: TrainingCommand, spec: RunSpec, settings: Settings) -> Iterable[Addition]:
        """TensorBoard, where the trainer's Python has it and the command reports to nothing."""
        report = settings.get("report_to", "none")
        if report.known and str(report.value).lower() not in ("none", "[]", "['none']"):
            return
        if has_package(command, spec, "tensorboard", "tensorboardX"):
            yield addition("report_to", "tensorboard")

    def _advice(self, command: TrainingCommand, spec: RunSpec, settings: Settings) -> tuple[Finding, ...]:
        every = settings.get("logging_steps", self.logging_steps)
        target = _smaller(spec.max_steps, settings.get("max_steps").whole)
        if not spec.observability or target is None or every.number is None or every.number <= target:
            return ()
        message = (
            f"logging_steps is {every.number:g} and the target {target}: nothing will be logged within it, and the "
            "program's flags are not known; set logging_steps, or call trainer.save_state()"
        )
        return (Finding(code="nothing-logged", message=message, refuses=False),)


def has_package(command: TrainingCommand, spec: RunSpec, *names: str) -> bool:
    """Whether the trainer's Python finds one of the packages; its finder alone runs."""
    python = interpreter_path(command, spec.workdir, os.environ)
    if python is None:
        return False
    found = (find_module(python, name, spec.workdir, os.environ, command) for name in names)
    return any(answer is not None and answer[0] for answer in found)


def addition(key: str, value: str) -> Addition:
    """A flag that only changes what is written."""
    how = f"injected as --{key} {value}"
    return Addition(key=key, value=value, how=how, kind="observability", words=(f"--{key}", value))


def _smaller(*numbers: int | None) -> int | None:
    return min((number for number in numbers if number is not None), default=None)


def _local_model(settings: Settings, spec: RunSpec) -> str | None:
    """The directory with the weights that training starts from, where the command names a local one."""
    reference = settings.get("model_name_or_path").text
    directory = spec.workdir / reference if reference else None
    has_weights = directory and any(any(directory.glob(name)) for name in ("*.safetensors", "pytorch_model*.bin"))
    return str(directory) if has_weights else None


def _peak_rate(state: Mapping[str, Any]) -> dict[str, float]:
    rows = [row for row in state.get("log_history") or [] if isinstance(row, dict)]
    rates = [row["learning_rate"] for row in rows if isinstance(row.get("learning_rate"), int | float)]
    return {"learning_rate.peak_logged": max(rates)} if rates else {}
