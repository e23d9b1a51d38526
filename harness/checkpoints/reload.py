"""A checkpoint loaded in a fresh process: the request, its limits, and the answer.

The process is the trainer's own interpreter on `site/_reload.py`. It gets nothing of the harness, no network, no
accelerator, a time limit and a memory limit, and it ends when this one does.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import psutil

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
POLL_S = 0.1
MAX_ANSWER_BYTES = 4 << 20
LEFT_OUT = ("REAL_STEP_PROBE_DIR", "CUDA_VISIBLE_DEVICES")
QUIET = {
    "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "",
    "JAX_PLATFORMS": "cpu", "TOKENIZERS_PARALLELISM": "false", "WANDB_MODE": "disabled", "OMP_NUM_THREADS": "2",
    "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONDONTWRITEBYTECODE": "1",
}


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
    prompts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Where it is loaded."""

    interpreter: Path
    workdir: Path
    environ: Mapping[str, str]
    allow_pickle: bool = False
    time_limit_s: float = TIME_LIMIT_S
    is_cancelled: Callable[[], bool] = lambda: False


def reload_checkpoint(target: Target, where: Surroundings) -> dict[str, Any]:
    """What the child answered, with path, step and command; status ok, failed, refused or not-attempted.

    Never raises for a checkpoint or for the interpreter.
    """
    facts = {"path": str(target.path), "step": target.step, "adapter": target.adapter,
             "command": command_elsewhere(target, where)}
    if not target.adapter:
        return {**facts, "status": "not-attempted", "error": "its format is not known to any loader"}
    size = target.bytes + _size(target.base)
    need, limit = LEAST_MEMORY_BYTES + int(1.5 * size), BASE_MEMORY_BYTES + int(MEMORY_FACTOR * size)
    available = psutil.virtual_memory().available
    if need > available:
        return {**facts, "status": "not-attempted",
                "error": f"it takes {need >> 20} MiB of memory to load, and {available >> 20} MiB are free"}
    started = time.monotonic()
    answer = _ask(target, where, limit)
    return {**facts, **answer, "seconds": round(time.monotonic() - started, 3)}


def command_elsewhere(target: Target, where: Surroundings) -> str:
    """The command that does the same on a larger machine."""
    words = ["python", "-m", "harness", "checkpoints", str(target.path), "--reload"]
    words += ["--base", str(target.base)] if target.base else []
    words += ["--allow-pickle"] if where.allow_pickle else []
    return shlex.join(words)


def _size(base: Path | None) -> int:
    if base is None:
        return 0
    return sum(path.stat().st_size for path in base.glob("*") if path.suffix in (".safetensors", ".bin"))


def _ask(target: Target, where: Surroundings, memory_bytes: int) -> dict[str, Any]:
    limit_s = where.time_limit_s + target.bytes / READ_BYTES_PER_S
    # A directory of its own: what a checkpoint writes beside itself lands nowhere.
    with tempfile.TemporaryDirectory(prefix="real-step-reload-") as place, (Path(place) / "stderr").open("w+b") as err:
        try:
            child = subprocess.Popen(
                [str(where.interpreter), str(CHILD)], cwd=place, env=_environment(where), stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=err, start_new_session=True)
        except OSError as error:
            return _not_attempted(f"{where.interpreter} cannot be started: {error.strerror}")
        try:
            return _answer(child, _request(target, where), limit_s, memory_bytes, err, where)
        finally:
            _end(child)


def _request(target: Target, where: Surroundings) -> bytes:
    fields = {
        "path": str(target.path), "adapter": target.adapter, "files": [str(path) for path in target.files],
        "base": str(target.base) if target.base else None, "dtypes": dict(target.dtypes),
        "module": str(target.module) if target.module else None, "prompts": list(target.prompts),
        "workdir": str(where.workdir), "allow_pickle": where.allow_pickle,
    }
    return json.dumps(fields).encode() + b"\n"


def _environment(where: Surroundings) -> dict[str, str]:
    from harness.probe import site_dir

    environ = {name: value for name, value in where.environ.items() if name not in LEFT_OUT}
    paths = [path for path in environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != str(site_dir())]
    environ.pop("PYTHONPATH", None)
    return environ | QUIET | ({"PYTHONPATH": os.pathsep.join(paths)} if paths else {})


def _answer(
    child: subprocess.Popen[bytes], request: bytes, limit_s: float, memory_bytes: int, err: IO[bytes],
    where: Surroundings,
) -> dict[str, Any]:
    """The child's answer, or why there is none."""
    assert child.stdin is not None and child.stdout is not None
    try:
        child.stdin.write(request)
        child.stdin.flush()
    except OSError:
        return _died(child, err)
    os.set_blocking(child.stdout.fileno(), False)
    said, deadline, peak = bytearray(), time.monotonic() + limit_s, 0
    while not said.endswith(b"\n"):
        part = child.stdout.read(1 << 16)
        if part:
            said += part
        elif part == b"" or len(said) > MAX_ANSWER_BYTES:
            return _died(child, err)
        else:
            peak = max(peak, _memory(child.pid))
            if peak > memory_bytes:
                return _not_attempted(f"it took more than {memory_bytes >> 20} MiB of memory and was stopped", peak)
            if time.monotonic() > deadline:
                return _not_attempted(f"it took longer than {limit_s:.0f} s and was stopped", peak)
            if where.is_cancelled():
                return _not_attempted("the harness was told to end", peak)
            time.sleep(POLL_S if peak else 0.02)
    try:
        answer = json.loads(said)
    except ValueError:
        return _died(child, err)
    return answer if isinstance(answer, dict) else _died(child, err)


def _not_attempted(why: str, peak: int = 0) -> dict[str, Any]:
    return {"status": "not-attempted", "error": why, "peak_memory_bytes": peak or None}


def _memory(pid: int) -> int:
    """Resident bytes of a process."""
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


def _died(child: subprocess.Popen[bytes], err: IO[bytes]) -> dict[str, Any]:
    """A child without an answer: killed for memory is no fault of the checkpoint; else its last line tells."""
    try:
        code = child.wait(timeout=10)
    except subprocess.TimeoutExpired:
        return _not_attempted("it closed its output and went on")
    err.seek(max(0, err.seek(0, os.SEEK_END) - 4096))
    lines = err.read().decode("utf-8", "replace").strip().splitlines()
    why = f"the process that loaded it ended with {code}: {lines[-1][:500] if lines else 'no output'}"
    if code == -signal.SIGKILL or "No module named" in why:
        return _not_attempted(why)
    return {"status": "failed", "error": why}


def _end(child: subprocess.Popen[bytes]) -> None:
    for stream in (child.stdin, child.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(timeout=1)
    # What it started may outlive it.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
