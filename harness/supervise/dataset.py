"""The dataset that a command trains on, looked at before anything is launched."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.command.interpreter import interpreter_path, own_interpreter
from harness.command.model import Finding, TrainingCommand
from harness.data.inspect import Inspector, inspect_dataset
from harness.data.model import Inspection, Verdict
from harness.data.source import fingerprint, local_path
from harness.frameworks.dataset import NamedDataset
from harness.launch.child import Limits
from harness.record.reasons import Reason
from harness.record.redaction import Redactor
from harness.spec import RunSpec

ROWS_TOLD = 20
"""Rows that are not ok, in the journal."""
MODELSCOPE_REVISION = "master"
"""What AReno asks ModelScope for: a name that moves."""
NOT_NAMED = "the command names no dataset in a way that can be read before the launch"


def look_at_dataset(
    command: TrainingCommand, named: NamedDataset | None, spec: RunSpec, environ: Mapping[str, str],
    redactor: Redactor, must_end: Callable[[], bool] = lambda: False, commit: str | None = None,
) -> tuple[dict[str, Any], tuple[Finding, ...]]:
    """(facts for the journal, findings that refuse the launch). {needed: False, why} where there is no dataset.

    `commit`: what the hub says that the dataset's revision stands for.
    """
    if named is None:
        return {"needed": False, "why": NOT_NAMED}, ()
    python = interpreter_path(command, spec.workdir, environ) or own_interpreter()
    workdir = command.directory or spec.workdir
    inspection = inspect_dataset(
        named, Inspector(python=python, workdir=workdir, environ=environ, redactor=redactor,
                         limits=Limits(is_cancelled=must_end)))
    findings = tuple(
        Finding(code=(problem.reason or Reason.DATASET_UNREADABLE).value, message=f"dataset: {problem.message}",
                refuses=True)
        for problem in inspection.errors)
    return _facts(named, inspection, workdir, redactor, commit), findings


def announced(facts: Mapping[str, Any]) -> Iterator[str]:
    """What was seen, for the terminal."""
    if facts.get("needed") and not facts.get("errors"):
        verdicts = ", ".join(f"{count} {verdict}" for verdict, count in facts["verdicts"].items() if count)
        yield f"Dataset inspected: {facts['source']} ({facts['rows_seen']} of {facts['rows_total']} rows: {verdicts})"
        yield from (f"Dataset warning: {warning['message']}" for warning in facts["warnings"])


def _facts(
    named: NamedDataset, inspection: Inspection, workdir: Path, redactor: Redactor, commit: str | None
) -> dict[str, Any]:
    local = local_path(named.path, workdir) if named.path else None
    remote = local is None and bool(named.path)
    if remote and inspection.files:
        local = Path(inspection.files[0]).parent
    document = inspection.to_json()
    bad = [row.to_json(index) for index, row in inspection.rows if row.verdict is not Verdict.OK]
    return {
        "needed": True, "why": "", "source": redactor.text(named.path) or None,
        "hub": named.model_hub if remote else None, "revision": (commit or MODELSCOPE_REVISION) if remote else None,
        "local_path": redactor.text(str(local)) if local is not None else None,
        "fingerprint": fingerprint(local) if local is not None else None,
        "rows_seen": inspection.inspected, "rows_total": inspection.total,
        "algorithm": named.algorithm, "kind": named.kind, "loader": named.loader,
        "ok": inspection.ok, "verdicts": document["verdicts"], "judged_by": inspection.judged_by,
        "raw": document["raw"], "normalized": document["normalized"],
        "rows": redactor.json(bad[:ROWS_TOLD]), "errors": document["errors"], "warnings": document["warnings"],
        "suggested_loader": inspection.suggested_loader,
    }
