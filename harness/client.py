"""The other end of the supervisor's pipe: starts it once per session, follows its progress, waits for its report."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from harness.errors import ConfigError, HarnessError, LeaseHeld
from harness.judge.report import write_report
from harness.record import outdir
from harness.record.files import dump_json
from harness.record.journal import read_journal
from harness.spec import RunSpec

LAUNCH_LOCK = ".launch.lock"
POLL_S = 0.1
Show = Callable[[str], None]


def ensure_run(spec: RunSpec, show: Show) -> Path:
    """The out-dir of this session's one run, launched by whoever comes first; others wait for the same one.

    ConfigError, LeaseHeld and HarnessError say why nothing could be judged. KeyboardInterrupt cancels the run, waits
    for its report, and goes on to the caller.
    """
    outdir.prepare(spec.out_dir)
    with _launch_lock(spec.out_dir):
        if not is_session_run(spec.out_dir, spec.session):
            _supervise(spec, show)
    return wait_until_written(spec.out_dir)


def wait_until_written(out_dir: Path, show: Show = lambda line: None) -> Path:
    """Wait for a run that another process supervises, then make sure that its report is there."""
    with _follow(out_dir, show) as look:
        while outdir.is_held(out_dir):
            look()
            time.sleep(POLL_S)
    if not (out_dir / outdir.REPORT).exists():
        write_report(out_dir)
    return out_dir


def is_session_run(out_dir: Path, session: str) -> bool:
    """Whether the run that lies here was asked for by this session."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        spec = json.loads((out_dir / outdir.RUN_SPEC).read_bytes())
        return bool(session) and spec.get("session") == session
    return False


@contextlib.contextmanager
def _launch_lock(out_dir: Path) -> Iterator[None]:
    handle = os.open(out_dir / LAUNCH_LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _supervise(spec: RunSpec, show: Show) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "harness.supervise"], cwd=spec.out_dir, env=environment, start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(dump_json(spec.to_json(), indent=None).encode() + b"\n")
        process.stdin.flush()
    try:
        _wait(process, spec, show)
    except KeyboardInterrupt:
        show("Cancelling the run; its report follows")
        with contextlib.suppress(OSError):
            process.stdin.write(b"cancel\n")
            process.stdin.flush()
        _wait(process, spec, show)
        raise
    finally:
        with contextlib.suppress(OSError):
            process.stdin.close()
    _outcome(process, spec)


def _wait(process: subprocess.Popen[bytes], spec: RunSpec, show: Show) -> None:
    with _follow(spec.out_dir, show, session=spec.session) as look:
        while process.poll() is None:
            look()
            time.sleep(POLL_S)


def _outcome(process: subprocess.Popen[bytes], spec: RunSpec) -> None:
    assert process.stdout is not None and process.stderr is not None
    told, complained = process.stdout.read(), process.stderr.read().decode("utf-8", "replace")
    if process.returncode == 0:
        return
    with contextlib.suppress(ValueError):
        error = json.loads(told)
        kinds = {"ConfigError": ConfigError, "LeaseHeld": LeaseHeld}
        raise kinds.get(error["error"], HarnessError)(error["message"])
    if not is_session_run(spec.out_dir, spec.session) or not (spec.out_dir / outdir.JOURNAL).exists():
        raise HarnessError(f"the supervisor ended with code {process.returncode} before it wrote anything: "
                           f"{complained.strip()[-2000:] or 'no message'}")
    _await_reaper(spec)
    write_report(spec.out_dir)


def _await_reaper(spec: RunSpec) -> None:
    """After a supervisor's violent end its reaper stops the trainer; its last word belongs into the report."""
    deadline = time.monotonic() + spec.stop_grace_s + 10
    while time.monotonic() < deadline:
        entries, _ = read_journal(spec.out_dir / outdir.JOURNAL)
        events = {entry["event"] for entry in entries}
        if "attempt-started" not in events or events & {"attempt-ended", "reaped"}:
            return
        time.sleep(POLL_S)


@contextlib.contextmanager
def _follow(out_dir: Path, show: Show, session: str | None = None) -> Iterator[Callable[[], None]]:
    """A function that shows the new whole lines of progress.log, and once more at the end."""
    position = 0
    half = b""

    def look() -> None:
        nonlocal position, half
        if session is not None and not is_session_run(out_dir, session):
            return
        with contextlib.suppress(OSError), (out_dir / outdir.PROGRESS).open("rb") as handle:
            handle.seek(position)
            data = handle.read()
            position += len(data)
            *lines, half = (half + data).split(b"\n")
            for line in lines:
                show(line.decode("utf-8", "replace"))

    try:
        yield look
    finally:
        look()
