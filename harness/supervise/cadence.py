"""How many steps lie between two rows of a trainer's output, where its command or its user says so."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from harness.command.overrides.model import parse_requests
from harness.spec import RunSpec

NAMES = ("logging_steps", "logging-steps")


def logging_steps(spec: RunSpec, argv: Sequence[str]) -> int | None:
    """The value of --hp, else of the command's last flag; None for none, and for a share of the run."""
    told = [request.value for request in parse_requests(spec.hp) if request.key.rpartition(".")[2] in NAMES]
    flags = {f"--{name}" for name in NAMES}
    told = told or [value for word, value in pairwise(argv) if word in flags]
    told = told or [value for name, _, value in (word.partition("=") for word in argv) if name in flags]
    return int(told[-1]) if told and told[-1].isdecimal() and int(told[-1]) > 0 else None
