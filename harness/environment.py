"""Where a run takes place: host, the trainer's Python and packages, accelerators, its own reports, commit.

Everything here is bounded in time and never raises: what could not be had is null, with the reason beside it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

MAX_PACKAGES = 2000
MAX_REPORT_BYTES = 256 * 1024
GIT_TIMEOUT_S = 20.0
PACKAGES_TIMEOUT_S = 60.0
_NOT_FOR_CHILDREN = ("REAL_STEP_PROBE_DIR",)
"""The probe counts the trainer's processes; those that only report are none."""
_PYTHON_FACTS = """
import importlib.metadata, json, platform, sys
packages = {}
for found in importlib.metadata.distributions():
    try:
        packages.setdefault(str(found.metadata["Name"]), str(found.version))
    except Exception:
        pass
print(json.dumps({"version": platform.python_version(), "implementation": platform.python_implementation(),
                  "executable": sys.executable, "prefix": sys.prefix, "packages": packages}))
"""


def record_environment(
    *,
    workdir: Path,
    reports: Sequence[tuple[str, Sequence[str]]],
    environ: Mapping[str, str],
    timeout: float,
    interpreter: Path | None = None,
) -> dict[str, Any]:
    """evidence.environment: host, os, python, packages, accelerators, trainer_report, trainer_check.

    `reports` are (name, argv) of the trainer's own commands, each ended after `timeout` seconds; those with
    "check" in their name are the trainer_check. `interpreter` is the trainer's Python; without one the
    harness's own is recorded.
    """
    child_environ = {name: value for name, value in environ.items() if name not in _NOT_FOR_CHILDREN}
    with ThreadPoolExecutor(max_workers=4 + len(reports)) as pool:
        python = pool.submit(python_facts, interpreter, child_environ)
        devices = pool.submit(accelerators, environ)
        running = [
            pool.submit(trainer_report, name, argv, workdir, child_environ, timeout) for name, argv in reports
        ]
        facts, packages = python.result()
        results = [one.result() for one in running]
        return {
            "host": socket.gethostname() or platform.node() or "unknown",
            "os": os_facts(),
            "python": facts,
            "packages": packages,
            "accelerators": devices.result(),
            "trainer_report": _one_or_all([r for r in results if "check" not in r["name"]]),
            "trainer_check": _one_or_all([r for r in results if "check" in r["name"]]),
        }


def _one_or_all(results: list[dict[str, Any]]) -> Any:
    return results[0] if len(results) == 1 else results or None


def os_facts() -> dict[str, Any]:
    """Operating system and machine; memory in bytes, CPUs as this process may use them."""
    facts: dict[str, Any] = {
        "system": platform.system(),
        "release": platform.release(),
        "machine": platform.machine(),
        "distribution": None,
        "cpus": os.cpu_count(),
        "memory_bytes": None,
    }
    with contextlib.suppress(OSError, AttributeError):
        facts["distribution"] = platform.freedesktop_os_release().get("PRETTY_NAME")
    with contextlib.suppress(OSError, AttributeError):
        facts["cpus"] = len(os.sched_getaffinity(0))
    with contextlib.suppress(ValueError, OSError, AttributeError):
        facts["memory_bytes"] = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return facts


def python_facts(
    interpreter: Path | None, environ: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """(python, packages) of an interpreter, asked in a child; of the harness's own where that fails."""
    why = "the command names no Python that could be asked" if interpreter is None else None
    if interpreter is not None:
        done = run_bounded([str(interpreter), "-c", _PYTHON_FACTS], None, environ, PACKAGES_TIMEOUT_S)
        with contextlib.suppress(ValueError, IndexError, TypeError, AttributeError):
            facts = json.loads(str(done["output"]).splitlines()[-1])
            packages = _bounded_packages(facts.pop("packages").items())
            return {**facts, "of": "trainer", "why": None}, packages
        why = f"{interpreter} could not be asked: {done['error'] or str(done['output'])[-300:]}"
    return _own_python(why)


def _own_python(why: str | None) -> tuple[dict[str, Any], dict[str, str]]:
    import importlib.metadata

    found = (
        (str(d.metadata["Name"]), str(d.version)) for d in importlib.metadata.distributions() if d.metadata
    )
    facts = {
        "version": platform.python_version(),
        "implementation": platform.python_implementation(),
        "executable": sys.executable,
        "prefix": sys.prefix,
        "of": "harness",
        "why": why,
    }
    return facts, _bounded_packages(found)


def _bounded_packages(found: Iterable[tuple[str, str]]) -> dict[str, str]:
    first: dict[str, str] = {}
    for name, version in found:
        first.setdefault(name, version)
    return dict(sorted(first.items(), key=lambda item: item[0].lower())[:MAX_PACKAGES])


def trainer_report(
    name: str, argv: Sequence[str], workdir: Path, environ: Mapping[str, str], timeout: float
) -> dict[str, Any]:
    """What one of the trainer's own reports said: {name, argv, exit_code, seconds, output, error}."""
    done = run_bounded(argv, workdir, environ, timeout)
    return {"name": name, "argv": list(argv), **done, "output": _parsed(str(done["output"]))}


def _parsed(output: str) -> Any:
    """The JSON document that an output is or ends with, else the text."""
    for start in (0, output.find("\n{") + 1, output.find("{")):
        with contextlib.suppress(ValueError, RecursionError):
            document = json.loads(output[max(start, 0) :])
            if isinstance(document, (dict, list)):
                return document
    return output


def run_bounded(
    argv: Sequence[str], cwd: Path | None, environ: Mapping[str, str], timeout: float
) -> dict[str, Any]:
    """Run a child in its own session; after `timeout` seconds it is killed with all that it started."""
    started, error, exit_code = time.monotonic(), None, None
    with tempfile.TemporaryFile() as sink:
        try:
            child = subprocess.Popen(
                list(argv),
                cwd=cwd,
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except (OSError, ValueError) as refused:
            child, error = None, f"could not be started: {refused}"
        if child is not None:
            try:
                exit_code = child.wait(timeout)
            except subprocess.TimeoutExpired:
                error = f"no end after {timeout:g} s"
            finally:
                with contextlib.suppress(OSError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        sink.seek(0)
        output = sink.read(MAX_REPORT_BYTES).decode("utf-8", "replace")
    seconds = round(time.monotonic() - started, 3)
    return {"exit_code": exit_code, "seconds": seconds, "output": output, "error": error}


# Accelerators


def accelerators(environ: Mapping[str, str]) -> list[dict[str, Any]]:
    """NVIDIA devices that CUDA_VISIBLE_DEVICES leaves to the trainer; none, or no driver, is []."""
    with contextlib.suppress(Exception):
        # NVML fails in as many ways as there are drivers, and a machine without one is no error.
        import pynvml

        pynvml.nvmlInit()
        try:
            found = [_device(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount())]
        finally:
            pynvml.nvmlShutdown()
        return _visible(found, environ.get("CUDA_VISIBLE_DEVICES"))
    return []


def num_gpus(environment: Mapping[str, Any]) -> int:
    """Devices of an environment record, as the driver lists them, else as the trainer's own report counts them."""
    report = environment.get("trainer_report")
    counted = report.get("gpu_count") if isinstance(report, Mapping) else None
    return len(environment.get("accelerators") or []) or (counted if isinstance(counted, int) else 0)


def _device(nvml: Any, index: int) -> dict[str, Any]:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)

    def ask(function: Any, *arguments: Any) -> Any:
        with contextlib.suppress(Exception):
            value = function(*arguments)
            return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        return None

    memory = ask(nvml.nvmlDeviceGetMemoryInfo, handle)
    busy = ask(nvml.nvmlDeviceGetUtilizationRates, handle)
    return {
        "kind": "cuda",
        "index": index,
        "name": ask(nvml.nvmlDeviceGetName, handle),
        "uuid": ask(nvml.nvmlDeviceGetUUID, handle),
        "driver": ask(nvml.nvmlSystemGetDriverVersion),
        "memory_total_bytes": memory.total if memory else None,
        "memory_used_bytes": memory.used if memory else None,
        "utilisation_percent": busy.gpu if busy else None,
        "processes": [
            {"pid": process.pid, "memory_bytes": process.usedGpuMemory, "name": _process_name(process.pid)}
            for process in ask(nvml.nvmlDeviceGetComputeRunningProcesses, handle) or []
        ],
    }


def _process_name(pid: int) -> str | None:
    with contextlib.suppress(Exception):
        import psutil

        return str(psutil.Process(pid).name())
    return None


def _visible(devices: list[dict[str, Any]], setting: str | None) -> list[dict[str, Any]]:
    """By CUDA's rule: indices or UUID prefixes, and nothing behind the first that is invalid."""
    if setting is None:
        return devices
    chosen = []
    for word in setting.split(","):
        name = word.strip()
        match = [d for d in devices if name and (str(d["index"]) == name or str(d["uuid"]).startswith(name))]
        if len(match) != 1 and not name.startswith("MIG-"):
            break
        chosen += match or [{"kind": "cuda", "index": None, "name": name, "uuid": name, "processes": []}]
    return chosen


# Commit


def commit_facts(workdir: Path, timeout: float = GIT_TIMEOUT_S) -> dict[str, Any]:
    """{sha, dirty, diff_sha256, reason} of the repository around `workdir`.

    dirty and diff_sha256 are of `git diff HEAD`, so of tracked files: artifacts of earlier runs do not count.
    diff_sha256 is null for a clean tree; `reason` says why something else is.
    """
    with ThreadPoolExecutor(max_workers=2) as pool:
        head = pool.submit(_git, workdir, ["rev-parse", "--verify", "HEAD"], timeout)
        diff = pool.submit(
            _git,
            workdir,
            ["diff", "HEAD", "--binary", "--no-ext-diff", "--no-textconv", "--no-color"],
            timeout,
        )
        (sha, _, _, why), (_, digest, size, diff_why) = head.result(), diff.result()
    if why is not None:
        return {"sha": None, "dirty": None, "diff_sha256": None, "reason": why}
    dirty = None if diff_why else size > 0
    return {"sha": sha.strip(), "dirty": dirty, "diff_sha256": digest if dirty else None, "reason": diff_why}


def _git(workdir: Path, words: Sequence[str], timeout: float) -> tuple[str, str, int, str | None]:
    """(first 4 KiB of the output, its sha256, its size, why it failed)."""
    argv = ["git", "-c", "core.fsmonitor=false", "-c", "core.quotepath=true", *words]
    environ = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    with tempfile.TemporaryFile() as errors:
        try:
            child = subprocess.Popen(
                argv,
                cwd=workdir,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        except FileNotFoundError as error:
            what = "git is not installed" if error.filename == "git" else f"{workdir} does not exist"
            return "", "", 0, what
        except OSError as error:
            return "", "", 0, f"git could not be started: {error}"
        late = threading.Event()

        def end() -> None:
            late.set()
            _kill_group(child.pid)

        timer = threading.Timer(timeout, end)
        timer.start()
        digest, size, first = hashlib.sha256(), 0, b""
        assert child.stdout is not None
        with child.stdout:
            while chunk := child.stdout.read(1 << 16):
                digest.update(chunk)
                size += len(chunk)
                first = first or chunk[:4096]
        exit_code = child.wait()
        timer.cancel()
        errors.seek(0)
        said = errors.read(4096).decode("utf-8", "replace").strip().splitlines()
    if late.is_set():
        return "", "", 0, f"git {words[0]} did not end within {timeout:g} s"
    if exit_code:
        return "", "", 0, said[0] if said else f"git {words[0]} ended with {exit_code}"
    return first.decode("utf-8", "replace"), digest.hexdigest(), size, None


def _kill_group(pid: int) -> None:
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)
