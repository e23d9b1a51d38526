"""`baseline`: reference bands from good runs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from harness.commands.arguments import existing


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    baseline = commands.add_parser("baseline", help="reference bands for --expect, from several good runs of one job")
    baseline.add_argument("runs", nargs="+", type=Path, metavar="OUT_DIR")
    baseline.add_argument("--out", required=True, type=Path, metavar="FILE", help="the TOML file that is written")
    baseline.add_argument("--metric", action="append", default=[], metavar="EXPR",
                          help="what is measured, such as train/loss@100 (repeatable; default: last loss, best "
                          "evaluation, throughput, peak memory)")
    baseline.set_defaults(function=run)


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """See `harness.retry.baseline.write_baseline`."""
    from harness.retry.baseline import write_baseline

    return write_baseline([existing(run) for run in arguments.runs], arguments.out, arguments.metric)
