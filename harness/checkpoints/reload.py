"""A checkpoint loaded in a fresh process: the request, its limits, and the answer.

The process is the trainer's own interpreter on `site/_reload.py`. It gets nothing of the harness, no network, no
accelerator, a time limit and a memory limit, and it ends when this one does.
"""

from __future__ import annotations

import os
import shlex
import signal
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

from harness.checkpoints.function import FLAG, USAGE, UserFunction
from harness.checkpoints.harmless import harm_of
from harness.checkpoints.likeness import MAX_CANDIDATES
from harness.checkpoints.marks import PREFIX_BYTES, Held, Seen, kinds_of, told
from harness.frameworks.classes import Sources
from harness.launch.child import ChildEnd, Limits, run_child

CHILD = Path(__file__).resolve().parent / "site" / "_reload.py"
TIME_LIMIT_S = 300.0
READ_BYTES_PER_S = 50e6
"""What a slow disk gives; a checkpoint gets the time to be read at this rate beside TIME_LIMIT_S."""
BASE_MEMORY_BYTES = 3 << 30
"""What the libraries themselves may take."""
LEAST_MEMORY_BYTES = 512 << 20
"""What has to be free beside one and a half times the checkpoint, or it is not attempted."""
MEMORY_FACTOR = 2.5
"""How much of its size a checkpoint may take while it is loaded."""
MODEL_TIME_LIMIT_S = 60.0
CODELESS = ("torch", "safetensors", "deepspeed", "torch-distributed")
"""Adapters of formats that hold tensors and nothing of a model's code."""
DIFFERENCES = ("missing", "unexpected", "mismatched")
FAILURES = ("missing", "mismatched", "error_kind")
"""What the class that is named says of a checkpoint that it does not load."""
LEFT_OUT = ("REAL_STEP_PROBE_DIR", "CUDA_VISIBLE_DEVICES")
QUIET = {
    "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "",
    "JAX_PLATFORMS": "cpu", "TOKENIZERS_PARALLELISM": "false", "WANDB_MODE": "disabled", "OMP_NUM_THREADS": "2",
    "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONDONTWRITEBYTECODE": "1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Weights that training may have begun with."""

    path: Path
    adapter: str
    files: tuple[Path, ...]
    bytes: int
    kind: str
    """start-weights, own-step-0 or own-earliest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One checkpoint to load, and how."""

    path: Path
    adapter: str
    """transformers, areno, peft, safetensors, torch, lightning, deepspeed, torch-distributed, keras,
    keras-weights, orbax, flax, tiny_lm; "" where nothing is known that loads it."""
    files: tuple[Path, ...]
    step: int | None = None
    bytes: int = 0
    base: Path | None = None
    """The model that an adapter stands on, where it is known."""
    dtypes: Mapping[str, str] = field(default_factory=dict)
    """Tensor name -> type in the file."""
    module: Path | None = None
    model_class: str | None = None
    """FILE:CLASS of the program, whose code runs there."""
    program: Sources | None = None
    """The program's files, in which a class for plain tensors is looked for."""
    prompts: tuple[str, ...] = ()
    starts: tuple[Start, ...] = ()
    """What its values are compared with there, the best first."""
    seen: Seen = field(default_factory=Seen)
    """What the probe saw of parameters while they were trained, which its values are looked through for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Where it is loaded."""

    interpreter: Path
    workdir: Path
    environ: Mapping[str, str]
    allow_pickle: bool = False
    function: UserFunction | None = None
    """What the user wants done with it once it is loaded."""
    time_limit_s: float = TIME_LIMIT_S
    is_cancelled: Callable[[], bool] = lambda: False


def reload_checkpoint(target: Target, where: Surroundings) -> dict[str, Any]:
    """What the child answered, with path, step and command; status ok, failed, refused or not-attempted.

    With a function and the status ok, `function` is {name, status, error, metrics, nonfinite, outputs}, its status one
    of ok, refuted, raised, unusable and not-attempted, and forward_ok says whether all that it gave was finite.
    Never raises for a checkpoint or for the interpreter.
    """
    facts = {"path": str(target.path), "step": target.step, "adapter": target.adapter,
             "command": command_elsewhere(target, where)}
    if not target.adapter:
        return {**facts, "status": "not-attempted", "error": "its format is not known to any loader"}
    size = target.bytes + _size(target.base) + max((start.bytes for start in target.starts), default=0)
    need, limit = LEAST_MEMORY_BYTES + int(1.5 * size), BASE_MEMORY_BYTES + int(MEMORY_FACTOR * size)
    available = psutil.virtual_memory().available
    if need > available:
        return {**facts, "status": "not-attempted",
                "error": f"it takes {need >> 20} MiB of memory to load, and {available >> 20} MiB are free"}
    started = time.monotonic()
    answer = _ask(_request(target, where), target, where, limit)
    is_found = target.adapter in (*CODELESS, "lightning") and where.function is None
    if answer.get("status") == "ok" and target.program is not None and (is_found or target.model_class is not None):
        harm = harm_of(target.program, start_is_imported=_is_start(target))
        answer = _with_model(answer, target, where, limit) if not harm else {
            **answer, "notes": [*answer.get("notes", ()), f"its program's classes were not run: {harm}; {USAGE} would "
                                "use them as you say"]}
    return {**facts, **_without_digests(answer, target), "seconds": round(time.monotonic() - started, 3)}


def _without_digests(answer: Mapping[str, Any], target: Target) -> dict[str, Any]:
    """The answer with `marks` (a word of checkpoints.marks, or "") in the place of the digests that tell it."""
    held = Held()
    for dtype, shape, digest, values in answer.get("mark_digests") or ():
        held.digests.setdefault((str(dtype), tuple(shape)), []).append(digest)
        held.values.setdefault(tuple(shape), []).append((str(dtype), tuple(values)))
    kept = {key: value for key, value in answer.items() if key != "mark_digests"}
    if not target.seen.marks:
        return kept
    said = told(held, target.seen, target.files)
    return {**kept, "marks": said.word, "marks_at": said.at}


def command_elsewhere(target: Target, where: Surroundings) -> str:
    """The command that does the same on a larger machine."""
    words = ["python", "-m", "harness", "checkpoints", str(target.path), "--reload"]
    words += ["--base", str(target.base)] if target.base else []
    words += ["--allow-pickle"] if where.allow_pickle else []
    words += [FLAG, where.function.word] if where.function else []
    return shlex.join(words)


def _size(base: Path | None) -> int:
    if base is None:
        return 0
    return sum(path.stat().st_size for path in base.glob("*") if path.suffix in (".safetensors", ".bin"))


def _with_model(answer: dict[str, Any], target: Target, where: Surroundings, memory_bytes: int) -> dict[str, Any]:
    """The answer with what a second child found, which runs the program's classes: what becomes of that child is no
    fault of the checkpoint, and of a class that was guessed nothing is."""
    need = LEAST_MEMORY_BYTES + int(MEMORY_FACTOR * target.bytes)
    if need > psutil.virtual_memory().available:
        return {**answer, "notes": [*answer.get("notes", ()), f"no forward pass was made: it takes {need >> 20} MiB"]}
    limited = replace(where, time_limit_s=min(where.time_limit_s, MODEL_TIME_LIMIT_S), function=None)
    request = _request(target, limited) | {
        "starts": [], "kinds": [], "is_model": True, "model_class": target.model_class,
        "is_same": target.program is None or target.program.is_same(),
        "program": _program(target.program) if where.function is None else None}
    found = _ask(request, target, limited, memory_bytes)
    notes = [*answer.get("notes", ()), *found.get("notes", ())]
    is_told = found.get("status") == "ok" or any(found.get(name) for name in FAILURES)
    if not is_told:
        return {**answer, "notes": [*notes, f"no forward pass was made: {found.get('error')}"[:500]]}
    kept = [name for name in ("status", "error", "error_kind", "dtype_changes", "doubts", *DIFFERENCES)
            if name in found]
    forward = found.get("forward_ok") if found.get("forward_ok") is not None else answer.get("forward_ok")
    return {**answer, **{name: found[name] for name in kept}, "forward_ok": forward, "notes": notes}


def _is_start(target: Target) -> bool:
    """Whether the class that is named lies in the program's start."""
    assert target.program is not None
    path = (target.model_class or "").rpartition(":")[0]
    return bool(path) and Path(path) == target.program.files[0]


def _program(sources: Sources | None) -> dict[str, Any] | None:
    return None if sources is None else {
        "files": [str(path) for path in sources.files], "options": dict(sources.options), "argv": list(sources.argv)}


def _ask(request: Mapping[str, Any], target: Target, where: Surroundings, memory_bytes: int) -> dict[str, Any]:
    # Read once to be loaded and, where it is compared, once more.
    read_bytes = 2 * target.bytes + sum(start.bytes for start in target.starts)
    limits = Limits(seconds=where.time_limit_s + read_bytes / READ_BYTES_PER_S, rss_bytes=memory_bytes,
                    is_cancelled=where.is_cancelled)
    answers: list[dict[str, Any]] = []
    # A directory of its own: what a checkpoint writes beside itself lands nowhere.
    with tempfile.TemporaryDirectory(prefix="real-step-reload-") as place:
        ended = run_child([str(where.interpreter), str(CHILD)], request, answers.append,
                          cwd=Path(place), environ=child_environment(where.environ), limits=limits, hold=True)
    if not answers:
        return _unanswered(ended)
    answer = {key: value for part in answers for key, value in part.items()}
    return _with_function(answer, where.function, ended) if where.function else answer


def _with_function(answer: dict[str, Any], function: UserFunction, ended: ChildEnd) -> dict[str, Any]:
    """The answer with what became of the function, also where it was stopped or took the process with it."""
    if answer.get("status") != "ok":
        return answer
    found = answer.get("function")
    if not isinstance(found, dict):
        was_stopped = ended.code not in ("", "died") or ended.exit_code == -signal.SIGKILL
        problem = ended.problem or "it ended the process"
        found = {"name": str(function), "status": "not-attempted" if was_stopped else "raised",
                 "error": f"{problem}, in {function}", "metrics": {}, "nonfinite": [], "outputs": 0}
    forward = {"forward_ok": not found["nonfinite"]} if found["status"] == "ok" else {}
    return {**answer, **forward, "function": found}


def _unanswered(ended: ChildEnd) -> dict[str, Any]:
    """A child that was stopped, or killed for memory, is no fault of the checkpoint; else its last line tells."""
    if ended.code not in ("", "died"):
        return {"status": "not-attempted", "error": ended.problem, "peak_memory_bytes": ended.peak_bytes or None}
    last = ended.output_tail.splitlines()[-1][:500] if ended.output_tail else "no output"
    why = f"the process that loaded it: {ended.problem or 'it gave no answer'}: {last}"
    status = "not-attempted" if ended.exit_code == -signal.SIGKILL or "No module named" in why else "failed"
    return {"status": status, "error": why}


def _request(target: Target, where: Surroundings) -> dict[str, Any]:
    starts = [{"path": str(one.path), "adapter": one.adapter, "files": [str(path) for path in one.files],
               "kind": one.kind} for one in target.starts]
    return {
        "starts": starts, "kinds": sorted([dtype, list(shape)] for dtype, shape in kinds_of(target.seen.marks)),
        "prefix_bytes": PREFIX_BYTES, "max_alike": MAX_CANDIDATES,
        "path": str(target.path), "adapter": target.adapter, "files": [str(path) for path in target.files],
        "base": str(target.base) if target.base else None, "dtypes": dict(target.dtypes),
        "program_files": _imported(target),
        "module": str(target.module) if target.module else None, "prompts": list(target.prompts),
        "workdir": str(where.workdir), "allow_pickle": where.allow_pickle,
        "function": {"file": str(where.function.path), "name": where.function.name} if where.function else None,
    }


def _imported(target: Target) -> list[str]:
    """Files of the program whose definitions may be executed, the start first."""
    is_harmless = target.program is not None and not harm_of(target.program)
    return [str(path) for path in target.program.files] if target.program is not None and is_harmless else []


def child_environment(given: Mapping[str, str]) -> dict[str, str]:
    """The trainer's environment without the probe, network, trackers and accelerators."""
    from harness.probe import site_dir

    environ = {name: value for name, value in given.items() if name not in LEFT_OUT}
    paths = [path for path in environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != str(site_dir())]
    environ.pop("PYTHONPATH", None)
    return environ | QUIET | ({"PYTHONPATH": os.pathsep.join(paths)} if paths else {})
