"""Checks of smoke_capacity: does the smallest real allocation or step fit, and how much memory it took."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from harness.judge.model import Check, failed, not_applicable, passed, unproven
from harness.judge.observe import Observation
from harness.record.reasons import Reason


def not_selected(seen: Observation) -> str:
    """Why the run needs no smoke."""
    return "" if seen.record.spec.smoke else "not selected (-m smoke_capacity)"


def _ran(seen: Observation) -> list[dict[str, Any]]:
    return [dict(entry) for entry in seen.record.every("smoke") if entry.get("argv")]


def check_fits(seen: Observation) -> Check:
    """Every smoke of the command ended well, and a step that was made updated the policy."""
    name, expected, ran = "fits", "smokes that end with exit code 0", _ran(seen)
    if not ran:
        why = str(seen.record.fact("smoke", "problem") or "no smoke was run")
        return unproven(name, Reason.SMOKE_UNAVAILABLE, expected, "none", why)
    for entry in ran:
        how = f"signal {entry['signal']}" if entry.get("signal") else f"exit code {entry.get('exit_code')}"
        observed = f"{entry['name']}: {how} after {entry.get('seconds')} s"
        if entry.get("exit_code") != 0:
            return _failed(entry, expected, observed, str(entry.get("problem") or f"see {entry.get('log')}"))
        if entry.get("updates") == 0:
            return _failed(entry, "a step that updates the policy", observed, "the step made no update")
    return passed(name, expected, "; ".join(f"{entry['name']}: exit code 0" for entry in ran), "capacity evidence only")


def _failed(entry: dict[str, Any], expected: str, observed: str, why: str) -> Check:
    check = failed("fits", Reason.CAPACITY_EXCEEDED, expected, observed, why)
    order = ", then ".join(map(str, entry.get("proposals") or []))
    return replace(check, exact_remedy=f"try in this order: {order}" if order else "")


def check_peak_memory(seen: Observation) -> Check:
    """The most memory that the processes and the GPUs held at one moment is known."""
    name, expected, ran = "peak_memory", "the peak memory of the process tree and of the GPU", _ran(seen)
    if not ran:
        return not_applicable(name, "no smoke was run")
    told = [f"{entry['name']}: {_size(entry.get('peak_memory_bytes'))}, GPU {_size(entry.get('peak_gpu_bytes'))}"
            for entry in ran]
    if not all(entry.get("peak_memory_bytes") for entry in ran):
        return unproven(name, Reason.EVIDENCE_INCOMPLETE, expected, "; ".join(told), "it ended before the first look")
    return passed(name, expected, "; ".join(told))


def _size(count: Any) -> str:
    return f"{count / 1e6:.0f} MB" if isinstance(count, int) and count else "none"
