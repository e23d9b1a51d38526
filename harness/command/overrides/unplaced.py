"""An override without a place: what is near it, and the exact words that give it one."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

from harness.command.overrides.document import EditError
from harness.command.overrides.model import OverrideRequest
from harness.command.overrides.synonyms import normal

NEAR_NAMES = 4
SHOWN_FLAGS = 10


def no_place(
    request: OverrideRequest, why: str, flags: Mapping[str, str], values: Mapping[str, tuple[str, str]]
) -> EditError:
    """`flags`: normal name -> flag as written. `values`: normal dotted key -> (key as written, its config file)."""
    key = request.key
    near = near_names(key, (*flags, *values))
    near_flags = [flags[name] for name in near if name in flags]
    near_values = [values[name] for name in near if name not in flags]
    shown = [*near_flags, *(f"{path} in {given}" for path, given in near_values)]
    told = f"; near it: {', '.join(shown)}" if shown else ""
    ways = [f"--hp-flag {key}={flag}" for flag in near_flags]
    message = f"cannot be placed: {why}{told}; say which flag it is with {(*ways, f'--hp-flag {key}=--flag')[0]}"
    ways += [f"--hp {path}={request.value}" for path, _ in near_values]
    if ways:
        return EditError(message, f"give {' or '.join(ways)}")
    return EditError(message, f"give --hp-flag {key}=--flag with the program's own flag{_listed(flags)}")


def _listed(flags: Mapping[str, str]) -> str:
    known = sorted({name for name in flags.values() if name.startswith("--")})
    more = ", ..." if len(known) > SHOWN_FLAGS else ""
    return f" (it has {', '.join(known[:SHOWN_FLAGS])}{more})" if known else ""


def near_names(key: str, names: Sequence[str]) -> list[str]:
    """Names that resemble a key, that end with it, or that hold it as a word; the nearest first."""
    wanted = normal(key)
    found = difflib.get_close_matches(wanted, names, n=NEAR_NAMES, cutoff=0.6)
    found += [name for name in names if name.endswith("." + wanted) or f"_{wanted}_" in f"_{name}_"]
    return list(dict.fromkeys(found))[:NEAR_NAMES]
