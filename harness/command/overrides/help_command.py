"""Which words make a program print its options, and whether it may be started for that."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from harness.command.interpreter import interpreter_path
from harness.command.launchers import ENVIRONMENT_MANAGERS
from harness.command.model import TrainingCommand
from harness.command.modules import is_console_script
from harness.command.overrides import lightning_cli
from harness.command.overrides.arguments import Words, active_subcommand
from harness.command.overrides.program import Program


def help_commands(command: TrainingCommand, program: Program, words: Words) -> Words:
    """The leading words that name one of the program's commands: `train` of `areno train`."""
    console = command.entrypoint is None or is_console_script(command.entrypoint)
    first = words[0] if words else "-"
    if not console or command.module is not None:
        if program.lightning and first in lightning_cli.SUBCOMMANDS:
            return (first,)
        return tuple(words[index] for index in active_subcommand(words, program.flags))
    return (first,) if re.match(r"[A-Za-z][\w-]*$", first) else ()


def help_argv(
    command: TrainingCommand, program: Program, commands: Words, workdir: Path, environ: Mapping[str, str]
) -> Words:
    """The program with `--help`; () where it must not be started: a program that reads no options would train."""
    missing = command.entrypoint is not None and not command.entrypoint.is_file()
    if missing or program.complete or (program.read and not program.reads_options):
        return ()
    start = _program_words(command, workdir, environ)
    return (*start, *commands, "--help") if start else ()


def _program_words(command: TrainingCommand, workdir: Path, environ: Mapping[str, str]) -> Words:
    """The program without the launchers that start more than one process of it; () where it is not one."""
    python = interpreter_path(command, workdir, environ)
    managers = [item for item in command.launchers if item.name in ENVIRONMENT_MANAGERS]
    manager = command.argv[managers[-1].start : managers[-1].stop] if managers else ()
    last = command.launchers[-1] if command.launchers else None
    if command.entrypoint is not None or command.module is not None:
        target = (str(command.entrypoint),) if command.entrypoint else ("-m", str(command.module))
        if python is not None:
            return (str(python), *target)
        # `uv run t.py` is its own program.
        return manager if managers and managers[-1] is last else (*manager, "python", *target)
    if last is None or command.interpreter or command.shell_text is not None:
        return ()
    return (*manager, *command.argv[last.start : last.start + 1]) if last not in managers else ()
