"""Checkpoints loaded in a child of their own: what it answers, and that nothing of it gets out."""

from __future__ import annotations

import argparse
import collections
import json
import os
import pickle
import random
import sys
import types
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from harness.checkpoints.inventory import find_checkpoints
from harness.checkpoints.reload import Surroundings, Target, reload_checkpoint
from harness.checkpoints.structure import read_structure
from harness.checkpoints.targets import target_of
from harness.checkpoints.tensors import scan_file
from harness.judge.saved import Saved
from harness.supervise.reload import beside_of, chosen_of

TINY_LM = Path(__file__).parents[2] / "fixtures" / "trainers" / "tiny_lm.py"


def where(tmp_path: Path, **more: Any) -> Surroundings:
    return Surroundings(interpreter=Path(sys.executable), workdir=tmp_path, environ=os.environ, **more)


def reloaded(path: Path, tmp_path: Path, **more: Any) -> dict[str, Any]:
    return reload_checkpoint(target_of(find_checkpoints(path)[-1]), where(tmp_path, **more))


def test_plain_tensors_load(tmp_path: Path) -> None:
    """safetensors of any type; the answer has its peak of memory."""
    save_file({"a": torch.ones(3), "b": torch.ones(2, dtype=torch.bfloat16)}, tmp_path / "model.safetensors")
    answer = reloaded(tmp_path, tmp_path)
    assert (answer["status"], answer["adapter"], answer["tensors"]) == ("ok", "safetensors", 2)
    assert answer["peak_memory_bytes"] > 0


def test_torch_archive_is_read_by_the_restricted_loader(tmp_path: Path) -> None:
    """A model's NaN is named; an optimizer's or a callback's infinity is none."""
    state = {"model": {"w": torch.tensor([1.0, float("nan")])}, "optimizer": {"v": torch.tensor([float("inf")])}}
    torch.save(state, tmp_path / "model_step_3.pt")
    answer = reloaded(tmp_path, tmp_path)
    assert (answer["status"], answer["nonfinite"], answer["tensors"]) == ("ok", ["model.w"], 2)


class Evil:
    """Makes a file where it is unpickled."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("pwned",)


@pytest.mark.parametrize("name", ["zip", "bare"])
def test_code_is_refused_unless_allowed(name: str, tmp_path: Path) -> None:
    """Without --allow-pickle nothing runs; with it, in the child's own directory, and the answer says so."""
    path = tmp_path / "model_step_1.pt"
    state = {"w": torch.ones(2), "evil": Evil()}
    if name == "zip":
        torch.save(state, path)
    else:
        path.write_bytes(pickle.dumps({"evil": Evil()}))
    answer = reloaded(tmp_path, tmp_path)
    assert answer["status"] == "refused" and not answer["pickle_allowed"]
    assert ("unsupported global" in answer["error"]) == (name == "zip")
    allowed = reloaded(tmp_path, tmp_path, allow_pickle=True)
    assert allowed["pickle_allowed"] and "unrestricted unpickling was allowed" in allowed["notes"][0]
    assert "--allow-pickle" in allowed["command"] and not list(tmp_path.rglob("pwned"))


def test_damaged_file_fails_with_its_error(tmp_path: Path) -> None:
    """What a loader says is the reason."""
    save_file({"a": torch.ones(3)}, tmp_path / "model.safetensors")
    target = target_of(find_checkpoints(tmp_path)[-1])
    (tmp_path / "model.safetensors").write_bytes(b"no header")
    answer = reload_checkpoint(target, where(tmp_path))
    assert answer["status"] == "failed" and answer["error"]


def test_hanging_load_is_stopped(tmp_path: Path) -> None:
    """At the time limit, and when the harness is told to end; neither is the checkpoint's fault."""
    os.mkfifo(tmp_path / "pipe")
    target = Target(path=tmp_path, adapter="flax", files=(tmp_path / "pipe",))
    slow = Path(tmp_path / "python")
    slow.write_text(f"#!/bin/sh\nexec {sys.executable} -c 'import time; time.sleep(600)'\n")
    slow.chmod(0o755)
    surroundings = Surroundings(interpreter=slow, workdir=tmp_path, environ=os.environ, time_limit_s=1.0)
    answer = reload_checkpoint(target, surroundings)
    assert answer["status"] == "not-attempted" and "within 1 s" in answer["error"]
    cancelled = Surroundings(interpreter=slow, workdir=tmp_path, environ=os.environ, is_cancelled=lambda: True)
    assert "told to end" in reload_checkpoint(target, cancelled)["error"]


def test_too_large_is_not_attempted(tmp_path: Path) -> None:
    """And the command that would do it elsewhere is given."""
    target = Target(path=tmp_path, adapter="transformers", files=(), bytes=1 << 50)
    answer = reload_checkpoint(target, where(tmp_path))
    assert answer["status"] == "not-attempted" and "memory" in answer["error"]
    assert answer["command"] == f"python -m harness checkpoints {tmp_path} --reload"


@pytest.mark.parametrize(("text", "status"), [("exit 3", "failed"), ("kill -9 $$", "not-attempted"),
                                              ("echo nonsense", "failed"), ("echo '[1]'", "failed")])
def test_child_without_an_answer(text: str, status: str, tmp_path: Path) -> None:
    """A crash is a failure; a kill from outside is not the checkpoint's."""
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    target = Target(path=tmp_path, adapter="torch", files=())
    surroundings = Surroundings(interpreter=program, workdir=tmp_path, environ=os.environ)
    assert reload_checkpoint(target, surroundings)["status"] == status


def test_missing_interpreter_is_not_attempted(tmp_path: Path) -> None:
    """It cannot be started."""
    surroundings = Surroundings(interpreter=tmp_path / "none", workdir=tmp_path, environ=os.environ)
    answer = reload_checkpoint(Target(path=tmp_path, adapter="torch", files=()), surroundings)
    assert answer["status"] == "not-attempted"


def test_missing_package_is_not_attempted(tmp_path: Path) -> None:
    """A library that is not installed here is no fault of the checkpoint."""
    pytest.importorskip("torch")
    (tmp_path / "flax.py").write_text("raise ImportError('no flax here')")
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    surroundings = Surroundings(interpreter=Path(sys.executable), workdir=tmp_path, environ=environ)
    answer = reload_checkpoint(Target(path=tmp_path, adapter="flax", files=()), surroundings)
    assert answer["status"] == "not-attempted" and "no flax here" in answer["error"]


def test_bundled_job_is_loaded_by_its_own_classes(tmp_path: Path) -> None:
    """Keys, a forward pass, its evaluation loss and answers; a key that is missing fails."""
    import importlib.util

    spec = importlib.util.spec_from_file_location("tiny_lm_under_test", TINY_LM)
    assert spec is not None and spec.loader is not None
    job = importlib.util.module_from_spec(spec)
    sys.modules["tiny_lm_under_test"] = job
    spec.loader.exec_module(job)
    model = job.TinyLM(job.ModelConfig())
    place = tmp_path / "step_000001"
    place.mkdir()
    (place / "config.json").write_text(json.dumps({"model_type": "tiny_lm", "d_model": 64}))
    state = dict(model.state_dict())
    save_file(state, place / "model.safetensors")
    answer = reloaded(tmp_path, tmp_path)
    assert (answer["status"], answer["forward_ok"], answer["adapter"]) == ("ok", True, "tiny_lm")
    assert answer["eval_loss"] > 0 and len(answer["samples"]) == 3
    del state["head.weight"]
    save_file(state, place / "model.safetensors")
    answer = reloaded(tmp_path, tmp_path)
    assert (answer["status"], answer["missing"]) == ("failed", ["head.weight"])


def test_child_ends_with_its_parent(tmp_path: Path) -> None:
    """When who asked is gone, its standard input ends, and so does it."""
    import subprocess

    from harness.checkpoints.reload import CHILD

    request = {"adapter": "flax", "files": ["/dev/stdin"], "path": str(tmp_path), "result_fd": 1}
    (tmp_path / "flax.py").write_text("import time; time.sleep(600)")
    child = subprocess.Popen([sys.executable, str(CHILD)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert child.stdin is not None and child.stdout is not None
    child.stdin.write(json.dumps(request).encode() + b"\n")
    child.stdin.close()
    assert child.wait(timeout=300) == 1
    child.stdout.close()


@pytest.mark.parametrize("format", ["safetensors", "bin"])
def test_memory_is_asked_for_by_the_weights_alone(format: str, tmp_path: Path) -> None:
    """An optimizer's state beside them is not loaded, and does not count."""
    place = tmp_path / "checkpoint-1"
    place.mkdir()
    state = {"a": torch.ones(1000)}
    if format == "bin":
        torch.save(state, place / "pytorch_model.bin")
    else:
        save_file(state, place / "model.safetensors")
    torch.save({"v": torch.ones(100_000)}, place / "optimizer.pt")
    (one,) = find_checkpoints(tmp_path)
    assert one.size > 400_000 and target_of(one).bytes < 10_000


def saved(*paths: str, step: int | None = None) -> tuple[Saved, ...]:
    return tuple(Saved(path=path, step=step, status="not-inspected") for path in paths)


def test_likeliest_delivered_models_are_loaded() -> None:
    """The best one though others come behind it by name; of the rest those that may be delivered, and no start."""
    numbered = saved("s/step_5.pt", step=5)
    others = saved("s/best.pt", "s/head_1.pt", "s/head_2.pt", "s/init.pt", "s/last.pt", "s/x.pt", "s/y.pt", "s/z.pt")
    chosen = chosen_of((*others, *numbered), numbered[0])
    assert [one.path for one in chosen] == ["s/step_5.pt", "s/best.pt"]
    assert [one.path for one in beside_of(others, chosen)] == ["s/last.pt", "s/x.pt", "s/y.pt", "s/z.pt"]
    assert [one.path for one in chosen_of(saved("s/a.pt", "s/b.pt"), None)] == ["s/b.pt"]


def test_torchscript_is_refused_by_its_name(tmp_path: Path) -> None:
    """A program with its weights is no broken checkpoint, and the answer says what to do."""
    torch.jit.script(torch.nn.Linear(2, 2)).save(str(tmp_path / "model.pt"))
    answer = reloaded(tmp_path, tmp_path)
    assert answer["status"] == "refused" and "TorchScript" in answer["error"] and "state_dict" in answer["error"]


def _trained(**more: Any) -> dict[str, Any]:
    return {"model": {"w": torch.ones(3)}, **more}


def _counts() -> Any:
    counts = collections.defaultdict(list)
    counts["a"].append(1)
    return counts


COMMON = {
    "best": np.float64(0.5), "rng": (random.getstate(), np.random.get_state()), "seen": np.arange(3),
    "args": argparse.Namespace(lr=0.1, out=Path("a/b")), "cfg": types.SimpleNamespace(depth=2),
    "at": datetime.now(timezone.utc), "took": timedelta(seconds=3), "counts": _counts(),
    "rows": np.array([None, {"a": 1}], dtype=object), "names": np.array(["a"]),
    "generator": np.random.default_rng(0).bit_generator.state,
}


def test_common_training_state_is_no_reason_to_refuse(tmp_path: Path) -> None:
    """numpy's generators and scalars, arguments, paths and times: making them runs no code of the checkpoint."""
    torch.save(_trained(**COMMON), tmp_path / "step_3.pt")
    answer = reloaded(tmp_path, tmp_path)
    assert (answer["status"], answer["tensors"], answer["pickle_allowed"]) == ("ok", 1, False), answer["error"]
    assert not read_structure(find_checkpoints(tmp_path)[-1]).notes


@pytest.mark.parametrize("state", [
    {"rows": np.array([None, Evil()], dtype=object)}, {"args": argparse.Namespace(evil=[Evil()])},
], ids=lambda state: next(iter(state)))
def test_code_within_common_state_is_refused(state: dict[str, Any], tmp_path: Path) -> None:
    """What is allowed holds nothing that is not."""
    torch.save(_trained(**state), tmp_path / "step_3.pt")
    answer = reloaded(tmp_path, tmp_path)
    assert answer["status"] == "refused" and "mkdir" in answer["error"]


class Factory:
    """A defaultdict whose factory is a function of the system."""

    def __reduce__(self) -> Any:
        return collections.defaultdict, (os.getcwd,)


def test_factory_has_to_be_plain(tmp_path: Path) -> None:
    """A defaultdict of another callable is refused."""
    torch.save(_trained(counts=Factory()), tmp_path / "step_3.pt")
    assert reloaded(tmp_path, tmp_path)["status"] == "refused"


CAUSAL = torch.full((4, 4), float("-inf")).triu(1)
INFINITE = {
    "attn.causal": (CAUSAL, True), "attn.bias": (CAUSAL, True), "attn.mask": (CAUSAL.T.clone(), True),
    "vocab_pad": (torch.tensor([0.0, 0.0, -torch.inf]), True), "ones": (torch.where(CAUSAL < 0, CAUSAL, 1.0), True),
    "half": (CAUSAL.bfloat16(), True), "best": (torch.tensor(torch.inf), True), "model.best_loss": (
        torch.tensor(torch.inf), True), "losses": (torch.tensor([torch.nan, 0.5]), True), "history.train": (
        torch.tensor([torch.nan]), True),
    "fc.weight": (CAUSAL, False), "fc.bias": (torch.tensor([0.0, -torch.inf]), False),
    "table": (torch.tensor([0.0, 1.0, -torch.inf]), False), "all": (torch.full((3,), -torch.inf), False),
    "plus": (-CAUSAL, False), "nan": (torch.tensor([0.0, torch.nan, -torch.inf]), False), "losses.0.weight": (
        torch.tensor([torch.nan]), False), "x.mask": (torch.tensor([torch.nan, 0.0]), False),
}


@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
def test_infinities_by_design_are_told_from_broken_weights(suffix: str, tmp_path: Path) -> None:
    """-inf beside one other value is a mask whatever its name; of weights nothing is, and NaN and +inf never are."""
    state = {name: tensor.clone().contiguous() for name, (tensor, _) in INFINITE.items()}
    path = tmp_path / f"step_3.{suffix}"
    if suffix == "pt":
        torch.save({"fc.w": torch.ones(3), **state}, path)
        found = reloaded(tmp_path, tmp_path)["nonfinite"]
    else:
        save_file(state, path)
        found = list(scan_file(path).nonfinite)
    assert set(found) == {name for name, (_, is_healthy) in INFINITE.items() if not is_healthy}


def test_mask_over_several_blocks_is_read_to_its_end(tmp_path: Path) -> None:
    """One other value behind the first block, and it is none."""
    mask = torch.full((1500, 1500), float("-inf")).triu(1)
    save_file({"causal": mask}, tmp_path / "m.safetensors")
    assert scan_file(tmp_path / "m.safetensors").nonfinite == ()
    mask[-1, 0] = 3.0
    save_file({"causal": mask}, tmp_path / "m.safetensors")
    assert scan_file(tmp_path / "m.safetensors").nonfinite == ("causal",)
