"""Whether the program's own parser received an override: that it did is shown, that it used it is not.

What counts is what the processes that trained parsed; where they parsed nothing of it, what those that started them
did, and then only where it fits: a launcher may have an option of the same name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from harness.judge.derived import is_derived
from harness.probe.parsed import asked_names
from harness.record.run_record import RunRecord

LAUNCHERS = ("torch.", "torchrun", "accelerate", "deepspeed", "ray", "horovod")
"""Beginnings of the programs whose own options are not the trainer's."""
IN_A_PROCESS = (None, True, False)
"""What counts first: a second parser may have kept a value that the program replaced where it uses it."""
AMONG_PROCESSES = (True, None, False)
"""Likewise: a rank of its own may add something to a value, as to a seed."""
Same = Callable[[str, Any], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """What a parser made of one override."""

    value: Any
    """As it was returned; after that, as it stood at the first optimizer step where it is another."""
    source: str
    """For example `argparse in train.py`."""
    holds: bool | None
    """Whether it is the value asked for; None where the program put another in its place."""


def received(record: RunRecord, item: Mapping[str, Any], same: Same) -> Received | None:
    """What the program's parser made of an override as the journal holds it; None where nothing tells.

    `same` tells whether a value as typed and one as recorded are one.
    """
    asked, names = str(item.get("value")), asked_names(str(item.get("place") or ""), str(item.get("key")))
    own, others = _processes(record, names)
    ranks = _ranks(record)
    def told(process: dict[str, Any], order: tuple[bool | None, ...]) -> Received | None:
        found = [seen for _, parse in _parses([process], names)
                 if (seen := _judge(process, parse, asked, same, ranks)) is not None and seen.holds in order]
        return min(found, key=lambda seen: order.index(seen.holds), default=None)

    of_own = [seen for process in own if (seen := told(process, IN_A_PROCESS)) is not None]
    of_others = [seen for process in others if (seen := told(process, (True,))) is not None]
    return min((*of_own, *of_others), key=lambda seen: AMONG_PROCESSES.index(seen.holds), default=None)


def _judge(
    process: Mapping[str, Any], parse: Mapping[str, Any], asked: str, same: Same, ranks: set[int]
) -> Received | None:
    """What one parser says: a contradiction only where it stored the very word that was asked for as another value."""
    source = f"{parse['parser']} in {process.get('program') or 'the program'}"
    answer, later = parse.get("value") or {}, parse.get("at_step") or {}
    value = answer.get("value", answer.get("object"))
    if str(parse["name"]).startswith("file:"):
        return Received(value=value, source=f"{source}, as the file that holds it", holds=True)
    fits = same(asked, value) if "value" in answer else False
    if "value" in later and (fits or not parse.get("given")) and same(asked, later["value"]):
        return Received(value=later["value"], source=f"{source}, at the first step", holds=True)
    if fits or _was_converted(parse, asked, same):
        if fits and "value" in later and later["value"] != value:
            if not is_derived(str(parse.get("dest") or parse["name"]), value, later["value"], ranks):
                return Received(value=later["value"], source=f"{source}, at the first step", holds=None)
            source = f"{source}, made into {later['value']} by the first step"
        return Received(value=value, source=source, holds=True)
    if parse.get("plain") and "value" in answer and parse.get("raw") is not None and same(asked, parse["raw"]):
        return Received(value=value, source=source, holds=False)
    return None


def _was_converted(parse: Mapping[str, Any], asked: str, same: Same) -> bool:
    """Whether the word that was asked for reached code of the program's, which makes of it what it will."""
    if not parse.get("given") or parse.get("plain"):
        return False
    raw = parse.get("raw")
    return same(asked, raw) if raw is not None else "object" in (parse.get("value") or {})


def _processes(record: RunRecord, names: tuple[str, ...]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Of the processes that parsed one of these: (those that trained, those that may have handed it on)."""
    told = [item for item in record.fact("parsed", "processes", []) or [] if any(_parses([item], names))]
    trained = [item for item in _probed(record) if int(item.get("steps") or 0) > 0]
    ids = {(item.get("host"), item.get("pid")) for item in trained}
    parents = {(item.get("host"), item.get("ppid")) for item in trained}
    own = [item for item in told if (item.get("host"), item.get("pid")) in ids]
    if own:
        return own, []
    near = [item for item in told if not parents or (item.get("host"), item.get("pid")) in parents]
    return [], [item for item in near if not str(item.get("program")).startswith(LAUNCHERS)]


def _ranks(record: RunRecord) -> set[int]:
    sizes = {item.get(key) for item in _probed(record) for key in ("group_size", "world_size")}
    return {size for size in sizes if isinstance(size, int) and size > 1}


def _probed(record: RunRecord) -> list[dict[str, Any]]:
    return [item for item in (record.fact("probe", "facts", {}) or {}).get("processes") or [] if isinstance(item, dict)]


def _parses(
    processes: list[dict[str, Any]], names: tuple[str, ...]
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for process in processes:
        yield from ((process, parse) for parse in process.get("parses") or [] if parse.get("name") in names)
