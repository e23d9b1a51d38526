"""`replay`: where early stopping would have stopped a recorded run."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from harness.commands.arguments import count, existing


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    replay = commands.add_parser("replay", help="where early stopping would have stopped a recorded run")
    replay.add_argument("path", type=Path, metavar="PATH", help="a metric file, a directory, a log or an out-dir")
    replay.add_argument("--early-stop-metric", required=True, metavar="METRIC")
    replay.add_argument("--early-stop-patience", type=count, default=5, metavar="N", help="evaluations (default 5)")
    replay.add_argument("--early-stop-mode", choices=("auto", "min", "max"), default="auto")
    replay.add_argument("--early-stop-min-delta", type=float, default=0.0, metavar="DELTA")
    replay.set_defaults(function=run)


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """See `harness.watch.replay.replay`."""
    from harness.watch.replay import replay

    return replay(
        existing(arguments.path), arguments.early_stop_metric, arguments.early_stop_patience,
        mode=arguments.early_stop_mode, min_delta=arguments.early_stop_min_delta,
    )
