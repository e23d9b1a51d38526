"""`python -m harness COMMAND`: workflow steps without pytest; JSON on stdout.

Exit codes: 0 ok, 1 not ok or CONDITIONAL, 2 usage, 3 could not judge.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

from harness import __version__
from harness.commands import (
    baseline,
    checkpoints,
    command,
    compare,
    diagnose,
    inspect_dataset,
    judge,
    metrics,
    replay,
    verify,
    watch,
)
from harness.errors import ConfigError, HarnessError
from harness.record.files import dump_json

COMMANDS = (verify, judge, watch, diagnose, compare, baseline, metrics, checkpoints, command, inspect_dataset, replay)
"""In the order of the help."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m harness", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in COMMANDS:
        module.add(commands)
    return parser


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
