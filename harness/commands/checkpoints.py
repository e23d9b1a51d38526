"""`checkpoints`: what a directory holds, whether it is whole, and whether it loads."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser("checkpoints", help="find, verify and load the checkpoints of a directory or a file")
    parser.add_argument("root", type=Path, metavar="DIR")
    parser.add_argument("--metric", metavar="M", help="the best is the one with the best value of this metric")
    parser.add_argument("--mode", choices=("min", "max"), help="which way it improves, when its name does not say so")
    parser.add_argument("--verify", action="store_true", help="read every tensor: finite values, a digest per file")
    parser.add_argument("--reload", action="store_true", help="load the best one in a fresh process")
    parser.add_argument("--base", type=Path, metavar="DIR", help="the model that training started from"
                        " or that an adapter stands on")
    parser.add_argument("--allow-pickle", action="store_true", help="let the reload run code from the checkpoint")
    parser.add_argument("--reload-with", metavar="FILE.py:FUNCTION", help="--reload: call this with the checkpoint's "
                        "path once it is loaded; it returns {metric: number} or the model's outputs")
    parser.add_argument("--reload-timeout", type=float, metavar="S", help="--reload: seconds that it may take (300)")
    parser.set_defaults(function=run)


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """See `harness.checkpoints.command.checkpoints_report`."""
    from harness.checkpoints.command import Asked, checkpoints_report
    from harness.checkpoints.function import FLAG, parse_function
    from harness.errors import ConfigError

    word, limit = arguments.reload_with, arguments.reload_timeout
    if not arguments.reload and (word is not None or limit is not None):
        flag = FLAG if word is not None else "--reload-timeout"
        raise ConfigError(f"{flag}: nothing is loaded; give --reload too")
    if limit is not None and not 0 < limit < math.inf:
        raise ConfigError(f"--reload-timeout {limit:g}: give a number above 0")
    function = None if word is None else parse_function(word, Path.cwd())
    roots, known = _of_run(arguments.root)
    return checkpoints_report(Asked(
        root=arguments.root, metric=arguments.metric, mode=arguments.mode, verify=arguments.verify,
        reload=arguments.reload, base=arguments.base.absolute() if arguments.base else None,
        allow_pickle=arguments.allow_pickle, function=function, time_limit_s=limit, roots=roots, known=known))


def _of_run(root: Path) -> tuple[tuple[Path, ...], dict[str, dict[str, float]]]:
    """(where the run of an out-dir saved, metrics by checkpoint); nothing for a directory that is none."""
    from harness.judge.saved import saved_checkpoints
    from harness.record import outdir
    from harness.record.run_record import open_record

    if not (root / outdir.RUN_SPEC).is_file():
        return (), {}
    with open_record(root) as record:
        roots = (record.fact("checkpoints", "facts") or {}).get("roots") or []
        saved = saved_checkpoints(record)
    return tuple(Path(place) for place in roots), {str(root.absolute() / one.path): dict(one.metrics) for one in saved}
