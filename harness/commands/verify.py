"""`verify`: judge an out-dir again."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from harness.commands.arguments import add_asked, asked, existing


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    verify = commands.add_parser("verify", help="judge an out-dir again and say where its records disagree")
    verify.add_argument("out_dir", type=Path, metavar="OUT_DIR")
    add_asked(verify)
    verify.set_defaults(function=run)


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """See `harness.judge.verify.verify`."""
    from harness.judge.verify import verify

    return verify(existing(arguments.out_dir), asked(arguments))
