"""The settings of a command as they are written down, so that a later retry can be held against them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.command.configs import config_files, launcher_config
from harness.command.model import TrainingCommand
from harness.command.shell_text import inner_command
from harness.command.topology import processes_asked
from harness.frameworks.effective import values_of
from harness.frameworks.settings import read_config
from harness.record.files import open_regular
from harness.record.redaction import Redactor
from harness.spec import RunSpec

MAX_DIGEST_BYTES = 16 << 20
FILE_SUFFIXES = (".py", ".json", ".jsonl", ".csv", ".tsv", ".parquet", ".txt", ".sh")
SWITCH = "true"
"""The value of a flag without one."""


def command_settings(command: TrainingCommand, spec: RunSpec, redactor: Redactor) -> dict[str, Any]:
    """{values: {name: text}, files: {role: sha256}}, secrets masked, for the journal.

    A flag is its name with `_`, a config value its dotted path after `config:`, an assignment before the command
    `env.NAME`. What names this very run (out-dir, run id) is put the same way in every run.
    """
    inner = inner_command(command)
    configs = config_files(inner, spec.workdir)
    named = {config.index for config in configs}
    values: dict[str, str] = {}
    for name, value in _words(inner.script_args, skip=named):
        values[name] = redactor.argv([f"--{name}", value])[-1]
    for name, value in command.env_assignments:
        values[f"env.{name}"] = redactor.environment({name: value})[name]
    files: dict[str, str | None] = {
        f"file {name}": digest for name, value in _words(inner.script_args, skip=named)
        if (digest := _named_file(value, inner.directory or spec.workdir))}
    for number, config in enumerate(configs):
        role = "config" if number == 0 else f"config{number + 1}"
        files[role] = digest_of(config.path)
        values |= _config_values(config.path, role, files[role], redactor)
    accelerate = launcher_config(command, spec.workdir)
    if accelerate is not None:
        values |= _config_values(accelerate.path, "launcher_config", digest_of(accelerate.path), redactor)
    values |= _shape(command, inner, spec)
    if inner.entrypoint is not None:
        files["entrypoint"] = digest_of(inner.entrypoint)
    return {"values": {name: neutral(value, spec) for name, value in sorted(values.items())}, "files": files}


def neutral(value: str, spec: RunSpec) -> str:
    """A value without what every run has of its own."""
    for own, word in ((str(spec.out_dir), "{out_dir}"), (spec.run_id, "{run_id}")):
        value = value.replace(own, word) if own else value
    return value


def _shape(command: TrainingCommand, inner: TrainingCommand, spec: RunSpec) -> dict[str, str]:
    """What is started, by what, and in how many processes; the caps of the harness."""
    place = inner.entrypoint
    program = inner.module or (os.path.relpath(place, spec.workdir) if place else Path(inner.program).name)
    asked = processes_asked(inner)
    found = {
        "launched.program": program, "launched.by": " ".join(item.name for item in inner.launchers[:-1]) or "none",
        "launched.world_size": str(asked.processes) if asked.processes is not None else "unknown",
    }
    if spec.max_steps is not None and spec.cap == "harness":
        found["cap.max_steps"] = str(spec.max_steps)
    if spec.max_epochs is not None and spec.cap == "harness":
        found["cap.max_epochs"] = str(spec.max_epochs)
    return found


def _words(words: tuple[str, ...], *, skip: set[int]) -> Iterator[tuple[str, str]]:
    """(name, value) of each flag, Hydra word and positional word; of one given twice the values joined."""
    found: dict[str, list[str]] = {}
    index, number = 0, 0
    while index < len(words):
        word, at = words[index], index
        index += 1
        name, equals, value = word.partition("=")
        if not _is_flag(word) and not equals:
            number += 1
            if at not in skip:
                found[f"word{number}"] = [word]
            continue
        if not equals:
            value = SWITCH
            if index < len(words) and not _is_flag(words[index]):
                value, at = words[index], index
                index += 1
                while index < len(words) and not _is_flag(words[index]) and "=" not in words[index]:
                    value += f" {words[index]}"
                    index += 1
        if at not in skip:
            found.setdefault(name.lstrip("-+~").replace("-", "_"), []).append(value)
    yield from ((name, " ".join(values)) for name, values in found.items())


def _named_file(value: str, directory: Path) -> str | None:
    """The digest of a program or a data file that a word names (`reward.py`, `loader.py:load`); None for others."""
    place = value if value.endswith(FILE_SUFFIXES) else value.rpartition(":")[0]
    if not place.endswith(FILE_SUFFIXES):
        return None
    try:
        return digest_of(directory / place)
    except ValueError:
        return None


def _is_flag(word: str) -> bool:
    return word.startswith("-") and len(word) > 1 and not word[1:2].isdigit() and word[1:2] != "."


def _config_values(path: Path, role: str, digest: str | None, redactor: Redactor) -> dict[str, str]:
    """Every scalar of a config file; its digest alone where it cannot be read as one."""
    document = read_config(path)
    if not document:
        return {f"{role}:": digest or "unreadable"}
    masked: Mapping[str, Any] = redactor.json(document)
    return {f"{role}:{key}": _text(item.value) for key, item in values_of(masked, str(path), lists=True).items()}


def _text(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def digest_of(path: Path) -> str | None:
    """SHA-256 of a file of at most 16 MiB; None where it cannot be read."""
    try:
        with os.fdopen(open_regular(path), "rb") as handle:
            data = handle.read(MAX_DIGEST_BYTES + 1)
    except (OSError, ValueError):
        return None
    return hashlib.sha256(data).hexdigest() if len(data) <= MAX_DIGEST_BYTES else None
