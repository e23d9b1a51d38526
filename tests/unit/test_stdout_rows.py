"""Rows of one shape that are read together give what each of them gives alone."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from harness.metrics import stdout, stdout_places
from harness.metrics.model import EventColumns, RestartMarker
from harness.metrics.stdout import StdoutReader
from harness.metrics.stdout_said import Row
from harness.metrics.stdout_shapes import RowShapes
from harness.metrics.stdout_steps import rows_alone
from harness.metrics.stdout_stretches import stretches_in
from harness.record.store import MetricStore

NUMBERS = st.sampled_from(
    [
        "1.5",
        "0.25",
        "2",
        "7",
        "0",
        "1e-05",
        "9.999e-05",
        "12345678.9012345678",
        ".5",
        "1.",
        "+1.5",
        "-0.5",
        "-0.0",
        "nan",
        "inf",
        "-inf",
        "NaN",
        "Infinity",
        "1.2.3",
        "1e",
        "--1",
        "abc",
        "",
        "1e999",
        "1e-00005",
        "0" * 45 + "1",
        "01",
        "true",
        "1_0",
        "null",
        "[1, 2]",
        "1,000",
        "tensor(0.5)",
    ]
)
STEPS = st.one_of(st.integers(0, 40).map(str), st.sampled_from(["-1", "1.5", "007", "1" * 16, "1" * 30, "2.0", "x"]))
EPOCHS = st.one_of(
    st.integers(0, 400).map(lambda number: f"{number / 20:.2f}"),
    st.integers(0, 400).map(lambda number: repr(number / 7)),
    st.sampled_from(["0", "3", "1e-05", "-1", "1e10", "nan", "0.5.", "0.125"]),
)
FORMS = {
    "dict": "{{'loss': {0}, 'grad_norm': {1}, 'epoch': {e}}}",
    "quoted": "{{'loss': '{0}', 'lr': '{1}', 'epoch': '{e}'}}",
    "eval": "{{'eval_loss': {0}, 'eval_acc': {1}, 'epoch': {e}}}",
    "step": "{{'step': {s}, 'loss': {0}, 'lr': {1}}}",
    "json": '{{"step": {s}, "loss": {0}, "lr": {1}, "epoch": {e}}}',
    "spaces": '{{ "loss":{0},"epoch":{e} }}',
    "nested": '{{"iter": {s}, "global_step": 9, "time": 1767000{s}.5, "train": {{"loss": {0}, "7": {1}}}}}',
    "timed": '{{"timestamp": "2026-01-07 10:21:{s}", "step": {s}, "loss": "{0}", "note": "a 5, b"}}',
    "pairs": "step={s} loss={0} lr={1}",
    "prose": "[10:21:{s}] Epoch {s}, Step {s}: loss = {0}, kl {1}",
    "within": "Epoch [{s}/10], Step [{s}/40], Loss: {0}",
    "iter": "iter {s}: loss {0}, time {1}ms",
    "epoch": "Epoch {s}: loss={0}",
    "parted": "step {s},{s} Epoch {s} loss: {0},{s} acc: 5,{s},{s} kl: {1}%",
    "thousands": "Step: {s},010/20,000 | loss: {0}",
    "both": "epoch={s} step={s} acc={1}",
    "head": "step 3 {{'loss': {0}, 'epoch': {e}}}",
    "areno": "10:0{s} a.py:2 - epoch=0 step={s} metric=kl value={0}",
    "sample": "10:0{s} a.py:7 - sample={{'step': {s}, 'text': 'step {s} loss: {0}'}}",
    "rank": "[rank{s}]: {{'loss': {0}, 'epoch': {e}}}",
    "of rank": "[default{s}]:step={s} loss={0} lr={1}",
    "same": "{{'loss': 1.5, 'epoch': 1.5}}",
    "owner": "stats = {{'loss': {0}, 'epoch': {e}}}",
    "summary": "{{'train_runtime': {0}, 'train_loss': {1}, 'epoch': {e}}}",
    "two": "{{'loss': {0}, 'epoch': {e}}} {{'loss': {1}, 'epoch': {e}}}",
    "twice": "{{'loss': {0}, 'loss': {1}, 'epoch': {e}}}",
}
ODD = (
    b"noise",
    b"",
    b" " * 30,
    b"\x1b[32mstep=3 loss=0.5\x1b[0m",
    b"  5%|#    | 1/20 [00:01<00:19,  5.00it/s]",
    b" 50%|##   | 10/20 [00:01<00:19,  5.00it/s]",
    b"100%|#####| 20/20 [00:01<00:00,  5.00it/s]",
    b"\xff\xfe{'loss': 1\x00}",
    b"  0%|     | 0/20 [00:00<?, ?it/s]",
    b"***** Running training *****",
    b"  Total optimization steps = 20",
    b"  Num Epochs = 5",
    b"  Num examples = 80",
    b"Total train batch size (w. x) = 8",
    b"Continuing training from global step 7",
    b"{",
    b"}",
    b"{'loss': ",
    b"Traceback (most recent call last):",
    b"{'loss': 0.5, 'epoch': 1.0} and more",
    b"Epoch 2/10",
    b"7/7 [==] - 0s 2ms/step - loss: 0.5",
)


@st.composite
def outputs(draw: st.DrawFn) -> bytes:
    """Rows of a few forms, mostly such as programs print, with odd ones and odd lines between them."""
    forms = draw(st.lists(st.sampled_from(sorted(FORMS)), min_size=1, max_size=3))
    takes_turns = draw(st.booleans())
    parts = []
    for _ in range(draw(st.integers(2, 10))):
        if draw(st.integers(0, 3)) == 0:
            lines = draw(st.lists(st.sampled_from(ODD), min_size=1, max_size=3))
        else:
            drawn, usual, first = (
                forms if takes_turns else [draw(st.sampled_from(forms))],
                draw(st.integers(0, 4)) > 0,
                draw(st.integers(0, 40)),
            )
            lines = [
                FORMS[form].format(
                    f"{1 + number}.5", f"{number}e-05", s=first + number, e=f"{(first + number) / 20:.2f}"
                ).encode()
                if usual
                else FORMS[form].format(draw(NUMBERS), draw(NUMBERS), s=draw(STEPS), e=draw(EPOCHS)).encode()
                for number in range(draw(st.integers(1, 12)))
                for form in drawn
            ]
        end = draw(st.sampled_from([b"\n", b"\n", b"\n", b"\n", b"\r", b"\r\n", b"\b", b"\n\n"]))
        parts += [line + end for line in lines]
    return b"".join(parts)


@st.composite
def redrawn(draw: st.DrawFn) -> bytes:
    """Rows with redraws of bars between them, mostly as a trainer draws them, from where training begins or goes on."""
    total, per_epoch = draw(st.sampled_from([(40, 10), (4000, 7), (10**6, 10**5), (25, 3)]))
    decimals = draw(st.sampled_from([2, 2, 4]))
    wipe = draw(st.sampled_from([b"\r" + b" " * 80 + b"\r", b"\r" + b" " * 12 + b"\r", b"\n", b"\r"]))
    form = FORMS[draw(st.sampled_from(["dict", "dict", "quoted", "eval", "spaces", "step"]))]
    step, shift = draw(st.integers(1, 30)), draw(st.sampled_from([0, 0, 0, 1, -1]))
    parts = [
        draw(st.sampled_from([b"", b"  Total optimization steps = %d\n  Num Epochs = 4\n" % total])),
        draw(st.sampled_from([_bar(1, total), _bar(1, total), b"", _bar(0, total)])) + b"\n",
    ]
    for _ in range(draw(st.integers(1, 6))):
        bars, by = draw(st.sampled_from([0, 1, 1, 1, 1, 3, 4])), draw(st.sampled_from([0, 1, 5, 5, 5, 10]))
        noise = draw(st.sampled_from([b"", b"", b"\n", b"\nnoise 3%\n", b"\nstep 3\n", b"\n{'a'}\n"]))
        for number in range(draw(st.integers(3, 9))):
            step += by
            parts.append(
                form.format(f"1.{number}", "2e-05", s=step, e=f"{step / per_epoch:.{decimals}f}").encode() + b"\n"
            )
            parts += [_bar(step + shift + done, total) for done in range(bars)] + ([noise] if bars else [])
            parts += [wipe] if bars else []
        if draw(st.integers(0, 3)) == 0:
            parts += [line + b"\n" for line in draw(st.lists(st.sampled_from(ODD), min_size=1, max_size=2))]
        if draw(st.integers(0, 4)) == 0:
            step = draw(st.integers(0, 40))
        if draw(st.integers(0, 5)) == 0:
            total = draw(st.sampled_from([total, 40, 7]))
    return b"".join(parts) + draw(st.sampled_from([b"", _bar(step, total), b"\r" + b" " * 80]))


def _bar(done: int, total: int) -> bytes:
    return b"\r%3d%%|###   | %d/%d [00:0%d<00:19,  %d.50%s]" % (
        100 * done // total,
        done,
        total,
        done % 10,
        done % 4,
        b"it/s" if done % 3 else b"s/it",
    )


def everything(path: Path, content: bytes, cuts: list[int], *, learns: bool, **options: Any) -> list[str]:
    """Events, markers and what the parser knows, with a poll at each cut."""
    path.write_bytes(b"")
    reader, found = StdoutReader(path, **options), []
    if not learns:
        reader.parser.shapes._left = 0
    for start, end in zip([0, *cuts], [*cuts, len(content)], strict=True):
        with path.open("ab") as file:
            file.write(content[start:end])
        for item in reader.poll(final=end == len(content)):
            assert not isinstance(item, EventColumns) or sum(w * n for w, n in item.runs or ()) == len(item.tag)
            found += [repr(item)] if isinstance(item, RestartMarker) else list(map(repr, item.events()))
    parser = reader.parser
    told = (
        parser.where.last_step,
        parser.where.announced_total,
        parser.where.rate,
        parser.where.num_attempts,
        parser.are_steps_guessed,
        parser.restarts,
    )
    return [*found, repr(told), repr(parser._places.pace.learned), repr(reader.problems(final=True)), reader.sha256]


DENSE = b"{'loss': 1.5, 'epoch': 0.50}\n"
EVAL = b"{'eval_loss': 1.5, 'epoch': 0.50}\n"


@settings(
    deadline=None, max_examples=300, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(
    content=outputs(),
    cuts=st.lists(st.integers(0, 2000), max_size=3),
    chunk=st.sampled_from([50, 200, 1000]),
    logging_steps=st.sampled_from([None, None, None, 5]),
    pending=st.sampled_from([3, 10_000]),
)
@example(content=DENSE * 8 + DENSE.replace(b"0.50", b"-1") * 4, cuts=[], chunk=50, logging_steps=None, pending=10_000)
@example(
    content=DENSE * 4 + ODD[5] + b"\r" + b" " * 30 + b"\r" + DENSE * 4 + ODD[6],
    cuts=[],
    chunk=130,
    logging_steps=None,
    pending=9,
)
@example(
    content=DENSE * 4 + ODD[5] + b"\r" + b" " * 30 + b"\r" + DENSE * 5 + ODD[6],
    cuts=[90],
    chunk=1000,
    logging_steps=None,
    pending=10_000,
)
@example(content=DENSE * 4 + b"step 30 " + DENSE * 8, cuts=[116], chunk=1000, logging_steps=None, pending=10_000)
@example(content=DENSE * 8 + EVAL * 20 + DENSE * 20, cuts=[], chunk=200, logging_steps=5, pending=9)
@example(content=(EVAL + DENSE + b"{'lr': '1e-05', 'epoch': '0.05'}\n") * 6, cuts=[95], chunk=1000, logging_steps=None,
         pending=3)
def test_together_as_alone(
    content: bytes,
    cuts: list[int],
    chunk: int,
    logging_steps: int | None,
    pending: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever lies between the rows, and wherever the bytes are cut."""
    monkeypatch.setattr(stdout_places, "MAX_PENDING", pending)
    monkeypatch.setattr(stdout, "CHUNK_BYTES", chunk)
    cuts = sorted(cut for cut in cuts if cut < len(content))
    quick = everything(tmp_path / "a.log", content, cuts, learns=True, logging_steps=logging_steps)
    slow = everything(tmp_path / "a.log", content, cuts, learns=False, logging_steps=logging_steps)
    assert quick == slow


@settings(
    deadline=None, max_examples=300, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(
    content=redrawn(),
    cuts=st.lists(st.integers(0, 4000), max_size=2),
    chunk=st.sampled_from([700, 3000, 8000]),
    learned=st.sampled_from([100, 300]),
)
def test_redrawn_as_alone(
    content: bytes, cuts: list[int], chunk: int, learned: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same, where bars are drawn between the rows."""
    monkeypatch.setattr(stdout, "LEARN_BYTES", learned)
    test_together_as_alone.hypothesis.inner_test(content, cuts, chunk, None, 10_000, tmp_path, monkeypatch)  # type: ignore[attr-defined]


@pytest.mark.parametrize("form", ["dict", "quoted", "eval", "step", "json", "nested", "pairs", "prose", "rank"])
def test_shapes_are_learned(form: str) -> None:
    """The usual rows have a shape, and many of them are read at once."""
    lines = [
        FORMS[form].format(f"{number}.5", "1e-05", s=10 + number, e=f"{number}.25").encode() for number in range(1, 9)
    ]
    shapes = RowShapes()
    shapes.learn(lines[0], rows_alone)
    found = list(stretches_in(b"".join(line + b"\n" for line in lines), shapes.alike, 3))
    assert [len(stretch.rows) for stretch in found] == [8]
    alone = rows_alone(lines[5])
    assert alone is not None
    row = shapes.read(lines[5])
    assert isinstance(row, Row)
    assert (row.values, row.step, row.wall_time) == (alone[0].values, alone[0].step, alone[0].wall_time)


def test_words_that_change_are_not_learned_for_ever() -> None:
    """A text in the row that differs each time has no shape; soon it is no longer looked for."""
    shapes = RowShapes()
    asked = []

    def read(raw: bytes) -> list[Row] | None:
        asked.append(raw)
        return rows_alone(raw)

    for number in range(2000):
        shapes.learn(b"{'loss': 1.5, 'epoch': 0.5, 'word': 'w%dx'}" % number, read)
    assert len(asked) < 1000


def test_memory_of_hostile_rows(tmp_path: Path) -> None:
    """A long line that begins like a known row, and rows that end a piece unfinished, stay bounded."""
    path = tmp_path / "train.log"
    row = b"{'loss': 1.5, 'epoch': 0.5}\n"
    path.write_bytes(row * 10 + (b"{'loss': 1" * 300_000) + b"\n" + row * 400_000 + row[:-5])
    tracemalloc.start()
    events = sum(len(item.tag) for item in StdoutReader(path).poll(final=True) if isinstance(item, EventColumns))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert events == 2 * 400_010
    assert peak < 60 << 20


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 60), st.booleans()), min_size=1, max_size=6), st.data())
def test_stored_by_rows_as_one_by_one(runs: list[tuple[int, int, bool]], data: st.DataObject) -> None:
    """The store keeps the same points, series and summaries, however it is told that events form rows."""
    together, alone = MetricStore.temporary(), MetricStore.temporary()
    names = ["a", "b", "c", "d"]
    tags: list[int] = []
    steps: list[int] = []
    walls: list[float] = []
    told: list[tuple[int, int]] = []
    for width, rows, rises in runs:
        order = data.draw(st.permutations(range(4)))[:width]
        wall = data.draw(st.sampled_from([1e9, 0.0]))
        for row in range(rows):
            step = row if rises else data.draw(st.integers(-3, 3))
            tags += order
            steps += [step] * width
            walls += [wall and wall + row] * width
        told.append((width, rows))
    values = [float(number) if number % 7 else float("nan") for number in range(len(tags))]
    for store, known in ((together, told), (alone, None)):
        source = store.add_source(kind="stdout", path="x")
        for seen in (1.0, 2.0):
            store.append_columns(source, EventColumns(names, tags, steps, values, walls, known), observed_at=seen)
    assert repr(together.tags()) == repr(alone.tags())
    for tag in {names[index] for index in tags}:
        assert repr(together.series(tag)) == repr(alone.series(tag))
    assert together.first_steps() == alone.first_steps()
    query = "SELECT * FROM event ORDER BY seq"
    assert repr(together._db.execute(query).fetchall()) == repr(alone._db.execute(query).fetchall())


def test_rows_between_redraws_are_read_together(tmp_path: Path) -> None:
    """One redraw of the bar for each row, or many and other lines: few rows are looked at alone."""
    path = tmp_path / "train.log"
    wipe, noise = b"\r" + b" " * 80 + b"\r", b"\nreading a shard\n"
    for bars in (1, 5):
        rows = [
            b"".join(_bar(step - bars + done, 10**4) for done in range(1, bars))
            + wipe
            + FORMS["dict"].format(f"{step}.5", "1e-05", e=f"{step / 200:.2f}").encode()
            + b"\n"
            + _bar(step, 10**4)
            + (noise if bars > 1 else b"\n")
            for step in range(10, 10_000, 10)
        ]
        path.write_bytes(_bar(1, 10**4) + b"".join(rows))
        reader = StdoutReader(path)
        columns = [item for item in reader.poll(final=True) if isinstance(item, EventColumns)]
        assert sum(rows for item in columns for width, rows in item.runs or () if width == 3) > 900
        assert [step for item in columns for step in item.step[::3]] == list(range(10, 10_000, 10))


def test_fewest_rows() -> None:
    """So few are worth it that logs with an evaluation now and then are read together, too."""
    assert stdout.FEWEST_ROWS <= 5
