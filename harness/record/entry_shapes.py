"""What the fields of journal entries are, as far as judging reads them: an entry of another shape is not evidence.

A shape is a type (or a tuple of types), a list of one shape `[shape]`, or an object of named fields `{name: shape}`.
A field may be absent or null unless its name ends in `!`; fields that are not named here may be anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NUMBER = (int, float)
TEXT = str
PROBLEMS = [(str, dict)]
SOURCE = {
    "path!": TEXT, "kind": TEXT, "sha256": TEXT, "first_offset": int, "bytes_read": int, "points": int,
    "stale_points": int, "foreign_points": int, "problems": PROBLEMS,
    "counter": {"patience": int, "waited": int},
    "step_unit": TEXT,
}
CHECKPOINT = {
    "path!": TEXT, "step": int, "epoch": NUMBER, "status": TEXT, "nonfinite": [TEXT], "problems": [TEXT],
    "files": [{"path!": TEXT, "sha256": TEXT, "bytes": int}], "format": TEXT, "notes": [TEXT], "metrics": dict,
}
RELOAD = {
    "path!": TEXT, "status!": TEXT, "step": int, "adapter": TEXT, "error": TEXT, "missing": [TEXT],
    "unexpected": [TEXT], "mismatched": [TEXT], "nonfinite": [TEXT], "tensors": int, "eval_loss": NUMBER,
    "marks": TEXT, "marks_at": int, "command": TEXT, "samples": [dict], "notes": [TEXT], "dtype_changes": [TEXT],
    "doubts": [TEXT], "seconds": NUMBER, "peak_memory_bytes": int,
    "function": {"name!": TEXT, "status!": TEXT, "error": TEXT, "metrics": dict, "nonfinite": [TEXT], "outputs": int},
}
DATASET_PROBLEM = {"code!": TEXT, "message!": TEXT, "reason": TEXT, "count": int}
PROBE_PROCESS = {
    "steps": int, "steps_total": int, "clean_exit": bool,
    "optimizers_created": int, "lr_positive_steps": int, "scaler_skips": int, "world_size": int,
    "restart": int,
    "grad": {"checked": int, "nonzero": int}, "params": {"checked": int, "nonfinite": int}, "rank": int,
    "group_size": int, "devices": [TEXT], "updated_at": NUMBER,
    "optimizers": [{"steps": int, "lr_min": NUMBER, "lr_max": NUMBER, "first_call": int, "last_call": int,
                    "lr_first": [NUMBER], "lr_initial": [NUMBER]}],
    "marks_at": int, "marks": [{"dtype": TEXT, "shape": [int], "changed": bool, "end": TEXT, "sha256": TEXT,
                                "uniform": bool}],
    "exchange": {"observed_steps": int, "first": bool, "steps": int, "few_steps": int, "after": bool, "readable": bool,
                 "whole_steps": int, "hidden_steps": int, "whole_after": bool, "wrappers": [TEXT], "others": [TEXT]},
}
PARSED_PROCESS = {
    "host": TEXT, "pid": int, "ppid": int, "program": TEXT, "stepped": bool,
    "parses": [{"name!": TEXT, "parser!": TEXT, "dest": TEXT, "given": bool, "raw": TEXT, "plain": bool, "value": dict,
                "at_step": dict}],
}
SAMPLE = {
    "step": int, "agentic": bool, "prompt": TEXT, "completion": TEXT, "reward": NUMBER, "chars": int,
    "undecodable_share": NUMBER, "repetition": NUMBER,
    "messages": [{"role": TEXT, "content": TEXT, "tool_calls": [{"id": TEXT}], "tool_call_id": TEXT}],
}
CHANGE = {"key!": TEXT, "before": TEXT, "after": TEXT, "kind!": TEXT, "approved!": bool}
ATTEMPT_ROW = {
    "run_id!": TEXT, "out_dir!": TEXT, "timestamp": TEXT, "harness_version": TEXT, "launched!": bool, "decision!": TEXT,
    "outcome!": TEXT, "terminal_state!": TEXT, "reasons!": [TEXT], "primary_cause": TEXT, "changes!": [CHANGE],
    "identity!": list,
}
SHAPES: Mapping[str, Any] = {
    "run-started": {"harness_version": TEXT, "session": TEXT, "supervisor_pid": int},
    "command": {
        "text": TEXT, "argv": [TEXT], "cwd": TEXT, "env_changes": dict, "entrypoint": TEXT,
        "facts": {"name!": TEXT, "reason!": TEXT, "target_steps": int, "start_weights": TEXT},
        "topology": {"launcher": TEXT, "processes": int, "local": int, "restarts": int},
        "overrides": [{"key!": TEXT}], "capacity": {"tp_size": int, "dp_size": int}, "capacity_line": TEXT,
        "findings": [{"code": TEXT, "message": TEXT}],
    },
    "environment": {"environment": {"accelerators": list}, "commit": dict},
    "dataset": {
        "why": TEXT, "source": TEXT, "hub": TEXT, "revision": TEXT, "local_path": TEXT, "fingerprint": TEXT,
        "rows_seen": int, "rows_total": int, "verdicts": dict, "judged_by": TEXT,
        "errors": [DATASET_PROBLEM], "warnings": [DATASET_PROBLEM],
    },
    "settings": {"values": dict, "files": dict},
    "model": {"source": TEXT, "hub": TEXT, "revision": TEXT, "local_path": TEXT, "fingerprint": TEXT,
              "adapter": {"kind": TEXT, "rank": TEXT, "alpha": TEXT, "target_modules": TEXT, "path": TEXT,
                          "fingerprint": TEXT}},
    "retry": {
        "of!": TEXT, "of_run_id!": TEXT, "approve": [TEXT], "changes": [CHANGE],
        "identity": [{"what!": TEXT, "before!": TEXT, "after!": TEXT, "known!": bool, "approved!": bool}],
        "attempts": [ATTEMPT_ROW],
    },
    "retry-comparison": {
        "changes": [CHANGE], "deterministic": bool, "stated": bool, "rollout": bool, "rtol": NUMBER, "atol": NUMBER,
        "noise": dict, "noise_runs": int,
        "tags": [{"tag!": TEXT, "points!": int, "first": {"step": int, "expected": NUMBER, "actual": NUMBER}}],
    },
    "inventory": {"files": int},
    "attempt-started": {"attempt": int, "launched_at": NUMBER, "after_step": int},
    "attempt-ended": {
        "attempt": int, "exit_code": int, "signal": TEXT, "ended_at": NUMBER, "seconds": NUMBER, "stop_reason": TEXT,
        "resumed_from": int,
    },
    "restart-decision": {"attempt!": int, "cause!": TEXT, "line": TEXT, "why_not": TEXT},
    "launch-failed": {"message": TEXT},
    "stop-requested": {"reason": TEXT},
    "stragglers": {"processes": [dict]},
    "sources": {"sources": [SOURCE], "problems": PROBLEMS},
    "trainer-stop": {"framework!": TEXT, "line!": TEXT, "metric": TEXT, "patience": int},
    "log-end": {
        "exception": TEXT, "is_last": bool, "bytes": int, "lost_bytes": int, "announced_total": int,
        "ending": {"kind!": TEXT, "line!": TEXT},
        "batch_sizes": [int], "printed": {"step": int, "total": int, "steps_per_second": NUMBER},
        "restarts": [{"after_step": int, "first_step": int, "resumed_from": int, "cause": TEXT}],
        "cuts": {"rollouts!": int, "all_cut!": int, "cut!": int, "kept!": int},
        "updates": {"executed!": int, "last_step": int, "skipped!": int, "skipped_steps": [int]},
    },
    "source-notice": {"kind!": TEXT, "message!": TEXT},
    "asserted": {"logs": [TEXT], "exit_code": int, "launched_at": NUMBER, "pid": int, "target": TEXT},
    "probe": {"facts": {"processes": [PROBE_PROCESS], "problems": [TEXT]}},
    "parsed": {"processes": [PARSED_PROCESS], "problems": [TEXT]},
    "checkpoints": {"facts": {
        "checkpoints": [CHECKPOINT], "last_step": int, "latest": TEXT, "why_not_compared": TEXT,
        "delivered_unchanged": [TEXT], "holds_start": [TEXT], "moved": [TEXT],
        "marks": [{"path!": TEXT, "word!": TEXT, "at": int}], "unfinished": [TEXT],
        "repeated": [TEXT], "lost": [TEXT], "earlier": int,
        "save_errors": [dict], "unwritable": TEXT,
        "change": {"start": TEXT, "kind": TEXT, "comparison": dict},
    }},
    "reload": {"facts!": RELOAD},
    "own-evaluation": {"path!": TEXT, "status!": TEXT, "is_control!": bool, "step": int, "argv": [TEXT],
                       "metrics": dict, "error": TEXT},
    "early-stopping": {"evaluations": int, "triggered_at_step": int, "best_step": int, "tag": TEXT},
    "anomaly": {
        "anomaly!": int, "type!": TEXT, "severity!": TEXT, "step": int, "description!": TEXT, "action_taken!": TEXT,
        "state!": TEXT, "ended_step": int, "why": TEXT, "since": NUMBER,
    },
    "anomalies-unlisted": {"counts": dict},
    "stacks": {"path": TEXT, "bytes": int, "problem": TEXT},
    "incident": {
        "metric!": TEXT, "step": int, "rank": int, "writer": TEXT,
        "last_points": {"loss": [list], "grad_norm": [list], "lr": [list]},
    },
    "smoke": {"name!": TEXT, "exit_code": int, "signal": TEXT, "seconds": NUMBER, "peak_memory_bytes": int,
              "peak_gpu_bytes": int, "updates": int, "problem": TEXT, "log": TEXT, "proposals": [TEXT]},
    "attached": {"target": TEXT, "target_type": TEXT},
    "samples": {"file": TEXT, "rows": int, "problem": TEXT, "last": SAMPLE, "first": SAMPLE,
                "recomputed": {"values": [NUMBER], "problem": TEXT}},
    "resume-check": {
        "problem": TEXT, "at": int, "exit_code": int, "points": int, "exact": bool, "suspected": TEXT, "rtol": NUMBER,
        "max_relative": NUMBER, "last_step": int, "expected_last": int, "tags": [TEXT],
        "begins": int, "expected_begins": int, "is_live": bool, "updates": int,
        "first": {"tag": TEXT, "step": int, "expected": NUMBER, "actual": NUMBER, "rel_error": NUMBER},
    },
    "effective-values": {"values": dict},
    "usage": {"peak_memory_bytes": int, "peak_gpu_memory_bytes": int, "looks": int},
    "overhead": {"supervisor_cpu_s": NUMBER, "supervisor_rss_bytes": int},
}
_NAMES = {int: "a whole number", float: "a number", str: "a text", dict: "an object", list: "a list",
          bool: "true or false"}


def shape_problem(entry: Mapping[str, Any]) -> str:
    """Where an entry departs from the shape of its event, "" where it does not."""
    return _problem(entry, SHAPES.get(entry["event"], {}), "")


def _problem(value: Any, shape: Any, where: str) -> str:
    if isinstance(shape, dict):
        return _object_problem(value, shape, where)
    if isinstance(shape, list):
        if not isinstance(value, list):
            return f"{where} is not a list"
        found = (_problem(item, shape[0], f"{where}[{index}]") for index, item in enumerate(value))
        return next(filter(None, found), "")
    kinds = shape if isinstance(shape, tuple) else (shape,)
    if isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool)):
        return ""
    return f"{where} is not {' or '.join(_NAMES[kind] for kind in kinds)}"


def _object_problem(value: Any, shape: dict[str, Any], where: str) -> str:
    if not isinstance(value, Mapping):
        return f"{where} is not an object"
    for named, inner in shape.items():
        name = named.rstrip("!")
        place = f"{where}.{name}" if where else name
        if value.get(name) is None:
            if named != name:
                return f"{place} is missing"
        elif problem := _problem(value[name], inner, place):
            return problem
    return ""
