"""The out-dir: one writer, nothing lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import ConfigError, LeaseHeld, RecordError
from harness.record import outdir
from harness.record.files import dump_json, strict, write_json
from harness.record.journal import Journal, read_journal


def test_lease_is_refused_while_held_and_free_after_a_kill(tmp_path: Path) -> None:
    """The second writer is told who holds it; SIGKILL of the holder frees it at once."""
    code = ("import sys, time; from pathlib import Path; from harness.record.outdir import Lease\n"
            "with Lease(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)")
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert outdir.is_held(tmp_path)
        with pytest.raises(LeaseHeld, match=f"process {holder.pid}"), outdir.Lease(tmp_path):
            pass
        holder.kill()
        holder.wait()
    assert not outdir.is_held(tmp_path)
    with outdir.Lease(tmp_path):
        assert outdir.is_held(tmp_path)


def test_archive_moves_artifacts_and_nothing_else(tmp_path: Path) -> None:
    """Checkpoints and the user's files stay; a taken name gets a number; odd run ids cannot leave attempts/."""
    for run_id in ("one", "one", "../../up", ".."):
        write_json(tmp_path / outdir.RUN_SPEC, {"run_id": run_id})
        (tmp_path / "train.log").write_text(run_id)
        (tmp_path / "hp-overrides.yaml").write_text("")
        (tmp_path / "checkpoint-5").mkdir(exist_ok=True)
        (tmp_path / "notes.txt").write_text("mine")
        assert outdir.archive_earlier_run(tmp_path) is not None
    assert sorted(path.name for path in (tmp_path / "attempts").iterdir()) == ["one", "one-2", "unknown", "unknown-2"]
    assert (tmp_path / "attempts" / "one-2" / "train.log").read_text() == "one"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["attempts", "checkpoint-5", "notes.txt"]
    assert outdir.archive_earlier_run(tmp_path) is None


@pytest.mark.parametrize(("name", "moved"), [
    ("h-1.json", True), ("h-1.parsed.json", True), ("h-1.json.7.partial", True), ("h-1.parsed.json.partial", True),
    ("notes.txt", False),
])
def test_directory_of_the_probe_is_archived(name: str, moved: bool, tmp_path: Path) -> None:
    """With what a killed trainer had half written; a directory of that name that holds other files is the user's."""
    write_json(tmp_path / outdir.RUN_SPEC, {"run_id": "one"})
    (tmp_path / outdir.PROBE_DIR).mkdir()
    for file in ("loaded", name):
        (tmp_path / outdir.PROBE_DIR / file).write_text("")
    outdir.archive_earlier_run(tmp_path)
    assert (tmp_path / "attempts" / "one" / outdir.PROBE_DIR / name).exists() is moved


def test_out_dir_below_a_file_is_a_config_error(tmp_path: Path) -> None:
    """The message names the path and what to do."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"file/out.*cannot be written.*give a directory"):
        outdir.prepare(tmp_path / "file" / "out")


def test_journal_survives_a_half_line(tmp_path: Path) -> None:
    """What a kill leaves: whole entries are read, the half one is a problem, a reaper's entry after it counts."""
    path = tmp_path / "journal.jsonl"
    with Journal(path) as journal:
        journal.write("a", value=float("nan"))
        journal.write("b", text="line\nbreak \udc80")
    with path.open("ab") as handle:
        handle.write(b'{"seq": 2, "event": "c"')
        handle.write(b'\n{"seq": -1, "time": 1.0, "event": "reaped"}\n')
    entries, problems = read_journal(path)
    assert [entry["event"] for entry in entries] == ["a", "b", "reaped"]
    assert entries[0]["value"] == {"value": None, "repr": "nan"}
    assert len(problems) == 1
    with pytest.raises(RecordError, match="nowhere"):
        read_journal(tmp_path / "nowhere")


@given(st.binary(max_size=300))
def test_journal_reader_takes_any_bytes(data: bytes) -> None:
    """Odd content is a problem, never an exception."""
    path = Path("/dev/shm") if Path("/dev/shm").is_dir() else Path()
    place = path / f"journal-{os.getpid()}.jsonl"
    try:
        place.write_bytes(data)
        entries, problems = read_journal(place)
        assert isinstance(entries, list)
        assert isinstance(problems, list)
    finally:
        place.unlink()


@given(st.recursive(st.floats() | st.integers() | st.text() | st.none() | st.booleans(),
                    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10))
def test_every_value_becomes_strict_json(value: object) -> None:
    """No NaN token, and the text reads back as what `strict` made."""
    text = dump_json(value)
    assert json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} in {text}")) == strict(value)


def test_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    """An artifact is whole or it is the earlier one; no temporary file stays."""
    path = tmp_path / "report.json"
    write_json(path, {"a": 1})
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    assert json.loads(path.read_text()) == {"a": 1}
    assert list(tmp_path.iterdir()) == [path]
