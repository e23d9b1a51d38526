"""A file system that is full, made for real: under the evidence, and under the checkpoints."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).with_name("saves_to_disk.py")


ROOM = 8 << 20
LARGEST_BALLAST = 2 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallDisk:
    """A directory on a file system with 8 MB of room."""

    path: Path
    ballast: Path | None
    """What takes the rest of a file system that was there; None for one of its own."""

    def grow(self) -> None:
        """Make room."""
        if self.ballast is not None:
            self.ballast.unlink()
        else:
            subprocess.run(["mount", "-o", "remount,size=64m", str(self.path)], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """A tmpfs of its own; where nothing may be mounted, the shared memory's but for its last 8 MB."""
    place = tmp_path / "small"
    place.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "none", str(place)]
    mounted = subprocess.run(words, capture_output=True, check=False)
    if mounted.returncode == 0:
        yield SmallDisk(path=place, ballast=None)
        subprocess.run(["umount", "-l", str(place)], check=False)
        return
    room = shutil.disk_usage("/dev/shm").free - ROOM
    assert 0 < room < LARGEST_BALLAST, f"no small file system can be had: {mounted.stderr.decode()}"
    with tempfile.TemporaryDirectory(dir="/dev/shm") as shared:
        ballast = Path(shared) / "ballast"
        with ballast.open("wb") as handle:
            os.posix_fallocate(handle.fileno(), 0, room)
        yield SmallDisk(path=Path(shared), ballast=ballast)


def run(place: Path, command: list[str], out_dir: Path, *options: str) -> tuple[dict[str, Any], str]:
    """train-model.json and what pytest printed."""
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--pyargs", "harness.acceptance",
             "-m", "real_step", "-q", "--max-steps", "20", "--metrics-dir", "events", "--out-dir", str(out_dir),
             "--train-cmd", shlex.join(command), *options]
    done = subprocess.run(words, cwd=place, capture_output=True, text=True, timeout=400, check=False)
    return json.loads((out_dir / "train-model.json").read_text()), done.stdout


def codes(report: dict[str, Any]) -> set[str]:
    """Its reason codes."""
    return {reason["code"] for reason in report["evidence"]["reasons"]}


def test_full_disk_under_the_out_dir_loses_the_log_alone(small_disk: SmallDisk, tmp_path: Path) -> None:
    """A log larger than the disk: the run goes on, the evidence is there and says what is missing."""
    flood = tmp_path / "flood.py"
    flood.write_text(
        "import os, runpy, sys\nblock = (b'x' * 120 + b'\\n') * 8192\nfor _ in range(30): os.write(1, block)\n"
        f"sys.argv = sys.argv[:2]\nrunpy.run_path({str(PROGRAM)!r}, run_name='__main__')\n")
    command = [sys.executable, "flood.py", "saved"]
    report, shown = run(tmp_path, command, small_disk.path / "out", "--checkpoint-dir", "saved")
    assert (report["decision"], report["evidence"]["attempts"][0]["exit_code"]) == ("GO", 0), shown
    assert [item["title"] for item in report["findings"]].count("the log is incomplete") == 1


def test_full_disk_under_the_checkpoints_is_told_and_retried(small_disk: SmallDisk, tmp_path: Path) -> None:
    """Diagnosed as that, what was whole stays the best; with room, the same command goes to GO with its lineage."""
    saves = small_disk.path / "saved"
    command = [sys.executable, str(PROGRAM), str(saves)]
    report, shown = run(tmp_path, command, tmp_path / "first", "--checkpoint-dir", str(saves))
    assert (report["decision"], "disk-full" in codes(report)) == ("NO-GO", True), shown
    assert report["best_checkpoint"].endswith("step_000010.safetensors")
    failure = json.loads((tmp_path / "first" / "check-failed-run.json").read_text())
    assert failure["primary_cause"] == "io-checkpoint"
    assert "No space left" in json.dumps(failure["evidence"])
    small_disk.grow()
    for left in saves.iterdir():
        left.unlink()
    (tmp_path / "events" / "metrics.jsonl").unlink()
    report, shown = run(tmp_path, command, tmp_path / "second", "--checkpoint-dir", str(saves), "--retry-of",
                        str(tmp_path / "first"))
    assert report["decision"] == "GO", shown
    assert [item["decision"] for item in report["evidence"]["lineage"]["attempts"]] == ["NO-GO", "GO"]
