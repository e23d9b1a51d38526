"""The options of an argparse program, read from its syntax trees; nothing is executed.

Parsers are followed by the names that they are assigned to: groups, subparsers, parents, and functions that get
a parser as their argument, over all modules of the project.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.command.overrides.literals import call_name, constant, constants_of, keywords, texts
from harness.command.overrides.model import (
    APPEND,
    LIST,
    OFF_SWITCH,
    ON_OFF,
    OPTIONAL_BOOL,
    SWITCH,
    TEXT_BOOL,
    VALUE,
    Flag,
)

Source = tuple[Path, ast.Module]
Words = tuple[str, ...]
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SKIPPED_ACTIONS = ("help", "version", "store_const", "append_const")
_TYPES = ("int", "float", "str")
DATACLASS_PARSERS = ("HfArgumentParser", "TrlParser", "H4ArgumentParser")
_HIDDEN_OPTIONS = (
    *("add_arguments", "add_class_arguments", "add_subclass_arguments", "add_function_arguments"),
    *("add_dataclass_arguments", "add_lightning_class_args", "add_argparse_args", "add_config_arguments"),
)
"""Calls by which other libraries add options to a parser."""


@dataclass(slots=True)
class ArgparseOptions:
    """What was read."""

    flags: list[Flag] = field(default_factory=list)
    found: bool = False
    """Whether the program has an argparse parser at all."""
    complete: bool = True
    """Whether no option can be missing: every name is a literal, no parser leaves the project."""
    abbreviates: bool = True
    """Whether a unique beginning of a flag's name stands for it."""


@dataclass(slots=True)
class _Scope:
    """Parsers of one module -> the command words before their options.

    A parser's key is its name with the function that it is local to; an attribute belongs to the module.
    """

    path: Path
    constants: dict[str, ast.expr]
    parsers: dict[str, set[Words]] = field(default_factory=lambda: defaultdict(set))
    subparsers: dict[str, set[Words]] = field(default_factory=lambda: defaultdict(set))
    parents: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Parser -> the parsers that it is a parent of."""
    bound: dict[str, ast.expr] = field(default_factory=dict)
    """Name of a bound method (`add = parser.add_argument`) -> its parser."""

    def known(self, table: dict[str, set[Words]], function: str, name: str) -> set[Words]:
        """What a name means in a function: its own, the module's, else that of any function around it."""
        for key in (_key(function, name), _key("", name)):
            if key in table:
                return table[key]
        return {words for key, found in table.items() if key.endswith(f"\0{name}") for words in found}


def _key(function: str, name: str) -> str:
    return name if "." in name else f"{function}\0{name}"


def read_argparse(sources: Sequence[Source]) -> ArgparseOptions:
    """Every `add_argument` of the sources."""
    options = ArgparseOptions()
    scopes = [_scope(path, tree, options) for path, tree in sources]
    handed = _handed_over(sources, scopes, options)
    for (_, tree), scope in zip(sources, scopes, strict=True):
        for function, call in _calls_with_function(tree):
            receiver = _added_to(call, scope, function)
            if receiver is None or not (options.found or _looks_like_parser(call)):
                continue
            for words in sorted(_receivers(receiver, scope, function, handed)):
                _add(options, call, scope, words)
    return options


def _added_to(call: ast.Call, scope: _Scope, function: str) -> ast.expr | None:
    """The parser that a call adds an option to, by the method itself or by a name that it is bound to."""
    if call_name(call) == "add_argument" and isinstance(call.func, ast.Attribute):
        return call.func.value
    if not isinstance(call.func, ast.Name):
        return None
    return scope.bound.get(_key(function, call.func.id)) or scope.bound.get(_key("", call.func.id))


def _looks_like_parser(call: ast.Call) -> bool:
    return any(isinstance(value := constant(argument), str) and value[:1] == "-" for argument in call.args)


def _scope(path: Path, tree: ast.Module, options: ArgparseOptions) -> _Scope:
    scope = _Scope(path=path, constants=constants_of(tree))
    for function, node in _with_function(tree, (ast.Assign, ast.AnnAssign)):
        if not isinstance(node, (ast.Assign, ast.AnnAssign)):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if isinstance(node.value, ast.Attribute) and node.value.attr == "add_argument":
            scope.bound |= {_key(function, ast.unparse(target)): node.value.value for target in targets}
        if not isinstance(node.value, ast.Call):
            continue
        for target in targets:
            _assigned(function, ast.unparse(target), node.value, scope, options)
    return scope


def _assigned(function: str, name: str, call: ast.Call, scope: _Scope, options: ArgparseOptions) -> None:
    called, key = call_name(call), _key(function, name)
    receiver = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    named = keywords(call)
    if called.endswith(("ArgumentParser", "ArgParser")) and called not in DATACLASS_PARSERS:
        options.found = True
        scope.parsers[key].add(())
        options.abbreviates &= constant(named.get("allow_abbrev")) is not False
    elif called == "add_subparsers":
        scope.subparsers[key] |= scope.known(scope.parsers, function, receiver) or {()}
    elif called == "add_parser" and call.args and isinstance(word := constant(call.args[0]), str):
        options.found = True
        for words in scope.known(scope.subparsers, function, receiver) or {()}:
            scope.parsers[key].add((*words, word))
    elif called in ("add_argument_group", "add_mutually_exclusive_group"):
        scope.parsers[key] |= scope.known(scope.parsers, function, receiver) or {()}
    for parent in getattr(named.get("parents"), "elts", []):
        scope.parents[ast.unparse(parent)].append(key)


def _handed_over(
    sources: Sequence[Source], scopes: Sequence[_Scope], options: ArgparseOptions
) -> dict[tuple[str, str], set[Words]]:
    """(function, parameter) -> the command words of the parsers that the project gives it."""
    functions = {
        node.name: node for _, tree in sources for node in ast.walk(tree) if isinstance(node, _FUNCTIONS)
    }
    handed: dict[tuple[str, str], set[Words]] = defaultdict(set)
    for (_, tree), scope in zip(sources, scopes, strict=True):
        for around, call in _calls_with_function(tree):
            options.complete &= call_name(call) not in _HIDDEN_OPTIONS
            given = [argument.id for argument in call.args if isinstance(argument, ast.Name)]
            if not any(scope.known(scope.parsers, around, name) for name in given):
                continue
            function = functions.get(call_name(call))
            if function is None:
                options.complete = False
                continue
            parameters = [item.arg for item in function.args.args]
            parameters = parameters[1:] if parameters[:1] in (["self"], ["cls"]) else parameters
            for argument, parameter in zip(call.args, parameters, strict=False):
                if isinstance(argument, ast.Name):
                    words = scope.known(scope.parsers, around, argument.id)
                    handed[(function.name, parameter)] |= words
    return handed


def _calls_with_function(tree: ast.Module) -> list[tuple[str, ast.Call]]:
    """(name of the innermost function around it, call) of every call, in the order of the source."""
    return [(function, node) for function, node in _with_function(tree, (ast.Call,)) if isinstance(node, ast.Call)]


def _with_function(tree: ast.Module, kinds: tuple[type[ast.AST], ...]) -> list[tuple[str, ast.AST]]:
    found: list[tuple[str, ast.AST]] = []
    waiting: list[tuple[ast.AST, str]] = [(tree, "")]
    while waiting:
        node, function = waiting.pop()
        if isinstance(node, kinds):
            found.append((function, node))
        inner = node.name if isinstance(node, _FUNCTIONS) else function
        waiting += [(child, inner) for child in ast.iter_child_nodes(node)]
    return sorted(found, key=lambda item: (getattr(item[1], "lineno", 0), getattr(item[1], "col_offset", 0)))


def _receivers(
    node: ast.expr, scope: _Scope, function: str, handed: dict[tuple[str, str], set[Words]]
) -> set[Words]:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return _receivers(node.func.value, scope, function, handed)
    name = ast.unparse(node)
    if handed.get((function, name)):
        return handed[(function, name)]
    children = scope.parents.get(name)
    if children:
        inherited = {words for child in children for words in scope.parsers.get(child, ())}
        return inherited or {()}
    return scope.known(scope.parsers, function, name) or {()}


def _add(options: ArgparseOptions, call: ast.Call, scope: _Scope, words: Words) -> None:
    named = keywords(call)
    names = tuple(str(name) for argument in call.args if (name := constant(argument)) is not None)
    if len(names) != len(call.args) or any(item.arg is None for item in call.keywords):
        options.complete = False
    flags = tuple(name for name in names if name.startswith("-"))
    if not flags:
        if ast.unparse(named.get("nargs", ast.Constant(""))).endswith("REMAINDER"):
            options.complete = False
        return
    options.found = True
    kind, kind_type = _kind(named)
    if not kind:
        return
    long = [name for name in flags if name.startswith("--")]
    default = constant(named.get("default"))
    dest = constant(named.get("dest"))
    options.flags.append(
        Flag(
            names=(*long, *(name for name in flags if name not in long)),
            kind=kind,
            type=kind_type,
            choices=texts(named.get("choices"), scope.constants),
            dest=dest if isinstance(dest, str) else "",
            subcommand=words,
            default=None if default is None else str(default),
            place=f"{scope.path.name}:{call.lineno}",
        )
    )


def _kind(named: dict[str, ast.expr]) -> tuple[str, str]:
    """(kind, type) of an option; ("", "") for one that no value can be given to."""
    action = named.get("action")
    word = constant(action) if action is not None else "store"
    word = word if isinstance(word, str) else call_name(action) if action is not None else "store"
    value_type = call_name(named["type"]) if "type" in named else "str"
    value_type = "" if "type" in named and value_type not in (*_TYPES, "bool") else value_type
    if word in _SKIPPED_ACTIONS:
        return "", ""
    if word in ("store_true", "store_false"):
        return (SWITCH if word == "store_true" else OFF_SWITCH), "bool"
    if word == "BooleanOptionalAction":
        return ON_OFF, "bool"
    if word in ("append", "extend", "count"):
        return APPEND, value_type
    if value_type == "bool":
        return TEXT_BOOL, "bool"
    nargs = constant(named.get("nargs"))
    if nargs in ("*", "+") or (isinstance(nargs, int) and nargs > 1):
        return LIST, value_type
    if nargs == "?" and constant(named.get("const")) is True:
        return OPTIONAL_BOOL, "bool"
    return VALUE, value_type
