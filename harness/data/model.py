"""What an inspection yields: a verdict for each row, and what is wrong with the whole."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from harness.record.reasons import Reason


class Verdict(str, Enum):
    """What becomes of a row."""

    OK = "ok"
    WARN = "warn"
    SKIP = "skip"
    FATAL = "fatal"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowVerdict:
    """One row as the trainer will treat it."""

    verdict: Verdict
    code: str = ""
    """What is so about it, in kebab-case; "" for an ok row."""
    reason: str = ""
    own: bool = False
    """Whether the rule is the harness's, so that a trainer that takes the row settles nothing."""

    def to_json(self, index: int) -> dict[str, Any]:
        """{index, verdict, code, reason}."""
        return {"index": index, "verdict": self.verdict.value, "code": self.code, "reason": self.reason}


OK = RowVerdict(verdict=Verdict.OK)


def fatal(code: str, reason: str, *, own: bool = False) -> RowVerdict:
    """The trainer stops at this row, or learns what nobody meant."""
    return RowVerdict(verdict=Verdict.FATAL, code=code, reason=reason, own=own)


def skipped(code: str, reason: str) -> RowVerdict:
    """The trainer leaves the row out without a word."""
    return RowVerdict(verdict=Verdict.SKIP, code=code, reason=reason)


def warned(code: str, reason: str) -> RowVerdict:
    """The trainer uses the row, and it teaches little."""
    return RowVerdict(verdict=Verdict.WARN, code=code, reason=reason, own=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """An error or a warning about the dataset."""

    code: str
    message: str
    rows: tuple[int, ...] = ()
    """The first rows that show it."""
    count: int = 0
    """How many of the inspected rows show it."""
    reason: Reason | None = None
    """Why nothing may be launched; None for a warning."""

    def to_json(self) -> dict[str, Any]:
        """As the command prints it and the journal holds it."""
        return {"code": self.code, "message": self.message, "rows": list(self.rows), "count": self.count,
                "reason": self.reason.value if self.reason else None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Some rows as a person can read them: long texts shortened."""

    keys: tuple[str, ...] = ()
    samples: tuple[Any, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """{keys, samples}."""
        return {"keys": list(self.keys), "samples": list(self.samples)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """A dataset looked at."""

    total: int | None = None
    """Rows of the dataset after the loader; None where it was too large to count."""
    inspected: int = 0
    raw: Sample = field(default_factory=Sample)
    normalized: Sample = field(default_factory=Sample)
    rows: tuple[tuple[int, RowVerdict], ...] = ()
    errors: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    suggested_loader: str | None = None
    files: tuple[str, ...] = ()
    """Arrow files that a dataset from a hub lies in."""
    judged_by: str = "rules"
    """"areno" where the installed AReno itself was asked about every row."""

    @property
    def ok(self) -> bool:
        """Whether training may begin."""
        return not self.errors

    def counts(self) -> dict[str, int]:
        """{verdict: rows}."""
        found = dict.fromkeys((verdict.value for verdict in Verdict), 0)
        for _, row in self.rows:
            found[row.verdict.value] += 1
        return found

    def to_json(self) -> dict[str, Any]:
        """As `inspect-dataset` prints it."""
        return {
            "ok": self.ok, "count": self.total, "inspected": self.inspected, "verdicts": self.counts(),
            "judged_by": self.judged_by,
            "raw": self.raw.to_json(), "normalized": self.normalized.to_json(),
            "rows": [row.to_json(index) for index, row in self.rows],
            "errors": [problem.to_json() for problem in self.errors],
            "warnings": [problem.to_json() for problem in self.warnings],
            "suggested_loader": self.suggested_loader,
        }
