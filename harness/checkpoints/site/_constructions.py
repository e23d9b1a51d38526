"""How a program makes its models, from its source: each call of a class of torch's modules, its arguments resolved.

An argument is a literal, a name that stands for one, an option of the command line, or what the checkpoint itself
holds under that name.
"""

# mypy: ignore-errors

import ast
import dataclasses
import inspect
import operator
import types

from _program import FUNCTIONS, PURE, bindings, dotted

MAX_DEPTH = 40
MAX_CALLS = 400
_OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
              ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.USub: operator.neg, ast.Not: operator.not_}
_BUILTINS = {item.__name__: item for item in (
    len, int, float, str, bool, range, dict, list, tuple, set, frozenset, sorted, min, max, sum, round, abs)}


class Unknown(Exception):
    """What only running the program would tell."""


@dataclasses.dataclass
class Construction:
    """A way to make a model; `make()` gives a new one, or raises."""

    kind: type
    make: object
    is_root: bool = False
    """Whether it is made outside of every class of modules."""
    where: str = ""


def constructions_of(sources, tables, options):
    """Constructions as the program's calls have them.

    `tables`: mappings that the checkpoint holds; `options`: the command line's.
    """
    found = []
    for reader, call, is_root in calls_of(sources, tables, options):
        kind = reader.kind(call.func)
        if kind is None or len(found) >= MAX_CALLS:
            continue
        try:
            reader.arguments(call)
        except Exception:
            continue
        file = reader.source.path.rpartition("/")[2]
        found.append(Construction(kind=kind, make=_maker(reader, call), is_root=is_root,
                                  where=f"as in {file}:{call.lineno}"))
    return found


def calls_of(sources, tables, options):
    """(what reads its arguments, call, whether it stands outside of every class of modules) of the program's calls."""
    by_name = {}
    for kind in classes_of(sources):
        by_name.setdefault(kind.__name__, kind)
    for source in sources:
        for call, scopes, is_root in _calls(source.tree, by_name):
            yield _Reader(source, scopes, tables, options, by_name), call, is_root


def classes_of(sources):
    """The program's own classes of modules, each once."""
    from torch import nn

    return list(dict.fromkeys(
        value for source in sources for value in list(source.names.values())
        if isinstance(value, type) and issubclass(value, nn.Module) and value.__module__ == source.names["__name__"]))


def from_mappings(kind, mappings, sources):
    """Constructions of a class without arguments, and with what the checkpoint's own mappings hold."""
    try:
        parameters = list(inspect.signature(kind.__init__).parameters.values())[1:]
    except (TypeError, ValueError):
        return
    plain = [item for item in parameters if item.kind not in (item.VAR_POSITIONAL, item.VAR_KEYWORD)]
    needed = [item.name for item in plain if item.default is item.empty]
    if not needed:
        yield Construction(kind=kind, make=kind)
    names = {item.name for item in plain}
    for mapping in mappings:
        given = {name: value for name, value in mapping.items() if name in names}
        if given and set(needed) <= given.keys():
            yield Construction(kind=kind, make=lambda given=given: kind(**given))
        if len(needed) == 1:
            for config in _configs(mapping, sources):
                yield Construction(kind=kind, make=lambda config=config: kind(config))


def _configs(mapping, sources):
    """Objects that a class may take as its configuration: the program's dataclasses first."""
    for source in sources:
        for value in list(source.names.values()):
            if isinstance(value, type) and dataclasses.is_dataclass(value):
                fields = {item.name for item in dataclasses.fields(value) if item.init}
                given = {name: item for name, item in mapping.items() if name in fields}
                if given and len(given) * 2 >= len(mapping):
                    try:
                        yield value(**given)
                    except Exception:
                        continue
    yield types.SimpleNamespace(**mapping)
    yield dict(mapping)


def _maker(reader, call):
    return lambda: reader.value(call)


def _calls(tree, names):
    """(call, the functions around it, whether it stands outside of classes of these names)."""
    pending = [(tree, (), True)]
    while pending:
        node, scopes, is_root = pending.pop()
        if isinstance(node, ast.Call):
            yield node, scopes, is_root
        inner = (*scopes, node) if isinstance(node, FUNCTIONS) else scopes
        outside = is_root and not (isinstance(node, ast.ClassDef) and node.name in names)
        pending += [(child, inner, outside) for child in ast.iter_child_nodes(node)]


class _Reader:
    """Values of expressions at one place of a file."""

    def __init__(self, source, scopes, tables, options, classes):
        self.source, self.scopes, self.classes = source, scopes, classes
        self.tables, self.options, self.depth = tables, options, 0

    def kind(self, node):
        """The class of modules that an expression names; None for anything else."""
        from torch import nn

        try:
            value = self.value(node)
        except Exception:
            value = None
        return value if isinstance(value, type) and issubclass(value, nn.Module) else None

    def value(self, node):
        """Of an expression; Unknown where it is not told."""
        self.depth += 1
        try:
            reader = getattr(self, f"_{type(node).__name__.lower()}", None)
            if reader is None or self.depth > MAX_DEPTH:
                raise Unknown
            return reader(node)
        finally:
            self.depth -= 1

    def arguments(self, call):
        """(args, kwargs) of a call."""
        args, kwargs = [], {}
        for item in call.args:
            args += list(self.value(item.value)) if isinstance(item, ast.Starred) else [self.value(item)]
        for item in call.keywords:
            kwargs.update({item.arg: self.value(item.value)} if item.arg else dict(self.value(item.value)))
        return args, kwargs

    def _constant(self, node):
        return node.value

    def _list(self, node):
        return [self.value(item) for item in node.elts]

    def _tuple(self, node):
        return tuple(self._list(node))

    def _dict(self, node):
        return {self.value(key): self.value(item) for key, item in zip(node.keys, node.values, strict=True)
                if key is not None}

    def _binop(self, node):
        left, right = self.value(node.left), self.value(node.right)
        if type(node.op) not in _OPERATORS or not all(isinstance(side, (int, float)) for side in (left, right)):
            raise Unknown
        return _OPERATORS[type(node.op)](left, right)

    def _unaryop(self, node):
        if type(node.op) not in _OPERATORS:
            raise Unknown
        return _OPERATORS[type(node.op)](self.value(node.operand))

    def _ifexp(self, node):
        return self.value(node.body if self.value(node.test) else node.orelse)

    def _name(self, node):
        for scope in reversed(self.scopes):
            given = [value for name, value in bindings(scope) if name == node.id]
            if given == [None] or len(given) > 1:
                return self._looked_up(node.id)
            if given:
                return self.value(given[0])
            if node.id in (default := _defaults(scope)):
                return self._looked_up(node.id, default[node.id])
        if node.id in self.source.names:
            return self.source.names[node.id]
        if node.id in _BUILTINS:
            return _BUILTINS[node.id]
        given = [value for name, value in bindings(self.source.tree) if name == node.id]
        if len(given) == 1 and given[0] is not None:
            return self.value(given[0])
        return self.classes[node.id] if node.id in self.classes else self._looked_up(node.id)

    def _attribute(self, node):
        try:
            base = self.value(node.value)
        except Unknown:
            if node.attr in self.options:
                return self.options[node.attr]
            return self._looked_up(node.attr)
        if isinstance(base, dict):
            return base[node.attr]
        return getattr(base, node.attr)

    def _subscript(self, node):
        key = self.value(node.slice)
        try:
            return self.value(node.value)[key]
        except (Unknown, LookupError, TypeError):
            return self._looked_up(key)

    def _call(self, node):
        from torch import nn

        name = dotted(node.func)
        if name.endswith(".parse_args") and self.options:
            return types.SimpleNamespace(**self.options)
        if name == "getattr" and len(node.args) > 1:
            return self._attribute(ast.Attribute(value=node.args[0], attr=self.value(node.args[1])))
        called = self.value(node.func)
        is_kind = isinstance(called, type) and (issubclass(called, nn.Module) or dataclasses.is_dataclass(called))
        if not is_kind and name not in PURE:
            raise Unknown
        args, kwargs = self.arguments(node)
        return called(*args, **kwargs)

    def _looked_up(self, name, default=None):
        """What an option or the checkpoint calls so; a guess."""
        for table in (*self.tables, self.options):
            if name in table:
                return table[name]
        if default is None:
            raise Unknown
        return self.value(default)


def _defaults(scope):
    """{parameter: expression of its default, or None} of a function."""
    told = scope.args
    plain = [*told.posonlyargs, *told.args]
    found = {item.arg: None for item in (*plain, *told.kwonlyargs)}
    found.update(zip([item.arg for item in plain[len(plain) - len(told.defaults):]], told.defaults, strict=True))
    found.update(zip([item.arg for item in told.kwonlyargs], told.kw_defaults, strict=True))
    return found
