"""Which flag or config value a KEY means: exact names before parts of dotted ones, both before synonyms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from harness.command.overrides.arguments import Words, is_flag, options_end
from harness.command.overrides.document import EditError
from harness.command.overrides.model import SWITCH, VALUE, Flag
from harness.command.overrides.synonyms import normal, synonyms

OBSERVED = "the command"
"""Place of a flag that only the command itself tells."""
Match = Callable[[Flag, str], bool]


def by_name(flag: Flag, key: str) -> bool:
    """A spelling of the flag is the key."""
    return any(normal(name) == normal(key) for name in flag.names)


def by_dest(flag: Flag, key: str) -> bool:
    """The program's code calls it so."""
    return bool(flag.dest) and normal(flag.dest) == normal(key)


def by_leaf(flag: Flag, key: str) -> bool:
    """The last parts of a dotted flag are the key."""
    return any(normal(name).endswith("." + normal(key)) for name in flag.names)


def flag_for(key: str, flags: Sequence[Flag], *, other_names: bool) -> Flag | None:
    """The one flag that `key` means by its own name, or by a synonym of it; None where there is none.

    Raises EditError with the candidates where several fit.
    """
    names = synonyms(key) if other_names else (key,)
    for match in (by_name, by_dest, by_leaf):
        fitting = unique(flag for name in names for flag in flags if match(flag, name))
        if len(fitting) > 1:
            shown = ", ".join(dict.fromkeys(shown_flag(flag) for flag in fitting))
            raise EditError(f"can be {shown}; name one of them")
        if fitting:
            return fitting[0]
    return None


def shown_flag(flag: Flag) -> str:
    """A flag with the command words before it."""
    return " ".join((*flag.subcommand, flag.names[0]))


def unique(flags: Iterable[Flag]) -> list[Flag]:
    """One flag of each name and subcommand, the first one."""
    kept: dict[tuple[str, tuple[str, ...]], Flag] = {}
    for flag in flags:
        kept.setdefault((flag.names[0], flag.subcommand), flag)
    return list(kept.values())


def reachable(flags: Sequence[Flag], words: Words, commands: Sequence[int]) -> list[Flag]:
    """The flags whose command words the command gives; all where it gives none of a command's."""
    path = tuple(words[index] for index in commands)
    return [flag for flag in flags if flag.subcommand == path[: len(flag.subcommand)]]


def observed(words: Words, known: Sequence[Flag]) -> list[Flag]:
    """Flags that the command itself gives and of which nothing else is known."""
    names = {name for flag in known for name in (*flag.names, flag.off_name)}
    found = []
    end = options_end(words)
    for index, word in enumerate(words[:end]):
        name, equals, _ = word.partition("=")
        if not is_flag(word) or name in names or name.lstrip("-") == "":
            continue
        bare = not equals and (index + 1 >= end or is_flag(words[index + 1]))
        found.append(Flag(names=(name,), kind=SWITCH if bare else VALUE, place=OBSERVED))
    return found
