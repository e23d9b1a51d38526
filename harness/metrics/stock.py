"""What lay below the roots before the launch, and so where in a file the bytes begin that count."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from harness.metrics.csv import looks_like_csv_metrics
from harness.metrics.discovery import Candidate, Found, end_mark, read_tail
from harness.metrics.jsonl import looks_like_metrics
from harness.metrics.mlflow import is_database
from harness.metrics.results import KIND, looks_like_results

STATE = "trainer_state"
LOOKS = {"jsonl": looks_like_metrics, "csv": looks_like_csv_metrics, KIND: looks_like_results}
"""Kinds whose name promises little: whether the content is metrics."""
_EARLY_S = 0.5


class Stock:
    """The files and directories of before the launch."""

    def __init__(self) -> None:
        self.occupied: set[Path] = set()
        """Roots that held metric files."""
        self.folders: set[str] = set()
        """Directories that were there; the walk adds to them."""
        self.shared: set[str] = set()
        """Directories that held metric files."""
        self._files: dict[str, Candidate] = {}
        self._by_identity: dict[tuple[int, int], Candidate] = {}

    def take(self, root: Path, items: Iterable[Found]) -> Iterator[Candidate]:
        """Those of the files below `root` that were not met before."""
        for item in items:
            looks = LOOKS.get(item.kind)
            if looks is None or looks(Path(item.path)):
                self.occupied.add(root)
            if item.path in self._files:
                continue
            candidate = Candidate(
                kind=item.kind,
                path=item.path,
                size=item.size,
                device=item.device,
                inode=item.inode,
                mtime=item.mtime,
                tail=end_mark(Path(item.path), item.kind, item.size),
            )
            self._files[candidate.path] = candidate
            self._by_identity[candidate.device, candidate.inode] = candidate
            yield candidate
            path = Path(candidate.path)
            if looks is None or looks(path):
                self.shared.add(str(path.parent))

    def is_untouched(self, item: Found) -> bool:
        """Whether the file is as it was."""
        before = self._files.get(item.path)
        return before is not None and (before.device, before.inode, before.size, before.mtime) == (
            item.device,
            item.inode,
            item.size,
            item.mtime,
        )

    def is_early(self, item: Found, launched_at: float) -> bool:
        """Whether the file changed between the inventory and the launch."""
        return item.path in self._files and item.mtime < launched_at - _EARLY_S

    def first_offset(self, item: Found) -> int | None:
        """Where the bytes that count begin; None where there are none."""
        if self._is_rewritten(item):
            return 0
        identity = item.device, item.inode
        before = self._files.get(item.path)
        if before is None or (before.device, before.inode) != identity:
            before = self._by_identity.get(identity)
        if before is not None and item.kind == "mlflow" and is_database(Path(item.path)):
            return int(before.tail)  # rows, not bytes
        if (
            before is None
            or item.size < before.size
            or read_tail(Path(item.path), before.size) != before.tail
        ):
            return 0
        return before.size if item.size > before.size else None

    def _is_rewritten(self, item: Found) -> bool:
        """A state is written whole; so is a table of the same length: with the same seed a run writes the same."""
        before = self._files.get(item.path)
        return item.kind in (STATE, KIND) or (item.kind == "csv" and before is not None and before.size == item.size)
