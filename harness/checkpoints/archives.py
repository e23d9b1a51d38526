"""Archives of torch.save, read without unpickling: is the zip whole, does it hold every storage, what does it name.

Format: a zip of stored (never compressed) members `NAME/data.pkl` and `NAME/data/KEY` (pytorch.org/docs, "Serialization
semantics"). The pickle's opcodes are listed, never run.
"""

from __future__ import annotations

import copy
import io
import pickletools
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAX_PICKLE_BYTES = 64 << 20
MAX_OPCODES = 2_000_000
_PIECE = 1 << 20
_LFS = b"version https://git-lfs"
_STORAGES = {
    "DoubleStorage": 8, "FloatStorage": 4, "HalfStorage": 2, "BFloat16Storage": 2, "LongStorage": 8, "IntStorage": 4,
    "ShortStorage": 2, "CharStorage": 1, "ByteStorage": 1, "BoolStorage": 1,
}
"""Bytes of an element of a storage."""
_WHOLE_NUMBERS = frozenset({"LongStorage", "IntStorage", "ShortStorage", "CharStorage", "ByteStorage", "BoolStorage"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveFacts:
    """What an archive is, by its structure."""

    kind: str = "zip"
    """zip, pickle (a bare one, whose loading can run code), or unknown."""
    problems: tuple[str, ...] = ()
    storages: int = 0
    globals: tuple[str, ...] = ()
    """Names that its pickle would import, sorted."""
    step: int | None = None
    epoch: int | None = None
    is_lightning: bool = False
    is_script: bool = False
    """Whether it is a TorchScript archive: a program with its weights."""
    may_hold_weights: bool = True
    """False where it holds no storage of floating values."""


def scan_archive(path: Path) -> ArchiveFacts:
    """Look at one file; never raises for what it holds."""
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            head = stream.read(64)
    except OSError as error:
        return ArchiveFacts(kind="unknown", problems=(f"{path.name}: {error.strerror}",))
    if problem := _no_archive(head, size):
        return ArchiveFacts(kind="unknown", problems=(f"{path.name}: {problem}",))
    if not head.startswith(b"PK"):
        if head[:1] == b"\x80":
            return ArchiveFacts(kind="pickle")
        return ArchiveFacts(kind="unknown", problems=(f"{path.name}: neither a torch archive nor a pickle",))
    try:
        with zipfile.ZipFile(path) as archive:
            return _of_zip(path.name, archive, size)
    except Exception as error:  # zipfile and zlib raise what they meet in a damaged file
        return ArchiveFacts(problems=(f"{path.name}: cut short or damaged: {error}",))


def storage_marks(path: Path) -> tuple[tuple[int, int], ...]:
    """(size, CRC-32) of every storage of an archive, sorted; empty for a file that is none or has no checksums."""
    try:
        with zipfile.ZipFile(path) as archive:
            marks = sorted((item.file_size, item.CRC) for item in archive.infolist() if "/data/" in item.filename)
    except Exception:  # as above
        return ()
    return tuple(marks) if any(crc for _, crc in marks) else ()


def damaged_members(path: Path) -> tuple[list[str], list[str]]:
    """(problems, notes) by the CRC-32 of every stored member, which torch does not look at when it loads.

    Reads the whole file, a piece at a time; ([], []) for a file that is no zip. An archive that was saved under
    `torch.serialization.set_crc32_options(False)` holds zeros in their place.
    """
    problems: list[str] = []
    try:
        if not zipfile.is_zipfile(path):
            return [], []
        with zipfile.ZipFile(path) as archive:
            stored = [item for item in archive.infolist() if item.compress_type == zipfile.ZIP_STORED]
            if sum(item.compress_size for item in stored) > path.stat().st_size:
                return [f"{path.name}: its members overlap"], []
            for item in stored:
                if item.CRC and (problem := _damage(archive, item)):
                    problems.append(f"{path.name}: {problem}")
    except Exception as error:  # as above
        return [f"{path.name}: cut short or damaged: {error}"], []
    bare = sum(1 for item in stored if item.file_size and not item.CRC)
    note = f"{path.name}: {bare} of {len(stored)} members were saved without a checksum: damage in them does not show"
    return problems[:20], [note] if bare else []


def _damage(archive: zipfile.ZipFile, item: zipfile.ZipInfo) -> str:
    try:
        with archive.open(item) as member:
            while member.read(_PIECE):
                pass
    except zipfile.BadZipFile as error:
        if "CRC" not in str(error):
            raise
        return f"{item.filename} is damaged: its bytes do not match their CRC-32"
    return ""


def _content(archive: zipfile.ZipFile, item: zipfile.ZipInfo) -> bytes:
    """A checksum of 0 is one that was not written."""
    bare = copy.copy(item)
    if not item.CRC:
        del bare.CRC
    with archive.open(bare) as member:
        return member.read()


def _no_archive(head: bytes, size: int) -> str:
    if size == 0:
        return "the file is empty"
    if head.startswith(_LFS):
        return "a git-LFS pointer stands in its place; run `git lfs pull`"
    return "it begins with zero bytes: it was never written, or a disk lost it" if not any(head) else ""


def _of_zip(name: str, archive: zipfile.ZipFile, size: int) -> ArchiveFacts:
    members = {item.filename: item for item in archive.infolist()}
    pickles = [member for member in members if member.endswith("data.pkl")]
    if not pickles:
        return ArchiveFacts(problems=(f"{name}: a zip without data.pkl is no torch archive",))
    problems = [f"{name}: {item.filename} lies beyond the end of the file" for item in members.values()
                if item.header_offset + item.compress_size > size or item.file_size < 0]
    item = members[pickles[0]]
    if item.file_size > MAX_PICKLE_BYTES or item.compress_size * 100 < item.file_size:
        return ArchiveFacts(problems=(*problems, f"{name}: its pickle of {item.file_size} bytes is out of proportion"))
    listing = _Listing()
    listing.read(_content(archive, item))
    problems += [f"{name}: {problem}" for problem in listing.problems]
    root = pickles[0].removesuffix("data.pkl")
    stored = any(member.startswith(f"{root}data/") for member in members)
    for key, width, count in listing.storages:
        member = members.get(f"{root}data/{key}")
        if member is None:
            problems.append(f"{name}: storage {key} is missing")
        elif width and member.file_size < width * count:
            problems.append(f"{name}: storage {key} holds {member.file_size} of {width * count} bytes")
    return ArchiveFacts(
        problems=tuple(problems[:20]), storages=len(listing.storages), globals=tuple(sorted(listing.globals)),
        step=listing.numbers.get("global_step", listing.numbers.get("step")), epoch=listing.numbers.get("epoch"),
        is_lightning="pytorch-lightning_version" in listing.keys,
        is_script=f"{root}constants.pkl" in members or any(member.startswith(f"{root}code/") for member in members),
        may_hold_weights=stored and not (listing.kinds and listing.kinds <= _WHOLE_NUMBERS))


class _Listing:
    """A pickle's opcodes in order: names that it imports, its top words with the numbers behind them, its storages."""

    def __init__(self) -> None:
        self.globals: set[str] = set()
        self.storages: list[tuple[str, int, int]] = []
        self.numbers: dict[str, int] = {}
        self.keys: set[str] = set()
        self.kinds: set[str] = set()
        self.problems: list[str] = []

    def read(self, data: bytes) -> None:
        """List it; a pickle that cannot be listed is a problem."""
        recent: list[Any] = []
        memo: dict[int, Any] = {}
        try:
            for count, (code, argument, _) in enumerate(pickletools.genops(io.BytesIO(data))):
                if count > MAX_OPCODES:
                    self.kinds.add("")
                    return
                self._take(code.name, argument, recent, memo)
                del recent[:-8]
        except Exception as error:  # pickletools raises what its parsers meet
            self.problems.append(f"its pickle cannot be read: {type(error).__name__} {str(error)[:200]}")

    def _take(self, name: str, argument: Any, recent: list[Any], memo: dict[int, Any]) -> None:
        if name in ("GLOBAL", "INST"):
            recent.append(str(argument).replace(" ", "."))
            self.globals.add(recent[-1])
        elif name == "STACK_GLOBAL":
            texts = [item for item in recent if isinstance(item, str)][-2:]
            self.globals.add(".".join(texts))
            recent.append(".".join(texts))
        elif name.startswith(("BINPUT", "LONG_BINPUT", "PUT")):
            memo[int(argument)] = recent[-1] if recent else None
        elif name == "MEMOIZE":
            memo[len(memo)] = recent[-1] if recent else None
        elif name.startswith(("BINGET", "LONG_BINGET", "GET")):
            recent.append(memo.get(int(argument)))
        elif name == "BINPERSID":
            self._storage(recent)
        elif isinstance(argument, (str, int)) and not isinstance(argument, bool):
            if isinstance(argument, int) and recent and recent[-1] in ("global_step", "step", "epoch"):
                self.numbers.setdefault(recent[-1], argument)
            elif isinstance(argument, str) and len(argument) < 100:
                self.keys.add(argument)
            recent.append(argument)

    def _storage(self, recent: list[Any]) -> None:
        """('storage', torch.XStorage, key, device, elements)."""
        if len(recent) >= 5 and recent[-5] == "storage" and isinstance(recent[-1], int):
            kind = str(recent[-4]).rpartition(".")[2]
            width = _STORAGES.get(kind, 0)
            self.kinds.add(kind)
            self.storages.append((str(recent[-3]), width, recent[-1]))
