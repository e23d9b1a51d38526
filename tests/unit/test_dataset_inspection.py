"""`inspect-dataset`: every row judged as the trainer treats it, whatever the dataset and its loader do."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.cli import main
from harness.command.interpreter import own_interpreter
from harness.data.inspect import Inspector, inspect_dataset
from harness.data.loaders import bundled
from harness.data.masking import labels_left, row_lengths
from harness.data.model import Inspection
from harness.frameworks.dataset import NamedDataset
from harness.launch.child import Limits
from harness.record.reasons import Reason
from harness.record.redaction import Redactor

CASES = Path(__file__).parent / "cases"
CASE = CASES / "06-areno-dataset-contract"
LOADER = "def load_training_dataset(path, **_):\n"
KINDS = {"sft": "sft", "dpo": "dpo", "gspo": "rollout"}


def inspected(path: str | Path, algorithm: str = "gspo", *, workdir: Path | None = None, loader: str | None = None,
              limit: int = 2000, limits: Limits | None = None, kind: str = "") -> Inspection:
    """One inspection with this interpreter."""
    named = NamedDataset(path=str(path), algorithm=algorithm, kind=kind or KINDS[algorithm], loader=loader)
    return inspect_dataset(named, Inspector(
        python=own_interpreter(), workdir=workdir or Path.cwd(), environ=dict(os.environ), limit=limit,
        redactor=Redactor(("hunter2-hunter2",)), limits=limits or Limits(seconds=60)))


def write_lines(path: Path, rows: list[Any]) -> Path:
    """A JSONL file."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def verdicts(found: Inspection) -> list[str]:
    """Of every row, as the case names them."""
    return [f"{row.verdict.value}_{row.code.replace('-', '_')}" if row.verdict.value == "warn" else row.verdict.value
            for _, row in found.rows]


def codes(found: Inspection) -> list[str]:
    """Of its errors."""
    return [problem.code for problem in found.errors]


# Case 06


@pytest.mark.parametrize(("algorithm", "name"), [("sft", "sft"), ("dpo", "dpo"), ("gspo", "rl")])
def test_case_06_rows_have_their_verdicts(algorithm: str, name: str) -> None:
    """Each row as the public case demands, and none of the three is ok."""
    expected = json.loads((CASE / "expected.json").read_text())
    found = inspected(CASE / f"{name}.jsonl", algorithm)
    assert verdicts(found) == expected[f"{name}.jsonl"]
    assert not found.ok
    assert any(expected["messages"][name] in problem.message for problem in found.errors)
    assert (found.total, found.inspected) == (len(found.rows), len(found.rows))


def test_missing_prompt_asks_for_a_loader_by_name(tmp_path: Path) -> None:
    """GSM8K's question and answer: an error that names a loader, and with that loader the rows are ok."""
    data = write_lines(tmp_path / "g.jsonl", [{"question": "2+2?", "answer": "so\n#### 4"}] * 3)
    found = inspected(data)
    assert [problem.reason for problem in found.errors] == [Reason.DATASET_LOADER_REQUIRED]
    assert found.suggested_loader == str(bundled("question_answer.py"))
    assert found.suggested_loader in found.errors[0].message
    again = inspected(data, loader=found.suggested_loader)
    assert again.ok and verdicts(again) == ["ok"] * 3
    assert again.normalized.samples[0] == {"prompt": "2+2?", "solutions": ["4"], "answer": "4"}
    assert (again.raw.keys, again.normalized.keys) == (("question", "answer"), ("prompt", "solutions", "answer"))


def test_loader_of_the_checkout_comes_first(tmp_path: Path) -> None:
    """In an AReno checkout its own loader is named, from a directory below it too."""
    own = tmp_path / "examples" / "math" / "dataset_loader.py"
    own.parent.mkdir(parents=True)
    own.write_text("")
    data = write_lines(tmp_path / "g.jsonl", [{"question": "2+2?", "answer": "4"}])
    assert inspected(data, workdir=own.parent).suggested_loader == str(own)


def test_sft_needs_a_loader(tmp_path: Path) -> None:
    """AReno refuses the algorithm without one, also where the rows are right."""
    data = write_lines(tmp_path / "s.jsonl", [{"prompt": "a", "response": "b"}])
    found = inspected(data, "sft")
    assert codes(found) == ["loader-required"] and found.suggested_loader == str(bundled("prompt_response.py"))
    assert inspected(data, "sft", loader=found.suggested_loader).ok


# Files


ROWS = [{"prompt": f"row {number}", "answer": f"a{number}"} for number in range(7)]


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "lines.json", "pretty.json", "a.csv"])
def test_formats_give_the_same_rows(name: str, tmp_path: Path) -> None:
    """JSON lines, an array, lines under .json, indented, comma-separated."""
    path = tmp_path / name
    if name == "a.csv":
        with path.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, ["prompt", "answer"])
            writer.writeheader()
            writer.writerows(ROWS)
    elif name in ("a.json", "pretty.json"):
        path.write_text(json.dumps(ROWS, indent=2 if name == "pretty.json" else None))
    else:
        write_lines(path, ROWS)
    found = inspected(path)
    assert found.ok and found.total == 7
    assert found.raw.samples == tuple(ROWS[:3])


def test_tab_separated_file_is_read_by_commas(tmp_path: Path) -> None:
    """AReno's reader splits .tsv at commas: the raw rows have columns, the rows that it trains on have one."""
    path = tmp_path / "a.tsv"
    path.write_text("prompt\tanswer\nhello\t1\n")
    found = inspected(path)
    assert found.raw.keys == ("prompt", "answer") and found.normalized.keys == ("prompt\tanswer",)
    assert codes(found) == ["prompt-missing"]


def test_column_of_numbers_is_no_text(tmp_path: Path) -> None:
    """A CSV prompt column that holds only numbers reaches AReno as numbers, which it cannot encode."""
    path = tmp_path / "a.csv"
    path.write_text("prompt,answer\n12,a\n13,b\n")
    assert codes(inspected(path)) == ["not-text"]


def test_directory_of_files_is_one_dataset(tmp_path: Path) -> None:
    """Files in a directory follow each other in the order of their names."""
    write_lines(tmp_path / "b.jsonl", ROWS[4:])
    write_lines(tmp_path / "a.jsonl", ROWS[:4])
    found = inspected(tmp_path)
    assert (found.total, found.raw.samples[0]) == (7, ROWS[0])


DAMAGED = {
    "cut.json": (b'[{"prompt": "a", "answer": 1}, {"prompt"', "file-not-json"),
    "open.json": (b'[{"prompt": "a", "answer": 1}', "file-cut"),
    "empty.jsonl": (b"", "empty"),
    "text.txt": (b"hello", "suffix-unknown"),
    "nul.csv": (b"prompt,answer\n\x00\x00,1\n", ""),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_file_is_an_error_in_words(name: str, tmp_path: Path) -> None:
    """No traceback and no ok."""
    content, code = DAMAGED[name]
    (tmp_path / name).write_bytes(content)
    found = inspected(tmp_path / name)
    assert not found.ok or name == "nul.csv"
    assert not code or codes(found) == [code]


def test_line_that_is_no_json_is_a_fatal_row(tmp_path: Path) -> None:
    """The rows around it keep their verdicts."""
    path = tmp_path / "a.jsonl"
    path.write_text('{"prompt": "a", "answer": 1}\n{"prompt": \n[1, 2]\n{"prompt": "b", "answer": 2}\n')
    assert verdicts(inspected(path)) == ["ok", "fatal", "fatal", "ok"]


def test_missing_file_and_odd_reference(tmp_path: Path) -> None:
    """A path that is not there, and a text that is neither path nor reference."""
    assert codes(inspected("nowhere.jsonl", workdir=tmp_path)) == ["dataset-missing"]
    assert codes(inspected("just-a-name", workdir=tmp_path)) == ["dataset-missing"]
    assert codes(inspected("a/b:c:d:e", workdir=tmp_path)) == ["dataset-missing"]
    assert codes(inspected("", workdir=tmp_path)) == ["dataset-missing"]


def test_large_file_is_sampled_over_its_whole_length(tmp_path: Path) -> None:
    """The bad row is the last one; what was looked at is said; a limit above the size reads all."""
    path = write_lines(tmp_path / "a.jsonl", [*ROWS * 300, {"question": "?"}])
    found = inspected(path, limit=50)
    assert (found.total, found.inspected, found.rows[-1][0]) == (2101, 50, 2100)
    assert codes(found) == ["prompt-missing"]
    assert "50 rows were looked at, of 2101" in [problem.message for problem in found.warnings]
    assert inspected(path, limit=5000).inspected == 2101


def test_sample_holds_no_secret_and_no_long_text(tmp_path: Path) -> None:
    """Long texts and data URLs are shortened with their length, secrets masked."""
    url = "data:image/png;base64," + "A" * 100_000
    row = {"prompt": "word " * 1000, "answer": "hunter2-hunter2", "image": url, "api_key": "abcdef0123456789abcd"}
    found = inspected(write_lines(tmp_path / "a.jsonl", [row]))
    text = json.dumps(found.to_json(), ensure_ascii=False)
    assert "hunter2" not in text and "abcdef0123456789abcd" not in text
    assert found.raw.samples[0]["prompt"] == "word " * 48 + "… (5000 characters)"
    assert found.raw.samples[0]["image"] == "data:image/png;base64,… (100022 characters)"
    assert len(text) < 4000


# Dropped rows


def test_all_rows_dropped_is_an_error(tmp_path: Path) -> None:
    """Every response is empty: nothing would be trained on."""
    data = write_lines(tmp_path / "a.jsonl", [{"prompt": "a", "response": ""}, {"prompt": None, "response": "b"}])
    loader = tmp_path / "loader.py"
    loader.write_text(f"{LOADER.replace('**_', 'default_loader, **_')}    return list(default_loader(path))\n")
    found = inspected(data, "sft", loader=str(loader))
    assert [problem.reason for problem in found.errors] == [Reason.DATASET_ALL_DROPPED]


def test_masked_labels_are_dropped_rows(tmp_path: Path) -> None:
    """Pre-tokenised rows whose prompt_mask masks everything; one that does not is enough."""
    masked = {"tokens": [1, 2, 3], "prompt_mask": [True] * 3}
    loader = tmp_path / "loader.py"
    loader.write_text(f"import json\n{LOADER}    return [json.loads(line) for line in open(path)]\n")
    data = write_lines(tmp_path / "a.jsonl", [masked, masked])
    assert codes(inspected(data, "sft", loader=str(loader))) == ["all-dropped"]
    data = write_lines(tmp_path / "a.jsonl", [masked, {**masked, "prompt_mask": [True, True, False]}])
    assert inspected(data, "sft", loader=str(loader)).ok


def test_case_14_all_labels_masked(capsys: pytest.CaptureFixture[str]) -> None:
    """A prompt as long as the cut leaves nothing: the contract fails before a loss of 0.0 can look like success."""
    case = CASES / "14-sft-all-labels-masked"
    expected, config = (json.loads((case / name).read_text()) for name in ("expected.json", "train_config.json"))
    lengths = [row_lengths(json.loads(line)) for line in (case / "rows.jsonl").read_text().splitlines()]
    left = labels_left([pair for pair in lengths if pair], config["max_length"], config["per_device_train_batch_size"])
    assert list(left.trainable_tokens) == expected["trainable_tokens"]
    assert left.rows_without_labels == expected["rows_without_labels"]
    code = main(["inspect-dataset", "--dataset-path", str(case / "rows.jsonl"), "--algo", "sft", "--max-length", "16"])
    document = json.loads(capsys.readouterr().out)
    assert (code, [row["verdict"] for row in document["rows"]]) == (1, ["skip", "skip", "ok", "skip"])
    assert [(item["code"], item["count"]) for item in document["errors"]] == [("labels-masked", 3)]


def test_labels_that_are_left_are_counted_in_every_encoding() -> None:
    """Masks of the prompt, of the completion, and labels of -100 say the same."""
    rows = ({"tokens": [1, 2, 3], "prompt_mask": [True, True, False]}, {"completion_mask": [0, 0, 1]},
            {"labels": [-100, -100, 7]}, {"prompt_tokens": [1, 2], "completion_tokens": [3]})
    assert {row_lengths(row) for row in rows} == {(2, 1)}
    assert row_lengths({"labels": [-100] * 3}) == (3, 0)
    assert row_lengths({"prompt": "a"}) is None
    assert labels_left([(5, 5), (1, 5)], 5, 2).ok and not labels_left([(5, 5), (1, 5)], 5, 1).ok


# Loaders


LOADERS = {
    "raises": ("raise KeyError('question')", "loader-raised"),
    "exits": ("import sys; sys.exit(3)", "loader-raised"),
    "dies": ("import os; os._exit(0)", "loader-no-result"),
    "is killed": ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "loader-died"),
    "hangs": ("import time; time.sleep(600)", "loader-timeout"),
    "prints": ("[print('x' * 1000) for _ in range(1 << 20)]", "loader-output"),
    "grows": ("x = b'x' * (1 << 30); import time; time.sleep(600)", "loader-memory"),
    "returns nothing": ("pass", "loader-returned-nothing"),
    "returns a generator": ("return ({'prompt': 'a'} for _ in range(3))", "loader-returned-iterator"),
    "returns splits": ("return {'train': [{'prompt': 'a'}]}", "loader-returned-mapping"),
    "forks": ("import os, time\n    if os.fork() == 0: time.sleep(600)\n    return [{'prompt': 'a', 'answer': 1}]",
              "loader-left-processes"),
    "returns nothing to read": ("return []", "empty"),
}


@pytest.mark.parametrize("name", LOADERS)
def test_loader_that_misbehaves_is_a_clear_error(name: str, tmp_path: Path) -> None:
    """In bounded time, with nothing left behind."""
    body, code = LOADERS[name]
    loader = tmp_path / "loader.py"
    loader.write_text(f"{LOADER}    {body}\n")
    data = write_lines(tmp_path / "a.jsonl", ROWS)
    limits = Limits(seconds=2 if name == "hangs" else 120, rss_bytes=600 << 20, output_bytes=1 << 20)
    started = time.monotonic()
    found = inspected(data, loader=str(loader), limits=limits)
    assert time.monotonic() - started < 400
    assert codes(found) == [code], found.errors
    assert "_real_step_rows" not in str([child.cmdline() for child in psutil.Process().children(recursive=True)])


def test_fork_that_returns_twice_tells_its_rows_once(tmp_path: Path) -> None:
    """Both sides of a fork come back from the loader; the rows are those of the first."""
    loader = tmp_path / "loader.py"
    loader.write_text(f"import os\n{LOADER}    os.fork()\n    return [{{'prompt': 'a', 'b': 1}}]\n")
    found = inspected(write_lines(tmp_path / "a.jsonl", ROWS), loader=str(loader))
    assert (found.inspected, found.total) == (1, 1)


def test_loader_dies_with_the_harness(tmp_path: Path) -> None:
    """A harness that is killed leaves no loader that hangs."""
    pid = tmp_path / "pid"
    (tmp_path / "loader.py").write_text(
        f"import os, time\n{LOADER}    open({str(pid)!r}, 'w').write(str(os.getpid()))\n    time.sleep(600)\n")
    data = write_lines(tmp_path / "a.jsonl", ROWS)
    words = [sys.executable, "-m", "harness", "inspect-dataset", "--dataset-path", str(data), "--algo", "gspo",
             "--loader", str(tmp_path / "loader.py")]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as harness:
        waited = time.monotonic() + 240
        while not (pid.exists() and pid.read_text()) and time.monotonic() < waited:
            time.sleep(0.05)
        harness.kill()
    loader, waited = int(pid.read_text()), time.monotonic() + 120
    while running(loader) and time.monotonic() < waited:
        time.sleep(0.05)
    assert not running(loader)


def running(pid: int) -> bool:
    """Whether a process lives; one that nobody has waited for does not."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


MISSING = {
    "no file": ("nowhere.py", ""),
    "no function": ("loader.py", "def other(path, **_): return []"),
    "another function": ("loader.py:other", "def load_training_dataset(path, **_): return []"),
    "no Python": ("loader.py", "def load_training_dataset(:"),
}


@pytest.mark.parametrize("name", MISSING)
def test_loader_that_is_not_there(name: str, tmp_path: Path) -> None:
    """Neither file nor function, or not parsing."""
    spec, text = MISSING[name]
    (tmp_path / "loader.py").write_text(text)
    found = inspected(write_lines(tmp_path / "a.jsonl", ROWS), loader=str(tmp_path / spec))
    assert [problem.reason for problem in found.errors] == [Reason.DATASET_LOADER_FAILED]


def test_loader_is_called_as_areno_calls_it(tmp_path: Path) -> None:
    """Path by position, three keywords, relative to the working directory, a function by its name."""
    (tmp_path / "loader.py").write_text(textwrap.dedent("""
        def rows(path, *, default_loader, load_dataset, load_from_disk):
            assert path == "a.jsonl"
            return [{"prompt": row["prompt"], "answer": 1} for row in default_loader(path)]
    """))
    write_lines(tmp_path / "a.jsonl", ROWS)
    found = inspected("a.jsonl", loader="loader.py:rows", workdir=tmp_path)
    assert found.ok, found.errors


def test_loader_may_read_what_nothing_else_reads(tmp_path: Path) -> None:
    """A path that is no dataset by itself is the loader's business."""
    (tmp_path / "loader.py").write_text(f"{LOADER}    return [{{'prompt': path, 'a': 1}}]\n")
    for path in ("made-up", "notes.txt"):
        found = inspected(path, loader="loader.py", workdir=tmp_path)
        assert found.ok and found.normalized.samples[0]["prompt"] == path


def test_row_that_raises_is_fatal(tmp_path: Path) -> None:
    """A lazy dataset whose third row cannot be had."""
    (tmp_path / "loader.py").write_text(textwrap.dedent("""
        class Lazy:
            def __len__(self): return 3
            def __getitem__(self, index):
                if index == 2: raise OSError("no such image")
                return {"prompt": "a", "answer": 1}
        def load_training_dataset(path, **_): return Lazy()
    """))
    found = inspected(write_lines(tmp_path / "a.jsonl", ROWS), loader=str(tmp_path / "loader.py"))
    assert verdicts(found) == ["ok", "ok", "fatal"] and "no such image" in found.errors[0].message


# The command


def test_command_prints_its_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every key; exit code 0 when ok, 1 when not, 2 for a usage error."""
    data = write_lines(tmp_path / "a.jsonl", ROWS)
    assert main(["inspect-dataset", "--dataset-path", str(data), "--algo", "gspo", "--limit", "4"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {"ok", "count", "inspected", "raw", "normalized", "rows", "errors", "warnings"} <= set(document)
    assert document["suggested_loader"] is None
    assert (document["ok"], document["count"], document["inspected"]) == (True, 7, 4)
    assert document["rows"][0] == {"index": 0, "verdict": "ok", "code": "", "reason": ""}
    assert main(["inspect-dataset", "--dataset-path", str(data), "--algo", "dpo"]) == 1
    assert main(["inspect-dataset", "--dataset-path", str(data), "--algo", "nope"]) == 2
    python = ["--python", "/nowhere/python"]
    assert main(["inspect-dataset", "--dataset-path", str(data), "--algo", "gspo", *python]) == 2
    assert main(["inspect-dataset", "--dataset-path", "a/b", "--algo", "gspo", "--model-hub", "hf"]) == 1
    assert "hub-refused" in capsys.readouterr().out
