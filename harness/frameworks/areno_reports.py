"""What AReno says about the machine: `areno env --json` and `areno check`, read and judged by what the job needs.

`areno check` prints `OK`, `WARN` and `FAIL` lines, each with a line of detail below, then `Next:` and one step a line.
It asks what CUDA needs, so that without a GPU it fails on machines where `--backend mlx` trains.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.environment import run_bounded

_LINE = re.compile(r"^(OK|WARN|FAIL)\s+(\S.*?)\s*$")
NEEDED_BY_ALL = ("Python", "PyTorch import")
"""Beginnings of the names of checks without which no backend trains."""
NOT_NEEDED = ("metrics_log_dir", "hf_cache")
"""The harness gives a metrics directory of the run's own, and nothing comes from that hub."""
DOCUMENTS = ("AGENTS.md", "CODEMAP.md")
MAX_DOCUMENT_BYTES = 4 << 20
_WHERE = "import importlib.util; found = importlib.util.find_spec('areno'); print(found.origin if found else '')"
WHERE_TIMEOUT_S = 60.0


def parse_check(text: str) -> dict[str, Any]:
    """{findings: [{status, name, detail}], next: [step]} of what `areno check` prints; other lines are passed over."""
    findings: list[dict[str, str]] = []
    steps: list[str] = []
    in_steps = False
    for line in text.splitlines():
        if line.strip() == "Next:":
            in_steps = True
        elif in_steps and line.strip():
            steps.append(line.strip())
        elif found := _LINE.match(line):
            findings.append({"status": found[1], "name": found[2], "detail": ""})
        elif findings and line.startswith(" ") and line.strip() and not findings[-1]["detail"]:
            findings[-1]["detail"] = line.strip()
    return {"findings": findings, "next": steps}


def needed_failures(findings: list[dict[str, str]], backend: str) -> list[str]:
    """`NAME: DETAIL` of the failed checks without which a job of this backend cannot train."""
    failures = [item for item in findings if item["status"] == "FAIL"]
    if backend == "cuda":
        needed = [item for item in failures if not item["name"].startswith(NOT_NEEDED)]
    else:
        needed = [item for item in failures if item["name"].startswith(NEEDED_BY_ALL)]
    return [f"{item['name']}: {item['detail']}" if item["detail"] else item["name"] for item in needed]


def with_findings(
    environment: Mapping[str, Any], backend: str, *, interpreter: Path | None, workdir: Path, environ: Mapping[str, str]
) -> dict[str, Any]:
    """The environment record with both reports read: findings, next steps, what the job needs, GPUs, documents."""
    report, check = dict(environment.get("trainer_report") or {}), dict(environment.get("trainer_check") or {})
    told = report.get("output")
    if isinstance(told, dict):
        report["gpu_count"] = _gpu_count(told)
    report["documents"] = documents(interpreter, workdir, environ)
    parsed = parse_check(str(check.get("output") or ""))
    check |= {**parsed, "backend": backend, "needed_failures": needed_failures(parsed["findings"], backend)}
    return {**environment, "trainer_report": report, "trainer_check": check}


def _gpu_count(told: Mapping[str, Any]) -> int:
    """Devices that AReno's torch can use, else those that its driver lists."""
    torch = told.get("torch")
    count = torch.get("device_count") if isinstance(torch, dict) else None
    listed = told.get("gpus")
    return count if isinstance(count, int) and count else len(listed) if isinstance(listed, list) else 0


def documents(interpreter: Path | None, workdir: Path, environ: Mapping[str, str]) -> dict[str, Any]:
    """{checkout, AGENTS.md, CODEMAP.md}: digests of what describes the AReno checkout; all null without one."""
    checkout = next((place for place in _places(interpreter, workdir, environ) if _is_checkout(place)), None)
    found: dict[str, Any] = {"checkout": str(checkout) if checkout else None}
    for name in DOCUMENTS:
        found[name] = _digest(checkout / name) if checkout else None
    return found


def _places(interpreter: Path | None, workdir: Path, environ: Mapping[str, str]) -> list[Path]:
    """The working directory and those above it, and the directory that holds the imported package."""
    places = [workdir, *workdir.parents]
    if interpreter is not None:
        done = run_bounded([str(interpreter), "-c", _WHERE], None, environ, WHERE_TIMEOUT_S)
        origin = str(done["output"]).strip().splitlines()[-1:] if done["exit_code"] == 0 else []
        places = [*(Path(line).parent.parent for line in origin if line), *places]
    return places


def _is_checkout(place: Path) -> bool:
    """A directory with the package and one of the documents; no installation has those beside it."""
    return (place / "areno" / "__init__.py").is_file() and any((place / name).is_file() for name in DOCUMENTS)


def _digest(path: Path) -> str | None:
    try:
        with path.open("rb") as handle:
            return hashlib.sha256(handle.read(MAX_DOCUMENT_BYTES)).hexdigest()
    except OSError:
        return None
