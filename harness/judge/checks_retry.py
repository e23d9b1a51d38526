"""The gate `retry`: is it the same job as the run before it, and do the two show the same as far as both went."""

from __future__ import annotations

from typing import Any

from harness.judge.model import Check, failed, not_applicable, passed, unproven
from harness.judge.observe import Observation
from harness.record.reasons import Reason

UNLIKE = ("semantic", "unknown")
SHOWN = 5
UNRECORDED = "the journal does not say what is retried"


def no_retry(seen: Observation) -> str:
    """Why a run has no need of the gate."""
    return "" if seen.record.spec.retry_of is not None else "nothing is retried (--retry-of)"


def check_settings(seen: Observation) -> Check:
    """Only capacity, or what was approved, is another: by the commands, and by the values that were used."""
    name, expected = "settings", "the same settings but for capacity and what was approved"
    entry = seen.record.last("retry")
    if entry is None:
        return unproven(name, Reason.EVIDENCE_INCOMPLETE, expected, "nothing", UNRECORDED)
    asked = entry.get("changes") or []
    used = (seen.record.last("retry-comparison") or {}).get("changes") or []
    told = _told([*asked, *used]) or "no setting is another"
    unlike = [item for item in (*asked, *used) if item["kind"] in UNLIKE and not item["approved"]]
    if any(item["kind"] == "semantic" or item in asked for item in unlike):
        return failed(name, Reason.RETRY_SETTING_CHANGED, expected, told, _told(unlike))
    if unlike:
        return unproven(name, Reason.RETRY_SETTING_UNKNOWN, expected, told,
                        f"the trainer says that it used another value: {_told(unlike)}")
    return passed(name, expected, told)


def _told(changes: list[dict[str, Any]]) -> str:
    rows = [f"{item['key']}: {_given(item.get('before'))} -> {_given(item.get('after'))} ({item['kind']}"
            f"{', approved' if item['approved'] else ''})" for item in changes]
    return "; ".join(rows[:SHOWN]) + (f" and {len(rows) - SHOWN} more" if len(rows) > SHOWN else "")


def _given(value: object) -> str:
    return "not given" if value is None else str(value)[:200]


def check_identity(seen: Observation) -> Check:
    """Code, weights, data, framework and environment are those of the run before."""
    name, expected = "identity", "the same code, weights, data, framework and environment"
    entry = seen.record.last("retry")
    if entry is None:
        return unproven(name, Reason.EVIDENCE_INCOMPLETE, expected, "nothing", UNRECORDED)
    differences = entry.get("identity") or []
    told = "; ".join(f"{item['what']}: {item['before'][:200]} -> {item['after'][:200]}"
                     f"{' (approved)' if item['approved'] else ''}" for item in differences)
    open_ones = [item for item in differences if not item["approved"]]
    unlike = [item["what"] for item in open_ones if item["before"] != item["after"]]
    if not unlike and open_ones:
        what = ", ".join(item["what"] for item in open_ones)
        return unproven(name, Reason.RETRY_IDENTITY_UNPROVEN, expected, told, f"the same by name alone: {what}")
    if unlike:
        return failed(name, Reason.RETRY_IDENTITY_DIFFERS, expected, told, f"not approved: {', '.join(unlike)}")
    return passed(name, expected, told or "no difference")


def check_metrics(seen: Observation) -> Check:
    """The losses agree at the steps that both runs logged, exactly only where determinism was declared."""
    name = "metrics"
    entry, compared = seen.record.last("retry") or {}, seen.record.last("retry-comparison")
    if compared is None:
        return unproven(name, Reason.EVIDENCE_INCOMPLETE, "losses beside each other", "nothing",
                        "the two runs were not compared")
    if compared.get("rollout"):
        return not_applicable(name, f"rollouts are sampled, and never the same twice: {_means(compared)}")
    learnt = [item["key"] for item in (*(entry.get("changes") or []), *(compared.get("changes") or []))
              if item["kind"] in UNLIKE]
    if learnt:
        return not_applicable(name, f"{', '.join(learnt[:SHOWN])} was changed, so that other values are expected")
    tags = [item for item in compared.get("tags") or [] if item["points"] or item.get("first")]
    if not tags:
        return not_applicable(name, "no loss at a step that both runs logged")
    return _agreement(name, compared, tags)


def _agreement(name: str, compared: dict[str, Any], tags: list[dict[str, Any]]) -> Check:
    rtol, atol = compared.get("rtol") or 0.0, compared.get("atol") or 0.0
    expected = "exactly the same losses (determinism was declared)" if compared.get("deterministic") else (
        f"losses within {atol:g} + {rtol:g} x the earlier value")
    noise, runs = compared.get("noise") or {}, compared.get("noise_runs") or 0
    wide = {tag: value for tag, value in noise.items() if value > rtol and any(item["tag"] == tag for item in tags)}
    if wide:
        told = ", ".join(f"{tag} {value:.3g}" for tag, value in wide.items())
        expected += f", or within the noise of the lineage's {runs} whole runs: {told}"
    apart = [item for item in tags if item.get("first")]
    if not apart:
        exact = all(item.get("exact") for item in tags)
        return passed(name, expected, f"{sum(item['points'] for item in tags)} points of "
                      f"{', '.join(item['tag'] for item in tags)}{', exactly equal' if exact else ''}")
    worst = min(apart, key=lambda item: item["first"].get("step") or 0)
    first = worst["first"]
    observed = (f"{worst['tag']} at step {first.get('step')}: {_value(first.get('expected'))} before, "
                f"{_value(first.get('actual'))} now")
    why = f"abs error {first.get('abs_error')}, rel error {first.get('rel_error')}; {worst.get('missing', 0)} missing"
    if compared.get("stated") or first.get("actual") is None or worst.get("nonfinite"):
        return failed(name, Reason.RETRY_METRICS_DIVERGE, expected, observed, why)
    return unproven(name, Reason.RETRY_METRICS_DIFFER, expected, observed, why)


def _value(value: Any) -> str:
    if value is None:
        return "no value"
    return str(value.get("repr")) if isinstance(value, dict) else f"{value:.6g}"


def _means(compared: dict[str, Any]) -> str:
    rows = [f"mean {item['tag']} {_value(item.get('mean_before'))} before, {_value(item.get('mean_after'))} now"
            for item in compared.get("tags") or [] if item["points"]]
    return "; ".join(rows[:SHOWN]) or "no step in common"
