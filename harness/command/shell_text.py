"""The commands of a shell script as far as they can be read without running it, each word with its place.

No shell grammar: words, quotes, comments, operators, redirections and here-documents are told apart, which is
enough to see what a script starts and with which arguments, and to change one word of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from harness.command.model import TrainingCommand
from harness.command.parse import from_words

MAX_SCRIPT_BYTES = 1 << 20
_LEADING = frozenset(
    ("if", "then", "else", "elif", "do", "while", "until", "!", "{", "exec", "time", "command", "builtin")
)
_OPERATOR = re.compile(r"&&|\|\||;;|\|&|[;|&()\n]")
_REDIRECTION = re.compile(r"(\d*|\{\w+\})(<<-?|<<<|>>|>\||<>|>&|<&|&>>|&>|<|>)")
_QUOTED = re.compile(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"|\\.|[^\s'\"\\;|&()<>]+", re.DOTALL)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=", re.ASCII)
FORWARDED = ("$@", "$*", "${@}", "${*}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """One word of a script: `text[start:stop]` is how it is written there."""

    value: str
    """Without its quotes; nothing is expanded."""
    start: int
    stop: int
    fixed: bool
    """Whether no shell would change it: no variable or substitution outside '...'."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One simple command of a script."""

    words: tuple[Word, ...]
    number: int
    """Its line, from 1."""

    @property
    def argv(self) -> tuple[str, ...]:
        """Values of its words."""
        return tuple(word.value for word in self.words)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellJob:
    """What a shell command trains with: one line of its text."""

    path: Path | None
    """The script; None for `sh -c`."""
    text: str
    line: Line
    command: TrainingCommand
    """The line taken apart."""
    forwards: bool
    """Whether the line hands the shell's own arguments on."""


def simple_commands(text: str) -> list[Line]:
    """Every simple command, without leading keywords and assignments. Never raises."""
    lines: list[Line] = []
    words: list[Word] = []
    here: list[str] = []
    index, started = 0, 0
    while index < len(text):
        character = text[index]
        if character in " \t\r" or text.startswith("\\\n", index):
            index += 1 if character != "\\" else 2
        elif character == "#" and (index == 0 or text[index - 1] in " \t\n;&|("):
            index = _line_end(text, index)
        elif match := _REDIRECTION.match(text, index):
            index = _skip_redirection(text, match, here)
        elif match := _OPERATOR.match(text, index):
            _flush(lines, words, text, started)
            index = match.end()
            if match.group() == "\n":
                index = _skip_here_documents(text, index, here)
        else:
            started = index if not words else started
            word = _word(text, index)
            words.append(word)
            index = word.stop
    _flush(lines, words, text, started)
    return lines


def _line_end(text: str, index: int) -> int:
    end = text.find("\n", index)
    return len(text) if end < 0 else end


def _word(text: str, start: int) -> Word:
    value, index, fixed = "", start, True
    while index < len(text) and not text.startswith("\\\n", index):
        match = _QUOTED.match(text, index)
        if match is None:
            # An unclosed quote: the rest is one word.
            if text[index] in "'\"":
                return Word(value=value + text[index:], start=start, stop=len(text), fixed=False)
            break
        part = match.group()
        if part[0] == "'":
            value += part[1:-1]
        elif part[0] == '"':
            value += re.sub(r"\\([\"\\$`\n])", r"\1", part[1:-1])
            fixed = fixed and not re.search(r"(?<!\\)[$`]", part)
        elif part[0] == "\\":
            value += part[1:]
        else:
            value += part
            fixed = fixed and not re.search(r"[$`*?~]", part)
        index = match.end()
    return Word(value=value, start=start, stop=max(index, start + 1), fixed=fixed)


def _skip_redirection(text: str, match: re.Match[str], here: list[str]) -> int:
    index = match.end()
    while index < len(text) and text[index] in " \t":
        index += 1
    target = re.compile(r"&?\d+-?|&?-").match(text, index)
    if target and match.group(2) in (">&", "<&"):
        return target.end()
    if index < len(text) and text[index] != "\n":
        word = _word(text, index)
        if match.group(2) in ("<<", "<<-"):
            here.append(word.value)
        return word.stop
    return index


def _skip_here_documents(text: str, index: int, here: list[str]) -> int:
    for end in here:
        while index < len(text):
            stop = _line_end(text, index)
            line, index = text[index:stop], stop + 1
            if line.strip("\t") == end:
                break
    here.clear()
    return min(index, len(text))


def _flush(lines: list[Line], words: list[Word], text: str, started: int) -> None:
    kept = list(words)
    words.clear()
    while kept and (kept[0].value in _LEADING or _ASSIGNMENT.match(kept[0].value)):
        kept.pop(0)
    if kept:
        lines.append(Line(words=tuple(kept), number=text.count("\n", 0, started) + 1))


def shell_job(command: TrainingCommand) -> ShellJob | None:
    """The one line of `bash run.sh` or `sh -c TEXT` that trains; None where it is not exactly one.

    A line counts when it starts a Python program or a known launcher; the only line of a script counts too.
    """
    text, path = _text_of(command)
    if text is None:
        return None
    directory = command.directory or Path()
    candidates = []
    lines = simple_commands(text)
    for line in lines:
        inner = from_words(line.argv, directory)
        if inner.entrypoint or inner.module or len(inner.launchers) > 1 or len(lines) == 1:
            candidates.append((line, inner))
    if len(candidates) != 1:
        return None
    line, inner = candidates[0]
    forwards = any(word.value in FORWARDED for word in line.words)
    return ShellJob(path=path, text=text, line=line, command=inner, forwards=forwards)


def _text_of(command: TrainingCommand) -> tuple[str | None, Path | None]:
    if command.shell_text is not None:
        return command.argv[command.shell_text], None
    path = command.entrypoint
    if path is None or not runs_shell_script(command):
        return None, None
    try:
        with path.open("rb") as stream:
            return stream.read(MAX_SCRIPT_BYTES).decode("utf-8", "replace"), path
    except OSError:
        return None, None


def runs_shell_script(command: TrainingCommand) -> bool:
    """Whether the program that trains is started by a shell script."""
    if command.entrypoint is None or command.interpreter:
        return False
    shells = ("bash", "sh", "zsh", "dash", "ksh")
    if command.launchers and command.launchers[-1].name in shells:
        return True
    return command.entrypoint.suffix == ".sh"


def inner_command(command: TrainingCommand) -> TrainingCommand:
    """The command that a shell script or text starts, with the arguments that it forwards; else the command itself."""
    job = shell_job(command)
    if job is None:
        return command
    if not job.forwards:
        return job.command
    given = command.script_args
    words = [part for word in job.line.argv for part in (given if word in FORWARDED else (word,))]
    return from_words(tuple(words), command.directory or Path())
