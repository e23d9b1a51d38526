"""Flags that dataclasses become under HfArgumentParser and its kin, read from the syntax trees of the classes."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.command.overrides.argparse_reader import DATACLASS_PARSERS, Source
from harness.command.overrides.literals import call_name, calls, constant, dotted_name, keywords, texts
from harness.command.overrides.model import LIST, OPTIONAL_BOOL, VALUE, Flag

LINE_METHODS = frozenset({"parse_args_into_dataclasses", "parse_args_and_config", "parse_args", "parse_known_args",
                          "parse"})
OWN_METHODS = frozenset({"parse_args_into_dataclasses", "parse_args_and_config"})
"""Methods of such a parser that read the command line (others read a file), and those that no other parser has."""
_TYPES = {"int": "int", "float": "float", "bool": "bool", "str": "str", "INT": "int", "FLOAT": "float"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ParserCall:
    """`HfArgumentParser((A, B))` in a source."""

    source: Source
    classes: tuple[str, ...]
    """As written: `TrainingArguments`, `transformers.TrainingArguments`."""


def parser_calls(sources: Sequence[Source]) -> list[ParserCall]:
    """Every dataclass parser of a program and the classes that it is given, as far as they are named."""
    found = []
    for source in sources:
        known = _assigned_once(source[1])
        for call in calls(source[1]):
            if call_name(call) in DATACLASS_PARSERS:
                given = [*call.args, *(item.value for item in call.keywords)]
                found.append(ParserCall(source=source, classes=tuple(_class_names(given, known))))
    return found


def reads_the_line(sources: Sequence[Source]) -> bool:
    """Whether flags reach such a parser; not where the program only ever hands it a file, a mapping or own words."""
    every = [call for _, tree in sources for call in calls(tree) if isinstance(call.func, ast.Attribute)]
    held = {ast.unparse(target) for _, tree in sources for target in _holders(tree)}
    own = [call for call in every if _is_parser(_receiver(call), held)]
    if any(call_name(call) in LINE_METHODS for call in own):
        return any(call_name(call) in LINE_METHODS and _from_line(call) for call in own)
    return not own and any(call_name(call) in OWN_METHODS for call in every)


def _holders(tree: ast.Module) -> Iterator[ast.expr]:
    """What a dataclass parser is assigned to."""
    for node in ast.walk(tree):
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or not isinstance(node.value, ast.Call):
            continue
        if call_name(node.value) in DATACLASS_PARSERS:
            yield from node.targets if isinstance(node, ast.Assign) else [node.target]


def _receiver(call: ast.Call) -> ast.expr:
    assert isinstance(call.func, ast.Attribute)
    return call.func.value


def _is_parser(node: ast.expr, held: set[str]) -> bool:
    if isinstance(node, ast.Call):
        return call_name(node) in DATACLASS_PARSERS
    return ast.unparse(node) in held


def _from_line(call: ast.Call) -> bool:
    """Whether the words are the command line's: given ones are not, unless they come from sys.argv."""
    given = keywords(call).get("args", call.args[0] if call.args else None)
    return given is None or (constant(given) is None and not isinstance(given, (ast.List, ast.Tuple)))


def hands_on_the_rest(sources: Sequence[Source]) -> bool:
    """Whether a parser leaves what it does not know to another one."""
    return any(
        constant(keywords(call).get("return_remaining_strings")) is True for _, tree in sources for call in calls(tree)
    )


def accepted(per_call: Sequence[Sequence[Flag]], *, any_of: bool) -> list[Flag]:
    """The flags that the command line may hold: those of every parser, or of any where each leaves the rest."""
    names = [{flag.names[0] for flag in flags} for flags in per_call]
    if not names:
        return []
    common = set.union(*names) if any_of else set.intersection(*names)
    kept = {flag.names[0]: flag for flags in per_call for flag in flags if flag.names[0] in common}
    return list(kept.values())


def _assigned_once(tree: ast.Module) -> dict[str, ast.expr]:
    """Names that are assigned in one place only, in a function too -> what is assigned."""
    found: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    found.setdefault(target.id, []).append(node.value)
    return {name: values[0] for name, values in found.items() if len(values) == 1}


def _class_names(nodes: Sequence[ast.expr], known: dict[str, ast.expr]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, (ast.Tuple, ast.List)):
            yield from _class_names(node.elts, known)
        elif isinstance(node, ast.Name) and isinstance(known.get(node.id), (ast.Tuple, ast.List)):
            yield from _class_names([known[node.id]], {})
        elif isinstance(node, (ast.Name, ast.Attribute)):
            yield dotted_name(node)


def class_flags(name: str, classes: dict[str, ast.ClassDef], path: Path) -> list[Flag]:
    """Flags of one dataclass, those of its bases within `classes` first."""
    node = classes.get(name)
    if node is None:
        return []
    rest = {key: value for key, value in classes.items() if key != name}
    flags = [flag for base in node.bases for flag in class_flags(call_name(base), rest, path)]
    return with_own(flags, node, path)


def with_own(inherited: Sequence[Flag], node: ast.ClassDef, path: Path) -> list[Flag]:
    """The flags of a class: those that it inherits, replaced and followed by those of its own fields."""
    flags = list(inherited)
    if not any(call_name(decorator) == "dataclass" for decorator in node.decorator_list):
        return flags
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            name = statement.target.id
            flag = _field(statement, name, path)
            flags = [item for item in flags if item.names[0] != f"--{name}"]
            flags += [flag] if flag is not None else []
    return flags


def _field(statement: ast.AnnAssign, name: str, path: Path) -> Flag | None:
    kind, kind_type, choices = annotation_kind(statement.annotation)
    default = statement.value
    if kind is None:
        return None
    aliases: object = None
    if isinstance(default, ast.Call) and call_name(default) in ("field", "HfArg"):
        named = keywords(default)
        if constant(named.get("init")) is False:
            return None
        aliases = constant(_metadata(named.get("metadata")).get("aliases", named.get("aliases")))
        default = named.get("default")
    value = constant(default)
    other = (aliases,) if isinstance(aliases, str) else aliases if isinstance(aliases, (list, tuple)) else ()
    spellings = (f"--{name}", f"--{name.replace('_', '-')}", *map(str, other))
    return Flag(
        names=tuple(dict.fromkeys(spellings)),
        kind=kind,
        type=kind_type,
        choices=choices,
        default=None if value is None else str(value),
        place=f"{path.name}:{statement.lineno}",
    )


def _metadata(node: ast.expr | None) -> dict[str, ast.expr]:
    pairs = zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ()
    return {name: value for key, value in pairs if isinstance(name := constant(key), str)}


def annotation_kind(node: ast.expr | None) -> tuple[str | None, str, tuple[str, ...]]:
    """(kind, type, choices) of an annotated setting, Optional apart; kind None for a ClassVar."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        try:
            node = ast.parse(node.value, mode="eval").body
        except SyntaxError:
            return VALUE, "", ()
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _union(_sides(node))
    if isinstance(node, ast.Subscript):
        outer = call_name(node.value)
        if outer in ("Optional", "Final", "Annotated"):
            inner = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) else node.slice
            return annotation_kind(inner)
        if outer == "ClassVar":
            return None, "", ()
        if outer == "Literal":
            values = texts(node.slice, {}) or (str(constant(node.slice)),)
            return VALUE, "", values
        if outer == "Union" and isinstance(node.slice, ast.Tuple):
            return _union(node.slice.elts)
        if outer in ("list", "List"):
            inner = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) else node.slice
            return LIST, _TYPES.get(call_name(inner), ""), ()
    name = call_name(node) if node is not None else ""
    if name in ("ClassVar", "InitVar"):
        return None, "", ()
    if name == "bool":
        return OPTIONAL_BOOL, "bool", ()
    return VALUE, _TYPES.get(name, ""), ()


def _sides(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return [*_sides(node.left), *_sides(node.right)]
    return [node]


def _union(sides: Sequence[ast.expr]) -> tuple[str | None, str, tuple[str, ...]]:
    """Of several types the value's form can only be told where one is left beside None."""
    left = [side for side in sides if not _is_none(side)]
    return annotation_kind(left[0]) if len(left) == 1 else (VALUE, "", ())


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
