"""The import rule of ARCHITECTURE.md, over the syntax trees of the whole package, and that no test is in a hurry."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "harness"
LAYERS = (
    ("errors", "spec"),
    ("record",),
    ("command", "launch", "probe", "environment"),
    ("attach",),
    ("metrics",),
    ("frameworks",),
    ("watch",),
    ("capacity", "checkpoints", "data", "samples", "diagnosis"),
    ("judge",),
    ("retry",),
    ("supervise",),
    ("client", "options", "session", "plugin", "commands", "cli", "__main__"),
)
"""Lowest first; a module imports from its own layer's own package and from lower layers only."""
PYTEST_MODULES = {"plugin", "options", "session"}
INSIDE_FUNCTIONS_ONLY = {
    "torch", "modelscope", "transformers", "tensorboard", "jsonschema", "ruamel", "tomlkit", "pynvml", "numpy",
    "google_crc32c", "safetensors",
}


def rooms() -> dict[str, int]:
    """Top-level module or package of harness -> its layer."""
    return {name: level for level, names in enumerate(LAYERS) for name in names}


def modules() -> list[Path]:
    """Every module of the package, the probe's site directory apart: it runs inside the trainer."""
    return sorted(path for path in PACKAGE.rglob("*.py") if "site" not in path.parts)


def imports(path: Path, *, top_level_only: bool) -> Iterator[str]:
    """Dotted names of what a module imports."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = _module_level(tree) if top_level_only else ast.walk(tree)
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _module_level(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        yield node
        yield from _module_level(node)


def room_of(path: Path) -> str:
    """The module's top-level name inside harness."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_arrows_point_down(path: Path) -> None:
    """A module imports only from lower layers, from its own room, or from harness itself."""
    levels, room = rooms(), room_of(path)
    if room == "__init__":
        return
    for name in imports(path, top_level_only=False):
        parts = name.split(".")
        if parts[0] != "harness" or len(parts) < 2 or parts[1] == "__version__":
            continue
        assert parts[1] in levels, f"{path}: {name} is in no layer of ARCHITECTURE.md"
        same = parts[1] == room or (levels[room] == len(LAYERS) - 1 == levels[parts[1]])
        assert same or levels[parts[1]] < levels[room], f"{path} imports {name}, which is not below {room}"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_heavy_and_foreign_imports_stay_inside_functions(path: Path) -> None:
    """pytest only where pytest is spoken to; heavy libraries only where they are used."""
    roots = {name.partition(".")[0] for name in imports(path, top_level_only=True)}
    assert not roots & INSIDE_FUNCTIONS_ONLY, f"{path} imports {roots & INSIDE_FUNCTIONS_ONLY} at module level"
    if room_of(path) not in PYTEST_MODULES:
        assert "pytest" not in roots, f"{path} imports pytest"


def test_command_never_imports_an_adapter() -> None:
    """command/ is handed data; adapters lie above it."""
    for path in (PACKAGE / "command").glob("*.py"):
        assert not any(name.startswith("harness.frameworks") for name in imports(path, top_level_only=False)), path


def test_loading_the_plugin_imports_nothing_heavy() -> None:
    """torch, modelscope, tensorboard, numpy and jsonschema are not loaded by the plugin."""
    code = f"import sys, harness.plugin; print(sorted(set(sys.modules) & {INSIDE_FUNCTIONS_ONLY!r}))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_architecture_page_names_every_room() -> None:
    """ARCHITECTURE.md stays short and names every part of the package."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) < 60
    assert not {room for room in rooms() if room not in text and room != "__main__"}


LEAST_LIMIT_S = 60.0
SHORT_ON_PURPOSE = {("services/test_ssh.py", 1.0), ("services/test_ssh.py", 5.0), ("unit/test_trackers.py", 0.0)}
"""One try of many to connect, a while in which nothing is to happen, and sqlite3 told not to wait."""
LIMIT = re.compile(r"(?:\btimeout(?:: float)? ?= ?|\.wait\(|\.join\(|monotonic\(\) \+ |monotonic\(\) - \w+ < )"
                   r"(\d+(?:\.\d+)?)")


def test_no_limit_of_a_test_is_short() -> None:
    """Of a subprocess, a wait or an elapsed time: where ten processes share two cores a start takes half a minute."""
    found = {(path.relative_to(ROOT / "tests").as_posix(), float(limit))
             for path in (ROOT / "tests").rglob("*.py") for limit in LIMIT.findall(path.read_text(encoding="utf-8"))}
    assert {(name, limit) for name, limit in found if limit < LEAST_LIMIT_S} - SHORT_ON_PURPOSE == set()


def test_hypothesis_is_in_no_hurry() -> None:
    """Neither a deadline of an example nor a health check of speed, whatever a test's own settings leave out."""
    assert settings.default is not None and settings.default.deadline is None
    assert HealthCheck.too_slow in settings.default.suppress_health_check
    own = re.compile(r"suppress_health_check=\[([^\]]*)\]")
    for path in (ROOT / "tests" / "unit").rglob("test_*.py"):
        assert all("too_slow" in text for text in own.findall(path.read_text(encoding="utf-8"))), path
