"""A setting of a training program, from where it can be read without running it, and from where it was read.

The command's flags come first, then the config file that the command names, then literals of the source: the
default of a flag, an argument of a constructor. What only running the program would tell is unknown.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.command import limits
from harness.command.model import TrainingCommand
from harness.frameworks.source import UNKNOWN, Program, read_program

CONFIG_SUFFIXES = (".yaml", ".yml", ".json", ".toml")
CONFIG_FLAGS = ("config", "config-file", "config-path", "cfg", "conf", "c")
MAX_CONFIG_BYTES = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A value and where it was read; an unknown one has the value UNKNOWN."""

    value: Any
    source: str

    @property
    def known(self) -> bool:
        """Whether it could be read."""
        return self.value is not UNKNOWN

    @property
    def number(self) -> float | None:
        """As a number, None where it is none."""
        if isinstance(self.value, bool) or not self.known:
            return None
        try:
            return float(self.value)
        except (TypeError, ValueError):
            return None

    @property
    def whole(self) -> int | None:
        """As a whole number above 0 (trainers write -1 for "no limit"), None where it is none."""
        number = self.number
        return int(number) if number is not None and number > 0 and number.is_integer() else None

    @property
    def text(self) -> str | None:
        """As text, None where it is unknown, empty or null."""
        return None if not self.known or self.value is None or self.value == "" else str(self.value)

    @property
    def off(self) -> bool:
        """Whether it says no."""
        return self.known and str(self.value).lower() in ("false", "no", "0", "none", "off")


class Settings:
    """The settings of one command."""

    def __init__(
        self,
        command: TrainingCommand,
        workdir: Path,
        *,
        constructors: Iterable[str] = (),
        prefer: Iterable[str] = (),
    ) -> None:
        """`constructors`: calls whose literal arguments are settings, see Program.calls. `prefer`: sections of
        a config file that are looked into first."""
        self.command = command
        self.program: Program = read_program(command, workdir)
        self.config_path = config_file(command, workdir) or hydra_config(command, self.program)
        self.config = read_config(self.config_path) if self.config_path else {}
        self._calls = self.program.calls(*constructors)
        self._prefer = tuple(prefer)

    def get(self, name: str, default: Any = UNKNOWN) -> Setting:
        """The setting of that name, `_` and `-` alike; `default` is the framework's own."""
        return (
            self._flag(name)
            or self._in_config(name)
            or self._in_calls(name)
            or self._flag_default(name)
            or self._framework_default(default)
        )

    def first(self, names: Iterable[str]) -> Setting:
        """The first of several names that is known, flags before everything else."""
        names = tuple(names)
        for look in (self._flag, self._in_config, self._in_calls, self._flag_default):
            for name in names:
                setting = look(name)
                if setting is not None and setting.known and setting.value is not None:
                    return setting
        return Setting(value=UNKNOWN, source="")

    def _flag(self, name: str) -> Setting | None:
        given = limits.flag_values(self.command, [name.replace("_", "-").lower()])
        return Setting(value=given[0][1], source=given[0][0]) if given else None

    def _in_config(self, name: str) -> Setting | None:
        if self.config_path is None:
            return None
        for section in (*(self.config.get(key) for key in self._prefer), self.config):
            found = {repr(value): (path, value) for path, value in _leaves(section, name)}
            if len(found) == 1:
                ((path, value),) = found.values()
                return Setting(value=value, source=f"{path} in {self.config_path.name}")
            if found:
                return Setting(value=UNKNOWN, source=f"{name} in {self.config_path.name}")
        return None

    def _in_calls(self, name: str) -> Setting | None:
        given = [call for call in self._calls if name in call.literals]
        if given:
            call = given[0]
            option = call.options.get(name, "")
            if call.literals[name] is UNKNOWN and option in self.program.flags():
                return self._flag(option) or self._flag_default(option) or Setting(value=UNKNOWN, source="")
            return Setting(value=call.literals[name], source=f"{call.name}({name}=...) in {call.file}")
        if any(call.is_open for call in self._calls):
            return Setting(value=UNKNOWN, source="")
        return None

    def _flag_default(self, name: str) -> Setting | None:
        name = name.replace("-", "_")
        default = self.program.flags().get(name, UNKNOWN)
        if default is UNKNOWN or default is None:
            return None
        return Setting(value=default, source=f"the default of {self.program.declared(name)}")

    def _framework_default(self, default: Any) -> Setting:
        return Setting(value=default, source="the framework's default" if default is not UNKNOWN else "")


def _leaves(node: Any, name: str, path: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    if not isinstance(node, Mapping) or depth > 8:
        return
    for key, value in node.items():
        inner = f"{path}.{key}" if path else str(key)
        if isinstance(value, Mapping):
            yield from _leaves(value, name, inner, depth + 1)
        elif str(key).replace("-", "_") == name.replace("-", "_"):
            yield inner, value


def config_file(command: TrainingCommand, workdir: Path) -> Path | None:
    """The config file that the program reads: that of --config, else a word of its arguments that is one."""
    for _, value in limits.flag_values(command, CONFIG_FLAGS):
        if value.endswith(CONFIG_SUFFIXES) and (workdir / value).is_file():
            return workdir / value
    for word in command.script_args:
        if not word.startswith("-") and word.endswith(CONFIG_SUFFIXES) and (workdir / word).is_file():
            return workdir / word
    return None


def hydra_config(command: TrainingCommand, program: Program) -> Path | None:
    """The primary config of a Hydra app, by the literals of `@hydra.main` or by --config-name."""
    if program.importer("hydra") is None:
        return None
    given = dict(limits.flag_values(command, ["config-name"]))
    for call in program.calls("main"):
        folder, name = call.literals.get("config_path"), call.literals.get("config_name")
        name = next(iter(given.values()), name)
        if isinstance(folder, str) and isinstance(name, str):
            path = program.modules[0].path.parent / folder / name
            path = path if path.suffix in CONFIG_SUFFIXES else path.with_name(f"{path.name}.yaml")
            return path if path.is_file() else None
    return None


def is_config_alone(command: TrainingCommand) -> bool:
    """Whether the program gets a config file as its only argument; many then read no flag beside it."""
    words = command.script_args
    return len(words) == 1 and words[0].endswith(CONFIG_SUFFIXES)


def read_config(path: Path) -> dict[str, Any]:
    """A config file as plain data; empty for what cannot be read."""
    try:
        if path.stat().st_size > MAX_CONFIG_BYTES:
            return {}
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".json":
            document = json.loads(text)
        elif path.suffix == ".toml":
            import tomlkit

            document = tomlkit.parse(text).unwrap()
        else:
            document = _yaml(text)
    except Exception:  # a parser's own errors, for a file that validation names
        return {}
    return document if isinstance(document, dict) else {}


def _yaml(text: str) -> Any:
    from ruamel.yaml import YAML

    yaml = YAML(typ="safe", pure=True)
    return yaml.load(text)
