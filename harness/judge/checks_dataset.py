"""Checks of dataset_contract: can the dataset be read, do its rows meet the contract, is anything left to train on."""

from __future__ import annotations

from typing import Any

from harness.judge.model import Check, failed, not_applicable, passed, unproven
from harness.judge.observe import Observation
from harness.record.reasons import Reason

READING = (Reason.DATASET_UNREADABLE, Reason.DATASET_LOADER_FAILED, Reason.HUB_UNREACHABLE, Reason.HUB_ASSET_MISSING)
ROWS = (Reason.DATASET_LOADER_REQUIRED, Reason.DATASET_CONTRACT_BROKEN)
KEPT = (Reason.DATASET_ALL_DROPPED,)


def no_dataset(seen: Observation) -> str:
    """Why a run has no need of the gate: nothing is known of a dataset, or nothing was launched on one."""
    entry = seen.record.last("dataset")
    if entry is not None:
        return "" if entry.get("needed") else str(entry.get("why"))
    if seen.facts is not None and seen.facts.needs_dataset and seen.record.last("attempt-started") is not None:
        return ""
    if any(item.get("refuses") for item in seen.record.fact("command", "findings", []) or []):
        return "the command was refused before its dataset was looked at"
    return "no dataset was named that could be looked at before the launch"


def check_readable(seen: Observation) -> Check:
    """The dataset was there and was read, by the loader that the job uses."""
    return _check(seen, "readable", READING, "a dataset that can be read", seen.record.fact("dataset", "source"))


def check_rows(seen: Observation) -> Check:
    """No row that was looked at breaks the algorithm's contract."""
    verdicts = seen.record.fact("dataset", "verdicts") or {}
    told = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items() if count)
    return _check(seen, "rows", ROWS, "rows that meet the algorithm's contract", told)


def check_kept(seen: Observation) -> Check:
    """At least one row that was looked at is trained on."""
    entry = seen.record.last("dataset") or {}
    of = entry.get("rows_total")
    told = f"{entry.get('rows_seen')} of {of if of is not None else 'uncounted'} rows looked at"
    return _check(seen, "kept", KEPT, "a row that is trained on", told)


def _check(seen: Observation, name: str, reasons: tuple[Reason, ...], expected: str, told: object) -> Check:
    entry = seen.record.last("dataset")
    if entry is None:
        return unproven(name, Reason.DATASET_UNINSPECTED, expected, "none", "the journal holds no look at the dataset")
    errors: list[dict[str, Any]] = entry.get("errors") or []
    for reason in reasons:
        found = [str(error["message"]) for error in errors if error.get("reason") == reason.value]
        if found:
            return failed(name, reason, expected, f"{entry.get('source') or 'no dataset'}", "; ".join(found)[:2000])
    if any(error.get("reason") in {reason.value for reason in READING} for error in errors):
        return not_applicable(name, "the dataset could not be read")
    return passed(name, expected, str(told))
