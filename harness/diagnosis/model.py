"""What flows through the diagnosis: rules, what was seen in the logs, and what was made of it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from harness.diagnosis.prefixes import Stamp
from harness.record.vocabulary import FixRisk, PrimaryCause


class Role(str, Enum):
    """What a match of a rule means for the search of the cause."""

    CAUSE = "cause"
    CONSEQUENCE = "consequence"
    """Something else failed before: the cause only where nothing else was seen."""
    CARRIER = "carrier"
    """A link of a chain that only hands on what another link says."""


class Where(str, Enum):
    """What the pattern of a rule is held against."""

    EXCEPTION = "exception"
    """`Type: message`, the message with the lines that belong to it."""
    LINE = "line"
    """Any line with a sign, labels and colours taken off."""
    EXIT = "exit"
    """`exit code N` or `signal NAME` of a process."""
    METRIC = "metric"
    """A reason code of train-model.json."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """One way out."""

    action: str
    risk: FixRisk
    impact: int
    """3: removes the cause; 2: probably; 1: tells more about it."""
    expected_impact: str
    validate: str
    halves: tuple[str, ...] = ()
    """Settings, the first of which that the command gives is halved in the exact command."""
    doubles: str = ""
    """The setting that is doubled with it."""
    approves: bool = False
    """Whether that is another job, so that the exact command says that a person approved it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One situation: how it is recognised, what it is called, what is ruled out by it and what to do."""

    id: str
    cause: PrimaryCause
    where: Where
    pattern: re.Pattern[str]
    confidence: float
    """Of this cause where the pattern matches and nothing contradicts, 0 to 1."""
    says: str
    """One or two sentences on what happened, for root_cause."""
    rules_out: str = ""
    """Which neighbouring explanation does not hold, and why."""
    fixes: tuple[str, ...] = ()
    """Names in FIXES."""
    role: Role = Role.CAUSE
    frames: re.Pattern[str] | None = None
    """Must be found in the traceback's frames or the stage before it, where given."""
    is_infrastructure: bool = False
    """Whether the same job may well succeed when it is launched again with nothing changed."""
    may_pass: bool = False
    """Whether what ended the run can have lain outside the job (memory that others took, a killed worker), so that a
    retry with nothing changed is not pointless, though nothing says that it will succeed."""


def make_rule(id: str, cause: PrimaryCause, where: Where, pattern: str, confidence: float, says: str, fixes: str = "",
              *, rules_out: str = "", role: Role = Role.CAUSE, frames: str | None = None, infra: bool = False,
              may_pass: bool = False) -> Rule:
    """A rule whose fields are as in `Rule`, patterns and names of fixes as text."""
    return Rule(id=id, cause=cause, where=where, pattern=re.compile(pattern), confidence=confidence, says=says,
                fixes=tuple(fixes.split()), rules_out=rules_out, role=role,
                frames=None if frames is None else re.compile(frames), is_infrastructure=infra, may_pass=may_pass)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A line of a log."""

    path: Path
    line: int
    text: str


@dataclass(slots=True, kw_only=True)
class Link:
    """One exception of a chain."""

    kind: str
    message: str
    place: Place
    """Of the line that names the exception."""
    frames: list[Place] = field(default_factory=list)
    """The last frames, outermost first."""
    file: str | None = None
    """Source file and line that the last frame names."""
    source_line: int | None = None
    is_raised_while_handling: bool = False
    """Whether it came up in the handler of the link before it, rather than being raised from it."""

    @property
    def text(self) -> str:
        """`Type: message`."""
        return f"{self.kind}: {self.message}" if self.message else self.kind


class EventKind(str, Enum):
    """How an event was seen."""

    TRACEBACK = "traceback"
    LINE = "line"
    EXIT = "exit"
    METRIC = "metric"


@dataclass(slots=True, kw_only=True)
class Event:
    """Something that went wrong, seen once."""

    kind: EventKind
    place: Place
    offset: int
    order: int
    """Of its beginning among everything that was read."""
    stream: str
    rank: int | None = None
    pid: int | None = None
    stamp: Stamp | None = None
    links: list[Link] = field(default_factory=list)
    text: str = ""
    detail: str = ""
    """What was seen, where the text is a code."""
    stage: str = ""
    is_thread: bool = False
    """An uncaught exception of a thread: what goes on in other threads does not show that it was survived."""
    is_handled: bool = False
    """The program itself ignores it."""
    is_warned: bool = False
    """The line before it is a warning: its announcement, or one that happens to stand there."""
    rule: Rule | None = None
    link: Link | None = None
    """The link that the rule was found in."""
    is_recovered: bool = False
