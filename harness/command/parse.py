"""A command line into a TrainingCommand, without a shell.

Nothing is expanded and nothing is run: what only a shell could do is refused, with what to write instead.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

from harness.command.launchers import find_target
from harness.command.model import Finding, TrainingCommand
from harness.command.words import (
    ASSIGNMENT,
    join_continued_lines,
    notes,
    refuse_shell_syntax,
    split,
    take_assignments,
)
from harness.errors import CommandError


def parse_command(text: str, workdir: Path) -> TrainingCommand:
    """Take a command line apart; `workdir` is where its relative paths start.

    Raises CommandError for what is no single command: nothing, unbalanced quotes, shell syntax.
    """
    if "\0" in text:
        raise CommandError("--train-cmd holds a NUL character; remove it")
    joined = join_continued_lines(text).lstrip()
    joined = joined if joined.rstrip().endswith("\\") else joined.rstrip()
    if not joined:
        raise CommandError(
            "--train-cmd is empty; give the command that trains, for example `python train.py`"
        )
    words = split(joined)
    refuse_shell_syntax(joined)
    assignments, argv = take_assignments(words)
    if not argv:
        raise CommandError(
            f"--train-cmd only sets variables ({' '.join(words)}); add the command that trains"
        )
    if not argv[0]:
        raise CommandError(
            "--train-cmd begins with an empty word where its program should be; remove the quotes"
        )
    command = from_words(argv, workdir, text=text, assignments=assignments)
    return replace(command, findings=(*notes(joined), *command.findings))


def from_words(
    argv: tuple[str, ...],
    workdir: Path,
    *,
    text: str = "",
    assignments: tuple[tuple[str, str], ...] = (),
) -> TrainingCommand:
    """The command of words that are split already; argv[0] is its program."""
    target = find_target(argv, workdir)
    return TrainingCommand(
        text=text,
        env_assignments=assignments,
        argv=argv,
        program=argv[0],
        entrypoint=target.entrypoint,
        module=target.module,
        script_args=argv[target.args_start :],
        interpreter=target.interpreter,
        launchers=tuple(target.launchers),
        directory=target.directory,
        shell_text=target.shell_text,
        findings=_several_programs(argv, [launcher.name for launcher in target.launchers]),
    )


def _several_programs(argv: tuple[str, ...], launchers: list[str]) -> tuple[Finding, ...]:
    if ":" not in argv or not {"mpirun", "mpiexec", "orterun"} & set(launchers):
        return ()
    message = "mpirun starts several programs (`:`); the first one is taken for the one that trains"
    return (Finding(code="several-programs", message=message, refuses=False),)


def join_command(command: TrainingCommand) -> str:
    """A command line that parses to the same words."""
    assignments = [f"{name}={shlex.quote(value)}" for name, value in command.env_assignments]
    program = shlex.quote(command.argv[0])
    if ASSIGNMENT.match(command.argv[0]):
        program = f"'{command.argv[0]}'"
    return " ".join([*assignments, program, *map(shlex.quote, command.argv[1:])])


def with_script_args(command: TrainingCommand, words: tuple[str, ...]) -> TrainingCommand:
    """The command with other arguments of its script; the launcher part stays as it is."""
    return replace(command, argv=command.launcher_part + words, script_args=words)


def with_arguments(command: TrainingCommand, words: tuple[str, ...]) -> TrainingCommand:
    """The command with words added to its script's arguments, before a `--` that ends the options."""
    end = command.script_args.index("--") if "--" in command.script_args else len(command.script_args)
    if not words:
        return command
    return with_script_args(command, command.script_args[:end] + words + command.script_args[end:])
