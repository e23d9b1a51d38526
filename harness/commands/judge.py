"""`judge`: a run that others made, judged after its end by its logs and what else it left."""

from __future__ import annotations

import argparse
from datetime import datetime
from pathlib import Path
from typing import Any

from harness.commands.arguments import add_asked, asked, count
from harness.spec import FRAMEWORKS


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    judge = commands.add_parser("judge", help="a run that has ended and that others made, by its logs")
    judge.add_argument("--log", action="append", required=True, type=Path, metavar="FILE",
                       help="a log of the run; of several ranks or streams repeat it, the one that tells the end last")
    judge.add_argument("--train-cmd", default="", metavar="CMD", help="the command that was run")
    judge.add_argument("--hp", action="append", default=[], metavar="KEY=VALUE", help="a setting it had (repeatable)")
    judge.add_argument("--metrics-dir", type=Path, metavar="DIR", help="where it wrote metric files")
    judge.add_argument("--checkpoint-dir", type=Path, metavar="DIR", help="where it saved")
    judge.add_argument("--samples", type=Path, metavar="FILE", help="its rollout samples, JSON lines or Parquet")
    judge.add_argument("--max-steps", type=count, metavar="N", help="the steps that it was to make")
    judge.add_argument("--exit-code", type=int, metavar="N", help="its exit code")
    judge.add_argument("--launched-at", type=moment, metavar="TIME",
                       help="when it was launched: ISO 8601, without a zone in local time, or seconds since the epoch")
    judge.add_argument("--pid", type=count, metavar="N", help="the process that it was")
    judge.add_argument("--framework", choices=FRAMEWORKS, help="the trainer's framework")
    judge.add_argument("--loss-tag", metavar="TAG", help="the tag that is the training loss")
    judge.add_argument("--workdir", type=Path, default=Path(), metavar="DIR", help="working directory of the run")
    judge.add_argument("--out-dir", type=Path, default=Path(), metavar="DIR", help="for the evidence (default .)")
    judge.add_argument("--run-id", metavar="ID", help="identifies the run in every artifact (default: generated)")
    add_asked(judge)
    judge.set_defaults(function=run)


def moment(text: str) -> float:
    """Seconds since the epoch."""
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError, OSError):
        raise argparse.ArgumentTypeError(
            f"{text!r:.80} is no time: give ISO 8601, as 2026-01-31T12:00:00+00:00, or seconds since the epoch"
        ) from None


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """See `harness.supervise.asserted.judge_ended`; a short answer that names the evidence."""
    from harness.record.run_id import run_id_or_new
    from harness.spec import RunSpec
    from harness.supervise.asserted import Said, judge_ended

    spec = RunSpec(
        train_cmd=arguments.train_cmd, out_dir=arguments.out_dir.absolute(), workdir=arguments.workdir.absolute(),
        run_id=run_id_or_new(arguments.run_id), framework=arguments.framework, hp=tuple(arguments.hp),
        max_steps=arguments.max_steps, metrics_dir=_absolute(arguments.metrics_dir), probe=False,
        checkpoint_dir=_absolute(arguments.checkpoint_dir), loss_tag=arguments.loss_tag,
        samples=_absolute(arguments.samples), **asked(arguments),
    )
    report = judge_ended(spec, Said(logs=tuple(log.absolute() for log in arguments.log), pid=arguments.pid,
                                    exit_code=arguments.exit_code, launched_at=arguments.launched_at))
    return answer(report, spec.out_dir)


def answer(report: dict[str, Any], out_dir: Path) -> dict[str, Any]:
    """{ok, decision, outcome, confidence, terminal_state, total_steps, summary, reasons, out_dir}."""
    kept = ("run_id", "decision", "confidence", "terminal_state", "total_steps", "final_metrics", "summary")
    evidence = report["evidence"]
    return {"ok": report["decision"] == "GO", **{key: report[key] for key in kept}, "outcome": evidence["outcome"],
            "reasons": evidence["reasons"], "out_dir": str(out_dir)}


def _absolute(path: Path | None) -> Path | None:
    return None if path is None else path.absolute()
