"""The quoted lines of a diagnosis: what shows the cause, how far the run had come, and what is ruled out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.diagnosis.facts import RunFacts
from harness.diagnosis.model import Event, EventKind, Place
from harness.diagnosis.progress import shown_values
from harness.diagnosis.read import RunReading
from harness.record import outdir

MAX_QUOTE = 1000
MAX_CONSEQUENCES = 12
HEAD_BYTES = 1 << 20
_DROPPED = re.compile(rb"\bskipped_long_or_empty=[1-9]")


def first_causal(reading: RunReading, out_dir: Path) -> dict[str, Any] | None:
    """{rank, kind, message, file, line, time} of the first causal error; file and line are those of the log."""
    cause = reading.finding.cause
    if cause is None:
        return None
    link = cause.link
    is_line = cause.kind not in (EventKind.EXIT, EventKind.METRIC)
    name = cause.rule.id if cause.rule is not None and is_line else cause.text.removeprefix("signal ")
    kind, message = (link.kind, link.message) if link is not None else (name, cause.detail or cause.text)
    place = link.place if link is not None else cause.place
    return {
        "rank": cause.rank, "kind": kind, "message": message[:MAX_QUOTE],
        "file": _file(place, out_dir) if place.line else None, "line": place.line or None,
        "time": cause.stamp.text if cause.stamp is not None else None,
    }


def evidence_of(reading: RunReading, facts: RunFacts, out_dir: Path) -> list[dict[str, Any]]:
    """Entries {kind, file, line, text, note}, in the order of a reader's questions."""
    finding = reading.finding
    entries: list[dict[str, Any]] = []
    if finding.cause is not None:
        entries += _quotes(finding.cause, "cause", out_dir)
        if finding.cause.rule is not None and finding.cause.rule.id == "judged-no-update":
            entries += _dropped_rows(finding.cause.place.path, out_dir)
    if finding.confirms is not None and finding.confirms is not finding.cause:
        entries.append(_entry("confirmation", finding.confirms.place, out_dir, "the kernel or the cgroup says so"))
    entries += _progress(reading, facts, out_dir)
    entries += _effects(finding.consequences, out_dir)
    for event in finding.recovered[:5]:
        note = f"{event.rule.id if event.rule else 'an error'}: the run went on after it, so it is not the cause"
        entries.append(_entry("ruled-out", event.link.place if event.link else event.place, out_dir, note))
    if finding.cause is not None and finding.cause.rule is not None and finding.cause.rule.rules_out:
        entries.append(_note("ruled-out", finding.cause.rule.rules_out))
    entries += _observed(reading, out_dir)
    return entries


def _quotes(event: Event, kind: str, out_dir: Path) -> list[dict[str, Any]]:
    """The header, the last frames and the exception of the link that counts; the chain's last exception."""
    if event.link is None:
        return [_entry(kind, event.place, out_dir, event.detail or (event.rule.id if event.rule else ""))]
    note = f"rule {event.rule.id}" if event.rule else ""
    quoted = [_entry(kind, place, out_dir, "frame") for place in _code(event.link.frames)[-2:]]
    quoted.append(_entry(kind, event.link.place, out_dir, note))
    if event.link.file:
        quoted.append(_note("source", f"raised at {event.link.file}:{event.link.source_line}"))
    last = event.links[-1]
    if last is not event.link:
        quoted.append(_entry("chain", last.place, out_dir, "the last exception of the chain, which followed from it"))
    return quoted


def _dropped_rows(log: Path, out_dir: Path) -> list[dict[str, Any]]:
    """The first line at the beginning of a log that says how many rows were left out before training."""
    try:
        with log.open("rb") as file:
            lines = file.read(HEAD_BYTES).splitlines()
    except OSError:
        return []
    found = next(((number, line) for number, line in enumerate(lines, start=1) if _DROPPED.search(line)), None)
    if found is None:
        return []
    place = Place(path=log, line=found[0], text=found[1].decode("utf-8", "replace"))
    return [_entry("source", place, out_dir, "rows that were left out")]


def _code(frames: Sequence[Place]) -> list[Place]:
    """Frames without the marks that Python puts below a line of code."""
    return [place for place in frames if set(place.text.strip()) - set("^~")]


def _progress(reading: RunReading, facts: RunFacts, out_dir: Path) -> list[dict[str, Any]]:
    step = reading.last.step if reading.last is not None else None
    step = facts.last_step if facts.last_step is not None else step
    planned = facts.target or reading.planned
    entries = []
    if step is not None:
        entries.append(_note("progress", f"last progress: step {step} of {planned if planned is not None else '?'}"))
    for mark in reading.trajectory:
        values = shown_values(mark)
        if values and not facts.trajectory:
            at = f"step {mark.step}" if mark.step is not None else f"epoch {mark.epoch}"
            entries.append(_note("trajectory", f"{at}: {values}"))
    return [*entries, *(_note("trajectory", line) for line in facts.trajectory)]


def _effects(events: Sequence[Event], out_dir: Path) -> list[dict[str, Any]]:
    """One of each kind and rank, as what follows from the cause."""
    seen: set[tuple[str, int | None]] = set()
    entries: list[dict[str, Any]] = []
    for event in events:
        key = (event.rule.id if event.rule else "", event.rank)
        if key in seen or len(entries) >= MAX_CONSEQUENCES:
            continue
        seen.add(key)
        who = f" of rank {event.rank}" if event.rank is not None else ""
        entries.append(_entry("ruled-out", event.place, out_dir, f"{key[0]}{who} follows from the cause"))
    return entries


def _observed(reading: RunReading, out_dir: Path) -> list[dict[str, Any]]:
    """torchrun's `first observed` where it is not the cause."""
    cause = reading.finding.cause
    return [
        _entry("ruled-out", worker.place, out_dir,
               f"torchrun observed rank {worker.rank} first: the order of observation, not of failing")
        for worker in reading.workers
        if worker.is_first_observed and worker.place is not None and cause is not None and cause.rank is not None
        and worker.rank != cause.rank
    ]


def _entry(kind: str, place: Place, out_dir: Path, note: str) -> dict[str, Any]:
    if not place.line:
        return _note(kind, place.text[:MAX_QUOTE], note)
    return {"kind": kind, "file": _file(place, out_dir), "line": place.line, "text": place.text.strip()[:MAX_QUOTE],
            "note": note}


def _note(kind: str, text: str, note: str = "") -> dict[str, Any]:
    return {"kind": kind, "file": None, "line": None, "text": text, "note": note}


def _file(place: Place, out_dir: Path) -> str:
    return outdir.relative(out_dir, str(place.path))
