"""The reaper: ends a run's processes when its supervisor is gone without saying so.

It is started before the trainer and run by file path, standard library only, so that it stays small. It reads one
pipe whose other end only the supervisor holds: `bye` before end of file is a clean end, end of file alone means that
the supervisor was killed. It then stops everything that carries the run's marker and says so in the journal.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time

MARKER = "REAL_STEP_RUN_TOKEN"


def marked(token: str) -> set[int]:
    """Living processes whose environment holds the token (Linux /proc)."""
    needle = f"{MARKER}={token}".encode()
    found = set()
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit() and int(name) != os.getpid():
            try:
                with open(f"/proc/{name}/environ", "rb") as handle:  # noqa: PTH123 (no pathlib: start-up)
                    if needle in handle.read().split(b"\0") and not zombie(name):
                        found.add(int(name))
            except OSError:
                continue
    return found


def zombie(pid: str) -> bool:
    """Whether the process has ended and waits to be collected."""
    with open(f"/proc/{pid}/stat", "rb") as handle:  # noqa: PTH123
        return handle.read().rpartition(b")")[2].split()[:1] == [b"Z"]


def send(pids: set[int], number: int) -> None:
    """Signal each process that is still there."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:
            continue


def stop_all(token: str, grace_s: float) -> list[int]:
    """SIGTERM to everything of the run, SIGKILL after the grace; the PIDs that were there."""
    seen = marked(token)
    send(seen, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while (alive := marked(token)) and time.monotonic() < deadline:
        time.sleep(0.1)
    while alive:
        seen |= alive
        send(alive, signal.SIGKILL)
        time.sleep(0.1)
        alive = marked(token)
    return sorted(seen)


def main() -> None:
    """`reaper.py TOKEN JOURNAL GRACE_S`, the pipe on standard input."""
    token, journal, grace_s = sys.argv[1], sys.argv[2], float(sys.argv[3])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    told = b""
    while chunk := os.read(0, 64):
        told += chunk
    if told.endswith(b"bye"):
        return
    pids = stop_all(token, grace_s)
    entry = {"seq": -1, "time": time.time(), "event": "reaped", "pids": pids}
    with open(journal, "ab") as handle:  # noqa: PTH123
        handle.write(b"\n" + json.dumps(entry).encode() + b"\n")


if __name__ == "__main__":
    main()
