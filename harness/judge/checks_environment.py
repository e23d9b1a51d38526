"""Checks of env_facts: is what the run ran on recorded, and is what the job needs there."""

from __future__ import annotations

from harness.judge.asserted import is_launch_asserted
from harness.judge.model import Check, failed, not_applicable, passed, unproven
from harness.judge.observe import Observation
from harness.record.reasons import Reason


def check_environment(seen: Observation) -> Check:
    """Host, interpreter, packages and accelerators are recorded."""
    environment = seen.record.fact("environment", "environment") or {}
    expected = "host, Python, packages and accelerators"
    if not environment and any(item.get("refuses") for item in seen.record.fact("command", "findings", []) or []):
        return not_applicable("environment", "the command was refused before the environment was recorded")
    if not environment:
        why = "the run was made by others, on a machine that was not looked at" if is_launch_asserted(seen) else (
            "no environment record")
        return unproven("environment", Reason.ENV_UNRECORDED, expected, "none", why)
    missing = [key for key in ("host", "os", "python", "packages") if not environment.get(key)]
    if missing:
        return unproven("environment", Reason.ENV_UNRECORDED, expected, f"without {', '.join(missing)}",
                        "these facts could not be had")
    return passed("environment", expected, f"{environment['host']}, {len(environment['packages'])} packages")


def check_gpu(seen: Observation) -> Check:
    """What the job needs is there: a GPU, where one is required."""
    if not seen.record.spec.require_gpu:
        return not_applicable("gpu", "no GPU was required")
    devices = (seen.record.fact("environment", "environment") or {}).get("accelerators") or []
    if not devices:
        return failed("gpu", Reason.GPU_MISSING, "at least 1 GPU (--require-gpu)", "none",
                      "the driver reports no device")
    return passed("gpu", "at least 1 GPU (--require-gpu)", f"{len(devices)} device(s)")


def check_commit(seen: Observation) -> Check:
    """The commit and its diff are recorded where there is a repository."""
    commit = seen.record.fact("environment", "commit") or {}
    if not commit.get("sha"):
        return not_applicable("commit", str(commit.get("reason") or "no commit record"))
    state = "with uncommitted changes" if commit.get("dirty") else "clean"
    return passed("commit", "commit and diff", f"{str(commit['sha'])[:12]} {state}")
