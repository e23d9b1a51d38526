"""Whose a metric file is.

In this order: who is seen writing it; a directory that was named for this run and held nothing before; a proven
file of the run beside or below it; and, as long as no file is proven the run's, that nobody but one writer is seen
to have come or gone on below the roots. Else it is unknown, and once one file is proven the run's, what is unknown
does not count.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from harness.metrics.ownership import CLOCK_SLACK_S as _START_SLACK_S
from harness.metrics.ownership import Holder, Ownership
from harness.metrics.stock import Stock
from harness.metrics.tracked import Place, Tracked
from harness.record.store import MetricStore
from harness.record.vocabulary import Standing

_MAX_LOOKS = 50
"""So often the writer of a file is looked for."""
_SPLIT = re.compile(r"^(train|training|eval|val|valid|validation|test|dev)$")
"""Directories that one run makes side by side."""
_NAMED = Path()
"""The area of all directories that were named for this run and are not new."""


class Belonging:
    """Says whose the tracked files are, and takes away the points of those that are not the run's."""

    def __init__(
        self,
        store: MetricStore,
        stock: Stock,
        *,
        ownership: Ownership | None,
        out_dir: Path | None,
        explicit_roots: Collection[Path] | None,
        changed: Callable[[], None],
    ) -> None:
        """`ownership`: sees who writes a file, None where nobody looks; `changed`: called when the last
        values that count may be others; the rest as the collector has it.
        """
        self._store = store
        self._stock = stock
        self._ownership = ownership
        self._changed = changed
        self._out_dir = out_dir.resolve() if out_dir else None
        self._explicit = None if explicit_roots is None else {root.resolve() for root in explicit_roots}

    def observe(self, *, at_once: bool = False) -> None:
        """Remember the run's processes; without `at_once` as often as it is cheap."""
        if self._ownership is not None:
            self._ownership.observe(at_once=at_once)

    # -- by place

    def place(self, root: Path, path: Path, folder: Path) -> Place:
        """Of a file below `root`; `folder`: the directory it tells of, which may be above its own."""
        in_out_dir = self._out_dir is not None and path.is_relative_to(self._out_dir)
        shared = str(path.parent) in self._stock.shared and not in_out_dir
        is_explicit = self._explicit is None or root in self._explicit
        group, is_new = self._group(root, folder)
        return Place(
            shared=shared,
            certain=in_out_dir or (is_explicit and root not in self._stock.occupied and not shared),
            group=group,
            area=_NAMED if is_explicit and not is_new else group,
            is_new=is_new,
        )

    def _group(self, root: Path, folder: Path) -> tuple[Path, bool]:
        """(directory that one writer fills, whether it is new)."""
        folders = self._stock.folders
        if not folder.is_relative_to(root):
            return folder, str(folder) not in folders
        place = root
        for part in folder.relative_to(root).parts:
            above, place = place, place / part
            if str(place) not in folders:
                return (above if _SPLIT.match(part) else place), True
        return folder, str(folder) not in folders

    # -- by the writer that is seen

    def look(self, files: Mapping[str, Tracked], launched_at: float, *, final: bool) -> list[Path]:
        """Learn who writes the files whose writer is not known; the event files that the run writes anywhere."""
        if self._ownership is None or not (final or self._ownership.due()):
            return []
        open_questions = {
            Path(path): tracked
            for path, tracked in files.items()
            if tracked.holder is None and tracked.looks < _MAX_LOOKS
        }
        held, written = self._ownership.look(open_questions.keys(), wanted=lambda name: "tfevents" in name)
        for path, tracked in open_questions.items():
            tracked.looks += 1
            if path in held:
                self._settle(tracked, held[path], launched_at)
        return sorted(written)

    def _settle(self, tracked: Tracked, holder: Holder, launched_at: float) -> None:
        tracked.holder = holder
        self._changed()
        if holder.of_run:
            tracked.ownership = "own"
            return
        if not (tracked.place.shared or 0.0 < holder.started_at < launched_at - _START_SLACK_S):
            tracked.ownership = "unknown"
            return
        tracked.ownership = "foreign"
        self._take_away(tracked)

    def _take_away(self, tracked: Tracked) -> None:
        """The points of a file count no longer."""
        tracked.take_away()
        self._changed()
        for source in tracked.sources.values():
            self._store.set_standing(source, Standing.FOREIGN, only=Standing.FRESH)

    # -- by what is known of the others

    def resolve(self, every: Sequence[Tracked], launched_at: float) -> None:
        """Whose the files are whose writer was not seen, by all that is known of the others."""
        unseen = [tracked for tracked in every if tracked.is_unseen]
        others = [tracked for tracked in every if tracked.holder is not None and not tracked.holder.of_run]
        proven = [
            tracked
            for tracked in every
            if tracked.ownership == "own" and not tracked.is_unseen and tracked.points[Standing.FRESH]
        ]
        # A directory above a proven file is the run's too; one beside it may be another run's.
        own_areas = {tracked.place.area for tracked in proven}
        own_groups = {
            folder for tracked in proven for folder in (tracked.place.group, *tracked.reader.path.parents)
        }
        blocked = {tracked.place.group for tracked in others}
        alone = not proven and _is_one_writer(unseen, others)
        for tracked in unseen:
            place = tracked.place
            doubtful = (
                tracked.is_early or place.group in blocked or self._is_named_for_another(tracked, launched_at)
            )
            fits = alone or place.area in own_areas or place.group in own_groups
            ownership = "own" if fits and not doubtful else "unknown"
            if ownership != tracked.ownership:
                tracked.ownership = ownership
                self._changed()

    def _is_named_for_another(self, tracked: Tracked, launched_at: float) -> bool:
        """In a directory that others wrote to before, a file of another host, or from before the launch, is no sign
        of this run."""
        name = tracked.named_writer
        if tracked.place.is_new or name is None:
            return False
        if self._ownership is not None and self._ownership.was_of_run(name.pid):
            return False
        return name.host != socket.gethostname() or name.created_at < launched_at - _START_SLACK_S

    def set_aside(self, every: Sequence[Tracked]) -> None:
        """Where some points are the run's own for certain, those of unknown writers do not count."""
        own = [t for t in every if t.ownership == "own" and t.points[Standing.FRESH]]
        sources = {source for tracked in own for source in tracked.sources.values()}
        for tracked in every if own else ():
            is_apart = sources.isdisjoint(tracked.sources.values())
            if tracked.ownership == "unknown" and tracked.points[Standing.FRESH] and is_apart:
                self._take_away(tracked)
                tracked.set_aside = "its writer is unknown, and other files are the run's own"


def _is_one_writer(unseen: Sequence[Tracked], others: Sequence[Tracked]) -> bool:
    """Whether all that came or went on below the roots may be one run's: then it is this one's."""
    names = {
        (name.host, name.pid)
        for tracked in unseen
        if not tracked.place.is_new and (name := tracked.named_writer)
    }
    return (
        len({tracked.place.area for tracked in unseen}) <= 1
        and len(names) <= 1
        and not any(tracked.place.is_new for tracked in others)
    )
