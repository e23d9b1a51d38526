"""The class of a program that its checkpoints are loaded into: found in its source, only where importing is safe."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.frameworks.classes import find_class
from harness.frameworks.source import Program, read_module

IMPORT = "import lightning as L\nfrom lightning import LightningModule\n"
ONE = IMPORT + "class Net(L.LightningModule):\n    pass\n"
GUARD = 'if __name__ == "__main__":\n    train()\n'


@pytest.mark.parametrize(("entry", "module", "found"), [
    (ONE + GUARD, None, "train.py:Net"),
    ('"""A program."""\nSEED = 3\n' + ONE + "def train(): ...\n" + GUARD, None, "train.py:Net"),
    (ONE + "train()\n", None, None),
    (ONE + "trainer = make(3)\n", None, None),
    (ONE + "for step in range(3):\n    pass\n", None, None),
    ("import net\nnet.train()\n", ONE + "log = print('imported anyway')\n", "net.py:Net"),
    (IMPORT + "class Base(LightningModule): ...\nclass Net(Base): ...\n", None, "train.py:Net"),
    (ONE + "class Other(LightningModule): ...\n", None, None),
    ("class Net:\n    pass\n", None, None),
])
def test_class_is_found_where_there_is_one(entry: str, module: str | None, found: str | None, tmp_path: Path) -> None:
    """A start that does more than define is not imported; of several none is taken; of a chain the last."""
    paths = [tmp_path / "train.py"] + ([tmp_path / "net.py"] if module else [])
    for path, text in zip(paths, (entry, module), strict=False):
        path.write_text(text or "")
    modules = [read for path in paths if (read := read_module(path)) is not None]
    answer = find_class(Program(modules=tuple(modules)), "LightningModule")
    assert answer == (str(tmp_path / found) if found else None)


def test_nothing_of_a_cut_program_is_taken(tmp_path: Path) -> None:
    """Files that were not read may hold another class."""
    (tmp_path / "train.py").write_text(ONE)
    read = read_module(tmp_path / "train.py")
    assert read is not None
    assert find_class(Program(modules=(read,), truncated=True), "LightningModule") is None
    assert find_class(Program(), "LightningModule") is None
