"""`compare`: two runs point by point."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    compare = commands.add_parser("compare", help="two runs point by point: the first step and metric that differ")
    compare.add_argument("a", type=Path, metavar="A", help="an out-dir, a metric file or a directory of them")
    compare.add_argument("b", type=Path, metavar="B", help="the other run")
    compare.add_argument("--rtol", type=float, default=0.0, metavar="R", help="relative tolerance (default 0: exact)")
    compare.add_argument("--atol", type=float, default=0.0, metavar="A", help="absolute tolerance (default 0)")
    compare.add_argument("--metric", action="append", default=[], metavar="TAG",
                         help="a series to compare (repeatable; default: all but those of clocks and meters)")
    compare.set_defaults(function=run)


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """See `harness.retry.runs.compare_runs`."""
    from harness.retry.runs import compare_runs

    return compare_runs(arguments.a, arguments.b, rtol=arguments.rtol, atol=arguments.atol, metrics=arguments.metric)
