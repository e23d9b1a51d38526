"""Which Python a command runs, found without running anything."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from harness.command.launchers import ENVIRONMENT_MANAGERS
from harness.command.model import TrainingCommand

_PYTHON_NAME = re.compile(r"(python|pypy)[0-9.]*[a-z]?$")


def child_environment(command: TrainingCommand, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment that the command sees, as far as the command itself sets it."""
    return {**environ, **dict(command.env_assignments)}


def find_program(word: str, workdir: Path, environ: Mapping[str, str]) -> Path | None:
    """The executable that the operating system would start for `word`, None where there is none."""
    if "/" in word:
        path = workdir / word
        return path if path.is_file() and os.access(path, os.X_OK) else None
    found = shutil.which(word, path=environ.get("PATH", os.defpath))
    return Path(found) if found else None


def interpreter_path(command: TrainingCommand, workdir: Path, environ: Mapping[str, str]) -> Path | None:
    """The Python executable of the trainer; None where only running the command would tell.

    Told from the Python that the command names, the project environment of `uv run` (`.venv` beside the
    nearest pyproject.toml), conda's prefix, or the first line of a console script.
    """
    environ = child_environment(command, environ)
    manager = command.launched_by(*ENVIRONMENT_MANAGERS)
    if manager == "uv":
        return _uv_python(command, workdir, environ)
    if manager is not None:
        return _manager_python(command, manager, workdir)
    if command.interpreter:
        return find_program(command.interpreter, workdir, environ)
    # After launchers such as `nice` the last word before the script's arguments is the program.
    for word in (command.program, *command.argv[: len(command.argv) - len(command.script_args)][::-1]):
        program = find_program(word, workdir, environ) if word else None
        python = _shebang_python(program, environ) if program else None
        if python is not None:
            return python
    return None


def _uv_python(command: TrainingCommand, workdir: Path, environ: Mapping[str, str]) -> Path | None:
    """The project environment's; with --no-project the named one. None for an environment that uv makes."""
    made = ("--project", "--with", "--with-editable", "--with-requirements", "--isolated", "--active", "--script")
    words = command.launcher_part
    if any(word.partition("=")[0] in made for word in words) or _has_inline_metadata(command.entrypoint):
        return None
    named = _option(command, "-p", "--python")
    if named:
        alone = "--no-project" in words and "/" in named
        return find_program(named, workdir, environ) if alone else None
    configured = environ.get("UV_PROJECT_ENVIRONMENT")
    for directory in (workdir, *workdir.parents):
        if (directory / "pyproject.toml").is_file():
            python = directory / (configured or ".venv") / "bin" / "python"
            return python if python.is_file() else None
    return None


def _has_inline_metadata(script: Path | None) -> bool:
    """Whether a script names its own dependencies, for which uv makes an environment."""
    if script is None:
        return False
    try:
        with script.open("rb") as stream:
            return re.search(rb"^# /// script\s*$", stream.read(1 << 16), re.MULTILINE) is not None
    except OSError:
        return False


def _manager_python(command: TrainingCommand, manager: str, workdir: Path) -> Path | None:
    """`conda run -p PREFIX`, pixi's and an in-project `.venv`; every other environment only the manager knows."""
    places = [workdir / ".venv"]
    if manager == "pixi":
        name = _option(command, "-e", "--environment") or "default"
        places = [workdir / ".pixi" / "envs" / name]
    elif manager in ("conda", "mamba", "micromamba"):
        prefix = _option(command, "-p", "--prefix")
        places = [workdir / prefix] if prefix else []
    elif _option(command, "-C", "--directory", "-P", "-p", "--project"):
        places = []
    pythons = [place / "bin" / "python" for place in places]
    return next((python for python in pythons if python.is_file()), None)


def _option(command: TrainingCommand, *names: str) -> str:
    words = command.launcher_part
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name in names:
            return value if equals else "".join(words[index + 1 : index + 2])
    return ""


def _shebang_python(program: Path, environ: Mapping[str, str]) -> Path | None:
    try:
        with program.open("rb") as stream:
            first = stream.readline(512)
            second = stream.readline(512)
    except OSError:
        return None
    if not first.startswith(b"#!"):
        return None
    words = first[2:].decode("utf-8", "replace").split()
    if words and Path(words[0]).name == "sh" and (match := re.match(rb"'''exec' \"?([^\"\s]+)", second)):
        # The form that pip writes where the interpreter's path is too long for a first line.
        words = [match.group(1).decode("utf-8", "replace")]
    if len(words) > 1 and Path(words[0]).name == "env":
        words = words[2:] if words[1] == "-S" else words[1:]
    if not words or not _PYTHON_NAME.match(Path(words[0]).name):
        return None
    return find_program(words[0], Path("/"), environ)


def own_interpreter() -> Path:
    """The Python that runs the harness."""
    return Path(sys.executable)
