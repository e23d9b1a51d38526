"""Whether a program's files can be imported without doing anything: read in their syntax trees, never run.

What a file does at its top, in the body of a class, in a decorator, a default or an annotation happens as it is
imported. All of that may only define, and call what computes a value or sets this process alone.
"""

from __future__ import annotations

import ast
import builtins
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from harness.frameworks.classes import Sources

MAX_SOURCE_BYTES = 2 << 20
_BUILTINS = frozenset({
    "len", "int", "float", "str", "bool", "range", "dict", "list", "tuple", "set", "frozenset", "sorted", "min", "max",
    "sum", "round", "abs", "zip", "enumerate", "isinstance", "hasattr", "getattr", "super", "type", "property",
    "staticmethod", "classmethod", "print", "slice", "object", "any", "all",
})
_PURE = frozenset({
    "torch.device", "torch.cuda.is_available", "torch.cuda.device_count", "torch.Size", "torch.manual_seed",
    "torch.backends.mps.is_available", "torch.set_num_threads", "torch.set_float32_matmul_precision",
    "torch.cuda.manual_seed_all", "torch.set_default_dtype", "torch.tensor", "torch.finfo", "torch.Generator",
    "logging.getLogger", "os.environ.get", "os.getenv", "os.path.join", "os.path.dirname", "os.path.abspath",
    "os.path.realpath", "os.path.exists", "os.path.isfile", "os.path.isdir", "os.path.expanduser", "os.path.basename",
    "os.cpu_count", "os.getcwd", "os.environ.setdefault", "pathlib.Path", "pathlib.Path.cwd", "pathlib.Path.home",
    "collections.namedtuple", "collections.defaultdict", "collections.OrderedDict", "functools.partial", "re.compile",
    "math.sqrt", "math.ceil", "math.floor", "math.log", "math.log2", "math.prod", "math.exp", "random.seed",
    "numpy.random.seed", "numpy.array", "warnings.filterwarnings", "warnings.simplefilter", "dataclasses.field",
    "dataclasses.dataclass", "sys.path.append", "sys.path.insert", "argparse.ArgumentParser", "enum.auto",
    "time.time", "datetime.datetime.now",
})
"""Calls that compute a value, or set what is this process's alone."""
_PREFIXES = ("torch.nn.", "typing.", "typing_extensions.")
_METHODS = frozenset({
    "resolve", "absolute", "expanduser", "with_suffix", "add_argument", "add_argument_group", "parse_args",
    "parse_known_args", "set_defaults", "format", "join", "split", "strip", "lower", "upper", "keys", "items", "values",
    "startswith", "endswith", "is_file", "is_dir", "exists",
})
"""Of a path, a text, a mapping or a parser of the command line, whatever they are called on."""
_DECORATING = frozenset({
    "torch", "hydra", "click", "typing", "typing_extensions", "functools", "dataclasses", "abc", "contextlib", "enum",
    "jaxtyping", "beartype", "lightning", "pytorch_lightning", "einops", "transformers",
})
"""Packages whose decorators only wrap."""
_ACCESSORS = frozenset({"setter", "getter", "deleter"})
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_PLAIN = (ast.Import, ast.ImportFrom, ast.Pass, ast.Global)


def harm_of(sources: Sources, *, start_is_imported: bool = False) -> str:
    """Why a program is not imported, with file and line; "" for one that can be.

    Of its start only the imports and definitions are executed, unless `start_is_imported`.
    """
    if not sources.files or not sources.whole:
        return "not all of the program's files could be looked at"
    for number, path in enumerate(sources.files):
        try:
            with path.open("rb") as stream, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(stream.read(MAX_SOURCE_BYTES), str(path))
            node = _File.of(tree).harm(tree.body, whole=number > 0 or start_is_imported)
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
            return f"{path.name} could not be read: {type(error).__name__}"
        if node is not None:
            return f"{path.name}:{node.lineno} does more than define as it is imported"
    return ""


@dataclass(frozen=True, slots=True)
class _File:
    """What the names of one file stand for."""

    aliases: dict[str, str]
    """Name -> dotted name of what is imported."""
    own: frozenset[str]
    """What the file itself defines."""

    @classmethod
    def of(cls, tree: ast.Module) -> _File:
        aliases: dict[str, str] = {}
        own: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                aliases |= {item.asname or item.name.partition(".")[0]:
                            item.name if item.asname else item.name.partition(".")[0] for item in node.names}
            elif isinstance(node, ast.ImportFrom):
                head = "." * node.level + (node.module or "")
                aliases |= {item.asname or item.name: f"{head}.{item.name}" for item in node.names}
            elif isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
                own.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                own.add(node.id)
        return cls(aliases, frozenset(own))

    def harm(self, body: Iterable[ast.stmt], *, whole: bool) -> ast.stmt | None:
        """The first statement that does more; not `whole`: statements that do not define are not executed."""
        return next((found for node in body if (found := self._harm(node, whole=whole)) is not None), None)

    def _harm(self, node: ast.stmt, *, whole: bool) -> ast.stmt | None:
        if isinstance(node, _PLAIN):
            return None
        if isinstance(node, ast.ClassDef):
            heads = [*node.bases, *(item.value for item in node.keywords)]
            if not self._decorates(node.decorator_list) or not self._are_pure(heads):
                return node
            return self.harm(node.body, whole=True)
        if isinstance(node, _FUNCTIONS):
            return None if self._decorates(node.decorator_list) and self._are_pure(_evaluated(node)) else node
        if isinstance(node, ast.If):
            inner = node.orelse if _is_guard(node.test) else [*node.body, *node.orelse]
            test = [node.test] if whole else []
            return node if not self._are_pure(test) else self.harm(inner, whole=whole)
        if isinstance(node, ast.Try):
            handled = [inner for handler in node.handlers for inner in handler.body]
            return self.harm([*node.body, *handled, *node.orelse, *node.finalbody], whole=whole)
        if not whole:
            return None
        is_plain = isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Assert, ast.Raise,
                                     ast.Delete))
        return None if is_plain and self._are_pure([node]) else node

    def _decorates(self, decorators: Iterable[ast.expr]) -> bool:
        for item in decorators:
            called = item.func if isinstance(item, ast.Call) else item
            name = self._name(called)
            is_known = name.partition(".")[0] in _DECORATING or name in _BUILTINS or (
                isinstance(called, ast.Attribute) and called.attr in _ACCESSORS)
            given = [*item.args, *(one.value for one in item.keywords)] if isinstance(item, ast.Call) else []
            if not is_known or not self._are_pure(given):
                return False
        return True

    def _are_pure(self, nodes: Iterable[ast.AST]) -> bool:
        return all(self._is_pure(inner) for node in nodes for inner in _executed(node) if isinstance(inner, ast.Call))

    def _is_pure(self, call: ast.Call) -> bool:
        name = self._name(call.func)
        if name in _BUILTINS or name in _PURE or name.startswith(_PREFIXES):
            return True
        is_value = not name or name.startswith("<")
        return isinstance(call.func, ast.Attribute) and call.func.attr in _METHODS and is_value

    def _name(self, node: ast.expr) -> str:
        """The dotted name that an expression stands for, `<name>` the file's own; "" for what is none."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        if node.id in self.aliases:
            # A name that is imported and defined is told by neither.
            return "" if node.id in self.own and not parts else ".".join([self.aliases[node.id], *reversed(parts)])
        head = node.id if hasattr(builtins, node.id) and node.id not in self.own else f"<{node.id}>"
        return ".".join([head, *reversed(parts)])


def _evaluated(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.AST]:
    """Defaults and annotations."""
    told = node.args
    yield from (item for item in (*told.defaults, *told.kw_defaults, node.returns) if item is not None)
    for item in (*told.posonlyargs, *told.args, *told.kwonlyargs, told.vararg, told.kwarg):
        if item is not None and item.annotation is not None:
            yield item.annotation


def _executed(node: ast.AST) -> Iterator[ast.AST]:
    """A tree without what lambdas hold."""
    pending = [node]
    while pending:
        one = pending.pop()
        yield one
        if not isinstance(one, ast.Lambda):
            pending += ast.iter_child_nodes(one)


def _is_guard(test: ast.expr) -> bool:
    """`__name__ == "__main__"`."""
    return (isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__"
            and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq))
