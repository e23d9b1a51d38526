"""Python modules of a command: where their source lies, and whether its own interpreter finds them."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from harness.command.interpreter import child_environment
from harness.command.model import TrainingCommand

FIND_TIMEOUT_S = 60.0
MAX_SOURCE_BYTES = 2 << 20
MAX_MODULES = 100
"""Modules of a project that are followed from its entrypoint."""
_FIND = """
import importlib.util, json, os, sys
if os.getcwd() not in sys.path:
    sys.path.insert(0, os.getcwd())
try:
    spec = importlib.util.find_spec(sys.argv[1])
    places = list(spec.submodule_search_locations or ()) if spec else []
    print(json.dumps([spec is not None, spec.origin if spec else None, places]))
except Exception as error:
    print(json.dumps([None, repr(error), []]))
"""


def source_roots(command: TrainingCommand, workdir: Path) -> tuple[Path, ...]:
    """Directories that the program's own imports start from, and `src` layouts below them."""
    directory = command.directory or workdir
    first = command.entrypoint.parent if command.entrypoint else directory
    assigned = dict(command.env_assignments).get("PYTHONPATH", "")
    named = [directory / part for part in assigned.split(os.pathsep) if part]
    roots = [first, *named, directory, directory / "src"]
    return tuple(dict.fromkeys(root for root in roots if root.is_dir()))


def module_file(module: str, roots: Sequence[Path]) -> Path | None:
    """The file of a module below the roots: `pkg/mod.py`, `pkg/mod/__main__.py` for a package, else None."""
    parts = module.split(".")
    for root in roots:
        place = root.joinpath(*parts)
        for path in (place.with_name(place.name + ".py"), place / "__main__.py", place / "__init__.py"):
            if path.is_file():
                return path
    return None


def is_console_script(path: Path) -> bool:
    """Whether a program is a wrapper that an installer wrote: it imports one function and exits with it."""
    try:
        with path.open("rb") as stream:
            text = stream.read(4096)
    except OSError:
        return False
    return path.suffix == "" and b"sys.exit(" in text and bool(re.search(rb"^from [\w.]+ import \w+", text, re.M))


def entry_file(command: TrainingCommand, workdir: Path) -> Path | None:
    """The source of the program that trains, where it is a file of the project."""
    if command.entrypoint is not None:
        return None if is_console_script(command.entrypoint) else command.entrypoint
    return module_file(command.module, source_roots(command, workdir)) if command.module else None


def project_sources(command: TrainingCommand, workdir: Path) -> Iterator[tuple[Path, ast.Module]]:
    """The entrypoint and every module of the project that it imports, directly or not, parsed. Nothing runs."""
    start, roots = entry_file(command, workdir), source_roots(command, workdir)
    waiting = [start] if start else []
    seen: set[Path] = set()
    while waiting and len(seen) < MAX_MODULES:
        path = waiting.pop(0)
        if path in seen:
            continue
        seen.add(path)
        tree = parse_file(path)
        if tree is None:
            continue
        yield path, tree
        waiting += imported_files(path, tree, roots)


def parse_file(path: Path) -> ast.Module | None:
    """The syntax tree of a file, None where it cannot be read or parsed by this Python."""
    try:
        status = path.stat()
        if status.st_size > MAX_SOURCE_BYTES:
            return None
        return _parsed(str(path), status.st_mtime_ns, status.st_size)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


@lru_cache(maxsize=256)
def _parsed(path: str, _time: int, _size: int) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(Path(path).read_bytes(), path)


def imported_files(path: Path, tree: ast.Module, roots: Sequence[Path]) -> list[Path]:
    """Files of the project that a module imports, in the order of its imports."""
    found: list[Path] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
            found += [file for name in names if (file := module_file(name, roots))]
        elif isinstance(node, ast.ImportFrom):
            bases: Sequence[Path] = roots
            if node.level:
                base = path.parent
                for _ in range(node.level - 1):
                    base = base.parent
                bases = (base,)
            stem = [node.module] if node.module else []
            for alias in node.names:
                if file := module_file(".".join([*stem, alias.name]), bases):
                    found.append(file)
            if node.module and (file := module_file(node.module, bases)):
                found.append(file)
    return found


def find_module(
    python: Path, module: str, workdir: Path, environ: Mapping[str, str], command: TrainingCommand
) -> tuple[bool, str] | None:
    """(whether the interpreter finds the top package, what it said); None where it cannot be told.

    Only the finder of the top package runs, never the package itself.
    """
    environ = {**child_environment(command, environ), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            [str(python), "-c", _FIND, module.partition(".")[0]],
            capture_output=True,
            timeout=FIND_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
            cwd=workdir,
            env=environ,
            check=False,
        )
        found, origin, places = json.loads(done.stdout.decode("utf-8", "replace").splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError, TypeError):
        return None
    if found and places and "." in module:
        # A submodule is a file or a directory below; an extension module or an odd loader cannot be told.
        rest = Path(*module.split(".")[1:])
        below = [Path(place) / rest for place in places]
        known = any(path.is_dir() or list(path.parent.glob(path.name + ".*")) for path in below)
        return (known, f"no {rest} below {places[0]}")
    return None if found is None else (bool(found), str(origin))
