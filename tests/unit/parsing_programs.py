"""Programs that parse their words under the probe, and what it wrote down of that."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, cast

from harness.probe import ENV_DIR, site_dir
from harness.probe.parsed import ENV_ASKED, read_parsed


class Program:
    """Runs children with the probe, which asks for these names."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.directory = root / "probe"
        self.directory.mkdir()

    def run(self, names: str, code: str, *words: str, python: str = sys.executable) -> list[dict[str, Any]]:
        """The processes that wrote something down."""
        script = self.root / "train.py"
        script.write_text(textwrap.dedent(code), encoding="utf-8")
        env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(site_dir()), ENV_DIR: str(self.directory), ENV_ASKED: names}
        done = subprocess.run([python, str(script), *words], env=env, cwd=self.root, capture_output=True, text=True,
                              timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        assert not (self.directory / "problems.log").exists(), (self.directory / "problems.log").read_text()
        told = read_parsed(self.directory, since=0.0)
        assert told["problems"] == []
        return cast(list[dict[str, Any]], told["processes"])

    def parse(self, name: str, code: str, *words: str) -> dict[str, Any]:
        """The only thing that was parsed of this name."""
        (process,) = self.run(name, code, *words)
        (parse,) = process["parses"]
        return cast(dict[str, Any], parse)
