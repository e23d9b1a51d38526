"""A trainer's output as a metric source: rows, bars, attempts, and output that means harm."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harness.metrics import stdout_scan
from harness.metrics.command import metrics_report
from harness.metrics.model import RestartMarker
from harness.metrics.stdout import MAX_LINE_BYTES, StdoutReader
from harness.metrics.stdout_lines import read_line
from harness.metrics.stdout_scan import LineScan
from harness.metrics.stdout_signs import signed_lines
from harness.metrics.stdout_steps import StdoutParser
from harness.record.events import MetricEvent

CASES = Path(__file__).parent / "cases"
OUTPUT = CASES / "recorded" / "output"
STATES = Path(__file__).parents[1] / "frameworks" / "recorded"
Series = dict[str, list[tuple[int, float]]]


def read(path: Path, **options: Any) -> tuple[StdoutReader, Series, list[RestartMarker]]:
    """(reader, {tag: [(step, value)]} as written, restart markers) of a whole file."""
    reader = StdoutReader(path, **options)
    series: Series = {}
    markers = []
    for item in reader.poll(final=True):
        if isinstance(item, RestartMarker):
            markers.append(item)
            continue
        for event in item.events():
            series.setdefault(event.tag, []).append((event.step, event.value))
    return reader, series, markers


def text(tmp_path: Path, content: str | bytes) -> Path:
    """A log with that content."""
    path = tmp_path / "train.log"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def merged(path: Path, tag: str) -> list[tuple[int, float]]:
    """The series as `python -m harness metrics` gives it."""
    report = metrics_report(path, [tag], None)
    return [(point["step"], point["value"]) for point in report["series"].get(tag, [])]


def test_case_01_has_no_series() -> None:
    """Two epochs in which nothing trained: no row, no step."""
    for name in ("log.txt", "log_after_fix.txt"):
        reader, series, _ = read(CASES / "01-areno-sft-noop" / name)
        assert (series, reader.last_step) == ({}, None)
    assert not metrics_report(CASES / "01-areno-sft-noop" / "log.txt", [], None)["ok"]


def test_case_02_printed_steps_are_no_rows() -> None:
    """Only step 2 has a loss; the printed step 3 is none."""
    assert read(CASES / "02-areno-step-without-update" / "empty_batch.txt")[1] == {}
    series = read(CASES / "02-areno-step-without-update" / "critic_warmup.txt")[1]
    assert series["actor_train_skipped"] == [(0, 1.0), (1, 1.0)]
    assert (series["loss"], series["reward_mean"]) == ([(2, 0.0134)], [(0, 0.125)])


@pytest.mark.parametrize(("name", "steps"), [("filtered", [20, 30, 40]), ("zero", [10, 20, 30]), ("amp_skip", [10])])
def test_case_08_nonfinite_rows(name: str, steps: list[int]) -> None:
    """The gradient norm's NaN is read, with the steps that logging_steps tells."""
    path = CASES / "08-hf-nan-behind-finite-loss" / f"{name}.txt"
    reader, series, _ = read(path, logging_steps=10)
    assert [step for step, value in series["grad_norm"] if not math.isfinite(value)] == steps
    assert reader.problems(final=True) == []
    guessed, numbered, _ = read(path)
    assert [step for step, _ in numbered["loss"]] == list(range(1, len(series["loss"]) + 1))
    assert [problem.code for problem in guessed.problems(final=True)] == ["steps-unknown"]


def test_logging_steps_after_a_resume(tmp_path: Path) -> None:
    """Rows are counted from the step that the run resumed at."""
    lines = ["***** Running training *****", "  Continuing training from global step 200"]
    lines += ["{'loss': 1.0, 'epoch': 2.1}", "{'loss': 0.9, 'epoch': 2.2}"]
    series = read(text(tmp_path, "\n".join(lines)), logging_steps=10)[1]
    assert series["loss"] == [(210, 1.0), (220, 0.9)]


def test_case_19_two_attempts_in_one_log() -> None:
    """The second attempt's values count: ten points, the last 1.19 at step 500."""
    expected = json.loads((CASES / "19-resume-overlap-after-requeue" / "expected.json").read_text())
    path = CASES / "19-resume-overlap-after-requeue" / "slurm-77.out"
    reader, _, markers = read(path)
    loss = dict(merged(path, "loss"))
    assert (len(loss), max(loss)) == (expected["points"], expected["last_step"])
    assert {str(step): loss[step] for step in (250, 300, 500)} == expected["loss_at"]
    assert (reader.parser.where.num_attempts, markers) == (expected["attempts"], [RestartMarker(250)])
    assert (reader.last_step, reader.announced_total) == (500, 500)
    assert merged(path, "train_loss") == [(500, 0.79)]


def test_case_19_without_its_banner(tmp_path: Path) -> None:
    """A bar that begins again is another attempt."""
    lines = (CASES / "19-resume-overlap-after-requeue" / "slurm-77.out").read_text().splitlines()
    kept = [line for line in lines if "=" not in line and "*****" not in line and "Continuing" not in line]
    at = next(i for i, line in enumerate(kept) if "REQUEUE" in line or "250/500 [01:00" in line)
    kept.insert(at, "\r  0%|          | 0/500 [00:00<?, ?it/s]")
    path = text(tmp_path, "\n".join(kept) + "\n")
    loss = dict(merged(path, "loss"))
    assert (len(loss), loss[250], loss[300], loss[500]) == (10, 1.48, 1.41, 1.19)


@pytest.mark.parametrize("name", ["slow.txt", "fast.txt", "mixed.txt"])
def test_case_26_bars(name: str) -> None:
    """s/it is turned over, and an evaluation's bar is not the training's."""
    expected = json.loads((CASES / "26-tqdm-rate-and-cr" / "expected.json").read_text())[name]
    reader = read(CASES / "26-tqdm-rate-and-cr" / name)[0]
    step = expected.get("last_step", expected.get("last_train_step"))
    assert (reader.last_step, reader.announced_total) == (step, expected["total"])
    assert reader.rate == pytest.approx(expected["steps_per_second"])


@pytest.mark.parametrize(("name", "steps"), [("hf.log", range(1, 21)), ("hf-resume.log", range(21, 31))])
def test_recorded_transformers_log(name: str, steps: range) -> None:
    """Rows without a step land on the steps of trainer_state.json, evaluations too."""
    history = json.loads((STATES / "hf-trainer" / "trainer_state.json").read_text())["log_history"]
    reader, series, markers = read(OUTPUT / name)
    for tag in ("loss", "grad_norm", "eval_loss"):
        rows = [(row["step"], pytest.approx(row[tag], rel=1e-3)) for row in history if tag in row]
        assert series[tag] == [row for row in rows if row[0] in steps], tag
    assert (reader.last_step, reader.announced_total) == (steps[-1], steps[-1])
    assert (markers, reader.parser.where.num_attempts, reader.problems(final=True)) == ([], 1, [])
    assert reader.rate is not None and reader.rate > 1


@pytest.mark.parametrize(("name", "state"), [
    ("dpo.stdout", "trl-dpo"), ("log_completions.stdout", "trl-grpo"), ("gspo.stdout", "trl-gspo"),
    ("sft.stdout", "trl-sft"),
])
def test_recorded_rows_without_bars(name: str, state: str) -> None:
    """Standard output alone: the closing row tells the steps of the run, so those of each row are known."""
    history = json.loads((STATES / state / "trainer_state.json").read_text())["log_history"]
    reader, series, _ = read(OUTPUT / name)
    rows = [(row["step"], pytest.approx(row["loss"], rel=1e-3)) for row in history if "loss" in row]
    assert series["loss"] == rows
    assert (reader.problems(final=True), reader.announced_total) == ([], rows[-1][0])


def test_recorded_ppo_rows() -> None:
    """TRL's PPO prints no loss; its rows are numbered, which here are the steps of trainer_state.json."""
    history = json.loads((STATES / "trl-ppo" / "trainer_state.json").read_text())["log_history"]
    reader, series, _ = read(OUTPUT / "ppo.stdout")
    tag = "objective/kl"
    assert series[tag] == [(row["step"], pytest.approx(row[tag], rel=1e-3)) for row in history if tag in row]
    assert "loss" not in series and [problem.code for problem in reader.problems()] == ["steps-unknown"]


def test_recorded_progress_of_dpo() -> None:
    """Standard error alone: tokenising, loading and evaluating are not training."""
    reader, series, _ = read(OUTPUT / "dpo.stderr")
    assert (series, reader.last_step, reader.announced_total) == ({}, 10, 10)


def test_recorded_keras_log() -> None:
    """Backspaces and ANSI; the closing evaluation of another length is not training."""
    reader, series, _ = read(OUTPUT / "ks.log")
    assert series["val_loss"] == [(3, 11.5001), (6, 10.6702), (9, 9.9645)]
    assert series["loss"] == [(3, 8.7508), (6, 7.4323), (9, 6.4686)]
    assert (reader.last_step, reader.announced_total) == (9, 9)
    assert reader.rate == pytest.approx(1 / 0.012)


def test_recorded_lightning_log() -> None:
    """A bar of rich: epochs count from 0, and what it shows is rounded, so no value is taken from it."""
    reader, series, _ = read(OUTPUT / "lt.log")
    assert (series, reader.last_step, reader.announced_total, reader.rate) == ({}, 30, 30, 358.25)


def test_recorded_jax_log() -> None:
    """step=0 loss=7.92441."""
    loss = read(OUTPUT / "jx.log")[1]["loss"]
    assert (len(loss), loss[0], loss[-1]) == (7, (0, 7.92441), (30, 2.42693))


def test_recorded_areno_log() -> None:
    """train_stats={...} behind step=N; stage lines are no metrics."""
    series = read(OUTPUT / "areno-dpo.log")[1]
    assert [step for step, _ in series["loss"]] == [0, 1, 2]
    assert series["loss"][2][1] == pytest.approx(0.394196, rel=1e-5) and "pairs" not in series


@pytest.mark.parametrize(
    ("line", "events"),
    [
        ("{'loss': 1.5, 'step': 3, 'epoch': 0.1}", [("loss", 3, 1.5), ("epoch", 3, 0.1)]),
        ("{'loss': '5.634', 'step': '3'}", [("loss", 3, 5.634)]),
        ("12:30:01 INFO trainer.py:12 - {'loss': nan, 'step': 3}", [("loss", 3, math.nan)]),
        ("{'loss': tensor(0.5), 'step': 3}", [("loss", 3, 0.5)]),
        ("{'loss': np.float32(0.5), 'step': 3}", [("loss", 3, 0.5)]),
        ('{"step": 4, "train": {"loss": 0.5}, "note": "x"}', [("train/loss", 4, 0.5)]),
        ('INFO {"step": 4, "loss": -Infinity}', [("loss", 4, -math.inf)]),
        ("step=5 loss=1e-3 lr=1e-4", [("loss", 5, 1e-3), ("lr", 5, 1e-4)]),
        ("INFO:root:step=5, loss=.5", [("loss", 5, 0.5)]),
        ("Step 7: Loss: 0.25, Accuracy: 97.5%", [("loss", 7, 0.25), ("accuracy", 7, 97.5)]),
        ("step 5 loss: 45% acc: 45%", [("loss", 5, 0.45), ("acc", 5, 45.0)]),
        ("step 1,000 loss 1,234.5", [("loss", 1000, 1234.5)]),
        ("Step: 1,010/20,000 | loss: 0.5", [("loss", 1010, 0.5)]),
        ("Step [1,010/20,000] loss: 0.5", [("loss", 1010, 0.5)]),
        ("step 1,234,567, loss 0.5, tokens: 1,234,567,890, seen: 1,234", [
            ("loss", 1234567, 0.5), ("tokens", 1234567, 1234567890.0)]),
        ("step 12,5 loss: 0.5", []),
        ("step 1,0000 loss: 0.5", []),
        ("step 3 loss: 0,512 acc: 0.5", [("acc", 3, 0.5)]),
        ("step 3 loss: 12,512 acc: 0.5", [("acc", 3, 0.5)]),
        ("step 3 loss: -1,5e3 acc: 0.5", [("acc", 3, 0.5)]),
        ("Epoch 1,000/2,000: loss 0.5", [("loss", 1000, 0.5)]),
        ("Epoch 12,5 step 3 loss: 0.5", [("loss", 3, 0.5)]),
        ("step: 3 loss: 0.5,lr: 1e-3", [("loss", 3, 0.5), ("lr", 3, 1e-3)]),
        ("step=3,loss=1,acc=2", [("loss", 3, 1.0), ("acc", 3, 2.0)]),
        ("step [1,2] loss=1", [("loss", 1, 1.0)]),
        ("step 3, loss 2", [("loss", 3, 2.0)]),
        ("step 3 betas=[0.9,0.95] loss=2", [("loss", 3, 2.0)]),
        ("iter 0: loss 4.2, time 100ms", [("loss", 0, 4.2)]),
        ("step 250: train loss 1.9, val loss 2.0", [("train_loss", 250, 1.9), ("val_loss", 250, 2.0)]),
        ("[2024-01-01 10:00:00,123] global_step: 9 | grad_norm: inf", [("grad_norm", 9, math.inf)]),
        ("\x1b[32mstep=5\x1b[0m loss=\x1b[1m0.5\x1b[0m", [("loss", 5, 0.5)]),
        ("Epoch [1/10], Step [100/5000], Loss: 0.5", [("loss", 100, 0.5)]),
        ("Epoch: 3  train_loss: 0.5  val_loss: 0.6", [("train_loss", 3, 0.5), ("val_loss", 3, 0.6)]),
        ("saved out/epoch=2-step=30-val_loss=2.116.ckpt", []),
        ("config: {'learning_rate': 0.1, 'batch_size': 4}", []),
        ("checkpoint of step 12 has size: 30", []),
        ("loss=0.5", []),
        ("{'loss': __import__('os').getpid(), 'step': 3}", []),
        ("rollout_completion={\"step\": 2, \"reward\": 0.5}", []),
        ('12:30:01 INFO a.py:7 - rollout={"kind": "x", "completion": "at step 5 loss: 0.25 it was {bad}"}', []),
        ("step 3 args={'note': 'loss: 4'} loss: 0.5", [("loss", 3, 0.5)]),
        ("step={'a': 1} 3 loss: 0.5", []),
        ("step 3 stats={'loss': 4}", [("loss", 3, 4.0)]),
        ("epoch=0 step=1 role=policy stage=train_end pairs=2", []),
        ("worker.py:170 step 3 took 5s", []),
    ],
)
def test_lines(tmp_path: Path, line: str, events: list[tuple[str, int, float]]) -> None:
    """Every form of row, and what only resembles one."""
    series = read(text(tmp_path, line + "\n"))[1]
    found = [MetricEvent(tag, step, value, 0.0)[:3] for tag, points in series.items() for step, value in points]
    assert repr(found) == repr(events)


def test_steps_within_epochs(tmp_path: Path) -> None:
    """Epoch [2/10], Step [100/5000] began again with its epoch; a step that goes on is the run's."""
    form = "Epoch [{}/10], Step [{}/5000], Loss: 0.5\n"
    reader, series, _ = read(text(tmp_path, form.format(1, 100) + form.format(1, 5000) + form.format(2, 100)))
    assert [step for step, _ in series["loss"]] == [100, 5000, 5100]
    assert reader.announced_total == 50_000
    reader, series, _ = read(text(tmp_path, form.format(1, 100) + form.format(1, 500) + form.format(2, 600)))
    assert [step for step, _ in series["loss"]] == [100, 500, 600]
    assert reader.announced_total == 5000


def bar(done: int, total: int, description: str = "", rate: str = "5.00it/s") -> str:
    """One drawing of a tqdm bar."""
    head = f"{description}: " if description else ""
    return f"\r{head}{100 * done // total:3d}%|###   | {done}/{total} [00:10<00:10, {rate}]"


@pytest.mark.parametrize(
    ("content", "step", "total"),
    [
        (bar(0, 10) + bar(10, 10) + bar(0, 10) + bar(5, 10), 15, None),
        (bar(3, 10, "Epoch 2/4"), 13, 40),
        (bar(0, 3, "Epoch") + bar(5, 10, "Iteration") + bar(1, 3, "Epoch") + bar(5, 10, "Iteration"), 15, 30),
        (bar(4, 10, "Training") + bar(7, 7, "Evaluating") + bar(2, 5), 4, 10),
        (bar(3, 3, "Loading weights") + bar(40, 40, "Map") + bar(1, 9), 1, 9),
        (bar(5, 5) + bar(3, 100), 3, 100),
        (bar(3, 100, rate="?it/s"), 3, 100),
    ],
)
def test_nested_and_repeated_bars(tmp_path: Path, content: str, step: int, total: int | None) -> None:
    """Epochs add up, evaluations and preparations do not count."""
    reader = read(text(tmp_path, content))[0]
    assert (reader.last_step, reader.announced_total) == (step, total)


def test_lightning_bar_of_tqdm(tmp_path: Path) -> None:
    """Epochs from 0; the validation's bar is none of the training's."""
    line = bar(10, 10, "Epoch 0").replace("]", ", v_num=0, train_loss=2.1]") + bar(5, 5, "Validation DataLoader 0")
    line += bar(0, 10, "Epoch 0") + bar(5, 10, "Epoch 1").replace("]", ", v_num=0, train_loss=2.1]")
    reader, series, _ = read(text(tmp_path, line))
    assert (reader.last_step, series, reader.parser.where.num_attempts) == (15, {}, 1)


def test_bar_is_seen_before_its_line_ends(tmp_path: Path) -> None:
    """The last bar has no end of line; it counts at once, and what is read later does not count twice."""
    path = text(tmp_path, bar(1, 10) + bar(2, 10))
    reader = StdoutReader(path)
    list(reader.poll())
    assert reader.last_step == 2
    with path.open("ab") as file:
        file.write((bar(10, 10) + "\n").encode())
    list(reader.poll())
    assert (reader.last_step, reader.announced_total) == (10, 10)


@pytest.mark.parametrize("name", ["hf.log", "ks.log", "jx.log", "dpo.stderr", "lt.log"])
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_pieces_do_not_matter(name: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    """However the bytes arrive, the events are the same."""
    content = (OUTPUT / name).read_bytes()
    _, expected, _ = read(OUTPUT / name)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=8)))
    path = tmp_path_factory.mktemp("pieces") / "train.log"
    path.touch()
    reader, series = StdoutReader(path), Series()
    for start, end in zip([0, *cuts], [*cuts, len(content)], strict=True):
        with path.open("ab") as file:
            file.write(content[start:end])
        for item in reader.poll(final=end == len(content)):
            assert not isinstance(item, RestartMarker)
            for event in item.events():
                series.setdefault(event.tag, []).append((event.step, event.value))
    assert series == expected
    assert reader.bytes_read == len(content)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=40),
            st.sampled_from(
                [b"{'loss': ", b"'epoch': '0.1'}", b"step=", b"9" * 30, b"nan", b"\r", b"\n", b"\b", b"\x1b[A",
                 b" 5%|##| ", b"1/0 [", b"3/9 [00:01<00:02, 0.00s/it]", b'{"step": 1e400, "epoch": -1}', b"Epoch 1/0\n",
                 b"Epoch [0/", b"Total optimization steps = 0\n", b"Num Epochs = 0\n",
                 b"***** Running training *****\n", b"inf", b"{'loss': 1, 'epoch': 1e300}\n",
                 b"{'loss': 1, 'epoch': inf}\n", b"1/3 - 0s - 0ms/step - loss: 1\n"]
            ),
        ),
        max_size=12,
    )
)
def test_no_line_raises(parts: list[bytes]) -> None:
    """Whatever stands there."""
    parser = StdoutParser()
    for line in b"".join(parts).replace(b"\r", b"\n").replace(b"\b", b"\n").split(b"\n"):
        parser.peek(line)
        list(parser.line(line))
    list(parser.finish())


def test_hostile_output(tmp_path: Path) -> None:
    """A line of 10 MB, NUL, invalid UTF-8, deep nesting and long numbers: rows around them are kept, in no time."""
    hostile = [
        b"\x00\xff{" + b"a" * 10_000_000, b"9" * 900_000, b'{"' * 200_000, b"{'a':" * 100_000, b"[" * 500_000,
        b"step " + b"1" * 5000, b"step=" + b" " * 15_000, b"a=" * 7000, b"epoch " * 2500, b"%|" * 8000,
        b"{'loss': '" + b"1" * 60_000 + b"'}", b"{'loss': 1" + b" " * 60_000 + b"}", b"step a" + b"." * 15_000,
        (b"1%|" + b" " * 399 + b"| ") * 30, b"step" + b"train " * 2600, b"Epoch 1 " + "━".encode() * 4000 + b"it/s",
        b"{'" + b"a" * 60_000 + b"': 1}", b'{"step": 1, "x": ' + b"9" * 5000 + b"}", b"step=" + b"9" * 18 + b" loss=1",
    ]
    began = time.process_time()
    rows = [b"\x00\xfe step=%d loss=0.5" % index for index in range(len(hostile) + 1)]
    content = b"\n".join(part for pair in zip(rows, [*hostile, b""], strict=True) for part in pair)
    reader, series, _ = read(text(tmp_path, content + b"\n"))
    steps = [step for step, _ in series["loss"] if step < 10**17]
    assert steps == list(range(len(hostile) + 1))
    assert [problem.code for problem in reader.problems(final=True)] == ["oversized"]
    assert reader.bytes_read == len(content) + 1 and time.process_time() - began < 60


def test_row_behind_an_oversized_line_without_end(tmp_path: Path) -> None:
    """The line is passed over while it is still being written; what follows its end counts."""
    path = text(tmp_path, b"x" * (2 * MAX_LINE_BYTES))
    reader = StdoutReader(path)
    assert list(reader.poll()) == [] and reader.bytes_read > MAX_LINE_BYTES
    with path.open("ab") as file:
        file.write(b"step=1 loss=1\nstep=2 loss=2\n")
    events = [event for item in reader.poll() if not isinstance(item, RestartMarker) for event in item.events()]
    assert [event.step for event in events] == [2]


@pytest.mark.parametrize(("offset", "steps"), [(0, [1, 2, 3]), (7, [2, 3]), (14, [2, 3]), (15, [3])])
def test_first_offset(tmp_path: Path, offset: int, steps: list[int]) -> None:
    """The line that the offset falls into belongs to what was there before."""
    path = text(tmp_path, "step=1 loss=1\nstep=2 loss=2\nstep=3 loss=3\n")
    reader, series, _ = read(path, first_offset=offset)
    assert [step for step, _ in series["loss"]] == steps
    assert reader.bytes_read == path.stat().st_size - offset


def test_metrics_command_reads_a_log(tmp_path: Path) -> None:
    """JSON lines between other lines, in a file whose name promises nothing."""
    path = text(tmp_path, '{"step": 1, "loss": 2.0}\nhello\n{"step": 2, "loss": NaN}\n')
    report = metrics_report(path, ["loss"], None)
    assert (report["ok"], report["keys"], report["problems"]) == (True, ["loss"], [])
    assert report["series"]["loss"][1] == {"step": 2, "value": None, "repr": "nan", "wall_time": None}


SAID = (
    *(bar(done, 20) for done in (0, 1, 2, 5, 9, 10, 19, 20)), *(bar(done, 8, "Evaluating") for done in (0, 4, 8)),
    *(bar(done, 20, "Epoch 1") for done in (0, 7, 20)), *(bar(done, 3, "epochs") for done in (0, 1)),
    "{'loss': 1.5, 'grad_norm': 0.5, 'epoch': 0.25}", "{'loss': '1.25', 'grad_norm': 'nan', 'epoch': '0.5'}",
    "{'eval_loss': 2.5, 'epoch': 0.5}", '{"step": 3, "loss": 0.5}', "step 4: loss=0.25", " " * 30, "", "noise",
    'at 12:01 - sample={"text": "step 5: loss=0.5"}', 'step 6 sample={"n": 1}',
    'step 6 loss=1.5 sample={"n": "step 7"}', 'a 1/7 run={"n": 1}', 'x stats={"step": 8, "loss": 0.5}',
    'b sample={"n": 1} step 9: loss=0.5', 'c sample={n: 1}', "the step took 5 s", "update 9: iter loss=0.25",
    "\x1b[1mglobal step\x1b[0m:\x1b[32m 11\x1b[0m loss=0.5", "Steps\u3000[12] loss=0.5", "Epoch 2/3",
    "Iterations #13: loss 0.5 step",
    "\x1b[1m7/7\x1b[0m \x1b[32m━━\x1b[0m 0s 2ms/step - loss: 4.9", "7/9 [=>..] - ETA: 0s - loss: 4.5", "7/7 step",
    "  Num Epochs = 3", "  Num examples = 80", "  Total train batch size (w. x) = 8", "no loss: 4",
    "Epoch 1/3 ━━━ 5/20 0:00:01 • 0:00:03 5.30it/s", "Continuing training from global step 7",
    "***** Running training *****", "  Total optimization steps = 20", "{'train_runtime': 9.0, 'epoch': 1.0}",
)


@settings(deadline=None, max_examples=300)
@given(st.lists(st.sampled_from(SAID), max_size=40) | st.lists(st.sampled_from(SAID[:8]), max_size=40)
       | st.lists(st.sampled_from([SAID[11], SAID[12], SAID[13], "noise"]), max_size=40))
@example([bar(0, 20), bar(1, 20), bar(0, 20)])
@example([bar(0, 20), bar(5, 20), bar(2, 20), bar(9, 20)])
@example([bar(0, 20, "Epoch 1"), "{'eval_loss': 2.5, 'epoch': 0.5}", bar(0, 20), bar(7, 20, "Epoch 1"), bar(9, 20)])
@example([bar(0, 20), bar(5, 20), bar(0, 20), bar(7, 20), bar(20, 20), bar(3, 20), bar(4, 20), bar(0, 20), bar(1, 20)])
def test_lines_that_are_passed_over_say_nothing(lines: list[str]) -> None:
    """Bars that are not parsed and rows of a known shape give what a parser of every line gives."""
    text = "".join(line + "\n" for line in lines).encode()
    for long in (1 << 20, 0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(stdout_scan, "_LONG_BYTES", long)
            check_passed_over(lines, LineScan().pick(text))


def check_passed_over(lines: list[str], picked: list[tuple[bytes, bool]]) -> None:
    """`picked`: of the lines, with whether a bar was wiped away before."""
    quick, slow = StdoutParser(), StdoutParser()
    found, expected, cleared = [], [], False
    for line, was_cleared in picked:
        found += quick.line(line, was_cleared=was_cleared)
    for line in lines:
        if not line:
            continue
        for said in read_line(line.encode()):
            slow._was_cleared = cleared
            slow._take(said)
        expected += slow._places.given()
        cleared = line.isspace() and len(line) >= 20
    found, expected = found + quick.finish(), expected + slow.finish()
    assert repr(found) == repr(expected)
    told = [(one.where.last_step, one.where.announced_total, one.where.rate, one.where.num_attempts)
            for one in (quick, slow)]
    assert told[0] == told[1]


PIECES = st.sampled_from([
    "step", "Steps", "epoch", "Epochs", "iter", "iterations", "iteration", "updates", "global_step", "loss", "loss:",
    "7", "12/20", "7/7", "0.5", "1,000", "\u0663", "=", ":", "#", "[", "]", " ", "  ", "\t", "\u3000", "\xa0",
    "\x1b[0m", "-", "/", "/step", "ETA", "***** Running training *****", "Num Epochs = 3", "Num examples = 80", "acc",
    "Total train batch size (w. x) = 8", "Total optimization steps = 20", "Continuing training from global step 7",
    "•", "5.3it/s", "0:00:01", "metric=kl value=0.5", " stage=", "x", "\x85", "\x1c", "\x1b[1m", "2ms/step", "━━",
])


@settings(deadline=None, max_examples=600)
@given(st.lists(st.lists(PIECES, max_size=9).map("".join), min_size=1, max_size=4))
@example(["step=7 loss:0.5"])
@example(["\x1b[1m\u30007/7 0s 2ms/step - loss: 0.5"])
def test_lines_without_a_sign_say_nothing(lines: list[str]) -> None:
    """Words and numbers in any order, with colours and blanks of any script between them."""
    raw = [line.encode() for line in lines]
    signed = signed_lines(b"\n".join(raw))
    start = 0
    for line in raw:
        assert start in signed or not read_line(line)
        assert signed.get(start, start + len(line)) == start + len(line)
        start += len(line) + 1
