"""What a trainer prints when its own early stopping ends it, found as the output streams by.

Lightning (callbacks/early_stopping.py, with verbose=True) and Keras (callbacks/early_stopping.py, with verbose=1) say
so in a line; Transformers writes it into trainer_state.json, which its reader tells.
"""

from __future__ import annotations

import re
from typing import Any

LINE_BYTES = 512
"""No such line is longer; so much is kept from one piece of output to the next."""
_SIGNS = (b"Signaling Trainer to stop", b": early stopping")
PRINTED = "printed"
"""The `framework` of a line in a program's own words, which proves nothing."""
TAIL_LINES = 20
_OWN_WORDS = re.compile(
    rb"(?i)\bearly[- ]stopp(?:ing|ed)(?:[!.]?\s*$"
    rb"|[!.:,]?\s+(?:training\s+)?(?:triggered|activated|at|after|on|because|since"
    rb"|no|val|validation|eval|loss)\b)|\bstopp(?:ing|ed)(?: training)? early\b")
_LINES = (
    ("lightning", re.compile(
        rb"Monitored metric (?P<metric>\S{1,200}) did not improve in the last (?P<patience>\d{1,9}) records\."
        rb"[^\n]{0,200}Signaling Trainer to stop")),
    ("lightning", re.compile(
        rb"Stopping threshold reached: (?P<metric>\S{1,200}) = [^\n]{0,200}Signaling Trainer to stop")),
    ("keras", re.compile(rb"(?:^|[\n\r\x08])(?:\x1b\[[0-9;]*m)?Epoch \d{1,9}: early stopping(?=[\r\n])")),
)


def printed_stop(tail: bytes) -> dict[str, Any] | None:
    """Among the last lines of a log the one in which a program says in its own words that it stopped early."""
    for line in reversed(re.split(rb"[\r\n]+", tail.rstrip())[-TAIL_LINES:]):
        if len(line) <= LINE_BYTES and _OWN_WORDS.search(line):
            return {"framework": PRINTED, "line": line.strip().decode("utf-8", "replace"), "metric": None,
                    "patience": None}
    return None


class StopTrace:
    """The last such line of one attempt's output."""

    def __init__(self) -> None:
        self.found: dict[str, Any] | None = None
        """{framework, line, metric, patience}."""
        self._carried = b""

    def feed(self, data: bytes) -> None:
        """Output as it came."""
        text = self._carried + data
        self._carried = text[-LINE_BYTES:]
        if any(sign in text for sign in _SIGNS):
            self._search(text)

    def end(self) -> None:
        """Nothing more comes: a last line needs no end."""
        self.feed(b"\n")

    def _search(self, text: bytes) -> None:
        for framework, pattern in _LINES:
            for match in pattern.finditer(text):
                groups = match.groupdict()
                self.found = {
                    "framework": framework, "line": match.group().strip().decode("utf-8", "replace")[:LINE_BYTES],
                    "metric": groups["metric"].decode("utf-8", "replace") if groups.get("metric") else None,
                    "patience": int(groups["patience"]) if groups.get("patience") else None,
                }
