"""What `--attach TARGET` and `watch TARGET` name: a log, a process, a log elsewhere, a tracker's directory."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from harness.errors import ConfigError
from harness.record.vocabulary import TargetType

FORMS = "a log file, pid:N, proc:NAME, user@host:path, wandb:DIR or mlflow:DIR"
_REMOTE = re.compile(r"(?P<destination>[A-Za-z0-9_][\w.-]*@[A-Za-z0-9_\[][\w.:\]-]*?):(?P<path>.+)", re.DOTALL)
_SCHEMES = {"wandb": TargetType.WANDB, "mlflow": TargetType.MLFLOW}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One of the fields beside text and type is set."""

    text: str
    """As the user named it, absolute where it is a path here."""
    type: TargetType
    path: Path | None = None
    """A log, or a tracker's directory or database."""
    pid: int | None = None
    name: str | None = None
    destination: str | None = None
    """user@host."""
    remote_path: str = ""


def parse_target(text: str, here: Path) -> Target:
    """The target as named from the directory `here`. ConfigError names the forms that there are.

    A file that is there goes before every other reading of its name.
    """
    if not text.strip() or "\0" in text:
        raise ConfigError(f"the target is empty: give {FORMS}")
    path = (here / Path(text).expanduser()).absolute()
    if path.is_file():
        return Target(text=str(path), type=TargetType.LOCAL_LOG, path=path)
    scheme, colon, rest = text.partition(":")
    if colon and scheme == "pid":
        if not rest.isdecimal() or not 0 < int(rest) < 1 << 31:
            raise ConfigError(f"{text}: no PID; give pid:N")
        return Target(text=text, type=TargetType.PID, pid=int(rest))
    if colon and scheme == "proc":
        if not rest:
            raise ConfigError(f"{text}: give proc:NAME")
        return Target(text=text, type=TargetType.PID, name=rest)
    if colon and scheme in _SCHEMES:
        return _tracker(text, _SCHEMES[scheme], (here / Path(rest).expanduser()).absolute())
    match = _REMOTE.fullmatch(text)
    if match is not None:
        return Target(text=text, type=TargetType.REMOTE_LOG, destination=match["destination"],
                      remote_path=match["path"])
    raise ConfigError(f"{text}: no such file, and no other target: give {FORMS}")


def _tracker(text: str, kind: TargetType, path: Path) -> Target:
    if not path.exists():
        raise ConfigError(f"{text}: {path} is not there; give the directory of the run")
    return Target(text=f"{kind.value}:{path}", type=kind, path=path)
