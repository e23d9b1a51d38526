"""`--reload-with FILE.py:FUNCTION`: the user's own use of a reloaded checkpoint, looked up without running it, and how
near to the logged value of a metric its value has to lie."""

from __future__ import annotations

import ast
import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import ConfigError

FLAG = "--reload-with"
USAGE = f"{FLAG} FILE.py:FUNCTION"
EVAL_RTOL, EVAL_ATOL = 0.01, 1e-3
"""How far a reloaded model's evaluation may lie from the logged one: other kernels, a short type's rounding."""
TOLERANCE = f"within {EVAL_RTOL:g} relative + {EVAL_ATOL:g}"
MAX_SOURCE_BYTES = 2 << 20
_NO_FUNCTION = (ast.Constant, ast.JoinedStr, ast.List, ast.Tuple, ast.Dict, ast.Set, ast.ListComp, ast.DictComp,
                ast.SetComp, ast.GeneratorExp)


@dataclass(frozen=True, slots=True, kw_only=True)
class UserFunction:
    """FUNCTION of FILE.py, which is called in the reload's child with the path of a checkpoint."""

    path: Path
    name: str

    @property
    def word(self) -> str:
        """As the option takes it."""
        return f"{self.path}:{self.name}"

    def __str__(self) -> str:
        return f"{self.path.name}:{self.name}"


def function_of(word: str) -> UserFunction:
    """The function of a word that was looked up before; its file may be gone by now, which the child tells."""
    file, _, name = word.rpartition(":")
    return UserFunction(path=Path(file), name=name)


def agrees(value: float, logged: float) -> bool:
    """Whether two evaluations are those of one model; two that are not finite are, as a metric without a sample is."""
    if math.isfinite(value) and math.isfinite(logged):
        return abs(value - logged) <= EVAL_RTOL * abs(logged) + EVAL_ATOL
    return math.isfinite(value) == math.isfinite(logged)


def parse_function(word: str, here: Path) -> UserFunction:
    """The function that `FILE.py:FUNCTION` names, FILE below `here`.

    ConfigError where FILE is not there or is no Python, and where it defines no FUNCTION that takes one argument.
    Nothing is imported: what only running FILE could tell is left to the child.
    """
    file, colon, name = word.rpartition(":")
    if not colon or not file.strip() or not name.isidentifier():
        raise ConfigError(f"{FLAG} {word}: give FILE.py:FUNCTION")
    path = (here / Path(file).expanduser()).absolute()
    if problem := _problem(path, name):
        raise ConfigError(f"{FLAG} {word}: {problem}")
    return function_of(f"{path}:{name}")


def runs_when_imported(path: Path) -> bool:
    """Whether a program has no `if __name__ == "__main__":`, so that an import of it does all that it does."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            body = ast.parse(path.read_bytes()[:MAX_SOURCE_BYTES]).body
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    names = (node.id for item in body if isinstance(item, ast.If) for node in ast.walk(item.test)
             if isinstance(node, ast.Name))
    return "__name__" not in names


def _problem(path: Path, name: str) -> str:
    if not path.is_file():
        return f"{path}: no such file"
    try:
        if path.stat().st_size > MAX_SOURCE_BYTES:
            return f"{path} is too long to be a program"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(path.read_bytes())
    except OSError as error:
        return f"{path}: cannot be read: {error.strerror}"
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"{path} is no Python that can be parsed: {error}"
    bound = list(_bound(tree.body))
    values = [value for found, value in bound if found == name]
    if values:
        return _no_callable(values[-1], name)
    if any(found == "*" for found, _ in bound):
        return ""
    functions = sorted({found for found, value in bound if isinstance(value, ast.FunctionDef)})
    return f"it defines no {name}; it has {', '.join(functions[:8]) or 'no function at all'}"


def _bound(body: list[ast.stmt]) -> Iterator[tuple[str, Any]]:
    """(name, what it is bound to) at the top of a module, in branches too; "*" for what a star import may bring."""
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield statement.name, statement
        elif isinstance(statement, (ast.Assign, ast.AnnAssign)):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            yield from ((target.id, statement.value) for target in targets if isinstance(target, ast.Name))
        elif isinstance(statement, (ast.Import, ast.ImportFrom)):
            yield from (((one.asname or one.name).partition(".")[0], statement) for one in statement.names)
        else:
            for inner in ("body", "orelse", "finalbody"):
                yield from _bound(getattr(statement, inner, None) or [])
            for handler in getattr(statement, "handlers", None) or []:
                yield from _bound(handler.body)


def _no_callable(value: Any, name: str) -> str:
    """Why what the name is bound to cannot be called with a path; "" where it can, or where only a run tells."""
    if isinstance(value, (ast.ClassDef, ast.Import, *_NO_FUNCTION)):
        kind = {ast.ClassDef: "a class", ast.Import: "a module"}.get(type(value), "a value")
        return f"{name} is {kind} and no function"
    if isinstance(value, ast.AsyncFunctionDef):
        return f"{name} is a coroutine; give a plain function"
    if not isinstance(value, (ast.FunctionDef, ast.Lambda)):
        return ""
    arguments = value.args
    places = [*arguments.posonlyargs, *arguments.args]
    needed = len(places) - len(arguments.defaults)
    named = any(default is None for default in arguments.kw_defaults)
    if needed > 1 or named or not (places or arguments.vararg):
        return f"{name} must take one argument, the path of the checkpoint"
    return ""
