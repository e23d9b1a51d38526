"""Whether infrastructure ended a trainer: one function over its exit and the end of its log.

Positive evidence only. A signal alone says nothing of its sender, and an exception is infrastructure's only where its
own last line says that a connection or a hub failed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from harness.launch.base import Exit

TAIL_LINES = 200
"""Lines at the end of the log in which a cause may stand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """What of the infrastructure failed, and the line of the log that says so."""

    name: str
    """preemption, node-loss, connection or hub-deadline."""
    line: str


_NEVER = re.compile(
    r"out of memory|OutOfMemory|oom[-_ ]kill|cannot allocate memory|MemoryError|CUDA error|device-side assert"
    r"|DUE TO TIME LIMIT|\bloss\b\W{0,4}\bnan\b|non-?finite loss|No space left on device", re.IGNORECASE)
"""Restarting the same command meets these again."""
_SCHEDULER = (
    ("preemption", re.compile(
        r"DUE TO PREEMPTION|\b(?:node|job|instance|vm|task|pod|worker) (?:was|has been|is being) preempted"
        r"|\bpreemption notice\b|\bspot (?:instance )?interruption\b", re.IGNORECASE)),
    ("node-loss", re.compile(
        r"DUE TO NODE FAILURE|\bNODE_FAIL\b|\bNodeDiedError\b"
        r"|\bnode .{0,80}(?:marked (?:as )?dead|has failed|was lost)",
        re.IGNORECASE)),
)
"""What schedulers write, whatever the trainer then raises."""
_EXCEPTION = (
    ("hub-deadline", re.compile(
        r"Read ?Timeout|Connect ?Timeout|read timed out|deadline ?exceeded"
        r"|\b(?:429|500|502|503|504) (?:Server|Client) Error\b|Too Many Requests|\bHTTP Error (?:429|50[0234])\b",
        re.IGNORECASE)),
    ("connection", re.compile(
        r"connection (?:was )?(?:reset|aborted)|ConnectionResetError|ConnectionAbortedError|RemoteDisconnected"
        r"|IncompleteRead|ChunkedEncodingError|RemoteProtocolError|ServerDisconnectedError"
        r"|Temporary failure in name resolution|Max retries exceeded|couldn't connect to 'https?://"
        r"|^(?:requests\.exceptions\.|urllib3\.exceptions\.|httpx\.|aiohttp\.[\w.]*)(?:Connect\w*Error|ProtocolError)",
        re.IGNORECASE)),
)
"""What the exception that ended the trainer must say."""
_NOT_EXCEPTION = re.compile(r"refused|certificate|\b40[0134] |NCCL|Gloo|rendezvous|Broken ?pipe", re.IGNORECASE)
"""A wrong address or right, and what follows from the death of another rank."""
_ENDING = re.compile(r"^[A-Za-z_][\w.]*(?:[Ee]rror|Exception|Exceeded|Timeout\w*|Disconnected|Exit|Interrupt)\b.*$")
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def infrastructure_cause(ended: Exit, tail: str) -> Cause | None:
    """The cause, or None where the end was well, where nothing tells, or where the trainer itself failed.

    `tail`: the end of its log; its last 200 lines are looked at.
    """
    if ended.code == 0:
        return None
    lines = [_ANSI.sub("", line).strip() for line in tail.splitlines()[-TAIL_LINES:]]
    if any(_NEVER.search(line) for line in lines):
        return None
    for name, pattern in _SCHEDULER:
        found = next((line for line in reversed(lines) if pattern.search(line)), None)
        if found is not None:
            return Cause(name=name, line=found[:500])
    ending = next((line for line in reversed(lines) if _ENDING.match(line)), "")
    if _NOT_EXCEPTION.search(ending):
        return None
    return next((Cause(name=name, line=ending[:500]) for name, pattern in _EXCEPTION if pattern.search(ending)), None)
