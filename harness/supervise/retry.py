"""The part of a run that is a retry: what it is held against before its launch and after its end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.command.model import Finding
from harness.data.hub import HubAsset
from harness.data.source import fingerprint
from harness.errors import RecordError
from harness.frameworks.base import FrameworkFacts
from harness.record.journal import Journal
from harness.record.redaction import Redactor
from harness.record.run_record import open_record
from harness.retry.decide import plan_retry, plan_settings
from harness.retry.earlier import Earlier
from harness.retry.identity import identity_of
from harness.retry.overlap import compare_with_earlier
from harness.spec import RunSpec

MODEL_FULL_BYTES = 1 << 30
"""Larger weights are told apart by sizes and ends, so that no launch waits for a digest of all of them."""


def model_facts(facts: FrameworkFacts, redactor: Redactor, had: HubAsset | None = None) -> dict[str, Any]:
    """The journal's entry `model`: the weights that training starts from, where they lie here, and whose they are.

    Where an adapter is trained, the frozen model below it, and the adapter beside it. `had`: the hub's snapshot that
    the command names, None where it names a local one.
    """
    place = str(had.local_path) if had is not None else facts.base_weights or facts.start_weights
    adapter = _adapter_facts(facts, redactor)
    if place is None:
        return {"source": None, "local_path": None, "fingerprint": None, "adapter": adapter}
    shown = redactor.text(place)
    hub, revision = (had.hub, had.commit or had.revision) if had is not None else (None, None)
    return {"source": redactor.text(had.repository) if had is not None else shown, "local_path": shown,
            "hub": hub, "revision": revision, "adapter": adapter,
            "fingerprint": fingerprint(Path(place), full_bytes=MODEL_FULL_BYTES)}


def _adapter_facts(facts: FrameworkFacts, redactor: Redactor) -> dict[str, Any] | None:
    if facts.adapter is None:
        return None
    told = {key: redactor.text(value) if value else None for key, value in facts.adapter.items()}
    path = facts.adapter.get("path")
    return {**told, "fingerprint": fingerprint(Path(path), full_bytes=MODEL_FULL_BYTES) if path else None}


def setting_findings(
    earlier: Earlier, spec: RunSpec, facts: FrameworkFacts, journal: Journal
) -> tuple[Finding, ...]:
    """What the settings alone forbid, before a dataset is loaded; it stands in the journal as `retry` then."""
    with open_record(spec.out_dir) as record:
        settings = record.fact("settings", "values") or {}
    plan = plan_settings(earlier, settings, facts, spec.approve)
    if plan.findings:
        journal.write("retry", **plan.to_json(earlier, spec.approve))
    return plan.findings


def retry_findings(
    earlier: Earlier, spec: RunSpec, facts: FrameworkFacts, journal: Journal
) -> tuple[Finding, ...]:
    """What forbids the launch of a retry. What was found stands in the journal as `retry`."""
    with open_record(spec.out_dir) as record:
        settings, identity = record.fact("settings", "values") or {}, identity_of(record)
    plan = plan_retry(earlier, settings, identity, facts, spec.approve)
    journal.write("retry", **plan.to_json(earlier, spec.approve))
    return plan.findings


def compare(earlier: Earlier, spec: RunSpec, journal: Journal) -> None:
    """The losses of both runs beside each other, for the gate."""
    try:
        found = compare_with_earlier(spec.out_dir, earlier.out_dir)
    except RecordError as error:
        journal.write("evidence-lost", message=f"the run before cannot be compared: {error}")
        return
    journal.write("retry-comparison", **found)
