"""From the lines of a log to what went wrong in it: tracebacks, telling lines, exits."""

from __future__ import annotations

import re

from harness.diagnosis import elastic
from harness.diagnosis.inputs import LogFile
from harness.diagnosis.model import Event, EventKind, Place, Role, Rule, Where
from harness.diagnosis.prefixes import Labelled, named_rank, split_label, stamp_in
from harness.diagnosis.rules import match_rule
from harness.diagnosis.scan import LogScanner, RawLine, has_sign
from harness.diagnosis.tracebacks import HEADER, NAMED, Assembler

MAX_TEXT = 4096
MAX_EVENTS = 400
"""Of one log: the first ones, and of each rule the first ones; what repeats after that tells nothing new."""
MAX_PER_RULE = 16
MAX_LINES = 500_000
TAIL_BYTES = 8 << 20
MAX_SHAPES = 20_000
MAX_STREAMS = 4096
_EVEN_AS_WARNING = frozenset({"closing-signal", "nccl-watchdog", "nan-logged", "signal-handler"})
_DIGITS = re.compile(rb"[0-9]+")
_WARNING = re.compile(r"(?i)\bwarn(?:ing)?\b|\w{1,60}Warning\b|^\W{0,3}W\d{4} |\bretry(?:ing)? in\b|\bnon-fatal\b")
_THREAD = re.compile(r"^\s*Exception in thread |Task exception was never retrieved|exception calling callback"
                     r"|Unhandled exception in (?:thread|task)")
_USAGE = re.compile(r"^usage: |^\s{2,200}(?:\[?-{1,2}\w|\{\w)")
"""Lines of a usage text or a help page: they list choices, and tell of nothing that happened."""
_IGNORED = re.compile(r"^\s*Exception ignored in")
_STAGE = re.compile(r"stage=([A-Za-z_]{1,60})")
_PID = re.compile(r"(?:process|pid[:=]?|PID) {0,2}(\d{1,10})")
_LOGGED = re.compile(r"^.{0,200}?\b(?:ERROR|CRITICAL|FATAL)\b[^\n]{0,200}?[\s:-]((?:[A-Za-z_]\w{0,60}\.){0,8}[A-Z]"
                     r"\w{0,60}(?:Error|Exception)\b.{0,2000})$")


class LogReader:
    """Reads one log once; `events` is filled in the order of the lines."""

    def __init__(self, log: LogFile, *, order: int = 0) -> None:
        """`order`: of the first event, so that those of several logs can be told apart."""
        self.log = log
        self.events: list[Event] = []
        self.watchdog_ranks: set[int] = set()
        self.workers: list[elastic.Worker] = []
        self.years: list[int] = []
        self.is_labelled = False
        """Whether lines bear the ranks of several processes."""
        self.scanner = LogScanner(log.path, first_offset=log.first_offset)
        self.problems: list[str] = []
        self._num_lines = 0
        self._order = order
        self._open: dict[str, tuple[Assembler, Event]] = {}
        self._summaries: dict[str, elastic.Summary] = {}
        self._dull: set[bytes] = set()
        self._per_rule: dict[str, int] = {}

    def read(self) -> list[Event]:
        """Everything of the log. OSError or ValueError where it cannot be read."""
        for raw in self.scanner.lines():
            self._take(raw)
            self._num_lines += 1
            if self._num_lines == MAX_LINES:
                self._skip()
            if self._open or self._summaries:
                self.scanner.follow = max(self.scanner.follow, 1)
        for stream in list(self._open):
            self._close(stream)
        for stream in list(self._summaries):
            self._close_summary(stream)
        return self.events

    def _skip(self) -> None:
        """So many lines told of something that only the end of the log is worth the time."""
        self.scanner.skips_to = self.scanner.length - TAIL_BYTES
        if self.scanner.skips_to > self.scanner.size:
            self.problems.append(f"{self.log.path}: more than {MAX_LINES} lines of errors; between byte "
                                 f"{self.scanner.size} and the last {TAIL_BYTES >> 20} MiB it was not read")

    def _take(self, raw: RawLine) -> None:
        labelled = split_label(raw.data)
        rank = labelled.rank if labelled.rank is not None else self.log.rank
        self.is_labelled = self.is_labelled or labelled.rank is not None
        stream = labelled.label
        text = labelled.rest[:MAX_TEXT].decode("utf-8", "replace").rstrip()
        place = Place(path=self.log.path, line=raw.number, text=text)
        if stream in self._open and self._feed_open(stream, place, text):
            return
        if stream in self._summaries and self._feed_summary(stream, place, text):
            if not HEADER.search(text):
                return
            rank = self._summaries[stream].rank if stream in self._summaries else rank
        if HEADER.search(text) and len(self._open) < MAX_STREAMS:
            self._begin(raw, labelled, rank, place, text)
        elif has_sign(labelled.rest):
            self._single(raw, labelled, rank, place, text)

    # -- tracebacks

    def _begin(self, raw: RawLine, labelled: Labelled, rank: int | None, place: Place, text: str) -> None:
        event = self._event(EventKind.TRACEBACK, raw, labelled.label, rank, place, text)
        context = self._context(raw, labelled.label)
        event.stamp = event.stamp or next((stamp for line in context if (stamp := stamp_in(line))), None)
        stages = [found[1] for line in context if (found := _STAGE.search(line))]
        event.stage = stages[0] if stages else ""
        if event.rank is None:
            near = [named_rank(line.encode()) for line in context[:3]]
            event.rank = next((number for number in near if number is not None), None)
        head = [text, *context[:1]]
        event.is_thread = any(_THREAD.search(line) for line in head)
        event.is_handled = any(_IGNORED.search(line) for line in head)
        event.is_warned = any(_WARNING.search(line) for line in head)
        self._open[labelled.label] = (Assembler(place, text), event)

    def _feed_open(self, stream: str, place: Place, text: str) -> bool:
        assembler, event = self._open[stream]
        if assembler.is_behind and has_sign(text.encode()) and match_rule(Where.LINE, text) is not None:
            self._close(stream)
            return False
        taken = assembler.feed(place, text)
        if event.stamp is None and taken:
            event.stamp = stamp_in(text)
        last = assembler.links[-1] if assembler.links else None
        if last is not None and last.kind.endswith("ChildFailedError"):
            self._close(stream)
            self._summaries[stream] = elastic.Summary()
        elif not assembler.is_open:
            self._close(stream)
        return taken

    def _close(self, stream: str) -> None:
        assembler, event = self._open.pop(stream)
        event.links = assembler.links
        if not event.links:
            return
        event.text = event.links[-1].text
        classify(event, assembler.frame_text)
        self._keep(event)

    # -- lines of their own

    def _single(self, raw: RawLine, labelled: Labelled, rank: int | None, place: Place, text: str) -> None:
        shape = _DIGITS.sub(b"0", labelled.rest[:200])
        if shape in self._dull:
            return
        if elastic.OPENS.search(text):
            self._summaries.setdefault(labelled.label, elastic.Summary())
        event = self._event(EventKind.LINE, raw, labelled.label, rank, place, text)
        event.text = text
        if not self._understand(event, text, is_rank_global=labelled.rank is not None and not labelled.is_local):
            if len(self._dull) < MAX_SHAPES:
                self._dull.add(shape)
            return
        context = self._context(raw, labelled.label)
        if event.stamp is None:
            event.stamp = next((stamp for line in context[:5] if (stamp := stamp_in(line))), None)
        event.stage = next((found[1] for line in [text, *context] if (found := _STAGE.search(line))), "")
        if event.kind is not EventKind.TRACEBACK or event.links:
            self._keep(event)

    def _understand(self, event: Event, text: str, *, is_rank_global: bool) -> bool:
        """Whether the line says something; the event is filled in. A rank that torch labels the line with holds against
        the one that the line names, which counts within a group of ranks."""
        if found := elastic.FAILED.search(text):
            event.kind, event.pid, event.text = EventKind.EXIT, int(found[3]), elastic.exit_text(int(found[1]))
            event.rank = int(found[2])
            event.rule = rule_of_worker(event.text)
            return event.rule is not None
        rule = match_rule(Where.LINE, text) if not _USAGE.match(text) else None
        if rule is not None:
            is_warning = rule.id not in _EVEN_AS_WARNING and bool(_WARNING.search(text))
            named = named_rank(text.encode())
            event.rank = event.rank if named is None or is_rank_global else named
            found = _PID.search(text)
            event.rule, event.is_handled, event.pid = rule, is_warning, int(found[1]) if found else None
            if rule.id == "nccl-watchdog" and event.rank is not None and "aught collective" in text:
                self.watchdog_ranks.add(event.rank)
            return not is_warning
        named_error = NAMED.match(text) or self._logged(text)
        if named_error is None or "Warning" in named_error[1]:
            return False
        event.kind = EventKind.TRACEBACK
        if _WARNING.search(text):
            return False
        assembler = Assembler.of_exception(event.place, named_error[1], named_error[2] or "")
        label = event.stream.removeprefix(f"{self.log.path}:")
        is_agent = named_error[1].endswith("ChildFailedError")
        if is_agent or label in self._open or len(self._open) >= MAX_STREAMS:
            event.links = assembler.links
            classify(event, "")
            return event.rule is not None
        self._open[label] = (assembler, event)
        return True

    def _logged(self, text: str) -> re.Match[str] | None:
        """`... ERROR ...: ValueError: message`: an exception that is told in one line."""
        found = _LOGGED.match(text)
        return NAMED.match(found[1]) if found else None

    # -- torchrun's summary

    def _feed_summary(self, stream: str, place: Place, text: str) -> bool:
        summary = self._summaries[stream]
        taken = summary.feed(place, text)
        if not summary.is_open:
            self._close_summary(stream)
        return taken

    def _close_summary(self, stream: str) -> None:
        for worker in self._summaries.pop(stream).workers:
            self.workers.append(worker)
            if worker.exit_code is None or worker.place is None:
                continue
            text = elastic.exit_text(worker.exit_code)
            event = Event(kind=EventKind.EXIT, place=worker.place, offset=self.scanner.size, order=self._next(),
                          stream=f"{self.log.path}:summary", rank=worker.rank, pid=worker.pid,
                          stamp=stamp_in(worker.time), text=text)
            event.rule = rule_of_worker(text)
            if event.rule is not None:
                self._keep(event)

    # -- helpers

    def _event(self, kind: EventKind, raw: RawLine, stream: str, rank: int | None, place: Place, text: str) -> Event:
        return Event(kind=kind, place=place, offset=raw.offset, order=self._next(),
                     stream=f"{self.log.path}:{stream}", rank=rank, stamp=stamp_in(text))

    def _next(self) -> int:
        self._order += 1
        return self._order

    def _keep(self, event: Event) -> None:
        rule = f"{event.rule.id if event.rule else ''}@{event.rank}"
        count = self._per_rule[rule] = self._per_rule.get(rule, 0) + 1
        if count <= MAX_PER_RULE and len(self.events) < MAX_EVENTS:
            self.events.append(event)
        elif count > MAX_PER_RULE:
            self.events = [*(kept for kept in self.events if kept is not self._latest(rule)), event]
        if event.stamp is not None and event.stamp.year is not None:
            self.years.append(event.stamp.year)
            del self.years[:-100]

    def _latest(self, rule: str) -> Event | None:
        """The latest event of a rule, which a later one replaces: the first ones and the last one are kept."""
        return next((kept for kept in reversed(self.events)
                     if f"{kept.rule.id if kept.rule else ''}@{kept.rank}" == rule), None)

    def _context(self, raw: RawLine, label: str) -> list[str]:
        """Lines of the same stream before this one, the nearest first, at most 20."""
        lines: list[str] = []
        for data in reversed(re.split(rb"[\r\n]", self.scanner.before(raw.offset))):
            if len(lines) >= 20:
                break
            other = split_label(data[:MAX_TEXT])
            if other.label == label and other.rest.strip():
                lines.append(other.rest.decode("utf-8", "replace").rstrip())
        return lines


def rule_of_worker(text: str) -> Rule | None:
    """Of an exit that a launcher tells of a worker: one without a signal says at least whose output to look into."""
    return match_rule(Where.EXIT, text) or match_rule(Where.EXIT, f"worker: {text}")


def classify(event: Event, frames: str) -> None:
    """Rule and link of a traceback: the first link of its chain that says something of its own.

    A link that only follows from elsewhere, or hands on, stands back behind the others. One that no rule knows takes
    the rule of the exception that was raised from it; one that was raised while it was handled says nothing about it.
    """
    hay = frames + (f"\nstage={event.stage}" if event.stage else "")
    found = [(link, rule) for link in event.links if (rule := match_rule(Where.EXCEPTION, link.text, hay))]
    own = [pair for pair in found if pair[1].role is Role.CAUSE]
    follows = [pair for pair in found if pair[1].role is Role.CONSEQUENCE]
    event.link, event.rule = next(iter([*own, *follows, *found]), (None, None))
    if event.rule is None or event.rule.id != "uncaught-exception":
        return
    for link, rule in found[found.index((event.link, event.rule)) + 1 :] if event.link else []:
        if link.is_raised_while_handling:
            return
        if rule.role is Role.CAUSE and rule.id != "uncaught-exception":
            event.rule = rule
            return
