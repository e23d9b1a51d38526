"""Values that can be read from a syntax tree without running it."""

from __future__ import annotations

import ast
from collections.abc import Iterator


def constant(node: ast.expr | None) -> object:
    """The value of a literal; None for what is none (and for None)."""
    if node is None:
        return None
    try:
        value: object = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    return value


def call_name(node: ast.AST) -> str:
    """Last part of the name that a call calls: `ArgumentParser` of `argparse.ArgumentParser(...)`."""
    function = node.func if isinstance(node, ast.Call) else node
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def dotted_name(node: ast.AST) -> str:
    """`a.b.c` of names and attributes, "" for anything else."""
    if isinstance(node, ast.Attribute):
        base = dotted_name(node.value)
        return f"{base}.{node.attr}" if base else ""
    return node.id if isinstance(node, ast.Name) else ""


def keywords(call: ast.Call) -> dict[str, ast.expr]:
    """Named arguments of a call."""
    return {item.arg: item.value for item in call.keywords if item.arg}


def constants_of(tree: ast.Module) -> dict[str, ast.expr]:
    """Names that a module assigns at its top level -> what is assigned."""
    found: dict[str, ast.expr] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            found.update({target.id: node.value for target in node.targets if isinstance(target, ast.Name)})
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            found[node.target.id] = node.value
    return found


def texts(node: ast.expr | None, known: dict[str, ast.expr]) -> tuple[str, ...]:
    """The words of a literal collection, of a name for one, `list(X)` and `X.keys()`; () where not literal."""
    if isinstance(node, ast.Name):
        node = known.get(node.id)
    if isinstance(node, ast.Call):
        if call_name(node) in ("list", "tuple", "sorted", "set") and len(node.args) == 1:
            return texts(node.args[0], known)
        if call_name(node) == "range":
            numbers = [number for argument in node.args if isinstance(number := constant(argument), int)]
            if numbers and len(numbers) == len(node.args) and 0 not in numbers[2:]:
                return tuple(map(str, range(*numbers)[:1000]))
        if isinstance(node.func, ast.Attribute) and node.func.attr == "keys":
            return texts(node.func.value, known)
        return ()
    if isinstance(node, ast.Dict):
        return tuple(str(constant(key)) for key in node.keys if constant(key) is not None)
    value = constant(node)
    if isinstance(value, (list, tuple, set, frozenset, dict)):
        return tuple(str(item) for item in value)
    return ()


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    """Every call in a tree, in the order of the source where it matters."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    yield from sorted(found, key=lambda node: (node.lineno, node.col_offset))
