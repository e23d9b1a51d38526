"""`python -m harness baseline`: reference bands with tolerances, from runs that are GO and the same job."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from statistics import fmean
from typing import Any

from harness.errors import ConfigError, RecordError
from harness.frameworks.base import FrameworkFacts
from harness.judge.bands import METERS, Target, parse_target
from harness.judge.checks_expect import measure
from harness.judge.verify import verify
from harness.record.files import write_text
from harness.record.run_record import RunRecord, open_record
from harness.retry.changes import find_changes
from harness.retry.identity import identity_differences, identity_of
from harness.retry.noise import half_band, measured_noise

THROUGHPUT = re.compile(r"(per_(s|sec|second)|/(s|sec)|throughput|tokens_per|samples_per)($|[/_.-])", re.I)
MAY_DIFFER = ("seed", "data_seed", "host")
NOT_IDENTITY = ("diff", "harness_version")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One band of the file."""

    target: Target
    values: tuple[float, ...]
    sides: tuple[bool, bool]
    """Whether a lower and an upper limit mean something."""

    def limits(self) -> tuple[float | None, float | None]:
        """(lower, upper); none from a single run."""
        if len(self.values) < 2:
            return None, None
        half = half_band(self.values)
        middle = fmean(self.values)
        low, high = min(middle - half, *self.values), max(middle + half, *self.values)
        return (low if self.sides[0] else None), (high if self.sides[1] else None)


def write_baseline(runs: Sequence[Path], out: Path, expects: Sequence[str]) -> dict[str, Any]:
    """{ok, out, runs, refused, tolerances, bands, retry_rtol, note}; nothing is written where a run is refused.

    `retry_rtol`: the largest relative noise of a loss at a step, for [thresholds] of a policy; null from one run.

    A run is refused that is not GO, whose evidence disagrees, or that is another job than the first one.
    """
    if len({run.resolve() for run in runs}) < len(runs):
        raise ConfigError("a run is given twice, which is no second run")
    targets = [parse_target(text) for text in expects]
    refused = [{"run": str(run), "why": why} for run in runs if (why := _why_refused(run))]
    document: dict[str, Any] = {"ok": False, "out": str(out), "runs": [str(run) for run in runs], "refused": refused,
                                "tolerances": len(runs) > 1, "bands": [], "retry_rtol": None, "note": ""}
    if refused:
        return {**document, "note": "a baseline is made of good runs of one job only; nothing was written"}
    with ExitStack() as stack:
        records = [stack.enter_context(open_record(run)) for run in runs]
        refused = [{"run": str(record.out_dir), "why": why} for record in records[1:]
                   if (why := _another_job(records[0], record))]
        if refused:
            return {**document, "refused": refused, "note": "these runs are other jobs; nothing was written"}
        rows = _rows(records, targets)
        if not rows:
            raise ConfigError("the runs have no loss, throughput or memory in common; name what is meant by --metric")
        facts = FrameworkFacts.from_json(records[0].fact("command", "facts") or {"name": "unknown", "reason": ""})
        rtol = max(measured_noise(runs, facts)[0].values(), default=None)
        text, bands = _toml(records, rows, rtol)
    try:
        write_text(out, text)
    except OSError as error:
        raise ConfigError(f"--out {out}: cannot be written: {error.strerror}") from error
    note = "" if len(runs) > 1 else (
        "one run has no noise: the file holds values without limits, and --expect refuses it; give 2 runs or more")
    return {**document, "ok": True, "bands": bands, "retry_rtol": rtol, "note": note}


def _why_refused(run: Path) -> str:
    try:
        found = verify(run)
    except RecordError as error:
        return str(error)
    if found["running"]:
        return "the run goes on"
    if found["decision"] != "GO":
        codes = ", ".join(dict.fromkeys(reason["code"] for reason in found["reasons"]))
        return f"{found['decision']}: {codes}"
    return "; ".join(f"{item['what']}: {item['observed']}" for item in found["disagreements"])[:500]


def _another_job(first: RunRecord, other: RunRecord) -> str:
    facts = FrameworkFacts.from_json(first.fact("command", "facts") or {"name": "unknown", "reason": ""})
    settings = [record.fact("settings", "values") or {} for record in (first, other)]
    changed = [change.key for change in find_changes(settings[0], settings[1], facts, MAY_DIFFER) if not change.allowed]
    unlike = [item.what for item in identity_differences(identity_of(first), identity_of(other))
              if item.differs and item.what not in NOT_IDENTITY]
    return ", ".join([*changed, *unlike])


def _rows(records: Sequence[RunRecord], targets: Sequence[Target]) -> list[Row]:
    rows = []
    for target in targets or _usual(records[0]):
        measured = [measure(record, target) for record in records]
        missing = next((one for one in measured if one.number is None), None)
        if missing is not None:
            if targets:
                raise ConfigError(f"--metric {target.text}: {missing.why}")
            continue
        rate = THROUGHPUT.search(target.tag) is not None
        rows.append(Row(target=target, values=tuple(one.number for one in measured if one.number is not None),
                        sides=(target.function != "meter", not rate)))
    return rows


def _usual(record: RunRecord) -> list[Target]:
    """The last loss, the best evaluation, the rate of the second half, and peak memory."""
    facts = FrameworkFacts.from_json(record.fact("command", "facts") or {"name": "unknown", "reason": ""})
    found = []
    for tag in sorted(record.store.tags() if record.store else (), key=lambda one: one.tag):
        if not tag.fresh_points or tag.last_step is None:
            continue
        if any(re.search(pattern, tag.tag, re.I) for pattern in facts.loss_tags):
            is_eval = any(re.search(pattern, tag.tag, re.I) for pattern in facts.eval_tags)
            found.append(Target(tag=tag.tag, function="best") if is_eval
                         else Target(tag=tag.tag, function="at", step=tag.last_step))
        elif THROUGHPUT.search(tag.tag):
            found.append(Target(tag=tag.tag, function="median", start=tag.last_step // 2))
    return [*found, *(Target(tag=name, function="meter") for name in METERS)]


def _toml(records: Sequence[RunRecord], rows: Sequence[Row], rtol: float | None) -> tuple[str, list[dict[str, Any]]]:
    import tomlkit

    document, bands = tomlkit.document(), []
    document.add(tomlkit.comment(f"Reference bands of {len(records)} run(s), for --expect."))
    if rtol is not None:
        document.add(tomlkit.comment(f"A loss's noise at a step, for a policy's [thresholds]: retry_rtol = {rtol:.3g}"))
    first = records[0]
    commit = first.fact("environment", "commit") or {}
    host = (first.fact("environment", "environment") or {}).get("host")
    provenance = tomlkit.table()
    provenance.update({
        "command": str(first.fact("command", "text") or ""), "commit": str(commit.get("sha") or "unknown"),
        "host": str(host or "unknown"), "date": datetime.now(tz=timezone.utc).date().isoformat(),
        "runs": ", ".join(record.spec.run_id for record in records)})
    document["provenance"] = provenance
    array = tomlkit.aot()
    for row in rows:
        lower, upper = row.limits()
        band = {"expect": row.target.text, "value": fmean(row.values), "lower": lower, "upper": upper,
                "unit": "bytes" if row.target.function == "meter" else ""}
        table = tomlkit.table()
        table.update({key: value for key, value in band.items() if value is not None})
        array.append(table)
        bands.append(band)
    document["band"] = array
    return tomlkit.dumps(document), bands
