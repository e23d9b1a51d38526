"""Argument types that several commands share."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any


def count(text: str) -> int:
    """A whole number above 0."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r:.80} is not a count: give a whole number above 0")
    return value


def seconds(text: str) -> float:
    """A finite number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r:.80} is no duration: give seconds above 0")
    return value


def existing(path: Path) -> Path:
    """The path; ConfigError where nothing is there."""
    from harness.errors import ConfigError

    if not os.path.exists(path):  # noqa: PTH110 (an odd path is none, no error)
        raise ConfigError(f"{path}: no such file or directory")
    return path


def add_asked(parser: argparse.ArgumentParser) -> None:
    """Declare --expect and --policy."""
    parser.add_argument("--expect", action="append", default=[], metavar="EXPR",
                        help='a reference band such as "train/loss@100<=2.4", or a TOML file of them (repeatable)')
    parser.add_argument("--policy", metavar="FILE",
                        help="a TOML file of thresholds, required gates, and waivers with an end")


def asked(arguments: argparse.Namespace) -> dict[str, Any]:
    """What they say, as fields of a RunSpec; {} without them. ConfigError for what cannot be read."""
    from harness.judge.asked import asked_of

    return asked_of(arguments.expect, arguments.policy, Path.cwd())
