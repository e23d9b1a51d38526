"""`python -m harness COMMAND`: workflow steps without pytest; JSON on stdout.

Exit codes: 0 ok, 1 not ok or CONDITIONAL, 2 usage, 3 could not judge.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import __version__
from harness.errors import ConfigError, HarnessError
from harness.record.files import dump_json


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m harness", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    verify = commands.add_parser("verify", help="judge an out-dir again and say where its records disagree")
    verify.add_argument("out_dir", type=Path, metavar="OUT_DIR")
    verify.set_defaults(function=_verify)
    metrics = commands.add_parser("metrics", help="keys and series of a metric file, a directory or an out-dir")
    metrics.add_argument("path", type=Path, metavar="PATH")
    metrics.add_argument("--metric", action="append", default=[], metavar="TAG", help="a series to print (repeatable)")
    metrics.add_argument("--last", type=_count, default=None, metavar="N", help="only the last N points of each series")
    metrics.set_defaults(function=_metrics)
    _add_command(commands)
    _add_replay(commands)
    return parser


def _add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser("command", help="a training command checked and overridden, without launching it")
    command.add_argument("train_cmd", metavar="CMD", help="the training command, as one quoted argument")
    command.add_argument("--hp", action="append", default=[], metavar="KEY=VALUE", help="an override (repeatable)")
    command.add_argument("--hp-flag", action="append", default=[], metavar="KEY=--flag", help="which flag KEY is")
    command.add_argument("--max-steps", type=_count, default=None, metavar="N", help="cap on the run's steps")
    command.add_argument("--max-epochs", type=_count, default=None, metavar="N", help="cap on the run's epochs")
    command.add_argument("--out-dir", type=Path, default=None, metavar="DIR",
                         help="where a rewritten config is put; without it nothing is written")
    command.add_argument("--workdir", type=Path, default=Path(), metavar="DIR", help="working directory of the job")
    command.add_argument("--framework", default=None, metavar="NAME", help="the trainer's framework")
    command.set_defaults(function=_command)


def _add_replay(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    replay = commands.add_parser("replay", help="where early stopping would have stopped a recorded run")
    replay.add_argument("path", type=Path, metavar="PATH", help="a metric file, a directory, a log or an out-dir")
    replay.add_argument("--early-stop-metric", required=True, metavar="METRIC")
    replay.add_argument("--early-stop-patience", type=_count, default=5, metavar="N", help="evaluations (default 5)")
    replay.add_argument("--early-stop-mode", choices=("auto", "min", "max"), default="auto")
    replay.add_argument("--early-stop-min-delta", type=float, default=0.0, metavar="DELTA")
    replay.set_defaults(function=_replay)


def _count(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r:.80} is not a count: give a whole number above 0")
    return value


def _verify(arguments: argparse.Namespace) -> dict[str, Any]:
    from harness.judge.verify import verify

    return verify(arguments.out_dir)


def _metrics(arguments: argparse.Namespace) -> dict[str, Any]:
    from harness.metrics.command import metrics_report

    return metrics_report(arguments.path, arguments.metric, arguments.last)


def _replay(arguments: argparse.Namespace) -> dict[str, Any]:
    from harness.watch.replay import replay

    return replay(
        arguments.path, arguments.early_stop_metric, arguments.early_stop_patience,
        mode=arguments.early_stop_mode, min_delta=arguments.early_stop_min_delta,
    )


def _command(arguments: argparse.Namespace) -> dict[str, Any]:
    from harness.spec import RunSpec
    from harness.supervise.preview import preview

    out_dir = arguments.out_dir
    spec = RunSpec(
        train_cmd=arguments.train_cmd, out_dir=(out_dir or Path("reports/train-run")).absolute(), run_id="preview",
        workdir=arguments.workdir.absolute(), framework=arguments.framework, max_steps=arguments.max_steps,
        max_epochs=arguments.max_epochs, hp=tuple(arguments.hp), hp_flags=tuple(arguments.hp_flag),
    )
    return preview(spec, write=out_dir is not None)


def main(argv: list[str] | None = None) -> int:
    """Run one command; the exit code."""
    arguments = _parser().parse_args(argv)
    function: Callable[[argparse.Namespace], dict[str, Any]] = arguments.function
    try:
        result = function(arguments)
    except ConfigError as error:
        print(dump_json({"ok": False, "error": str(error)}))
        return 2
    except HarnessError as error:
        print(dump_json({"ok": False, "error": str(error)}))
        return 3
    print(dump_json(result))
    return 0 if result.get("ok") else 1


if __name__ == "__main__":
    sys.exit(main())
