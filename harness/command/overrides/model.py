"""What is asked, what a program accepts, and where an override went: plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.command.model import Finding, TrainingCommand
from harness.errors import ConfigError

SWITCH, OFF_SWITCH, ON_OFF = "switch", "off-switch", "on-off"
TEXT_BOOL, OPTIONAL_BOOL = "text-bool", "optional-bool"
LIST, APPEND, VALUE = "list", "append", "value"
KINDS = (VALUE, LIST, APPEND, SWITCH, OFF_SWITCH, ON_OFF, TEXT_BOOL, OPTIONAL_BOOL)


@dataclass(frozen=True, slots=True, kw_only=True)
class OverrideRequest:
    """One `--hp KEY=VALUE`."""

    key: str
    value: str
    """As typed."""
    flag: str | None = None
    """What --hp-flag says that KEY is."""
    optional: bool = False
    """A cap: not placed where the program has no such setting, and nothing is refused for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One option of a program."""

    names: tuple[str, ...]
    """Every spelling, dashes included; the first is the one to write."""
    kind: str = VALUE
    """value `--x V`; list `--x A B`; append (repeated, collects); switch `--x` makes it true; off-switch `--x`
    makes it false; on-off `--x/--no-x`; text-bool `--x TEXT`, where any text but "" is true; optional-bool
    `--x [BOOL]`."""
    type: str = ""
    """"int", "float", "bool", "str", or "" where it is not known."""
    choices: tuple[str, ...] = ()
    dest: str = ""
    """The name that the program's code has for it, where it is another than the flag's."""
    off_name: str = ""
    """The spelling that switches an on-off flag off, where it is not `--no-NAME`."""
    subcommand: tuple[str, ...] = ()
    """The command words that this option follows."""
    default: str | None = None
    place: str = ""
    """Where this was read, for example `train.py:12`."""
    setting: str = ""
    """semantic, capacity or observability; "" where the name decides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagTable:
    """The options of one program. An adapter hands in what it knows; the rest is read from the program."""

    flags: tuple[Flag, ...] = ()
    source: str = ""
    """What knows this, for example `transformers.TrainingArguments`."""
    complete: bool = False
    """Whether the program has no other option."""
    help_argv: tuple[str, ...] = ()
    """Words that make the program print its options (`areno train --help`); run only where one is missing."""
    pairs: bool = False
    """Whether the program reads KEY=VALUE words without dashes over its config file (llamafactory-cli)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """One override as it was placed."""

    key: str
    value: str
    how: str
    """For the terminal: `injected as --learning_rate 1e-4`."""
    kind: str
    """semantic, capacity or observability."""
    place: str
    """The flag, `key=` word or `FILE:nested.key` that holds it now."""

    def line(self) -> str:
        """As the log shows it."""
        return f"HP override: {self.key}={self.value} ({self.how})"

    def to_json(self) -> dict[str, Any]:
        """{key, value, how, kind, place}."""
        return {"key": self.key, "value": self.value, "how": self.how, "kind": self.kind, "place": self.place}


@dataclass(frozen=True, slots=True, kw_only=True)
class OverrideResult:
    """The command to launch, and what was done to it."""

    command: TrainingCommand
    applied: tuple[Override, ...] = ()
    findings: tuple[Finding, ...] = ()
    """A refusing one for each request that could not be placed."""
    unplaced: tuple[str, ...] = ()
    """Keys of optional requests for which the program has no setting."""
    files: dict[Path, str] = field(default_factory=dict)
    """Rewritten config files: path in the out-dir -> text."""
    written: Path | None = None
    """The first of `files`, once it was written."""


def parse_requests(hp: Sequence[str], hp_flags: Sequence[str] = ()) -> tuple[OverrideRequest, ...]:
    """`--hp` and `--hp-flag` values as requests, in their order; of a repeated key the last value.

    Raises ConfigError that names the value and its remedy.
    """
    flags: dict[str, str] = {}
    for text in hp_flags:
        key, equals, flag = text.partition("=")
        if not equals or not key.strip() or not flag.startswith("-") or not flag.strip("-"):
            raise ConfigError(f"--hp-flag {text}: give KEY=--flag, for example lr=--learning-rate")
        flags[key.strip()] = flag
    requests: dict[str, OverrideRequest] = {}
    for text in hp:
        key, equals, value = text.partition("=")
        key = key.strip()
        if not equals or not key:
            raise ConfigError(f"--hp {text}: give KEY=VALUE, for example lr=1e-4")
        if key.startswith("-") or any(character.isspace() or character == "\0" for character in key):
            bare = key.lstrip("-").split()[:1]
            raise ConfigError(f"--hp {text}: give the bare name, for example {''.join(bare) or 'lr'}={value}")
        if "\0" in value:
            raise ConfigError(f"--hp {key}: its value holds a NUL character; remove it")
        requests.pop(key, None)
        requests[key] = OverrideRequest(key=key, value=value, flag=flags.get(key))
    unused = [key for key in flags if key not in requests]
    if unused:
        key = unused[0]
        raise ConfigError(f"--hp-flag {key}={flags[key]}: there is no --hp {key}=VALUE; give one")
    return tuple(requests.values())
