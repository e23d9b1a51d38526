"""Datasets in AReno's own environment: its readers, its formats, and the rules held to what it does with each row."""

from __future__ import annotations

import base64
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from areno.api.trainer import Trainer
from areno.api.trainers.dpo import _record_to_train_pair
from areno.api.trainers.sft import _record_to_train_sequence

from harness.data.contracts import judge_row
from harness.data.inspect import Inspector, inspect_dataset
from harness.data.model import Inspection
from harness.frameworks.dataset import NamedDataset

ROWS = [{"prompt": f"row {number}", "answer": f"a{number}"} for number in range(600)]


class Words:
    """A tokenizer for the shape of rows: a token for each word."""

    eos_token_id = 0
    chat_template = None

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Numbers of words."""
        return [1 + hash(word) % 1000 for word in text.split()]


class Holder:
    """As much of AReno's Trainer as `load_prompt_batches` uses."""

    _tokenizer, _processor = Words(), None


LIMIT = 10_000
AReno = Callable[[Mapping[str, Any]], Any]
ARENO: dict[str, AReno] = {
    "sft": lambda row: _record_to_train_sequence(row, Words(), max_prompt_tokens=LIMIT, max_new_tokens=LIMIT),
    "dpo": lambda row: _record_to_train_pair(row, Words(), max_seq_len=2 * LIMIT),
    "rollout": lambda row: next(iter(Trainer.load_prompt_batches(
        Holder(), [row], batch_size=1, max_prompt_tokens=LIMIT)), None),
}
TEXTS: list[Any] = ["a b", "", None, 5, ["a"], [{"role": "user", "content": "hi"}]]
USER = {"role": "user", "content": "hi"}
PICTURE = "data:image/png;base64," + base64.b64encode(b"no picture").decode()


def corpus(kind: str) -> list[dict[str, Any]]:
    """Rows with every field there, missing, null, empty and of another type."""
    if kind == "sft":
        pairs = [{"prompt": a, "response": b} for a in TEXTS for b in TEXTS]
        encoded = [{"tokens": [1, 2, 3], "prompt_mask": mask} for mask in (
            [True, True, False], [True] * 3, [False] * 3, [True, False], [False, True, True])]
        return [*pairs, *encoded, {"prompt": "a"}, {"response": "a"}, {}, {"instruction": "a", "output": "b"},
                {"tokens": [1], "prompt_mask": [False]}, {"tokens": [1, 2], "prompt_mask": [True, False],
                                                          "loss_mask": [True]}]
    if kind == "dpo":
        texts = [{"prompt": p, "chosen": c, "rejected": r} for p in ("a b", "") for c in ("a", "b")
                 for r in ("a", "c")]
        lists = [{"chosen": [USER, {"role": "assistant", "content": a}],
                  "rejected": [USER, {"role": "assistant", "content": b}]} for a, b in (("x", "y"), ("x", "x"))]
        return [*texts, *lists, {"prompt": "a", "chosen": "b"}, {"rejected": "a"}, {"chosen": "a", "rejected": "b"},
                {"prompt": None, "chosen": "a", "rejected": "b"}, {"prompt": 5, "chosen": "a", "rejected": "b"},
                {"prompt": "a", "chosen": "", "rejected": "b"}, {"prompt": "a", "chosen": 5, "rejected": "b"},
                {"prompt": [USER], "chosen": "a", "rejected": "b"}, {}]
    return [*({"prompt": text, "answer": 1} for text in ("a b", None, 5)), {"question": "a"}, {},
            {"tokens": [1, 2], "answer": 1}, {"tokens": "ab"}, {"messages": [USER]}]


def areno_says(kind: str, row: Mapping[str, Any]) -> str:
    """ok, skip or fatal, by AReno's own function."""
    try:
        return "skip" if ARENO[kind](row) is None else "ok"
    except Exception:
        return "fatal"


@pytest.mark.parametrize("kind", list(ARENO))
def test_rules_are_what_areno_does(kind: str) -> None:
    """Each row of the corpus gets AReno's verdict from the rules alone; a warning is a row that AReno takes."""
    for row in corpus(kind):
        ours = judge_row(kind, row)
        told = "ok" if ours.verdict.value == "warn" else ours.verdict.value
        assert told == areno_says(kind, row), (row, ours)


def inspected(path: Path | str, algorithm: str, workdir: Path, *, kind: str = "rollout", limit: int = 2000,
              **named: Any) -> Inspection:
    """One inspection with this environment's interpreter."""
    return inspect_dataset(
        NamedDataset(path=str(path), algorithm=algorithm, kind=kind, **named),
        Inspector(python=Path(sys.executable), workdir=workdir, limit=limit,
                  environ={**os.environ, "HOME": str(workdir), "HF_HOME": str(workdir / "hf")}))


FORMATS = ("a.parquet", "a.arrow", "saved", "saved-splits", "files")


@pytest.mark.parametrize("name", FORMATS)
def test_columnar_formats(name: str, tmp_path: Path) -> None:
    """Parquet by row group, Arrow files, save_to_disk with and without splits, Parquet files in a directory."""
    import pyarrow
    import pyarrow.parquet
    from datasets import Dataset, DatasetDict

    place, table = tmp_path / name, pyarrow.Table.from_pylist(ROWS)
    if name == "a.parquet":
        pyarrow.parquet.write_table(table, place, row_group_size=100)
    elif name == "a.arrow":
        with pyarrow.OSFile(str(place), "wb") as sink, pyarrow.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=70)
    elif name == "files":
        place.mkdir()
        for number in range(3):
            part = table.slice(number * 200, 200)
            pyarrow.parquet.write_table(part, place / f"part-{number}.parquet")
    else:
        dataset = Dataset.from_list(ROWS)
        (dataset if name == "saved" else DatasetDict(train=dataset)).save_to_disk(str(place))
    found = inspected(name, "gspo", tmp_path, limit=60)
    assert found.ok, found.errors
    assert (found.total, found.inspected, found.rows[-1][0]) == (600, 60, 599)
    assert found.raw.samples[0] == ROWS[0] and found.judged_by == "areno"


def test_damaged_parquet_is_an_error_in_words(tmp_path: Path) -> None:
    """A cut file."""
    (tmp_path / "a.parquet").write_bytes(b"PAR1 cut")
    assert [problem.code for problem in inspected("a.parquet", "gspo", tmp_path).errors] == ["file-damaged"]


def test_loader_uses_arenos_default_loader(tmp_path: Path) -> None:
    """`default_loader` is AReno's own, and what it returns can be returned."""
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (tmp_path / "loader.py").write_text(
        "from datasets import Dataset\n"
        "def load_training_dataset(path, *, default_loader, load_dataset, load_from_disk):\n"
        "    found = default_loader(path)\n    assert isinstance(found, Dataset), type(found)\n"
        "    return found.map(lambda row: {'prompt': row['prompt'].upper()})\n")
    found = inspected("a.jsonl", "gspo", tmp_path, loader="loader.py")
    assert found.ok, found.errors
    assert found.normalized.samples[0]["prompt"] == "ROW 0"


def test_file_that_arenos_reader_refuses(tmp_path: Path) -> None:
    """Rows whose types disagree are fine one by one, and no table."""
    rows = [{"prompt": "a", "answer": 1}, {"prompt": "b", "answer": {"deep": [1]}}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert [problem.code for problem in inspected("a.jsonl", "gspo", tmp_path).errors] == ["areno-refuses"]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with a tokenizer of its own."""
    place = tmp_path_factory.mktemp("model") / "tiny"
    subprocess.run([sys.executable, Path(__file__).parent / "assets" / "make_tiny.py", place], check=True, timeout=900)
    return place


def test_tokens_are_counted_by_the_checkpoint(tiny: Path, tmp_path: Path) -> None:
    """With a tokenizer an over-long prompt is a dropped row, and a dataset of them is an error before any launch."""
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in (
        {"prompt": "one", "answer": 1}, {"prompt": "word " * 300, "answer": 2})))
    found = inspected("a.jsonl", "gspo", tmp_path, tokenizer=tiny, max_prompt_tokens=64)
    assert found.ok and [row.verdict.value for _, row in found.rows] == ["ok", "skip"]
    found = inspected("a.jsonl", "gspo", tmp_path, tokenizer=tiny, max_prompt_tokens=1)
    assert [problem.code for problem in found.errors] == ["all-dropped"]
    assert "--max-prompt-tokens" in found.errors[0].message


def test_pictures_need_what_areno_reads(tmp_path: Path) -> None:
    """An image part alone, a URL as base64, no base64: each is fatal; base64 beside it is not."""
    part = {"type": "image_url", "image_url": {"url": PICTURE}}
    message = {"role": "user", "content": [part, {"type": "text", "text": "what is it?"}]}
    rows: list[tuple[dict[str, Any], str]] = [
        ({"messages": [message], "answer": "a"}, "fatal"),
        ({"messages": [message], "image_base64": PICTURE, "answer": "a"}, "ok"),
        ({"prompt": "what?", "image_base64": "https://example.org/a.png", "answer": "a"}, "fatal"),
        ({"prompt": "what?", "image_base64": "data:image/png;base64,***", "answer": "a"}, "fatal"),
    ]
    (tmp_path / "a.json").write_text(json.dumps([row for row, _ in rows]))
    (tmp_path / "loader.py").write_text(
        "import json\ndef load_training_dataset(path, **_):\n    return json.load(open(path))\n")
    found = inspected("a.json", "gspo", tmp_path, loader="loader.py")
    assert [row.verdict.value for _, row in found.rows] == [wanted for _, wanted in rows]


def preview(workdir: Path, flags: str) -> tuple[int, dict[str, Any]]:
    """`python -m harness command` on an AReno command: exit code and document."""
    areno = Path(sys.executable).parent / "areno"
    command = f"{shlex.quote(str(areno))} train --backend mlx --dataset-path a.jsonl --save-path out {flags}"
    done = subprocess.run([sys.executable, "-m", "harness", "command", command], cwd=workdir, capture_output=True,
                          text=True, timeout=900)
    assert not done.stderr, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_command_is_not_ok_until_its_dataset_is(tiny: Path, tmp_path: Path) -> None:
    """Raw question and answer rows: refused with the loader's name; with that loader: ok."""
    rows = [{"question": f"{number}+1?", "answer": f"#### {number + 1}"} for number in range(9)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, document = preview(tmp_path, f"--algo gspo --ckpt {tiny}")
    refused = [finding for finding in document["findings"] if finding["refuses"]]
    assert (code, document["ok"]) == (1, False)
    assert [finding["code"] for finding in refused] == ["dataset-loader-required"]
    loader = refused[0]["message"].rpartition("--dataset-loader-fn ")[2]
    code, document = preview(tmp_path, f"--algo gspo --ckpt {tiny} --dataset-loader-fn {loader}")
    assert (code, document["ok"]) == (0, True), document["findings"]


GATE_RUNS = {
    "wrong loader": ("--dataset-loader-fn wrong.py", "dataset-loader-failed"),
    "no loader": ("", "dataset-loader-required"),
    "prompts too long": ("--dataset-loader-fn long.py --max-prompt-tokens 16", "dataset-all-dropped"),
}


@pytest.mark.parametrize("name", GATE_RUNS)
def test_bad_dataset_is_never_launched(name: str, tiny: Path, tmp_path: Path) -> None:
    """NO-GO with its own reason, before the trainer starts."""
    flags, reason = GATE_RUNS[name]
    (tmp_path / "a.jsonl").write_text(json.dumps({"question": "1+1?", "answer": "2"}) + "\n")
    (tmp_path / "wrong.py").write_text("def load_training_dataset(path, **_):\n    raise KeyError('question')\n")
    (tmp_path / "long.py").write_text(
        "def load_training_dataset(path, **_):\n    return [{'prompt': 'word ' * 99, 'answer': 'a'}] * 3\n")
    command = (f"{shlex.quote(str(Path(sys.executable).parent / 'areno'))} train --backend mlx --algo gspo "
               f"--ckpt {tiny} --dataset-path a.jsonl --max-steps 2 {flags}")
    words = [sys.executable, "-m", "pytest", "--pyargs", "harness.acceptance", "-m", "real_step", "-p",
             "no:cacheprovider", "--train-cmd", command, "--out-dir", "report"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=900)
    report = json.loads((tmp_path / "report" / "train-model.json").read_text())
    evidence = report["evidence"]
    assert (done.returncode, report["decision"], evidence["attempts"]) == (1, "NO-GO", []), done.stdout
    assert [item["code"] for item in evidence["reasons"]] == [reason]
    assert not (tmp_path / "report" / "train.log").exists()
    assert evidence["dataset"]["fingerprint"].startswith("sha256:")
