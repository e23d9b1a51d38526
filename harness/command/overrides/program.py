"""What a program accepts, read from its source: argparse, dataclass parsers, click, absl, Hydra, LightningCLI."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.command.model import TrainingCommand
from harness.command.modules import project_sources
from harness.command.overrides.argparse_reader import DATACLASS_PARSERS, Source, read_argparse
from harness.command.overrides.dataclass_reader import (
    accepted,
    class_flags,
    hands_on_the_rest,
    parser_calls,
    reads_the_line,
)
from harness.command.overrides.literals import (
    call_name,
    calls,
    constant,
    constants_of,
    dotted_name,
    keywords,
    texts,
)
from harness.command.overrides.model import APPEND, LIST, ON_OFF, SWITCH, VALUE, Flag

_OPTION_READERS = frozenset(
    (
        *("argparse", "click", "typer", "fire", "absl", "tyro", "jsonargparse", "simple_parsing", "docopt"),
        *("configargparse", "tap", "draccus", "pydantic_settings", "cyclopts", "hydra"),
    )
)
_ABSL = {
    "DEFINE_integer": (VALUE, "int"),
    "DEFINE_float": (VALUE, "float"),
    "DEFINE_string": (VALUE, "str"),
    "DEFINE_bool": (ON_OFF, "bool"),
    "DEFINE_boolean": (ON_OFF, "bool"),
    "DEFINE_enum": (VALUE, "str"),
    "DEFINE_list": (VALUE, "str"),
    "DEFINE_multi_string": (APPEND, "str"),
    "DEFINE_multi_integer": (APPEND, "int"),
}
_TYPES = {"int": "int", "float": "float", "bool": "bool", "str": "str", "INT": "int", "FLOAT": "float"}


@dataclass(frozen=True, slots=True, kw_only=True)
class HydraMain:
    """A function under `@hydra.main`."""

    file: Path
    config_path: str | None
    """Relative to the file; None where the decorator has none."""
    config_name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What the source of a program tells about its options."""

    flags: tuple[Flag, ...] = ()
    read: bool = False
    """Whether there was a source to read."""
    complete: bool = False
    """Whether `flags` are all that it has."""
    abbreviates: bool = False
    reads_options: bool = False
    """Whether it looks at its command line at all."""
    from_dataclasses: bool = False
    """HfArgumentParser and its kin: the trainer's own settings are flags too."""
    hydra: HydraMain | None = None
    lightning: bool = False
    lightning_classes: tuple[ast.ClassDef, ...] = ()
    """The model and the data module that LightningCLI is given, where they are the project's own."""
    pairs: bool = False
    """OmegaConf.from_cli: KEY=VALUE words."""
    config_flags: tuple[str, ...] = ()
    """Names of absl config flags: `--config.KEY=VALUE`."""


def read_program(command: TrainingCommand, workdir: Path) -> Program:
    """The options of the program that trains; an empty Program where its source cannot be read."""
    sources = list(project_sources(command, workdir))
    try:
        return _read(sources) if sources else Program()
    except RecursionError:
        # An expression nested thousands of times: the program's own --help may still tell.
        return Program(read=True, reads_options=True)


def _read(sources: Sequence[Source]) -> Program:
    texts_of = {path: path.read_text(encoding="utf-8", errors="replace") for path, _ in sources}

    def holding(*words: str) -> list[Source]:
        # A tree is walked only where its text can hold what is looked for.
        return [(path, tree) for path, tree in sources if any(word in texts_of[path] for word in words)]

    argparse = read_argparse(holding("ArgumentParser", "ArgParser", "add_argument", "add_parser"))
    with_parsers, with_lightning = holding(*DATACLASS_PARSERS), holding("LightningCLI")
    classes: dict[str, ast.ClassDef] = {}
    if with_parsers or with_lightning:
        classes = {node.name: node for _, tree in sources for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    parsed, from_dataclasses = _dataclass_flags(with_parsers, classes)
    other = (*_click_flags(holding("option(")), *_absl_flags(holding("DEFINE_")))
    lightning = _lightning_call(with_lightning, classes)
    readers = holding(*_OPTION_READERS, *DATACLASS_PARSERS, "argv", "LightningCLI")
    hydra = (found for path, tree in holding("hydra") for found in _hydra_mains(path, tree))
    return Program(
        flags=(*argparse.flags, *parsed, *other),
        read=True,
        complete=bool(argparse.found and argparse.complete and not from_dataclasses and not other),
        abbreviates=argparse.found and argparse.abbreviates,
        reads_options=any(_reads_options(tree) for _, tree in readers),
        from_dataclasses=from_dataclasses,
        hydra=next(hydra, None),
        lightning=lightning is not None,
        lightning_classes=lightning or (),
        pairs=any("OmegaConf.from_cli" in _called(tree) for _, tree in holding("from_cli")),
        config_flags=tuple(_config_flags(holding("DEFINE_config"))),
    )


def _called(tree: ast.Module) -> set[str]:
    return {dotted_name(call.func) for call in calls(tree)}


def _reads_options(tree: ast.Module) -> bool:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            if any(alias.name.partition(".")[0] in _OPTION_READERS for alias in node.names):
                return True
        elif isinstance(node, ast.ImportFrom):
            names = {(node.module or "").partition(".")[0], *(alias.name for alias in node.names)}
            if names & _OPTION_READERS or names & {*DATACLASS_PARSERS, "argv", "LightningCLI"}:
                return True
        elif isinstance(node, ast.Attribute) and dotted_name(node) == "sys.argv":
            return True
    return False


# Dataclasses


def _dataclass_flags(sources: Sequence[Source], classes: dict[str, ast.ClassDef]) -> tuple[list[Flag], bool]:
    """Flags of the project's dataclasses that a dataclass parser is given; whether there is such a parser."""
    found = parser_calls(sources)
    if not found or not reads_the_line(sources):
        return [], bool(found)
    per_call = [
        [flag for name in call.classes for flag in class_flags(name.rpartition(".")[2], classes, call.source[0])]
        for call in found
    ]
    return accepted(per_call, any_of=hands_on_the_rest(sources)), True


# click and absl


def _click_flags(sources: Sequence[Source]) -> Iterator[Flag]:
    for path, tree in sources:
        for node in ast.walk(tree):
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            decorators = [item for item in node.decorator_list if isinstance(item, ast.Call)]
            words = _click_command(decorators, node.name)
            for call in decorators:
                if call_name(call) == "option" and (flag := _click_flag(call, tree)):
                    yield replace(flag, subcommand=words, place=f"{path.name}:{call.lineno}")


def _click_command(decorators: Sequence[ast.Call], function: str) -> tuple[str, ...]:
    for call in decorators:
        if call_name(call) == "command" and isinstance(call.func, ast.Attribute):
            receiver = dotted_name(call.func.value)
            if receiver != "click":
                name = constant(call.args[0]) if call.args else None
                return (str(name or function.replace("_", "-")),)
    return ()


def _click_flag(call: ast.Call, tree: ast.Module) -> Flag | None:
    named = keywords(call)
    words = [str(word) for argument in call.args if isinstance(word := constant(argument), str)]
    flags = [word for word in words if word.startswith("-")]
    if not flags:
        return None
    _, slash, off = flags[0].partition("/")
    names = tuple(word.partition("/")[0].strip() for word in flags)
    dest = next((word for word in words if not word.startswith("-")), "")
    if slash:
        return Flag(names=names, kind=ON_OFF, type="bool", off_name=off.strip(), dest=dest)
    if constant(named.get("is_flag")) is True:
        return Flag(names=names, kind=SWITCH, type="bool", dest=dest)
    kind = APPEND if constant(named.get("multiple")) is True else VALUE
    kind = LIST if isinstance(number := constant(named.get("nargs")), int) and number > 1 else kind
    given = named.get("type")
    choices: tuple[str, ...] = ()
    if isinstance(given, ast.Call) and call_name(given) == "Choice" and given.args:
        choices = texts(given.args[0], constants_of(tree))
    value_type = _TYPES.get(call_name(given), "") if given is not None else ""
    default = constant(named.get("default"))
    if given is None and isinstance(default, (int, float)):
        value_type = type(default).__name__
    return Flag(names=names, kind=kind, type=value_type, choices=choices, dest=dest,
                default=None if default is None else str(default))


def _absl_flags(sources: Sequence[Source]) -> Iterator[Flag]:
    for path, tree in sources:
        for call in calls(tree):
            kind, value_type = _ABSL.get(call_name(call), ("", ""))
            name = constant(call.args[0]) if kind and call.args else None
            if not isinstance(name, str):
                continue
            choices = texts(call.args[2], constants_of(tree)) if (
                call_name(call) == "DEFINE_enum" and len(call.args) > 2
            ) else ()
            default = constant(call.args[1]) if len(call.args) > 1 else None
            yield Flag(
                names=(f"--{name}",),
                kind=kind,
                type=value_type,
                choices=choices,
                off_name=f"--no{name}",
                default=None if default is None else str(default),
                place=f"{path.name}:{call.lineno}",
            )


def _config_flags(sources: Sequence[Source]) -> Iterator[str]:
    for _, tree in sources:
        for call in calls(tree):
            if call_name(call) in ("DEFINE_config_file", "DEFINE_config_dict") and call.args:
                yield str(constant(call.args[0]))


# Hydra and Lightning


def _hydra_mains(path: Path, tree: ast.Module) -> Iterator[HydraMain]:
    direct = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "hydra"
        for alias in node.names
    }
    for node in ast.walk(tree):
        for decorator in getattr(node, "decorator_list", []):
            name = dotted_name(decorator.func if isinstance(decorator, ast.Call) else decorator)
            if name != "hydra.main" and not (name in direct and name == "main"):
                continue
            named = keywords(decorator) if isinstance(decorator, ast.Call) else {}
            given = list(decorator.args) if isinstance(decorator, ast.Call) else []
            config_path = constant(named.get("config_path", given[0] if given else None))
            config_name = constant(named.get("config_name", given[1] if len(given) > 1 else None))
            yield HydraMain(
                file=path,
                config_path=config_path if isinstance(config_path, str) else None,
                config_name=config_name if isinstance(config_name, str) else None,
            )


def _lightning_call(
    sources: Sequence[Source], classes: dict[str, ast.ClassDef]
) -> tuple[ast.ClassDef, ...] | None:
    """The project's classes that LightningCLI is given; None where the program does not use it."""
    own = {name for name, node in classes.items() if any(call_name(b) == "LightningCLI" for b in node.bases)}
    for _, tree in sources:
        for call in calls(tree):
            if call_name(call) == "LightningCLI" or call_name(call) in own:
                named = keywords(call)
                given = [*call.args[:2]]
                model = given[0] if given else named.get("model_class")
                data = given[1] if len(given) > 1 else named.get("datamodule_class")
                found = [classes[call_name(node)] for node in (model, data) if node and call_name(node) in classes]
                return tuple(found)
    return None
