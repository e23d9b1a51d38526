"""A training program's own names, without running it: of each of its files only what defines is executed.

Its imports run as they did when it trained. Statements that do more than define, and what `__main__` guards, are left
out; a definition that fails leaves out its name alone.
"""

# mypy: ignore-errors

import ast
import importlib.machinery
import importlib.util
import os
import sys
from dataclasses import dataclass, field

MAX_SOURCE_BYTES = 2 << 20
PURE = frozenset({
    "len", "int", "float", "str", "bool", "range", "dict", "list", "tuple", "set", "frozenset", "sorted", "min", "max",
    "sum", "round", "abs", "torch.device", "torch.cuda.is_available", "torch.cuda.device_count", "torch.Size",
    "torch.backends.mps.is_available", "logging.getLogger", "getLogger", "os.environ.get", "os.getenv", "Path",
    "pathlib.Path", "namedtuple", "collections.namedtuple", "TypeVar", "partial", "functools.partial", "math.sqrt",
    "math.ceil", "math.floor", "math.log", "math.log2", "math.prod", "field",
})
"""Calls that only compute a value."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINING = (ast.Import, ast.ImportFrom, ast.ClassDef, ast.Pass, *FUNCTIONS)


@dataclass
class Source:
    """One file: its syntax tree, and the names that it defines."""

    path: str
    tree: ast.Module
    names: dict = field(default_factory=dict)


def load_sources(files, workdir, argv=()):
    """A Source for each file that can be read and has to do with torch or Lightning; the first is the program's start.

    The start is loaded first, so that its imports load the others as they did when it trained.
    """
    # Some of its files read the command line as they are imported.
    sys.argv[:] = argv or sys.argv
    sys.path[:0] = list(dict.fromkeys([*(_root_of(file)[1] for file in files[:1]), workdir,
                                       os.path.join(workdir, "src")]))  # noqa: PTH118
    found = []
    for number, file in enumerate(files):
        try:
            with open(file, "rb") as stream:  # noqa: PTH123
                text = stream.read(MAX_SOURCE_BYTES)
            if number and b"torch" not in text and b"lightning" not in text:
                continue
            found.append(Source(path=file, tree=ast.parse(text, file)))
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            continue
    for source in found:
        source.names = _names_of(source.path)
    return found


def _names_of(path):
    """The namespace of a file: of the module that an import has made of it, else of its definitions."""
    real = os.path.realpath(path)
    for module in list(sys.modules.values()):
        if os.path.realpath(getattr(module, "__file__", None) or "/") == real:
            return vars(module)
    name = _root_of(path)[0]
    name = name if name not in sys.modules else f"_program_{len(sys.modules)}"
    try:
        spec = importlib.util.spec_from_file_location(name, path, loader=_Defining(name, path))
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        return vars(module)
    except BaseException:
        return vars(sys.modules[name]) if name in sys.modules else {}


def _root_of(path):
    """(dotted name, directory on the path) of a file; a package is told by its __init__.py."""
    place, base = os.path.split(path)
    parts = [] if base == "__init__.py" else [os.path.splitext(base)[0]]  # noqa: PTH122
    while os.path.isfile(os.path.join(place, "__init__.py")):  # noqa: PTH113, PTH118
        place, last = os.path.split(place)
        parts.insert(0, last)
    return ".".join(parts), place


class _Defining(importlib.machinery.SourceFileLoader):
    """A file's definitions; never its compiled form, which holds all of it."""

    def get_code(self, fullname):
        path = self.get_filename(fullname)
        return compile(only_defining(ast.parse(self.get_data(path), path)), path, "exec", dont_inherit=True)


def only_defining(tree):
    """The tree without what does more than define, each statement guarded by itself."""
    body = []
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            body.append(node)
        elif defines(node):
            guard = ast.parse("try:\n    pass\nexcept BaseException:\n    pass").body[0]
            guard.body = [node]
            body.append(guard)
    return ast.fix_missing_locations(ast.Module(body=body, type_ignores=[]))


def defines(node):
    """Whether a statement only gives a name to something that costs nothing to make."""
    if isinstance(node, _DEFINING):
        return True
    if isinstance(node, ast.Try):
        handled = [inner for handler in node.handlers for inner in handler.body]
        return all(defines(inner) for inner in (*node.body, *handled, *node.orelse, *node.finalbody))
    if isinstance(node, ast.If):
        names = {inner.id for inner in ast.walk(node.test) if isinstance(inner, ast.Name)}
        return "__name__" not in names and is_pure(node.test) and all(
            defines(inner) for inner in (*node.body, *node.orelse))
    return isinstance(node, (ast.Assign, ast.AnnAssign)) and (node.value is None or is_pure(node.value))


def is_pure(node):
    """Whether an expression calls nothing but what computes a value."""
    return all(dotted(inner.func) in PURE for inner in ast.walk(node) if isinstance(inner, ast.Call))


def dotted(node):
    """`torch.nn.Linear` of an attribute chain; "" for anything else."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def bindings(scope):
    """(name, expression) of what a function or a file gives a name to; None where it is no plain assignment."""
    pending = list(scope.body)
    while pending:
        node = pending.pop()
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            continue
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from _targets(target, node.value)
        elif isinstance(node, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr, ast.For)):
            value = node.value if isinstance(node, (ast.AnnAssign, ast.NamedExpr)) else None
            yield from _targets(node.target, value)
        pending += list(ast.iter_child_nodes(node))


def _targets(target, value):
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, (ast.Tuple, ast.List)):
        values = value.elts if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts) else (
            [None] * len(target.elts))
        for inner, item in zip(target.elts, values, strict=True):
            yield from _targets(inner, item)
