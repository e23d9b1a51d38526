"""`watch`: a run that others started, watched to its end. It is never signalled."""

from __future__ import annotations

import argparse
import contextlib
import secrets
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.commands.arguments import add_asked, asked, count, seconds
from harness.spec import FRAMEWORKS

if TYPE_CHECKING:
    from harness.spec import RunSpec


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    watch = commands.add_parser("watch", help="a run that others started, watched to its end and never signalled")
    watch.add_argument("target", metavar="TARGET",
                       help="a log file, pid:N, proc:NAME, user@host:path, wandb:DIR or mlflow:DIR")
    watch.add_argument("--once", action="store_true", help="one look at what is there now; keeps no evidence without "
                       "--out-dir")
    watch.add_argument("--interval", type=seconds, default=30.0, metavar="S",
                       help="between progress lines (default 30)")
    watch.add_argument("--idle-timeout", type=seconds, default=1800.0, metavar="S",
                       help="without output for so long the run is taken for ended (default 1800)")
    watch.add_argument("--ssh-config", type=Path, metavar="FILE", help="ssh's configuration file")
    watch.add_argument("--metrics-dir", type=Path, metavar="DIR", help="where it writes metric files")
    watch.add_argument("--checkpoint-dir", type=Path, metavar="DIR", help="where it saves")
    watch.add_argument("--max-steps", type=count, metavar="N", help="the steps that it is to make")
    watch.add_argument("--framework", choices=FRAMEWORKS, help="the trainer's framework")
    watch.add_argument("--loss-tag", metavar="TAG", help="the tag that is the training loss")
    watch.add_argument("--out-dir", type=Path, metavar="DIR", help="where the evidence goes (default .)")
    watch.add_argument("--run-id", metavar="ID", help="identifies the run in every artifact (default: generated)")
    add_asked(watch)
    watch.set_defaults(function=run)


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Progress on stderr; what babysit-training.json says, with the decision of train-model.json, on stdout."""
    from harness.attach.target import parse_target
    from harness.record.run_id import run_id_or_new
    from harness.spec import RunSpec

    here = Path.cwd()
    spec = RunSpec(
        train_cmd="", attach=parse_target(arguments.target, here).text, workdir=here, probe=False,
        out_dir=(arguments.out_dir or Path()).absolute(), run_id=run_id_or_new(arguments.run_id),
        framework=arguments.framework, loss_tag=arguments.loss_tag, max_steps=arguments.max_steps,
        metrics_dir=_absolute(arguments.metrics_dir), checkpoint_dir=_absolute(arguments.checkpoint_dir),
        interval_s=arguments.interval, idle_timeout_s=arguments.idle_timeout,
        ssh_config=_absolute(arguments.ssh_config), **asked(arguments),
    )
    if arguments.once and arguments.out_dir is None:
        with tempfile.TemporaryDirectory() as folder:
            return {**look_once(replace(spec, out_dir=Path(folder) / "look")), "out_dir": None}
    return look_once(spec) if arguments.once else watch_to_the_end(spec)


def watch_to_the_end(spec: RunSpec) -> dict[str, Any]:
    """`ok` is true for a GO, which a run whose launch and exit nobody saw never is."""
    from harness.client import ensure_run, forget_session
    from harness.judge.report import build_report

    session = secrets.token_hex(8)
    try:
        with contextlib.suppress(KeyboardInterrupt):  # the watch has ended, and its report is written
            ensure_run(replace(spec, session=session), lambda line: print(line, file=sys.stderr, flush=True))
    finally:
        forget_session(session)
    report = build_report(spec.out_dir)
    return {"ok": report["decision"] == "GO", **_answer(spec, report)}


def look_once(spec: RunSpec) -> dict[str, Any]:
    """`ok` is true while nothing is seen to be wrong; `terminal_state` is null while the run goes on."""
    from harness.judge.report import build_report
    from harness.supervise.attached import AttachedSupervisor

    supervisor = AttachedSupervisor(spec, None, once=True)
    supervisor.run()
    report = build_report(spec.out_dir)
    return {"ok": report["decision"] != "NO-GO", **_answer(spec, report), "running": supervisor.is_running}


def _answer(spec: RunSpec, report: dict[str, Any]) -> dict[str, Any]:
    from harness.record import outdir
    from harness.record.files import read_json

    watched = read_json(spec.out_dir / outdir.WATCH_REPORT)
    seen = {key: watched[key] for key in ("target", "target_type", "terminal_state", "total_steps", "final_metrics",
                                          "anomalies_detected", "best_checkpoint", "duration_seconds")}
    evidence = report["evidence"]
    progress = watched["evidence"]["progress"]
    return {"run_id": spec.run_id, **seen, "progress": progress, "target_steps": evidence["requested"]["target_steps"],
            "decision": report["decision"], "confidence": report["confidence"], "outcome": evidence["outcome"],
            "summary": report["summary"], "reasons": evidence["reasons"], "out_dir": str(spec.out_dir)}


def _absolute(path: Path | None) -> Path | None:
    return None if path is None else path.absolute()
