"""Lightning checkpoints in the class that wrote them, with and without the arguments that it was made with.

Needs the environment of constraints/trainers.txt; about a minute.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.checkpoints.inventory import find_checkpoints
from harness.checkpoints.reload import Surroundings, reload_checkpoint
from harness.checkpoints.targets import target_of
from harness.command.parse import parse_command
from harness.frameworks.classes import find_sources
from harness.frameworks.settings import Settings
from tests.landlock import can_confine

Change = Callable[[dict[str, torch.Tensor]], None]
PROGRAM = Path(__file__).parent / "programs" / "lit_arguments.py"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the program trained."""
    place = tmp_path_factory.mktemp("trained")
    shutil.copy(PROGRAM, place / "train.py")
    subprocess.run([sys.executable, "train.py"], cwd=place, check=True, timeout=240)
    return place


def loaded(
    trained: Path, place: Path, name: str, change: Change = lambda state: None, code: str = ""
) -> dict[str, Any]:
    """The answer about one checkpoint, changed before; `code`: what its class does as it is made."""
    saved = torch.load(trained / "saved" / f"{name}.ckpt", weights_only=True)
    change(saved["state_dict"])
    torch.save(saved, place / "last.ckpt")
    text = PROGRAM.read_text().replace("super().__init__()", f"super().__init__(){code}")
    (place / "train.py").write_text(text)
    settings = Settings(parse_command("python train.py", place), place)
    target = replace(target_of(find_checkpoints(place)[-1]), program=find_sources(settings),
                     model_class=f"{place}/train.py:{name.capitalize()}")
    return reload_checkpoint(target, Surroundings(interpreter=Path(sys.executable), workdir=place, environ=os.environ))


@pytest.mark.parametrize("name", ["kept", "bare"])
def test_healthy_checkpoint_is_passed_forward(name: str, trained: Path, tmp_path: Path) -> None:
    """Arguments that are not in it are read from the program; a class made without them has other keys and shapes."""
    answer = loaded(trained, tmp_path, name)
    assert (answer["adapter"], answer["status"], answer["missing"], answer["mismatched"]) == (
        "lightning", "ok", [], []), answer
    assert answer["forward_ok"] is (True if can_confine() else None), answer


def drop(state: dict[str, torch.Tensor]) -> None:
    del state["first.bias"]


def resize(state: dict[str, torch.Tensor]) -> None:
    state["first.bias"] = torch.ones(3)


@pytest.mark.parametrize(("change", "field"), [(drop, "missing"), (resize, "mismatched")])
def test_checkpoint_that_its_class_does_not_load_fails(
    change: Change, field: str, trained: Path, tmp_path: Path
) -> None:
    """Where the checkpoint itself says what its class was made with."""
    answer = loaded(trained, tmp_path, "kept", change)
    assert (answer["status"], answer[field], answer["forward_ok"]) == ("failed", ["first.bias"], None), answer


def test_crash_of_its_class_is_no_fault_of_the_checkpoint(trained: Path, tmp_path: Path) -> None:
    """The class is made in a process of its own."""
    answer = loaded(trained, tmp_path, "kept", code="; import os; os.abort()")
    assert (answer["status"], answer["forward_ok"], answer["tensors"]) == ("ok", None, 6), answer
    assert "no forward pass was made" in answer["notes"][-1]
