"""Files that lie beside a model: a vocabulary, predictions, an export are neither the latest nor the best."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from harness.checkpoints.command import Asked, checkpoints_report
from harness.checkpoints.inventory import find_checkpoints, take_inventory
from harness.checkpoints.side_files import EXPORT, MODEL, SIDE, apart, is_side_name, kind_of

WEIGHTS = {"w": torch.ones(3)}
BESIDE = {
    "vocab.pt": {"a": 1, "b": 2}, "history.pt": [0.5, 0.4], "notes.pt": {"best": 0.5}, "ids.pt": torch.arange(4),
    "hparams.pt": argparse.Namespace(lr=0.1), "predictions.pt": {"logits": torch.tensor([1.0, float("nan")])},
    "val_preds_40.pth": torch.ones(3), "embeddings.bin.pt": torch.ones(3),
}


def script(path: Path) -> Path:
    torch.jit.script(nn.Linear(2, 2)).save(str(path))
    return path


@pytest.mark.parametrize("model", ["model.pt", "step_40.pt", "model.safetensors", "best/model.pt"])
@pytest.mark.parametrize("name", ["vocab.pt", "history.pt", "notes.pt", "ids.pt", "hparams.pt", "predictions.pt",
                                  "val_preds_40.pth", "model_traced.pt", "predictions.h5"])
def test_side_file_is_no_model_beside_one(name: str, model: str, tmp_path: Path) -> None:
    """Written after the model, under the root, it is neither listed nor the latest."""
    (tmp_path / model).parent.mkdir(exist_ok=True)
    (save_file if model.endswith(".safetensors") else torch.save)(WEIGHTS, tmp_path / model)
    if name == "predictions.h5":
        (tmp_path / name).write_bytes(b"\x89HDF\r\n\x1a\n")
    elif name == "model_traced.pt":
        script(tmp_path / name)
    else:
        torch.save(BESIDE[name], tmp_path / name)
    inventory = take_inventory((tmp_path,))
    (one,) = inventory.checkpoints
    assert (*one.weights, *one.opaque) == (tmp_path / model,)
    assert [path.name for path in inventory.aside] == [name]


@pytest.mark.parametrize("name", ["vocab.pt", "predictions.pt", "hparams.pt"])
def test_side_file_alone_counts(name: str, tmp_path: Path) -> None:
    """Where nothing else was saved, it is what was saved."""
    torch.save(BESIDE[name], tmp_path / name)
    assert [one.path.name for one in find_checkpoints(tmp_path)] == [name]


def test_damaged_model_is_not_passed_over_for_a_side_file(tmp_path: Path) -> None:
    """What is cut short may be a model; a vocabulary beside it proves nothing."""
    torch.save(WEIGHTS, tmp_path / "model.pt")
    (tmp_path / "model.pt").write_bytes((tmp_path / "model.pt").read_bytes()[:300])
    torch.save(BESIDE["vocab.pt"], tmp_path / "vocab.pt")
    found = checkpoints_report(Asked(root=tmp_path))
    assert not found["ok"] and found["latest"] is None and found["aside"] == [str(tmp_path / "vocab.pt")]


def test_side_file_in_a_checkpoint_is_not_loaded_as_a_model(tmp_path: Path) -> None:
    """Of a step's directory only the weights are what a loader gets."""
    (tmp_path / "step_40").mkdir()
    for name, content in (("model.pt", WEIGHTS), ("predictions.pt", BESIDE["predictions.pt"])):
        torch.save(content, tmp_path / "step_40" / name)
    (one,) = find_checkpoints(tmp_path)
    assert [path.name for path in one.opaque] == ["model.pt"] and len(one.marks) == 2


def test_command_loads_the_model_and_not_what_lies_beside(tmp_path: Path) -> None:
    """Also where the vocabulary was written last."""
    torch.save(WEIGHTS, tmp_path / "model.pt")
    torch.save(BESIDE["vocab.pt"], tmp_path / "vocab.pt")
    found = checkpoints_report(Asked(root=tmp_path, verify=True, reload=True))
    assert found["ok"] and found["best"] == str(tmp_path / "model.pt") and found["reload"]["tensors"] == 1


@pytest.mark.parametrize(("name", "is_side"), [
    ("vocab.pt", True), ("train_history.pt", True), ("preds-120.pt", True), ("norm_stats.pt", True),
    ("val_predictions_step_40.h5", True), ("data.pt", True), ("model_config.pt", True), ("best_metrics.pth", True),
    ("model.pt", False), ("best.pt", False), ("final.pt", False), ("vocabulary_model.pt", False), ("ema.pt", False),
    ("dataset_classifier.pt", False), ("step_40.pt", False), ("data2vec.pt", False), ("", False),
])
def test_side_files_are_told_by_name(name: str, is_side: bool) -> None:
    """The whole name has to say so."""
    assert is_side_name(name) is is_side


@pytest.mark.parametrize(("content", "kind"), [
    (WEIGHTS, MODEL), ({"w": torch.ones(2).bfloat16()}, MODEL), ({"i": torch.arange(3)}, SIDE), ([1.0], SIDE),
    ({"w": torch.ones(2).to(torch.float8_e5m2)}, MODEL), ({"i": torch.arange(2), "w": torch.ones(1)}, MODEL),
    ({f"{i}": torch.arange(3) for i in range(50)}, SIDE), ({"w": nn.Linear(2, 2)}, MODEL),
])
def test_archives_are_told_by_what_they_store(content: Any, kind: int, tmp_path: Path) -> None:
    """Floating values make a model; nothing is unpickled."""
    torch.save(content, tmp_path / "x.pt")
    assert kind_of(tmp_path / "x.pt") == kind


def test_torchscript_is_an_export(tmp_path: Path) -> None:
    """It counts where there is no other, and before a vocabulary."""
    exported = script(tmp_path / "m.pt")
    assert kind_of(exported) == EXPORT
    torch.save(BESIDE["vocab.pt"], tmp_path / "vocab.pt")
    assert [one.path for one in find_checkpoints(tmp_path)] == [exported]
    assert apart([], len) == ([], [])
