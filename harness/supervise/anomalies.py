"""The anomalies of a live run: what is read and printed goes to the board, what is new on it into the journal."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from harness.frameworks.base import FrameworkFacts
from harness.launch.base import Watched
from harness.metrics.model import EventColumns
from harness.metrics.tracked import Tracked
from harness.probe.reader import read_probe
from harness.record import outdir
from harness.record.files import write_text
from harness.record.journal import Journal
from harness.record.meaning import meaning
from harness.record.redaction import Redactor
from harness.record.vocabulary import AnomalyType, Phase, Severity
from harness.spec import RunSpec
from harness.supervise.stacks import Stacks
from harness.watch.anomalies.board import Board, Change, Incident
from harness.watch.anomalies.model import Point, Role
from harness.watch.anomalies.stall import Stall
from harness.watch.progress import fits

CHUNK_BYTES = 1 << 20
WAITING_POINTS = 100_000
"""Points of a file whose owner is not known yet that are kept until it is."""
OUTPUT_KIND = "stdout"
PROBE_PAUSE_S = 1.0
MAX_STACKS = 3
"""Stalls of one run whose stacks are taken."""
_RATE = re.compile(r"(tokens|tok|samples|examples|sequences)_?(per_|/)(s|sec|second)(_|/|$)", re.I)
_POLICY = re.compile(r"(^|[/_.-])(policy|actor|pg|ppo|grpo|gspo|critic|vf|value)([/_.-]|$)", re.I)


class AnomalyWatch:
    """One run. `output` and `points` as bytes arrive, `check` once a poll, `finish` at the end."""

    def __init__(
        self, spec: RunSpec, facts: FrameworkFacts, *, journal: Journal, launcher: Watched, redactor: Redactor,
        phase_of: Callable[[str, str], Phase],
    ) -> None:
        self.spec = spec
        self.facts = facts
        self.journal = journal
        self.launcher = launcher
        self.stop: AnomalyType | None = None
        """The kind of --stop-on that was seen."""
        self.heard_until: float | None = None
        """Until when the output was taken, seconds since the epoch: what is taken next was printed later than that."""
        self.redactor = redactor
        self._phase_of = phase_of
        self._board = self._new_board()
        self._lines: list[str] = []
        self._roles: dict[tuple[str, str], tuple[Role, bool]] = {}
        self._voices: dict[frozenset[str], str] = {}
        """Kind of the file that tells a metric, by what its tag means; of others that tell it too nothing is fed."""
        self._printed: dict[frozenset[str], str] = {}
        """Series of the output, which tells what no file does."""
        self._waiting: list[tuple[Tracked, EventColumns]] = []
        self._ranks: dict[str, int | None] = {}
        self._probe: tuple[float, int | None, int | None, float | None] = (0.0, None, None, None)
        """When the probe was read, its scaler skips, its steps, and when it wrote them."""
        self._stacks = Stacks()
        self._taken: list[str] = []
        self._launched_at = 0.0
        self._ended = False

    def _new_board(self) -> Board:
        stall = Stall(interval_s=self.spec.interval_s, started_at=time.monotonic())
        return Board(stall=stall, clock=time.monotonic, wall=time.time, scaler_skips=lambda: self._probed()[1],
                     skips_counted_at=lambda: self._probed()[3], is_unclipped=self.facts.clips_gradients is False)

    def launched(self, moment: float) -> None:
        """An attempt was started, in seconds since the epoch; the time until its first step counts from here."""
        self._launched_at = self._launched_at or moment
        self._board.stall.last_at = time.monotonic()

    # -- what it is fed with

    def output(self, data: bytes) -> None:
        """What the job printed."""
        self._note(self._board.text(data), since=self.heard_until)

    def points(self, tracked: Tracked, columns: EventColumns) -> None:
        """Fresh events of a source; those of an unknown owner wait until it is known."""
        if tracked.ownership == "own":
            self._feed(tracked, columns)
        elif tracked.ownership != "foreign" and sum(len(c.tag) for _, c in self._waiting) < WAITING_POINTS:
            self._waiting.append((tracked, columns))

    def check(self, completed: int, target: int | None, printed: int | None = None) -> list[str]:
        """Once a poll: the lines to announce. `target`: after it no step is expected; `printed`: the step that the
        output tells."""
        self._feed_known()
        self._note(self._board.printed(printed))
        may_stall = target is None or completed < target
        if may_stall and self._board.stall.is_late(time.monotonic()):
            self._note(self._ask_probe())
        self._note(self._board.tick(may_stall=may_stall))
        self._take_stacks()
        lines, self._lines = self._lines, []
        return lines

    def finish(self, logs: Iterable[Path] = ()) -> list[str]:
        """The last points and lines; nothing is stopped any more. `logs`: output that did not come through `output`."""
        self._ended = True
        for path in logs:
            self._read_log(path)
        for tracked, columns in self._waiting:
            if tracked.ownership != "foreign":
                self._feed(tracked, columns)
        self._waiting.clear()
        self._note(self._board.text_ends(), since=self.heard_until)
        self._stacks.stop()
        if self._board.unlisted:
            self.journal.write("anomalies-unlisted", counts=dict(self._board.unlisted))
        return self._lines

    def _read_log(self, path: Path) -> None:
        with contextlib.suppress(OSError), path.open("rb") as handle:
            while data := handle.read(CHUNK_BYTES):
                self.output(data)

    # -- points

    def _feed_known(self) -> None:
        waiting, self._waiting = self._waiting, []
        for tracked, columns in waiting:
            self.points(tracked, columns)

    def _feed(self, tracked: Tracked, columns: EventColumns) -> None:
        told = {index: self._is_told(tracked, columns.tags[index]) for index in set(columns.tag)}
        roles = {index: self._role(tracked.run, columns.tags[index]) for index in told}
        series = {index: f"{tracked.run}:{columns.tags[index]}" if tracked.run else "" for index in told}
        points = (
            Point(columns.tags[index], roles[index][0], step, value, wall, roles[index][1], series[index])
            for index, step, value, wall in zip(
                columns.tag, columns.step, columns.value, columns.wall_time, strict=True)
            if not told[index]
        )
        self._note(self._board.points(points), tracked)

    def _is_told(self, tracked: Tracked, tag: str) -> bool:
        """Whether a better source tells the same; one that is better than the output takes its series over."""
        kind, sense = tracked.reader.kind, meaning(tracked.run, tag)
        if kind == OUTPUT_KIND:
            if sense not in self._voices:
                self._printed.setdefault(sense, tag)
            return sense in self._voices
        if sense not in self._voices:
            self._voices[sense] = kind
            printed = self._printed.pop(sense, None)
            if printed is not None:
                self._board.rename(printed, f"{tracked.run}:{tag}" if tracked.run else tag)
        return self._voices[sense] != kind

    def _role(self, run: str, tag: str) -> tuple[Role, bool]:
        if (run, tag) not in self._roles:
            phase = self._phase_of(run, tag)
            self._roles[run, tag] = self._role_of(tag, phase), phase is Phase.TRAIN
        return self._roles[run, tag]

    def _role_of(self, tag: str, phase: Phase) -> Role:
        facts = self.facts
        is_loss = fits(tag, facts.loss_tags) or tag == self.spec.loss_tag
        if phase is Phase.SUMMARY:
            return Role.OTHER
        if phase is Phase.EVAL:
            return Role.EVAL_LOSS if is_loss else Role.OTHER
        if is_loss:
            rollout = facts.algorithm_kind in ("rollout", "agentic")
            return Role.POLICY_LOSS if rollout or _POLICY.search(tag) else Role.LOSS
        if fits(tag, facts.grad_norm_tags):
            return Role.GRAD_NORM
        if fits(tag, facts.lr_tags):
            return Role.LR
        return Role.RATE if _RATE.search(tag) else Role.OTHER

    # -- other witnesses

    def _probed(self) -> tuple[float, int | None, int | None, float | None]:
        """The probe's counts, read at most once a second."""
        if self.spec.probe and time.monotonic() - self._probe[0] >= PROBE_PAUSE_S:
            found = read_probe(self.spec.out_dir / outdir.PROBE_DIR, since=self._launched_at - 2.0).processes
            skips = max((item.scaler_skips for item in found), default=None)
            steps = sum(item.steps for item in found) if found else None
            counted_at = max((item.updated_at for item in found), default=None)
            self._probe = time.monotonic(), skips, steps, counted_at
        return self._probe

    def _ask_probe(self) -> list[Change]:
        """Steps that the probe saw and no metric told."""
        before = self._probe[2]
        steps = self._probed()[2]
        return self._board.moved() if before is not None and steps is not None and steps > before else []

    def _start_stacks(self) -> None:
        family = sorted(self.launcher.family())
        if self._stacks.program is None or not family:
            why = "py-spy is not installed" if family else "none of its processes is known here"
            self.journal.write("stacks", path=None, bytes=0, problem=why)
        else:
            self._stacks.start(family, exclude=self.launcher.leave_out)

    def _take_stacks(self) -> None:
        text = self._stacks.poll()
        if text is not None:
            self._taken.append(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())}\n{text}")
            with contextlib.suppress(OSError):
                write_text(self.spec.out_dir / outdir.STACKS, self.redactor.text("\n".join(self._taken)))
            self.journal.write("stacks", path=outdir.STACKS, bytes=len(text), problem=self._stacks.problem)

    # -- what is new

    def _note(self, changes: list[Change], tracked: Tracked | None = None, since: float | None = None) -> None:
        """`since`: when it can have begun at the earliest, seconds since the epoch; None where the moment tells."""
        for change in changes:
            stops = self._stops(change)
            self.journal.write("anomaly", **_entry(change, stops), since=since)
            if change.incident is not None:
                self._journal_incident(change, change.incident, tracked)
            if change.sighting.severity is not Severity.LOW:
                self._lines.append(self.redactor.text(_line(change)))
            is_new_stall = change.sighting.type is AnomalyType.STALLED and change.recovery is None
            if is_new_stall and not self._ended and len(self._taken) < MAX_STACKS:
                self._start_stacks()

    def _stops(self, change: Change) -> bool:
        """Whether --stop-on names it; what is only a note, as a loss scaler's skip, stops nothing."""
        kind = change.sighting.type
        named = kind.value in self.spec.stop_on and change.sighting.severity is not Severity.LOW
        if not named or change.recovery is not None or self._ended:
            return False
        self.stop = self.stop or kind
        return True

    def _journal_incident(self, change: Change, incident: Incident, tracked: Tracked | None) -> None:
        path = tracked.reader.path if tracked is not None else None
        self.journal.write(
            "incident", anomaly=change.number, step=incident.point.step, metric=incident.point.tag,
            value=incident.point.value, rank=self._rank(tracked), writer=path.name if path else outdir.TRAIN_LOG,
            last_points={role: [list(item) for item in values] for role, values in incident.last_points.items()})

    def _rank(self, tracked: Tracked | None) -> int | None:
        """The rank that the file's name tells, or the environment of the process that the name tells."""
        if tracked is None:
            return None
        told = re.search(r"rank[-_]?(\d+)", f"{tracked.run}/{tracked.reader.path.name}", re.I)
        if told:
            return int(told[1])
        writer = tracked.named_writer
        return _rank_of(writer.pid) if writer is not None and writer.pid in self.launcher.family() else None


def _rank_of(pid: int) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        for item in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            name, _, value = item.partition(b"=")
            if name == b"RANK":
                return int(value)
    return None


def _entry(change: Change, stops: bool) -> dict[str, object]:
    """As the journal holds it; entries of one number follow each other, the last one counts."""
    sighting, recovery = change.sighting, change.recovery
    return {
        "anomaly": change.number, "type": sighting.type.value, "severity": sighting.severity.value,
        "step": sighting.step, "description": sighting.description,
        "action_taken": f"the run was stopped (--stop-on {sighting.type.value})" if stops else "recorded",
        "state": "open" if recovery is None else "recovered",
        "ended_step": recovery.step if recovery else None, "why": recovery.why if recovery else None,
    }


def _line(change: Change) -> str:
    """For the terminal."""
    sighting, recovery = change.sighting, change.recovery
    at = f" at step {sighting.step}" if sighting.step is not None else ""
    if recovery is not None:
        return f"Recovered: {sighting.type.value}{at}: {recovery.why}"
    return f"Anomaly: {sighting.type.value}{at} ({sighting.severity.value}): {sighting.description}"
