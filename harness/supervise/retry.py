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
from harness.retry.decide import plan_retry
from harness.retry.earlier import Earlier
from harness.retry.identity import identity_of
from harness.retry.overlap import compare_with_earlier
from harness.spec import RunSpec

MODEL_FULL_BYTES = 1 << 30
"""Larger weights are told apart by sizes and ends, so that no launch waits for a digest of all of them."""


def model_facts(facts: FrameworkFacts, redactor: Redactor, had: HubAsset | None = None) -> dict[str, Any]:
    """The journal's entry `model`: the weights that training starts from, where they lie here, and whose they are.

    `had`: the hub's snapshot that the command names, None where it names a local one.
    """
    place = str(had.local_path) if had is not None else facts.start_weights
    if place is None:
        return {"source": None, "local_path": None, "fingerprint": None}
    shown = redactor.text(place)
    return {"source": redactor.text(had.repository) if had is not None else shown, "local_path": shown,
            "hub": "modelscope" if had is not None else None, "revision": had.revision if had is not None else None,
            "fingerprint": fingerprint(Path(place), full_bytes=MODEL_FULL_BYTES)}


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
