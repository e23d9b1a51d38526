"""What an acceptance test asserts: one check of one gate."""

from __future__ import annotations

from pathlib import Path

from harness.errors import CheckFailure
from harness.judge.model import Check, Gate, Verdict
from harness.record.vocabulary import CheckStatus, Decision


def require_check(gate: Gate, name: str, *, out_dir: Path, accept_conditional: bool) -> Check:
    """The check, when it lets the run pass. CheckFailure says what, where the evidence is, and what to do."""
    __tracebackhide__ = True
    check = gate.check(name) or gate.check("required")
    if check is None:
        raise CheckFailure(f"{gate.name}.{name}: this gate has no such check ({gate.rationale})")
    unproven_accepted = check.standing is CheckStatus.UNPROVEN and accept_conditional
    if check.standing is CheckStatus.FAILED or (check.standing is CheckStatus.UNPROVEN and not unproven_accepted):
        raise CheckFailure(_message(gate, check, out_dir))
    return check


def require_decision(verdict: Verdict, *, out_dir: Path, accept_conditional: bool) -> None:
    """CheckFailure unless the decision is GO, or CONDITIONAL where that was accepted."""
    __tracebackhide__ = True
    accepted = {Decision.GO, Decision.CONDITIONAL} if accept_conditional else {Decision.GO}
    if verdict.decision not in accepted:
        codes = ", ".join(dict.fromkeys(reason.code.value for reason in verdict.reasons)) or "no gate passed"
        raise CheckFailure(f"{verdict.decision.value}: {codes}; evidence: {out_dir / 'train-model.json'}")


def _message(gate: Gate, check: Check, out_dir: Path) -> str:
    assert check.reason is not None
    return (
        f"{gate.name}.{check.name} {check.status.value}: {check.reason.value}\n"
        f"  expected: {check.expected}\n  observed: {check.observed}\n  why:      {check.why}\n"
        f"  evidence: {out_dir / 'train-model.json'}\n  remedy:   {check.remedy}"
    )
