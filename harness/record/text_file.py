"""Whether a file can be a log at all: text, of whatever encoding, or something else."""

from __future__ import annotations

import os
from pathlib import Path

from harness.record.files import open_regular

SAMPLE_BYTES = 64 << 10
"""Read at the beginning, in the middle and at the end."""
MAX_CONTROLS = 0.03
"""Share of control characters, NUL apart, of which logs have a few and other files one byte in ten."""
FEW = 32
"""So many are odd bytes in a log, however short it is."""
CONTROLS = bytes(sorted({*range(1, 32), 127} - set(b"\a\b\t\n\v\f\r\x1b")))
PACKED = {b"\x1f\x8b": "gzip -d", b"(\xb5/\xfd": "zstd -d", b"\xfd7zXZ": "xz -d", b"BZh": "bzip2 -d",
          b"PK\x03\x04": "unzip"}
"""First bytes of packed files, and what unpacks them."""


def not_text(path: Path) -> str:
    """Why a file is no text and what to do instead; "" for text, an empty file, and one that cannot be read.

    NULs alone make none: a log that is cut while it is written to begins with a hole. OSError and ValueError for what
    cannot be opened.
    """
    samples = _samples(path)
    head = samples[0]
    tool = next((tool for magic, tool in PACKED.items() if head.startswith(magic)), "")
    if tool:
        return f"is a packed file; unpack it with {tool} and give what is in it"
    if head.startswith((b"\xff\xfe", b"\xfe\xff")) and b"\0" in head[2:4]:
        return "is text in UTF-16; give it as UTF-8: iconv -f UTF-16 -t UTF-8"
    data = b"".join(samples)
    text = data.replace(b"\0", b"")
    controls = len(text) - len(text.translate(None, CONTROLS))
    if controls > max(MAX_CONTROLS * len(text), FEW):
        return "is no text log; give the file that the program's output was written to (of event files: --metrics-dir)"
    return ""


def _samples(path: Path) -> list[bytes]:
    with os.fdopen(open_regular(path), "rb") as handle:
        size = os.fstat(handle.fileno()).st_size
        found = []
        for start in sorted({0, max(0, (size - SAMPLE_BYTES) // 2), max(0, size - SAMPLE_BYTES)}):
            handle.seek(start)
            found.append(handle.read(SAMPLE_BYTES))
    return found
