"""Progress while a run goes on: on a terminal, in CI, under xdist."""

from __future__ import annotations

import contextlib
import itertools
import os
import pty
import re
import subprocess
import threading

import pytest

from .conftest import Project, _environment

STEADY = ("--max-steps", "60", "--sleep", "0.1")
REPORTED = ("--hold-at", "50", "--hold-for", "reports/train-run/progress.log", "] Step")
"""Before step 50 the trainer waits for so many reports as the word behind says: load may make them rarer."""
LINE = re.compile(r"\[\d\d:\d\d:\d\d\] Step \d+/60 \(\d+%\) \| loss=\S+ \| (?:lr=0\.1 \| )?(?:grad_norm=\S+ \| )?"
                  r"(?:\S+ steps/s \| )?CPU (?:\d+% )?\d+ MB \| (?:I/O \S+ MB/s \| )?(?:ETA (?:\d+m )?\d+s \| )?"
                  r"next report in 1s")


def on_a_terminal(project: Project, *flags: str) -> str:
    """What pytest writes to a terminal of 200 columns."""
    ours, theirs = pty.openpty()
    environment = {name: value for name, value in _environment().items() if name != "CI"}
    process = subprocess.Popen(project.arguments(*flags), cwd=project.path, stdin=subprocess.DEVNULL, stdout=theirs,
                               stderr=theirs, env={**environment, "COLUMNS": "200"}, start_new_session=True)
    os.close(theirs)
    written: list[bytes] = []

    def read() -> None:
        with contextlib.suppress(OSError):
            while data := os.read(ours, 65536):
                written.append(data)

    reader = threading.Thread(target=read)
    reader.start()
    assert process.wait(400) == 0
    reader.join(300)
    os.close(ours)
    return b"".join(written).decode()


def test_progress_is_live_on_a_terminal(project: Project) -> None:
    """Progress lines replace each other; what follows them begins a line of its own."""
    text = on_a_terminal(project, "--train-cmd", project.toy(*STEADY, *REPORTED, "6"), "--interval", "0.5",
                         "--no-backoff")
    places = [match.start() for match in re.finditer(r"\[\d\d:\d\d:\d\d\] Step", text)]
    assert len(places) >= 3, text
    assert all(text[place - 1] == "\r" for place in places)
    assert any(not re.search(r"\n", text[a:b]) for a, b in itertools.pairwise(places)), text
    assert re.search(r"next report in \d+s +\r*\n", text), text
    assert "\nBest checkpoint:" in text


def test_progress_is_plain_lines_in_ci(project: Project) -> None:
    """Through pytest's capture, before the first dot; every fifth is followed by a summary."""
    done = project.run("--train-cmd", project.toy(*STEADY, *REPORTED, "6"), "--interval", "0.5", "--no-backoff")
    assert done.returncode == 0, done.stdout
    lines = [line for line in done.stdout.splitlines() if re.match(r"\[\d\d:", line)]
    assert len(lines) >= 6
    assert [line for line in lines if not LINE.fullmatch(line)] == []
    assert " lr=" in lines[-1] and " grad_norm=" in lines[-1]
    assert "Summary of 5 reports in" in done.stdout
    assert "\r" not in done.stdout


def test_progress_goes_into_a_file_under_xdist(project: Project) -> None:
    """progress.log holds what no worker can show."""
    done = project.run("--train-cmd", project.toy(*STEADY, *REPORTED, "2"), "--interval", "0.5", "-n2")
    assert done.returncode == 0, done.stdout
    assert "next report in" not in done.stdout
    assert (project.out_dir / "progress.log").read_text().count("next report in") >= 2


@pytest.mark.parametrize(("flags", "told"), [
    (("--interval", "60", "--max-interval", "45"), "--max-interval 45 is below --interval 60"),
    (("--max-interval", "10"), "--max-interval 10 is below --interval 30"),
    (("--max-interval", "0"), "--max-interval 0.0: give a number above 0"),
])
def test_intervals_that_contradict_are_usage_errors(project: Project, flags: tuple[str, ...], told: str) -> None:
    """Before anything is launched."""
    done = project.run("--train-cmd", project.toy(), *flags)
    assert (done.returncode, told in done.stdout) == (4, True), done.stdout
    assert not project.launches
