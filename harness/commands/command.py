"""`command`: a training command checked and overridden, without launching it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from harness.commands.arguments import count


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    command = commands.add_parser("command", help="a training command checked and overridden, without launching it")
    command.add_argument("train_cmd", metavar="CMD", help="the training command, as one quoted argument")
    command.add_argument("--hp", action="append", default=[], metavar="KEY=VALUE", help="an override (repeatable)")
    command.add_argument("--hp-flag", action="append", default=[], metavar="KEY=--flag", help="which flag KEY is")
    command.add_argument("--max-steps", type=count, default=None, metavar="N", help="cap on the run's steps")
    command.add_argument("--max-epochs", type=count, default=None, metavar="N", help="cap on the run's epochs")
    command.add_argument("--out-dir", type=Path, default=None, metavar="DIR",
                         help="where a rewritten config is put; without it nothing is written")
    command.add_argument("--workdir", type=Path, default=Path(), metavar="DIR", help="working directory of the job")
    command.add_argument("--framework", default=None, metavar="NAME", help="the trainer's framework")
    command.set_defaults(function=run)


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """See `harness.supervise.preview.preview`."""
    from harness.spec import RunSpec
    from harness.supervise.preview import preview

    out_dir = arguments.out_dir
    spec = RunSpec(
        train_cmd=arguments.train_cmd, out_dir=(out_dir or Path("reports/train-run")).absolute(), run_id="preview",
        workdir=arguments.workdir.absolute(), framework=arguments.framework, max_steps=arguments.max_steps,
        max_epochs=arguments.max_epochs, hp=tuple(arguments.hp), hp_flags=tuple(arguments.hp_flag),
    )
    return preview(spec, write=out_dir is not None)
