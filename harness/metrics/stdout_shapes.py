"""Rows of one shape: a program prints the same keys again and again, so that only their numbers need parsing.

What a number of a line means is not guessed: the line is read again with that number changed, and what changes in the
row tells it. A line of the same shape, which differs in such numbers alone, then needs one regular expression, and
lines that follow each other need one search for all of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from harness.metrics.stdout_lines import slack_of
from harness.metrics.stdout_said import MAX_EPOCH, Row

MAX_SHAPES = 8
MAX_LEARNED = 200
"""Lines that are looked at for a shape, and as many again for each LINES_PER_SHAPE lines that had a known one: a text
that differs from row to row has none."""
LINES_PER_SHAPE = 1000
MAX_LINE = 4000
MAX_HEAD = 500
"""Bytes before a dict."""
MAX_NUMBERS = 64
_TOKEN = re.compile(
    rb"(?<![\w.+-])(?:[-+]?(?:[0-9]{1,19}(?:\.[0-9]{0,30})?|\.[0-9]{1,30})(?:[eE][-+]?[0-9]{1,4})?"
    rb"|[-+]?(?:nan|inf|NaN|Infinity))(?![\w.])|(?<=[A-Za-z])[0-9]{1,5}(?=\])"
)
"""The last is that of `[rank3]`."""
_PARTED = re.compile(rb"(?<!:[0-9][0-9]:[0-9][0-9])(?<=[0-9]),[0-9]")
"""Within a number, but for the milliseconds of a time: what it means depends on how many digits it has."""
_DIGITS = re.compile(rb"[0-9]{1,15}")
_NUMBER = rb"[-+0-9.eEnaif]{1,40}"
_JSON_NUMBER = rb"-?(?:0|[1-9][0-9]{0,18})(?:\.[0-9]{1,30})?(?:[eE][-+]?[0-9]{1,4})?|NaN|-?Infinity"
_JSON_COUNT = rb"0|[1-9][0-9]{0,14}"
_TIME = rb"[1-9][0-9]{9}(?:\.[0-9]{1,9})?"
_BYTES_OF = {
    "value": _NUMBER, "epoch": _NUMBER, "step": rb"[0-9]{1,15}", "step_total": rb"[0-9]{1,15}",
    "num_epochs": rb"[0-9]{1,9}", "wall_time": _TIME, "": rb"[0-9]{1,15}",
}
"""By role; no role is a number that means nothing."""
_BYTES_OF_JSON = {
    "value": _JSON_NUMBER, "epoch": _JSON_NUMBER, "step": _JSON_COUNT, "wall_time": _TIME, "": _JSON_COUNT,
}
_SLACKS = tuple(0.5 * 10.0**-decimals for decimals in range(20))
"""By the number of decimals."""
Read = Callable[[bytes], "list[Row] | None"]
"""The rows of a line, None where it says something else too."""


class _Role(NamedTuple):
    name: str
    tag: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Lines that differ in their numbers alone."""

    line: re.Pattern[bytes]
    """Its groups are the numbers that mean something."""
    sign: bytes
    """Stands in each of them, mostly before a value."""
    tags: tuple[str, ...]
    places: tuple[int, ...]
    """Groups of the values."""
    step: int | None
    epoch: int | None
    wall_time: int | None
    step_total: int | None
    num_epochs: int | None
    is_quoted: bool
    """Whether the epoch stands in quotes."""
    is_json: bool
    is_text: bool
    is_plain: bool
    """Whether its numbers are its values, and nothing else."""

    def row(self, texts: tuple[bytes, ...]) -> Row | None:
        """The row of a line; None where a number is none."""
        try:
            numbers = list(map(float, texts))
        except ValueError:
            return None
        if self.is_plain:
            values = dict(zip(self.tags, numbers, strict=True))
        else:
            values = {tag: numbers[place] for tag, place in zip(self.tags, self.places, strict=True)}
        if self.epoch is None:
            epoch, slack = None, 0.0
        else:
            epoch = numbers[self.epoch]
            if not 0 <= epoch < MAX_EPOCH:
                return None
            slack = self.slack(texts[self.epoch]) if epoch and not self.is_text else 0.0
        if self.is_plain:
            return Row(values=values, epoch=epoch, epoch_slack=slack)
        return Row(values=values, step=_count(texts, self.step), step_total=_count(texts, self.step_total), epoch=epoch,
                   epoch_slack=slack, num_epochs=_count(texts, self.num_epochs),
                   wall_time=0.0 if self.wall_time is None else numbers[self.wall_time], is_text=self.is_text)

    def slack(self, text: bytes) -> float:
        """As slack_of tells it, for an epoch above 0."""
        point = text.find(b".")
        decimals = len(text) - 1 - point
        plain = not self.is_quoted and point >= 0 and 2 <= decimals < len(_SLACKS)
        if plain and not self.is_json and text.replace(b".", b"", 1).isdigit():
            return _SLACKS[decimals]
        shown = str(json.loads(text)) if self.is_json and not self.is_quoted else text.decode()
        return slack_of(shown, quoted=self.is_quoted)


def _count(texts: tuple[bytes, ...], place: int | None) -> int | None:
    return None if place is None else int(texts[place])


class RowShapes:
    """Learns the shapes of rows that the parser has read; a row of another shape is left to it."""

    def __init__(self) -> None:
        self._shapes: list[Shape] = []
        self._left = MAX_LEARNED
        self._met = 0

    def read(self, raw: bytes) -> Row | None:
        """The row, where it has a known shape."""
        for index, shape in enumerate(self._shapes):
            match = shape.line.fullmatch(raw)
            if match is None:
                continue
            if index:
                self._shapes.insert(0, self._shapes.pop(index))
            self.meet(1)
            return shape.row(match.groups())
        return None

    def meet(self, lines: int) -> None:
        """So many lines had a known shape."""
        self._met += lines
        while self._met >= LINES_PER_SHAPE:
            self._met -= LINES_PER_SHAPE
            self._left = min(self._left + 1, MAX_LEARNED)

    @property
    def without_step(self) -> list[Shape]:
        """Those of dicts with an epoch and no step."""
        return [shape for shape in self._shapes
                if shape.epoch is not None and shape.step is None and not shape.is_text]

    @property
    def alike(self) -> list[Shape]:
        """Those whose rows may be read together: what a row of them says does not hang on the one before."""
        return [shape for shape in self._shapes
                if not shape.is_text or (shape.step is not None and shape.step_total is None)]

    @property
    def are_known(self) -> bool:
        """Whether there is any."""
        return bool(self._shapes)

    def learn(self, raw: bytes, read: Read) -> None:
        """Remember the shape of a line that was read in full; `read` is asked what changes with a number."""
        if self._left <= 0 or len(raw) > MAX_LINE or raw.find(b"{") > MAX_HEAD:
            return
        self._left -= 1
        shape = _shape_of(raw, read)
        if shape is not None:
            self._shapes = [shape, *self._shapes][:MAX_SHAPES]


def _shape_of(raw: bytes, read: Read) -> Shape | None:
    rows = read(raw)
    tokens = list(_TOKEN.finditer(raw))
    if rows is None or len(rows) != 1 or not 2 <= len(tokens) <= MAX_NUMBERS:
        return None
    base, is_json = rows[0], _is_json(raw)
    if base.is_summary or not base.values or (b'"' in raw and not is_json) or re.match(rb"\s*[0-9]+/", raw):
        return None
    if _PARTED.search(raw if base.is_text else raw[: raw.find(b"{")]):
        return None
    roles = [_role_of(raw, token, base, read, is_json=is_json) for token in tokens]
    held = [role for role in roles if role is not None and role.name]
    wanted = {_Role("value", tag) for tag in base.values if tag != "epoch"}
    wanted |= {_Role(name) for name, told in _moment(base).items() if told is not None}
    if len(held) != len(set(held)) or set(held) != wanted:
        return None
    return _compiled(raw, tokens, roles, base, is_json=is_json)


def _is_json(raw: bytes) -> bool:
    try:
        return isinstance(json.loads(raw[raw.find(b"{") : raw.rfind(b"}") + 1]), dict)
    except (ValueError, RecursionError):
        return False


def _moment(row: Row) -> dict[str, float | None]:
    epoch = row.values.get("epoch", row.epoch)
    return {"step": row.step, "epoch": epoch, "step_total": row.step_total, "num_epochs": row.num_epochs,
            "wall_time": row.wall_time or None}


def _role_of(raw: bytes, token: re.Match[bytes], base: Row, read: Read, *, is_json: bool) -> _Role | None:
    """What a number means; None where it belongs to the words."""
    other = _another(token[0])
    rows = read(raw[: token.start()] + other + raw[token.end() :])
    if rows is None or len(rows) != 1 or list(rows[0].values) != list(base.values) or rows[0].is_text != base.is_text:
        return None
    row = rows[0]
    changed = {tag for tag, value in row.values.items() if repr(value) != repr(base.values[tag])} - {"epoch"}
    before, after = _moment(base), _moment(row)
    moved = {name for name in before if repr(before[name]) != repr(after[name])}
    if len(changed) + len(moved) > 1:
        return None
    is_count = _DIGITS.fullmatch(token[0]) is not None
    if changed:
        tag = changed.pop()
        return _Role("value", tag) if row.values[tag] == float(other) else None
    if not moved:
        return _Role("") if is_count else None
    name = moved.pop()
    is_fit = after[name] == float(other) and re.fullmatch(
        (_BYTES_OF_JSON if is_json else _BYTES_OF).get(name, rb"(?!)"), token[0])
    return _Role(name) if is_fit and (name != "epoch" or not base.is_text or is_count) else None


def _another(text: bytes) -> bytes:
    """Another number of the same form."""
    first = re.search(rb"[0-9]", text)
    if first is None:
        return b"7.25"
    digit = b"8" if first[0] == b"9" else str(int(first[0]) + 1).encode()
    return text[: first.start()] + digit + text[first.end() :]


def _compiled(
    raw: bytes, tokens: list[re.Match[bytes]], roles: list[_Role | None], base: Row, *, is_json: bool
) -> Shape | None:
    strict, words, names, position = [], [], [], 0
    places: dict[_Role, int] = {}
    quoted = False
    for token, role in zip(tokens, roles, strict=True):
        if role is None:
            continue
        word = raw[position : token.start()]
        bytes_of = _BYTES_OF_JSON if is_json else _BYTES_OF
        pattern = bytes_of[role.name]
        if role.name == "epoch" and base.is_text:
            pattern = rb"[0-9]{1,9}"
        if role.name:
            places[role] = len(places)
        if role.name == "epoch":
            quoted = raw[token.end() : token.end() + 1] in (b"'", b'"')
        strict.append(re.escape(word) + (b"(" if role.name else b"(?:") + pattern + b")")
        words.append(word)
        names += [word] if role.name == "value" else []
        position = token.end()
    words.append(raw[position:])
    end = re.escape(words[-1])
    sign = max([name for name in names if len(name) >= 3] or words, key=len)
    if len(sign) < 3:
        return None
    one = b"".join(strict) + end
    order = tuple(places[_Role("epoch") if tag == "epoch" else _Role("value", tag)] for tag in base.values)
    return Shape(
        line=re.compile(one), sign=sign,
        tags=tuple(base.values),
        places=order,
        step=places.get(_Role("step")), epoch=places.get(_Role("epoch")), wall_time=places.get(_Role("wall_time")),
        step_total=places.get(_Role("step_total")), num_epochs=places.get(_Role("num_epochs")), is_quoted=quoted,
        is_json=is_json, is_text=base.is_text,
        is_plain=not base.is_text and order == tuple(range(len(places))),
    )
