"""Checks of save_reload: what the run saved is there, whole, of its last step, finite, and loads in a fresh process."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from harness.checkpoints.function import USAGE
from harness.checkpoints.naming import step_of
from harness.judge.checks_progress import check_exit
from harness.judge.model import Check, failed, not_applicable, passed, unproven
from harness.judge.observe import Observation, was_stopped
from harness.judge.reach import lie_in_one_update
from harness.record.reasons import Reason
from harness.record.vocabulary import CheckStatus

_SAVE_ERRORS = {"disk-full": Reason.DISK_FULL, "unwritable": Reason.SAVE_PATH_UNWRITABLE}


def not_needed(seen: Observation) -> str:
    """Why nothing has to be saved: nobody asked for it, and nothing of this run was found."""
    spec = seen.record.spec
    if seen.facts is None or seen.facts.checkpoint_asked or spec.checkpoint_dir or spec.reload_with or (
            spec.eval_check or seen.weights.found):
        return ""
    if _facts(seen).get("unfinished"):
        return ""
    return "saving was not asked for, and the run saved nothing"


def _facts(seen: Observation) -> dict[str, Any]:
    return seen.record.fact("checkpoints", "facts", {}) or {}


def _save_error(seen: Observation, *, any_line: bool) -> tuple[Reason, str] | None:
    """An error of saving that the log shows; one that names no checkpoint directory only where `any_line`."""
    for item in _facts(seen).get("save_errors") or []:
        reason = _SAVE_ERRORS.get(str(item.get("kind")))
        if reason and (any_line or item.get("names_root")):
            return reason, str(item.get("line"))
    return None


def check_saved(seen: Observation) -> Check:
    """Where saving was asked for, this run saved something."""
    name, expected = "saved", "a checkpoint that this run wrote"
    weights = seen.weights
    if weights.found:
        return passed(name, expected, f"{weights.found} checkpoint(s)")
    if _facts(seen).get("unfinished"):
        return not_applicable(name, "a save was begun; see complete")
    roots = ", ".join(seen.facts.checkpoint_roots) if seen.facts else ""
    if error := _save_error(seen, any_line=True):
        return failed(name, error[0], expected, "none", error[1])
    if place := _facts(seen).get("unwritable"):
        return failed(name, Reason.SAVE_PATH_UNWRITABLE, expected, "none", f"{place} cannot be written")
    if check_exit(seen).status is CheckStatus.FAILED:
        return not_applicable(name, "the run ended before it saved; see real_step.exit")
    earlier = _facts(seen).get("earlier") or 0
    why = f"{earlier} checkpoint(s) there are older than the launch" if earlier else f"saving was asked for: {roots}"
    return unproven(name, Reason.CHECKPOINT_MISSING, expected, "none", why)


def check_complete(seen: Observation) -> Check:
    """The newest checkpoint is whole, and no save was left half way."""
    name, expected = "complete", "the newest checkpoint whole"
    left, best = _newest_unfinished(seen), _facts(seen).get("latest")
    stays = f"; the newest whole one is {best}" if best else "; no whole one is left"
    if seen.weights.newest_damage:
        reason, line = _save_error(seen, any_line=True) or (Reason.CHECKPOINT_UNREADABLE, "")
        return failed(name, reason, expected, seen.weights.newest_damage, (line or "it is not whole") + stays)
    error = _save_error(seen, any_line=bool(left) or _ended_by_full_disk(seen))
    if error and not _caught_up(seen):
        return failed(name, error[0], expected, "a save that failed", error[1] + stays)
    if left and was_stopped(seen) is None:
        return failed(name, Reason.CHECKPOINT_UNFINISHED, expected, left, f"its save never ended{stays}")
    if not seen.weights.found:
        return not_applicable(name, "nothing was saved")
    return passed(name, expected, str(best), f"{left} was cut by the stop" if left else "")


def _ended_by_full_disk(seen: Observation) -> bool:
    """Whether the exception that ended the run is the full disk's, though it names no path."""
    ended = str(seen.record.fact("log-end", "exception") or "")
    lines = [str(item.get("line")) for item in _facts(seen).get("save_errors") or [] if item.get("kind") == "disk-full"]
    return bool(ended) and any(ended in line or line in ended for line in lines)


def _caught_up(seen: Observation) -> bool:
    """Whether a whole checkpoint of the last step is there, so that an error of saving before it was got over."""
    saved, ended = seen.weights.last_step, seen.steps.completed
    return saved is not None and ended is not None and saved >= ended


def _newest_unfinished(seen: Observation) -> str:
    """An unfinished save of a later step than every whole one; where none is whole, any."""
    last = seen.weights.last_step
    for path in _facts(seen).get("unfinished") or []:
        name = Path(path).name
        number = re.search(r"\d{1,12}", name)
        step = step_of(name) if step_of(name) is not None else int(number.group()) if number else None
        if not _facts(seen).get("latest") or (step is not None and last is not None and step > last):
            return str(path)
    return ""


def check_delivered(seen: Observation) -> Check:
    """The last checkpoint is no copy of an earlier step's, and lacks nothing that the one before it holds."""
    name, expected = "delivered", "a last checkpoint of its own, with every tensor"
    facts = _facts(seen)
    if lost := facts.get("lost"):
        return failed(name, Reason.CHECKPOINT_LACKS_TENSORS, expected, f"{len(lost)} tensor(s) lost: {lost[0]}",
                      f"{facts.get('lost_from')} holds them")
    repeated = facts.get("repeated") or []
    if len(repeated) == 2 and not _stood_still(seen, repeated):
        return failed(name, Reason.CHECKPOINT_REPEATED, expected, f"{repeated[0]} equals {repeated[1]}",
                      "steps lie between the two, and not one byte of the weights differs")
    if len(seen.weights.steps) < 2:
        return not_applicable(name, "there is one step alone to look at")
    return passed(name, expected, f"{len(seen.weights.steps)} steps that differ")


def _stood_still(seen: Observation, repeated: list[str]) -> bool:
    """Whether nothing had to change between two checkpoints: a learning rate or a gradient of 0 moves nothing, and
    what lies within one accumulated update does not either.

    A start that never moved is real_step's to tell.
    """
    if seen.weights.change in ("none", "cast-only", "resize-only", "buffers-only"):
        return True
    steps = {str(item.get("path")): item.get("step") for item in _facts(seen).get("checkpoints") or []}
    found = [step for path in repeated if isinstance(step := steps.get(path), int)]
    if len(found) == 2 and lie_in_one_update(seen, found):
        return True
    if len(found) < 2 or seen.record.store is None:
        return False
    shift = 1 if seen.facts is not None and seen.facts.step_base == 0 else 0
    for tag in (*seen.lr[:1], *seen.grad_norm[:1]):
        values = [point.value for point in seen.record.store.iter_series(tag.tag, run=tag.run)
                  if min(found) < point.step + shift <= max(found)]
        if values and not any(value > 0 for value in values):
            return True
    return False


def reloads_of(seen: Observation) -> list[dict[str, Any]]:
    """The facts of every reload."""
    found = [entry.get("facts") for entry in seen.record.every("reload")]
    return [facts for facts in found if isinstance(facts, dict)]


def check_saved_finite(seen: Observation) -> Check:
    """Values of formats that only the reload reads are finite; safetensors files are real_step.weights' to judge."""
    name, expected = "finite", "every floating tensor finite"
    read = [item for item in reloads_of(seen) if item.get("values_read")]
    bad = [f"{item.get('path')}: {tensor}" for item in read for tensor in item.get("nonfinite") or []]
    if bad:
        return failed(name, Reason.WEIGHTS_NOT_FINITE, expected, ", ".join(bad[:3]),
                      f"{len(bad)} tensor(s) hold NaN or infinite values")
    if not read:
        return not_applicable(name, "no format that only its loader reads; see real_step.weights")
    return passed(name, expected, f"{sum(int(item['tensors']) for item in read)} tensor(s)")


def check_reload(seen: Observation) -> Check:
    """What the run delivers loads in a fresh process: every key, and a forward pass where its model is known."""
    name, expected = "reload", "it loads in a fresh process"
    if not seen.weights.found or not _facts(seen).get("latest"):
        return not_applicable(name, "there is no whole checkpoint to load")
    reloads = reloads_of(seen)
    if not reloads:
        if was_stopped(seen) in ("cancelled", "owner-lost") or seen.record.last("attempt-ended") is None:
            return not_applicable(name, "the run was cancelled, and nothing was loaded")
        return unproven(name, Reason.EVIDENCE_INCOMPLETE, expected, "no reload", "the journal has no reload")
    for status, make, code in (("failed", failed, Reason.RELOAD_FAILED), ("refused", unproven, Reason.RELOAD_REFUSED),
                               ("not-attempted", unproven, Reason.RELOAD_NOT_ATTEMPTED)):
        for item in reloads:
            if item.get("status") == status:
                reason = Reason.FORWARD_NOT_FINITE if item.get("error_kind") == "forward" else code
                more = f"; elsewhere: {item.get('command')}" if status != "failed" else ""
                return make(name, reason, expected, f"{item.get('path')}: {status}", f"{item.get('error')}{more}")
    empty = [item for item in reloads if item.get("status") == "ok" and not item.get("tensors")]
    if empty:
        return failed(name, Reason.RELOAD_FAILED, expected, f"{empty[0].get('path')}: no tensor", "it holds no model")
    unknown = [item for item in reloads if item.get("status") != "ok"]
    if unknown:
        return unproven(name, Reason.EVIDENCE_INCOMPLETE, expected, "a reload of no known status", "")
    return passed(name, expected, "; ".join(_told(item) for item in reloads))


def _told(item: dict[str, Any]) -> str:
    function = item.get("function") or {}
    forward = ("forward pass finite" + (f" by {function.get('name')}" if function.get("status") == "ok" else "")
               if item.get("forward_ok") else "see eval_agrees" if function else
               f"no forward pass, its model's code is not in it: {USAGE} would make one")
    allowed = ", unrestricted unpickling was allowed" if item.get("pickle_allowed") else ""
    return f"{item.get('path')}: {item.get('tensors')} tensor(s) by {item.get('adapter')}, {forward}{allowed}"


def evidence_of_reload(seen: Observation) -> dict[str, Any] | None:
    """evidence.reload: the worst of the reloads, with what changed in the weights; None where none was made."""
    order = ("failed", "refused", "not-attempted", "ok")
    reloads = sorted(reloads_of(seen), key=lambda item: (
        order.index(item["status"]) if item.get("status") in order else 1,
        (item.get("function") or {}).get("status", "ok") == "ok"))
    if not reloads:
        return None
    keys = ("path", "step", "adapter", "status", "error", "missing", "unexpected", "mismatched", "nonfinite",
            "dtype_changes", "forward_ok", "eval_loss", "function", "notes", "pickle_allowed", "tensors",
            "peak_memory_bytes", "seconds", "command")
    worst, known = reloads[0], reloads[0].get("status") in order
    told = {key: value for key in ("forward_ok", "pickle_allowed") if isinstance(value := worst.get(key), bool)}
    return {**{key: worst.get(key) for key in keys}, "forward_ok": None, "pickle_allowed": None, **told,
            "status": worst["status"] if known else "not-attempted",
            "changed_tensors": seen.weights.changed_tensors if seen.weights.compared else None,
            "max_abs_change": seen.weights.max_abs_change}
