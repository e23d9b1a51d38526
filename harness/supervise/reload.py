"""After the run: what it delivers is loaded in a fresh process, and the answer goes into the journal."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from harness.checkpoints.inventory import find_all
from harness.checkpoints.reload import Surroundings, reload_checkpoint
from harness.checkpoints.targets import is_adapter, target_of
from harness.judge.saved import Saved, best_checkpoint, saved_checkpoints
from harness.record import outdir
from harness.record.journal import Journal
from harness.record.run_record import RunRecord, open_record
from harness.supervise.preflight import Plan

MAX_PROMPTS = 3


def reload_delivered(plan: Plan, journal: Journal, is_cancelled: Callable[[], bool]) -> None:
    """Load the best checkpoint, and the model without a step that was delivered beside it, if there is one.

    Nothing that goes wrong here keeps the run from being judged: then it has no reload.
    """
    try:
        _reload_delivered(plan, journal, is_cancelled)
    except Exception as error:  # an out-dir that a job removed, files of any content
        journal.write("evidence-lost", message=f"no checkpoint was reloaded: {error!r}"[:500])


def _reload_delivered(plan: Plan, journal: Journal, is_cancelled: Callable[[], bool]) -> None:
    out_dir = plan.spec.out_dir
    with open_record(out_dir) as record:
        chosen = _chosen(saved_checkpoints(record), best_checkpoint(record))
        prompts = _prompts(record)
    if not chosen:
        return
    found = {str(one.path): one for one in find_all(Path(root) for root in plan.facts.checkpoint_roots)}
    start = Path(plan.facts.start_weights) if plan.facts.start_weights else None
    base = start if start is not None and start.is_dir() and not is_adapter(start) else None
    where = Surroundings(
        interpreter=plan.interpreter or Path(sys.executable), workdir=plan.spec.workdir, environ=plan.environment,
        allow_pickle=plan.spec.allow_pickle, is_cancelled=is_cancelled)
    for saved in chosen:
        one = found.get(str(out_dir / saved.path)) or found.get(saved.path)
        if is_cancelled():
            return
        facts = reload_checkpoint(replace(target_of(one, base), prompts=prompts), where) if one else {
            "status": "not-attempted", "adapter": "", "error": "it is gone", "step": saved.step}
        journal.write("reload", facts={**facts, "path": outdir.relative(out_dir, saved.path)})


def _chosen(saved: tuple[Saved, ...], best: Saved | None) -> list[Saved]:
    """The best, and the last of those without a step: a merged model, a final one."""
    delivered = [one for one in saved if one.step is None and one.status != "damaged"][-1:]
    return list({one.path: one for one in (*([best] if best else []), *delivered)}.values())


def _prompts(record: RunRecord) -> tuple[str, ...]:
    """Prompts that the run trained on, for the language model's samples."""
    rows = (record.fact("dataset", "normalized") or {}).get("samples") or []
    prompts = [row.get("prompt") for row in rows if isinstance(row, dict)]
    return tuple(prompt for prompt in prompts if isinstance(prompt, str) and prompt)[:MAX_PROMPTS]
