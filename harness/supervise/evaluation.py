"""--eval-check, after the reload: the program's own evaluation mode on what it saved, where its framework has one.

Only where it is asked for, since a program may write elsewhere than into its output directory. It runs as a child on a
CPU, without network and trackers, within a fifth of the run's own time, its output directory one that is gone
afterwards. A second checkpoint that was evaluated in the run shows whether the two evaluations can be compared at all.
"""

from __future__ import annotations

import json
import math
import shlex
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil

from harness.checkpoints.inventory import Checkpoint, find_all
from harness.checkpoints.reload import BASE_MEMORY_BYTES, child_environment
from harness.checkpoints.targets import target_of
from harness.command.parse import parse_command
from harness.command.topology import processes_asked
from harness.environment import num_gpus
from harness.errors import HarnessError
from harness.frameworks.evaluation import Evaluation
from harness.frameworks.registry import evaluation_of
from harness.judge.saved import Saved, saved_checkpoints
from harness.launch.child import Limits, run_child
from harness.metrics.command import open_metrics
from harness.record.journal import Journal
from harness.record.run_record import open_record
from harness.supervise.preflight import Plan
from harness.watch.early_stopping import direction_of, is_evaluation

LEAST_S, MOST_S = 60.0, 300.0
SHARE = 0.2
"""Of the run's own time."""
MEMORY_FACTOR = 4
"""How much of its size a checkpoint may take while it is evaluated, beside BASE_MEMORY_BYTES."""
MAX_METRICS = 50


def evaluate_saved(plan: Plan, journal: Journal, say: Callable[[str], None], must_end: Callable[[], bool]) -> None:
    """Evaluate the reloaded checkpoint, then another one of the run; nothing that goes wrong keeps it from a verdict.

    Where neither this nor --reload-with was asked for, only whether the program has such a mode is written down.
    """
    try:
        if plan.spec.eval_check:
            _evaluate_saved(plan, journal, say, must_end)
        elif plan.spec.reload_with is None:
            _tell_of_it(plan, journal)
    except Exception as error:  # programs and files of any kind
        journal.write("evidence-lost", message=f"no checkpoint was evaluated: {error!r}"[:500])


def _tell_of_it(plan: Plan, journal: Journal) -> None:
    chosen = _choose(plan) if isinstance(_mode(plan, Path("checkpoint"), Path("place")), Evaluation) else ""
    if not isinstance(chosen, str):
        journal.write("own-evaluation", path=chosen[0].path, step=chosen[0].step, is_control=False, status="not-asked")


def _evaluate_saved(plan: Plan, journal: Journal, say: Callable[[str], None], must_end: Callable[[], bool]) -> None:
    chosen = _choose(plan)
    if isinstance(chosen, str):
        journal.write("own-evaluation", path="", is_control=False, **_not_made(chosen))
        return
    with open_record(plan.spec.out_dir) as record:
        took = float((record.last_end() or {}).get("seconds") or 0.0)
    found = {str(one.path): one for one in find_all(Path(root) for root in plan.facts.checkpoint_roots)}
    deadline = time.monotonic() + min(MOST_S, max(LEAST_S, SHARE * took))
    for item in chosen:
        one, is_control = found.get(str(plan.spec.out_dir / item.path)) or found.get(item.path), item is not chosen[0]
        facts = _not_made("it is gone") if one is None else _not_made("the run was to end") if must_end() else (
            _evaluated(plan, one, deadline - time.monotonic(), say, must_end))
        if facts["status"] != "not-made" or not is_control:
            journal.write("own-evaluation", path=item.path, step=item.step, is_control=is_control, **facts)
        if facts["status"] != "ok":
            return


def _not_made(why: str) -> dict[str, Any]:
    return {"status": "not-made", "error": why}


def _choose(plan: Plan) -> tuple[Saved, ...] | str:
    """The reloaded checkpoint and, where there is one, another to compare with; or why none can be evaluated."""
    with open_record(plan.spec.out_dir) as record:
        reloads = [one for entry in record.every("reload") if isinstance(one := entry.get("facts"), dict)]
        loaded = {str(item.get("of")) for item in reloads if item.get("status") == "ok"}
        saved = [one for one in saved_checkpoints(record) if one.status != "damaged" and _was_evaluated(one)]
        ended = record.last_end() or {}
        probed, environment = record.fact("probe", "facts") or {}, record.fact("environment", "environment") or {}
    if ended.get("exit_code") != 0 and not ended.get("stop_reason"):
        return "the run failed"
    if not _was_one_process(probed) or num_gpus(environment) > 1:
        return "the run had several processes or GPUs, each of which may have evaluated a part of the data"
    first = [one for one in saved if one.path in loaded][-1:]
    if not first:
        return "the run logged no evaluation of the checkpoint that was reloaded"
    return (*first, *[one for one in saved if one.step != first[0].step and _is_near(one, first[0])][-1:])


def _was_one_process(probed: Mapping[str, Any]) -> bool:
    """Whether the run's evaluations are those of one process: several each see a part of the data."""
    return all(item.get(name) in (None, 0, 1) for item in probed.get("processes") or []
               for name in ("world_size", "group_size"))


def _is_near(one: Saved, other: Saved) -> bool:
    """Whether a checkpoint's evaluation shows what another's would: at the start of a run many models are alike."""
    return one.step is not None and other.step is not None and 2 * one.step >= other.step


def _was_evaluated(one: Saved) -> bool:
    """Whether the run logged an evaluation at its step whose direction is known: a time or a rate is none."""
    return one.step is not None and any(is_evaluation(name) and direction_of(name) for name in one.metrics)


def _mode(plan: Plan, checkpoint: Path, place: Path) -> Evaluation | str:
    """The command's own evaluation mode; or why it has none, or none for here."""
    command = parse_command(shlex.join(plan.argv), plan.spec.workdir)
    if processes_asked(command).processes != 1 or command.shell_text is not None:
        return "the command starts several processes, or a shell"
    return evaluation_of(plan.facts.name, command, plan.spec.workdir, checkpoint, place) or (
        "no evaluation mode is known for this program: a LightningCLI's fit has one, and a script of transformers with "
        "--do_train, --do_eval, --model_name_or_path and --output_dir")


def _evaluated(
    plan: Plan, one: Checkpoint, seconds: float, say: Callable[[str], None], must_end: Callable[[], bool]
) -> dict[str, Any]:
    """{status, error} and, where it was made, {argv, metrics, seconds}."""
    target = target_of(one)
    limit = BASE_MEMORY_BYTES + MEMORY_FACTOR * target.bytes
    if seconds <= 0 or limit > psutil.virtual_memory().available:
        return _not_made("no time or no memory was left for it")
    with tempfile.TemporaryDirectory(prefix="real-step-evaluation-") as name:
        place, log = Path(name) / "run", Path(name) / "output.log"
        place.mkdir()
        mode = _mode(plan, target.path, place)
        if isinstance(mode, str):
            return _not_made(mode)
        if mode.adapter != target.adapter:
            return _not_made(f"the program's evaluation mode does not take {target.adapter} checkpoints")
        argv = plan.redactor.argv(list(mode.argv))
        say(f"Evaluating {one.path.name} by the program's own mode: {shlex.join(argv)}")
        started = time.monotonic()
        with log.open("wb") as stream:
            ended = run_child(
                mode.argv, {}, lambda message: None, cwd=plan.spec.workdir, printed=stream.write,
                environ=child_environment(plan.environment),
                limits=Limits(seconds=seconds, rss_bytes=limit, is_cancelled=must_end))
        metrics = _metrics(place, log) if ended.exit_code == 0 else {}
        last = ended.output_tail.splitlines()[-1:] if ended.exit_code != 0 else []
        error = "; ".join(filter(None, (ended.problem, *last)))[:500]
        return {"status": "ok" if metrics else "failed", "argv": argv,
                "metrics": metrics, "error": error or None, "seconds": round(time.monotonic() - started, 3)}


def _metrics(place: Path, log: Path) -> dict[str, float]:
    """Evaluations that it wrote: a file of results, else the last values of its metric files, else of its output."""
    readers: tuple[tuple[Callable[[Path], dict[str, float]], Path], ...] = (
        (_results, place), (_last_values, place), (_last_values, log))
    for read, path in readers:
        if found := {name: value for name, value in read(path).items()
                     if math.isfinite(value) and is_evaluation(name) and direction_of(name)}:
            return dict(list(found.items())[:MAX_METRICS])
    return {}


def _results(place: Path) -> dict[str, float]:
    """transformers' save_metrics()."""
    try:
        found = json.loads((place / "eval_results.json").read_bytes()[: 1 << 20])
    except (OSError, ValueError, RecursionError):
        return {}
    return _numbers(found) if isinstance(found, dict) else {}


def _numbers(found: Mapping[str, Any]) -> dict[str, float]:
    return {str(name): float(value) for name, value in found.items()
            if isinstance(value, (int, float)) and not isinstance(value, bool)}


def _last_values(path: Path) -> dict[str, float]:
    problems: list[dict[str, Any]] = []
    try:
        with open_metrics(path, problems) as store:
            return {tag.tag: tag.last_value for tag in store.tags() if tag.last_value is not None}
    except HarnessError:
        return {}
