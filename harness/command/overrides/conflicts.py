"""Settings of a command that overrule each other: told before the launch, from its flags and config files.

The DeepSpeed pairs are those that transformers compares (integrations/deepspeed.py), and refuses where they differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from harness.command.configs import ConfigRef, config_files, launcher_config, read_config, text_problem
from harness.command.model import Finding, TrainingCommand
from harness.command.overrides.document import Document, EditError, KeyPath, Leaf, dotted, load
from harness.command.overrides.synonyms import normal
from harness.command.overrides.values import as_bool, plain_data, read_value

DEEPSPEED_PAIRS: tuple[tuple[str, str], ...] = (
    ("train_micro_batch_size_per_gpu", "per_device_train_batch_size"),
    ("gradient_accumulation_steps", "gradient_accumulation_steps"),
    ("gradient_clipping", "max_grad_norm"),
    ("optimizer.params.lr", "learning_rate"),
    ("optimizer.params.eps", "adam_epsilon"),
    ("optimizer.params.weight_decay", "weight_decay"),
    ("scheduler.params.warmup_max_lr", "learning_rate"),
    ("scheduler.params.warmup_num_steps", "warmup_steps"),
    ("scheduler.params.total_num_steps", "max_steps"),
    ("fp16.enabled", "fp16"),
    ("bf16.enabled", "bf16"),
)
"""DeepSpeed key, TrainingArguments field."""
WARMUP_DEFAULT_LR = 0.001
"""warmup_max_lr of DeepSpeed's WarmupLR and WarmupDecayLR where the config has none."""


def conflicts(command: TrainingCommand, workdir: Path, files: Mapping[Path, str]) -> tuple[Finding, ...]:
    """Conflicts in a command as it will be launched; `files` are rewritten configs that are not written yet."""
    flags = _flag_values(command)
    found: list[Finding] = []
    for config in config_files(command, workdir):
        document = open_document(config, files)
        if document is not None and is_deepspeed(config, document):
            found += _deepspeed(config, document, flags)
    launcher = launcher_config(command, workdir)
    document = open_document(launcher, files) if launcher else None
    if launcher and document is not None:
        found += _accelerate(launcher, document, flags)
        found += _launched_deepspeed(launcher, document, workdir, files, flags)
    found += _epochs_without_effect(flags)
    return tuple(found)


def open_document(config: ConfigRef, files: Mapping[Path, str]) -> Document | None:
    """The document of a config file; None where it does not parse."""
    try:
        text = files.get(config.path)
        text = read_config(config.path) if text is None else text
        if text_problem(text, config.path.suffix.lower()) is not None:
            return None
        return load(text, config.path.suffix.lower())
    except (OSError, ValueError, EditError):
        return None


def is_deepspeed(config: ConfigRef, document: Document) -> bool:
    """Whether a config is DeepSpeed's: by its flag, or by a key that only DeepSpeed has."""
    return config.is_deepspeed or ("zero_optimization",) in document.leaves


def _flag_values(command: TrainingCommand) -> dict[str, tuple[str, str]]:
    """normal name -> (flag as written, last value) of the script's flags."""
    found: dict[str, tuple[str, str]] = {}
    words = command.script_args
    for index, word in enumerate(words):
        if not word.startswith("--"):
            continue
        name, equals, value = word.partition("=")
        following = "".join(words[index + 1 : index + 2])
        if not equals:
            value = following if following and not following.startswith("--") else "true"
        found[normal(name)] = (name, value)
    return found


def _differs(leaf: Leaf, value: str) -> bool:
    held = read_value(leaf.text.strip("'\""))
    given = read_value(value)
    if held.text == "auto":
        return False
    if held.type == "bool" or given.type == "bool":
        return as_bool(held) != as_bool(given)
    if held.type in ("int", "float") and given.type in ("int", "float"):
        return float(plain_data(held)) != float(plain_data(given))
    return held.text != given.text


def _deepspeed(config: ConfigRef, document: Document, flags: Mapping[str, tuple[str, str]]) -> Iterator[Finding]:
    by_name = {dotted(path): leaf for path, leaf in document.leaves.items()}
    places = []
    for key, argument in DEEPSPEED_PAIRS:
        if key in by_name and argument in flags and _differs(by_name[key], flags[argument][1]):
            flag, value = flags[argument]
            places.append(f"{key}={by_name[key].text} against {flag} {value}")
    if places:
        message = (
            f"{config.given} and the command disagree: {'; '.join(places)}. transformers refuses to start so: set "
            "these keys to \"auto\", or change both"
        )
        yield Finding(code="config-conflict", message=message, refuses=False)
    lr, scheduler = by_name.get("optimizer.params.lr"), by_name.get("scheduler.type")
    if lr is None or scheduler is None or scheduler.text.strip('"') not in ("WarmupLR", "WarmupDecayLR"):
        return
    wanted = read_value(lr.text.strip('"'))
    peak = by_name.get("scheduler.params.warmup_max_lr")
    effective = read_value(peak.text.strip('"')) if peak else read_value(str(WARMUP_DEFAULT_LR))
    numbers = {wanted.type, effective.type} <= {"int", "float"}
    if numbers and float(plain_data(wanted)) != float(plain_data(effective)):
        where = f"warmup_max_lr {effective.text}" + ("" if peak else ", its default,")
        message = (
            f"{config.given}: optimizer.params.lr {wanted.text} has no effect: {scheduler.text.strip(chr(34))} sets "
            f"the learning rate to {where} after its warm-up; set scheduler.params.warmup_max_lr to {wanted.text}"
        )
        yield Finding(code="scheduler-replaces-lr", message=message, refuses=False)


def _accelerate(config: ConfigRef, document: Document, flags: Mapping[str, tuple[str, str]]) -> Iterator[Finding]:
    pairs: tuple[tuple[KeyPath, str], ...] = (
        (("deepspeed_config", "gradient_accumulation_steps"), "gradient_accumulation_steps"),
        (("deepspeed_config", "gradient_clipping"), "max_grad_norm"),
    )
    for path, argument in pairs:
        leaf = document.leaves.get(path)
        if leaf is not None and argument in flags and _differs(leaf, flags[argument][1]):
            flag, value = flags[argument]
            message = (
                f"{config.given} of the launcher holds {dotted(path)}: {leaf.text} against {flag} {value}; the "
                "launcher's file is never changed: set it to auto, or change it by hand"
            )
            yield Finding(code="config-conflict", message=message, refuses=False)


def _launched_deepspeed(
    launcher: ConfigRef,
    document: Document,
    workdir: Path,
    files: Mapping[Path, str],
    flags: Mapping[str, tuple[str, str]],
) -> Iterator[Finding]:
    """The DeepSpeed JSON that accelerate's own config names."""
    leaf = document.leaves.get(("deepspeed_config", "deepspeed_config_file"))
    given = leaf.text.strip("'\"") if leaf else ""
    if not given:
        return
    config = ConfigRef(path=workdir / given, index=-1, flag=launcher.flag, given=given)
    inner = open_document(config, files)
    if inner is not None:
        yield from _deepspeed(config, inner, flags)


def _epochs_without_effect(flags: Mapping[str, tuple[str, str]]) -> Iterator[Finding]:
    """max_steps of TrainingArguments, and max_train_steps of diffusers' scripts, override num_train_epochs."""
    limit = next((name for name in ("max_steps", "max_train_steps") if name in flags), None)
    if limit is None or "num_train_epochs" not in flags:
        return
    steps = read_value(flags[limit][1])
    if steps.type == "int" and steps.data > 0:
        epochs = " ".join(flags["num_train_epochs"])
        message = (
            f"{epochs} has no effect: {flags[limit][0]} {steps.data} decides, and the run is complete after "
            f"{steps.data} steps"
        )
        yield Finding(code="setting-without-effect", message=message, refuses=False)
