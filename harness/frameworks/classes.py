"""The class of a program that a checkpoint can be loaded into, found in its source; nothing is imported here.

Of Lightning's there has to be one. For plain PyTorch a child looks for the one whose keys the checkpoint has, and is
told the program's files.

A file that is a program's own start may run a training when it is imported, so that a class in it counts only where
the file does nothing at its top but define.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.frameworks.settings import Settings
from harness.frameworks.source import MAX_SOURCE_BYTES, Program

_DEFINING = (ast.Import, ast.ImportFrom, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.Pass)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """A program's files, and what its command line sets; secrets may be among it, so that it is written nowhere."""

    files: tuple[Path, ...]
    """The one that is started first."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Flags that the program defines, `_` for `-`, as the command gives them, else their defaults."""
    argv: tuple[str, ...] = ()
    """As the program sees it."""
    whole: bool = True
    """False where files were left out."""
    marks: tuple[tuple[int, int], ...] = ()
    """Time and size of each file when it was found."""

    def is_same(self) -> bool:
        """Whether no file was written since: a program is worked on while it trains."""
        return self.marks == tuple(_mark(path) for path in self.files)


def find_sources(settings: Settings) -> Sources | None:
    """The files of a program that imports torch or Lightning; None for any other."""
    program = settings.program
    if program.importer("torch", "lightning", "pytorch_lightning") is None:
        return None
    told = {name: settings.get(name) for name in program.flags()}
    plain = {name: one.value for name, one in told.items() if isinstance(one.value, (str, int, float, bool, list))}
    files = tuple(module.path for module in program.modules)
    return Sources(files=files, options=plain, whole=not program.truncated, marks=tuple(map(_mark, files)),
                   argv=(*map(str, files[:1]), *settings.command.script_args))


def _mark(path: Path) -> tuple[int, int]:
    try:
        stat = path.stat()
    except OSError:
        return 0, -1
    return stat.st_mtime_ns, stat.st_size


def find_class(program: Program, base: str) -> str | None:
    """`FILE:CLASS` of the only class that has `base` as a base by its last name and none of its own below it."""
    found: list[tuple[Path, str]] = []
    bases: set[str] = set()
    for number, module in enumerate(program.modules):
        tree = _tree(module.path)
        if tree is None or (number == 0 and not _only_defines(tree)):
            continue
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                names = {_last(item) for item in node.bases}
                bases |= names
                if base in names or names & {name for _, name in found}:
                    found.append((module.path, node.name))
    leaves = [(path, name) for path, name in found if name not in bases]
    return f"{leaves[0][0]}:{leaves[0][1]}" if len(leaves) == 1 and not program.truncated else None


def _tree(path: Path) -> ast.Module | None:
    try:
        with path.open("rb") as stream, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(stream.read(MAX_SOURCE_BYTES), str(path))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _only_defines(tree: ast.Module) -> bool:
    """Whether its import runs nothing of weight: definitions, values without a call, and what `__main__` guards."""
    return all(
        isinstance(node, _DEFINING) or _is_guard(node) or _is_text(node)
        or (isinstance(node, (ast.Assign, ast.AnnAssign)) and not any(
            isinstance(inner, ast.Call) for inner in ast.walk(node)))
        for node in tree.body)


def _is_guard(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and any(
        isinstance(inner, ast.Name) and inner.id in ("__name__", "TYPE_CHECKING") for inner in ast.walk(node.test))


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
