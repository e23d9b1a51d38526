"""MetricCollector: finds the run's metric files, reads what is new in them, and says what counts.

Counted are bytes that appeared after `inventory`: a new file from its start, a file that was there from its
old end, a file that was truncated, rewritten or replaced from its start again. Of those, events whose
writer's clock lies more than ten minutes before the launch are stale, and so are events without a clock in a
file that was not modified since; events of a file that a process outside the run is seen writing are foreign.

Whose a file is, harness.metrics.belonging says.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from harness.metrics.belonging import Belonging
from harness.metrics.csv import CsvReader
from harness.metrics.discovery import Candidate, Found, is_named_for_metrics, kind_of, walk
from harness.metrics.jsonl import JsonlReader
from harness.metrics.mlflow import MlflowDatabaseReader, MlflowReader, is_database, metrics_directory
from harness.metrics.model import EventColumns, Part, RestartMarker, SourceProblem
from harness.metrics.naming import RunNames, phase_rule
from harness.metrics.output import Output, PrintedProgress
from harness.metrics.ownership import Ownership
from harness.metrics.results import KIND, ResultsReader
from harness.metrics.stdout_places import Restart
from harness.metrics.stock import LOOKS, STATE, Stock
from harness.metrics.tensorboard import TensorBoardReader
from harness.metrics.tracked import CLOCK_SLACK_S, Latest, Reader, SourceFact, Tracked, last_values
from harness.metrics.trainer_state import History, TrainerStateReader, output_directory
from harness.metrics.wandb import WandbReader
from harness.record.store import MetricStore
from harness.record.vocabulary import Standing

__all__ = ["CLOCK_SLACK_S", "Latest", "MetricCollector", "SourceFact", "phase_rule"]
_WALK_GAP_S = 1.0
_WALK_COST_FACTOR = 200
_READERS: dict[str, Callable[..., Reader]] = {
    "tensorboard": TensorBoardReader, "jsonl": JsonlReader, "csv": CsvReader, "wandb": WandbReader,
    "mlflow": MlflowReader, KIND: ResultsReader,
}
_MAX_RESTARTS = 100
"""So often a file that is rewritten is read again from its start."""


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
        guessed_roots: Collection[Path] = (),
    ) -> None:
        """`roots`: directories (or files) that the run writes metrics to; they need not exist yet.

        `resume_from`: a checkpoint, or a directory of them, whose trainer states the run may go on from.
        `out_dir`: what lies in it is the run's own. `run_pids`: living processes of the run, to see who
        writes a file. `explicit_roots`: those that were named for this run, None for all; the others are a
        trainer's default, below which other runs may write too. `guessed_roots`: where the run writes other
        things, too, so that a file counts by a metric file's name only.
        """
        self.store = store
        store.phase_of = phase_rule(eval_tag_patterns, summary_tag_patterns)
        self.attempt = attempt
        """Attempt that newly found files belong to; the owner raises it at a restart."""
        self.problems: list[SourceProblem] = []
        """What is wrong with roots, not with a file."""
        self.listener: Callable[[Tracked, EventColumns], None] = lambda tracked, columns: None
        """Told of every batch of fresh events, once it is stored."""
        self._latest: dict[tuple[str, str], Latest] | None = None
        self._reads = 0
        self._roots: list[Path] = []
        self._guessed = {root.resolve() for root in guessed_roots}
        self._runs = RunNames()
        self._stock = Stock()
        self._belonging = Belonging(
            store,
            self._stock,
            ownership=Ownership(run_pids) if run_pids is not None else None,
            out_dir=out_dir,
            explicit_roots=explicit_roots,
            changed=self._forget_latest,
        )
        self._tracked: dict[str, Tracked] = {}
        self._closed: list[Tracked] = []
        self.output = Output()
        """What is read of the run's own logs."""
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
            self._latest = self.output.add_values(last_values(self._every()))
        return self._latest

    def set_cadence(self, logging_steps: int | None) -> None:
        """How many steps lie between two rows of the output, before it is added."""
        self.output.logging_steps = logging_steps

    @property
    def restarts(self) -> list[Restart]:
        """Where training began again within one output."""
        return self.output.restarts

    @property
    def announced_total(self) -> int | None:
        """Steps of the whole run as the output says, None where it does not."""
        return self.output.announced_total

    @property
    def printed(self) -> PrintedProgress:
        """Where the run is by the bars and rows that it printed last."""
        return self.output.progress

    def _forget_latest(self) -> None:
        self._latest = None

    def _every(self) -> list[Tracked]:
        return [*self._closed, *self._tracked.values()]

    def observe_run_pids(self) -> None:
        """Remember the run's processes of this moment, so that a short-lived one is known as the run's later.

        Each poll does so too, as often as it is cheap."""
        self._belonging.observe(at_once=True)

    # -- before the launch

    def inventory(self) -> list[Candidate]:
        """What is under the roots before the launch: its bytes will not count."""
        found = [candidate for root in self._roots for candidate in self._take_stock(root)]
        if self._resume_from is not None:
            resumed = self._walk(self._resume_from.resolve())
            self._resume_states = sorted(Path(item.path) for item in resumed if item.kind == STATE)
            for history in self._histories.values():
                self._remember_start(history)
        return found

    def _take_stock(self, root: Path) -> list[Candidate]:
        found = []
        for candidate in self._stock.take(root, self._walk(root, self._stock.folders)):
            found.append(candidate)
            path = Path(candidate.path)
            if candidate.kind == STATE:
                self._history(output_directory(path)).remember(path)
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

    def add_output(self, path: Path, run: str = "") -> None:
        """A log that the run's output goes into, read from now on as the last resort; its metrics belong to `attempt`.

        It is the run's own, and begins with it."""
        self.output.add(path, attempt=self.attempt, run=run)

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

    def next_attempt(self, number: int, *, now: float, launched_at: float) -> None:
        """The last look at what an attempt wrote; what is read from now on belongs to the next one."""
        self._next_walk = 0.0
        self._poll(now, launched_at, final=False)
        self.attempt = number
        self._state_sources.clear()

    def _poll(self, now: float, launched_at: float, *, final: bool) -> int:
        self._launched_at = launched_at
        self._belonging.observe()
        with self.store.transaction():
            self._discover()
            count = 0
            for path in sorted(self._tracked):
                tracked = self._tracked[path]
                count += self._read(tracked, now, launched_at, final=final)
                if tracked.reader.ended in ("truncated", "replaced") and self._may_restart(path):
                    count += self._read(self._restart(path), now, launched_at, final=final)
            for tracked in self.output.files:
                count += self._read(tracked, now, launched_at, final=final)
            for written in self._belonging.look(self._tracked, launched_at, final=final):
                self._follow(written)
            self._belonging.resolve(self._every(), launched_at)
            if final:
                self._belonging.set_aside(self._every())
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
            elif root not in self._guessed or is_named_for_metrics(item):
                yield item

    def _report(self, root: Path, code: str, message: str) -> None:
        problem = SourceProblem(code=code, path=root, offset=None, message=message)
        if problem not in self.problems:
            self.problems.append(problem)

    def _consider(self, root: Path, item: Found) -> None:
        """Track a file that has bytes which count."""
        identity = item.device, item.inode
        if item.path in self._tracked or (item.path, item.inode) in self._ignored or self._stock.is_untouched(item):
            return
        if self._is_moved(item, identity):
            return
        first_offset = self._stock.first_offset(item)
        if first_offset is None:
            return
        looks = LOOKS.get(item.kind)
        if looks is not None:
            verdict = looks(Path(item.path))
            if verdict is False:
                self._ignored.add((item.path, item.inode))
            if not verdict:
                return
        tracked = self._track(root, item.path, item.kind, first_offset)
        tracked.reader.identity = identity
        tracked.is_early = self._stock.is_early(item, self._launched_at)

    def _is_moved(self, item: Found, identity: tuple[int, int]) -> bool:
        """Whether a tracked file is met again: under a new name (followed there), or under a second one."""
        for path, tracked in self._tracked.items():
            if tracked.reader.identity == identity:
                if not Path(path).exists():
                    self._tracked[item.path] = self._tracked.pop(path)
                    tracked.reader.path = Path(item.path)
                return True
        return False

    def _track(self, root: Path, path: str, kind: str, first_offset: int) -> Tracked:
        file = Path(path)
        folder = _folder(file, kind)
        tracked = self._tracked[path] = Tracked(
            place=self._belonging.place(root, file, folder),
            reader=self._reader(file, kind, first_offset),
            run=self._runs.of(root, folder, file, kind),
        )
        return tracked

    def _reader(self, path: Path, kind: str, first_offset: int) -> Reader:
        if kind == STATE:
            return TrainerStateReader(path, history=self._history(output_directory(path)))
        if kind == "mlflow" and is_database(path):
            return MlflowDatabaseReader(path, first_offset=first_offset)
        return _READERS[kind](path, first_offset=first_offset)

    def _may_restart(self, path: str) -> bool:
        """Whether the file was not rewritten too often to follow."""
        return sum(str(closed.reader.path) == path for closed in self._closed) < _MAX_RESTARTS

    def _restart(self, path: str) -> Tracked:
        """A file that was rewritten: what comes now is another source, counted from its start."""
        old = self._tracked.pop(path)
        self._closed.append(old)
        new = Tracked(reader=self._reader(Path(path), old.reader.kind, 0), run=old.run, place=old.place)
        self._tracked[path] = new
        return new

    def _read(self, tracked: Tracked, now: float, launched_at: float, *, final: bool) -> int:
        count = 0
        for item in tracked.reader.poll(final=final):
            if isinstance(item, Part):
                tracked.part = item.name
                continue
            source = self._register(tracked)
            if isinstance(item, RestartMarker):
                self.store.add_purge(source, item.step)
                continue
            count += len(item.tag)
            for standing, part in tracked.sort_out(item, launched_at):
                self.store.append_columns(source, part, observed_at=now, standing=standing)
                tracked.points[standing] += len(part.tag)
                if standing is Standing.FRESH:
                    self._reads += 1
                    self._latest = None
                    tracked.note(part, self._reads)
                    self.listener(tracked, part)
        if not tracked.sources and tracked.reader.bytes_read:
            self._register(tracked)
        return count

    def _register(self, tracked: Tracked) -> int:
        reader, part = tracked.reader, (tracked.part, self.attempt)
        known = self._state_sources.get(output_directory(reader.path)) if reader.kind == STATE else None
        if part not in tracked.sources and known is not None:
            tracked.sources[part] = known
        if part not in tracked.sources:
            name = tracked.named_writer
            writer = f"{name.host}.{name.pid}" if name and name.pid is not None else reader.path.name
            tracked.sources[part] = self.store.add_source(
                kind=reader.kind,
                path=str(reader.path),
                run=tracked.part_run,
                node=name.host if name else "",
                writer=writer,
                attempt=tracked.attempt or self.attempt,
                inode=reader.identity[1] if reader.identity else None,
                opened_at=reader.opened_at,
            )
            if reader.kind == STATE:
                self._state_sources[output_directory(reader.path)] = tracked.sources[part]
        return tracked.sources[part]

    def _follow(self, path: Path) -> None:
        """An event file that the run holds open: the run made it, so all of it counts (old events are still
        stale)."""
        known = str(path) in self._tracked or any(path.is_relative_to(root) for root in self._roots)
        if not known and kind_of(path.name) == "tensorboard" and path.exists():
            tracked = self._track(path.parent, str(path), "tensorboard", 0)
            tracked.ownership, tracked.place = "own", replace(tracked.place, certain=True)

    # -- facts

    def wandb_exits(self) -> dict[Path, int | None]:
        """{run file of W&B: exit code that it tells, None while it tells none}, of those that are read."""
        readers = [tracked.reader for tracked in self._every() if tracked.ownership != "foreign"]
        return {reader.path: reader.exit_code for reader in readers if isinstance(reader, WandbReader)}

    def sources(self, *, final: bool = False) -> list[SourceFact]:
        """Every file of which something was read or is wrong, in the order of paths."""
        facts = [
            tracked.fact(self._launched_at, is_closed=tracked in self._closed, final=final)
            for tracked in [*self._every(), *self.output.files]
        ]
        return sorted(facts, key=lambda fact: (fact.path, fact.first_offset))


def _folder(path: Path, kind: str) -> Path:
    """The directory that a file tells of, which may be above its own."""
    if kind == STATE:
        return output_directory(path)
    place = metrics_directory(path.parent) if kind == "mlflow" else None
    return place.parent if place is not None else path.parent
