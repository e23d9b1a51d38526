"""TrainingCommand: the user's command taken apart, every part kept byte for byte."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something about the command that a user must or should know."""

    code: str
    """A reason code of record.vocabulary when it refuses the launch, else a descriptive kebab-case word."""
    message: str
    """Names the input, the place and the remedy."""
    refuses: bool
    """Whether nothing may be launched."""
    remedy: str = ""
    """What to give instead, word for word, where that can be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """One program of the command: `argv[start:stop]` is its name with its own options."""

    name: str
    """Without its directory; `python` for every Python."""
    start: int
    stop: int
    """For the last one this is where the script's arguments start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingCommand:
    """`env_assignments + launcher + entrypoint part + script_args` is the command as given."""

    text: str
    """What the user typed."""
    env_assignments: tuple[tuple[str, str], ...]
    """Leading NAME=VALUE words."""
    argv: tuple[str, ...]
    """Everything after the assignments."""
    program: str
    """argv[0]."""
    entrypoint: Path | None
    """The script file that trains, absolute; None for a console script or module."""
    module: str | None
    """The module of `python -m MODULE`."""
    script_args: tuple[str, ...]
    """The arguments that the training program itself reads."""
    interpreter: str = ""
    """The Python that the command names, as it stands there (`python3`, `/x/bin/python`); "" for none."""
    launchers: tuple[Launcher, ...] = ()
    """Every program of the command in its order, the one that trains last."""
    directory: Path | None = None
    """Where the trainer starts: the working directory, unless a launcher changes it."""
    shell_text: int | None = None
    """Index in argv of the text that `sh -c` runs."""
    findings: tuple[Finding, ...] = ()

    @property
    def launcher_part(self) -> tuple[str, ...]:
        """Everything before the script's own arguments."""
        return self.argv[: len(self.argv) - len(self.script_args)]

    def launched_by(self, *names: str) -> str | None:
        """The first of its programs that has one of these names."""
        return next((item.name for item in self.launchers if item.name in names), None)

    @property
    def refused(self) -> bool:
        """Whether a finding forbids the launch."""
        return any(finding.refuses for finding in self.findings)

    def flag(self, *names: str) -> str | None:
        """Value of the last `--name value` or `--name=value` among script_args.

        `names` come with their dashes; `-` and `_` in a long name are the same. A flag without a value is "".
        """
        wanted = {_flag_key(name) for name in names}
        found: str | None = None
        for index, word in enumerate(self.script_args):
            name, equals, value = word.partition("=")
            if not name.startswith("-") or _flag_key(name) not in wanted:
                continue
            if equals:
                found = value
            else:
                following = self.script_args[index + 1 : index + 2]
                found = following[0] if following and not _looks_like_flag(following[0]) else ""
        return found


def _flag_key(name: str) -> str:
    return name.replace("_", "-") if name.startswith("--") else name


def _looks_like_flag(word: str) -> bool:
    """`-1e-4` is a value, `-x` and `--x` are flags."""
    return word.startswith("-") and not word[1:2].isdigit() and word[1:2] != "."
