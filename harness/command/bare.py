"""A script given alone, as `train.py --lr 1`: which program runs it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from harness.command.interpreter import child_environment, find_program
from harness.command.model import Finding, Launcher, TrainingCommand


def complete_bare_script(
    command: TrainingCommand, workdir: Path, environ: Mapping[str, str]
) -> TrainingCommand:
    """The command with the program that its bare script needs, announced by a finding; else unchanged.

    A script that cannot be started by itself runs through `uv run` where uv.lock lies beside it (or in the
    working directory) and uv is installed, through Python elsewhere.
    """
    script, seen = command.entrypoint, child_environment(command, environ)
    position = len(command.launcher_part) - 1
    if script is None or command.interpreter or not script.is_file() or script.suffix != ".py":
        return command
    if not command.launchers or command.launchers[-1].start != position:
        return command
    word, directory = command.argv[position], command.directory or workdir
    if find_program(word, directory, seen) is not None:
        return command
    prefix, reason = _prefix(script, directory, seen)
    shift = len(prefix)
    launchers = (*command.launchers[:-1], Launcher(name=prefix[0], start=position, stop=position + shift + 1))
    argv = (*command.argv[:position], *prefix, *command.argv[position:])
    message = f"{word} is run as `{' '.join((*prefix, word))}`: {reason}"
    return replace(
        command,
        argv=argv,
        program=argv[0],
        interpreter="" if prefix[0] == "uv" else prefix[0],
        launchers=launchers,
        findings=(*command.findings, Finding(code="bare-script", message=message, refuses=False)),
    )


def _prefix(script: Path, directory: Path, environ: Mapping[str, str]) -> tuple[tuple[str, ...], str]:
    locks = [place / "uv.lock" for place in dict.fromkeys((script.parent, directory))]
    lock = next((path for path in locks if path.is_file()), None)
    if lock is not None and find_program("uv", directory, environ) is not None:
        return ("uv", "run"), f"{lock} makes it a uv project"
    python = next((name for name in ("python", "python3") if find_program(name, directory, environ)), None)
    reason = "it cannot be started by itself"
    if lock is not None:
        reason += f"; {lock} is there, but uv is not on PATH"
    return (python or sys.executable,), reason
