"""Flags that a trainer's own arguments classes become, read from the installed package's source.

HfArgumentParser and TrlParser make a flag of every field of the classes that a program gives them. The classes of
the package are read in the environment of the command's own interpreter, so that they are those of the release that
will run; only the interpreter's finder runs, nothing of the package is imported.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.command.interpreter import interpreter_path
from harness.command.model import TrainingCommand
from harness.command.modules import find_module, parse_file, project_sources
from harness.command.overrides.argparse_reader import Source
from harness.command.overrides.dataclass_reader import (
    accepted,
    hands_on_the_rest,
    parser_calls,
    reads_the_line,
    with_own,
)
from harness.command.overrides.literals import dotted_name
from harness.command.overrides.model import Flag, FlagTable

MAX_DEPTH = 20
"""Imports and bases that are followed one after the other."""


def argument_table(command: TrainingCommand, workdir: Path, module: str = "") -> FlagTable:
    """The flags that the dataclass parsers of a program accept; empty where only running it would tell.

    `module`: the installed module that is the program, where the command starts none of the project's own.
    """
    python = interpreter_path(command, workdir, os.environ)
    if python is None:
        return FlagTable()
    try:
        return _read_table(Installed(python=python, command=command, workdir=workdir), module)
    except RecursionError:
        # An expression nested thousands of times: the program's own --help may still tell.
        return FlagTable()


def _read_table(installed: Installed, module: str) -> FlagTable:
    command, workdir = installed.command, installed.workdir
    sources = [installed.source(module)] if module else list(project_sources(command, workdir))
    known = [source for source in sources if source is not None]
    if not reads_the_line(known):
        return FlagTable()
    reader = _Reader(installed, known)
    calls = parser_calls(known)
    per_call = [reader.flags(call.classes, call.source) for call in calls]
    names = dict.fromkeys(name for call in calls for name in call.classes)
    return FlagTable(
        flags=tuple(accepted(per_call, any_of=hands_on_the_rest(known))), source=", ".join(names),
    )


@dataclass(slots=True, kw_only=True)
class Installed:
    """The packages of an interpreter, found when first asked for."""

    python: Path
    command: TrainingCommand
    workdir: Path
    _packages: dict[str, Path | None] = field(default_factory=dict)

    def source(self, module: str) -> Source | None:
        """A module with its syntax tree."""
        top, _, rest = module.partition(".")
        root = self._package(top)
        place = root.joinpath(*rest.split(".")) if root and rest else root
        return _read(place) if place else None

    def _package(self, top: str) -> Path | None:
        if top not in self._packages:
            beside = [path.parent / top for path in self._packages.values() if path]
            found = next((path for path in beside if (path / "__init__.py").is_file()), None)
            self._packages[top] = found or self._find(top)
        return self._packages[top]

    def _find(self, top: str) -> Path | None:
        found = find_module(self.python, top, self.workdir, os.environ, self.command)
        origin = Path(found[1]) if found and found[0] else Path()
        return origin.parent if origin.name == "__init__.py" else None


def _read(place: Path) -> Source | None:
    """The module at a path without its suffix, or the package there."""
    for path in (place.with_name(f"{place.name}.py"), place / "__init__.py"):
        if path.is_file():
            tree = parse_file(path)
            return (path, tree) if tree else None
    return None


class _Reader:
    """Classes by the names that a source has for them."""

    def __init__(self, installed: Installed, project: Sequence[Source]) -> None:
        self._installed = installed
        self._own = {
            node.name: (source, node)
            for source in project for node in ast.walk(source[1]) if isinstance(node, ast.ClassDef)
        }

    def flags(self, names: Sequence[str], source: Source) -> list[Flag]:
        """The flags of several classes; the first of a name counts."""
        found: dict[str, Flag] = {}
        for name in names:
            for flag in self._class(name, source, 0):
                found.setdefault(flag.names[0], flag)
        return list(found.values())

    def _class(self, name: str, source: Source, depth: int) -> list[Flag]:
        found = self._find(name, source, depth) or self._own.get(name.rpartition(".")[2])
        if found is None or depth > MAX_DEPTH:
            return []
        where, node = found
        bases: dict[str, Flag] = {}
        for base in reversed(node.bases):
            if dotted_name(base) != name or where != source:
                bases |= {flag.names[0]: flag for flag in self._class(dotted_name(base), where, depth + 1)}
        return with_own(list(bases.values()), node, where[0])

    def _find(self, name: str, source: Source, depth: int) -> tuple[Source, ast.ClassDef] | None:
        """A class by what a source calls it: its own one, or one that it imports from an installed package."""
        path, tree = source
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and node.name == name:
                return source, node
        if depth > MAX_DEPTH:
            return None
        head, _, last = name.rpartition(".")
        for imported in ast.walk(tree):
            if isinstance(imported, ast.Import) and head:
                for alias in imported.names:
                    if (alias.asname or alias.name.partition(".")[0]) == head.partition(".")[0]:
                        top = alias.name if alias.asname else alias.name.partition(".")[0]
                        module = ".".join([top, *head.split(".")[1:]])
                        return self._in(self._installed.source(module), last, depth)
            elif isinstance(imported, ast.ImportFrom) and not head:
                for alias in imported.names:
                    if (alias.asname or alias.name) == name:
                        return self._in(self._module(imported, path), alias.name, depth)
        return None

    def _in(self, source: Source | None, name: str, depth: int) -> tuple[Source, ast.ClassDef] | None:
        return self._find(name, source, depth + 1) if source else None

    def _module(self, node: ast.ImportFrom, path: Path) -> Source | None:
        if not node.level:
            return self._installed.source(node.module or "")
        if node.level > len(path.parents):
            return None
        base = path.parents[node.level - 1]
        return _read(base.joinpath(*(node.module or "").split("."))) if node.module else _read(base)

