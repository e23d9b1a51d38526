"""Points written into the tables of metrics.db: many in a statement, with the counts of their tracks."""

from __future__ import annotations

import operator
import sqlite3
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from harness.record.events import EventColumns

_EVENTS_PER_INSERT = 80
_MAX_WIDTH = 200
"""Wider rows would need more parameters than SQLite surely takes."""
_BEFORE_ALL = -(1 << 63) - 1


@dataclass(slots=True)
class _Noted:
    """What a batch adds to a track."""

    points: int
    first_step: int
    is_ordered: bool

    @staticmethod
    def add(noted: dict[int, _Noted], track: int, points: int, first_step: int, *, is_ordered: bool) -> None:
        one = noted.get(track)
        if one is None:
            noted[track] = _Noted(points, first_step, is_ordered)
            return
        one.points += points
        one.first_step = min(one.first_step, first_step)
        one.is_ordered = one.is_ordered and is_ordered


class PointWriter:
    """The points of one store. `known` has to be told of a track before its first point."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._last: list[int] = []

    def known(self, track: int) -> None:
        """A new row of the table `track`."""
        self._last.extend([_BEFORE_ALL] * (track + 1 - len(self._last)))

    def write(self, batch: int | None, tracks: list[int], columns: EventColumns, *, fresh: bool) -> None:
        """Event i of `columns` is a point of `tracks[i]`; all within the caller's transaction."""
        start, noted = 0, dict[int, _Noted]()
        for width, count in columns.runs or ((1, len(tracks)),):
            end = start + width * count
            part, steps = tracks[start:end], columns.step[start:end]
            values, walls = columns.value[start:end], columns.wall_time[start:end]
            if 1 < width <= _MAX_WIDTH and len(set(part[:width])) == width:
                self._insert_rows(batch, width, part, steps, values, walls)
                self._note_rows(width, part, steps, noted)
            else:
                self._insert(batch, part, steps, values, walls)
                self._note(part, steps, noted)
            start = end
        self._add_to_tracks(noted, fresh=fresh)

    def _insert(
        self, batch: int | None, tracks: list[int], steps: list[int], values: list[float], walls: list[float]
    ) -> None:
        """Several rows per statement take half the time of executemany, a shared batch and wall time another third."""
        is_timed = any(walls)
        size = 4 if is_timed else 3
        flat: list[Any] = [None] * (size * len(tracks))
        flat[0::size], flat[1::size], flat[2::size] = tracks, steps, values
        if is_timed:
            flat[3::size] = walls
        length = size * _EVENTS_PER_INSERT
        for start in range(0, len(flat), length):
            part = flat[start : start + length]
            self._db.execute(_insert_many(len(part) // size, is_timed=is_timed), (batch, *part))

    def _insert_rows(
        self, batch: int | None, width: int, tracks: list[int], steps: list[int], values: list[float],
        walls: list[float],
    ) -> None:
        """Values that share a track, a batch, a step or a wall time share its parameter: half the time again."""
        is_timed, shared = any(walls), (batch, *tracks[:width])
        first = 2 if is_timed else 1
        size = width + first
        flat: list[Any] = [None] * (len(steps) // width * size)
        flat[0::size] = steps[::width]
        if is_timed:
            flat[1::size] = walls[::width]
        for place in range(width):
            flat[place + first :: size] = values[place::width]
        length = max(1, _EVENTS_PER_INSERT // width) * size
        for start in range(0, len(flat), length):
            part = flat[start : start + length]
            self._db.execute(_insert_of(width, len(part) // size, is_timed=is_timed), (*shared, *part))

    def _note(self, tracks: list[int], steps: list[int], noted: dict[int, _Noted]) -> None:
        """Keep each track's counts, first step and whether its steps only ever rose."""
        first = dict(zip(reversed(tracks), reversed(steps), strict=True))
        last, disordered = self._last, set[int]()
        for track, step in zip(tracks, steps, strict=True):
            if step > last[track]:
                last[track] = step
            else:
                disordered.add(track)
                if step < first[track]:
                    first[track] = step
        for track, count in Counter(tracks).items():
            _Noted.add(noted, track, count, first[track], is_ordered=track not in disordered)

    def _note_rows(self, width: int, tracks: list[int], steps: list[int], noted: dict[int, _Noted]) -> None:
        """`_note` for rows of the same tracks, at a look at each row's step."""
        own, last, held = steps[::width], self._last, tracks[:width]
        if not all(map(operator.lt, own, own[1:])):
            self._note(tracks, steps, noted)
            return
        for track in held:
            _Noted.add(noted, track, len(own), own[0], is_ordered=own[0] > last[track])
            last[track] = max(last[track], own[-1])

    def _add_to_tracks(self, noted: dict[int, _Noted], *, fresh: bool) -> None:
        self._db.executemany(
            "UPDATE track SET points = points + ?1, fresh_points = fresh_points + ?2,"
            " ordered = ordered AND ?3, first_step = CASE WHEN ?2 > 0"
            " THEN min(coalesce(first_step, ?4), ?4) ELSE first_step END WHERE id = ?5",
            [(one.points, one.points if fresh else 0, one.is_ordered, one.first_step, track)
             for track, one in noted.items()],
        )


@lru_cache(maxsize=2 * _EVENTS_PER_INSERT)
def _insert_many(points: int, *, is_timed: bool) -> str:
    """Parameters: the batch, then each point's track, step, value and, where it has one, wall time."""
    size, places = 4 if is_timed else 3, []
    for first in range(2, 2 + points * size, size):
        places.append(f"(?{first}, ?1, ?{first + 1}, ?{first + 2}, {f'?{first + 3}' if is_timed else '0.0'})")
    return f"INSERT INTO point VALUES {', '.join(places)}"


@lru_cache(maxsize=256)
def _insert_of(width: int, rows: int, *, is_timed: bool) -> str:
    """Parameters: the batch, the tracks of a row, then each row's step, wall time, where it has one, and values."""
    places, size = [], width + 1 + is_timed
    for first in range(width + 2, width + 2 + rows * size, size):
        wall, value = (f"?{first + 1}", first + 2) if is_timed else ("0.0", first + 1)
        places += [f"(?{item + 2}, ?1, ?{first}, ?{value + item}, {wall})" for item in range(width)]
    return f"INSERT INTO point VALUES {', '.join(places)}"
