"""What judging yields: checks, gates, reasons, the verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from harness.record.reason_texts import REASONS
from harness.record.reasons import Reason
from harness.record.vocabulary import CheckStatus, Confidence, Decision, GateStatus, Outcome, ReasonKind, TerminalState


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiver:
    """What a policy says about a check that is not passed."""

    reason: str
    until: str
    """Its last day, ISO 8601."""
    to_go: bool
    """Whether the check is no hindrance at all; else it is as an unproven one."""

    @property
    def text(self) -> str:
        """As a person reads it."""
        return f"waived until {self.until}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One comparison. A check that is not passed has a reason code; `why` says what was seen."""

    name: str
    status: CheckStatus
    expected: str
    observed: str
    why: str
    reason: Reason | None = None
    exact_remedy: str = ""
    """What to do in this very case; the reason's own remedy where it is empty."""
    waiver: Waiver | None = None

    @property
    def standing(self) -> CheckStatus:
        """What it counts as: its status, or what a waiver leaves of it."""
        if self.waiver is None:
            return self.status
        return CheckStatus.PASSED if self.waiver.to_go else CheckStatus.UNPROVEN

    @property
    def remedy(self) -> str:
        """What to do about a check that is not passed."""
        return self.exact_remedy or (REASONS[self.reason].remedy if self.reason is not None else "")

    def to_json(self) -> dict[str, Any]:
        """As train-model.json holds it."""
        waived = {"waived": self.waiver.text} if self.waiver else {}
        return {"name": self.name, "status": self.status.value, "expected": self.expected,
                "observed": self.observed, "why": self.why, **waived}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """A workflow step with its checks."""

    name: str
    required: bool
    status: GateStatus
    rationale: str
    checks: tuple[Check, ...]
    started_at: float | None = None
    duration_s: float | None = None

    def check(self, name: str) -> Check | None:
        """The check of this name, None when the gate was blocked before it."""
        return next((check for check in self.checks if check.name == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonGiven:
    """Why a decision is not GO."""

    code: Reason
    kind: ReasonKind
    gate: str
    check: str
    remedy: str

    def to_json(self) -> dict[str, Any]:
        """As train-model.json holds it."""
        return {"code": self.code.value, "kind": self.kind.value, "gate": self.gate, "check": self.check,
                "remedy": self.remedy}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The decision and all that it rests on."""

    decision: Decision
    outcome: Outcome
    confidence: Confidence
    terminal_state: TerminalState | None
    """None while the run goes on, whose watch ended first."""
    stopped_by: str | None
    """"cap", "timeout", "cancelled" or None, when the harness ended the run."""
    gates: tuple[Gate, ...]
    reasons: tuple[ReasonGiven, ...]

    def gate(self, name: str) -> Gate:
        """The gate of this name; KeyError when there is none."""
        for gate in self.gates:
            if gate.name == name:
                return gate
        raise KeyError(name)


def passed(name: str, expected: str, observed: str, why: str = "") -> Check:
    """A check that holds."""
    return Check(name=name, status=CheckStatus.PASSED, expected=expected, observed=observed, why=why)


def failed(name: str, reason: Reason, expected: str, observed: str, why: str) -> Check:
    """A check that shows the run to be wrong."""
    return Check(name=name, status=CheckStatus.FAILED, expected=expected, observed=observed, why=why, reason=reason)


def unproven(name: str, reason: Reason, expected: str, observed: str, why: str) -> Check:
    """A check whose evidence is missing."""
    return Check(name=name, status=CheckStatus.UNPROVEN, expected=expected, observed=observed, why=why,
                 reason=reason)


def not_applicable(name: str, why: str) -> Check:
    """A check that this run has no place for."""
    return Check(name=name, status=CheckStatus.NOT_APPLICABLE, expected="-", observed="-", why=why)
