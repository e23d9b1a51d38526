"""Checkpoints that Keras, Flax and Orbax wrote, loaded in the child and held against their start; each is one where
the weights moved, one where only the optimizer and BatchNorm's statistics did, and one with a NaN.

Needs the environment of constraints/trainers.txt; under a minute.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.checkpoints.function import parse_function
from harness.checkpoints.inventory import find_checkpoints
from harness.checkpoints.reload import Surroundings, reload_checkpoint
from harness.checkpoints.targets import starts_of, target_of

PROGRAM = Path(__file__).parent / "programs" / "save_values.py"
KINDS = ("keras", "keras-weights", "flax", "orbax")


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The directory that the program filled, made once a kind."""
    made: dict[str, Path] = {}

    def save(kind: str) -> Path:
        if kind not in made:
            made[kind] = tmp_path_factory.mktemp(kind)
            subprocess.run([sys.executable, str(PROGRAM), kind, str(made[kind])], check=True, timeout=240)
        return made[kind]

    return save


def loaded(place: Path, step: int, function: str = "", backend: str = "torch") -> dict[str, Any]:
    """The child's answer about the checkpoint of a step, with the first one as its start."""
    own = find_checkpoints(place)
    one = next(one for one in own if one.step == step)
    where = Surroundings(
        interpreter=Path(sys.executable), workdir=place, environ={**os.environ, "KERAS_BACKEND": backend},
        function=parse_function(function, PROGRAM.parent) if function else None)
    return reload_checkpoint(replace(target_of(one), starts=starts_of(one, own, None)), where)


@pytest.mark.parametrize("kind", KINDS)
def test_trained_weights_differ_from_the_start(kind: str, saved: Callable[[str], Path]) -> None:
    """Every format loads by its own adapter, and its change is told by names."""
    answer = loaded(saved(kind), 5)
    assert (answer["status"], answer["adapter"], answer["nonfinite"]) == ("ok", kind, []), answer
    found = answer["comparison"]
    assert (found["kind"], found["start_kind"]) == ("changed", "own-step-0")
    assert not [name for name in found["changed_names"] if "opt" in name]


@pytest.mark.parametrize("kind", KINDS)
def test_weights_of_the_start_are_told(kind: str, saved: Callable[[str], Path]) -> None:
    """The optimizer's state and BatchNorm's statistics moved, and none of them is learning."""
    kinds = {"buffers-only"} if kind.startswith("keras") else {"none"}
    assert loaded(saved(kind), 9)["comparison"]["kind"] in kinds


@pytest.mark.parametrize("kind", KINDS)
def test_nan_is_found(kind: str, saved: Callable[[str], Path]) -> None:
    """In formats that only their loader reads."""
    answer = loaded(saved(kind), 20)
    assert answer["values_read"] and answer["nonfinite"]


@pytest.mark.parametrize("kind", KINDS[1:])
def test_model_is_used_by_the_users_function(kind: str, saved: Callable[[str], Path]) -> None:
    """Formats whose model is not known get their forward pass from --reload-with; a NaN in the weights shows."""
    function = f"use_values.py:{kind.replace('-', '_')}"
    found = loaded(saved(kind), 5, function)
    assert (found["status"], found["forward_ok"], found["function"]["status"]) == ("ok", True, "ok"), found
    assert list(found["function"]["metrics"]) == ["val_loss" if kind == "keras-weights" else "eval_loss"]
    if kind == "flax":
        assert loaded(saved(kind), 20, function)["forward_ok"] is False


def test_keras_loads_where_nothing_names_a_backend(saved: Callable[[str], Path], tmp_path: Path,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    """The configured one, tensorflow, is not installed; torch is."""
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    answer = loaded(saved("keras"), 5, backend="")
    assert (answer["status"], answer["forward_ok"]) == ("ok", True), answer
