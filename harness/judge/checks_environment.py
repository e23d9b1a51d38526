"""Checks of env_facts: is what the run ran on recorded, and is what the job needs there."""

from __future__ import annotations

from dataclasses import replace

from harness.environment import num_gpus
from harness.judge.asserted import is_launch_asserted
from harness.judge.model import Check, failed, not_applicable, passed, unproven
from harness.judge.observe import Observation
from harness.record.reasons import Reason
from harness.record.vocabulary import CheckStatus

NOT_LAUNCHED = "let the harness launch the run (--train-cmd), or accept it without (--accept-conditional)"


def check_environment(seen: Observation) -> Check:
    """Host, interpreter, packages and accelerators are recorded."""
    environment = seen.record.fact("environment", "environment") or {}
    expected = "host, Python, packages and accelerators"
    if not environment and any(item.get("refuses") for item in seen.record.fact("command", "findings", []) or []):
        return not_applicable("environment", "the command was refused before the environment was recorded")
    if not environment:
        why = "the run was made by others, on a machine that was not looked at" if is_launch_asserted(seen) else (
            "no environment record")
        check = unproven("environment", Reason.ENV_UNRECORDED, expected, "none", why)
        return replace(check, exact_remedy=NOT_LAUNCHED) if is_launch_asserted(seen) else check
    missing = [key for key in ("host", "os", "python", "packages") if not environment.get(key)]
    if missing:
        return unproven("environment", Reason.ENV_UNRECORDED, expected, f"without {', '.join(missing)}",
                        "these facts could not be had")
    return passed("environment", expected, f"{environment['host']}, {len(environment['packages'])} packages")


def _is_refused(seen: Observation) -> bool:
    """Whether the command itself is at fault, so that what it needs of the machine is beside the point."""
    own = (Reason.GPU_MISSING.value, Reason.TRAINER_NOT_READY.value)
    return any(item.get("refuses") and item.get("code") not in own
               for item in seen.record.fact("command", "findings", []) or [])


def check_gpu(seen: Observation) -> Check:
    """What the job needs is there: a GPU, where one is required."""
    asked = seen.record.spec.require_gpu
    if not asked and not (seen.facts is not None and seen.facts.needs_gpu):
        return not_applicable("gpu", "the job needs no GPU")
    if not asked and _is_refused(seen):
        return not_applicable("gpu", "the command was refused; see training_command")
    environment = seen.record.fact("environment", "environment") or {}
    if not environment:
        return not_applicable("gpu", "no environment record; see environment")
    expected = f"at least 1 GPU ({'--require-gpu' if asked else 'the command trains with CUDA'})"
    if not num_gpus(environment):
        return failed("gpu", Reason.GPU_MISSING, expected, "none", "the driver reports no device")
    return passed("gpu", expected, f"{num_gpus(environment)} device(s)")


def check_trainer(seen: Observation) -> Check:
    """The trainer's own check of the machine passes on what this job needs."""
    name, expected = "trainer", "the trainer's own check passes on what the job needs"
    environment = seen.record.fact("environment", "environment") or {}
    check = environment.get("trainer_check")
    if _is_refused(seen):
        return not_applicable(name, "the command was refused; see training_command")
    if not isinstance(check, dict) or not isinstance(check.get("findings"), list):
        return not_applicable(name, "the trainer has no such check, or it was not looked at")
    if not check["findings"]:
        return unproven(name, Reason.ENV_UNRECORDED, expected, f"exit code {check.get('exit_code')}, no line of it",
                        str(check.get("error") or "its output holds no finding"))
    counts = {kind: sum(item.get("status") == kind for item in check["findings"]) for kind in ("OK", "WARN", "FAIL")}
    observed = ", ".join(f"{count} {kind}" for kind, count in counts.items()) + f" ({check.get('backend')})"
    needed = [str(item) for item in check.get("needed_failures") or []]
    if needed and check_gpu(seen).status is not CheckStatus.FAILED:
        steps = "; ".join(map(str, check.get("next") or []))
        found = failed(name, Reason.TRAINER_NOT_READY, expected, observed, "; ".join(needed))
        return replace(found, exact_remedy=steps)
    return passed(name, expected, observed, "see gpu" if needed else "")


def check_commit(seen: Observation) -> Check:
    """The commit and its diff are recorded where there is a repository."""
    commit = seen.record.fact("environment", "commit") or {}
    if not commit.get("sha"):
        return not_applicable("commit", str(commit.get("reason") or "no commit record"))
    state = "with uncommitted changes" if commit.get("dirty") else "clean"
    return passed("commit", "commit and diff", f"{str(commit['sha'])[:12]} {state}")
