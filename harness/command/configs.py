"""The config files that a command names, and whether they parse."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.command.model import TrainingCommand

SUFFIXES = (".yaml", ".yml", ".json", ".toml")
MAX_CONFIG_BYTES = 8 << 20
_CONFIG_FLAG = re.compile(r"(^|[-_.])(config|cfg|conf|yaml|hparams|hyperparameters|recipe|experiment)s?([-_.]|$)")
_OTHER_CONFIG_FLAGS = ("deepspeed", "c", "f", "fsdp_config")
_NO_TRAINING_CONFIG = re.compile(
    r"(^|_)(tokenizer|model|logging|log|generation|save|dump|print)_?config|config_?(out|output|name|dir)(_|$)"
)
_POSITIONAL_JSON = re.compile(r"config|cfg|conf|args|params|recipe", re.IGNORECASE)
_UNSAID = "not a file that can be read"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRef:
    """A config file that a command names."""

    path: Path
    """Absolute."""
    index: int
    """Of its word in script_args; -1 for a file of the launcher part or a default."""
    flag: str
    """As written (`--config`), "" for a positional word."""
    given: str
    """The path as written."""

    @property
    def is_deepspeed(self) -> bool:
        """Whether this is DeepSpeed's own JSON."""
        return "deepspeed" in self.flag.replace("-", "_") or self.flag.strip("-") == "ds_config"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigProblem:
    """Why a config file cannot be used, with the place where that is known."""

    message: str
    line: int | None = None
    """From 1."""
    column: int | None = None
    """From 1."""

    def at(self, path: Path) -> str:
        """`PATH, line L, column C: message`."""
        place = "".join(
            f", {name} {value}" for name, value in (("line", self.line), ("column", self.column)) if value
        )
        return f"{path}{place}: {self.message}"


def config_files(command: TrainingCommand, workdir: Path) -> tuple[ConfigRef, ...]:
    """Config files among the script's arguments, in their order: by flag, or as a positional word."""
    return tuple(_config_words(command.script_args, command.directory or workdir))


def launcher_config(command: TrainingCommand, workdir: Path) -> ConfigRef | None:
    """The file of `accelerate launch --config_file`; it belongs to the launcher and is never rewritten."""
    words = command.launcher_part
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name.replace("-", "_") == "__config_file" and command.launched_by("accelerate", "accelerate-launch"):
            value = value if equals else "".join(words[index + 1 : index + 2])
            if value:
                return ConfigRef(path=workdir / value, index=-1, flag=name, given=value)
    return None


def _config_words(words: tuple[str, ...], directory: Path) -> Iterator[ConfigRef]:
    positional = [word for word in words if not word.startswith("-")]
    previous = ""
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if "://" in word:
            previous = word
            continue
        if word.startswith("-") and equals and value.lower().endswith(SUFFIXES):
            if _names_config(name):
                yield ConfigRef(path=directory / value, index=index, flag=name, given=value)
        elif not word.startswith("-") and word.lower().endswith(SUFFIXES):
            if previous.startswith("-") and "=" not in previous:
                if _names_config(previous):
                    yield ConfigRef(path=directory / word, index=index, flag=previous, given=word)
            elif "=" not in word and (
                not word.lower().endswith(".json") or _POSITIONAL_JSON.search(word) or positional == [word]
            ):
                yield ConfigRef(path=directory / word, index=index, flag="", given=word)
        previous = word


def _names_config(flag: str) -> bool:
    name = flag.lstrip("-").replace("-", "_").lower()
    if _NO_TRAINING_CONFIG.search(name):
        return False
    return bool(_CONFIG_FLAG.search(name)) or name in _OTHER_CONFIG_FLAGS


def read_config(path: Path) -> str:
    """The text of a config file, byte for byte. Raises OSError, ValueError for what is no text or too large."""
    with path.open("rb") as stream:
        data = stream.read(MAX_CONFIG_BYTES + 1)
    if len(data) > MAX_CONFIG_BYTES:
        raise ValueError(f"larger than {MAX_CONFIG_BYTES >> 20} MiB")
    return data.decode("utf-8")


def config_problem(path: Path) -> ConfigProblem | None:
    """Why a config file is not usable: not there, no text, or not what its suffix says."""
    try:
        text = read_config(path)
    except FileNotFoundError:
        return ConfigProblem(message="the config file does not exist")
    except IsADirectoryError:
        return ConfigProblem(message="the config is a directory")
    except OSError as error:
        return ConfigProblem(message=f"{_UNSAID} ({error.strerror})")
    except UnicodeDecodeError as error:
        return ConfigProblem(message=f"not UTF-8 at byte {error.start}")
    except ValueError:
        # Too large for a config: it may be data, and nothing is said about it.
        return None
    return text_problem(text, path.suffix.lower())


def text_problem(text: str, suffix: str) -> ConfigProblem | None:
    """Why a text is no YAML, JSON or TOML; None where it is, and for every other suffix."""
    try:
        if suffix == ".json":
            return _json_problem(text)
        if suffix == ".toml":
            return _toml_problem(text)
        return _yaml_problem(text) if suffix in (".yaml", ".yml") else None
    except RecursionError:
        return ConfigProblem(message="nested too deep to be a config")


def _json_problem(text: str) -> ConfigProblem | None:
    try:
        json.loads(text.removeprefix("\ufeff"))
    except json.JSONDecodeError as error:
        return ConfigProblem(message=f"no JSON: {error.msg}", line=error.lineno, column=error.colno)
    except ValueError as error:
        return ConfigProblem(message=f"no JSON: {error}")
    return None


def _toml_problem(text: str) -> ConfigProblem | None:
    import tomlkit
    from tomlkit.exceptions import ParseError, TOMLKitError

    try:
        tomlkit.parse(text).unwrap()
    except ParseError as error:
        what = re.sub(r" at line \d+ col \d+$", "", str(error))
        return ConfigProblem(message=f"no TOML: {what}", line=error.line, column=error.col + 1)
    except (TOMLKitError, ValueError) as error:
        return ConfigProblem(message=f"no TOML: {error}")
    return None


def _yaml_problem(text: str) -> ConfigProblem | None:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        yaml = YAML(typ="safe", pure=True)
        yaml.allow_duplicate_keys = True
        for _ in yaml.parse(text):
            pass
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = " ".join(str(part) for part in (error.context, error.problem) if part)
        line, column = (mark.line + 1, mark.column + 1) if mark else (None, None)
        return ConfigProblem(message=f"no YAML: {what}", line=line, column=column)
    except (YAMLError, ValueError) as error:
        return ConfigProblem(message=f"no YAML: {error}")
    return None
