"""Checkpoints are found, judged whole only when they are, and compared so that only learning counts."""

from __future__ import annotations

import hashlib
import json
import os
import struct
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from harness.checkpoints.compare import compare
from harness.checkpoints.inspect import CheckpointFacts, inspect_run, verify_checkpoint
from harness.checkpoints.inventory import Snapshot, find_checkpoints, take_snapshot
from harness.checkpoints.naming import likeliest_delivered, step_of
from harness.checkpoints.tensors import TensorFileError, read_header, scan_file, to_float

Tensors = dict[str, torch.Tensor]


def weights(seed: int = 0, dtype: torch.dtype = torch.float32, rows: int = 8) -> Tensors:
    """A small model with an embedding, a matrix, a bias and a counter."""
    rng = torch.Generator().manual_seed(seed)
    return {
        "embed.weight": torch.randn(rows, 16, generator=rng).to(dtype),
        "layer.weight": torch.randn(16, 16, generator=rng).to(dtype),
        "layer.bias": torch.randn(16, generator=rng).to(dtype),
    }


def save(path: Path, tensors: Tensors) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, path)
    return path


def mapped(tensors: Tensors, change: Any) -> Tensors:
    return {name: change(name, tensor.clone()).contiguous() for name, tensor in tensors.items()}


def raw(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


# Inventory


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("step_000012", 12), ("checkpoint-12", 12), ("step-12", 12), ("global_step120", 120), ("ckpt_7", 7),
        ("epoch=1-step=20", 20), ("iter_0000100", 100), ("model_step_5", 5), ("epoch_3", None),
        ("final", None),
        ("model-00001-of-00003", None), ("footstep9", None), ("v2", None),
    ],
)  # fmt: skip
def test_step_is_told_by_the_name(name: str, step: int | None) -> None:
    """Where it says so, and only there."""
    assert step_of(name) == step


def test_checkpoints_come_in_numeric_order(tmp_path: Path) -> None:
    """By number, never by name or time; unfinished, hidden and linked ones are left out."""
    for name in (
        "checkpoint-1000",
        "checkpoint-9",
        "checkpoint-30",
        "tmp-checkpoint-40",
        "checkpoint-50.tmp",
        ".checkpoint-60",
    ):
        save(tmp_path / name / "model.safetensors", weights())
    save(tmp_path / "checkpoint-70" / "model.safetensors.incomplete", weights())
    save(tmp_path / "model-step-5.safetensors", weights())
    save(tmp_path / "step_7" / "actor" / "model.safetensors", weights())
    save(tmp_path / "step_7" / "critic" / "model.safetensors", weights())
    save(tmp_path / "step_7" / "optimizer.safetensors", weights())
    (tmp_path / "latest").symlink_to("checkpoint-9")
    found = find_checkpoints(tmp_path)
    assert [(one.path.name, one.step) for one in found] == [
        ("model-step-5.safetensors", 5), ("step_7", 7), ("checkpoint-9", 9), ("checkpoint-30", 30),
        ("checkpoint-1000", 1000),
    ]  # fmt: skip
    assert (len(found[1].weights), len(found[1].state)) == (2, 1)


def test_experiment_directory_is_no_checkpoint(tmp_path: Path) -> None:
    """A name that goes on behind its number holds checkpoints and is none."""
    for step in (10, 20):
        save(tmp_path / "step2_finetune" / f"step_{step}" / "model.safetensors", weights())
    assert [one.step for one in find_checkpoints(tmp_path)] == [10, 20]


def test_models_side_by_side_are_checkpoints_each(tmp_path: Path) -> None:
    """best and last are two; shards are one."""
    for name in ("best", "last"):
        save(tmp_path / f"{name}.safetensors", weights())
    for index in (1, 2):
        save(tmp_path / "m" / f"model-0000{index}-of-00002.safetensors", weights(index))
    assert [one.path.name for one in find_checkpoints(tmp_path)] == [
        "best.safetensors",
        "last.safetensors",
        "m",
    ]


# Files


REUSED_DIR = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
FLOATS = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2,
    torch.float8_e4m3fnuz, torch.float8_e5m2fnuz,
]  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS)
def test_every_floating_type_is_read_and_its_nan_found(tmp_path: Path, dtype: torch.dtype) -> None:
    """Values as torch has them; digest as hashlib has it; one NaN anywhere is named."""
    tensors = {"a": torch.randn(7, 3).to(dtype), "i": torch.arange(5), "b": torch.randn(11).to(dtype)}
    path = save(tmp_path / "m.safetensors", tensors)
    scan = scan_file(path)
    assert (scan.sha256, scan.nonfinite) == (hashlib.sha256(path.read_bytes()).hexdigest(), ())
    for info in scan.header.tensors:
        values = to_float(path.read_bytes()[info.start : info.end], info.dtype)
        assert np.array_equal(values, tensors[info.name].double().flatten().numpy())
    tensors["b"][10] = float("nan")
    assert scan_file(save(path, tensors)).nonfinite == ("b",)


def test_infinities_count_except_in_a_mask(tmp_path: Path) -> None:
    """A causal mask is infinite by design; a NaN in it is not."""
    mask = torch.full((4, 4), float("-inf")).triu(1)
    tensors = {
        "attn.mask": mask,
        "w": torch.tensor([1.0, float("inf")]),
        "x.mask": torch.tensor([float("nan")]),
    }
    assert set(scan_file(save(tmp_path / "m.safetensors", tensors)).nonfinite) == {"w", "x.mask"}


def test_scan_over_blocks_is_exact(tmp_path: Path) -> None:
    """Tensors across block borders, odd sizes and empty ones: digest and finite values hold."""
    tensors = {
        "odd": torch.ones(3, dtype=torch.uint8),
        "big": torch.randn(2_500_001),
        "none": torch.zeros(0, 4),
        "h": torch.randn(5).half(),
    }
    path = save(tmp_path / "m.safetensors", tensors)
    assert scan_file(path).sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    tensors["big"][-1] = float("inf")
    assert scan_file(save(path, tensors)).nonfinite == ("big",)


F32 = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
HOSTILE = {
    "empty": b"",
    "lfs": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
    "zeros": bytes(4096),
    "short": b"\x10\0\0",
    "header-beyond-file": struct.pack("<Q", 1 << 60) + b"{}",
    "no-json": raw(b"{nope}"),
    "no-object": raw([1]),
    "nan": raw(b'{"a": NaN}'),
    "deep": raw(b"[" * 100_000),
    "no-utf8": raw(b"\xff\xff"),
    "twice": raw(b'{"a":' + json.dumps(F32).encode() + b',"a":' + json.dumps(F32).encode() + b"}", bytes(4)),
    "overlap": raw({"a": F32, "b": {**F32, "data_offsets": [2, 6]}}, bytes(6)),
    "gap": raw({"a": F32, "b": {**F32, "data_offsets": [8, 12]}}, bytes(12)),
    "size": raw({"a": {**F32, "shape": [2]}}, bytes(4)),
    "huge-shape": raw({"a": {**F32, "shape": [1 << 62] * 60}}, bytes(4)),
    "huge-number": raw(
        b'{"a": {"dtype": "F32", "shape": [' + b"9" * 5000 + b'], "data_offsets": [0, 4]}}', bytes(4)
    ),
    "negative": raw({"a": {**F32, "data_offsets": [-4, 0]}}, bytes(4)),
    "bool": raw({"a": {**F32, "shape": [True]}}, bytes(4)),
    "dtype": raw({"a": {**F32, "dtype": "F99"}}, bytes(4)),
    "cut": raw({"a": F32}, bytes(3)),
    "more": raw({"a": F32}, bytes(5)),
    "null": raw({"a": None}),
    "metadata": raw({"__metadata__": {"a": 1}}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_file_is_refused_with_a_reason(tmp_path: Path, name: str) -> None:
    """Every damage has a reason, and none is a crash."""
    path = tmp_path / "m.safetensors"
    path.write_bytes(HOSTILE[name])
    for read in (read_header, scan_file):
        with pytest.raises(TensorFileError) as refused:
            read(path)
        assert str(refused.value)


@settings(max_examples=200, deadline=None, suppress_health_check=REUSED_DIR)
@given(
    cut=st.integers(0, 2000),
    flips=st.lists(st.tuples(st.integers(0, 400), st.integers(1, 255)), min_size=1, max_size=4),
)
def test_damaged_header_never_crashes(tmp_path: Path, cut: int, flips: list[tuple[int, int]]) -> None:
    """Any cut is refused; any flipped byte is refused or leaves a layout that covers the file exactly."""
    path = save(tmp_path / "m.safetensors", weights(rows=2))
    good = path.read_bytes()
    path.write_bytes(good[: min(cut, len(good) - 1)])
    with pytest.raises(TensorFileError):
        read_header(path)
    data = bytearray(good)
    for at, bits in flips:
        data[at % len(data)] ^= bits
    path.write_bytes(data)
    try:
        header = read_header(path)
        scan_file(path)
    except TensorFileError:
        return
    assert sum(t.end - t.start for t in header.tensors) == len(data) - header.data_start


# Comparison

DECAY = 0.97


def _train(name: str, tensor: torch.Tensor) -> torch.Tensor:
    return tensor + 1e-4 * torch.randn(tensor.shape, generator=torch.Generator().manual_seed(9))


COMPARISONS = {
    "same": (lambda n, t: t, "none"),
    "trained": (_train, "changed"),
    "one-element": (
        lambda n, t: t.index_put((torch.tensor(0),), t[0] + 1) if n == "layer.bias" else t,
        "changed",
    ),
    "decayed": (lambda n, t: t * DECAY, "decay-only"),
    "decayed-stepwise": (lambda n, t: [t.mul_(1 - 1e-3) for _ in range(200)][-1], "decay-only"),
    "decayed-but-biases": (lambda n, t: t if n.endswith("bias") else t * DECAY, "decay-only"),
    "decayed-and-trained": (
        lambda n, t: _train(n, t * DECAY) if n.endswith("bias") else t * DECAY,
        "changed",
    ),
    "two-factors": (lambda n, t: t * (0.5 if n.endswith("bias") else DECAY), "changed"),
    "grown": (lambda n, t: t * 1.01, "changed"),
    "halved-precision": (lambda n, t: t.bfloat16(), "cast-only"),
    "half": (lambda n, t: t.half(), "cast-only"),
    "doubled-precision": (lambda n, t: t.double(), "cast-only"),
    "trained-in-double": (
        lambda n, t: t.double() * (1 + 1e-9 * torch.randn(t.shape, dtype=torch.double).sign()),
        "changed",
    ),
    "resized": (lambda n, t: torch.cat([t, t[:2]]) if n == "embed.weight" else t, "resize-only"),
}


@pytest.mark.parametrize("name", COMPARISONS)
def test_comparison_tells_learning_from_its_doubles(tmp_path: Path, name: str) -> None:
    """A cast, a resize and one common factor are named; any other change is a change."""
    change, kind = COMPARISONS[name]
    start = save(tmp_path / "a.safetensors", weights())
    end = save(tmp_path / "b.safetensors", mapped(weights(), change))
    result = compare([start], [end])
    assert result.kind == kind, result
    if kind == "decay-only" and "stepwise" not in name:
        assert result.decay_factor == pytest.approx(DECAY, abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_short_types_tell_decay_from_training(tmp_path: Path, dtype: torch.dtype) -> None:
    """Decay never lets a weight grow; a small step lets about half of those that move."""
    start = weights(dtype=dtype)
    decayed = mapped(start, lambda n, t: (t.float() * 0.9).to(dtype))
    trained = mapped(start, lambda n, t: (t.float() + 3e-3 * torch.randn(t.shape)).to(dtype))
    paths = [
        save(tmp_path / f"{n}.safetensors", t) for n, t in (("a", start), ("b", decayed), ("c", trained))
    ]
    assert compare(paths[:1], paths[1:2]).kind == "decay-only"
    assert compare(paths[:1], paths[2:]).kind == "changed"


def test_adamw_on_zero_gradients_is_decay(tmp_path: Path) -> None:
    """What torch's AdamW does without a gradient is found out; with one it is learning."""
    for gradient, kind in ((0.0, "decay-only"), (1e-3, "changed")):
        model = torch.nn.Linear(16, 16)
        start = save(tmp_path / "a.safetensors", {k: v.clone() for k, v in model.state_dict().items()})
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
        for _ in range(20):
            for parameter in model.parameters():
                parameter.grad = torch.randn_like(parameter) * gradient
            optimizer.step()
        assert compare([start], [save(tmp_path / "b.safetensors", dict(model.state_dict()))]).kind == kind


def test_batch_norm_statistics_are_no_learning(tmp_path: Path) -> None:
    """They change in every forward pass."""
    model = torch.nn.BatchNorm1d(4)
    start = save(tmp_path / "a.safetensors", {k: v.clone() for k, v in model.state_dict().items()})
    model(torch.randn(8, 4))
    assert (
        compare([start], [save(tmp_path / "b.safetensors", dict(model.state_dict()))]).kind == "buffers-only"
    )


def test_zero_start_that_moves_is_a_change(tmp_path: Path) -> None:
    """lora_B begins at 0, and 0 times any factor stays 0."""
    start = save(tmp_path / "a.safetensors", {"lora_B": torch.zeros(16, 4)})
    end = save(tmp_path / "b.safetensors", {"lora_B": torch.full((16, 4), 1e-6)})
    assert (result := compare([start], [end])).kind == "changed" and result.max_abs_change == pytest.approx(
        1e-6
    )


def test_no_common_name_is_not_comparable(tmp_path: Path) -> None:
    """Missing and added names are told."""
    a, b = (
        save(tmp_path / "a.safetensors", {"x": torch.ones(2)}),
        save(tmp_path / "b.safetensors", {"y": torch.ones(2)}),
    )
    assert ((result := compare([a], [b])).kind, result.missing, result.added) == (
        "not-comparable",
        ("x",),
        ("y",),
    )


# A run


def inspected(root: Path, snapshot: Snapshot | None = None, **more: Any) -> CheckpointFacts:
    facts = inspect_run([root], snapshot or Snapshot(), time.time() - 3600, **more)
    json.dumps(facts.to_json(), allow_nan=False)
    return facts


def test_run_with_start_and_end_is_compared(tmp_path: Path) -> None:
    """Own step 0 is the start; the last is read in full, the others by header."""
    for step in (0, 10, 100):
        save(tmp_path / f"step_{step:06d}" / "model.safetensors", weights(step))
        save(tmp_path / f"step_{step:06d}" / "optimizer.safetensors", {"step": torch.tensor(float(step))})
    facts = inspected(tmp_path)
    assert [(c.step, c.status, c.read_in_full, c.finite) for c in facts.checkpoints] == [
        (0, "whole", False, None), (10, "whole", False, None), (100, "whole", True, True),
    ]  # fmt: skip
    assert facts.change is not None and (facts.change.start_kind, facts.change.kind) == (
        "own-step-0",
        "changed",
    )
    assert (facts.last_step, facts.change.comparison.changed, facts.change.end_step) == (100, 3, 100)
    assert {f.role: bool(f.sha256) for f in facts.checkpoints[-1].files} == {"weights": True, "state": False}


def test_frozen_run_is_unchanged_although_its_state_moves(tmp_path: Path) -> None:
    """Optimizer and generator states prove nothing."""
    for step in (0, 10):
        save(tmp_path / f"step_{step}" / "model.safetensors", weights())
        for state in ("optimizer", "rng", "scheduler"):
            save(tmp_path / f"step_{step}" / f"{state}.safetensors", {"x": torch.full((4,), float(step))})
    assert (facts := inspected(tmp_path)).change is not None and facts.change.kind == "none"


def test_old_checkpoints_are_not_of_this_run(tmp_path: Path) -> None:
    """Unchanged, touched before the launch, or copied in with their old time."""
    old = save(tmp_path / "step_10" / "model.safetensors", weights())
    rewritten = save(tmp_path / "step_20" / "model.safetensors", weights())
    snapshot = Snapshot.from_json(
        json.loads(json.dumps(take_snapshot([tmp_path, tmp_path / "none"]).to_json()))
    )
    save(rewritten, weights(3))
    copied = save(tmp_path / "step_30" / "model.safetensors", weights())
    os.utime(copied, (time.time() - 86400,) * 2)
    facts = inspected(tmp_path, snapshot)
    assert ([c.step for c in facts.checkpoints], facts.earlier, old.exists()) == ([20], 2, True)


def test_resume_compares_with_what_it_resumed_from(tmp_path: Path) -> None:
    """Also where the resume point is the directory of all checkpoints: then the newest that was there."""
    for step in (5, 10):
        save(tmp_path / f"step_{step}" / "model.safetensors", weights(step))
    snapshot = take_snapshot([tmp_path])
    save(tmp_path / "step_20" / "model.safetensors", weights(10))
    for start in (tmp_path, tmp_path / "step_10"):
        facts = inspected(tmp_path, snapshot, start_weights=start)
        assert facts.change is not None
        assert (facts.change.start_kind, facts.change.start_step, facts.change.kind) == (
            "start-weights",
            10,
            "none",
        )


def test_old_file_beside_a_new_one_is_left_out(tmp_path: Path) -> None:
    """A base model in the same directory is no part of what the run saved."""
    save(tmp_path / "base.safetensors", weights(1))
    snapshot = take_snapshot([tmp_path])
    save(tmp_path / "last.safetensors", weights(2))
    facts = inspected(tmp_path, snapshot)
    assert [(Path(c.path).name, c.status, len(c.files)) for c in facts.checkpoints] == [
        ("last.safetensors", "whole", 1)
    ]


def test_one_checkpoint_without_a_start_is_not_compared(tmp_path: Path) -> None:
    """Unproven, with its reason; nothing at all has another."""
    save(tmp_path / "c" / "step_10" / "model.safetensors", weights())
    assert inspected(tmp_path / "c").change is None and "no start weights" in str(
        inspected(tmp_path / "c").why_not_compared
    )
    assert "no whole" in str(inspected(tmp_path / "none").why_not_compared)


def test_nan_in_the_last_weights_is_named(tmp_path: Path) -> None:
    """Only in the weights, nowhere in the log."""
    bad = weights()
    bad["layer.bias"][3] = float("nan")
    save(tmp_path / "step_1" / "model.safetensors", weights())
    save(tmp_path / "step_2" / "model.safetensors", bad)
    last = inspected(tmp_path).checkpoints[-1]
    assert (last.finite, last.nonfinite, last.nonfinite_count) == (False, ("layer.bias",), 1)


def test_half_written_last_checkpoint_leaves_the_one_before(tmp_path: Path) -> None:
    """The newest whole one is named, the damaged one with its reason."""
    for step in (0, 10, 20):
        path = save(tmp_path / f"step_{step}" / "model.safetensors", weights(step))
    path.write_bytes(path.read_bytes()[:-7])
    facts = inspected(tmp_path)
    assert facts.checkpoints[-1].status == "damaged" and "7 of" in facts.checkpoints[-1].problems[0]
    assert (facts.latest, facts.last_step) == (str(tmp_path / "step_10"), 10)


def test_shards_and_index_must_be_complete(tmp_path: Path) -> None:
    """A missing shard, a tensor that no shard holds, an index that escapes its directory."""
    root = tmp_path / "step_1"
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    save(root / names[0], {"a": torch.ones(1)})
    save(root / names[1], {"b": torch.ones(1)})
    index = root / "model.safetensors.index.json"
    for weight_map, problem in (
        ({"a": names[0], "b": names[1]}, None),
        ({"a": names[0], "c": names[1]}, "lacks 1 tensor"),
        ({"a": "../x.safetensors"}, "not there"),
        ([], "cannot be read"),
    ):
        index.write_text(json.dumps({"weight_map": weight_map}))
        (seen,) = map(verify_checkpoint, find_checkpoints(root))
        assert (seen.status == "whole") == (problem is None) and (
            problem is None or problem in seen.problems[0]
        )
    index.unlink()
    (root / names[1]).unlink()
    (seen,) = map(verify_checkpoint, find_checkpoints(root))
    assert seen.problems == (f"1 shard(s) are missing: {names[1]}",)


def test_pickles_are_listed_and_never_opened(tmp_path: Path) -> None:
    """A pickle that would run code is not inspected, and its step still counts."""

    class Evil:
        def __reduce__(self) -> Any:
            return (Path(tmp_path / "pwned").touch, ())

    for name in ("checkpoint-5/pytorch_model.bin", "checkpoint-9/last.ckpt"):
        (tmp_path / name).parent.mkdir()
        torch.save(Evil(), tmp_path / name)
    facts = inspected(tmp_path)
    assert [(c.step, c.status) for c in facts.checkpoints] == [(5, "not-inspected"), (9, "not-inspected")]
    assert (facts.last_step, facts.change, (tmp_path / "pwned").exists()) == (9, None, False)


def test_delivered_model_that_equals_the_start_is_told(tmp_path: Path) -> None:
    """step_000010 is trained; the `final` model beside it holds the weights of step 0."""
    import torch
    from safetensors.torch import save_file

    from harness.checkpoints.inspect import inspect_run
    from harness.checkpoints.inventory import take_snapshot

    before = take_snapshot([tmp_path])
    start, trained = {"w": torch.zeros(8)}, {"w": torch.ones(8)}
    for name, weights in (("step_000000", start), ("step_000010", trained), ("final", start)):
        (tmp_path / name).mkdir()
        save_file(weights, tmp_path / name / "model.safetensors")
    facts = inspect_run([tmp_path], before, 0.0)
    assert facts.change is not None
    assert facts.change.kind == "changed"
    assert facts.delivered_unchanged == (str(tmp_path / "final"),)
    save_file(trained, tmp_path / "final" / "model.safetensors")
    assert inspect_run([tmp_path], before, 0.0).delivered_unchanged == ()


@pytest.mark.parametrize(("paths", "count", "chosen"), [
    (["a/best.pt", "a/x.pt", "a/y.pt"], 1, ["a/best.pt"]),
    (["a/best.pt", "a/last.pt", "a/z.pt"], 2, ["a/best.pt", "a/last.pt"]),
    (["a/best/model.pt", "a/other/model.pt"], 1, ["a/best/model.pt"]),
    (["a/merged", "a/teacher", "a/zz"], 2, ["a/merged", "a/zz"]),
    (["a", "a/critic", "a/vae/decoder"], 1, ["a"]),
    (["a/model.safetensors", "a/z/model.safetensors"], 1, ["a/model.safetensors"]),
    (["a/base_merged", "a/u"], 1, ["a/base_merged"]),
    (["a/u", "a/v"], 1, ["a/v"]),
    (["a/restful", "a/v"], 1, ["a/v"]),
    (["a/u"], 4, ["a/u"]),
    ([], 2, []),
])
def test_likeliest_delivered_models_are_preferred(paths: list[str], count: int, chosen: list[str]) -> None:
    """By what they are called, then by how near the root they lie, then the later one."""
    assert likeliest_delivered(paths, lambda path: path, count) == chosen


@pytest.mark.parametrize(("broken", "is_told"), [("best", True), ("final", True), ("zz_teacher", False)])
def test_models_that_are_likeliest_delivered_are_read(broken: str, is_told: bool, tmp_path: Path) -> None:
    """NaN in the best or the final model is found, although other models come behind it by name."""
    for name in ("best", "final", "probe_a", "probe_b", "zz_teacher"):
        save(tmp_path / name / "model.safetensors", {"w": torch.full((4,), float("nan") if name == broken else 1.0)})
    save(tmp_path / "step_000005" / "model.safetensors", {"w": torch.ones(4)})
    told = {Path(one.path).name for one in inspected(tmp_path).checkpoints if one.nonfinite}
    assert told == ({broken} if is_told else set())


def adapter(path: Path, value: float, config: str = "{}") -> None:
    save(path / "adapter_model.safetensors", {"q.lora_A": torch.randn(2, 4), "q.lora_B": torch.full((4, 2), value)})
    (path / "adapter_config.json").write_text(config)


def test_adapter_is_compared_with_its_zeros(tmp_path: Path) -> None:
    """lora_B starts at 0, so that one checkpoint tells whether it was trained; other starts are not assumed."""
    pissa = '{"init_lora_weights": "pissa"}'
    for value, config, kind in ((1e-9, "{}", "changed"), (0.0, "{}", "none"), (0.0, pissa, "")):
        adapter(tmp_path / "checkpoint-5", value, config)
        change = inspected(tmp_path).change
        assert (change.kind if change else "") == kind
        assert change is None or change.start_kind == "adapter-zero"


@pytest.mark.parametrize("kind", ["safetensors", "pt"])
def test_last_checkpoint_that_repeats_an_earlier_one_is_told(kind: str, tmp_path: Path) -> None:
    """By bytes, or by an archive's own checksums: the step beside the tensors differs."""
    for step, value in ((0, 0.0), (5, 1.0), (10, 2.0), (15, 1.0)):
        if kind == "pt":
            torch.save({"w": torch.full((9,), value), "step": step}, tmp_path / f"model_step_{step}.pt")
        else:
            save(tmp_path / f"step_{step}" / "model.safetensors", {"w": torch.full((9,), value)})
        repeated = inspected(tmp_path).repeated
        assert [step_of(Path(path).name) for path in repeated] == ([15, 5] if step == 15 else [])


def test_lost_tensors_are_told(tmp_path: Path) -> None:
    """Those that the one before holds; other names altogether are another layout."""
    save(tmp_path / "step_5" / "model.safetensors", weights(1))
    fewer = weights(2)
    del fewer["layer.bias"]
    save(tmp_path / "step_10" / "model.safetensors", fewer)
    facts = inspected(tmp_path)
    assert (facts.lost, facts.lost_from) == (("layer.bias",), str(tmp_path / "step_5"))
    save(tmp_path / "step_10" / "model.safetensors", {f"base.{name}": value for name, value in weights(2).items()})
    assert inspected(tmp_path).lost == ()


def test_unfinished_save_of_this_run_is_told(tmp_path: Path) -> None:
    """With the newest whole one beside it."""
    save(tmp_path / "checkpoint-5" / "model.safetensors", weights())
    save(tmp_path / "tmp-checkpoint-10" / "model.safetensors", weights())
    facts = inspected(tmp_path)
    assert (facts.unfinished, facts.latest) == ((str(tmp_path / "tmp-checkpoint-10"),), str(tmp_path / "checkpoint-5"))


def test_huge_headers_are_read_in_bounded_time(tmp_path: Path) -> None:
    """Megabytes of names, of brackets and of entries that overlap."""
    entry = json.dumps(F32)
    for text in (b'{"' + b"a" * (20 << 20) + b'": 1}', b"[" * (8 << 20),
                 ("{" + ",".join(f'"t{i}":{entry}' for i in range(60_000)) + "}").encode()):
        path = tmp_path / "m.safetensors"
        path.write_bytes(raw(text, bytes(4)))
        started = time.process_time()
        with pytest.raises(TensorFileError):
            scan_file(path)
        assert time.process_time() - started < 60


@settings(max_examples=100, deadline=None, suppress_health_check=REUSED_DIR)
@given(header=st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["dtype", "shape", "data_offsets", "a", "__metadata__"]), inner, max_size=4), max_leaves=12),
    data=st.binary(max_size=16))
def test_any_json_header_is_refused_or_fits_its_file(tmp_path: Path, header: Any, data: bytes) -> None:
    """Whatever the header says, what passes covers the data exactly."""
    path = tmp_path / "m.safetensors"
    path.write_bytes(raw(header, data))
    try:
        found = scan_file(path).header
    except TensorFileError:
        return
    assert sum(tensor.end - tensor.start for tensor in found.tensors) == len(data)
