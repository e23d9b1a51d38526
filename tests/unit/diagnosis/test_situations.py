"""Which error was the first: recorded torchrun logs, and logs of every situation that misleads."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.diagnosis.inputs import find_inputs
from harness.diagnosis.read import RunReading, read_run
from tests.unit.diagnosis.rule_logs import raised

LOGS = Path(__file__).parent / "logs"
STEPS = "".join(f"step {number}/100 loss {2 - number / 100:.3f}\n" for number in range(1, 41))
MORE = "".join(f"step {number}/100 loss {2 - number / 100:.3f}\n" for number in range(41, 81))
KEY = raised("KeyError: 'labels'")
VALUE = raised("ValueError: bad rate")
CAUSED = "\nThe above exception was the direct cause of the following exception:\n\n"
HANDLED = "\nDuring handling of the above exception, another exception occurred:\n\n"


def read(path: Path, text: str, exit_code: int | None = 1) -> RunReading:
    """What is made of one log."""
    path.write_text(text, encoding="utf-8")
    return read_run(find_inputs([path]).logs, exit_code=exit_code)


def found(reading: RunReading) -> tuple[str, str, int | None]:
    """(rule, exception or line, rank) of the cause."""
    cause = reading.finding.cause
    assert cause is not None and cause.rule is not None
    return cause.rule.id, cause.link.kind if cause.link else cause.text, cause.rank


@pytest.mark.parametrize(("name", "right"), [
    ("raise", ("uncaught-exception", "ValueError", 1)),
    ("kill", ("oom-host-suspected", "signal SIGKILL", 1)),
    ("memory", ("oom-host-alloc", "RuntimeError", 1)),
    ("hang", ("collective-timeout", "RuntimeError", 0)),
    ("worker-killed", ("dataloader-worker", "RuntimeError", 1)),
    ("worker-reset", ("dataloader-gone", "ConnectionResetError", 1)),
    ("worker-gone", ("dataloader-gone", "ConnectionResetError", 1)),
    ("worker-bus", ("shared-memory", "RuntimeError", 1)),
])
def test_recorded_torchrun_logs(name: str, right: tuple[str, str, int]) -> None:
    """Real runs of two gloo ranks, the second of which failed."""
    reading = read_run(find_inputs([LOGS / f"ranks-{name}.log"]).logs, exit_code=1)
    assert found(reading) == right
    assert reading.planned == 32


def test_first_of_a_direct_chain(tmp_path: Path) -> None:
    """The exception that others were raised from, with its own line."""
    reading = read(tmp_path / "a.log", STEPS + KEY + CAUSED + VALUE)
    assert found(reading)[1] == "KeyError"
    assert reading.finding.cause is not None and reading.finding.cause.link is not None
    assert reading.finding.cause.link.place.line == 44


def test_first_of_a_chain_met_while_handling(tmp_path: Path) -> None:
    """The handler's own exception is not the cause, whatever it is about."""
    missing = raised("ModuleNotFoundError: No module named 'sentry'")
    assert found(read(tmp_path / "a.log", KEY + HANDLED + missing)) == ("uncaught-exception", "KeyError", None)


def test_original_traceback_of_a_worker(tmp_path: Path) -> None:
    """DataLoader prints the worker's traceback inside the message of its own."""
    text = raised("ValueError: Caught ValueError in DataLoader worker process 0.").rstrip("\n") + (
        "\nOriginal Traceback (most recent call last):\n"
        '  File "/srv/job/data.py", line 9, in __getitem__\n    raise KeyError("tokens")\n'
        "KeyError: 'tokens'\n\n")
    assert found(read(tmp_path / "a.log", text)) == ("dataset-schema", "KeyError", None)


def test_interleaved_ranks_are_told_apart(tmp_path: Path) -> None:
    """Lines of two tracebacks in turns: each is put together by itself."""
    one, two = KEY.splitlines(), raised("RuntimeError: Connection closed by peer").splitlines()
    mixed = [line for pair in zip([f"[rank1]: {line}" for line in one], [f"[rank0]: {line}" for line in two],
                                  strict=True) for line in pair]
    assert found(read(tmp_path / "a.log", "\n".join(mixed) + "\n")) == ("uncaught-exception", "KeyError", 1)


@pytest.mark.parametrize("label", ["[default3]:", "3: ", "[1,3]<stderr>:", "[default3]:[rank3]: ", "host7: [rank3]: "])
def test_labels_of_launchers(label: str, tmp_path: Path) -> None:
    """torchrun --tee, srun --label, mpirun -tag-output, nested ones."""
    text = "".join(f"{label}{line}\n" for line in VALUE.splitlines())
    assert found(read(tmp_path / "a.log", text)) == ("uncaught-exception", "ValueError", 3)


def test_dead_thread_is_the_cause_of_what_waits_for_it(tmp_path: Path) -> None:
    """The generation thread dies, training goes on for a while, then something unrelated gives up."""
    thread = "Exception in thread Thread-3 (generate):\n" + VALUE
    reading = read(tmp_path / "a.log", STEPS + thread + MORE + raised("_queue.Empty"))
    assert found(reading)[1] == "ValueError"


def test_exception_that_the_run_went_on_from_is_not_the_cause(tmp_path: Path) -> None:
    """It was caught; the error at the end was not."""
    reading = read(tmp_path / "a.log", STEPS + KEY + MORE + VALUE)
    assert found(reading)[1] == "ValueError"
    assert [event.text for event in reading.finding.recovered] == ["KeyError: 'labels'"]


def test_bar_that_is_drawn_again_is_no_recovery(tmp_path: Path) -> None:
    """tqdm closes its bar behind the traceback, at the same step."""
    bar = "\r 40%|####      | 40/100 [00:40<01:00,  1.00it/s]"
    assert found(read(tmp_path / "a.log", STEPS + bar + "\n" + KEY + bar + "\n"))[1] == "KeyError"


def test_traceback_behind_a_bar_on_one_line(tmp_path: Path) -> None:
    """A bar has no line feed of its own."""
    bar = "\r 40%|####      | 40/100 [00:40<01:00,  1.00it/s]"
    assert found(read(tmp_path / "a.log", STEPS + bar + KEY))[1] == "KeyError"


def test_assertion_on_the_device_not_the_later_call(tmp_path: Path) -> None:
    """The kernel's line is the cause, wherever the RuntimeError stands."""
    line = ("/pytorch/aten/src/ATen/native/cuda/Loss.cu:250: nll_loss_forward: block: [0,0,0], thread: [5,0,0] "
            "Assertion `t >= 0 && t < n_classes` failed.\n")
    error = raised("RuntimeError: CUDA error: device-side assert triggered")
    for text in (line + error, error + line):
        assert found(read(tmp_path / "a.log", text))[0] == "device-assert"


def test_sigterm_to_the_healthy_is_no_cause(tmp_path: Path) -> None:
    """Rank 0 was asked to end since rank 1 had failed."""
    text = "[rank0]: Received SIGTERM, exiting\n" + "".join(f"[rank1]: {line}\n" for line in KEY.splitlines())
    assert found(read(tmp_path / "a.log", text)) == ("uncaught-exception", "KeyError", 1)


def test_warnings_are_no_failure(tmp_path: Path) -> None:
    """A run that completed with warnings about memory, a retry and an ignored exception."""
    text = STEPS + (
        "UserWarning: CUDA out of memory may follow\n2026-01-10 10:00:00 WARNING hub: NetworkError: retry in 1s (1/4)\n"
        "Exception ignored in: <function Pool.__del__ at 0x7f>\n") + KEY + MORE + "".join(
        f"step {number}/100 loss 1.0\n" for number in range(81, 101))
    reading = read(tmp_path / "a.log", text, exit_code=0)
    assert reading.completed and reading.finding.cause is None


def test_failure_inside_a_pipe_is_one(tmp_path: Path) -> None:
    """Exit code 0 and a traceback at the end."""
    reading = read(tmp_path / "a.log", STEPS + KEY, exit_code=0)
    assert not reading.completed
    assert found(reading)[1] == "KeyError"


def test_nothing_in_the_log_is_unknown(tmp_path: Path) -> None:
    """Exit code 1 and steps: no cause is made up."""
    assert read(tmp_path / "a.log", STEPS).finding.cause is None


def test_earlier_rank_of_several_files(tmp_path: Path) -> None:
    """Time stamps decide between files, not their order."""
    for rank, clock, error in ((0, "10:25:07", "RuntimeError: late"), (1, "10:15:05", "ValueError: early")):
        (tmp_path / f"rank_{rank}.log").write_text(f"2026-01-10 {clock} ERROR worker failed\n" + raised(error))
    reading = read_run(find_inputs([tmp_path]).logs, exit_code=1)
    assert found(reading) == ("uncaught-exception", "ValueError", 1)


def test_tasks_of_slurm_by_name(tmp_path: Path) -> None:
    """%j and %t in the names; a date at the end of one name is no rank."""
    for task, error in ((0, "RuntimeError: Connection reset by peer"), (1, "KeyError: 'x'")):
        (tmp_path / f"slurm-812_{task}.out").write_text(raised(error))
    assert found(read_run(find_inputs([tmp_path]).logs))[1:] == ("KeyError", 1)
    (tmp_path / "one").mkdir()
    dated = tmp_path / "one" / "train-2026-01-10.log"
    dated.write_text(KEY)
    assert found(read_run(find_inputs([dated]).logs))[2] is None


def test_last_attempt_of_an_out_dir_counts(tmp_path: Path) -> None:
    """The supervisor launched again after the first error; train.10.log is later than train.2.log."""
    (tmp_path / "journal.jsonl").write_text("")
    for name, error in (("train.log", "ValueError: 1"), ("train.2.log", "OSError: 2"), ("train.10.log", "KeyError: 3")):
        (tmp_path / name).write_text(raised(error))
    assert found(read_run(find_inputs([tmp_path]).logs))[1] == "KeyError"


def test_last_attempt_of_torchrun_counts(tmp_path: Path) -> None:
    """A restart got over the first error; the second attempt ended the run."""
    for attempt, error in ((0, "ValueError: first"), (1, "KeyError: 'second'")):
        place = tmp_path / "none_x" / f"attempt_{attempt}" / "1"
        place.mkdir(parents=True)
        (place / "stderr.log").write_text(raised(error))
    assert found(read_run(find_inputs([tmp_path]).logs)) == ("uncaught-exception", "KeyError", 1)
