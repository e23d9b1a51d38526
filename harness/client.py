"""The other end of the supervisor's pipe: starts it once per session, follows its progress, waits for its report."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import harness
from harness.errors import ConfigError, HarnessError, LeaseHeld
from harness.judge.report import write_report
from harness.record import outdir
from harness.record.files import dump_json, read_json
from harness.record.journal import read_journal
from harness.spec import RunSpec

POLL_S = 0.1
BEGIN_WAIT_S = 10.0
"""How long a worker waits for the first word of a supervisor whose owner has died."""
_START = """
import sys
sys.path[:] = [place for place in sys.path if place]
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("harness", sys.argv[1])
sys.modules["harness"] = module_from_spec(spec)
spec.loader.exec_module(sys.modules["harness"])
from harness.supervise.__main__ import main
sys.exit(main())
"""
"""Starts the supervisor from this very package: no file of the project or of the out-dir can stand in for a module."""
Show = Callable[[str], None]


def ensure_run(spec: RunSpec, show: Show) -> Path:
    """The out-dir of this session's one run, launched by whoever comes first; others wait for the same one.

    ConfigError, LeaseHeld and HarnessError say why nothing could be judged. KeyboardInterrupt cancels the run, waits
    for its report, and goes on to the caller.
    """
    if not spec.session:
        _supervise(spec, show)
        return wait_until_written(spec.out_dir)
    with _Launch(spec.session) as launch:
        told = launch.read()
        if not told:
            _launch_once(launch, spec, show)
        elif "message" in told:
            raise _told_error(told)
        elif not told.get("ended"):
            _await_begin(spec)
    if not is_session_run(spec.out_dir, spec.session):
        raise HarnessError(_removed(spec))
    return wait_until_written(spec.out_dir)


def _launch_once(launch: _Launch, spec: RunSpec, show: Show) -> None:
    launch.write({"launched": True})
    try:
        _supervise(spec, show)
    except HarnessError as error:
        launch.write({"launched": True, "error": type(error).__name__, "message": str(error)})
        raise
    launch.write({"launched": True, "ended": True})


def _await_begin(spec: RunSpec) -> None:
    """Whoever launched has died: its supervisor may still be about to say that it is there."""
    deadline = time.monotonic() + BEGIN_WAIT_S
    while not is_session_run(spec.out_dir, spec.session) and time.monotonic() < deadline:
        time.sleep(POLL_S)


def _removed(spec: RunSpec) -> str:
    return (f"--out-dir {spec.out_dir}: this session's run was launched and its artifacts are gone; "
            "give a directory that the job leaves alone")


def forget_session(session: str) -> None:
    """The session is over: nobody asks any more whether it has launched."""
    with contextlib.suppress(OSError):
        _launch_file(session).unlink(missing_ok=True)


def wait_until_written(out_dir: Path, show: Show = lambda line: None) -> Path:
    """Wait for a run that another process supervises, then make sure that its report is there."""
    if outdir.is_held(out_dir):
        with _follow(out_dir, show) as look:
            while outdir.is_held(out_dir):
                look()
                time.sleep(POLL_S)
    if not (out_dir / outdir.REPORT).exists():
        _write_report(out_dir)
    return out_dir


def _write_report(out_dir: Path) -> None:
    try:
        write_report(out_dir)
    except OSError as error:
        raise HarnessError(f"{out_dir / outdir.REPORT}: cannot be written: {error.strerror}") from error


def is_session_run(out_dir: Path, session: str) -> bool:
    """Whether the run that lies here was asked for by this session."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        spec = read_json(out_dir / outdir.RUN_SPEC)
        return bool(session) and spec.get("session") == session
    return False


def _launch_file(session: str) -> Path:
    return Path(tempfile.gettempdir()) / f"real-step-{session}.json"


class _Launch:
    """What the processes of one session know of its launch, one at a time.

    It lies outside the out-dir, which the job may remove, and is named by the session, so that another session never
    waits for it: that one is refused by the out-dir's lease.
    """

    def __init__(self, session: str) -> None:
        self.path = _launch_file(session)
        self._handle = -1

    def __enter__(self) -> _Launch:
        try:
            self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            fcntl.flock(self._handle, fcntl.LOCK_EX)
        except OSError as error:
            raise HarnessError(f"{self.path}: the session's lock cannot be had: {error.strerror}") from error
        return self

    def __exit__(self, *_exc: object) -> None:
        os.close(self._handle)

    def read(self) -> dict[str, Any]:
        """What was written last; {} before the launch. What cannot be read says that there was a launch."""
        data = os.pread(self._handle, 1 << 20, 0)
        with contextlib.suppress(ValueError):
            told = json.loads(data) if data else {}
            if isinstance(told, dict):
                return told
        return {"launched": True}

    def write(self, told: dict[str, Any]) -> None:
        """Replace it."""
        data = dump_json(told, indent=None).encode()
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, data, 0)


def _supervise(spec: RunSpec, show: Show) -> None:
    outdir.prepare(spec.out_dir)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    process = subprocess.Popen(
        [sys.executable, "-c", _START, str(harness.__file__)], cwd="/", env=environment, start_new_session=True,
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
    if not spec.out_dir.is_dir():
        raise HarnessError(_removed(spec))
    with contextlib.suppress(ValueError):
        raise _told_error(json.loads(told))
    if not is_session_run(spec.out_dir, spec.session) or not (spec.out_dir / outdir.JOURNAL).exists():
        raise HarnessError(f"the supervisor ended with code {process.returncode} before it wrote anything: "
                           f"{complained.strip()[-2000:] or 'no message'}")
    _await_reaper(spec)
    _write_report(spec.out_dir)


def _told_error(told: dict[str, Any]) -> HarnessError:
    kinds: dict[str, type[HarnessError]] = {"ConfigError": ConfigError, "LeaseHeld": LeaseHeld}
    return kinds.get(str(told.get("error")), HarnessError)(str(told["message"]))


def _await_reaper(spec: RunSpec) -> None:
    """After a supervisor's violent end its reaper stops the trainer; its last word belongs into the report."""
    deadline = time.monotonic() + spec.stop_grace_s + 10
    while time.monotonic() < deadline:
        entries, _ = read_journal(spec.out_dir / outdir.JOURNAL)
        events = [entry["event"] for entry in entries]
        if "reaped" in events or events.count("attempt-ended") >= events.count("attempt-started"):
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
