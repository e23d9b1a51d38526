"""Logs on another machine: a real sshd on loopback, real connections, cut and resumed."""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.attach.ssh import RemoteFile, SshFile

from .install import find


def wait_until(condition: Callable[[], bool], timeout: float = 240.0) -> None:
    """Poll until the condition holds; fails the test otherwise."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.05)


def free_port() -> int:
    """One that is free, and below those that systems give to outgoing connections: it stays free while we restart."""
    for port in random.sample(range(10_000, 30_000), 100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no free port")


class Server:
    """An sshd with keys of its own on a free port of 127.0.0.1, and a client configuration that reaches it."""

    def __init__(self, place: Path) -> None:
        program = find("sshd")
        assert program is not None, "no sshd: install openssh-server (this test is never skipped)"
        self.program, self.place = program, place
        for name in ("host", "other", "user", "stranger"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(place / name)], check=True)
        self.port = free_port()
        (place / "authorized").write_bytes((place / "user.pub").read_bytes())
        (place / "sshd_config").write_text("\n".join([
            f"Port {self.port}", "ListenAddress 127.0.0.1", f"HostKey {place / 'host'}",
            f"PidFile {place / 'sshd.pid'}", f"AuthorizedKeysFile {place / 'authorized'}", "StrictModes no",
            "PasswordAuthentication no", "KbdInteractiveAuthentication no", "UsePAM no", "PermitRootLogin yes", ""]))
        self.config = self.client("client", "user", "host")
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def client(self, name: str, key: str, host_key: str) -> Path:
        """A client configuration: with which key, and knowing the server by which one."""
        known = self.place / f"{name}.known"
        known.write_text(f"[127.0.0.1]:{self.port} {(self.place / f'{host_key}.pub').read_text()}")
        path = self.place / name
        path.write_text("\n".join([
            "Host *", f"  Port {self.port}", f"  IdentityFile {self.place / key}", "  IdentitiesOnly yes",
            f"  UserKnownHostsFile {known}", "  GlobalKnownHostsFile /dev/null", ""]))
        return path

    def start(self) -> None:
        """Run in the foreground, as a child."""
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        log = (self.place / "sshd.log").open("ab")
        self.process = subprocess.Popen([self.program, "-D", "-e", "-f", str(self.place / "sshd_config")],
                                        stdout=log, stderr=log)
        log.close()
        wait_until(self._answers)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True
        return False

    def connections(self) -> list[psutil.Process]:
        """Processes that serve a connection."""
        assert self.process is not None
        return psutil.Process(self.process.pid).children(recursive=True)

    def cut(self) -> int:
        """Kill every connection, not the server; how many processes."""
        found = self.connections()
        for process in found:
            with contextlib.suppress(psutil.Error):
                process.kill()
        return len(found)

    def stop(self) -> None:
        """End the server with its connections."""
        if self.process is not None:
            self.cut()
            self.process.terminate()
            self.process.wait(timeout=120)
            self.process = None


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all tests."""
    server = Server(tmp_path_factory.mktemp("sshd"))
    yield server
    server.stop()


@pytest.fixture
def follow(sshd: Server) -> Iterator[Callable[[Path], SshFile]]:
    """Opens remote files, and closes them."""
    opened: list[SshFile] = []

    def open_one(path: Path) -> SshFile:
        remote = RemoteFile(destination=f"{getpass.getuser()}@127.0.0.1", path=str(path), config=sshd.config)
        opened.append(SshFile(remote))
        return opened[-1]

    yield open_one
    for source in opened:
        source.close()


class Taken:
    """What a source gave so far."""

    def __init__(self, source: SshFile) -> None:
        self.source, self.data, self.kinds = source, bytearray(), list[str]()

    def step(self) -> None:
        """One look at it."""
        for _ in range(20):
            data = self.source.read(1 << 20)
            self.data += data
            if not data:
                break
        self.kinds += [notice.kind for notice in self.source.notices()]

    def until(self, condition: Callable[[], bool], timeout: float = 240.0) -> None:
        """Look until the condition holds."""
        def looked() -> bool:
            self.step()
            return condition()

        wait_until(looked, timeout)


def watch(sshd: Server, place: Path, path: Path | str, *words: str, config: Path | None = None) -> tuple[int, Any, str]:
    """`python -m harness watch user@host:path`: exit code, JSON, stderr."""
    target = f"{getpass.getuser()}@127.0.0.1:{path}"
    done = subprocess.run(
        [sys.executable, "-m", "harness", "watch", target, "--ssh-config", str(config or sshd.config), *words],
        cwd=place, text=True, capture_output=True, timeout=400, check=False)
    return done.returncode, json.loads(done.stdout), done.stderr


def test_growing_remote_log_is_watched_to_its_end(sshd: Server, tmp_path: Path) -> None:
    """Every byte once, the steps, the state; the copy equals the log."""
    log = tmp_path / "remote.log"
    log.write_text("step 1/5 loss 0.9\n")
    script = ("import sys, time\nlog = open(sys.argv[1], 'a', buffering=1)\n"
              "for step in range(2, 6):\n    time.sleep(1); log.write(f'step {step}/5 loss 0.{9 - step}\\n')\n"
              "log.write('training finished\\n')\n")
    writer = subprocess.Popen([sys.executable, "-c", script, str(log)])
    code, answer, shown = watch(sshd, tmp_path, log, "--out-dir", "out", "--interval", "1")
    writer.wait()
    assert (answer["target_type"], answer["terminal_state"], answer["total_steps"]) == ("remote-log", "SUCCEEDED", 5)
    assert (code, answer["decision"]) == (1, "CONDITIONAL")
    assert (tmp_path / "out" / "train.log").read_bytes() == log.read_bytes()
    assert "it is never signalled" in shown


def test_one_look_at_a_remote_log(sshd: Server, tmp_path: Path) -> None:
    """--once: what is there now, also under a name that a shell would take apart."""
    log = tmp_path / "it's $(touch pwned) a; log *.txt"
    log.write_text("step 3/5 loss 0.9\n")
    code, answer, _ = watch(sshd, tmp_path, log, "--once")
    assert (code, answer["ok"], answer["running"], answer["total_steps"]) == (0, True, True, 3)
    assert not (tmp_path / "pwned").exists() and not (Path.home() / "pwned").exists()


def test_cut_connection_is_resumed_where_it_broke(
    sshd: Server, tmp_path: Path, follow: Callable[[Path], SshFile]
) -> None:
    """The sshd's children are killed in the middle of 33 MB, three times: reported, resumed, no byte twice or lost."""
    log = tmp_path / "large.log"
    block = b"".join(hashlib.sha256(b"%d" % number).digest().hex().encode() + b"\n" for number in range(16_000))
    log.write_bytes(block * 32)
    taken = Taken(follow(log))
    for number in range(1, 4):
        before = len(taken.data)
        taken.until(lambda before=before: len(taken.data) > before + (1 << 20))  # type: ignore[misc]
        assert len(taken.data) < log.stat().st_size
        assert sshd.cut() > 0
        taken.until(lambda number=number: taken.kinds.count("connection-lost") == number)  # type: ignore[misc]
    taken.until(lambda: taken.source.is_current, timeout=400)
    assert hashlib.sha256(taken.data).digest() == hashlib.sha256(log.read_bytes()).digest()
    assert taken.kinds == ["connection-lost", "connection-back"] * 3


def test_server_that_is_down_is_tried_again(
    sshd: Server, tmp_path: Path, follow: Callable[[Path], SshFile]
) -> None:
    """Connection refused for a while: one report, ever rarer tries, and what was written meanwhile is read."""
    log = tmp_path / "a.log"
    log.write_bytes(b"before\n")
    taken = Taken(follow(log))
    taken.until(lambda: taken.source.is_current)
    sshd.stop()
    try:
        taken.until(lambda: "connection-lost" in taken.kinds)
        with log.open("ab") as handle:
            handle.write(b"meanwhile\n")
        end = time.monotonic() + 5
        taken.until(lambda: time.monotonic() > end)
    finally:
        sshd.start()
    taken.until(lambda: bytes(taken.data) == b"before\nmeanwhile\n")
    assert taken.kinds == ["connection-lost", "connection-back"]


def test_remote_rotation_and_truncation_are_followed(
    sshd: Server, tmp_path: Path, follow: Callable[[Path], SshFile]
) -> None:
    """Another inode, fewer bytes, other bytes: the file is read from its start again, and that is reported."""
    log = tmp_path / "a.log"
    log.write_bytes(b"one\n")
    taken = Taken(follow(log))
    taken.until(lambda: bytes(taken.data) == b"one\n")
    log.rename(tmp_path / "a.log.1")
    log.write_bytes(b"two\n")
    taken.until(lambda: bytes(taken.data) == b"one\ntwo\n")
    log.write_bytes(b"3\n")
    taken.until(lambda: bytes(taken.data) == b"one\ntwo\n3\n")
    log.write_bytes(b"four, which is longer\n")
    taken.until(lambda: bytes(taken.data) == b"one\ntwo\n3\nfour, which is longer\n")
    log.unlink()
    taken.until(lambda: "vanished" in taken.kinds)
    assert taken.kinds == ["rotated", "truncated", "truncated", "vanished"]


def test_closing_leaves_no_ssh_behind(sshd: Server, tmp_path: Path, follow: Callable[[Path], SshFile]) -> None:
    """Also in the middle of a look."""
    log = tmp_path / "large.log"
    log.write_bytes(b"x" * (32 << 20))
    source = follow(log)
    taken = Taken(source)
    taken.until(lambda: len(taken.data) > 0)
    source.close()
    assert not [child for child in psutil.Process().children() if child.name() == "ssh"]


@pytest.mark.parametrize(
    ("key", "host_key", "message"),
    [("user", "other", "host key"), ("stranger", "host", "ermission denied")], ids=["host key", "user key"])
def test_refused_connection_is_told_at_once(
    sshd: Server, tmp_path: Path, key: str, host_key: str, message: str
) -> None:
    """Nobody is asked anything: exit code 3 and what ssh says."""
    log = tmp_path / "a.log"
    log.touch()
    config = sshd.client(f"client-{key}-{host_key}", key, host_key)
    began = time.monotonic()
    code, answer, shown = watch(sshd, tmp_path, log, "--out-dir", "out", config=config)
    assert (code, answer["ok"]) == (3, False)
    assert message in answer["error"].lower() or message in answer["error"]
    assert "Traceback" not in shown and time.monotonic() - began < 300


@pytest.mark.parametrize("name", ["missing.log", "."])
def test_missing_remote_file_is_a_usage_error(sshd: Server, tmp_path: Path, name: str) -> None:
    """Exit code 2 and the name."""
    code, answer, _ = watch(sshd, tmp_path, tmp_path / name, "--out-dir", "out")
    assert (code, answer["ok"]) == (2, False)
    assert "127.0.0.1" in answer["error"]


def test_interrupted_watch_ends_by_itself_alone(sshd: Server, tmp_path: Path) -> None:
    """Ctrl-C: the watch writes what it has; the writer elsewhere goes on."""
    log = tmp_path / "a.log"
    log.write_text("step 1/5 loss 0.9\n")
    words = [sys.executable, "-m", "harness", "watch", f"{getpass.getuser()}@127.0.0.1:{log}", "--out-dir", "out",
             "--ssh-config", str(sshd.config)]
    process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    copy = tmp_path / "out" / "train.log"
    wait_until(lambda: copy.exists() and copy.stat().st_size > 0)
    process.send_signal(signal.SIGINT)
    told, shown = process.communicate(timeout=300)
    assert "Traceback" not in shown and json.loads(told)["terminal_state"] is None
    report = json.loads((tmp_path / "out" / "babysit-training.json").read_text())
    assert report["terminal_state"] is None


def test_connection_that_stays_lost_leaves_the_run_unproven(sshd: Server, tmp_path: Path) -> None:
    """After the idle budget the watch ends; how far the run came is not known, so that nothing is called broken."""
    log = tmp_path / "a.log"
    log.write_text("step 1/5 loss 0.9\n")
    words = [sys.executable, "-m", "harness", "watch", f"{getpass.getuser()}@127.0.0.1:{log}", "--out-dir", "out",
             "--ssh-config", str(sshd.config), "--idle-timeout", "12"]
    process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    copy = tmp_path / "out" / "train.log"
    wait_until(lambda: copy.exists() and copy.stat().st_size > 0)
    sshd.stop()
    try:
        told, shown = process.communicate(timeout=300)
    finally:
        sshd.start()
    answer = json.loads(told)
    assert "connection-lost" in shown
    assert (answer["decision"], answer["terminal_state"]) == ("CONDITIONAL", "CANCELLED")
    assert "run-unfinished" in {reason["code"] for reason in answer["reasons"]}
