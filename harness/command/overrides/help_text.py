"""The options that a program's `--help` shows: argparse, click, typer, absl, fire and what looks like them."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.command.overrides.model import APPEND, LIST, ON_OFF, OPTIONAL_BOOL, SWITCH, VALUE, Flag

HELP_TIMEOUT_S = 60.0
MAX_HELP_BYTES = 4 << 20
_BOX = re.compile(r"^[\s│┃|*]*")
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_SPEC = re.compile(r"--?[A-Za-z\[][\w.\[\]-]*")
_COLUMN = re.compile(r"(INTEGER|FLOAT|TEXT|PATH|FILE|BOOLEAN|<\w+>|\[[\w.|<>=-]+\])(\s|$)")
_TYPES = {
    "<int>": "int", "<float>": "float", "<str>": "str", "<text>": "str",
    "INTEGER": "int", "INT": "int", "N": "int", "FLOAT": "float", "TEXT": "str", "PATH": "str",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HelpOutput:
    """What a help child printed."""

    text: str
    problem: str = ""
    """Why there is nothing to read."""


def run_help(argv: Sequence[str], directory: Path, environ: Mapping[str, str]) -> HelpOutput:
    """Run a help command in a session of its own, without accelerators; it is killed after HELP_TIMEOUT_S."""
    child = {
        **environ,
        "COLUMNS": "200",
        "TERM": "dumb",
        "NO_COLOR": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "WANDB_MODE": "disabled",
    }
    try:
        process = subprocess.Popen(
            list(argv),
            cwd=directory,
            env=child,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        return HelpOutput(text="", problem=f"`{argv[0]}` could not be started: {error.strerror}")
    try:
        data, _ = process.communicate(timeout=HELP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return HelpOutput(text="", problem=f"its --help did not end within {HELP_TIMEOUT_S:g} s")
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdout:
            process.stdout.close()
    text = data[:MAX_HELP_BYTES].decode("utf-8", "replace")
    if process.returncode != 0 and not re.search(r"usage|options|flags", text, re.IGNORECASE):
        return HelpOutput(text="", problem=f"its --help ended with exit code {process.returncode}")
    return HelpOutput(text=text)


def parse_help(text: str, source: str = "--help") -> list[Flag]:
    """Flags of a help text, in its order. What is described nowhere is not found."""
    flags: dict[str, Flag] = {}
    lines = [_BOX.sub("", _ANSI.sub("", line)) for line in text.splitlines()]
    for index, line in enumerate(lines):
        if not line.startswith("-") or not _SPEC.match(line):
            continue
        following = " ".join(lines[index + 1 : index + 4])
        flag = _flag(line, following, source)
        if flag is not None:
            flags.setdefault(flag.names[0], flag)
    return list(flags.values())


def _flag(line: str, following: str, source: str) -> Flag | None:
    spec, _, rest = line.partition("  ")
    if re.match(r"--\S+:( |$)", line):
        return _absl_flag(line, following, source)
    names: list[str] = []
    off, metavar = "", ""
    for number, part in enumerate(re.split(r"\s*[,/]\s+|\s*,\s*(?=-)|/(?=-)", spec.strip())):
        match = _SPEC.match(part)
        if match is None:
            continue
        name = match.group()
        if "[no" in name:
            clean = re.sub(r"\[no-?\]", "", name)
            names.append(clean)
            off = name.replace("[", "").replace("]", "")
            continue
        metavar = part[match.end() :].strip(" =") or metavar
        if number and re.match(r"--no[-_]?", name) and names and name.startswith("--no"):
            off = name
        else:
            names.append(name)
    # typer puts every spelling and the metavar into a column of its own.
    for column in re.split(r"\s{2,}", rest.strip()) if rest else []:
        if _SPEC.fullmatch(column.strip(",")):
            names, off = (names, column) if column.startswith("--no") else ([*names, column.strip(",")], off)
        elif not metavar and _COLUMN.match(column):
            metavar = column.split()[0]
        else:
            break
    names = [*(n for n in names if n.startswith("--")), *(n for n in names if not n.startswith("--"))]
    if not names or names[0] in ("--help", "-h", "--version", "--helpfull", "--helpshort"):
        return None
    kind, value_type, choices = _metavar(metavar)
    if off:
        kind, value_type = ON_OFF, "bool"
    return Flag(names=tuple(names), kind=kind, type=value_type, choices=choices, off_name=off, place=source)


def _metavar(metavar: str) -> tuple[str, str, tuple[str, ...]]:
    """(kind, type, choices) of what stands behind a flag's name."""
    if not metavar:
        return SWITCH, "bool", ()
    if metavar == "<bool>":
        return SWITCH, "bool", ()
    if metavar[0] == "{" and "}" in metavar:
        return VALUE, "", tuple(part.strip() for part in metavar[1 : metavar.index("}")].split(","))
    if metavar[0] == "[" and "|" in metavar and "]" in metavar:
        return VALUE, "", tuple(metavar[1 : metavar.index("]")].split("|"))
    if metavar.endswith("...") and not metavar.endswith("...]"):
        return APPEND, "", ()
    if ",..." in metavar:
        return VALUE, "", ()
    if "..." in metavar:
        return LIST, _TYPES.get(metavar.split()[0].strip("["), ""), ()
    if re.match(r"\[[A-Z0-9_]+\]$", metavar):
        return OPTIONAL_BOOL, "", ()
    return VALUE, _TYPES.get(metavar.split()[0], ""), ()


def _absl_flag(line: str, following: str, source: str) -> Flag | None:
    name = line.partition(":")[0]
    about = f"{line} {following}"
    if name.startswith("--[no]"):
        bare = name[6:]
        return Flag(names=(f"--{bare}",), kind=ON_OFF, type="bool", off_name=f"--no{bare}", place=source)
    if name.startswith(("--help", "--only_check_args", "--run_with")):
        return None
    head = re.split(r"\s--", following)[0]
    kind = "int" if "an integer" in head or "an integer" in line else "float" if "a number" in about else ""
    match = re.search(r"<([^<>|]+(?:\|[^<>|]+)+)>", about)
    return Flag(names=(name,), type=kind, choices=tuple(match.group(1).split("|")) if match else (), place=source)
