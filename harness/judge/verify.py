"""Judge an out-dir again, and say where its report, its facts and the sources that still exist disagree."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness.diagnosis.report import write_failure
from harness.judge.babysit import write_watch
from harness.judge.report import build_report, write_report
from harness.record import outdir
from harness.record.files import open_regular, read_json
from harness.record.run_record import open_record
from harness.record.schemas import schema_problems

CHUNK_BYTES = 1 << 20
COMPARED = ("decision", "confidence", "terminal_state", "total_steps", "final_metrics", "train_cmd", "run_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """One place where two records of the same run differ."""

    what: str
    expected: str
    observed: str


def verify(out_dir: Path, asked: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """{ok, out_dir, running, decision, outcome, confidence, reasons, report, disagreements, gone, asked}.

    `asked` (see `asked.asked_of`): bands and a policy that decide instead of the run's own; the evidence stays as it
    is, and is held against what the run itself was asked. The answer's `asked` is {expectations, policy}, null without.

    `ok` is true for a GO without disagreement. A missing report is made ("report": "made") where that can
    be written. A run that goes on is not judged: `running` is true, decision, outcome and confidence are null.
    RecordError when the out-dir holds no run.
    """
    if outdir.is_held(out_dir):
        return _document(out_dir, None, "none yet, the run goes on", [], [])
    fresh = build_report(out_dir)
    path = out_dir / outdir.REPORT
    if path.exists():
        disagreements, state = _against_report(path, fresh), "read"
        _make_watch(out_dir)
        _make_failure(out_dir, fresh)
    else:
        disagreements, state = [], _made(out_dir)
    moved, gone = _against_sources(out_dir)
    document = _document(out_dir, fresh, state, disagreements + moved, gone)
    return _by_other_rules(document, build_report(out_dir, asked)) if asked else document


def _by_other_rules(document: dict[str, Any], judged: dict[str, Any]) -> dict[str, Any]:
    evidence = judged["evidence"]
    return {
        **document, "ok": judged["decision"] == "GO" and not document["disagreements"], "decision": judged["decision"],
        "confidence": judged["confidence"], "outcome": evidence["outcome"], "reasons": evidence["reasons"],
        "asked": {"expectations": evidence["expectations"], "policy": evidence["policy"]},
    }


def _make_watch(out_dir: Path) -> None:
    """babysit-training.json where it is missing; one that is there stays as it is."""
    if not (out_dir / outdir.WATCH_REPORT).exists():
        with contextlib.suppress(OSError):
            write_watch(out_dir)


def _make_failure(out_dir: Path, report: dict[str, Any]) -> None:
    """check-failed-run.json of a failed run where it is missing; one that is there stays as it is."""
    if not (out_dir / outdir.FAILURE_REPORT).exists():
        with contextlib.suppress(OSError):
            write_failure(out_dir, report)


def _made(out_dir: Path) -> str:
    try:
        write_report(out_dir)
    except OSError as error:
        return f"none, and it cannot be written: {error.strerror}"
    return "made"


def _document(
    out_dir: Path, fresh: dict[str, Any] | None, state: str, disagreements: list[Disagreement], gone: list[str]
) -> dict[str, Any]:
    """What `verify` answers; `fresh` is None while the run goes on."""
    evidence = fresh["evidence"] if fresh else {}
    return {
        "ok": fresh is not None and fresh["decision"] == "GO" and not disagreements,
        "out_dir": str(out_dir),
        "running": fresh is None,
        "decision": fresh["decision"] if fresh else None,
        "outcome": evidence.get("outcome"),
        "confidence": fresh["confidence"] if fresh else None,
        "reasons": evidence.get("reasons", []),
        "report": state,
        "disagreements": [asdict(item) for item in disagreements],
        "gone": gone,
        "asked": None,
    }


def _against_report(path: Path, fresh: dict[str, Any]) -> list[Disagreement]:
    try:
        written = read_json(path)
    except (OSError, ValueError) as error:
        return [Disagreement(what=path.name, expected="a readable report", observed=str(error))]
    found = [Disagreement(what=path.name, expected="its schema", observed=problem)
             for problem in schema_problems(written, outdir.REPORT)[:10]]
    if not isinstance(written, dict):
        return found
    found += [
        Disagreement(what=f"{path.name}: {key}", expected=str(fresh[key]), observed=str(written.get(key)))
        for key in COMPARED if written.get(key) != fresh[key]
    ]
    evidence = written.get("evidence") if isinstance(written.get("evidence"), dict) else {}
    assert isinstance(evidence, dict)
    found += [
        Disagreement(what=f"{path.name}: evidence.{key}", expected="as judged again", observed="differs")
        for key in fresh["evidence"] if evidence.get(key) != fresh["evidence"][key]
    ]
    return found


def _against_sources(out_dir: Path) -> tuple[list[Disagreement], list[str]]:
    """Sources whose consumed range no longer has its digest, and sources that are gone."""
    found: list[Disagreement] = []
    gone: list[str] = []
    with open_record(out_dir) as record:
        sources = record.fact("sources", "sources", []) or []
        facts = record.fact("checkpoints", "facts", {}) or {}
    for source in sources:
        _compare(Path(source["path"]), out_dir, source.get("sha256"), int(source.get("first_offset") or 0),
                 int(source.get("bytes_read") or 0), found, gone)
    for checkpoint in facts.get("checkpoints") or []:
        for item in checkpoint.get("files") or []:
            if item.get("sha256"):
                _compare(Path(item["path"]), out_dir, item["sha256"], 0, int(item.get("bytes") or 0), found, gone)
    return found, gone


def _compare(
    path: Path, out_dir: Path, digest: str | None, start: int, length: int, found: list[Disagreement], gone: list[str]
) -> None:
    place = path if path.is_absolute() else out_dir / path
    if digest is None:
        return
    if not os.path.exists(place):  # noqa: PTH110 (an odd path is a gone one, no error)
        gone.append(str(path))
        return
    now = range_digest(place, start, length)
    if now != digest:
        found.append(Disagreement(what=str(path), expected=f"sha256 {digest} over {length} bytes", observed=now))


def range_digest(path: Path, start: int, length: int) -> str:
    """SHA-256 of `length` bytes from `start`; of fewer where the file is shorter; the error's text where unreadable."""
    digest = hashlib.sha256()
    try:
        with os.fdopen(open_regular(path), "rb") as handle:
            handle.seek(start)
            while length > 0 and (chunk := handle.read(min(CHUNK_BYTES, length))):
                digest.update(chunk)
                length -= len(chunk)
    except (OSError, ValueError, OverflowError) as error:
        return f"unreadable: {error.strerror if isinstance(error, OSError) else error}"
    return f"{digest.hexdigest()}" if length == 0 else f"{digest.hexdigest()} ({length} bytes missing)"
