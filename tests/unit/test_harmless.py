"""A program's classes are run only where its import does nothing, in a process that can change nothing."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness import checkpoints
from harness.checkpoints.harmless import harm_of
from harness.frameworks.classes import Sources

SITE = Path(checkpoints.__file__).parent / "site"

HARMLESS = [
    "import os\nHERE = os.path.dirname(os.path.abspath(__file__))\n",
    "from pathlib import Path\nROOT = Path(__file__).resolve().parent / 'data'\n",
    "import logging\nlog = logging.getLogger(__name__)\n",
    "from dataclasses import dataclass, field\n@dataclass(frozen=True)\nclass A:\n"
    "    b: list = field(default_factory=list)\n",
    "import torch\nfrom torch import nn\n@torch.no_grad()\ndef f(x=torch.device('cpu')): open('x', 'w')\n"
    "loss = nn.MSELoss()\n",
    "class A:\n    @property\n    def b(self): return open('x')\n    @b.setter\n    def b(self, x): ...\n",
    "import os\nos.environ['A'] = '1'\nif __name__ == '__main__':\n    train()\n",
    "try:\n    import fast\nexcept ImportError:\n    fast = None\n",
    "import argparse\np = argparse.ArgumentParser()\np.add_argument('--lr', type=float)\nargs = p.parse_args()\n",
    "make = lambda: open('x', 'w')\n",
]
HARM = [
    ("import experiment as e\ne.main()\n", 2),
    ("def main(): ...\nmain()\n", 2),
    ("from pathlib import Path\nPath('x').write_text('')\n", 2),
    ("import logging\nlogging.basicConfig(filename='x')\n", 2),
    ("with open('x', 'w') as f: ...\n", 1),
    ("for step in range(3): ...\n", 1),
    ("class A:\n    import shutil\n    shutil.rmtree('x')\n", 3),
    ("class A:\n    b = open('x', 'w')\n", 2),
    ("class A:\n    def b(self, x=open('x', 'w')): ...\n", 2),
    ("def own(f): return f\n@own\ndef f(): ...\n", 3),
    ("import os\nx = [os.remove(p) for p in ('a',)]\n", 2),
    ("import os\nif os.remove('x'): ...\n", 2),
    ("if __name__ == '__main__': ...\nelse:\n    main()\n", 3),
    ("import os\nopen = os.path.join\nlen = os.remove\nlen('x')\n", 4),
    ("from tools import field\nfield('x')\n", 2),
    ("try:\n    import fast\nfinally:\n    main()\n", 4),
    ("x = getattr(__import__('os'), 'remove')('x')\n", 1),
    ("class A(make()): ...\n", 1),
    ("import atexit\n@atexit.register\ndef f(): ...\n", 3),
]


def sources(place: Path, *texts: str, whole: bool = True) -> Sources:
    """Files of these texts, the first the start."""
    files = tuple(place / f"file{number}.py" for number in range(len(texts)))
    for path, text in zip(files, texts, strict=True):
        path.write_text(text)
    return Sources(files=files, whole=whole)


@pytest.mark.parametrize("text", HARMLESS)
def test_file_that_only_defines_is_harmless(text: str, tmp_path: Path) -> None:
    """Values that are computed, settings of the process itself, and what functions do once they are called."""
    assert harm_of(sources(tmp_path, "import torch\n", text)) == ""
    assert harm_of(sources(tmp_path, text), start_is_imported=True) == ""


@pytest.mark.parametrize(("text", "line"), HARM)
def test_harm_is_told_by_file_and_line(text: str, line: int, tmp_path: Path) -> None:
    """In a file that is imported, at its top, in a class's body, a decorator, a default, behind a shadowed name."""
    assert f"file1.py:{line} " in harm_of(sources(tmp_path, "import torch\n", text))


def test_start_is_held_to_what_of_it_is_executed(tmp_path: Path) -> None:
    """Its own statements are left out, its classes' bodies are not; a file that is not there counts as harm."""
    assert harm_of(sources(tmp_path, "x = open('x', 'w')\nmain()\nfor i in range(3): main()\n")) == ""
    assert "file0.py:3 " in harm_of(sources(tmp_path, "main()\nclass A:\n    b = open('x', 'w')\n"))
    assert "file0.py:1 " in harm_of(sources(tmp_path, "main()\n"), start_is_imported=True)
    assert "not all" in harm_of(sources(tmp_path, "", whole=False))
    assert "could not be read" in harm_of(Sources(files=(tmp_path / "none.py",)))


TRIES = """
import json, os, socket, subprocess, sys, threading
sys.path[:0] = [sys.argv[1], os.path.dirname(sys.argv[2])]
import _confine
kept, place = sys.argv[2], os.getcwd()
with socket.socket() as server:
    server.bind(("127.0.0.1", 0)); server.listen()
    told, found = _confine.confine(place, [os.path.join(os.path.dirname(kept), "seen.py")]), {}
    def attempt(name, call):
        try:
            call()
        except (OSError, ImportError) as error:
            found[name] = type(error).__name__
    attempt("write", lambda: open(kept, "w"))
    attempt("append", lambda: open(kept, "a"))
    attempt("remove", lambda: os.remove(kept))
    attempt("rename", lambda: os.rename(kept, kept + "2"))
    attempt("truncate", lambda: os.truncate(kept, 0))
    attempt("take", lambda: os.rename(kept, os.path.join(place, "x")))
    attempt("make", lambda: os.mkdir(kept + "3"))
    attempt("link", lambda: os.symlink("x", kept + "4"))
    attempt("start", lambda: subprocess.run([sys.executable, "-c", ""]))
    attempt("import", lambda: __import__("unseen"))
    thread = threading.Thread(target=lambda: attempt("thread", lambda: open(kept, "w")))
    thread.start(); thread.join()
    refused = sorted(found)
    found.clear()
    attempt("own", lambda: open(os.path.join(place, "own"), "w").write("x"))
    attempt("null", lambda: open(os.devnull, "w").write("x"))
    attempt("read", lambda: open(kept).read())
    attempt("seen", lambda: __import__("seen"))
    attempt("installed", lambda: __import__("pytest"))
    attempt("standard", lambda: __import__("xml.dom.minidom"))
    allowed = dict(found)
    found.clear()
    attempt("connect", lambda: socket.create_connection(server.getsockname()).close())
print(json.dumps({"told": told, "refused": refused, "stopped": allowed, "connect": sorted(found),
                  "version": _confine.version()}))
"""


def test_confined_process_changes_nothing_outside_of_its_own_directory(tmp_path: Path) -> None:
    """Files are neither written, cut, removed nor moved, no program is started, no connection made."""
    own, users = tmp_path / "own", tmp_path / "users"
    for place in (own, users):
        place.mkdir()
    (users / "kept.txt").write_text("kept")
    for name in ("seen", "unseen"):
        (users / f"{name}.py").write_text("")
    command = [sys.executable, "-B", "-c", TRIES, str(SITE), str(users / "kept.txt")]
    done = subprocess.run(command, cwd=own, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    if not found["told"]:
        assert found["version"] < 3 and not found["refused"]
        return
    assert found["refused"] == sorted(["write", "append", "remove", "rename", "truncate", "take", "make", "link",
                                       "start", "import", "thread"])
    assert found["stopped"] == {} and (users / "kept.txt").read_text() == "kept"
    assert (found["connect"] == ["connect"]) == (found["version"] >= 4)
    assert sorted(path.name for path in users.iterdir()) == ["kept.txt", "seen.py", "unseen.py"]


def test_nothing_is_run_where_it_cannot_be_confined(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An older kernel, or another system: no class is looked for."""
    monkeypatch.syspath_prepend(SITE)
    module = importlib.import_module("_confine")
    monkeypatch.setattr(module, "version", lambda: 2)
    assert module.confine(str(tmp_path), []) is False
    answers = importlib.import_module("_reload").answer_to(
        {"adapter": "torch", "is_model": True, "program_files": [], "program": {}, "files": []})
    assert answers["status"] == "not-attempted" and "Landlock" in answers["error"]
