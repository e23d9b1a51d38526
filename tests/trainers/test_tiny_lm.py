"""The bundled training job as a real process: it learns, resumes exactly, and stops cleanly."""

from __future__ import annotations

import json
import os
import resource
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.numpy import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from harness.client import ensure_run
from harness.record.store import MetricStore
from harness.spec import RunSpec

TINY_LM = Path(__file__).parents[2] / "fixtures" / "trainers" / "tiny_lm.py"
FILES = {"model.safetensors", "config.json", "optimizer.safetensors", "rng.safetensors", "trainer_state.json"}
TAGS = {"train/loss", "train/lr", "train/grad_norm", "train/tokens_per_s", "train/epoch", "train/batch_fingerprint",
        "eval/loss", "eval/accuracy"}


def tiny_lm(*args: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run the job to its end."""
    command = [sys.executable, str(TINY_LM), *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=check)


def scalars(log_dir: Path) -> dict[str, list[tuple[int, float]]]:
    """(step, value) pairs of every tag."""
    events = EventAccumulator(str(log_dir), size_guidance={"scalars": 0}).Reload()
    return {
        tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]
    }


def printed(stdout: str, key: str) -> list[str]:
    """Values of `key=value` words on the lines of steps."""
    steps = [line.split() for line in stdout.splitlines() if line.startswith("step=")]
    return [word.partition("=")[2] for words in steps for word in words if word.startswith(f"{key}=")]


@pytest.fixture(scope="module")
def default_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, float]:
    """Directory, stdout and processor time (s) of a run with default limits."""
    root = tmp_path_factory.mktemp("default")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = tiny_lm("--save-dir", root / "ckpt", "--log-dir", root / "logs")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return root, result.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of an uninterrupted run of 24 steps, saved every 7 with accumulation."""
    root = tmp_path_factory.mktemp("whole")
    tiny_lm(*short_args(root), "--max-steps", 24)
    return root


def short_args(root: Path) -> list[object]:
    """Arguments of the runs that are compared with each other; the batch does not divide an epoch."""
    every = [
        "--save-every",
        7,
        "--eval-every",
        10,
        "--batch-size",
        17,
        "--grad-accum",
        2,
        "--warmup-steps",
        10,
    ]
    return ["--save-dir", root / "ckpt", "--log-dir", root / "logs", *every]


def test_default_run_answers_nine_of_ten_sums(default_run: tuple[Path, str, float]) -> None:
    """The last evaluation, over all 100 sums, has an accuracy of at least 0.9."""
    last = [line for line in default_run[1].splitlines() if line.startswith("eval accuracy=")][-1]
    assert float(last.split()[1].partition("=")[2]) >= 0.9


def test_default_run_takes_seconds(default_run: tuple[Path, str, float]) -> None:
    """Of processor time, which a busy machine stretches: the job is short enough for a demonstration."""
    assert default_run[2] < 90


def test_default_run_loss_falls(default_run: tuple[Path, str, float]) -> None:
    """The mean loss of the last 20 steps is under a tenth of that of the first 20."""
    losses = [value for _, value in scalars(default_run[0] / "logs")["train/loss"]]
    assert sum(losses[-20:]) < 0.1 * sum(losses[:20])


def test_events_have_the_documented_tags_and_steps_from_one(default_run: tuple[Path, str, float]) -> None:
    """Every completed step is logged once, under its number from 1."""
    series = scalars(default_run[0] / "logs")
    assert set(series) == TAGS
    assert [step for step, _ in series["train/loss"]] == list(range(1, 401))


def test_stdout_steps_agree_with_events(default_run: tuple[Path, str, float]) -> None:
    """Printed losses are the logged ones to the printed precision."""
    logged = [f"{value:.4f}" for _, value in scalars(default_run[0] / "logs")["train/loss"]]
    differing = [
        pair for pair in zip(printed(default_run[1], "loss"), logged, strict=True) if pair[0] != pair[1]
    ]
    assert len(differing) <= 4, f"more than float32 rounding explains: {differing[:5]}"


def test_checkpoints_are_whole_and_start_at_zero(default_run: tuple[Path, str, float]) -> None:
    """Start, middle and end are saved, each with all of its files and nothing half written beside them."""
    saved = sorted((default_run[0] / "ckpt").iterdir())
    assert [path.name for path in saved] == ["step_000000", "step_000200", "step_000400"]
    assert all({file.name for file in path.iterdir()} == FILES for path in saved)


def test_trainer_state_counts_steps_and_epochs(default_run: tuple[Path, str, float]) -> None:
    """400 steps of 50 sums are 200 epochs of 100."""
    state = json.loads((default_run[0] / "ckpt/step_000400/trainer_state.json").read_text(encoding="utf-8"))
    assert (state["global_step"], state["epoch"], state["max_steps"]) == (400, 200.0, 400)


def test_model_size_is_between_100k_and_300k(default_run: tuple[Path, str, float]) -> None:
    """The number of parameters in the checkpoint."""
    weights = load_file(default_run[0] / "ckpt/step_000400/model.safetensors")
    assert 100_000 <= sum(tensor.size for tensor in weights.values()) <= 300_000


@pytest.mark.parametrize("at_step", [7, 14])
def test_resume_repeats_the_uninterrupted_run(whole_run: Path, tmp_path: Path, at_step: int) -> None:
    """Losses, gradient norms and final weights after a resume are bitwise those of the whole run."""
    start = whole_run / "ckpt" / f"step_{at_step:06d}"
    tiny_lm(*short_args(tmp_path), "--max-steps", 24, "--resume", start)
    for tag in ("train/loss", "train/grad_norm", "train/lr", "eval/loss"):
        expected = [point for point in scalars(whole_run / "logs")[tag] if point[0] > at_step]
        assert scalars(tmp_path / "logs")[tag] == expected
    for file in ("model.safetensors", "optimizer.safetensors", "rng.safetensors"):
        final = Path("ckpt/step_000024") / file
        assert (tmp_path / final).read_bytes() == (whole_run / final).read_bytes()


def test_larger_max_steps_continues_a_finished_run(whole_run: Path, tmp_path: Path) -> None:
    """A run to 14 and then to 24 logs what a run to 24 logs."""
    tiny_lm(*short_args(tmp_path), "--max-steps", 14)
    tiny_lm(*short_args(tmp_path), "--max-steps", 24, "--resume", tmp_path / "ckpt")
    assert scalars(tmp_path / "logs")["train/loss"] == scalars(whole_run / "logs")["train/loss"]


def test_resume_of_a_finished_run_does_no_step(whole_run: Path, tmp_path: Path) -> None:
    """It says that there is nothing to do, logs nothing and exits 0."""
    result = tiny_lm(*short_args(tmp_path), "--max-steps", 24, "--resume", whole_run / "ckpt")
    assert "nothing to do" in result.stdout
    assert printed(result.stdout, "loss") == []
    assert list(tmp_path.iterdir()) == []


def test_resume_into_an_own_directory_saves_its_start(whole_run: Path, tmp_path: Path) -> None:
    """The state that the attempt started from is there to compare with."""
    start = whole_run / "ckpt/step_000014"
    tiny_lm(*short_args(tmp_path), "--max-steps", 15, "--resume", start)
    copied = tmp_path / "ckpt/step_000014/model.safetensors"
    assert copied.read_bytes() == (start / "model.safetensors").read_bytes()


def test_sigterm_saves_and_exits_143_and_can_be_resumed(whole_run: Path, tmp_path: Path) -> None:
    """The step under way is finished and saved, and the resumed run is that of no interruption."""
    command = [sys.executable, str(TINY_LM), *map(str, short_args(tmp_path)), "--max-steps", "100000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("step=9 "):
                os.kill(process.pid, signal.SIGTERM)
        assert process.wait(400) == 143
    newest = max((tmp_path / "ckpt").iterdir())
    last_logged = scalars(tmp_path / "logs")["train/loss"][-1][0]
    assert newest.name == f"step_{last_logged:06d}"
    tiny_lm(*short_args(tmp_path), "--max-steps", max(24, last_logged + 1), "--resume", newest)
    assert scalars(tmp_path / "logs")["train/loss"][:24] == scalars(whole_run / "logs")["train/loss"]


def test_same_seed_repeats_and_another_differs(whole_run: Path, tmp_path: Path) -> None:
    """The seed decides the losses."""
    tiny_lm(*short_args(tmp_path / "same"), "--max-steps", 3)
    tiny_lm(*short_args(tmp_path / "other"), "--max-steps", 3, "--seed", 1)
    expected = scalars(whole_run / "logs")["train/loss"][:3]
    assert scalars(tmp_path / "same/logs")["train/loss"] == expected
    assert scalars(tmp_path / "other/logs")["train/loss"] != expected


def test_epochs_alone_decide_the_last_step() -> None:
    """Three epochs of 100 sums in batches of 40 end with step 8."""
    assert printed(tiny_lm("--epochs", 3, "--batch-size", 40).stdout, "step")[-1] == "8"


def test_log_every_keeps_the_first_and_the_last_step() -> None:
    """Logging every 10 of 25 steps logs 1, 10, 20 and 25."""
    result = tiny_lm("--max-steps", 25, "--log-every", 10)
    assert printed(result.stdout, "step") == ["1", "10", "20", "25"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--max-steps", "0"], "--max-steps: 0 is not a whole number of at least 1"),
        (["--max-steps", "many"], "--max-steps: invalid count value"),
        (["--lr", "nan"], "--lr: nan is not a finite number"),
        (["--epochs", "0"], "--epochs: 0 is not above 0"),
        (["--resume", "nowhere"], "--resume nowhere: no checkpoint at nowhere"),
        (["--learning-rate", "1"], "unrecognized arguments: --learning-rate"),
    ],
)
def test_bad_arguments_are_refused(args: list[str], message: str) -> None:
    """Exit code 2 and a message that names the argument."""
    result = tiny_lm(*args, check=False)
    assert result.returncode == 2
    assert message in result.stderr


def test_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    """A checkpoint whose tensors are cut is an argument error, not a fresh start."""
    (tmp_path / "trainer_state.json").write_text('{"global_step": 3, "data_position": 0}', encoding="utf-8")
    (tmp_path / "model.safetensors").write_bytes(b"\x10\x00")
    result = tiny_lm("--resume", tmp_path, check=False)
    assert result.returncode == 2
    assert "--resume" in result.stderr


def test_harness_stops_the_job_once_it_learns_no_more(tmp_path: Path) -> None:
    """Every sum is known, so that its accuracy cannot rise: SIGTERM after three evaluations, and what it saved then
    is the checkpoint of a GO."""
    words = [sys.executable, str(TINY_LM), "--max-steps", "50000", "--eval-every", "20", "--save-dir", "saved",
             "--log-dir", "events"]
    spec = RunSpec(train_cmd=shlex.join(words), out_dir=tmp_path / "out", workdir=tmp_path, run_id="default-job",
                   early_stop_metric="eval_accuracy", early_stop_patience=3)
    out_dir = ensure_run(spec, lambda line: None)
    report = json.loads((out_dir / "train-model.json").read_text())
    assert (report["decision"], report["terminal_state"]) == ("GO", "EARLY_STOPPED"), report["summary"]
    stopped = report["early_stopping"]["triggered_at_step"]
    with MetricStore.open(out_dir / "metrics.db") as store:
        seen = [(point.step, point.value) for point in store.series("eval/accuracy") if point.step <= stopped]
    best = next(index for index, (_, value) in enumerate(seen) if value == max(value for _, value in seen))
    assert stopped == seen[best + 3][0]
    assert stopped <= report["total_steps"] < 50000
    assert report["all_checkpoints"][-1]["step"] == report["total_steps"]
    assert "eval_accuracy did not improve for 3 evals" in (out_dir / "progress.log").read_text()
