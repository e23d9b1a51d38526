"""`diagnose`: why a run failed."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    diagnose = commands.add_parser("diagnose", help="why a run failed: the first causal error, and what to do")
    diagnose.add_argument("paths", nargs="+", type=Path, metavar="PATH",
                          help="a log, the logs of several ranks, an out-dir, a torchrun log directory, Slurm output")
    diagnose.add_argument("--exit-code", type=int, default=None, metavar="N", help="of the run; negative for a signal")
    diagnose.add_argument("--dmesg", type=Path, default=None, metavar="FILE", help="the kernel's log of the host")
    diagnose.add_argument("--out-dir", type=Path, default=None, metavar="DIR",
                          help="where check-failed-run.json is written (default: an out-dir that is given, else ./)")
    diagnose.add_argument("--run-id", default=None, metavar="ID", help="the run's id, shared with its other artifacts")
    diagnose.set_defaults(function=run)


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """{ok, path, ...check-failed-run.json}; `ok` is true where the cause is known, or no failure is seen."""
    from harness.diagnosis.report import diagnose
    from harness.record import outdir

    given = arguments.paths
    document = diagnose(given, exit_code=arguments.exit_code, dmesg=arguments.dmesg, out_dir=arguments.out_dir,
                        run_id=arguments.run_id)
    known = document["primary_cause"] != "unknown" or document["run_status"] == "recovered"
    place = arguments.out_dir or next((path for path in given if (path / outdir.JOURNAL).exists()), Path())
    return {"ok": known, "path": str(place / outdir.FAILURE_REPORT), **document}
