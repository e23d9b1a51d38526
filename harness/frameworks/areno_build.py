"""The smallest `areno train` command that expresses a request: `--algo A --ckpt C --dataset-path P ...`.

Nothing is said that was not asked for: what an algorithm needs and the request lacks is a ConfigError, and every
other setting is left to AReno's defaults or to `--hp`.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.command.model import Finding
from harness.command.overrides.help_text import HelpOutput, parse_help
from harness.errors import ConfigError
from harness.frameworks.areno_algorithms import ALGORITHMS
from harness.record.reasons import Reason

FLAGS = {
    "algo": "--algo", "ckpt": "--ckpt", "dataset_path": "--dataset-path", "dataset_loader_fn": "--dataset-loader-fn",
    "reward_fn_path": "--reward-fn-path", "agent_fn": "--agent-fn", "save_path": "--save-path",
}
"""Option of the harness -> flag of AReno, in the order of the command."""
PATHS = ("ckpt", "dataset_path", "dataset_loader_fn", "reward_fn_path", "agent_fn")
"""What may be a local file or directory, seen from where pytest was called."""
ROLLOUT_ONLY = ("reward_fn_path", "agent_fn")


def build_command(asked: Mapping[str, str], hp: Sequence[str], *, here: Path, workdir: Path) -> str:
    """The command line. `asked`: option -> value; ConfigError names what is missing, or is too much, and what to give.

    Local paths are seen from `here`; where the job runs elsewhere they are made absolute.
    """
    algo = asked.get("algo", "").strip().lower()
    if not algo:
        given = ", ".join("--" + name.replace("_", "-") for name in asked if name != "algo")
        raise ConfigError(f"{given}: an AReno command is built from --algo too; give one of {', '.join(ALGORITHMS)}")
    if algo not in ALGORITHMS:
        raise ConfigError(f"--algo {algo}: not one of {', '.join(ALGORITHMS)}")
    for name, value in asked.items():
        if not value.strip():
            raise ConfigError(f"--{name.replace('_', '-')} is empty: give a value, or leave it out")
    _require(algo, asked, {text.partition("=")[0].strip().replace("-", "_") for text in hp})
    words = [areno_program(), "train"]
    for name, flag in FLAGS.items():
        if name in asked:
            words += [flag, algo if name == "algo" else _seen_from(asked[name], name, here, workdir)]
    return shlex.join(words)


def _require(algo: str, asked: Mapping[str, str], hyperparameters: set[str]) -> None:
    """What the algorithm needs is there, and nothing that it has no use for."""
    rule = ALGORITHMS[algo]
    for name in ("ckpt", "dataset_path", *rule.needs):
        if name not in asked and name not in hyperparameters and not (
            name == "reward_fn_path" and rule.reward_model and "reward_ckpt" in hyperparameters
        ):
            option, what = "--" + name.replace("_", "-"), _WHAT[name]
            also = " (or a reward model with --hp reward_ckpt=REF)" if (
                name == "reward_fn_path" and rule.reward_model) else ""
            raise ConfigError(f"--algo {algo} needs {option}: give {what}{also}")
    idle = [name for name in ROLLOUT_ONLY if name in asked and rule.kind != "rollout"]
    if idle:
        option = "--" + idle[0].replace("_", "-")
        raise ConfigError(f"{option}: {algo} makes no rollouts and would never call it; leave it out")


_WHAT = {
    "ckpt": "the checkpoint to start from, a directory or a ModelScope id OWNER/NAME",
    "dataset_path": "a file, a directory, or a ModelScope id OWNER/NAME[:SUBSET[:SPLIT]]",
    "dataset_loader_fn": "FILE[:FUNCTION] that makes the rows, such as load_training_dataset(path, **_)",
    "reward_fn_path": "a file that defines reward_fn(record)",
}


def areno_program() -> str:
    """`areno` beside this Python, else the one of the search path. ConfigError where there is none."""
    beside = Path(sys.executable).parent / "areno"
    found = str(beside) if beside.is_file() else shutil.which("areno")
    if found is None:
        raise ConfigError(f"--algo: there is no `areno` beside {sys.executable} or on PATH; install AReno there, or "
                          "give the whole command with --train-cmd")
    return found


def _seen_from(value: str, name: str, here: Path, workdir: Path) -> str:
    """A path of another directory made absolute; `FILE:FUNCTION` keeps its function."""
    if name == "save_path":
        return value if workdir == here else str(here / Path(value).expanduser())
    if name not in PATHS:
        return value
    head, colon, tail = value.partition(":")
    expanded = Path(head).expanduser()
    if not (here / expanded).exists():
        return value
    same = workdir == here and not head.startswith("~")
    return value if same else f"{(here / expanded).absolute()}{colon}{tail}"


def unknown_flags(words: Sequence[str], output: HelpOutput) -> tuple[Finding, ...]:
    """A refusal for each flag of a built command that the installed version's `areno train --help` does not list."""
    known = {name for flag in parse_help(output.text) for name in flag.names}
    if not known:
        why = output.problem or "it lists no option"
        return (Finding(code=Reason.COMMAND_REFUSED.value, refuses=True,
                        message=f"`areno train --help` could not be read, so that no command can be built: {why}"),)
    return tuple(
        Finding(code=Reason.COMMAND_REFUSED.value, refuses=True, message=(
            f"the installed AReno has no option {word} (`areno train --help` lists {len(known)} others); "
            "it may have another name there: give the whole command with --train-cmd"))
        for word in dict.fromkeys(words) if word.startswith("--") and word.partition("=")[0] not in known)
