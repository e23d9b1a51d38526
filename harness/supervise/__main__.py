"""`python -m harness.supervise`: the process that owns one run.

It reads the RunSpec as one JSON line on standard input, so that secrets of the command stand in no file and no
argument list. The rest of that pipe is its owner: `cancel` asks for an end, end of file means that the owner is
gone, and an owned trainer does not outlive its owner.
"""

from __future__ import annotations

import json
import os
import signal
import sys

from harness.errors import ConfigError, HarnessError, LeaseHeld
from harness.spec import RunSpec
from harness.supervise.attached import AttachedSupervisor
from harness.supervise.loop import Supervisor


def read_line(descriptor: int) -> bytes:
    """One line, byte by byte, so that what follows stays in the pipe."""
    line = bytearray()
    while (byte := os.read(descriptor, 1)) and byte != b"\n":
        line += byte
    return bytes(line)


def main() -> int:
    """Exit 0 with a report in the out-dir; 2 (usage) or 3 (could not judge) with one JSON line on stdout."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    spec = RunSpec.from_json(json.loads(read_line(0)))
    supervisor = AttachedSupervisor(spec, owner=0) if spec.attach else Supervisor(spec, owner=0)
    signal.signal(signal.SIGTERM, lambda *_: supervisor.ask_stop("cancelled"))
    try:
        supervisor.run()
    except (ConfigError, LeaseHeld) as error:
        print(json.dumps({"error": type(error).__name__, "message": str(error)}), flush=True)
        return 2
    except HarnessError as error:
        print(json.dumps({"error": type(error).__name__, "message": str(error)}), flush=True)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
