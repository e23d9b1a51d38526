"""What is given as a log and is none is refused with what to give instead; a log with odd bytes is read."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import random
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.cli import main
from harness.record.text_file import not_text

LOG = b"".join(b"step %d/20 loss %.4f\n" % (step, 2 / step) for step in range(1, 21))
DICE = random.Random(0)
RANDOM = DICE.randbytes(200_000)
FLOATS = struct.pack("<20000f", *(DICE.gauss(0, 1) for _ in range(20_000)))
BINARY = {
    "random": RANDOM, "gzip": gzip.compress(LOG), "xz": lzma.compress(LOG),
    "bzip2": bz2.compress(LOG), "zip": b"PK\x03\x04" + RANDOM, "zstd": b"(\xb5/\xfd" + RANDOM,
    "safetensors": struct.pack("<Q", 16) + b'{"w": [1, 2, 3]}' + FLOATS, "npy": b"\x93NUMPY\x01\x00v\x00" + FLOATS,
    "utf-16": LOG.decode().encode("utf-16"), "pickle": b"\x80\x04\x95" + RANDOM, "text behind": RANDOM + LOG,
}
TEXT = {
    "log": LOG, "empty": b"", "bar": b"\r".join([b"\x1b[32m 10%|\xe2\x96\x88   | 1/20\x1b[0m"] * 500),
    "latin-1": "Schätzung läuft\n".encode("latin-1") * 50, "gb2312": "训练开始 步骤\n".encode("gb2312") * 50,
    "odd bytes": LOG + b"\x00\x01\xff\xfe" + LOG, "hole": b"\0" * 300_000 + LOG, "short": b"\x01\x02 ok\n",
    "hole alone": b"\0" * 5000, "bells": LOG + b"\a\b\f\v" * 30,
}


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("words", [("judge", "--log"), ("diagnose",)])
def test_file_that_is_no_text_is_a_usage_error(
    name: str, words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 2 with the file and the remedy; nothing is written."""
    log = tmp_path / "given.log"
    log.write_bytes(BINARY[name])
    code = main([*words, str(log), "--out-dir", str(tmp_path / "out")])
    told = capsys.readouterr()
    assert code == 2 and str(log) in told.out + told.err, told
    assert "give" in told.out + told.err and not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", TEXT)
def test_text_with_odd_bytes_is_read(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Escape codes, other encodings, a hole where the log was cut, a few bytes of anything."""
    log = tmp_path / "run.log"
    log.write_bytes(TEXT[name])
    assert main(["judge", "--log", str(log), "--exit-code", "0", "--out-dir", str(tmp_path / "out")]) == 1
    assert json.loads(capsys.readouterr().out)["decision"] == "CONDITIONAL"


@given(text=st.text(st.characters(exclude_categories=["Cs", "Cc"])), encode=st.sampled_from(["utf-8", "gb18030"]))
def test_no_text_is_refused(tmp_path_factory: pytest.TempPathFactory, text: str, encode: str) -> None:
    """Whatever its letters are."""
    path = tmp_path_factory.mktemp("text") / "log"
    path.write_bytes(b"log: " + text.encode(encode))
    assert not_text(path) == ""


def test_large_file_is_sampled(tmp_path: Path) -> None:
    """A hole of a gigabyte before the log."""
    path = tmp_path / "sparse.log"
    with path.open("wb") as handle:
        handle.seek(1 << 30)
        handle.write(LOG)
    assert not_text(path) == ""
