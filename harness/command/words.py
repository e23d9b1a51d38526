"""The text of a command into words, as a shell would split it, and nothing else of a shell."""

from __future__ import annotations

import re
import shlex

from harness.command.model import Finding
from harness.errors import CommandError

ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=", re.ASCII)
_SCRIPT_INSTEAD = "put the line into a script and give `bash run.sh`"


def join_continued_lines(text: str) -> str:
    """A backslash at the end of a line, outside '...', joins it to the next one."""
    breaks = [index for index, _, quote in _characters(text, escaped=True) if quote != "'"]
    for index in reversed(breaks):
        match = re.compile(r"\r?\n").match(text, index)
        if match:
            text = text[: index - 1] + " " + text[match.end() :]
    return text


def split(text: str) -> list[str]:
    """Words of a line; raises CommandError that names the open quote."""
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


def refuse_shell_syntax(text: str) -> None:
    """Raise CommandError for what only a shell could do, with what to write instead."""
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


def take_assignments(words: list[str]) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """Leading NAME=VALUE words, with or without `env` before them; an `env` with options stays a launcher."""
    assignments: list[tuple[str, str]] = []
    index = 0
    while index < len(words):
        word = words[index]
        if ASSIGNMENT.match(word):
            name, _, value = word.partition("=")
            assignments.append((name, value))
        elif not (word == "env" and words[index + 1 : index + 2] and not words[index + 1].startswith("-")):
            break
        index += 1
    return tuple(assignments), tuple(words[index:])


def notes(text: str) -> tuple[Finding, ...]:
    """What a shell would have expanded without being asked."""
    match = re.search(r"(?:^|[\s=])(~[\w/.-]*)", text)
    if match is None:
        return ()
    message = f"{match.group(1)} reaches the trainer as it stands, as no shell expands it: write the path out"
    return (Finding(code="not-expanded", message=message, refuses=False),)
