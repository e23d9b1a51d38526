"""After the run: what it delivers is loaded in a fresh process, and the answer goes into the journal."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.checkpoints.function import function_of
from harness.checkpoints.inventory import Checkpoint, find_all
from harness.checkpoints.marks import MARKED, Seen, is_delivered, seen_by
from harness.checkpoints.naming import INSPECTED_SUFFIX, is_named_aside, is_named_start, likeliest_delivered
from harness.checkpoints.reload import Start, Surroundings, reload_checkpoint
from harness.checkpoints.targets import is_adapter, parts_of, starts_of, target_of
from harness.command.parse import parse_command
from harness.command.shell_text import inner_command
from harness.frameworks.keras import BACKEND, backend_of
from harness.frameworks.settings import Settings
from harness.judge.saved import Saved, best_checkpoint, saved_checkpoints
from harness.record import outdir
from harness.record.journal import Journal
from harness.record.run_record import RunRecord, open_record
from harness.supervise.preflight import Plan

MAX_PROMPTS = 3
MAX_BESIDE = 4


def reload_delivered(plan: Plan, journal: Journal, is_cancelled: Callable[[], bool]) -> None:
    """Load the best checkpoint, and the model without a step that was delivered beside it, if there is one.

    Nothing that goes wrong here keeps the run from being judged: then it has no reload.
    """
    try:
        _reload_delivered(plan, journal, is_cancelled)
    except Exception as error:  # an out-dir that a job removed, files of any content
        journal.write("evidence-lost", message=f"no checkpoint was reloaded: {error!r}"[:500])


def _environment(plan: Plan) -> dict[str, str]:
    """The trainer's, with the backend of Keras that the program sets itself, which wins over one that it is given."""
    command = inner_command(parse_command(shlex.join(plan.argv), plan.spec.workdir))
    program = Settings(command, plan.spec.workdir).program
    backend = backend_of((module.path for module in program.modules), plan.environment.get(BACKEND))
    return {**plan.environment, **({BACKEND: backend} if backend else {})}


def _reload_delivered(plan: Plan, journal: Journal, is_cancelled: Callable[[], bool]) -> None:
    out_dir = plan.spec.out_dir
    with open_record(out_dir) as record:
        chosen = chosen_of(saved_checkpoints(record), best_checkpoint(record))
        prompts, saved = _prompts(record), saved_checkpoints(record)
        beside = beside_of(saved, chosen)
        seen = seen_by(record.fact("probe", "facts", {}) or {})
    if not chosen:
        return
    found = {str(one.path): one for one in find_all(Path(root) for root in plan.facts.checkpoint_roots)}
    start = Path(plan.facts.start_weights) if plan.facts.start_weights else None
    base = start if start is not None and start.is_dir() and not is_adapter(start) else None
    base = Path(plan.facts.base_weights) if plan.facts.base_weights else base
    where = Surroundings(
        interpreter=plan.interpreter or Path(sys.executable), workdir=plan.spec.workdir, environ=_environment(plan),
        allow_pickle=plan.spec.allow_pickle, time_limit_s=plan.spec.reload_timeout_s, is_cancelled=is_cancelled)
    function = function_of(plan.spec.reload_with) if plan.spec.reload_with else None
    own = [one for item in saved if item.status != "damaged" and (one := _of(found, out_dir, item.path)) is not None]
    for item in (*chosen, *beside):
        one = _of(found, out_dir, item.path)
        if is_cancelled():
            return
        if item in beside and (one is None or one.weights or not seen.marks):
            continue
        if one is None:
            journal.write("reload", facts={"path": item.path, "status": "not-attempted", "adapter": "",
                                           "error": "it is gone", "step": item.step})
            continue
        for number, (place, part) in enumerate(parts_of(one).items()):
            is_used = item == chosen[0] or (item in chosen and not is_named_aside(item.path))
            asked = function if number == 0 and is_used else None
            target = replace(target_of(part, base), prompts=prompts, model_class=plan.facts.model_class,
                             program=plan.program)
            target = replace(target, model_class=None, program=None) if item in beside else target
            begun = {"seen": seen} if item in beside else _start(part, place, own, start, seen)
            facts = reload_checkpoint(replace(target, **begun), replace(where, function=asked))
            if item in beside and (facts.get("status") != "ok" or facts.get("marks") not in MARKED):
                continue
            if isinstance(compared := facts.get("comparison"), dict):
                facts["comparison"] = {**compared, "start": outdir.relative(out_dir, str(compared.get("start")))}
            journal.write("reload", facts={**facts, "path": str(Path(item.path) / place), "of": item.path})


def _of(found: Mapping[str, Checkpoint], out_dir: Path, path: str) -> Checkpoint | None:
    return found.get(str(out_dir / path)) or found.get(path)


def _start(
    one: Checkpoint, place: Path, own: list[Checkpoint], start: Path | None, seen: Seen
) -> dict[str, Any]:
    """What the child compares with; safetensors files were compared with their like when they were inspected."""
    if one.step == 0 or is_named_start(str(one.path)):
        return {}
    starts = starts_of(one, own, start, place)
    if one.weights:
        return {"starts": tuple(item for item in starts if not _is_inspected(item))}
    return {"starts": starts, "seen": seen}


def _is_inspected(start: Start) -> bool:
    return all(path.suffix == INSPECTED_SUFFIX for path in start.files)


def chosen_of(saved: tuple[Saved, ...], best: Saved | None) -> list[Saved]:
    """The best, and of those without a step the one that is likeliest delivered: a merged model, a final one."""
    without = [one for one in saved if one.step is None and one.status != "damaged"]
    delivered = likeliest_delivered(without, lambda one: one.path, 1)
    return list({one.path: one for one in (*([best] if best else []), *delivered)}.values())


def beside_of(saved: tuple[Saved, ...], chosen: list[Saved]) -> list[Saved]:
    """Others without a step that may be what is delivered, of which only the probe's marks are looked for."""
    paths = {one.path for one in chosen}
    others = [one for one in saved if one.path not in paths and one.status != "damaged"
              and is_delivered(one.path, one.step, None)]
    return likeliest_delivered(others, lambda one: one.path, MAX_BESIDE)


def _prompts(record: RunRecord) -> tuple[str, ...]:
    """Prompts that the run trained on, for the language model's samples."""
    rows = (record.fact("dataset", "normalized") or {}).get("samples") or []
    prompts = [row.get("prompt") for row in rows if isinstance(row, dict)]
    return tuple(prompt for prompt in prompts if isinstance(prompt, str) and prompt)[:MAX_PROMPTS]
