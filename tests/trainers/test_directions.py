"""Both directions, on real programs under the supervisor: a broken run is never GO, a healthy one never NO-GO.

Each run is made once; then every check of real_step is removed in turn, and some broken run must turn green.
"""

from __future__ import annotations

import json
import secrets
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from harness.client import ensure_run, forget_session
from harness.judge.bands import parse_band
from harness.judge.gates import GATES
from harness.judge.verdict import judge
from harness.record.run_record import open_record
from harness.spec import RunSpec

PROGRAMS = Path(__file__).parent / "programs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A control program, how it is run, and what must come out."""

    mode: str
    program: str = "controls.py"
    ranks: int = 1
    """Processes that torchrun starts; 1 for none of it."""
    reason: str = ""
    """The reason code that a broken run must have; "" for a healthy one."""
    decision: str = ""
    """NO-GO or CONDITIONAL for a broken run; GO for a healthy one unless said otherwise."""
    saves: bool = True
    flags: tuple[str, ...] = ()
    target: int | None = 25
    prepare: Callable[[Path], None] | None = None
    spec: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        prepared = f"-{self.prepare.__name__}" if self.prepare else ""
        return self.mode + ("" if self.saves else "-unsaved") + prepared + "".join(f"-{key}" for key in self.spec)


LEFT_EVENTS = "events/events.out.tfevents.1700000001.host.2.0"
OLD_EVENTS = "old/events.out.tfevents.1700000000.elsewhere.1.0"


def old_events(place: Path) -> None:
    """An event file of another day, beside the run's directories."""
    _write_events(place / OLD_EVENTS, time.time() - 86400 * 7)


def events_before_launch(place: Path) -> None:
    """Last week's event file in the very directory that the run is told to log to."""
    _write_events(place / "events" / Path(OLD_EVENTS).name, time.time() - 86400 * 7)


def foreign_writer(place: Path) -> None:
    """Another process that writes events into the run's log directory until the run's report is there."""
    code = (
        "import os, sys, time\nfrom torch.utils.tensorboard import SummaryWriter\n"
        "writer = SummaryWriter(sys.argv[1])\nopen(sys.argv[1] + '/ready', 'w').close()\n"
        "for step in range(1, 6000):\n"
        "    writer.add_scalar('train/loss', 3 / step, step); writer.flush(); time.sleep(0.1)\n"
        "    if os.path.exists('out/train-model.json'): break\n")
    (place / "events").mkdir(parents=True)
    subprocess.Popen([sys.executable, "-c", code, str(place / "events")], cwd=place, start_new_session=True)
    deadline = time.monotonic() + 300
    while not (place / "events" / "ready").exists():
        assert time.monotonic() < deadline, "the other process does not write"
        time.sleep(0.05)


def writer_that_left(place: Path) -> None:
    """A shared log directory, into which another process puts a whole event file while the run waits for it.

    It tells more steps than the run makes: were they as many, nothing could tell it from the run's own.
    """
    events_before_launch(place)
    code = (
        "import os, sys, time\n"
        "def wait(condition):\n"
        "    until = time.monotonic() + 300\n"
        "    while not condition() and time.monotonic() < until: time.sleep(0.02)\n"
        "wait(lambda: os.path.exists('saved/step_000000'))\n"
        "os.utime('ready.tfevents'); os.rename('ready.tfevents', " + repr(LEFT_EVENTS) + ")\n")
    _write_events(place / "ready.tfevents", time.time(), steps=40)
    subprocess.Popen([sys.executable, "-c", code], cwd=place, start_new_session=True)


def file_in_the_way(place: Path) -> None:
    """A file where the run is to make its directory of checkpoints."""
    (place / "saved").write_text("in the way")


def _write_events(path: Path, moment: float, steps: int = 25) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as handle:
        writer = RecordWriter(handle)
        for step in range(1, steps + 1):
            summary = Summary(value=[Summary.Value(tag="train/loss", simple_value=3.0 / step)])
            writer.write(Event(wall_time=moment + step, step=step, summary=summary).SerializeToString())


def bands(*texts: str) -> tuple[dict[str, Any], ...]:
    """Expectations as the run spec holds them."""
    return tuple(parse_band(text).to_json() for text in texts)


BROKEN = (
    Case(mode="no-steps", reason="target-unproven"),
    Case(mode="prints-only", reason="target-unproven"),
    Case(mode="logs-only", reason="no-update-executed"),
    Case(mode="no-optimizer-step", reason="no-update-executed"),
    Case(mode="no-optimizer-step", reason="no-update-executed", saves=False),
    Case(mode="one-short", reason="target-not-reached"),
    Case(mode="one-short", reason="target-not-reached", saves=False),
    Case(mode="nan-middle", reason="loss-not-finite"),
    Case(mode="nan-logged-loss", reason="loss-not-finite"),
    Case(mode="nan-grad-norm", reason="grad-norm-not-finite"),
    Case(mode="inf-last-grad", reason="grad-norm-not-finite"),
    Case(mode="nan-weights", reason="weights-not-finite"),
    Case(mode="lr-zero", reason="lr-zero"),
    Case(mode="lr-zero", reason="lr-zero", saves=False),
    Case(mode="frozen", reason="no-effective-update"),
    Case(mode="frozen", reason="no-effective-update", saves=False),
    Case(mode="decay-only", reason="no-effective-update"),
    Case(mode="decay-only", reason="no-effective-update", saves=False),
    Case(mode="old-events-copied", reason="stale-metrics", flags=("--old-events", OLD_EVENTS), prepare=old_events),
    Case(mode="no-scalars", reason="stale-metrics", prepare=events_before_launch),
    Case(mode="no-scalars", reason="foreign-metrics", prepare=foreign_writer),
    Case(mode="no-scalars", reason="metrics-owner-unproven", flags=("--wait-for", LEFT_EVENTS),
         prepare=writer_that_left),
    Case(mode="no-scalars", reason="no-metric-points"),
    Case(mode="resume-finished", reason="no-update-executed"),
    Case(mode="killed", reason="killed-by-signal"),
    Case(mode="hang", reason="run-timeout", flags=("--ignore-term",), spec={"run_timeout_s": 8.0, "stop_grace_s": 0.5}),
    Case(mode="heartbeat", reason="run-timeout", spec={"run_timeout_s": 6.0, "stop_grace_s": 0.5}),
    Case(mode="crash-window", reason="crashed-in-window", spec={"crash_window_s": 120.0}),
    Case(mode="half-record", reason="exit-code", spec={"crash_window_s": 0.5}),
    Case(mode="exception-exit-0", reason="target-not-reached"),
    Case(mode="exit-1-at-end", reason="exit-code", spec={"crash_window_s": 0.5}),
    Case(mode="metrics-stop-early", reason="sources-disagree"),
    Case(mode="restart-gap", reason="restart-gap", decision="CONDITIONAL"),
    Case(mode="restarted", reason="infrastructure-failure", decision="NO-GO", spec={"fix": False}),
    Case(mode="ignores-lr", reason="override-without-effect", spec={"hp": ("lr=0.05",)}),
    Case(mode="saves-the-start", reason="weights-unchanged"),
    Case(mode="delivers-the-start", reason="weights-unchanged"),
    Case(mode="start-in-archives", reason="weights-unchanged"),
    Case(mode="start-in-one-archive", reason="weights-unchanged"),
    Case(mode="best-is-the-start", reason="weights-unchanged"),
    Case(mode="shards-of-the-start", program="shards.py", ranks=2, reason="weights-unchanged"),
    Case(mode="saves-once", reason="weights-not-compared", decision="CONDITIONAL", spec={"probe": False}),
    Case(mode="saves-one-archive", reason="weights-not-compared", decision="CONDITIONAL", spec={"probe": False}),
    Case(mode="random", program="saved.py", reason="weights-unrelated", decision="CONDITIONAL"),
    Case(mode="random-archive", program="saved.py", reason="weights-unrelated", decision="CONDITIONAL"),
    Case(mode="random-each-time", program="saved.py", reason="weights-unrelated", decision="CONDITIONAL"),
    Case(mode="random-each-time", program="saved.py", reason="weights-unrelated", decision="CONDITIONAL",
         spec={"probe": False}),
    Case(mode="random-part", program="saved.py", reason="weights-unrelated", decision="CONDITIONAL"),
    Case(mode="constant", program="saved.py", reason="weights-unrelated", decision="CONDITIONAL"),
    Case(mode="earlier", program="saved.py", reason="weights-outdated", decision="CONDITIONAL"),
    Case(mode="earlier-archive", program="saved.py", reason="weights-outdated", decision="CONDITIONAL"),
    Case(mode="bf16-start", program="saved.py", reason="weights-unchanged", decision="NO-GO"),
    Case(mode="saves-nothing", reason="checkpoint-missing", decision="CONDITIONAL"),
    Case(mode="swallows-save-errors", reason="save-path-unwritable", prepare=file_in_the_way),
    Case(mode="disk-full-at-the-end", reason="disk-full"),
    Case(mode="cuts-the-last", reason="checkpoint-unreadable"),
    Case(mode="repeats-the-last", reason="checkpoint-repeated"),
    Case(mode="drops-a-tensor", reason="checkpoint-lacks-tensors"),
    Case(mode="nan-in-archive", reason="weights-not-finite"),
    Case(mode="saves-objects", reason="reload-refused", decision="CONDITIONAL"),
    Case(mode="plain", reason="expect-out-of-band", spec={"expect": bands("last(train/loss)<=0")}),
    Case(mode="plain", reason="early-stop-metric-missing", spec={"early_stop_metric": "eval_f1"}),
    Case(mode="save-fails", reason="unresolved-anomaly", decision="CONDITIONAL"),
    Case(mode="own-tags", reason="no-recognised-metrics", decision="CONDITIONAL"),
    Case(mode="nan-at-the-end", reason="weights-not-finite", saves=False),
    Case(mode="stops-before-the-log", reason="target-unproven", saves=False),
    Case(mode="updates-stop", reason="target-unproven", decision="CONDITIONAL"),
    Case(mode="alone", program="ranks.py", ranks=2, reason="world-size-not-realised", saves=False),
    Case(mode="idle-rank", program="ranks.py", ranks=2, reason="rank-without-updates", saves=False),
    Case(mode="joined", program="ranks.py", ranks=2, reason="ranks-trained-alone", decision="NO-GO", saves=False),
    Case(mode="joined-own-data", program="ranks.py", ranks=2, reason="ranks-trained-alone", decision="NO-GO",
         saves=False),
    Case(mode="bypasses-ddp", program="ranks.py", ranks=2, reason="ranks-trained-alone", decision="NO-GO", saves=False),
    *(Case(mode=mode, program="ranks.py", ranks=2, reason="exchange-unproven", decision="CONDITIONAL", saves=False)
      for mode in ("joined-same-data", "gathers-losses", "averages-once")),
)

HEALTHY = (
    Case(mode="plain"),
    Case(mode="plain", saves=False),
    Case(mode="plain", spec={"probe": False}),
    Case(mode="plain", spec={"hp": ("lr=0.05",)}),
    Case(mode="plain", saves=False, spec={"expect": bands("train/loss@25<=100", "peak_memory>=1MB")}),
    Case(mode="log-every-10"),
    Case(mode="log-every-10", saves=False),
    Case(mode="resumed-at-1000", target=1025),
    Case(mode="warmup-lr-zero", saves=False),
    Case(mode="grad-accum", saves=False),
    Case(mode="upload-after-exit"),
    Case(mode="saves-archives"),
    Case(mode="saves-one-archive"),
    Case(mode="saves-once"),
    Case(mode="saves-a-reference"),
    Case(mode="shards", program="shards.py", ranks=2),
    *(Case(mode=mode, program="saved.py") for mode in (
        "numbered-archive", "average", "average-archive", "swapped-archive", "bf16", "fp16-archive", "best-archive")),
    Case(mode="late-files"),
    Case(mode="own-tags", spec={"loss_tag": "obj/total"}),
    Case(mode="two-optimizers", saves=False),
    Case(mode="optimizers-in-turn", saves=False),
    Case(mode="scaler-skips"),
    Case(mode="zero-based", saves=False),
    Case(mode="jsonl"),
    Case(mode="no-torch"),
    Case(mode="overfits", target=2000, spec={"early_stop_metric": "eval_loss", "early_stop_patience": 3}),
    Case(mode="overfits", spec={"early_stop_metric": "eval_loss", "early_stop_patience": 30}),
    Case(mode="restarted"),
    Case(mode="restarted", saves=False),
    Case(mode="restarted-anew"),
    Case(mode="straggler", spec={"drain_grace_s": 1.0}),
    *(Case(mode=mode, program="ranks.py", ranks=2, saves=False) for mode in (
        "together", "ddp-rank-0-evaluates", "fsdp", "compiled-ddp", "averages-weights", "pipeline")),
    Case(mode="leaves-at-once", saves=False),
)


@pytest.fixture(scope="module")
def run_case(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Case], Path]:
    """Run a case under the supervisor, once in this module; its out-dir."""
    made: dict[str, Path] = {}

    def run(case: Case) -> Path:
        key = f"{case}{case.flags}{case.prepare.__name__ if case.prepare else ''}"
        if key not in made:
            place = tmp_path_factory.mktemp("run")
            if case.prepare:
                case.prepare(place)
            ranks = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(case.ranks))
            launcher = ranks if case.ranks > 1 else ()
            words = [sys.executable, *launcher, str(PROGRAMS / case.program), "--mode", case.mode]
            words += ["--log-dir", "events", *case.flags]
            words += ["--save-dir", "saved"] if case.saves else []
            words += ["--max-steps", str(case.target)] if case.target else []
            spec = RunSpec(train_cmd=shlex.join(words), out_dir=place / "out", workdir=place, run_id=case.mode,
                           session=secrets.token_hex(8), **case.spec)
            made[key] = ensure_run(spec, lambda line: None)
            forget_session(spec.session)
        return made[key]

    return run


def report_of(out_dir: Path) -> dict[str, Any]:
    """train-model.json."""
    report: dict[str, Any] = json.loads((out_dir / "train-model.json").read_text())
    return report


@pytest.mark.parametrize("case", BROKEN, ids=str)
def test_broken_run_is_never_go(case: Case, run_case: Callable[[Case], Path]) -> None:
    """Its own reason is given, and the decision is not GO."""
    report = report_of(run_case(case))
    assert report["decision"] in ({case.decision} if case.decision else {"NO-GO", "CONDITIONAL"}), report["summary"]
    assert case.reason in {reason["code"] for reason in report["evidence"]["reasons"]}, report["summary"]


@pytest.mark.parametrize("case", HEALTHY, ids=str)
def test_healthy_run_is_go(case: Case, run_case: Callable[[Case], Path]) -> None:
    """GO, with nothing called broken."""
    report = report_of(run_case(case))
    assert report["decision"] == "GO", report["summary"]
    assert report["evidence"]["reasons"] == []


def test_early_stop_takes_effect(run_case: Callable[[Case], Path]) -> None:
    """Three evaluations after the best at step 20: stopped at 35, EARLY_STOPPED, said so on the way."""
    case = next(case for case in HEALTHY if case.mode == "overfits" and case.target == 2000)
    out_dir = run_case(case)
    report = report_of(out_dir)
    assert report["terminal_state"] == "EARLY_STOPPED"
    assert report["early_stopping"] == {"enabled": True, "metric": "eval_loss", "patience": 3, "triggered": True,
                                        "triggered_at_step": 35}
    assert "Early stopping triggered at step 35" in (out_dir / "progress.log").read_text()
    assert report["total_steps"] < 2000


def test_restarted_run_is_one_run_of_two_attempts(run_case: Callable[[Case], Path]) -> None:
    """Each attempt has its cause, its log and its resume point; steps that were done again count once."""
    case = next(case for case in HEALTHY if case.mode == "restarted" and case.saves)
    out_dir = run_case(case)
    report = report_of(out_dir)
    first, second = report["evidence"]["attempts"]
    assert (first["exit_code"], first["terminal_state"], first["cause"]) == (1, "FAILED", "connection-lost")
    assert (second["exit_code"], second["reason"], second["resumed_from_step"]) == (0, "restart", 10)
    assert (report["terminal_state"], report["confidence"], report["total_steps"]) == ("SUCCEEDED", "medium", 25)
    assert report["evidence"]["observed"]["updates_executed"] == 25
    loss = next(item for item in report["evidence"]["observed"]["metrics"] if item["tag"] == "train/loss")
    assert (loss["points"], loss["first_step"], loss["last_step"]) == (25, 1, 25)
    assert "Connection reset by peer" in (out_dir / "train.log").read_text()
    assert "step=25 " in (out_dir / "train.2.log").read_text()
    told = (out_dir / "progress.log").read_text()
    assert "Restarting the unchanged command (connection-lost: ConnectionResetError" in told


REAL_STEP = next(gate for gate in GATES if gate.name == "real_step")


OF_ROLLOUTS = {"check_response_tokens", "check_rollouts_kept"}
"""No program here rolls anything out: tests/unit/test_rollout_checks.py and tests/areno show that these matter."""


@pytest.mark.parametrize("removed", sorted({function.__name__ for function in REAL_STEP.checks} - OF_ROLLOUTS))
def test_every_check_matters(removed: str, run_case: Callable[[Case], Path]) -> None:
    """Without this check, at least one broken run has no reason not to be GO."""
    without = replace(REAL_STEP, checks=tuple(check for check in REAL_STEP.checks if check.__name__ != removed))
    gates = [without if gate is REAL_STEP else gate for gate in GATES]
    turned_green = []
    for case in BROKEN:
        with open_record(run_case(case)) as record:
            verdict, _ = judge(record, gates=gates)
        if not verdict.reasons:
            turned_green.append(str(case))
    assert turned_green, f"{removed} could be removed without any broken run being left without a reason"
