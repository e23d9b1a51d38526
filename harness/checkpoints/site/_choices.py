"""Signs in a program's source that a checkpoint may rightly differ from the class that is saved in it.

The program chooses what it saves, changes the model after it is made, or changes what its classes are made from.
"""

# mypy: ignore-errors

import ast
import builtins
import re
import sys

from _program import bindings, dotted

_CHANGES = re.compile(r"lora|peft|prun|quanti|parametri|weight_norm|spectral_norm|add_module|register_|resize|surgery")
"""Calls by which a program may change which keys its model has."""
_LISTED = ("state_dict", "named_parameters", "items", "parameters")


def sign_of_choice(sources, names):
    """The first sign, as `what (file:line)`, for keys of these names; "" for none."""
    parts = {part for name in names for part in name.split(".")}
    read = {name for source in sources for name in _read_in_classes(source.tree)}
    for source in sources:
        file = source.path.rpartition("/")[2]
        for node in ast.walk(source.tree):
            if why := (_chooses(node) or _changes(node, names, parts) or _remakes(node, parts) or _rebinds(node, read)
                       or _takes_in(node)):
                return f"{why} ({file}:{node.lineno})"
        names_of_file = [name for name, _ in bindings(source.tree)]
        if twice := sorted(name for name in read if names_of_file.count(name) > 1):
            return f"{twice[0]}, which a class reads, is given two values ({file})"
    return ""


def stored_attributes(sources):
    """Names of attributes that a program gives a value to from outside."""
    return {target.attr for source in sources for node in ast.walk(source.tree) for target in _targets(node)
            if isinstance(target, ast.Attribute) and dotted(target.value) != "self"}


def _read_in_classes(tree):
    for outer in ast.walk(tree):
        if isinstance(outer, ast.ClassDef):
            for node in ast.walk(outer):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                    yield node.id
                elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                    yield node.attr


def _targets(node):
    if isinstance(node, (ast.AugAssign, ast.AnnAssign)):
        return [node.target]
    return node.targets if isinstance(node, ast.Assign) else []


def _chooses(node):
    if isinstance(node, ast.Call) and any(item.arg == "strict" and isinstance(item.value, ast.Constant)
                                          and item.value.value is False for item in node.keywords):
        return "the program loads with strict=False"
    if isinstance(node, ast.DictComp) and any(item.ifs for item in node.generators):
        return "the program chooses entries of a mapping"
    if isinstance(node, ast.For) and any(
            isinstance(inner, ast.Call) and dotted(inner.func).rpartition(".")[2] in _LISTED
            for inner in ast.walk(node.iter)) and any(
            isinstance(inner, ast.Subscript) and isinstance(inner.ctx, ast.Store) for inner in ast.walk(node)):
        return "the program makes a mapping of its own"
    if isinstance(node, ast.Delete) and any(not isinstance(target, ast.Name) for target in node.targets):
        return "the program takes entries out"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "pop":
        return "the program takes entries out"
    return ""


def _changes(node, names, parts):
    """Parts of a model replaced, added or wrapped."""
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        own = isinstance(node.func, ast.Attribute) and dotted(node.func.value) == "self"
        return f"the program calls {name}" if name == "setattr" or (not own and _CHANGES.search(name.lower())) else ""
    for target in _targets(node):
        made = isinstance(node.value, ast.Call) and dotted(node.value.func).rpartition(".")[2][:1].isupper()
        if isinstance(target, ast.Attribute) and target.attr in parts and dotted(target.value) != "self":
            return f"the program changes {target.attr}"
        if isinstance(target, ast.Subscript) and (made or getattr(target.slice, "value", None) in names):
            return "the program changes a part of something"
    return ""


def _remakes(node, parts):
    """A method that gives a module another part than it was made with."""
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or node.name == "__init__":
        return ""
    found = [target.attr for inner in ast.walk(node) for target in _targets(inner)
             if isinstance(target, ast.Attribute) and target.attr in {*parts, "data"}]
    return f"{node.name} changes {found[0]}" if found else ""


def _takes_in(node):
    """An import of what changes models."""
    if not isinstance(node, (ast.Import, ast.ImportFrom)):
        return ""
    names = [getattr(node, "module", None) or "", *(alias.name for alias in node.names)]
    return next((f"the program imports {name}" for name in names if _CHANGES.search(name.lower())), "")


def sign_of_another(sources, call):
    """Whether the model that a call makes is handed to code that is not the program's nor torch's."""
    files = {source.path for source in sources}
    for source in sources:
        variables = {target.id for node in ast.walk(source.tree) if isinstance(node, (ast.Assign, ast.AnnAssign))
                     and node.value is not None and call in ast.walk(node.value)
                     for target in _targets(node) if isinstance(target, ast.Name)}
        for node in ast.walk(source.tree):
            if variables and isinstance(node, ast.Call) and any(
                    isinstance(item, ast.Name) and item.id in variables
                    for item in (*node.args, *(keyword.value for keyword in node.keywords))) and not _is_known(
                    node.func, source, files):
                return f"the program hands its model to {dotted(node.func) or 'a call'} ({node.lineno})"
    return ""


def _is_known(func, source, files):
    """Whether a function is a builtin, one of torch, or of the program, whose own signs are looked for."""
    parts = dotted(func).split(".")
    value = source.names.get(parts[0], getattr(builtins, parts[0], None))
    for part in parts[1:]:
        value = getattr(value, part, None)
    defined = sys.modules.get(getattr(value, "__module__", None) or "")
    return value is not None and (
        (getattr(value, "__module__", None) or "").partition(".")[0] in ("torch", "builtins")
        or getattr(defined, "__file__", None) in files)


def _rebinds(node, read):
    """What a class reads while it is made, changed elsewhere."""
    if isinstance(node, ast.Global):
        return next((f"the program changes {name}, which a class reads" for name in node.names if name in read), "")
    for target in _targets(node):
        if isinstance(target, ast.Attribute) and target.attr in read and dotted(target.value) != "self":
            return f"the program changes {target.attr}, which a class reads"
    if isinstance(node, ast.Attribute) and node.attr == "__dict__":
        return "the program changes attributes by their names"
    return ""
