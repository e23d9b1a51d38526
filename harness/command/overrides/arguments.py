"""One flag of a list of words set to a value, in its own spelling."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness.command.overrides.document import EditError
from harness.command.overrides.model import (
    APPEND,
    LIST,
    OFF_SWITCH,
    ON_OFF,
    OPTIONAL_BOOL,
    SWITCH,
    TEXT_BOOL,
    Flag,
)
from harness.command.overrides.synonyms import normal
from harness.command.overrides.values import Typed, as_bool, as_int_text, read_value

Words = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Words after a change, and how it reads."""

    words: Words
    written: str
    """The flag as it stands there now: `--lr=3e-5`."""
    before: str = ""
    """What it was; "" where it was not given."""


def is_flag(word: str) -> bool:
    """`--x`, `-x`; a negative number is a value."""
    return word.startswith("-") and word not in ("-", "--") and not (word[1:2].isdigit() or word[1:2] == ".")


def options_end(words: Words) -> int:
    """Index of the `--` that ends the options, else the number of words."""
    return words.index("--") if "--" in words else len(words)


def positions(words: Words, flag: Flag, others: Sequence[Flag] = (), *, abbreviates: bool = False) -> list[int]:
    """Indices of the words that give this flag, by any of its spellings or a unique abbreviation."""
    names = _spellings(flag)
    found = []
    for index, word in enumerate(words[: options_end(words)]):
        if not is_flag(word):
            continue
        name = word.partition("=")[0]
        if _same(name, names) or (abbreviates and _abbreviates(name, flag, others)):
            found.append(index)
    return found


def _spellings(flag: Flag) -> frozenset[str]:
    names = set(flag.names)
    long = [name for name in flag.names if name.startswith("--")]
    if flag.kind in (ON_OFF, OPTIONAL_BOOL):
        names |= {f"--no-{name[2:]}" for name in long} | {f"--no_{name[2:]}" for name in long}
        names |= {flag.off_name} - {""}
    return frozenset(names)


def _same(name: str, names: Iterable[str]) -> bool:
    return name in names


def _abbreviates(name: str, flag: Flag, others: Sequence[Flag]) -> bool:
    if not name.startswith("--") or len(name) < 3:
        return False
    known = {spelling for other in (*others, flag) for spelling in other.names}
    fitting = {spelling for spelling in known if spelling.startswith(name)}
    return name not in known and len(fitting) == 1 and bool(fitting & set(flag.names))


def set_flag(
    words: Words,
    flag: Flag,
    value: Typed,
    *,
    at: int,
    others: Sequence[Flag] = (),
    abbreviates: bool = False,
    ignore_before: int = 0,
) -> Change:
    """The words with `flag` set; a new one is put at index `at`. Raises EditError for a value it cannot take.

    Occurrences before `ignore_before` do not count: something after them overrules them.
    """
    found = [i for i in positions(words, flag, others, abbreviates=abbreviates) if i >= ignore_before]
    if flag.kind == APPEND:
        raise EditError("collects a value each time it is given; write it in the command")
    if flag.kind in (SWITCH, OFF_SWITCH, ON_OFF):
        return _set_switch(words, flag, value, found, at)
    texts = value_words(flag, value)
    if not found:
        new = _flag_words(flag.names[0], texts)
        return Change(words=(*words[:at], *new, *words[at:]), written=shlex.join(new))
    index = found[-1]
    name, equals, _ = words[index].partition("=")
    stop = index + 1 if equals else _values_stop(words, index, flag)
    before = shlex.join(words[index:stop])
    if flag.kind == OPTIONAL_BOOL:
        name = flag.names[0] if normal(name).startswith("no_") and name not in flag.names else name
    if (equals and len(texts) == 1) or (name.startswith("--") and len(texts) == 1 and _needs_equals(texts[0])):
        new = (f"{name}={texts[0]}",)
    else:
        new = (name, *texts)
    if flag.kind == OPTIONAL_BOOL and stop == index + 1 and not equals and as_bool(value) and before == name:
        new = (name,)
    return Change(words=(*words[:index], *new, *words[stop:]), written=shlex.join(new), before=before)


def _values_stop(words: Words, index: int, flag: Flag) -> int:
    """The index after the values of the flag at `index`."""
    stop = index + 1
    most = len(words) if flag.kind == LIST else 1
    while stop < options_end(words) and stop - index - 1 < most and not is_flag(words[stop]):
        if flag.kind == OPTIONAL_BOOL and as_bool(read_value(words[stop])) is None:
            break
        stop += 1
    return stop


def _flag_words(name: str, texts: Words) -> Words:
    if len(texts) == 1 and _needs_equals(texts[0]) and name.startswith("--"):
        return (f"{name}={texts[0]}",)
    return (name, *texts)


def _needs_equals(text: str) -> bool:
    """argparse takes `-1e-4` and `-x` for flags where they stand alone."""
    return text.startswith("-") and not text[1:].replace(".", "", 1).isdigit()


def _set_switch(words: Words, flag: Flag, value: Typed, found: list[int], at: int) -> Change:
    wanted = as_bool(value)
    if wanted is None:
        raise EditError(f"is a switch; {value.text!r} is neither true nor false")
    name = flag.names[0]
    if flag.kind == ON_OFF:
        new: Words = (name,) if wanted else (flag.off_name or f"--no-{name.lstrip('-')}",)
    else:
        new = (name,) if wanted == (flag.kind == SWITCH) else ()
    before = " ".join(words[index] for index in found)
    if len(found) == 1 and new:
        old = words[found[0]]
        if flag.kind != ON_OFF or old == new[0] or (wanted and old in flag.names):
            return Change(words=words, written=old, before=old)
    kept = tuple(word for index, word in enumerate(words) if index not in found)
    place = found[-1] - len(found) + 1 if found else at
    written = shlex.join(new) or f"no {name}"
    return Change(words=(*kept[:place], *new, *kept[place:]), written=written, before=before)


def value_words(flag: Flag, value: Typed) -> Words:
    """The words of a value as this flag's parser reads them. Raises EditError for what it would refuse."""
    if flag.kind == LIST:
        between = r"[\s,]+" if flag.type in ("int", "float") else ","
        items = value.data if value.type == "list" else [part for part in re.split(between, value.text) if part]
        texts = tuple(_item(item) for item in items)
        return tuple(_checked(flag, read_value(text)) for text in texts)
    if flag.kind == TEXT_BOOL:
        wanted = as_bool(value)
        if wanted is None:
            raise EditError(f"is a switch; {value.text!r} is neither true nor false")
        # bool("False") is True: only the empty text is false.
        return ("True" if wanted else "",)
    if flag.kind == OPTIONAL_BOOL:
        wanted = as_bool(value)
        if wanted is None:
            raise EditError(f"is a switch; {value.text!r} is neither true nor false")
        return ("True" if wanted else "False",)
    return (_checked(flag, value),)


def _item(item: object) -> str:
    return str(item).lower() if isinstance(item, bool) else "null" if item is None else str(item)


def _checked(flag: Flag, value: Typed) -> str:
    text = str(value.data) if value.quoted else value.text
    if flag.type == "int":
        whole = as_int_text(value)
        if whole is None:
            raise EditError(f"takes a whole number; {text!r} is none")
        text = text if value.type == "int" else whole
    elif flag.type == "float" and value.type not in ("int", "float"):
        try:
            float(text)
        except ValueError:
            raise EditError(f"takes a number; {text!r} is none") from None
    if flag.choices and text not in flag.choices:
        same = [choice for choice in flag.choices if _equal(choice, text)]
        if not same:
            raise EditError(f"takes one of {', '.join(flag.choices[:12])}; {text!r} is none of them")
        text = same[0]
    return text


def _equal(first: str, second: str) -> bool:
    try:
        return float(first) == float(second)
    except ValueError:
        return False


def active_subcommand(words: Words, flags: Sequence[Flag]) -> list[int]:
    """Indices of the command words (`train`, `lora`) that the known options hang on."""
    known = {flag.subcommand[: depth + 1] for flag in flags for depth in range(len(flag.subcommand))}
    path: tuple[str, ...] = ()
    found: list[int] = []
    for index, word in enumerate(words[: options_end(words)]):
        if not is_flag(word) and (*path, word) in known:
            path = (*path, word)
            found.append(index)
    return found


def new_position(words: Words, flag: Flag, commands: Sequence[int]) -> int:
    """Where a new flag goes: before `--`, before the next command word, else at the end."""
    depth = len(flag.subcommand)
    return commands[depth] if depth < len(commands) else options_end(words)
