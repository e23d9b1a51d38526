"""Step limits, directories and resume points that a command states by its flags.

The names are plain data, so that an adapter can hand in its own. They are compared without dashes, with `_`
and `-` alike, as `--max-steps N`, `--max_steps=N` and, in the manner of Hydra, `trainer.max_steps=N`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from harness.command.model import TrainingCommand

STEP_FLAGS = (
    "max-steps",
    "max-train-steps",
    "num-train-steps",
    "train-steps",
    "num-training-steps",
    "total-training-steps",
    "training-steps",
    "total-steps",
    "num-steps",
    "max-iters",
    "max-iterations",
    "num-iterations",
    "num-iters",
    "train-iters",
    "iterations",
    "max-updates",
    "max-update",
    "num-updates",
    "steps",
)
METRIC_DIR_FLAGS = (
    "log-dir",
    "logdir",
    "logs-dir",
    "logging-dir",
    "metrics-log-dir",
    "metrics-dir",
    "tensorboard-dir",
    "tensorboard-log-dir",
    "tensorboard-logdir",
    "tb-dir",
    "tb-log-dir",
    "tb-logdir",
    "summary-dir",
    "events-dir",
)
SAVE_DIR_FLAGS = (
    "save-dir",
    "save-path",
    "ckpt-dir",
    "ckpt-path",
    "checkpoint-dir",
    "checkpoints-dir",
    "checkpoint-path",
    "ckpt-save-dir",
    "save-checkpoint-dir",
    "model-save-dir",
    "model-dir",
)
OUTPUT_DIR_FLAGS = ("output-dir", "out-dir", "outdir", "output-path", "run-dir", "work-dir", "exp-dir")
"""Where checkpoints lie if there are any; naming one does not ask for saving."""
OUTPUT_WORDS = frozenset({
    "artifact", "artifacts", "checkpoint", "checkpoints", "ckpt", "ckpts", "dest", "destination", "export", "o", "out",
    "outdir", "output", "outputs", "result", "results", "save", "savedir", "saved", "snapshot", "snapshots",
})
NO_PLACE_WORDS = frozenset({
    "base", "best", "every", "format", "freq", "frequency", "from", "init", "input", "interval", "last", "limit",
    "load", "mode", "name", "only", "prefix", "pretrained", "restore", "resume", "steps", "strategy", "total", "type",
})
RESUME_FLAGS = (
    "resume",
    "resume-from",
    "resume-from-checkpoint",
    "resume-path",
    "resume-checkpoint",
    "resume-ckpt",
    "load-checkpoint",
    "restore",
    "restore-from",
)
_SWITCH_VALUES = frozenset(
    {"", "true", "1", "yes", "auto", "latest", "last", "none", "false", "no", "0", "null"}
)
_OFF_VALUES = frozenset({"none", "false", "no", "0", "null"})


def flag_values(command: TrainingCommand, names: Iterable[str]) -> list[tuple[str, str]]:
    """(flag as written, last value) for each of `names` that the command gives, in the order of `names`."""
    given: dict[str, tuple[str, str]] = {}
    words = command.script_args
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if not equals and not word.startswith("-"):
            continue
        key = name.lstrip("-+").rpartition(".")[2].replace("_", "-").lower()
        if not equals:
            following = words[index + 1 : index + 2]
            value = following[0] if following and not _is_flag(following[0]) else ""
        given[key] = (name, value)
    return [given[name] for name in names if name in given]


def _is_flag(word: str) -> bool:
    return word.startswith("-") and not word[1:2].isdigit() and word[1:2] != "."


def step_limit(command: TrainingCommand, names: Iterable[str] = STEP_FLAGS) -> tuple[int, str] | None:
    """The number of steps after which the command ends by itself, and the flag that says so.

    -1 and 0 mean "no limit" to the trainers that accept them.
    """
    for flag, value in flag_values(command, names):
        steps = _whole_number(value)
        if steps is not None and steps > 0:
            return steps, flag
    return None


def _whole_number(value: str) -> int | None:
    try:
        return int(value)
    except ValueError:
        pass
    try:
        number = float(value)
        return int(number) if number.is_integer() else None
    except (ValueError, OverflowError):
        return None


def directories(command: TrainingCommand, workdir: Path, names: Iterable[str]) -> tuple[Path, ...]:
    """Directories that the flags name, absolute; no `~` is expanded, since no shell runs the command."""
    values = [value for _, value in flag_values(command, names) if value and "://" not in value]
    return tuple(dict.fromkeys(workdir / value for value in values))


def is_output_name(name: str) -> bool:
    """Whether a flag's or setting's name reads as a place that a program writes to: `--out`, `--model_output`."""
    words = set(name.lower().replace("-", "_").rpartition(".")[2].split("_"))
    return bool(words & OUTPUT_WORDS) and not words & NO_PLACE_WORDS


def is_place(value: str) -> bool:
    """Whether a value can be a place: no number, no switch, nothing to be filled in, and not behind `://`."""
    return value.lower() not in _SWITCH_VALUES and not set("$:{\n") & set(value) and _number(value) is None


def _number(value: str) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None


def output_places(command: TrainingCommand, workdir: Path) -> tuple[Path, ...]:
    """Where a program of any names may save by what its flags are called, absolute; nothing says that it does."""
    given = [word.partition("=")[0].lstrip("-+") for word in command.script_args if _is_flag(word) or "=" in word]
    names = [name.rpartition(".")[2].replace("_", "-").lower() for name in given if is_output_name(name)]
    return tuple(dict.fromkeys(workdir / value for _, value in flag_values(command, names) if is_place(value)))


def resume_point(command: TrainingCommand, workdir: Path, save_dirs: Iterable[Path]) -> Path | None:
    """The checkpoint, or the directory of checkpoints, that the command resumes from.

    A bare `--resume`, or one with `auto` or `latest`, resumes from where the command saves.
    """
    for _, value in flag_values(command, RESUME_FLAGS):
        if value.lower() in _OFF_VALUES:
            continue
        if value.lower() in _SWITCH_VALUES:
            return next(iter(save_dirs), None)
        return workdir / value
    return None


START_FLAGS = (
    "init-checkpoint", "init-ckpt", "init-from", "init-weights", "initial-checkpoint", "initial-weights", "pretrained",
    "pretrained-model", "pretrained-weights", "pretrained-checkpoint", "finetune-from", "base-model", "start-from",
    "model-name-or-path",
)


def start_point(command: TrainingCommand, workdir: Path) -> Path | None:
    """The local weights that the command begins with, by what its flags are called; None where it names none."""
    places = (workdir / value for _, value in flag_values(command, START_FLAGS))
    return next((place for place in places if place.exists()), None)


EPOCH_FLAGS = (
    "max-epochs",
    "num-train-epochs",
    "num-epochs",
    "epochs",
    "max-epoch",
    "n-epochs",
    "train-epochs",
    "total-epochs",
)


def epoch_limit(command: TrainingCommand, names: Iterable[str] = EPOCH_FLAGS) -> tuple[float, str] | None:
    """The number of epochs after which the command ends by itself, and the flag that says so."""
    for flag, value in flag_values(command, names):
        try:
            epochs = float(value)
        except ValueError:
            continue
        if epochs > 0:
            return epochs, flag
    return None
