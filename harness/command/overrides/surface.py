"""The words that an override may change: the script's own arguments, or those that a shell hands on to it."""

from __future__ import annotations

import difflib
import shlex
from dataclasses import dataclass, replace

from harness.command.model import Finding, TrainingCommand
from harness.command.overrides.arguments import Words, options_end
from harness.command.overrides.document import EditError
from harness.command.parse import with_script_args
from harness.command.shell_text import FORWARDED, ShellJob, runs_shell_script, shell_job


@dataclass(frozen=True, slots=True, kw_only=True)
class Surface:
    """Where arguments of the program that trains can be changed."""

    command: TrainingCommand
    """The command of that program: the one inside a shell script, where there is one."""
    words: Words
    """Its arguments as far as they can be changed."""
    before: Words = ()
    """Arguments that a script gives before those that it was given itself."""
    overruled_by: Words = ()
    """Arguments that a script gives after those that it was given itself."""
    place: str = ""
    """Where such a script's line stands: `run.sh:3`."""
    refusal: str = ""
    """Why no argument reaches the program."""
    job: ShellJob | None = None
    """The text of `sh -c` that is changed itself."""


def surface_of(command: TrainingCommand) -> Surface:
    """What can be changed in a command; launchers and shell scripts themselves never are."""
    if any(finding.code == "several-programs" for finding in command.findings):
        return Surface(command=command, words=(), refusal="mpirun starts several programs; change the command")
    if command.shell_text is None and not runs_shell_script(command):
        return Surface(command=command, words=command.script_args)
    job = shell_job(command)
    if job is None:
        return Surface(command=command, words=command.script_args, refusal=_untold(command))
    name = job.path.name if job.path else "the text of -c"
    place = f"{name}:{job.line.number}"
    if job.forwards:
        inner = [word.value for word in job.line.words]
        at = next(index for index, word in enumerate(inner) if word in FORWARDED)
        return Surface(
            command=job.command,
            words=command.script_args,
            before=tuple(inner[len(job.command.launcher_part) : at]),
            overruled_by=tuple(inner[at + 1 :]),
            place=place,
        )
    if job.path is None:
        return Surface(command=job.command, words=job.command.script_args, place=place, job=job)
    told = f"{place} does not forward its arguments"
    shown = " ".join(job.line.argv[:4])
    return Surface(
        command=job.command,
        words=command.script_args,
        place=place,
        refusal=f'{told}, so nothing given to it reaches `{shown} ...`; add "$@" there, or give that command',
    )


def _untold(command: TrainingCommand) -> str:
    name = command.entrypoint.name if command.entrypoint else "the text of -c"
    return f"which line of {name} trains cannot be told; give that command itself, without the shell"


def with_words(command: TrainingCommand, surface: Surface, words: Words) -> TrainingCommand:
    """The command with the surface's words replaced. Raises EditError where a shell would change one of them."""
    if words == surface.words:
        return command
    if surface.job is None:
        return with_script_args(command, words)
    assert command.shell_text is not None
    text = _spliced(surface.job, surface.words, words)
    argv = (*command.argv[: command.shell_text], text, *command.argv[command.shell_text + 1 :])
    return replace(command, argv=argv)


def _spliced(job: ShellJob, before: Words, after: Words) -> str:
    text, written = job.text, job.line.words[len(job.line.words) - len(before) :]
    lead = job.line.words[len(job.line.words) - len(before) - 1]
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for tag, i1, i2, j1, j2 in reversed(matcher.get_opcodes()):
        if tag == "equal":
            continue
        if not all(word.fixed for word in written[i1:i2]):
            raise EditError("is a word that the shell changes; write it in the text of -c")
        new = shlex.join(after[j1:j2])
        previous = written[i1 - 1].stop if i1 else lead.stop
        if tag == "replace":
            start, stop = written[i1].start, written[i2 - 1].stop
        elif tag == "insert":
            start, stop, new = previous, previous, f" {new}"
        else:
            start, stop = previous, written[i2 - 1].stop
        text = text[:start] + new + text[stop:]
    return text


def add_arguments(command: TrainingCommand, words: Words) -> tuple[TrainingCommand, Finding | None]:
    """The command with words added where the program that trains reads them; a finding where they cannot reach it."""
    if not words:
        return command, None
    surface = surface_of(command)
    problem = surface.refusal
    if not problem:
        end = options_end(surface.words)
        try:
            return with_words(command, surface, (*surface.words[:end], *words, *surface.words[end:])), None
        except EditError as error:
            problem = f"a word {error}"
    message = f"`{shlex.join(words)}` is not added: {problem}"
    return command, Finding(code="not-added", message=message, refuses=False)
