"""Errors of saving that a trainer printed: the path cannot be written, the disk is full."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

TAIL_BYTES = 64 << 20
_FULL = re.compile(rb"No space left on device|\[Errno 28\]|os error 28|Disk quota exceeded|\[Errno 122\]"
                   rb"|PytorchStreamWriter failed writing|enforce fail at inline_container", re.IGNORECASE)
_UNWRITABLE = re.compile(rb"\[Errno 13\]|\[Errno 30\]|\[Errno 20\]|os error (?:13|30)|Permission denied"
                         rb"|Read-only file system|NotADirectoryError|\[Errno 21\]", re.IGNORECASE)
_SIGNS = (b"no space left on", b"[errno ", b"os error ", b"quota exceeded", b"pytorchstreamwriter", b"enforce fail at",
          b"permission denied", b"read-only file", b"notadirectory")
"""In lower case; a block that holds none of them has no such line."""
BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveError:
    """One line of the log."""

    kind: str
    """disk-full or unwritable."""
    line: str
    names_root: bool
    """Whether the line names a path below a checkpoint root: then it is about saving and nothing else."""


def find_save_errors(log: Path, roots: Iterable[Path]) -> tuple[SaveError, ...]:
    """The last error of each kind in a log, those that name a checkpoint root before others. Streams; never raises."""
    needles = [os.fsencode(root) for root in roots] + [os.fsencode(root.name) for root in roots if len(root.name) > 3]
    found: dict[str, SaveError] = {}
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - TAIL_BYTES))
            for line in _telling_lines(stream):
                kind = "disk-full" if _FULL.search(line) else "unwritable" if _UNWRITABLE.search(line) else ""
                if not kind:
                    continue
                named = any(needle in line for needle in needles)
                if named or kind not in found or not found[kind].names_root:
                    text = line.decode("utf-8", "replace").strip()[:500]
                    found[kind] = SaveError(kind=kind, line=text, names_root=named)
    except OSError:
        pass
    return tuple(found.values())


def _telling_lines(stream: BinaryIO) -> Iterator[bytes]:
    """Lines of those blocks that hold a sign; a line that does not end is cut at a block or two."""
    rest = b""
    while data := stream.read(BLOCK_BYTES):
        block = rest + data
        end = block.rfind(b"\n") + 1 or (len(block) if len(block) > BLOCK_BYTES else 0)
        whole, rest = block[:end], block[end:]
        low = whole.lower()
        if any(sign in low for sign in _SIGNS):
            yield from whole.split(b"\n")
    yield from rest.split(b"\n")


def unwritable_root(roots: Iterable[Path]) -> str | None:
    """A root that is there (or whose nearest parent is) and that cannot be written to by this user."""
    for root in roots:
        place = root
        while not place.exists() and place != place.parent:
            place = place.parent
        if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
            return str(root)
    return None
