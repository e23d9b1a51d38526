"""The check eval_agrees of save_reload: the reloaded model evaluates as the run logged it for that model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

from harness.checkpoints.function import FLAG
from harness.judge.checks_progress import check_exit
from harness.judge.checks_saving import reloads_of
from harness.judge.logged_evaluation import EXPECTED, NAME, compared, not_logged, search
from harness.judge.model import Check, failed, not_applicable, passed, unproven
from harness.judge.observe import Observation
from harness.record.reasons import Reason
from harness.record.vocabulary import CheckStatus

EVAL_FLAG = "--eval-check"
SAME_RTOL = 1e-5
"""How near the value of another model hardly comes."""
SHARE_OF, SHARE_RTOL = 200, 2e-7
"""A share of so few samples is one that another model may reach too."""


def check_eval_agrees(seen: Observation) -> Check:
    """What the reloaded model gives, by its own class or by the user's function, is what was logged of it."""
    found = [one for item in reloads_of(seen) for one in _of_reload(seen, item)] + _asked_mode(seen)
    for status in (CheckStatus.FAILED, CheckStatus.UNPROVEN):
        if bad := next((one for one in found if one.status is status), None):
            return bad
    held = [one for one in found if one.status is CheckStatus.PASSED]
    if held:
        return passed(NAME, EXPECTED, "; ".join(one.observed for one in held[:8]))
    if found:
        return found[0]
    if seen.record.spec.reload_with and any(item.get("status") == "ok" for item in reloads_of(seen)):
        return unproven(NAME, Reason.EVIDENCE_INCOMPLETE, EXPECTED, "no answer of its function", f"{FLAG} asked for it")
    return not_applicable(NAME, "no evaluation data at hand for the reloaded model")


def _of_reload(seen: Observation, item: dict[str, Any]) -> Iterator[Check]:
    """A check for each value that one reload gave."""
    function, own = item.get("function"), _numbers({"eval_loss": item.get("eval_loss")})
    for metric, value in own.items():
        # Nobody asked for it: a model that was saved between two evaluations has none to be held against.
        logged = search(seen, item, metric, value)[0]
        if logged is not None and (logged.at or logged.agreeing) and (one := compared(seen, item, metric, value, "")):
            yield one
    if isinstance(function, dict):
        yield from _of_function(seen, item, function)


def _of_function(seen: Observation, item: dict[str, Any], function: dict[str, Any]) -> Iterator[Check]:
    name, at = str(function.get("name")), f"{function.get('name')} on {item.get('path')}"
    error, status = str(function.get("error")), function.get("status")
    if status == "refuted":
        yield failed(NAME, Reason.RELOAD_REFUTED, EXPECTED, at, error)
    elif status == "not-attempted":
        yield unproven(NAME, Reason.RELOAD_NOT_ATTEMPTED, EXPECTED, at, f"{error}; elsewhere: {item.get('command')}")
    elif status != "ok":
        yield unproven(NAME, Reason.RELOAD_FUNCTION_FAILED, EXPECTED, at, error)
    else:
        values = {**_numbers(function.get("metrics")), **dict.fromkeys(function.get("nonfinite") or [], math.nan)}
        for metric, value in values.items():
            yield compared(seen, item, metric, value, name) or not_logged(seen, item, metric, value, name)
        if not values:
            yield not_applicable(NAME, f"{name} names no metric: its {function.get('outputs')} outputs are finite")


def _asked_mode(seen: Observation) -> list[Check]:
    """What the program's own evaluation mode tells; where --eval-check asked for it, that it tells nothing."""
    found, open_ = _by_its_own_mode(seen)
    reloaded = any(item.get("status") == "ok" for item in reloads_of(seen))
    if found or not seen.record.spec.eval_check or not reloaded or check_exit(seen).status is CheckStatus.FAILED:
        return found
    if open_:
        return [unproven(NAME, Reason.EVAL_CHECK_NOT_MADE, EXPECTED, open_,
                         "no other checkpoint shows whether this mode evaluates as the run did")]
    entries = [entry for entry in seen.record.every("own-evaluation") if not entry.get("is_control")]
    given = ", ".join(f"{metric}={value:.6g}" for entry in entries
                      for metric, value in list(_numbers(entry.get("metrics")).items())[:4])
    why = next((str(entry["error"]) for entry in entries if entry.get("error")), "")
    why = why or ("the run logged no value of these for this very model" if given else "it gave no evaluation metric")
    return [unproven(NAME, Reason.EVAL_CHECK_NOT_MADE, EXPECTED, given or "no evaluation by its own mode", why)]


def _by_its_own_mode(seen: Observation) -> tuple[list[Check], str]:
    """(what the program's own evaluation of what it saved tells, what it leaves open).

    A disagreement counts where the same mode gives another checkpoint of the run what was logged of that: it may
    evaluate otherwise than the run did, with other data or another weight of a loss's parts. It counts for nothing
    where another metric of the same answer is the logged one to five digits: it is the model that was evaluated.
    """
    entries = {is_control: entry for entry in seen.record.every("own-evaluation") if entry.get("status") == "ok"
               and isinstance(is_control := entry.get("is_control"), bool)}
    values = {is_control: {metric: one for metric, value in _numbers(entry.get("metrics")).items()
                           if (one := compared(seen, entry, metric, value, ""))}
              for is_control, entry in entries.items()}
    found, broken, open_ = list[Check](), list[Check](), ""
    for metric, one in values.get(False, {}).items():
        control = values.get(True, {}).get(metric)
        if one.status is CheckStatus.PASSED:
            found.append(replace(one, observed=f"{one.observed}, by its own evaluation mode"))
        elif one.status is CheckStatus.FAILED and control is not None and control.status is CheckStatus.PASSED:
            broken.append(replace(one, why=f"{one.why}: the same command gives another checkpoint {control.observed}"))
        elif one.status is CheckStatus.FAILED:
            open_ = open_ or one.observed
    if not broken and not open_:
        return found, ""
    same = _to_five_digits(seen, entries[False], _numbers(entries.get(True, {}).get("metrics")))
    if named := [metric for metric, is_share in same.items() if not is_share]:
        others = "; ".join(one.observed for one in values[False].values() if one.status is CheckStatus.FAILED)
        return [passed(NAME, EXPECTED, "; ".join(values[False][metric].observed for metric in named) + ", to five "
                       f"digits by its own evaluation mode; otherwise {others}, which more than the model decides")], ""
    return (found, open_ or broken[0].observed) if same else ([*found, *broken], open_)


def _to_five_digits(seen: Observation, entry: dict[str, Any], control: dict[str, float]) -> dict[str, bool]:
    """Metrics of an answer that are the logged ones so closely that it is no chance, and whether each is a share of few
    samples, as an accuracy; without whole numbers and what the control gives too, which any model may give."""
    found = {}
    for metric, value in _numbers(entry.get("metrics")).items():
        logged = search(seen, entry, metric, value)[0]
        one = logged.agreeing if logged is not None else None
        if one is None or not math.isfinite(value) or not _is_same(value, one.value) or value == round(value) or (
                metric in control and _is_same(control[metric], value)):
            continue
        found[metric] = _is_same(float(Fraction(value).limit_denominator(SHARE_OF)), value, SHARE_RTOL)
    return found


def _is_same(value: float, other: float, tolerance: float = SAME_RTOL) -> bool:
    return math.isclose(value, other, rel_tol=tolerance)


def open_evaluation(seen: Observation) -> str:
    """A disagreement of the program's own evaluation mode that nothing shows to be the model's; "" for none."""
    return _by_its_own_mode(seen)[1]


def _numbers(values: Mapping[str, Any] | None) -> dict[str, float]:
    """Those that are numbers, as floats: one that no float holds is infinite."""
    found = {}
    for name, value in (values or {}).items():
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            try:
                found[name] = float(value)
            except OverflowError:
                found[name] = math.inf
    return found
