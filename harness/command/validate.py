"""What can be known about a command before its launch. Every finding names input, place and remedy."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from harness.command.configs import config_files, config_problem, launcher_config
from harness.command.interpreter import child_environment, find_program, interpreter_path, own_interpreter
from harness.command.launchers import ENVIRONMENT_MANAGERS, REMOTE
from harness.command.model import Finding, TrainingCommand
from harness.command.modules import entry_file, find_module
from harness.command.shell_text import runs_shell_script
from harness.record.reasons import Reason

SYNTAX_TIMEOUT_S = 60.0
NOT_TRAINING = {
    "trl": {"env": "prints an environment report", "chat": "chats", "vllm-serve": "serves a model"},
    "llamafactory-cli": {
        "api": "serves a model",
        "chat": "chats",
        "env": "prints an environment report",
        "export": "exports a model",
        "version": "prints a version",
        "webchat": "serves a chat",
        "webui": "serves a page",
    },
    "axolotl": {
        "evaluate": "evaluates a model",
        "fetch": "fetches examples",
        "inference": "samples from a model",
        "lm-eval": "evaluates a model",
        "merge-lora": "merges weights",
        "merge-sharded-fsdp-weights": "merges weights",
        "preprocess": "prepares data",
        "quantize": "quantizes a model",
        "vllm-serve": "serves a model",
    },
    "swift": {
        "app": "serves a page",
        "deploy": "serves a model",
        "eval": "evaluates a model",
        "export": "exports a model",
        "infer": "samples from a model",
        "merge-lora": "merges weights",
        "sample": "samples from a model",
        "web-ui": "serves a page",
    },
    "accelerate": {
        "config": "writes a config",
        "env": "prints an environment report",
        "estimate-memory": "estimates memory",
        "merge-weights": "merges weights",
        "test": "tests an installation",
    },
}
"""Commands of known programs that do not train, and what they do instead."""
MAX_SOURCE_BYTES = 8 << 20
_SYNTAX_CHECK = """
import ast, json, sys, warnings
warnings.simplefilter("ignore")
try:
    with open(sys.argv[1], "rb") as stream:
        ast.parse(stream.read(), sys.argv[1])
except (SyntaxError, ValueError) as error:
    print(json.dumps([getattr(error, "lineno", None), getattr(error, "offset", None),
                      str(getattr(error, "msg", None) or error)]))
"""


def validate(command: TrainingCommand, workdir: Path, environ: Mapping[str, str]) -> tuple[Finding, ...]:
    """Working directory, program, entrypoint, module and config files, as the child sees them. Never raises."""
    if not workdir.is_dir():
        what = "is no directory" if workdir.exists() else "does not exist"
        message = f"--workdir {workdir} {what}; give the directory that the job starts in"
        return (_refusal(Reason.WORKDIR_MISSING, message),)
    environ = child_environment(command, environ)
    return (
        *_check_subcommand(command),
        *_check_program(command, workdir, environ),
        *_check_entrypoint(command, workdir, environ),
        *_check_module(command, workdir, environ),
        *_check_configs(command, workdir),
    )


def _refusal(reason: Reason, message: str) -> Finding:
    return Finding(code=reason.value, message=message, refuses=True)


def _check_subcommand(command: TrainingCommand) -> Iterator[Finding]:
    program = command.launchers[-1].name if command.launchers else ""
    words = NOT_TRAINING.get(program, {})
    name = "".join(command.script_args[:1])
    if name in words:
        message = f"`{program} {name}` {words[name]} and does not train; give the command that trains"
        yield _refusal(Reason.COMMAND_REFUSED, message)


def _check_program(command: TrainingCommand, workdir: Path, environ: Mapping[str, str]) -> Iterator[Finding]:
    # Inside `uv run` a Python is looked up in an environment that uv may yet have to make.
    managed = command.launched_by(*ENVIRONMENT_MANAGERS) is not None
    words = [command.argv[item.start] for item in command.launchers]
    own = [index for index, item in enumerate(command.launchers) if item.name in ENVIRONMENT_MANAGERS]
    words = words[: own[0] + 1] if managed else words
    for word in dict.fromkeys(words):
        program = find_program(word, workdir, environ)
        if program is None:
            yield _refusal(Reason.COMMAND_NOT_FOUND, _not_found(word, workdir, environ))
        elif (missing := _missing_shebang_interpreter(program)) is not None:
            message = f"{program} begins with `#!{missing}`, which does not exist; install it or mend it"
            yield _refusal(Reason.COMMAND_NOT_FOUND, message)


def _not_found(word: str, workdir: Path, environ: Mapping[str, str]) -> str:
    path = workdir / word
    if path.is_file() and not os.access(path, os.X_OK):
        run = f"python {word}" if word.endswith(".py") else f"bash {word}"
        return f"{path} is not executable; give `{run}`, or run `chmod +x {path}`"
    if path.is_dir() and "/" in word:
        return f"{path} is a directory; give the program that trains"
    if path.is_file() and "/" not in word:
        run = f"python {word}" if word.endswith(".py") else f"./{word}"
        return f"{word} is not on PATH although it lies in {workdir}; give `{run}`"
    if "/" in word:
        return f"{path} does not exist; check the path against --workdir {workdir}"
    return f"{word}: no such program on PATH ({environ.get('PATH', os.defpath)}); install it or give its path"


def _missing_shebang_interpreter(program: Path) -> str | None:
    try:
        with program.open("rb") as stream:
            first = stream.readline(512)
    except OSError:
        return None
    if not first.startswith(b"#!") or not first[2:].split():
        return None
    interpreter = first[2:].split()[0].decode("utf-8", "replace")
    return interpreter if interpreter.startswith("/") and not Path(interpreter).exists() else None


def _check_entrypoint(
    command: TrainingCommand, workdir: Path, environ: Mapping[str, str]
) -> Iterator[Finding]:
    script = command.entrypoint
    if script is None:
        return
    if not script.is_file():
        what = "is a directory" if script.is_dir() else "does not exist"
        message = f"the script {script} {what}; check the path against --workdir {workdir}"
        remote = command.launched_by(*REMOTE)
        if remote and not script.exists():
            message = f"the script {script} is not on this file system; {remote} may see it where it runs"
            yield Finding(code="entrypoint-elsewhere", message=message, refuses=False)
        else:
            yield _refusal(Reason.ENTRYPOINT_MISSING, message)
        return
    if not os.access(script, os.R_OK):
        yield _refusal(
            Reason.ENTRYPOINT_MISSING, f"the script {script} is not readable; run `chmod +r {script}`"
        )
        return
    if (script.suffix == ".py" or command.interpreter) and not runs_shell_script(command):
        yield from _check_syntax(command, script, workdir, environ)


def _check_syntax(
    command: TrainingCommand, script: Path, workdir: Path, environ: Mapping[str, str]
) -> Iterator[Finding]:
    own = own_interpreter()
    python = interpreter_path(command, workdir, environ)
    problem = syntax_problem(script, python or own)
    if problem is None:
        return
    message = f"{script}{problem}"
    if python is None:
        # Another Python may know a syntax that this one does not.
        message += f" (by {own}; the command's own Python could not be told)"
        yield Finding(code="entrypoint-unparsed", message=message, refuses=False)
    else:
        yield _refusal(Reason.COMMAND_REFUSED, f"{message} (by {python}); mend the script")


def syntax_problem(script: Path, python: Path) -> str | None:
    """`, line L, column C: what is wrong` by that interpreter; None where it parses or cannot be told."""
    try:
        if script.stat().st_size > MAX_SOURCE_BYTES:
            return None
        done = subprocess.run(
            [str(python), "-I", "-S", "-c", _SYNTAX_CHECK, str(script)],
            capture_output=True,
            timeout=SYNTAX_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        line, column, what = json.loads(done.stdout.decode("utf-8", "replace").splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError, TypeError):
        return None
    place = "".join(f", {name} {at}" for name, at in (("line", line), ("column", column)) if at is not None)
    return f"{place}: {what}"


def _check_module(command: TrainingCommand, workdir: Path, environ: Mapping[str, str]) -> Iterator[Finding]:
    """The module of `python -m`, by the command's own interpreter; only its top package's finder runs."""
    if not command.module:
        return
    directory = command.directory or workdir
    file = entry_file(command, workdir)
    if file is not None:
        yield from _check_syntax(command, file, workdir, environ)
        return
    python = interpreter_path(command, workdir, environ)
    told = find_module(python, command.module, directory, environ, command) if python else None
    if told is None or told[0]:
        return
    remote = command.launched_by(*REMOTE)
    message = f"the module {command.module} is not found by {python} ({told[1]})"
    if remote:
        message += f"; {remote} may see it where it runs"
        yield Finding(code="entrypoint-elsewhere", message=message, refuses=False)
    else:
        message += f"; install it there, or check its name against --workdir {workdir}"
        yield _refusal(Reason.ENTRYPOINT_MISSING, message)


def _check_configs(command: TrainingCommand, workdir: Path) -> Iterator[Finding]:
    """Every config file that the command names is there and parses."""
    remote = command.launched_by(*REMOTE)
    launcher = launcher_config(command, workdir)
    for config in (*config_files(command, workdir), *([launcher] if launcher else [])):
        problem = config_problem(config.path)
        if problem is None:
            continue
        message = problem.at(config.path)
        if remote and not config.path.exists():
            message = f"{config.path} is not on this file system; {remote} may see it where it runs"
            yield Finding(code="config-elsewhere", message=message, refuses=False)
        else:
            remedy = "mend it" if config.path.exists() else f"check the path against --workdir {workdir}"
            yield _refusal(Reason.COMMAND_REFUSED, f"{message}; {remedy}")
