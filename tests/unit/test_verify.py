"""`verify` judges again from the out-dir alone and names what does not agree."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from harness.cli import main
from harness.judge.report import write_report
from harness.judge.verify import range_digest, verify
from tests.unit.run_dirs import RunDir


def journaled(place: Path, event: str, **fields: Any) -> None:
    """Append an entry."""
    with (place / "journal.jsonl").open("a") as handle:
        handle.write(json.dumps({"seq": 99, "time": 0.0, "event": event, **fields}) + "\n")


def test_untouched_run_verifies(tmp_path: Path) -> None:
    """GO and no disagreement: ok."""
    write_report(RunDir().write(tmp_path))
    result = verify(tmp_path)
    assert result["ok"], result
    assert result["report"] == "read"


def test_missing_report_is_made(tmp_path: Path) -> None:
    """After a kill the report is made from the facts."""
    RunDir(ended=False).write(tmp_path)
    result = verify(tmp_path)
    assert (result["ok"], result["report"], result["decision"]) == (False, "made", "CONDITIONAL")
    assert (tmp_path / "train-model.json").exists()


@pytest.mark.parametrize(("key", "value"), [("decision", "GO"), ("total_steps", 999), ("confidence", "low")])
def test_changed_report_is_told(key: str, value: Any, tmp_path: Path) -> None:
    """A report that says something else than the facts is a disagreement, also when it says GO."""
    write_report(RunDir(exit_code=1).write(tmp_path))
    path = tmp_path / "train-model.json"
    report = json.loads(path.read_text())
    path.write_text(json.dumps({**report, key: value}))
    result = verify(tmp_path)
    assert not result["ok"]
    assert any(key in item["what"] for item in result["disagreements"])
    assert result["decision"] == "NO-GO"


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "null"])
def test_damaged_report_is_told(text: str, tmp_path: Path) -> None:
    """Neither a crash nor ok."""
    write_report(RunDir().write(tmp_path))
    (tmp_path / "train-model.json").write_text(text)
    result = verify(tmp_path)
    assert not result["ok"]
    assert result["disagreements"]


def test_changed_source_is_told_and_a_gone_one_is_said_to_be_gone(tmp_path: Path) -> None:
    """The consumed range is digested again; growth beyond it is no change."""
    place = RunDir().write(tmp_path / "run")
    source = tmp_path / "events"
    source.write_bytes(b"0123456789")
    fact = {"kind": "jsonl", "path": str(source), "sha256": hashlib.sha256(b"2345").hexdigest(), "first_offset": 2,
            "bytes_read": 4, "points": 30, "stale_points": 0, "foreign_points": 0, "last_step": 10,
            "last_wall_time": None, "still_there": True, "ownership": "own", "problems": []}
    journaled(place, "sources", sources=[fact], problems=[])
    write_report(place)
    assert verify(place)["ok"]
    source.write_bytes(b"0123456789 and more")
    assert verify(place)["ok"]
    source.write_bytes(b"01xxxx6789")
    assert [item["what"] for item in verify(place)["disagreements"]] == [str(source)]
    source.unlink()
    assert (verify(place)["gone"], verify(place)["ok"]) == ([str(source)], True)


def test_digest_of_a_shorter_file_says_so(tmp_path: Path) -> None:
    """A truncated source never looks like the whole one."""
    path = tmp_path / "short"
    path.write_bytes(b"abc")
    assert "2 bytes missing" in range_digest(path, 1, 4)
    assert range_digest(path, 0, 3) == hashlib.sha256(b"abc").hexdigest()


@pytest.mark.parametrize(
    ("words", "code"), [(["verify", "nowhere"], 2), (["metrics", "nowhere"], 2), (["verify", "."], 3),
                        (["replay", "nowhere", "--early-stop-metric", "loss"], 2),
                        (["baseline", "nowhere", "--out", "bands.toml"], 2), (["verify"], 2), (["nothing"], 2),
                        (["metrics", ".", "--last", "0"], 2)])
def test_command_line_errors_have_their_exit_codes(
    words: list[str], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """2 usage, 3 could not judge; JSON with ok false where the command ran."""
    monkeypatch.chdir(tmp_path)
    try:
        found = main(words)
        assert json.loads(capsys.readouterr().out)["ok"] is False
    except SystemExit as stopped:
        found = int(stopped.code or 0)
    assert found == code


BANDS = ("train/loss@10<=0.5", "train/loss@10<=0.1")
"""Of the healthy run's last loss, 0.3: one that holds, and one that it misses."""


def test_other_bands_decide_and_leave_the_evidence_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`verify --expect`: judged by what is asked now; the report stays, and is no disagreement."""
    place = RunDir().write(tmp_path / "run")
    write_report(place)
    before = (place / "train-model.json").read_bytes()
    assert verify(place)["asked"] is None
    for expect, code, codes in ((BANDS[0], 0, []), (BANDS[1], 1, ["expect-out-of-band"])):
        assert main(["verify", str(place), "--expect", expect]) == code
        answer = json.loads(capsys.readouterr().out)
        assert [reason["code"] for reason in answer["reasons"]] == codes
        assert answer["disagreements"] == [] and answer["asked"]["expectations"][0]["observed"] == 0.3
    assert (place / "train-model.json").read_bytes() == before
    assert main(["verify", str(place), "--expect", "train/loss@"]) == 2


def test_policy_decides_a_run_that_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`verify --policy`: a gate that the run had no need of is required now; a waiver lets a reason pass."""
    place = RunDir(lr=(0.0,) * 10, exit_code=1).write(tmp_path / "run")
    policy = tmp_path / "policy.toml"
    policy.write_text('require = ["save_reload"]\n[[waiver]]\ncode = "exit-code"\nreason = "a known bug"\n'
                      "until = 2999-01-01\n")
    assert main(["verify", str(place), "--policy", str(policy)]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert "required-gate-missed" in {reason["code"] for reason in answer["reasons"]}
    assert len(answer["asked"]["policy"]["digest"]) == 64
    assert answer["asked"]["policy"]["waivers"][0]["applied"] == ["real_step.exit"]
    policy.write_text("unknown = 1\n")
    assert main(["verify", str(place), "--policy", str(policy)]) == 2
