"""One metric file that is read: what is known of it, which of its events count, and how the journal keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.metrics.csv import CsvReader
from harness.metrics.jsonl import JsonlReader
from harness.metrics.mlflow import MlflowDatabaseReader, MlflowReader
from harness.metrics.model import Counter, EventColumns, SourceProblem
from harness.metrics.ownership import Holder, NamedWriter, writer_in_name
from harness.metrics.results import ResultsReader
from harness.metrics.stdout import StdoutReader
from harness.metrics.tensorboard import TensorBoardReader
from harness.metrics.trainer_state import TrainerStateReader
from harness.metrics.wandb import WandbReader
from harness.record.vocabulary import Standing

CLOCK_SLACK_S = 600.0
"""An event may be this much older than the launch: clocks of two machines differ by minutes."""
Reader = (
    TensorBoardReader | JsonlReader | CsvReader | WandbReader | MlflowReader | MlflowDatabaseReader | TrainerStateReader
    | StdoutReader | ResultsReader
)


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
    step_unit: str = "step"
    """What its steps count: "step", or "epoch" where its rows name nothing else."""
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
    kind: str = ""
    """Of that file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What a file's directory says of its owner."""

    shared: bool
    """Whether its directory held metric files before the launch."""
    certain: bool
    """Whether it is the run's own for its place alone."""
    group: Path
    """What one writer fills: the first directory on the way down that is new, else the file's directory."""
    area: Path
    """The group; for all directories that were named for this run and are not new, one and the same."""
    is_new: bool
    """Whether the group appeared after the inventory."""


@dataclass(slots=True)
class Tracked:
    """One file that is being read."""

    reader: Reader
    run: str
    place: Place
    is_early: bool = False
    """Whether it changed between the inventory and the launch."""
    attempt: int = 0
    """The attempt that wrote it, 0 where that is the one in which its first event was read."""
    part: str = ""
    """The run within the file that is read at the moment."""
    sources: dict[tuple[str, int], int] = field(default_factory=dict)
    """{(part, attempt that it was written in): its number in the store}."""
    ownership: str = ""
    """Where nothing is said: "own" for its place, else "unknown"."""
    holder: Holder | None = None
    values: dict[tuple[str, str], tuple[int, Latest]] = field(default_factory=dict)
    """The last values with their place in the order of reading."""
    set_aside: str = ""
    looks: int = 0
    points: dict[Standing, int] = field(default_factory=lambda: dict.fromkeys(Standing, 0))
    first_step: int | None = None
    last_step: int | None = None
    last_wall_time: float | None = None

    def __post_init__(self) -> None:
        self.ownership = self.ownership or ("own" if self.place.certain else "unknown")

    @property
    def part_run(self) -> str:
        """The run that is read at the moment."""
        return "/".join(name for name in (self.run, self.part) if name)

    @property
    def is_unseen(self) -> bool:
        """Whether nothing tells its owner but what is known of the other files."""
        return self.holder is None and not self.place.certain

    @property
    def named_writer(self) -> NamedWriter | None:
        """What an event file's name says of its writer."""
        return writer_in_name(self.reader.path.name) if self.reader.kind == "tensorboard" else None

    def sort_out(self, columns: EventColumns, launched_at: float) -> list[tuple[Standing, EventColumns]]:
        """The batch by standing."""
        if self.ownership == "foreign":
            return [(Standing.FOREIGN, columns)]
        limit = launched_at - CLOCK_SLACK_S
        if min(columns.wall_time) >= limit:
            return [(Standing.FRESH, columns)]
        clockless = Standing.FRESH if _modified_at(self.reader.path) >= limit else Standing.STALE
        fresh = [wall >= limit or (wall == 0.0 and clockless is Standing.FRESH) for wall in columns.wall_time]
        parts = [
            (Standing.FRESH, columns.select(fresh)),
            (Standing.STALE, columns.select([not f for f in fresh])),
        ]
        return [(standing, part) for standing, part in parts if part.tag]

    def note(self, columns: EventColumns, number: int) -> None:
        """Remember the steps and the last values of events that count; `number`: in the order of reading."""
        low, high = min(columns.step), max(columns.step)
        self.first_step = low if self.first_step is None else min(low, self.first_step)
        self.last_step = high if self.last_step is None else max(high, self.last_step)
        wall, path = max(columns.wall_time), str(self.reader.path)
        if wall > 0.0:
            self.last_wall_time = max(wall, self.last_wall_time or 0.0)
        for tag, index in dict(zip(columns.tag, range(len(columns.tag)), strict=True)).items():
            moment = columns.step[index], columns.value[index], columns.wall_time[index]
            latest = Latest(*moment, path, "", self.reader.kind)
            self.values[self.part_run, columns.tags[tag]] = number, latest

    def take_away(self) -> None:
        """Its points count no longer."""
        self.points[Standing.FOREIGN] += self.points[Standing.FRESH]
        self.points[Standing.FRESH] = 0
        self.first_step = self.last_step = self.last_wall_time = None
        self.values.clear()

    def fact(self, launched_at: float, *, is_closed: bool, final: bool) -> SourceFact:
        """As the journal keeps it."""
        reader = self.reader
        return SourceFact(
            kind=reader.kind,
            path=str(reader.path),
            run=self.run,
            writer=reader.path.name,
            sha256=reader.sha256,
            first_offset=reader.first_offset,
            bytes_read=reader.bytes_read,
            points=self.points[Standing.FRESH],
            stale_points=self.points[Standing.STALE],
            foreign_points=self.points[Standing.FOREIGN],
            first_step=self.first_step,
            last_step=self.last_step,
            last_wall_time=self.last_wall_time,
            ownership=self.ownership,
            still_there=reader.path.exists() and not is_closed,
            problems=tuple(reader.problems(final=final)),
            counter=self._counter(launched_at),
            step_unit=reader.step_unit if isinstance(reader, (CsvReader, JsonlReader)) else "step",
            set_aside=self.set_aside,
        )

    def _counter(self, launched_at: float) -> Counter | None:
        """A state that another process wrote, or that was copied in, counts nothing of this run."""
        if not isinstance(self.reader, TrainerStateReader) or self.ownership == "foreign":
            return None
        is_stale = _modified_at(self.reader.path) < launched_at - CLOCK_SLACK_S
        return None if is_stale else self.reader.counter


def last_values(files: Sequence[Tracked]) -> dict[tuple[str, str], Latest]:
    """{(run, tag): last value read}: of the run's own files once there is one, else of those whose owner is
    unknown."""
    every = [tracked for tracked in files if tracked.ownership != "foreign" and tracked.values]
    own = [tracked for tracked in every if tracked.ownership == "own"]
    entries = [
        (number, key, latest, tracked.ownership)
        for tracked in own or every
        for key, (number, latest) in tracked.values.items()
    ]
    entries.sort(key=lambda entry: entry[0])
    return {key: replace(latest, ownership=owner) for _, key, latest, owner in entries}


def _modified_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
