"""Each control program does what its row of the table says, and nothing else is wrong with it."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from safetensors.numpy import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from harness.probe import ENV_DIR, site_dir
from harness.probe.reader import ProbeProcess, read_probe
from tests.trainers.programs import controls

CONTROLS = Path(controls.__file__)
ENDLESS = ("hang", "heartbeat", "ignore-term")
STEPS = list(range(1, 26))


@dataclass(frozen=True, kw_only=True)
class Run:
    """A finished mode and what it left."""

    root: Path
    exit_code: int
    stdout: str
    stderr: str

    def printed(self) -> list[int]:
        """Steps on stdout."""
        return [int(step) for step in re.findall(r"^step=(\d+) ", self.stdout, re.MULTILINE)]

    def series(self, tag: str = "train/loss") -> list[tuple[int, float]]:
        """(step, value) of a TensorBoard tag."""
        events = EventAccumulator(str(self.root / "logs")).Reload()
        known = tag in events.Tags()["scalars"]
        return [(event.step, event.value) for event in events.Scalars(tag)] if known else []

    def steps(self) -> list[int]:
        """Steps of the logged loss."""
        return [step for step, _ in self.series()]

    def weights(self, step: int) -> bytes:
        """A checkpoint's bytes."""
        return (self.root / f"ckpt/step_{step:06d}/model.safetensors").read_bytes()

    def probe(self) -> ProbeProcess:
        """What the optimizer probe saw."""
        (process,) = read_probe(self.root / "probe").processes
        return process


def command(root: Path, mode: str, *args: object) -> list[str]:
    """Command line of a mode with both directories."""
    dirs = ["--log-dir", str(root / "logs"), "--save-dir", str(root / "ckpt")]
    return [sys.executable, str(CONTROLS), "--mode", mode, *dirs, *map(str, args)]


def run(root: Path, mode: str, *args: object) -> Run:
    """Run a mode to its end under the probe."""
    (root / "probe").mkdir()
    env = {**os.environ, "PYTHONPATH": str(site_dir()), ENV_DIR: str(root / "probe")}
    done = subprocess.run(command(root, mode, *args), env=env, capture_output=True, text=True, timeout=400)
    return Run(root=root, exit_code=done.returncode, stdout=done.stdout, stderr=done.stderr)


def test_table_names_every_mode_and_its_health() -> None:
    """The docstring's table is that of the program."""
    rows = re.findall(r"^\| ([a-z0-9-]+) \| (yes|no) \|", controls.__doc__ or "", re.MULTILINE)
    assert dict(rows) == {name: "yes" if mode.healthy else "no" for name, mode in controls.MODES.items()}


@pytest.mark.parametrize(
    "mode",
    ["plain", "warmup-lr-zero", "grad-accum", "late-files", "two-optimizers"],
)
def test_healthy_mode_trains_logs_and_saves(tmp_path: Path, mode: str) -> None:
    """25 logged and applied steps, a falling finite loss, changed weights, exit 0."""
    done = run(tmp_path, mode)
    losses = [value for _, value in done.series()]
    assert (done.exit_code, done.steps(), done.printed(), done.probe().steps) == (0, STEPS, STEPS, 25), (
        done.stderr
    )
    assert losses[-1] < losses[0]
    assert done.weights(0) != done.weights(25)


def test_log_every_10_logs_two_points(tmp_path: Path) -> None:
    """Steps 10 and 20 of 25."""
    assert run(tmp_path, "log-every-10").steps() == [10, 20]


def test_resumed_at_1000_counts_on(tmp_path: Path) -> None:
    """Steps 1001 to 1025, 25 of them applied, and a start checkpoint."""
    done = run(tmp_path, "resumed-at-1000")
    assert (done.steps(), done.probe().steps) == (list(range(1001, 1026)), 25)
    assert done.weights(1000) != done.weights(1025)


def test_warmup_lr_zero_is_zero_once(tmp_path: Path) -> None:
    """Only the first learning rate is 0."""
    rates = [value for _, value in run(tmp_path, "warmup-lr-zero").series("train/lr")]
    assert [rate == 0 for rate in rates] == [True] + [False] * 24


def test_own_tags_are_the_only_ones(tmp_path: Path) -> None:
    """The loss is called obj/total."""
    done = run(tmp_path, "own-tags")
    assert (len(done.series("obj/total")), done.series()) == (25, [])


def test_scaler_skips_are_logged_as_inf_and_not_applied(tmp_path: Path) -> None:
    """The first two gradient norms are inf; the probe counts them as skips."""
    done = run(tmp_path, "scaler-skips")
    infinite = [value == math.inf for _, value in done.series("train/grad_norm")]
    assert infinite == [True] * 2 + [False] * 23
    assert (done.probe().steps, done.probe().scaler_skips) == (23, 2)


def test_zero_based_logs_from_zero(tmp_path: Path) -> None:
    """Logged steps 0 to 24, last checkpoint 25."""
    done = run(tmp_path, "zero-based")
    assert done.steps() == list(range(25))
    assert done.weights(25)


@pytest.mark.parametrize("mode", ["jsonl", "no-torch"])
def test_json_lines_replace_events(tmp_path: Path, mode: str) -> None:
    """metrics.jsonl holds 25 rows; the weights change."""
    done = run(tmp_path, mode)
    rows = [
        json.loads(line)
        for line in (tmp_path / "logs/metrics.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    assert [row["step"] for row in rows] == STEPS
    assert set(rows[0]) == {"step", "loss", "lr", "grad_norm", "time"}
    assert rows[-1]["loss"] < rows[0]["loss"]
    assert done.weights(0) != done.weights(25)


def test_no_torch_imports_no_torch(tmp_path: Path) -> None:
    """The probe was loaded and saw no torch."""
    run(tmp_path, "no-torch")
    facts = read_probe(tmp_path / "probe")
    assert (facts.loaded, facts.processes) == (True, ())


def test_upload_finishes_after_the_exit(tmp_path: Path) -> None:
    """The last checkpoint is not there at the exit and is there later."""
    words = command(tmp_path, "upload-after-exit", "--upload-after", tmp_path / "exit-seen")
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.wait(240) == 0
        there_at_exit = (tmp_path / "ckpt/step_000025").exists()
        (tmp_path / "exit-seen").touch()
        assert process.stdout is not None
        rest = process.stdout.read()
    assert not there_at_exit
    assert rest.endswith("upload finished\n")
    assert (tmp_path / "ckpt/step_000025/model.safetensors").is_file()


def test_straggler_outlives_the_program_and_holds_the_pipe(tmp_path: Path) -> None:
    """stdout stays open for as long as the straggler lives."""
    started = time.monotonic()
    done = run(tmp_path, "straggler", "--forever-s", 6)
    assert (done.exit_code, done.steps()) == (0, STEPS)
    assert time.monotonic() - started > 6


@pytest.mark.parametrize("mode", ["no-steps", "prints-only", "resume-finished"])
def test_mode_without_training_leaves_nothing(tmp_path: Path, mode: str) -> None:
    """Exit 0, no logs, no checkpoint, no torch."""
    done = run(tmp_path, mode)
    assert (done.exit_code, done.printed()) == (0, STEPS if mode == "prints-only" else [])
    assert {path.name for path in tmp_path.iterdir()} == {"probe"}


@pytest.mark.parametrize("mode", ["logs-only", "no-optimizer-step"])
def test_mode_without_optimizer_steps_logs_and_changes_nothing(tmp_path: Path, mode: str) -> None:
    """25 rows and an optimizer, no applied step, equal weights."""
    done = run(tmp_path, mode)
    assert (done.steps(), done.probe().steps, done.probe().optimizers_created) == (STEPS, 0, 1)
    assert done.weights(0) == done.weights(25)


def test_one_short_ends_at_24(tmp_path: Path) -> None:
    """Exit 0 with 24 of 25 steps."""
    done = run(tmp_path, "one-short")
    assert (done.exit_code, done.steps()[-1], done.probe().steps) == (0, 24, 24)


@pytest.mark.parametrize(
    ("mode", "tag", "step"),
    [
        ("nan-middle", "train/loss", 12),
        ("nan-grad-norm", "train/grad_norm", 12),
        ("inf-last-grad", "train/grad_norm", 25),
    ],
)
def test_non_finite_mode_is_non_finite_at_one_step(tmp_path: Path, mode: str, tag: str, step: int) -> None:
    """One value is not finite, the final weights are."""
    done = run(tmp_path, mode)
    assert [at for at, value in done.series(tag) if not math.isfinite(value)] == [step]
    if tag != "train/loss":
        assert all(math.isfinite(value) for _, value in done.series())
    final = load_file(tmp_path / "ckpt/step_000025/model.safetensors")
    assert all(math.isfinite(value) for tensor in final.values() for value in tensor.flat)


def test_nan_weights_are_in_the_last_checkpoint_only(tmp_path: Path) -> None:
    """What is logged is finite."""
    done = run(tmp_path, "nan-weights")
    assert all(
        math.isfinite(value) for tag in ("train/loss", "train/grad_norm") for _, value in done.series(tag)
    )
    last, before = (load_file(tmp_path / f"ckpt/step_{step:06d}/model.safetensors") for step in (25, 20))
    assert math.isnan(last["0.weight"][3, 2])
    assert not any(math.isnan(value) for value in before["0.weight"].flat)


@pytest.mark.parametrize(
    ("mode", "changed", "lr_positive"),
    [("lr-zero", False, 0), ("frozen", False, 25), ("decay-only", True, 25)],
)
def test_ineffective_mode_steps_without_learning(
    tmp_path: Path, mode: str, changed: bool, lr_positive: int
) -> None:
    """25 applied steps, of which none can teach anything."""
    done = run(tmp_path, mode)
    assert (done.probe().steps, done.probe().lr_positive_steps) == (25, lr_positive)
    assert (done.weights(0) != done.weights(25)) is changed
    if mode != "lr-zero":
        assert (done.probe().grad.nonzero, done.probe().grad.last_nonzero) == (0, False)
        assert {value for _, value in done.series("train/grad_norm")} == {0.0}


def test_old_events_are_copied_as_they_are(tmp_path: Path) -> None:
    """The copied file is the given one, byte for byte."""
    old = tmp_path / "events.out.tfevents.1.host"
    old.write_bytes(b"old")
    run(tmp_path, "old-events-copied", "--old-events", old)
    assert (tmp_path / "logs" / old.name).read_bytes() == b"old"


def test_no_scalars_trains_without_a_row(tmp_path: Path) -> None:
    """25 applied steps, changed weights, nothing logged or printed."""
    done = run(tmp_path, "no-scalars")
    assert (done.steps(), done.printed(), done.probe().steps) == ([], [], 25)
    assert done.weights(0) != done.weights(25)


@pytest.mark.parametrize(
    ("mode", "exit_code", "stderr"),
    [
        ("killed", -signal.SIGKILL, ""),
        ("half-record", 1, ""),
        ("exception-exit-0", 0, "RuntimeError: the loader's worker died"),
    ],
)
def test_mode_that_ends_half_way(tmp_path: Path, mode: str, exit_code: int, stderr: str) -> None:
    """12 whole steps are there and no more, with the mode's own exit code."""
    done = run(tmp_path, mode)
    assert (done.exit_code, done.steps()) == (exit_code, STEPS[:12])
    assert stderr in done.stderr


def test_half_record_ends_within_a_record(tmp_path: Path) -> None:
    """The file's last record announces more bytes than there are."""
    run(tmp_path, "half-record")
    (path,) = (tmp_path / "logs").glob("*tfevents*")
    data, offset = path.read_bytes(), 0
    while offset + 12 <= len(data):
        offset += 12 + int.from_bytes(data[offset : offset + 8], "little") + 4
    assert offset > len(data)


def test_crash_window_raises_after_a_second(tmp_path: Path) -> None:
    """Exit 1 with a traceback, about a second after the start."""
    started = time.monotonic()
    done = run(tmp_path, "crash-window")
    assert 1 <= time.monotonic() - started < 180
    assert (done.exit_code, "RuntimeError: the data set is not there" in done.stderr) == (1, True)


@pytest.mark.parametrize("mode", ENDLESS)
def test_endless_mode_goes_on_until_it_is_stopped(tmp_path: Path, mode: str) -> None:
    """SIGTERM ends it, but for the mode that ignores it."""
    with subprocess.Popen(
        command(tmp_path, mode, "--forever-s", 240), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        wanted = "step=30 " if mode == "ignore-term" else "heartbeat 3\n"
        next(line for line in process.stdout if line.startswith(wanted))
        process.terminate()
        if mode == "ignore-term":
            next(line for line in process.stdout if line.startswith("step=60 "))
            process.kill()
        assert process.wait(120) == (-signal.SIGKILL if mode == "ignore-term" else -signal.SIGTERM)


def test_hang_ignores_sigterm_when_told(tmp_path: Path) -> None:
    """--ignore-term makes SIGTERM do nothing."""
    args = command(tmp_path, "hang", "--ignore-term", "--forever-s", 240)
    with subprocess.Popen(args, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        next(line for line in process.stdout if line == "heartbeat 3\n")
        process.terminate()
        next(line for line in process.stdout if line == "heartbeat 9\n")
        process.kill()
        assert process.wait(120) == -signal.SIGKILL


def test_modes_without_directories_run(tmp_path: Path) -> None:
    """Neither --log-dir nor --save-dir is needed."""
    done = subprocess.run(
        [sys.executable, str(CONTROLS), "--mode", "plain", "--max-steps", "3"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1].startswith("step=3 ")
    assert list(tmp_path.iterdir()) == []
