"""What a training program's source says about it: imports, names, literal settings, flags. Read, never run.

The entrypoint is read, and from there the modules of the project itself: those that lie beside it, below the
working directory, or below a `src` folder of it. What is installed is not read.
"""

from __future__ import annotations

import ast
import warnings
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from harness.command.model import TrainingCommand

MAX_SOURCE_BYTES = 2 << 20
MAX_FILES = 60
_NOT_OURS = frozenset({"site-packages", "dist-packages", ".venv", "venv", "node_modules"})
_FLAG_CALLS = frozenset({"add_argument", "option"})
_ABSL_PREFIX = "DEFINE_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call, with its arguments as far as they are literals; UNKNOWN stands for the others."""

    name: str
    """Last part of what is called: `Trainer` of `lightning.Trainer(...)`."""
    args: tuple[Any, ...]
    literals: dict[str, Any]
    """Keyword arguments."""
    is_open: bool
    """Whether `**kwargs` may hold more."""
    file: str
    options: dict[str, str] = field(default_factory=dict)
    """Keyword arguments that are an attribute as it is, `max_epochs=args.epochs`: the attribute's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """One source file."""

    path: Path
    imports: dict[str, frozenset[str]]
    """{module as written: names taken from it, empty for a plain import}."""
    attributes: frozenset[str]
    """Dotted names that are used, such as `transformers.Trainer`."""
    calls: tuple[Call, ...]
    flags: dict[str, Any]
    """Command-line flags that it defines by literals, without dashes, `_` for `-`, and their literal defaults."""
    called: frozenset[str] = frozenset()
    """Last parts of everything that is called."""
    relative: tuple[tuple[int, str, frozenset[str]], ...] = ()
    loop_bounds: frozenset[str] = frozenset()
    """Attributes that bound a loop: `steps` of `for step in range(args.steps)` and of `while step < args.steps`."""
    spellings: dict[str, str] = field(default_factory=dict)
    """The flags as they are written: {max_steps: --max-steps}."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The entrypoint first, then the project's modules in the order in which they were met."""

    modules: tuple[Module, ...] = ()
    truncated: bool = False

    def importer(self, *packages: str) -> Module | None:
        """The first file that imports one of the packages, or something below it."""
        return next((m for m in self.modules if any(_below(name, packages) for name in m.imports)), None)

    def user(self, packages: Iterable[str], names: Iterable[str]) -> tuple[Module, str] | None:
        """The first file that takes one of `names` from one of the packages, and which."""
        wanted, packages = tuple(names), tuple(packages)
        for module in self.modules:
            for name in wanted:
                if any(_below(m, packages) and name in taken for m, taken in module.imports.items()):
                    return module, name
                if any(_ends(dotted, packages, name) for dotted in module.attributes):
                    return module, name
        return None

    def names(self, *packages: str) -> frozenset[str]:
        """Everything that is taken from the packages, in any file."""
        found: set[str] = set()
        for module in self.modules:
            for name, taken in module.imports.items():
                if _below(name, packages):
                    found |= taken
            found |= {d.rpartition(".")[2] for d in module.attributes if _below(d, packages)}
        return frozenset(found)

    def calls(self, *suffixes: str) -> list[Call]:
        """Calls of what is named so, or ends so where the suffix begins with `*`."""
        return [
            call
            for module in self.modules
            for call in module.calls
            if any(
                call.name.endswith(s[1:]) if s.startswith("*") else call.name == s for s in suffixes
            )
        ]

    def does_call(self, *names: str) -> bool:
        """Whether something of that name is called in any file."""
        return any(name in module.called for module in self.modules for name in names)

    def flags(self) -> dict[str, Any]:
        """Flags that the program defines by literals, with their defaults; UNKNOWN where none is literal."""
        return {flag: default for module in reversed(self.modules) for flag, default in module.flags.items()}

    def declared(self, flag: str) -> str:
        """A flag as written and the file that defines it: `--max-steps in train.py`; "" for one it has not."""
        return next((f"{m.spellings[flag]} in {m.path.name}" for m in self.modules if flag in m.spellings), "")

    def bounds_a_loop(self, name: str) -> bool:
        """Whether an option of that name is what a loop runs to."""
        return any(name in module.loop_bounds for module in self.modules)

    def where(self, module: Module) -> str:
        """A file as a person would name it: the entrypoint by its name, another with who leads to it."""
        entry = self.modules[0]
        if module is entry:
            return module.path.name
        return f"{module.path.name} (used by {entry.path.name})"


def read_program(command: TrainingCommand, workdir: Path) -> Program:
    """The program that a command starts; empty where its source is not told."""
    entry = entry_file(command, workdir)
    if entry is None:
        return Program()
    try:
        stamp = entry.stat().st_mtime_ns
    except OSError:
        return Program()
    return _read(entry, workdir, stamp)


def entry_file(command: TrainingCommand, workdir: Path) -> Path | None:
    """The Python file that is started: the script, or that of `python -m MODULE` where it is the project's."""
    if command.entrypoint is not None:
        return command.entrypoint if command.entrypoint.suffix != ".sh" else None
    if not command.module:
        return None
    inner = command.module.replace(".", "/")
    for root in (workdir, workdir / "src"):
        for candidate in (root / f"{inner}.py", root / inner / "__main__.py"):
            if candidate.is_file():
                return candidate
    return None


@lru_cache(maxsize=8)
def _read(entry: Path, workdir: Path, _stamp: int) -> Program:
    roots = tuple(dict.fromkeys((entry.parent, workdir, workdir / "src")))
    found: dict[Path, Module] = {}
    waiting = deque([entry])
    truncated = False
    while waiting:
        path = waiting.popleft()
        if path in found:
            continue
        if len(found) >= MAX_FILES:
            truncated = True
            break
        module = read_module(path)
        if module is None:
            if path == entry:
                return Program()
            continue
        found[path] = module
        waiting.extend(_project_files(module, roots))
    return Program(modules=tuple(found.values()), truncated=truncated)


def read_module(path: Path) -> Module | None:
    """One file; None for what cannot be read or does not parse here."""
    try:
        with path.open("rb") as stream:
            source = stream.read(MAX_SOURCE_BYTES)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            visitor = _Visitor(path)
            visitor.visit(ast.parse(source, str(path)))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return Module(
        path=path,
        imports={name: frozenset(taken) for name, taken in visitor.imports.items()},
        attributes=frozenset(visitor.attributes),
        calls=tuple(visitor.calls),
        flags=visitor.flags,
        called=frozenset(visitor.called),
        relative=tuple(visitor.relative),
        loop_bounds=frozenset(visitor.loop_bounds),
        spellings=visitor.spellings,
    )


@dataclass(slots=True)
class _Visitor:
    """Collects over a syntax tree without recursion; blocks under `if TYPE_CHECKING:` are left out."""

    path: Path
    imports: dict[str, set[str]] = field(default_factory=dict)
    relative: list[tuple[int, str, frozenset[str]]] = field(default_factory=list)
    aliases: dict[str, str] = field(default_factory=dict)
    attributes: set[str] = field(default_factory=set)
    calls: list[Call] = field(default_factory=list)
    flags: dict[str, Any] = field(default_factory=dict)
    called: set[str] = field(default_factory=set)
    loop_bounds: set[str] = field(default_factory=set)
    spellings: dict[str, str] = field(default_factory=dict)

    def visit(self, tree: ast.AST) -> None:
        nodes = list(_walk(tree))
        for node in nodes:
            self._import(node)
        for node in nodes:
            if isinstance(node, ast.Attribute):
                self._attribute(node)
            elif isinstance(node, ast.Call):
                self._call(node)
            elif isinstance(node, (ast.For, ast.While)):
                self.loop_bounds |= set(_bounds(node))

    def _import(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                self.imports.setdefault(alias.name, set())
                self.aliases[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom):
            names = frozenset(alias.name for alias in node.names)
            if node.level:
                self.relative.append((node.level, node.module or "", names))
                return
            self.imports.setdefault(node.module or "", set()).update(names)
            for alias in node.names:
                self.aliases[alias.asname or alias.name] = f"{node.module}.{alias.name}"

    def _attribute(self, node: ast.Attribute) -> None:
        dotted = _dotted(node)
        if dotted is None:
            return
        head, _, rest = dotted.partition(".")
        if head in self.aliases:
            self.attributes.add(f"{self.aliases[head]}.{rest}")

    def _call(self, node: ast.Call) -> None:
        name = _called(node.func)
        if name is None:
            return
        self.called.add(name)
        literals = {item.arg: _literal(item.value) for item in node.keywords if item.arg is not None}
        if name in _FLAG_CALLS:
            default = literals.get("default", UNKNOWN)
            names = [text for text in _texts(node.args) if text.startswith("-")]
            self.flags |= {_flag(text): default for text in names}
            self.spellings |= {_flag(text): text for text in names}
        elif name.startswith(_ABSL_PREFIX):
            default = _literal(node.args[1]) if len(node.args) > 1 else UNKNOWN
            self.flags |= {_flag(text): default for text in _texts(node.args[:1])}
            self.spellings |= {_flag(text): f"--{text}" for text in _texts(node.args[:1])}
        if literals or name[:1].isupper():
            is_open = any(keyword.arg is None for keyword in node.keywords)
            original = self.aliases.get(name, name).rpartition(".")[2]
            args = tuple(_literal(item) for item in node.args)
            plain = [(item.arg, item.value) for item in node.keywords if item.arg]
            options = {name: value.attr for name, value in plain if isinstance(value, ast.Attribute)}
            call = Call(
                name=original, args=args, literals=literals, is_open=is_open, file=self.path.name, options=options
            )
            self.calls.append(call)


class _Unknown:
    """A value that only running the program would tell."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN = _Unknown()


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return UNKNOWN


def _bounds(node: ast.For | ast.While) -> Iterator[str]:
    """Attributes in `range(...)` of a for loop, or in what a while loop compares."""
    if isinstance(node, ast.While):
        bound: list[ast.expr] = [node.test] if isinstance(node.test, ast.Compare) else []
    else:
        inner = [call for call in ast.walk(node.iter) if isinstance(call, ast.Call)]
        bound = [item for call in inner if _called(call.func) in ("range", "trange") for item in call.args]
    for item in bound:
        yield from (found.attr for found in ast.walk(item) if isinstance(found, ast.Attribute))


def _walk(tree: ast.AST) -> Iterator[ast.AST]:
    waiting: deque[ast.AST] = deque([tree])
    while waiting:
        node = waiting.popleft()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            waiting.extend(node.orelse)
            continue
        yield node
        waiting.extend(ast.iter_child_nodes(node))


def _dotted(node: ast.Attribute) -> str | None:
    parts: list[str] = []
    inner: ast.expr = node
    while isinstance(inner, ast.Attribute):
        parts.append(inner.attr)
        inner = inner.value
    return ".".join([inner.id, *reversed(parts)]) if isinstance(inner, ast.Name) else None


def _called(node: ast.expr) -> str | None:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None


def _texts(nodes: Iterable[ast.expr]) -> list[str]:
    return [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def _flag(text: str) -> str:
    return text.lstrip("-").replace("-", "_")


def _below(name: str, packages: Iterable[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def _ends(dotted: str, packages: Iterable[str], name: str) -> bool:
    return _below(dotted, packages) and dotted.rpartition(".")[2] == name


def _project_files(module: Module, roots: tuple[Path, ...]) -> list[Path]:
    """Files of the project that a module imports, where they lie there."""
    found: list[Path] = []
    for name, taken in module.imports.items():
        for root in roots:
            found += _files_of(root, name, taken)
    for level, name, taken in module.relative:
        base = module.path.parent
        for _ in range(level - 1):
            base = base.parent
        found += _files_of(base, name, taken)
    return [path for path in dict.fromkeys(found) if not _NOT_OURS & set(path.parts)]


def _files_of(root: Path, name: str, taken: frozenset[str]) -> list[Path]:
    parts = [part for part in name.split(".") if part]
    base = root.joinpath(*parts)
    candidates = [base.with_suffix(".py")] if parts else []
    if base.is_dir():
        candidates += [base / "__init__.py", *(base / f"{item}.py" for item in sorted(taken))]
        candidates += [base / item / "__init__.py" for item in sorted(taken)]
    try:
        return [path for path in candidates if path.is_file()]
    except OSError:
        return []
