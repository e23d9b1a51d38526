"""`metrics`: keys and series of what a trainer wrote."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from harness.commands.arguments import count, existing


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    metrics = commands.add_parser("metrics", help="keys and series of a metric file, a directory or an out-dir")
    metrics.add_argument("path", type=Path, metavar="PATH")
    metrics.add_argument("--metric", action="append", default=[], metavar="TAG", help="a series to print (repeatable)")
    metrics.add_argument("--last", type=count, default=None, metavar="N",
                         help="only the last N points of each series; without --metric of all of them")
    metrics.set_defaults(function=run)


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """See `harness.metrics.command.metrics_report`."""
    from harness.metrics.command import metrics_report

    return metrics_report(existing(arguments.path), arguments.metric, arguments.last)
