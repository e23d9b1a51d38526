"""A policy file: thresholds, required gates, and waivers with a reason and an end. references/policy.md says how.

A waiver never makes a run GO whose numbers are not finite or that made no update, and never hides a check.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

from harness.errors import ConfigError
from harness.judge.bands_file import read_toml, refuse_unknown
from harness.judge.model import Check, Verdict, Waiver
from harness.judge.thresholds import THRESHOLDS
from harness.record.reasons import Reason
from harness.record.run_record import RunRecord
from harness.record.vocabulary import CheckStatus, Decision

NEVER_WAIVED = frozenset({
    Reason.LOSS_NOT_FINITE, Reason.GRAD_NORM_NOT_FINITE, Reason.WEIGHTS_NOT_FINITE, Reason.FORWARD_NOT_FINITE,
    Reason.EXPECT_NOT_FINITE, Reason.NO_UPDATE_EXECUTED, Reason.NO_EFFECTIVE_UPDATE, Reason.NO_REAL_RUN,
    Reason.RUN_UNFINISHED, Reason.RUN_GOES_ON, Reason.WAIVER_EXPIRED,
})
"""Reasons that no policy lets pass: a run with one of them is no training."""
CONDITIONAL_AT_MOST = frozenset({Reason.FINITENESS_UNPROVEN, Reason.UNRESOLVED_ANOMALY, Reason.UPDATES_UNPROVEN})
"""Unproven ones behind which such a reason may stand."""
KEYS = ("require", "thresholds", "waiver")
WAIVER_KEYS = ("code", "check", "reason", "until", "decision")
DECISIONS = (Decision.CONDITIONAL.value, Decision.GO.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What a file says, and its SHA-256."""

    digest: str
    thresholds: tuple[tuple[str, float], ...]
    required: tuple[str, ...]
    waivers: tuple[Mapping[str, Any], ...]
    """{code, check, reason, until, decision}, dates as ISO text."""


def read_policy(path: Path, gates: Mapping[str, Iterable[str]]) -> Policy:
    """The policy of a TOML file. `gates`: {gate: its checks}. ConfigError for anything that is not meant."""
    where = f"--policy {path}"
    document = read_toml(path, "--policy")
    refuse_unknown(document, KEYS, where)
    required = document.get("require") or []
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        raise ConfigError(f"{where}: require is no list of gates")
    refuse_unknown(required, tuple(gates), f"{where}: require")
    return Policy(
        digest=hashlib.sha256(path.read_bytes()).hexdigest(), required=tuple(dict.fromkeys(required)),
        thresholds=_thresholds(document.get("thresholds") or {}, where),
        waivers=_waivers(document.get("waiver") or [], gates, where))


def _thresholds(given: Any, where: str) -> tuple[tuple[str, float], ...]:
    if not isinstance(given, Mapping):
        raise ConfigError(f"{where}: [thresholds] is no table")
    refuse_unknown(given, tuple(THRESHOLDS), f"{where}: thresholds")
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
            raise ConfigError(f"{where}: thresholds.{name} = {value!r}: give a number from 0 up")
    return tuple((str(name), float(value)) for name, value in given.items())


def _waivers(given: Any, gates: Mapping[str, Iterable[str]], where: str) -> tuple[Mapping[str, Any], ...]:
    if not isinstance(given, list) or not all(isinstance(row, Mapping) for row in given):
        raise ConfigError(f"{where}: a waiver is a table [[waiver]]")
    return tuple(_waiver(row, gates, f"{where}: waiver {number}") for number, row in enumerate(given, start=1))


def _waiver(row: Mapping[str, Any], gates: Mapping[str, Iterable[str]], where: str) -> Mapping[str, Any]:
    refuse_unknown(row, WAIVER_KEYS, where)
    code, check = row.get("code"), row.get("check")
    if (code is None) == (check is None):
        raise ConfigError(f'{where}: give either code = "REASON-CODE" or check = "GATE.CHECK"')
    if code is not None:
        refuse_unknown([str(code)], [reason.value for reason in Reason], f"{where}: code")
        if Reason(str(code)) in NEVER_WAIVED:
            raise ConfigError(f"{where}: {code} is never waived: a run with it is no training")
    else:
        names = [f"{gate}.{name}" for gate, checks in gates.items() for name in checks]
        refuse_unknown([str(check)], names, f"{where}: check")
    reason = row.get("reason")
    if not isinstance(reason, str) or not reason.strip():
        raise ConfigError(f'{where}: reason = "..." is missing: say why it may pass')
    decision = row.get("decision", DECISIONS[0])
    if decision not in DECISIONS:
        raise ConfigError(f"{where}: decision = {decision!r}: give {' or '.join(DECISIONS)}")
    return {"code": code, "check": check, "reason": reason.strip(), "until": _until(row.get("until"), where),
            "decision": decision}


def _until(value: Any, where: str) -> str:
    if isinstance(value, str):
        try:
            value = date.fromisoformat(value)
        except ValueError:
            value = None
    if isinstance(value, datetime):
        value = value.date()
    if not isinstance(value, date):
        raise ConfigError(f"{where}: until = YYYY-MM-DD is missing: a waiver has an end")
    return str(value.isoformat())


def expired(waivers: Iterable[Mapping[str, Any]], moment: float) -> list[Mapping[str, Any]]:
    """Those whose last day, in UTC, was before this moment (seconds since the epoch)."""
    today = datetime.fromtimestamp(moment, tz=timezone.utc).date().isoformat()
    return [waiver for waiver in waivers if str(waiver["until"]) < today]


def with_waiver(check: Check, gate: str, waivers: Iterable[Mapping[str, Any]]) -> Waiver | None:
    """The waiver that a check which is not passed has; None for one that no policy lets pass."""
    if check.reason is None or check.reason in NEVER_WAIVED or check.status not in (
        CheckStatus.FAILED, CheckStatus.UNPROVEN
    ):
        return None
    for waiver in waivers:
        if waiver["code"] == check.reason.value or waiver["check"] == f"{gate}.{check.name}":
            to_go = (waiver["decision"] == Decision.GO.value and check.status is CheckStatus.UNPROVEN
                     and check.reason not in CONDITIONAL_AT_MOST)
            return Waiver(reason=str(waiver["reason"]), until=str(waiver["until"]), to_go=to_go)
    return None


def policy_evidence(record: RunRecord, verdict: Verdict) -> dict[str, Any]:
    """evidence.policy: the file's digest, and each waiver with the checks that it was applied to."""
    waived = [(gate.name, check) for gate in verdict.gates for check in gate.checks if check.waiver]
    over = expired(record.spec.waivers, record.entries[0]["time"] if record.entries else 0.0)
    return {"digest": record.spec.policy_digest, "waivers": [
        {**waiver, "expired": waiver in over, "applied": [
            f"{gate}.{check.name}" for gate, check in waived
            if waiver["code"] == (check.reason and check.reason.value) or waiver["check"] == f"{gate}.{check.name}"]}
        for waiver in record.spec.waivers]}


def told(waiver: Mapping[str, Any]) -> str:
    """A waiver as a person reads it."""
    return f"{waiver['code'] or waiver['check']} until {waiver['until']} ({waiver['reason']})"
