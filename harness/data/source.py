"""Where a dataset comes from: a local path or a ModelScope reference, and the fingerprint of its files."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

SUFFIXES = (".json", ".jsonl", ".parquet", ".csv", ".tsv", ".arrow")
"""What AReno reads; a --dataset-path that ends so is a file for it, whether it exists or not."""
FULL_BYTES = 8 << 30
"""Up to this size every byte goes into a fingerprint; beyond it the ends of each file do."""
END_BYTES = 1 << 20
MAX_FILES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """`OWNER/NAME[:SUBSET[:SPLIT]]` on ModelScope."""

    repository: str
    subset: str | None = None
    split: str = "train"


def local_path(path: str, workdir: Path) -> Path | None:
    """The file or directory that a --dataset-path means, None where it can only be a reference to a hub.

    AReno expands no `~`.
    """
    place = workdir / path
    if place.exists() or place.suffix.lower() in SUFFIXES:
        return place
    if path.startswith(("/", "./", "../", "~")) or path.partition(":")[0].count("/") > 1:
        return place
    return None


def parse_reference(path: str) -> Reference:
    """ValueError for what is none."""
    parts = path.split(":")
    if len(parts) > 3 or parts[0].count("/") != 1 or not all(parts[0].split("/")):
        raise ValueError(f"{path}: neither a path that is there nor OWNER/NAME[:SUBSET[:SPLIT]] on ModelScope")
    subset = parts[1] if len(parts) > 1 and parts[1] else None
    return Reference(repository=parts[0], subset=subset, split=parts[2] if len(parts) > 2 and parts[2] else "train")


def fingerprint(path: Path, *, full_bytes: int = FULL_BYTES) -> str | None:
    """`sha256:...` over names and contents of every file below `path`; None where it cannot be read.

    Beyond `full_bytes` it is `sha256-of-ends:...`: sizes, and the first and last MiB of each file.
    """
    try:
        files = [path] if path.is_file() else sorted(_files(path))
        whole = sum(file.stat().st_size for file in files) <= full_bytes
        digest = hashlib.sha256()
        for file in files:
            name = file.name if file == path else file.relative_to(path).as_posix()
            digest.update(f"{name}\0{file.stat().st_size}\0".encode("utf-8", "surrogateescape"))
            digest.update(_content(file, whole=whole))
    except OSError:
        return None
    return f"{'sha256' if whole else 'sha256-of-ends'}:{digest.hexdigest()}" if files else None


def _files(directory: Path) -> list[Path]:
    found: list[Path] = []
    for parent, directories, names in os.walk(directory):
        directories[:] = [name for name in directories if not name.startswith(".")]
        found += [Path(parent) / name for name in names if not name.startswith(".")]
        if len(found) > MAX_FILES:
            break
    return [file for file in found[:MAX_FILES] if file.is_file()]


def _content(file: Path, *, whole: bool) -> bytes:
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        if whole:
            while data := stream.read(1 << 20):
                digest.update(data)
        else:
            digest.update(stream.read(END_BYTES))
            stream.seek(max(0, file.stat().st_size - END_BYTES))
            digest.update(stream.read(END_BYTES))
    return digest.digest()
