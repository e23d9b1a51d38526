"""The samples of a rollout run, for the journal: found among what the run wrote, measured, the reward called again."""

from __future__ import annotations

import glob
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from harness.record import outdir
from harness.samples.model import RolloutSample, text_features
from harness.samples.read import SamplesRead, read_samples
from harness.samples.reward import recompute
from harness.supervise.preflight import Plan

MAX_TEXT = 2000
"""Characters of a prompt or a completion that the evidence keeps."""
MAX_MESSAGES = 40


def sample_facts(plan: Plan, written: Callable[[Path], bool]) -> dict[str, Any] | None:
    """{file, rows, problem, last, first, recomputed}; None where the algorithm makes no samples."""
    if plan.facts.algorithm_kind not in ("rollout", "agentic") and plan.spec.samples is None:
        return None
    path = _newest(plan, written)
    if path is not None and not written(path):
        return {"file": outdir.relative(plan.spec.out_dir, str(path)), "rows": 0, "last": None, "first": None,
                "problem": "it is older than the launch", "recomputed": None}
    if path is None:
        return {"file": None, "rows": 0, "problem": "", "last": None, "first": None, "recomputed": None}
    read = read_samples(path, _python(plan) or (sys.executable,), plan.environment)
    return {
        "file": outdir.relative(plan.spec.out_dir, str(path)), "rows": read.rows, "problem": read.problem,
        "last": _facts(plan, read.last), "first": _facts(plan, read.first),
        "recomputed": _recomputed(plan, read),
    }


def _newest(plan: Plan, written: Callable[[Path], bool]) -> Path | None:
    """--samples, else the latest of the adapter's files that this run wrote."""
    if plan.spec.samples is not None:
        return plan.spec.samples
    found = [Path(path) for pattern in plan.facts.sample_globs for path in glob.glob(pattern)]  # noqa: PTH207
    mine = [path for path in found if written(path)]
    return max(mine, key=lambda path: (path.stat().st_mtime, path.name), default=None)


def _python(plan: Plan) -> tuple[str, ...]:
    return (str(plan.interpreter),) if plan.interpreter else ()


def _facts(plan: Plan, sample: RolloutSample | None) -> dict[str, Any] | None:
    """A sample as the journal keeps it: measured whole, its texts shortened and without secrets."""
    if sample is None:
        return None
    features = text_features(_model_text(sample))
    return {
        "step": sample.step, "agentic": sample.agentic, "prompt": _short(plan, sample.prompt),
        "completion": _short(plan, sample.completion), "reward": sample.reward,
        "response_tokens": sample.response_tokens, "chars": features.chars,
        "undecodable_share": features.undecodable_share, "repetition": features.repetition,
        "messages": [_message(plan, item) for item in sample.messages[:MAX_MESSAGES]],
        "num_messages": len(sample.messages),
    }


def _model_text(sample: RolloutSample) -> str:
    """What the model wrote: of a transcript every turn of the assistant."""
    turns = [str(item["content"]) for item in sample.messages
             if item.get("role") == "assistant" and isinstance(item.get("content"), str)]
    return "\n".join(turns) if any(turn.strip() for turn in turns) else sample.completion


def _message(plan: Plan, item: Mapping[str, Any]) -> dict[str, Any]:
    content = item.get("content")
    kept: dict[str, Any] = {"role": str(item.get("role")),
                            "content": _short(plan, content) if isinstance(content, str) else None}
    calls = item.get("tool_calls")
    if isinstance(calls, list) and calls:
        kept["tool_calls"] = [{"id": str(call.get("id") or "")} for call in calls if isinstance(call, Mapping)]
    if item.get("tool_call_id") is not None:
        kept["tool_call_id"] = str(item["tool_call_id"])
    return kept


def _short(plan: Plan, text: str) -> str:
    clean = plan.redactor.text(text)
    return clean if len(clean) <= MAX_TEXT else f"{clean[:MAX_TEXT]}… ({len(clean)} characters)"


def _recomputed(plan: Plan, read: SamplesRead) -> dict[str, Any] | None:
    """None where there is no reward function to call, or calling it was forbidden."""
    program = plan.facts.reward_program
    if program is None or read.last is None or not plan.spec.reward_check:
        return None
    if plan.interpreter is None:
        return {"values": [], "problem": "the trainer's Python could not be told from the command"}
    found = recompute(Path(program), read.last, _python(plan), cwd=plan.spec.workdir, environ=plan.environment)
    return {"values": list(found.values), "problem": plan.redactor.text(found.problem)}
