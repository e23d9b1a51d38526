"""Reference bands: what `--expect` says, as text or as a TOML file, read by a parser of our own.

    train/loss@100 <= 2.4                the value at step 100
    last(train/loss) <= 2.4              the value at the last step
    best(eval_loss) <= 2.0               the best evaluation, by which way the metric improves
    median(tokens_per_s[50:]) >= 1200    median, mean, min or max over steps START <= step < STOP, either left out
    peak_memory <= 16GiB                 also peak_gpu_memory

A tag with other signs than letters, digits and `_ / . : -` stands in quotes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from harness.errors import ConfigError
from harness.watch.early_stopping import direction_of

WINDOW_FUNCTIONS = ("median", "mean", "min", "max")
POINT_FUNCTIONS = ("last", "best")
METERS = ("peak_memory", "peak_gpu_memory")
WINDOW_POINTS = 3
"""Fewer points than these are no window, unless a band says how many it needs."""
UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30,
         "TIB": 2**40}
MAX_LENGTH = 500
_TOKENS = re.compile(
    r"\s*(?:(?P<quoted>'[^']*'|\"[^\"]*\")|(?P<operator><=|>=|<|>)|(?P<sign>[@()\[\]])|(?P<word>[^\s@()\[\]<>='\"]+))")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Which number of a run is meant."""

    tag: str
    """The series, or a meter."""
    function: str
    """at, last, best, median, mean, min, max or meter."""
    step: int | None = None
    """For `at`."""
    start: int | None = None
    stop: int | None = None
    """Steps of a window: start <= step < stop."""

    @property
    def text(self) -> str:
        """As it is written."""
        tag = self.tag if re.fullmatch(r"[^\s@()\[\]<>='\"]+", self.tag) else f'"{self.tag}"'
        if self.function == "meter":
            return tag
        if self.function == "at":
            return f"{tag}@{self.step}"
        window = "" if self.start is None and self.stop is None else f"[{_or_empty(self.start)}:{_or_empty(self.stop)}]"
        return f"{self.function}({tag}{window})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """What a number is expected to be."""

    target: Target
    lower: float | None = None
    upper: float | None = None
    strict: bool = False
    """Whether the limit itself is outside."""
    value: float | None = None
    """Of the reference runs."""
    unit: str = ""
    points: int | None = None
    """Points that a window must have."""
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def limits(self) -> str:
        """As a person reads it."""
        signs = (">", "<") if self.strict else (">=", "<=")
        told = [f"{sign} {limit:.15g}" for sign, limit in zip(signs, (self.lower, self.upper), strict=True)
                if limit is not None]
        return " and ".join(told) + (f" {self.unit}" if self.unit else "")

    def holds(self, number: float) -> bool:
        """Whether a finite number is inside."""
        if self.strict:
            return (self.lower is None or number > self.lower) and (self.upper is None or number < self.upper)
        return (self.lower is None or number >= self.lower) and (self.upper is None or number <= self.upper)

    def to_json(self) -> dict[str, Any]:
        """For the run spec; `from_json` is its inverse."""
        return {"expect": self.target.text, "lower": self.lower, "upper": self.upper, "strict": self.strict,
                "value": self.value, "unit": self.unit, "points": self.points, "provenance": dict(self.provenance)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Band:
        """ConfigError for a target that is none."""
        rest = {key: data[key] for key in ("lower", "upper", "strict", "value", "unit", "points", "provenance")
                if key in data}
        return cls(target=parse_target(str(data["expect"])), **rest)


class _Reader:
    """The words of an expression, each with its column."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.words: list[tuple[str, str, int]] = []
        if len(text) > MAX_LENGTH:
            raise ConfigError(f"--expect {text[:40]!r}...: longer than {MAX_LENGTH} characters")
        position = 0
        while text[position:].strip():
            found = _TOKENS.match(text, position)
            if found is None:
                rest = text[position:]
                self.fail("not a sign of an expectation", position + len(rest) - len(rest.lstrip()))
            kind = str(found.lastgroup)
            self.words.append((kind, found.group(kind), found.start(kind)))
            position = found.end()

    def fail(self, why: str, position: int | None = None) -> NoReturn:
        """ConfigError at a column, from 1."""
        column = (len(self.text) if position is None else position) + 1
        raise ConfigError(f"--expect {self.text!r}, column {column}: {why}")

    @property
    def at(self) -> int | None:
        """Where the next word begins."""
        return self.words[0][2] if self.words else None

    def next_is(self, *texts: str) -> bool:
        """Whether the next word is one of these signs."""
        return bool(self.words) and self.words[0][0] != "quoted" and self.words[0][1] in texts

    def take(self, what: str, *kinds: str) -> str:
        """The next word, which must be of one of these kinds."""
        if not self.words or self.words[0][0] not in kinds:
            self.fail(f"{what} is missing here", self.at)
        return self.words.pop(0)[1]

    def expect(self, sign: str) -> None:
        """The next word must be this sign."""
        if not self.next_is(sign):
            self.fail(f"{sign!r} is missing here", self.at)
        self.words.pop(0)


def parse_band(text: str) -> Band:
    """An expression TARGET OPERATOR NUMBER. ConfigError names the column."""
    reader = _Reader(text)
    target = _target(reader)
    if not reader.next_is("<=", ">=", "<", ">"):
        reader.fail("a comparison is missing here: <=, >=, < or >", reader.at)
    operator = reader.take("a comparison", "operator")
    where = reader.at
    number = _number(reader, where)
    if reader.words:
        reader.fail("the expectation has ended before this", reader.at)
    side = {"upper" if operator.startswith("<") else "lower": number}
    return Band(target=target, strict="=" not in operator, unit="bytes" if target.function == "meter" else "",
                **side)  # type: ignore[arg-type]


def parse_target(text: str) -> Target:
    """The part before the comparison. ConfigError names the column."""
    reader = _Reader(text)
    target = _target(reader)
    if reader.words:
        reader.fail("what is measured has ended before this", reader.at)
    return target


def _target(reader: _Reader) -> Target:
    begin = reader.at
    quoted = bool(reader.words) and reader.words[0][0] == "quoted"
    word = reader.take("what is measured", "word", "quoted")
    if reader.next_is("(") and not quoted:
        if word not in (*WINDOW_FUNCTIONS, *POINT_FUNCTIONS):
            reader.fail(f"{word} is not one of {', '.join((*WINDOW_FUNCTIONS, *POINT_FUNCTIONS))}", begin)
        return _call(reader, word)
    if word in METERS and not quoted and not reader.next_is("@", "["):
        return Target(tag=word, function="meter")
    tag = _unquoted(reader, word, begin)
    if reader.next_is("["):
        reader.fail(f"a window needs a function: median({tag}[...])", reader.at)
    if not reader.next_is("@"):
        reader.fail(f"which point is meant? {tag}@STEP, last({tag}) or best({tag})", reader.at)
    reader.expect("@")
    where = reader.at
    return Target(tag=tag, function="at", step=_step(reader, reader.take("a step", "word"), where))


def _call(reader: _Reader, function: str) -> Target:
    reader.expect("(")
    begin = reader.at
    tag = _unquoted(reader, reader.take("a metric", "word", "quoted"), begin)
    start, stop = (None, None)
    if reader.next_is("["):
        if function in POINT_FUNCTIONS:
            reader.fail(f"{function}() has no window; min() and max() have one", reader.at)
        start, stop = _window(reader)
    if reader.next_is("@"):
        reader.fail(f"one step needs no function: {tag}@STEP", reader.at)
    reader.expect(")")
    if function == "best" and direction_of(tag) is None:
        reader.fail(f"which way {tag} improves is not told by its name: use min({tag}) or max({tag})", begin)
    return Target(tag=tag, function=function, start=start, stop=stop)


def _window(reader: _Reader) -> tuple[int | None, int | None]:
    reader.expect("[")
    where = reader.at
    text = reader.take("START:STOP", "word")
    first, colon, second = text.partition(":")
    if not colon or ":" in second:
        reader.fail("a window is [START:STOP], with steps, either left out", where)
    start, stop = (_step(reader, part, where) if part else None for part in (first, second))
    if start is not None and stop is not None and stop <= start:
        reader.fail(f"no step is from {start} on and before {stop}", where)
    reader.expect("]")
    return start, stop


def _step(reader: _Reader, text: str, where: int | None) -> int:
    if not re.fullmatch(r"[0-9]{1,15}", text):
        reader.fail(f"{text} is no step", where)
    return int(text)


def _number(reader: _Reader, where: int | None) -> float:
    text = reader.take("a number", "word")
    found = re.fullmatch(r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)([A-Za-z]*)", text)
    if found is None:
        reader.fail(f"{text} is no finite number", where)
    unit = found.group(2)
    if not unit and reader.words and reader.words[0][0] == "word":
        where = reader.at
        unit = reader.take("a unit", "word")
    if unit and unit.upper() not in UNITS:
        reader.fail(f"{unit} is no unit; known are {', '.join(UNITS)}", where)
    number = float(found.group(1)) * (UNITS[unit.upper()] if unit else 1)
    if not math.isfinite(number):
        reader.fail(f"{text} is no finite number", where)
    return number


def _unquoted(reader: _Reader, word: str, begin: int | None) -> str:
    tag = word[1:-1] if word[:1] in "'\"" else word
    if not tag.strip():
        reader.fail("a metric has no name here", begin)
    return tag


def _or_empty(number: int | None) -> str:
    return "" if number is None else str(number)
