"""`python -m harness command`: what would be launched, as JSON, with exit codes and masked secrets."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.cli import main

PYTHON = shlex.quote(sys.executable)


def preview(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    code = main(["command", *words])
    result = json.loads(capsys.readouterr().out)
    assert isinstance(result, dict)
    return code, result


@pytest.fixture
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with one argparse script that imports torch."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.py").write_text(
        "import argparse, torch\np = argparse.ArgumentParser()\np.add_argument('--lr', type=float)\n"
        "p.add_argument('--num-steps', type=int)\np.add_argument('--api-key')\np.add_argument('--config')\n"
        "p.parse_args()\n"
    )
    return tmp_path


def test_preview_shows_the_command_and_its_overrides(workdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every key of the answer, and exit code 0."""
    code, found = preview(capsys, f"A='x y' {PYTHON} t.py", "--hp", "learning_rate=1e-4", "--max-steps", "5")
    assert code == 0 and found["ok"] is True
    assert found["argv"] == [sys.executable, "t.py", "--lr", "1e-4", "--num-steps", "5"]
    assert found["command"] == f"A='x y' {PYTHON} t.py --lr 1e-4 --num-steps 5"
    assert (found["framework"], found["entrypoint"]) == ("torch", str(workdir / "t.py")) and found["framework_reason"]
    assert [(item["key"], item["value"], item["kind"]) for item in found["overrides"]] == [
        ("learning_rate", "1e-4", "semantic"), ("max_steps", "5", "semantic"),
    ]
    assert found["overrides"][0]["how"] == "injected as --lr 1e-4"
    assert [item["code"] for item in found["findings"]] == ["cap-changes-schedule"]
    assert not list(workdir.glob("reports"))


def test_lower_limit_of_the_command_stays(workdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A cap is no target: it never raises what the command asks for."""
    _, found = preview(capsys, f"{PYTHON} t.py --num-steps 3", "--max-steps", "5")
    assert found["argv"][-2:] == ["--num-steps", "3"] and found["overrides"] == []
    _, found = preview(capsys, f"{PYTHON} t.py --num-steps 30", "--max-steps", "5", "--max-epochs", "2")
    assert found["argv"][-2:] == ["--num-steps", "5"]
    assert [item["code"] for item in found["findings"]] == ["cap-changes-schedule", "cap-by-harness"]


def test_config_is_written_only_where_an_out_dir_was_named(
    workdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A preview changes nothing unless it is told where."""
    (workdir / "c.yaml").write_text("wd: 1\n")
    _, found = preview(capsys, f"{PYTHON} t.py --config c.yaml", "--hp", "wd=2")
    assert found["ok"] and found["written"] == [] and not (workdir / "reports").exists()
    _, found = preview(capsys, f"{PYTHON} t.py --config c.yaml", "--hp", "wd=2", "--out-dir", "o")
    assert found["written"] == [str(workdir / "o/hp-overrides.yaml")] == found["config"]
    assert (workdir / "o/hp-overrides.yaml").read_text() == "wd: 2\n"


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["{python} t.py", "--hp", "lr"], 2, "KEY=VALUE"),
        (["{python} t.py", "--framework", "nope"], 2, "no such framework"),
        (["{python} t.py", "--hp", "nope=1"], 1, "--hp-flag nope=--flag"),
        (["{python} gone.py"], 1, "does not exist"),
        (["python t.py | tee x"], 1, "bash run.sh"),
        ([""], 1, "give the command that trains"),
        (["{python} t.py", "--workdir", "gone"], 1, "--workdir"),
        (["areno serve"], 1, "serves a model"),
    ],
)
def test_exit_code_and_reason_of_a_refusal(
    workdir: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, says: str
) -> None:
    """1 for a command that cannot be launched, 2 for a usage error; never a traceback."""
    found_code, found = preview(capsys, *(word.format(python=PYTHON) for word in words))
    assert (found_code, found["ok"]) == (code, False)
    assert says in json.dumps(found, ensure_ascii=False)


def test_secrets_are_masked(workdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the argv, the command line, the overrides and the environment."""
    secret = "s3cr3t-Value-9x"
    code = main(["command", f"HF_TOKEN={secret} {PYTHON} t.py", "--hp", f"api_key={secret}"])
    shown = capsys.readouterr().out
    assert code == 0 and secret not in shown and "--api-key" in shown
