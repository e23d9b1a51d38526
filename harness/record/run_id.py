"""The name of a run, which all of its artifacts share."""

from __future__ import annotations

import secrets
import time

from harness.errors import ConfigError


def run_id_or_new(given: str | None) -> str:
    """The given id, which must do as a directory's name, or one of UTC time and 4 random hex digits."""
    if not given:
        return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()) + "-" + secrets.token_hex(2)
    if not all(c.isalnum() or c in "-_." for c in given) or not given.strip("."):
        raise ConfigError(f"--run-id {given}: use letters, digits, '-', '_' and '.'")
    return given
