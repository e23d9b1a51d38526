"""A command line into a TrainingCommand, without a shell.

Nothing is expanded and nothing is run: what only a shell could do is refused, with what to write instead.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from harness.command.model import Finding, TrainingCommand
from harness.errors import CommandError

_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=", re.ASCII)
_PYTHON = re.compile(r"(python|pypy)[0-9.]*(w|t|d)?(\.exe)?$")
_SHELLS = ("bash", "sh", "zsh", "dash", "ksh")
_TORCH_RUN_MODULES = ("torch.distributed.run", "torch.distributed.launch")
_SCRIPT_INSTEAD = "put the line into a script and give `bash run.sh`"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Options of torchrun and `accelerate launch` that take no value; every other one without `=` takes one.
_TORCHRUN_SWITCHES = _words("standalone module no-python run-path use-env virtual-local-rank")
_ACCELERATE_SWITCHES = _words(
    "quiet cpu multi-gpu tpu use-mps-device use-deepspeed use-fsdp use-parallelism-config use-megatron-lm "
    "use-xpu module no-python tpu-cluster no-tpu-cluster tpu-use-cluster tpu-use-sudo debug "
    "enable-cpu-affinity same-network"
)
# Options of `uv run` that take a value; every other one takes none.
_UV_VALUES = _words(
    "-p -w -i -f -P -C --with --with-editable --with-requirements --extra --no-extra --group --no-group "
    "--only-group --python --project --directory --env-file --package --index --default-index --index-url "
    "--extra-index-url --find-links --config-file --cache-dir --config-setting --config-settings-package "
    "--upgrade-package --upgrade-group --reinstall-package --refresh-package --no-build-package "
    "--no-binary-package --no-build-isolation-package --index-strategy --keyring-provider --resolution "
    "--prerelease --fork-strategy --exclude-newer --exclude-newer-package --link-mode --color "
    "--allow-insecure-host --python-platform --no-editable-package --no-sources-package"
)


@dataclass(slots=True)
class _Target:
    """What is known so far about the program that trains."""

    start: int
    """Index of the first word that is not understood yet."""
    directory: Path
    entrypoint: Path | None = None
    module: str | None = None
    interpreter: str = ""
    args_start: int = 0
    done: bool = False


_Step = Callable[[tuple[str, ...], _Target], None]
"""Understands one program and its options."""


def parse_command(text: str, workdir: Path) -> TrainingCommand:
    """Take a command line apart; `workdir` is where its relative paths start.

    Raises CommandError for what is no single command: nothing, unbalanced quotes, shell syntax.
    """
    if "\0" in text:
        raise CommandError("--train-cmd holds a NUL character; remove it")
    joined = _join_continued_lines(text).lstrip()
    joined = joined if joined.rstrip().endswith("\\") else joined.rstrip()
    if not joined:
        raise CommandError(
            "--train-cmd is empty; give the command that trains, for example `python train.py`"
        )
    words = _split(joined)
    _refuse_shell_syntax(joined)
    assignments, argv = _take_assignments(words)
    if not argv:
        raise CommandError(
            f"--train-cmd only sets variables ({' '.join(words)}); add the command that trains"
        )
    if not argv[0]:
        raise CommandError(
            "--train-cmd begins with an empty word where its program should be; remove the quotes"
        )
    target = _Target(start=0, directory=workdir)
    while not target.done:
        _advance(argv, target)
    return TrainingCommand(
        text=text,
        env_assignments=assignments,
        argv=argv,
        program=argv[0],
        entrypoint=target.entrypoint,
        module=target.module,
        script_args=argv[target.args_start :],
        interpreter=target.interpreter,
        findings=_notes(joined),
    )


def join_command(command: TrainingCommand) -> str:
    """A command line that parses to the same words."""
    assignments = [f"{name}={shlex.quote(value)}" for name, value in command.env_assignments]
    program = shlex.quote(command.argv[0])
    if _ASSIGNMENT.match(command.argv[0]):
        program = f"'{command.argv[0]}'"
    return " ".join([*assignments, program, *map(shlex.quote, command.argv[1:])])


# Text into words


def _join_continued_lines(text: str) -> str:
    """A backslash at the end of a line, outside '...', joins it to the next one."""
    breaks = [index for index, _, quote in _characters(text, escaped=True) if quote != "'"]
    for index in reversed(breaks):
        match = re.compile(r"\r?\n").match(text, index)
        if match:
            text = text[: index - 1] + " " + text[match.end() :]
    return text


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise CommandError(
            f"--train-cmd cannot be split into words: {_quote_problem(text, error)}"
        ) from error


def _quote_problem(text: str, error: ValueError) -> str:
    inside = [index for index, _, quote in _characters(text) if quote]
    ends = [index for index, _, quote in _characters(text) if not quote]
    start = next((index for index in inside if index > max(ends, default=-1)), None)
    if "escaped" in str(error) or start is None:
        return f"{error}, near {text[-30:]!r}; close the quote, or put a character behind the last backslash"
    near = text[start - 1 : start + 24]
    return f"the quote before column {start + 1} is never closed, near {near!r}; close it"


def _characters(text: str, *, escaped: bool = False) -> list[tuple[int, str, str]]:
    """(index, character, quote around it) of what is no quote mark: the escaped characters, or all others."""
    found, quote, skip = [], "", False
    for index, character in enumerate(text):
        if skip:
            skip = False
            if escaped:
                found.append((index, character, quote))
        elif character == "\\" and quote != "'":
            skip = True
        elif character == quote:
            quote = ""
        elif not quote and character in "\"'":
            quote = character
        elif not escaped:
            found.append((index, character, quote))
    return found


def _refuse_shell_syntax(text: str) -> None:
    for index, character, quote in _characters(text):
        if quote == "'":
            continue
        problem = _shell_problem(text, index, character, quoted=bool(quote))
        if problem:
            around = text[max(0, index - 12) : index + 20].strip()
            raise CommandError(
                f"--train-cmd is run without a shell: {problem} at column {index + 1}, near {around!r}"
            )


def _shell_problem(text: str, index: int, character: str, *, quoted: bool) -> str | None:
    following = text[index + 1 : index + 2]
    if character == "`" or (character == "$" and following == "("):
        return f"a command substitution ({character}...); write its result, or {_SCRIPT_INSTEAD}"
    if character == "$" and (following in ("{", "_") or following.isalpha()):
        return f"a variable that no shell expands; write its value, quote it with '...', or {_SCRIPT_INSTEAD}"
    if quoted:
        return None
    if character in "<>":
        return f"a redirection ({character}); drop it (train.log has it all), quote it, or {_SCRIPT_INSTEAD}"
    if character in "|;&":
        return f"a pipe or a list of commands ({character}); quote it in an argument, or {_SCRIPT_INSTEAD}"
    if character in "\r\n":
        return f"a line break; end the line with a backslash if the command goes on, or {_SCRIPT_INSTEAD}"
    return None


def _take_assignments(words: list[str]) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """Leading NAME=VALUE words, with or without `env` before them; an `env` with options stays a launcher."""
    assignments: list[tuple[str, str]] = []
    index = 0
    while index < len(words):
        word = words[index]
        if _ASSIGNMENT.match(word):
            name, _, value = word.partition("=")
            assignments.append((name, value))
        elif not (word == "env" and words[index + 1 : index + 2] and not words[index + 1].startswith("-")):
            break
        index += 1
    return tuple(assignments), tuple(words[index:])


def _notes(text: str) -> tuple[Finding, ...]:
    match = re.search(r"(?:^|[\s=])(~[\w/.-]*)", text)
    if match is None:
        return ()
    message = f"{match.group(1)} reaches the trainer as it stands, as no shell expands it: write the path out"
    return (Finding(code="not-expanded", message=message, refuses=False),)


# Words into launcher, entrypoint and arguments


def _advance(argv: tuple[str, ...], target: _Target) -> None:
    """Understand one program and its options; a launcher leaves `start` at the program that it starts."""
    if target.start >= len(argv):
        target.args_start, target.done = len(argv), True
        return
    name = Path(argv[target.start]).name
    step = _PROGRAMS.get(name)
    if step is None and _PYTHON.match(name):
        step = _python
    (step or _program)(argv, target)


def _program(argv: tuple[str, ...], target: _Target) -> None:
    """A script that is run directly, or a console script."""
    word = argv[target.start]
    target.done, target.args_start = True, target.start + 1
    if word.endswith((".py", ".sh")) or ("/" in word and _has_shebang(target.directory / word, b"python")):
        target.entrypoint = target.directory / word


def _python(argv: tuple[str, ...], target: _Target) -> None:
    target.interpreter = argv[target.start]
    index = target.start + 1
    while index < len(argv) and argv[index].startswith("-") and argv[index] != "-":
        word = argv[index]
        if word == "--":
            index += 1
            break
        cluster = (
            re.match(r"-[bBdEhiIOPqRsSuvVx?]*([cmWX])(.*)$", word, re.DOTALL) if word[1] != "-" else None
        )
        if cluster and cluster.group(1) in "cm":
            rest = cluster.group(2)
            value = rest or "".join(argv[index + 1 : index + 2])
            index += 1 if rest else 2
            target.done, target.args_start = True, min(index, len(argv))
            if cluster.group(1) == "m":
                _module(argv, target, value)
            return
        index += 2 if word == "--check-hash-based-pycs" or (cluster and not cluster.group(2)) else 1
    _script(argv, target, index)


def _module(argv: tuple[str, ...], target: _Target, module: str) -> None:
    target.module = module
    launcher = _torchrun if module in _TORCH_RUN_MODULES else None
    if module == "accelerate.commands.launch":
        launcher = _accelerate_options
    if launcher is not None:
        target.module, target.done = None, False
        target.start = target.args_start - 1
        launcher(argv, target)


def _script(argv: tuple[str, ...], target: _Target, index: int) -> None:
    target.done, target.args_start = True, min(index + 1, len(argv))
    if index < len(argv) and argv[index] != "-":
        path = target.directory / argv[index]
        target.entrypoint = path / "__main__.py" if path.is_dir() else path


def _shell(argv: tuple[str, ...], target: _Target) -> None:
    """`bash [options] run.sh`; what `-c` holds is not looked into."""
    index = target.start + 1
    while index < len(argv) and argv[index][:1] in "-+" and argv[index] not in ("-", "--"):
        if "c" in argv[index] and not argv[index].startswith("--"):
            target.done, target.args_start = True, len(argv)
            return
        index += 2 if argv[index] in ("-o", "+o", "-O", "+O", "--rcfile", "--init-file") else 1
    _script(argv, target, index + (argv[index : index + 1] == ("--",)))


def _uv(argv: tuple[str, ...], target: _Target) -> None:
    """`uv [options] run [options] [--] SCRIPT|COMMAND`."""
    index, ran, as_module, as_script = target.start + 1, False, False, False
    while index < len(argv):
        word = argv[index]
        if word == "--":
            index += 1
            break
        if not word.startswith("-") or word == "-":
            if ran or word != "run":
                break
            ran = True
        name, equals, value = word.partition("=")
        as_module |= word in ("-m", "--module")
        as_script |= word in ("-s", "--script", "--gui-script")
        if name in _UV_VALUES and not equals:
            index += 1
            value = "".join(argv[index : index + 1])
        if name == "--directory" and value:
            target.directory = target.directory / value
        index += 1
    if not ran:
        target.done, target.args_start = True, target.start + 1
    elif as_module:
        target.module = "".join(argv[index : index + 1])
        target.done, target.args_start = True, min(index + 1, len(argv))
    elif as_script or argv[index : index + 1] == ("-",) or "".join(argv[index : index + 1]).endswith(".py"):
        _script(argv, target, index)
    else:
        target.start = index


def _torchrun(argv: tuple[str, ...], target: _Target) -> None:
    index, switches = _skip_options(argv, target.start + 1, _TORCHRUN_SWITCHES)
    _launched(argv, target, index, switches)


def _accelerate(argv: tuple[str, ...], target: _Target) -> None:
    if argv[target.start + 1 : target.start + 2] != ("launch",):
        _program(argv, target)
        return
    target.start += 1
    _accelerate_options(argv, target)


def _accelerate_options(argv: tuple[str, ...], target: _Target) -> None:
    index, switches = _skip_options(argv, target.start + 1, _ACCELERATE_SWITCHES)
    _launched(argv, target, index, switches)


def _skip_options(argv: tuple[str, ...], index: int, switches: frozenset[str]) -> tuple[int, set[str]]:
    """Index of the first positional word, and the switches before it. A `.py` file is no option's value."""
    given: set[str] = set()
    while index < len(argv) and argv[index].startswith("-") and argv[index] != "-":
        name = argv[index].lstrip("-").replace("_", "-")
        short = {"m": "module", "q": "quiet"}.get(name, name)
        given.add(short)
        following = "".join(argv[index + 1 : index + 2])
        takes_value = "=" not in name and short not in switches and not following.endswith(".py")
        index += 2 if takes_value else 1
    return min(index, len(argv)), given


def _launched(argv: tuple[str, ...], target: _Target, index: int, switches: set[str]) -> None:
    if "no-python" in switches:
        target.start = index
    elif "module" in switches:
        target.module = "".join(argv[index : index + 1])
        target.done, target.args_start = True, min(index + 1, len(argv))
    else:
        _script(argv, target, index)


def _wrapper(valued: str = "", positional: int = 0, *, assignments: bool = False) -> _Step:
    """A launcher with options (those in `valued` take a value) and positional words before the program."""
    with_value = _words(valued)

    def step(argv: tuple[str, ...], target: _Target) -> None:
        index = target.start + 1
        while index < len(argv) and argv[index].startswith("-"):
            index += 2 if argv[index] in with_value else 1
        while assignments and index < len(argv) and _ASSIGNMENT.match(argv[index]):
            index += 1
        target.start = index + positional

    return step


_PROGRAMS: dict[str, _Step] = {
    **dict.fromkeys(_SHELLS, _shell),
    "uv": _uv,
    "torchrun": _torchrun,
    "accelerate": _accelerate,
    "env": _wrapper("-u --unset -C --chdir", assignments=True),
    "nohup": _wrapper(),
    "time": _wrapper("-o -f --output --format"),
    "nice": _wrapper("-n --adjustment"),
    "stdbuf": _wrapper("-i -o -e --input --output --error"),
    "timeout": _wrapper("-s -k --signal --kill-after", positional=1),
}


def _has_shebang(path: Path, needle: bytes) -> bool:
    try:
        with path.open("rb") as stream:
            first = stream.readline(256)
    except OSError:
        return False
    return first.startswith(b"#!") and needle in first


def with_arguments(command: TrainingCommand, words: tuple[str, ...]) -> TrainingCommand:
    """The command with words appended to its script's arguments."""
    return replace(command, argv=command.argv + words, script_args=command.script_args + words)
