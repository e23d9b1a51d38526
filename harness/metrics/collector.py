"""MetricCollector: finds the run's metric files, reads what is new in them, and says what counts.

Counted are bytes that appeared after `inventory`: a new file from its start, a file that was there from its
old end, a file that was truncated, rewritten or replaced from its start again. Of those, events whose
writer's clock lies more than ten minutes before the launch are stale, and so are events without a clock in a
file that was not modified since; events of a file that a process outside the run is seen writing are foreign.

Whose a file is, in this order: who is seen writing it; a directory that was named for this run and held nothing
before; a proven file of the run beside or below it; and, as long as no file is proven the run's, that nobody but
one writer is seen to have come or gone on below the roots. Else it is unknown, and once one file is proven the
run's, what is unknown does not count.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.metrics.csv import CsvReader, looks_like_csv_metrics
from harness.metrics.discovery import Candidate, Found, kind_of, read_tail, walk
from harness.metrics.jsonl import JsonlReader, looks_like_metrics
from harness.metrics.model import Counter, EventColumns, RestartMarker, SourceProblem
from harness.metrics.ownership import CLOCK_SLACK_S as _START_SLACK_S
from harness.metrics.ownership import Holder, NamedWriter, Ownership, writer_in_name
from harness.metrics.tensorboard import TensorBoardReader
from harness.metrics.trainer_state import History, TrainerStateReader, output_directory
from harness.record.store import MetricStore
from harness.record.vocabulary import Phase, Standing

CLOCK_SLACK_S = 600.0
"""An event may be this much older than the launch: clocks of two machines differ by minutes."""
_WALK_GAP_S = 1.0
_WALK_COST_FACTOR = 200
_MAX_LOOKS = 50
"""So often the writer of a file is looked for."""
_MAX_RESTARTS = 100
"""So often a file that is rewritten is read again from its start."""
_LOOKS = {"jsonl": looks_like_metrics, "csv": looks_like_csv_metrics}
"""Kinds whose name promises little: whether the content is metrics."""
_STATE = "trainer_state"
_SPLIT = re.compile(r"^(train|training|eval|val|valid|validation|test|dev)$")
"""Directories that one run makes side by side."""
_NAMED = Path()
_EARLY_S = 0.5
_EVAL_STEM = re.compile(r"^(eval|val|valid|validation|test)([_.-]|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFact:
    """One metric file as the journal keeps it."""

    kind: str
    path: str
    run: str
    writer: str
    sha256: str
    """Digest of the consumed range."""
    first_offset: int
    bytes_read: int
    points: int
    """Events that count as evidence, before the attempt rule."""
    stale_points: int
    foreign_points: int
    first_step: int | None
    last_step: int | None
    last_wall_time: float | None
    """Writer's clock, seconds since the epoch."""
    ownership: str
    """"own", "foreign" or "unknown"."""
    still_there: bool
    problems: tuple[SourceProblem, ...]
    counter: Counter | None = None
    """The trainer's own count of steps, where the source holds one and was written by this run."""
    set_aside: str = ""
    """Why `foreign_points` holds the points of a source that is not known to be foreign."""

    def to_json(self) -> dict[str, Any]:
        """JSON-ready mapping."""
        problems = [{**asdict(problem), "path": str(problem.path)} for problem in self.problems]
        return {**asdict(self), "problems": problems}


@dataclass(frozen=True, slots=True)
class Latest:
    """The last value of a tag that was read."""

    step: int
    value: float
    wall_time: float
    path: str
    """The file it was read from."""
    ownership: str
    """Of that file, as far as it is known by now."""


@dataclass(slots=True)
class _Tracked:
    """One file that is being read."""

    reader: TensorBoardReader | JsonlReader | CsvReader | TrainerStateReader
    run: str
    shared: bool
    """Whether its directory held metric files before the launch."""
    certain: bool
    """Whether it is the run's own for its place alone."""
    group: Path
    """What one writer fills: the first directory on the way down that is new, else the file's directory."""
    area: Path
    """The group; for all directories that were named for this run and are not new, _NAMED."""
    is_new: bool
    """Whether the group appeared after the inventory."""
    is_early: bool = False
    """Whether it changed between the inventory and the launch."""
    source: int | None = None
    ownership: str = "own"
    holder: Holder | None = None
    values: dict[tuple[str, str], tuple[int, Latest]] = field(default_factory=dict)
    """The last values with their place in the order of reading."""
    set_aside: str = ""
    looks: int = 0
    points: dict[Standing, int] = field(default_factory=lambda: dict.fromkeys(Standing, 0))
    first_step: int | None = None
    last_step: int | None = None
    last_wall_time: float | None = None

    @property
    def is_unseen(self) -> bool:
        """Whether nothing tells its owner but what is known of the other files."""
        return self.holder is None and not self.certain


def phase_rule(
    eval_tag_patterns: Iterable[str], summary_tag_patterns: Iterable[str] = ()
) -> Callable[[str, str], Phase]:
    """(run, tag) -> phase; a run directory named like an evaluation makes its tags evaluations (Keras:
    validation/)."""
    patterns = [re.compile(pattern) for pattern in eval_tag_patterns]
    summaries = [re.compile(pattern) for pattern in summary_tag_patterns]

    def phase_of(run: str, tag: str) -> Phase:
        names = (tag, f"{run.rpartition('/')[2]}/{tag}")
        if any(pattern.search(tag) for pattern in summaries):
            return Phase.SUMMARY
        return Phase.EVAL if any(p.search(name) for p in patterns for name in names) else Phase.TRAIN

    return phase_of


class MetricCollector:
    """`inventory` before the launch, `poll` while the run goes on, `finish` when nothing more will be
    written."""

    def __init__(
        self,
        store: MetricStore,
        roots: Sequence[Path],
        *,
        eval_tag_patterns: Iterable[str] = (),
        summary_tag_patterns: Iterable[str] = (),
        out_dir: Path | None = None,
        run_pids: Callable[[], Collection[int]] | None = None,
        attempt: int = 1,
        resume_from: Path | None = None,
        explicit_roots: Collection[Path] | None = None,
    ) -> None:
        """`roots`: directories (or files) that the run writes metrics to; they need not exist yet.

        `resume_from`: a checkpoint, or a directory of them, whose trainer states the run may go on from.
        `out_dir`: what lies in it is the run's own. `run_pids`: living processes of the run, to see who
        writes a file. `explicit_roots`: those that were named for this run, None for all; the others are a
        trainer's default, below which other runs may write too.
        """
        self.store = store
        store.phase_of = phase_rule(eval_tag_patterns, summary_tag_patterns)
        self.attempt = attempt
        """Attempt that newly found files belong to; the owner raises it at a restart."""
        self.problems: list[SourceProblem] = []
        """What is wrong with roots, not with a file."""
        self._latest: dict[tuple[str, str], Latest] | None = None
        self._reads = 0
        self._explicit = None if explicit_roots is None else {root.resolve() for root in explicit_roots}
        self._occupied: set[Path] = set()
        """Roots that held metric files before the launch."""
        self._folders: set[str] = set()
        """Directories that were there before the launch."""
        self._roots: list[Path] = []
        self._prefixes: dict[Path, str] = {}
        self._out_dir = out_dir.resolve() if out_dir else None
        self._ownership = Ownership(run_pids) if run_pids is not None else None
        self._before: dict[str, Candidate] = {}
        self._before_ids: dict[tuple[int, int], Candidate] = {}
        self._shared: set[str] = set()
        self._tracked: dict[str, _Tracked] = {}
        self._closed: list[_Tracked] = []
        self._ignored: set[tuple[str, int]] = set()
        self._seen_roots: set[Path] = set()
        self._next_walk = 0.0
        self._launched_at = 0.0
        self._resume_from = resume_from
        self._resume_states: list[Path] = []
        self._histories: dict[Path, History] = {}
        self._state_sources: dict[Path, int] = {}
        for root in roots:
            self._add(root)

    def _add(self, root: Path) -> bool:
        resolved = root.resolve()
        if resolved in self._roots:
            return False
        self._roots.append(resolved)
        return True

    @property
    def latest(self) -> dict[tuple[str, str], Latest]:
        """{(run, tag): last value read}, for progress: of the run's own files once there is one, else of those
        whose owner is unknown."""
        if self._latest is None:
            every = [tracked for tracked in self._every() if tracked.ownership != "foreign" and tracked.values]
            own = [tracked for tracked in every if tracked.ownership == "own"]
            entries = [
                (number, key, latest, tracked.ownership)
                for tracked in own or every
                for key, (number, latest) in tracked.values.items()
            ]
            entries.sort(key=lambda entry: entry[0])
            self._latest = {key: replace(latest, ownership=owner) for _, key, latest, owner in entries}
        return self._latest

    def _every(self) -> list[_Tracked]:
        return [*self._closed, *self._tracked.values()]

    def observe_run_pids(self) -> None:
        """Remember the run's processes of this moment, so that a short-lived one is known as the run's later.

        Each poll does so too, as often as it is cheap."""
        if self._ownership is not None:
            self._ownership.observe(at_once=True)

    # -- before the launch

    def inventory(self) -> list[Candidate]:
        """What is under the roots before the launch: its bytes will not count."""
        found = [candidate for root in self._roots for candidate in self._take_stock(root)]
        if self._resume_from is not None:
            resumed = self._walk(self._resume_from.resolve())
            self._resume_states = sorted(Path(item.path) for item in resumed if item.kind == _STATE)
            for history in self._histories.values():
                self._remember_start(history)
        return found

    def _take_stock(self, root: Path) -> list[Candidate]:
        found = []
        for item in self._walk(root, self._folders):
            looks = _LOOKS.get(item.kind)
            if looks is None or looks(Path(item.path)):
                self._occupied.add(root)
            if item.path in self._before:
                continue
            candidate = Candidate(
                kind=item.kind,
                path=item.path,
                size=item.size,
                device=item.device,
                inode=item.inode,
                mtime=item.mtime,
                tail=read_tail(Path(item.path), item.size),
            )
            found.append(candidate)
            self._before[candidate.path] = candidate
            self._before_ids[candidate.device, candidate.inode] = candidate
            path = Path(candidate.path)
            if candidate.kind == _STATE:
                self._history(output_directory(path)).remember(path)
            if looks is None or looks(path):
                self._shared.add(str(path.parent))
        return found

    def _history(self, directory: Path) -> History:
        if directory not in self._histories:
            self._histories[directory] = history = History()
            self._remember_start(history)
        return self._histories[directory]

    def _remember_start(self, history: History) -> None:
        for path in self._resume_states:
            history.remember(path, named=self._resume_from is not None and path.parent == self._resume_from.resolve())

    def add_root(self, root: Path) -> None:
        """A directory that turned out to be written to. What it holds now does not count."""
        if self._add(root):
            self._take_stock(root.resolve())
            self._next_walk = 0.0

    # -- while the run goes on

    def poll(self, *, now: float, launched_at: float) -> int:
        """Read what is new; the number of events read. `now` and `launched_at`: seconds since the epoch, our
        clock."""
        return self._poll(now, launched_at, final=False)

    def finish(self, *, now: float, launched_at: float) -> list[SourceFact]:
        """The last poll: files that appeared late, last lines, and what stays unfinished is a problem."""
        self._next_walk = 0.0
        self._poll(now, launched_at, final=True)
        self.store.build_index()
        return self.sources(final=True)

    def _poll(self, now: float, launched_at: float, *, final: bool) -> int:
        self._launched_at = launched_at
        if self._ownership is not None:
            self._ownership.observe()
        with self.store.transaction():
            self._discover()
            count = 0
            for path in sorted(self._tracked):
                tracked = self._tracked[path]
                count += self._read(tracked, now, launched_at, final=final)
                if tracked.reader.ended in ("truncated", "replaced") and self._may_restart(path):
                    count += self._read(self._restart(path), now, launched_at, final=final)
            self._look(launched_at, final=final)
            self._resolve()
            if final:
                self._set_aside()
        return count

    def _discover(self) -> None:
        if time.monotonic() < self._next_walk:
            return
        began = time.monotonic()
        for root in self._roots:
            for item in self._walk(root):
                self._consider(root, item)
        cost = time.monotonic() - began
        self._next_walk = time.monotonic() + max(_WALK_GAP_S, _WALK_COST_FACTOR * cost)

    def _walk(self, root: Path, folders: set[str] | None = None) -> Iterator[Found]:
        if root.exists():
            self._seen_roots.add(root)
        elif root in self._seen_roots:
            self._report(root, "vanished", "the directory is gone")
        for item in walk(root, folders):
            if isinstance(item, str):
                self._report(root, "unreadable", item)
            else:
                yield item

    def _report(self, root: Path, code: str, message: str) -> None:
        problem = SourceProblem(code=code, path=root, offset=None, message=message)
        if problem not in self.problems:
            self.problems.append(problem)

    def _consider(self, root: Path, item: Found) -> None:
        """Track a file that has bytes which count."""
        identity = item.device, item.inode
        if item.path in self._tracked or (item.path, item.inode) in self._ignored or self._is_untouched(item):
            return
        if self._is_moved(item, identity):
            return
        first_offset = 0 if self._is_rewritten(item) else self._first_offset(item, identity)
        if first_offset is None:
            return
        looks = _LOOKS.get(item.kind)
        if looks is not None:
            verdict = looks(Path(item.path))
            if verdict is False:
                self._ignored.add((item.path, item.inode))
            if not verdict:
                return
        tracked = self._track(root, item.path, item.kind, first_offset)
        tracked.reader.identity = identity
        tracked.is_early = item.path in self._before and item.mtime < self._launched_at - _EARLY_S

    def _is_untouched(self, item: Found) -> bool:
        before = self._before.get(item.path)
        return before is not None and (before.device, before.inode, before.size, before.mtime) == (
            item.device,
            item.inode,
            item.size,
            item.mtime,
        )

    def _is_moved(self, item: Found, identity: tuple[int, int]) -> bool:
        """Whether a tracked file is met again: under a new name (followed there), or under a second one."""
        for path, tracked in self._tracked.items():
            if tracked.reader.identity == identity:
                if not Path(path).exists():
                    self._tracked[item.path] = self._tracked.pop(path)
                    tracked.reader.path = Path(item.path)
                return True
        return False

    def _is_rewritten(self, item: Found) -> bool:
        """A state is written whole; so is a table of the same length: with the same seed a run writes the same."""
        before = self._before.get(item.path)
        return item.kind == _STATE or (item.kind == "csv" and before is not None and before.size == item.size)

    def _first_offset(self, item: Found, identity: tuple[int, int]) -> int | None:
        """Where the bytes that count begin; None where there are none."""
        before = self._before.get(item.path)
        if before is None or (before.device, before.inode) != identity:
            before = self._before_ids.get(identity)
        if (
            before is None
            or item.size < before.size
            or read_tail(Path(item.path), before.size) != before.tail
        ):
            return 0
        return before.size if item.size > before.size else None

    def _track(self, root: Path, path: str, kind: str, first_offset: int) -> _Tracked:
        in_out_dir = self._is_in_out_dir(path)
        shared = str(Path(path).parent) in self._shared and not in_out_dir
        is_explicit = self._explicit is None or root in self._explicit
        folder = output_directory(Path(path)) if kind == _STATE else Path(path).parent
        group, is_new = self._group(root, folder)
        certain = in_out_dir or (is_explicit and root not in self._occupied and not shared)
        tracked = self._tracked[path] = _Tracked(
            reader=self._reader(Path(path), kind, first_offset),
            run=self._run_name(root, Path(path), kind),
            shared=shared,
            certain=certain,
            group=group,
            area=_NAMED if is_explicit and not is_new else group,
            is_new=is_new,
            ownership="own" if certain else "unknown",
        )
        return tracked

    def _group(self, root: Path, folder: Path) -> tuple[Path, bool]:
        """(directory that one writer fills, whether it is new)."""
        if not folder.is_relative_to(root):
            return folder, str(folder) not in self._folders
        place = root
        for part in folder.relative_to(root).parts:
            above, place = place, place / part
            if str(place) not in self._folders:
                return (above if _SPLIT.match(part) else place), True
        return folder, str(folder) not in self._folders

    def _reader(
        self, path: Path, kind: str, first_offset: int
    ) -> TensorBoardReader | JsonlReader | CsvReader | TrainerStateReader:
        if kind == _STATE:
            return TrainerStateReader(path, history=self._history(output_directory(path)))
        if kind == "csv":
            return CsvReader(path, first_offset=first_offset)
        return (TensorBoardReader if kind == "tensorboard" else JsonlReader)(path, first_offset=first_offset)

    def _is_in_out_dir(self, path: str) -> bool:
        return self._out_dir is not None and Path(path).is_relative_to(self._out_dir)

    def _run_name(self, root: Path, path: Path, kind: str) -> str:
        """The directory below its root. The first root that has a file gives no prefix, further ones their
        name."""
        if root not in self._prefixes:
            taken, prefix, number = set(self._prefixes.values()), "" if not self._prefixes else root.name, 1
            while prefix in taken:
                number += 1
                prefix = f"{root.name}-{number}"
            self._prefixes[root] = prefix
        folder = output_directory(path) if kind == _STATE else path.parent
        inside = folder.relative_to(root).parts if path != root and folder.is_relative_to(root) else ()
        stem = (path.stem,) if kind == "jsonl" and _EVAL_STEM.match(path.stem) else ()
        return "/".join(part for part in (self._prefixes[root], *inside, *stem) if part)

    def _may_restart(self, path: str) -> bool:
        """Whether the file was not rewritten too often to follow."""
        return sum(str(closed.reader.path) == path for closed in self._closed) < _MAX_RESTARTS

    def _restart(self, path: str) -> _Tracked:
        """A file that was rewritten: what comes now is another source, counted from its start."""
        old = self._tracked.pop(path)
        self._closed.append(old)
        new = _Tracked(
            reader=self._reader(Path(path), old.reader.kind, 0),
            run=old.run,
            shared=old.shared,
            certain=old.certain,
            group=old.group,
            area=old.area,
            is_new=old.is_new,
            ownership="own" if old.certain else "unknown",
        )
        self._tracked[path] = new
        return new

    def _read(self, tracked: _Tracked, now: float, launched_at: float, *, final: bool) -> int:
        count = 0
        for item in tracked.reader.poll(final=final):
            source = self._register(tracked)
            if isinstance(item, RestartMarker):
                self.store.add_purge(source, item.step)
                continue
            count += len(item.tag)
            for standing, part in self._sort_out(tracked, item, launched_at):
                self.store.append_columns(source, part, observed_at=now, standing=standing)
                tracked.points[standing] += len(part.tag)
                if standing is Standing.FRESH:
                    self._note(tracked, part)
        if tracked.source is None and tracked.reader.bytes_read:
            self._register(tracked)
        return count

    def _register(self, tracked: _Tracked) -> int:
        reader = tracked.reader
        if tracked.source is None and reader.kind == _STATE:
            tracked.source = self._state_sources.get(output_directory(reader.path))
        if tracked.source is None:
            name = writer_in_name(reader.path.name) if reader.kind == "tensorboard" else None
            writer = f"{name.host}.{name.pid}" if name and name.pid is not None else reader.path.name
            tracked.source = self.store.add_source(
                kind=reader.kind,
                path=str(reader.path),
                run=tracked.run,
                node=name.host if name else "",
                writer=writer,
                attempt=self.attempt,
                inode=reader.identity[1] if reader.identity else None,
                opened_at=reader.opened_at,
            )
            if reader.kind == _STATE:
                self._state_sources[output_directory(reader.path)] = tracked.source
        return tracked.source

    def _sort_out(
        self,
        tracked: _Tracked,
        columns: EventColumns,
        launched_at: float,
    ) -> list[tuple[Standing, EventColumns]]:
        """The batch by standing."""
        if tracked.ownership == "foreign":
            return [(Standing.FOREIGN, columns)]
        limit = launched_at - CLOCK_SLACK_S
        if min(columns.wall_time) >= limit:
            return [(Standing.FRESH, columns)]
        clockless = Standing.FRESH if _modified_at(tracked.reader.path) >= limit else Standing.STALE
        fresh = [wall >= limit or (wall == 0.0 and clockless is Standing.FRESH) for wall in columns.wall_time]
        parts = [
            (Standing.FRESH, columns.select(fresh)),
            (Standing.STALE, columns.select([not f for f in fresh])),
        ]
        return [(standing, part) for standing, part in parts if part.tag]

    def _note(self, tracked: _Tracked, columns: EventColumns) -> None:
        low, high = min(columns.step), max(columns.step)
        tracked.first_step = low if tracked.first_step is None else min(low, tracked.first_step)
        tracked.last_step = high if tracked.last_step is None else max(high, tracked.last_step)
        wall, path = max(columns.wall_time), str(tracked.reader.path)
        if wall > 0.0:
            tracked.last_wall_time = max(wall, tracked.last_wall_time or 0.0)
        self._reads += 1
        self._latest = None
        for tag, index in dict(zip(columns.tag, range(len(columns.tag)), strict=True)).items():
            latest = Latest(columns.step[index], columns.value[index], columns.wall_time[index], path, "")
            tracked.values[tracked.run, columns.tags[tag]] = self._reads, latest

    def _look(self, launched_at: float, *, final: bool) -> None:
        """Learn who writes the files whose writer is not known, and follow event files outside the roots."""
        if self._ownership is None or not (final or self._ownership.due()):
            return
        open_questions = {
            Path(path): tracked
            for path, tracked in self._tracked.items()
            if tracked.holder is None and tracked.looks < _MAX_LOOKS
        }
        held, written = self._ownership.look(open_questions.keys(), wanted=lambda name: "tfevents" in name)
        for path, tracked in open_questions.items():
            tracked.looks += 1
            if path in held:
                self._settle(tracked, held[path], launched_at)
        for path in sorted(written):
            self._follow(path)

    def _settle(self, tracked: _Tracked, holder: Holder, launched_at: float) -> None:
        tracked.holder = holder
        if holder.of_run:
            tracked.ownership = "own"
            return
        if not (tracked.shared or 0.0 < holder.started_at < launched_at - _START_SLACK_S):
            tracked.ownership = "unknown"
            return
        tracked.ownership = "foreign"
        self._take_away(tracked)

    def _take_away(self, tracked: _Tracked) -> None:
        """The points of a file count no longer."""
        tracked.points[Standing.FOREIGN] += tracked.points[Standing.FRESH]
        tracked.points[Standing.FRESH] = 0
        tracked.first_step = tracked.last_step = tracked.last_wall_time = None
        tracked.values.clear()
        self._latest = None
        if tracked.source is not None:
            self.store.set_standing(tracked.source, Standing.FOREIGN, only=Standing.FRESH)

    def _resolve(self) -> None:
        """Whose the files are whose writer was not seen, by all that is known of the others."""
        every = self._every()
        unseen = [tracked for tracked in every if tracked.is_unseen]
        others = [tracked for tracked in every if tracked.holder is not None and not tracked.holder.of_run]
        proven = [
            tracked
            for tracked in every
            if tracked.ownership == "own" and not tracked.is_unseen and tracked.points[Standing.FRESH]
        ]
        # A directory above a proven file is the run's too; one beside it may be another run's.
        own_areas = {tracked.area for tracked in proven}
        own_groups = {folder for tracked in proven for folder in (tracked.group, *tracked.reader.path.parents)}
        blocked = {tracked.group for tracked in others}
        alone = not proven and self._is_one_writer(unseen, others)
        for tracked in unseen:
            doubtful = tracked.is_early or tracked.group in blocked or self._is_named_for_another(tracked)
            fits = alone or tracked.area in own_areas or tracked.group in own_groups
            ownership = "own" if fits and not doubtful else "unknown"
            if ownership != tracked.ownership:
                tracked.ownership, self._latest = ownership, None

    def _is_one_writer(self, unseen: Sequence[_Tracked], others: Sequence[_Tracked]) -> bool:
        """Whether all that came or went on below the roots may be one run's: then it is this one's."""
        names = {(name.host, name.pid) for tracked in unseen if not tracked.is_new and (name := _named(tracked))}
        return (
            len({tracked.area for tracked in unseen}) <= 1
            and len(names) <= 1
            and not any(tracked.is_new for tracked in others)
        )

    def _is_named_for_another(self, tracked: _Tracked) -> bool:
        """In a directory that others wrote to before, a file of another host, or from before the launch, is no sign
        of this run."""
        name = _named(tracked)
        if tracked.is_new or name is None or (self._ownership is not None and self._ownership.was_of_run(name.pid)):
            return False
        return name.host != socket.gethostname() or name.created_at < self._launched_at - _START_SLACK_S

    def _set_aside(self) -> None:
        """Where some points are the run's own for certain, those of unknown writers do not count."""
        every = self._every()
        own = [t for t in every if t.ownership == "own" and t.points[Standing.FRESH]]
        sources = {tracked.source for tracked in own}
        for tracked in every if own else ():
            if tracked.ownership == "unknown" and tracked.points[Standing.FRESH] and tracked.source not in sources:
                self._take_away(tracked)
                tracked.set_aside = "its writer is unknown, and other files are the run's own"

    def _follow(self, path: Path) -> None:
        """An event file that the run holds open: the run made it, so all of it counts (old events are still
        stale)."""
        known = str(path) in self._tracked or any(path.is_relative_to(root) for root in self._roots)
        if not known and kind_of(path.name) == "tensorboard" and path.exists():
            tracked = self._track(path.parent, str(path), "tensorboard", 0)
            tracked.ownership, tracked.certain = "own", True

    # -- facts

    def sources(self, *, final: bool = False) -> list[SourceFact]:
        """Every file of which something was read or is wrong, in the order of paths."""
        facts = [self._fact(tracked, final=final) for tracked in self._every()]
        return sorted(facts, key=lambda fact: (fact.path, fact.first_offset))

    def _fact(self, tracked: _Tracked, *, final: bool) -> SourceFact:
        reader = tracked.reader
        return SourceFact(
            kind=reader.kind,
            path=str(reader.path),
            run=tracked.run,
            writer=reader.path.name,
            sha256=reader.sha256,
            first_offset=reader.first_offset,
            bytes_read=reader.bytes_read,
            points=tracked.points[Standing.FRESH],
            stale_points=tracked.points[Standing.STALE],
            foreign_points=tracked.points[Standing.FOREIGN],
            first_step=tracked.first_step,
            last_step=tracked.last_step,
            last_wall_time=tracked.last_wall_time,
            ownership=tracked.ownership,
            still_there=reader.path.exists() and tracked not in self._closed,
            problems=tuple(reader.problems(final=final)),
            counter=self._counter(tracked),
            set_aside=tracked.set_aside,
        )

    def _counter(self, tracked: _Tracked) -> Counter | None:
        """A state that another process wrote, or that was copied in, counts nothing of this run."""
        if not isinstance(tracked.reader, TrainerStateReader) or tracked.ownership == "foreign":
            return None
        is_stale = _modified_at(tracked.reader.path) < self._launched_at - CLOCK_SLACK_S
        return None if is_stale else tracked.reader.counter


def _named(tracked: _Tracked) -> NamedWriter | None:
    reader = tracked.reader
    return writer_in_name(reader.path.name) if reader.kind == "tensorboard" else None


def _modified_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
