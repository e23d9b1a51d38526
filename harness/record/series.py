"""Reading series out of metrics.db: the attempt rule of harness.record.merge as SQL."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from harness.record.meaning import meaning
from harness.record.merge import PRINTED, Lifetime, Plan, make_plan
from harness.record.vocabulary import Phase, Standing

_SEGMENT = 1 << 48
"""Added to the sequence numbers of each later writer, so that its points win."""
_ODD = "value IS NULL OR value IN (9e999, -9e999)"
_AGGREGATES = (
    f"count(*), min(step), max(step), coalesce(sum({_ODD}), 0), min(CASE WHEN {_ODD} THEN step END),"
    f" min(CASE WHEN {_ODD} THEN NULL ELSE value END), max(CASE WHEN {_ODD} THEN NULL ELSE value END)"
)
Tracks = dict[int, tuple[int, bool, int]]
"""{source: (track, whether its steps only rose, first step)} of one tag."""
Lives = dict[int, tuple[str, Lifetime]]
"""{source: (run, lifetime)}."""


class Point(NamedTuple):
    """One point of a merged series."""

    step: int
    value: float
    wall_time: float
    """Writer's clock, seconds since the epoch; 0.0 where the source has none."""
    seq: int
    """Order in which events were written down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TagSummary:
    """One tag in one run directory. Steps and values are those of the merged, fresh series."""

    tag: str
    run: str
    phase: Phase
    points: int
    """Events stored, of any standing, before the attempt rule."""
    fresh_points: int
    """Length of the merged, fresh series."""
    first_step: int | None
    last_step: int | None
    last_value: float | None
    nonfinite: int
    """Points of the merged series that are NaN or infinite."""
    first_nonfinite_step: int | None
    min_finite: float | None
    max_finite: float | None
    last_wall_time: float | None
    writers: tuple[str, ...]
    """More than one: they wrote at the same time, and the series is that of the first."""
    kind: str = ""
    """Kind of the sources of the series, see harness.record.merge.KIND_ORDER."""
    repeats: tuple[str, str] | None = None
    """(run, tag) of the better series that holds what this printed one does, which then has no points that count."""


class SeriesReader:
    """Series and summaries over an open database. Raises sqlite3.Error where it is damaged."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def summaries(self) -> list[TagSummary]:
        """Every tag of every run directory, by run and tag; those without a fresh point too."""
        totals = self._db.execute(
            "SELECT s.run, t.tag, min(t.phase), sum(t.points) FROM track t"
            " JOIN source s ON s.id = t.source GROUP BY s.run, t.tag ORDER BY s.run, t.tag"
        ).fetchall()
        lives = self._lifetimes()
        return _best([self._summary(run, tag, Phase(phase), points, lives) for run, tag, phase, points in totals])

    def runs_of(self, tag: str) -> list[str]:
        """Run directories that hold fresh points of the tag: train phase first, then by points, then by
        name."""
        rows = self._db.execute(
            "SELECT s.run FROM track t JOIN source s ON s.id = t.source"
            " WHERE t.tag = ? AND t.fresh_points > 0"
            " GROUP BY s.run ORDER BY min(s.kind = 'stdout'), min(t.phase <> 'train'), sum(t.fresh_points) DESC, s.run",
            (tag,),
        ).fetchall()
        return [run for (run,) in rows]

    def points(
        self,
        tag: str,
        *,
        run: str | None = None,
        writer: str | None = None,
        standing: Standing = Standing.FRESH,
        last: int | None = None,
    ) -> Iterator[Point]:
        """See MetricStore.series."""
        if run is None:
            run = next(iter(self.runs_of(tag)), None) if standing is Standing.FRESH else None
        query = self._query(tag, run, writer, standing, self._lifetimes())
        if query is None or last == 0:
            return
        sql, parameters = query
        if last is not None:
            sql = f"SELECT * FROM ({sql} ORDER BY 1 DESC LIMIT {int(last)}) ORDER BY 1"
        else:
            sql = f"{sql} ORDER BY 1"
        for step, value, wall_time, seq, *_ in self._db.execute(sql, parameters):
            yield Point(step, math.nan if value is None else value, wall_time, seq)

    def _lifetimes(self) -> Lives:
        """(run, lifetime) of every source with fresh events."""
        train: dict[int, dict[str, tuple[int, int]]] = {}
        for source, tag, step, points in self._db.execute(
            "SELECT source, tag, first_step, fresh_points FROM track"
            " WHERE phase = 'train' AND fresh_points > 0"
        ):
            train.setdefault(source, {})[tag] = step, points
        purges: dict[int, list[tuple[int, int]]] = {}
        for source, seq, step in self._db.execute("SELECT source, seq, step FROM purge ORDER BY rowid"):
            purges.setdefault(source, []).append((seq, step))
        rows = self._db.execute(
            "SELECT s.id, s.kind, s.writer, s.path, s.attempt, s.run, s.opened_at,"
            " min(CASE WHEN b.first_wall > 0 THEN b.first_wall END), max(b.last_wall),"
            " min(b.observed_at), max(b.observed_at)"
            " FROM source s JOIN batch b ON b.source = s.id AND b.standing = 'fresh' GROUP BY s.id"
        ).fetchall()
        result = {}
        for source, kind, writer, path, attempt, run, opened, first, end, seen_first, seen_last in rows:
            start, end = (seen_first, seen_last) if first is None else (min(opened or first, first), end)
            result[source] = (
                run,
                Lifetime(
                    source=source,
                    kind=kind,
                    writer=writer,
                    path=path,
                    attempt=attempt,
                    start=start,
                    end=end,
                    train=train.get(source, {}),
                    purges=tuple(purges.get(source, ())),
                ),
            )
        return result

    def _plan(self, tag: str, run: str, writer: str | None, lives: Lives) -> tuple[Plan, Tracks]:
        """The plan and {source: (track, ordered, first step)} of the tag's fresh points in a run."""
        tracks, points = {}, {}
        for track, source, ordered, first, fresh in self._db.execute(
            "SELECT id, source, ordered, first_step, fresh_points FROM track"
            " WHERE tag = ? AND fresh_points > 0",
            (tag,),
        ):
            if source in lives and lives[source][0] == run:
                tracks[source] = track, bool(ordered), first
                points[source] = fresh
        return make_plan([lives[source][1] for source in tracks], points, writer), tracks

    def _query(
        self,
        tag: str,
        run: str | None,
        writer: str | None,
        standing: Standing,
        lives: Lives,
    ) -> tuple[str, list[Any]] | None:
        """SQL for (step, value, wall_time, seq) of the series, without ORDER BY; None where there is
        nothing."""
        fields = "SELECT p.step AS step, p.value AS value, p.wall_time AS wall_time, p.rowid AS seq"
        if standing is not Standing.FRESH:
            return (
                f"{fields} FROM point p JOIN track t ON t.id = p.track JOIN batch b ON b.id = p.batch"
                " JOIN source s ON s.id = t.source WHERE t.tag = ? AND b.standing = ?"
                " AND (? IS NULL OR s.run = ?) AND (? IS NULL OR s.writer = ?)",
                [tag, standing.value, run, run, writer, writer],
            )
        if run is None:
            return None
        plan, tracks = self._plan(tag, run, writer, lives)
        if not plan.segments:
            return None
        conditions, parameters, order = [], [], []
        for index, segment in enumerate(plan.segments):
            track = tracks[segment.source][0]
            condition = f"p.track = {track}"
            if segment.cut is not None:
                condition += " AND p.step < ?"
                parameters.append(segment.cut)
            for seq, step in segment.purges:
                condition += " AND NOT (p.rowid < ? AND p.step >= ?)"
                parameters += [seq, step]
            conditions.append(f"({condition})")
            order.append(f"WHEN {track} THEN {index * _SEGMENT}")
        where = (
            f"FROM point p WHERE p.track IN ({', '.join(str(tracks[s.source][0]) for s in plan.segments)})"
            f" AND ({' OR '.join(conditions)})"
            " AND p.batch IN (SELECT id FROM batch WHERE standing = 'fresh')"
        )
        if _is_sorted(plan, tracks):
            return f"{fields} {where}", parameters
        # SQLite gives bare columns from the row of max(): the last written of the latest writer.
        return (
            f"{fields}, max(CASE p.track {' '.join(order)} END + p.rowid) {where} GROUP BY p.step",
            parameters,
        )

    def _summary(self, run: str, tag: str, phase: Phase, points: int, lives: Lives) -> TagSummary:
        query = self._query(tag, run, None, Standing.FRESH, lives)
        row: tuple[Any, ...] = (0, None, None, 0, None, None, None)
        end: tuple[Any, ...] = (None, None)
        if query is not None:
            sql, parameters = query
            row = self._db.execute(f"SELECT {_AGGREGATES} FROM ({sql})", parameters).fetchone()
            ends = self._db.execute(f"{sql} ORDER BY 1 DESC LIMIT 1", parameters).fetchall()
            end = (math.nan if ends[0][1] is None else ends[0][1], ends[0][2]) if ends else end
        plan, _ = self._plan(tag, run, None, lives)
        return TagSummary(
            tag=tag,
            run=run,
            phase=phase,
            points=points,
            fresh_points=row[0],
            first_step=row[1],
            last_step=row[2],
            last_value=end[0],
            nonfinite=row[3],
            first_nonfinite_step=row[4],
            min_finite=row[5],
            max_finite=row[6],
            last_wall_time=end[1],
            writers=plan.writers,
            kind=plan.kind,
        )


def _best(summaries: list[TagSummary]) -> list[TagSummary]:
    """Printed series count only where no other source holds the metric under any of its names."""
    better = {
        meaning(one.run, one.tag): (one.run, one.tag)
        for one in summaries if one.kind != PRINTED and one.fresh_points
    }
    return [_set_aside(one, better) if one.kind == PRINTED and one.fresh_points else one for one in summaries]


def _set_aside(one: TagSummary, better: Mapping[frozenset[str], tuple[str, str]]) -> TagSummary:
    repeats = better.get(meaning(one.run, one.tag))
    if repeats is None:
        return one
    return replace(one, repeats=repeats, fresh_points=0, first_step=None, last_step=None, last_value=None, nonfinite=0,
                   first_nonfinite_step=None, min_finite=None, max_finite=None, last_wall_time=None)


def _is_sorted(plan: Plan, tracks: Tracks) -> bool:
    """Whether the segments hold each step once, so that nothing must be grouped."""
    for index, segment in enumerate(plan.segments):
        _, ordered, _ = tracks[segment.source]
        later = [tracks[other.source][2] for other in plan.segments[index + 1 :]]
        if not ordered or (later and (segment.cut is None or segment.cut > min(later))):
            return False
    return True
