"""Values that only a loader reads, held against a start in the child, and looked through for the probe's marks."""

from __future__ import annotations

import hashlib
import importlib
import os
import pickle
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file

from harness import checkpoints
from harness.checkpoints.command import Asked, checkpoints_report
from harness.checkpoints.inventory import Checkpoint, find_checkpoints
from harness.checkpoints.likeness import positions
from harness.checkpoints.marks import Seen, told_by_files
from harness.checkpoints.reload import Start, Surroundings, reload_checkpoint
from harness.checkpoints.sameness import equal_earlier
from harness.checkpoints.structure import read_structure
from harness.checkpoints.targets import parts_of, starts_of, target_of

State = dict[str, Any]


def where(tmp_path: Path, **more: Any) -> Surroundings:
    return Surroundings(interpreter=Path(sys.executable), workdir=tmp_path, environ=os.environ, **more)


def weights(seed: int = 0) -> State:
    generator = torch.Generator().manual_seed(seed)
    return {"a.weight": torch.randn(8, 4, generator=generator), "a.bias": torch.randn(8, generator=generator),
            "bn.running_mean": torch.zeros(8), "bn.num_batches_tracked": torch.tensor(3)}


def moved(state: State, *names: str) -> State:
    return {name: value + 0.5 if name in names else value for name, value in state.items()}


def loaded(end: Checkpoint, starts: tuple[Start, ...], tmp_path: Path, **more: Any) -> dict[str, Any]:
    return reload_checkpoint(replace(target_of(end), starts=starts, **more), where(tmp_path))


START = weights()
OTHER = weights(1)
OPTIMIZER = {"state": {0: {"exp_avg": torch.randn(8, 4)}}}
ENDS = {
    "changed": ({"model": moved(START, "a.bias")}, "changed"),
    "same": ({"model": START}, "none"),
    "moments": ({"model": START, "optimizer": OPTIMIZER, "opt": {"a": torch.ones(3)}, "exp_avg": {"a": torch.ones(3)}},
                "none"),
    "buffers": ({"model": moved(START, "bn.running_mean", "bn.num_batches_tracked")}, "buffers-only"),
    "decay": ({"model": {name: value * 0.97 if "weight" in name or "bias" in name else value
                         for name, value in START.items()}}, "decay-only"),
    "cast": ({"model": {name: value.to(torch.bfloat16) if value.is_floating_point() else value
                        for name, value in START.items()}}, "cast-only"),
    "resized": ({"model": {**START, "a.weight": torch.cat([START["a.weight"], torch.ones(2, 4)])}}, "resize-only"),
    "cast-and-moved": ({"model": {name: value.to(torch.bfloat16) if value.is_floating_point() else value
                                  for name, value in moved(START, "a.weight").items()}}, "changed"),
    "to-nan": ({"model": {**START, "a.bias": torch.full((8,), float("nan"))}}, "changed"),
    "wrapped": ({"state_dict": {f"module.{name}": value for name, value in START.items()}}, "none"),
    "wrapped-and-moved": ({"state_dict": {f"model.{name}": value for name, value in moved(START, "a.bias").items()}},
                          "changed"),
    "other-names": ({"model": {"z": torch.ones(3)}}, None),
}


@pytest.mark.parametrize("name", ENDS)
def test_archive_is_compared_with_the_runs_start(name: str, tmp_path: Path) -> None:
    """Only an element of a weight counts: no moment of the optimizer, cast, resize, statistic or decay."""
    end, kind = ENDS[name]
    first = {"optimizer": {"state": {0: {"exp_avg": torch.zeros(8, 4)}}}, "opt": {"a": torch.zeros(3)},
             "exp_avg": {"a": torch.zeros(3)}, "model": START}
    torch.save(first, tmp_path / "model_step_0.pt")
    torch.save(end, tmp_path / "model_step_5.pt")
    own = find_checkpoints(tmp_path)
    answer = loaded(own[-1], starts_of(own[-1], own, None), tmp_path)
    found = answer["comparison"]
    assert answer["status"] == "ok" and (found and found["kind"]) == kind, answer
    if kind == "changed":
        assert (found["start_kind"], found["start"]) == ("own-step-0", str(tmp_path / "model_step_0.pt"))
        assert found["changed"] == len(found["changed_names"]) == 1


def test_given_start_of_another_format_comes_first(tmp_path: Path) -> None:
    """A base of safetensors, an end of torch.save; one that the run wrote over is none."""
    (tmp_path / "base").mkdir()
    save_file(START, tmp_path / "base" / "model.safetensors")
    (tmp_path / "out").mkdir()
    torch.save({"model": moved(START, "a.bias")}, tmp_path / "out" / "model_step_5.pt")
    own = find_checkpoints(tmp_path / "out")
    starts = starts_of(own[-1], own, tmp_path / "base")
    assert [start.kind for start in starts] == ["start-weights"]
    found = loaded(own[-1], starts, tmp_path)["comparison"]
    assert (found["kind"], found["start_kind"], found["changed_names"]) == ("changed", "start-weights", ["a.bias"])
    assert starts_of(own[-1], own, tmp_path / "out") == ()


@pytest.mark.parametrize(("names", "ok", "kind"), [(("a.bias",), True, "changed"), ((), False, "none")])
@pytest.mark.parametrize("suffix", ["safetensors", "pt"])
def test_command_compares_with_the_base(
    suffix: str, names: tuple[str, ...], ok: bool, kind: str, tmp_path: Path
) -> None:
    """`checkpoints DIR --reload --base DIR`: a copy of the base is not ok."""
    (tmp_path / "base").mkdir()
    save_file(START, tmp_path / "base" / "model.safetensors")
    (tmp_path / "out").mkdir()
    save = save_file if suffix == "safetensors" else torch.save
    save(moved(START, *names), tmp_path / "out" / f"model_step_5.{suffix}")
    report = checkpoints_report(Asked(root=tmp_path / "out", reload=True, base=tmp_path / "base"))
    assert (report["ok"], report["reload"]["comparison"]["kind"]) == (ok, kind), report["reload"]


def large(seed: int) -> State:
    generator = torch.Generator().manual_seed(seed)
    return {"a.weight": torch.randn(64, 80, generator=generator), "norm.weight": torch.ones(64)}


WHAT_BECAME: dict[str, tuple[State, str]] = {
    "drawn-anew": (large(1), "unrelated"),
    "constant": ({name: torch.full_like(value, 0.3) for name, value in large(0).items()}, "unrelated"),
    "noise": ({name: value + 3 * torch.randn_like(value) for name, value in large(0).items()}, "changed"),
    "trained-far": ({"a.weight": 0.2 * large(0)["a.weight"] + large(1)["a.weight"], "norm.weight": torch.ones(64)},
                    "changed"),
    "few-rows": ({name: value[:8] for name, value in large(1).items()}, "changed"),
    "shuffled": ({name: value.flip(0) for name, value in large(0).items()}, "unrelated"),
}


@pytest.mark.parametrize("suffix", ["safetensors", "pt"])
@pytest.mark.parametrize("name", WHAT_BECAME)
def test_what_keeps_nothing_of_the_start_is_unrelated(name: str, suffix: str, tmp_path: Path) -> None:
    """Thousands of elements without any correlation; a fifth of the start under noise is one."""
    state, kind = WHAT_BECAME[name]
    (tmp_path / "base").mkdir()
    save_file(large(0), tmp_path / "base" / "model.safetensors")
    (tmp_path / "out").mkdir()
    save = save_file if suffix == "safetensors" else torch.save
    save({key: value.contiguous() for key, value in state.items()}, tmp_path / "out" / f"model_step_5.{suffix}")
    report = checkpoints_report(Asked(root=tmp_path / "out", reload=True, base=tmp_path / "base"))
    assert report["reload"]["comparison"]["kind"] == kind, report["reload"]
    assert report["ok"] == (kind == "changed")


def test_start_that_cannot_be_read_is_a_note(tmp_path: Path) -> None:
    """It is no fault of the checkpoint, and nothing in it is run."""
    (tmp_path / "model_step_0.pt").write_bytes(pickle.dumps({"evil": Evil()}))
    torch.save({"model": START}, tmp_path / "model_step_5.pt")
    own = find_checkpoints(tmp_path)
    answer = loaded(own[-1], starts_of(own[-1], own, None), tmp_path)
    assert (answer["status"], answer["comparison"]) == ("ok", None)
    assert "could not be compared" in answer["notes"][0] and not list(tmp_path.rglob("pwned"))


class Evil:
    """Makes a directory where it is unpickled."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("pwned",)


def mark(value: torch.Tensor, **more: Any) -> dict[str, Any]:
    """As the probe takes it."""
    digest = hashlib.sha256(value.numpy().tobytes()[: 32 << 10]).hexdigest()
    return {"dtype": "F32", "shape": list(value.shape), "sha256": digest, "changed": True, "uniform": False, **more}


@pytest.mark.parametrize(("names", "marked", "told"), [
    ((), ("a.weight", "a.bias"), "held"), (("a.bias",), ("a.weight", "a.bias"), "moved"),
    (("a.weight", "a.bias"), ("a.weight", "a.bias"), "moved"), ((), ("z",), "")])
def test_marks_are_looked_for_in_an_archive(
    names: tuple[str, ...], marked: tuple[str, ...], told: str, tmp_path: Path
) -> None:
    """What the optimizer found is there, or others are in its place; the digests themselves are not kept."""
    torch.save({"model": moved(START, *names)}, tmp_path / "model_step_5.pt")
    marks = tuple(mark(START[name] if name in START else torch.ones(77)) for name in marked)
    answer = loaded(find_checkpoints(tmp_path)[-1], (), tmp_path, seen=Seen(marks=tuple(marks)))
    assert (answer["status"], answer["marks"]) == ("ok", told) and "mark_digests" not in answer


MOVED = {name: value + 0.5 for name, value in START.items()}


def marks_of_start(number: int = 0, *, last: State | None = None, start: State = START) -> list[dict[str, Any]]:
    """Of an optimizer with two parameters, and what they became, where that was seen."""
    return [mark(start[name], optimizer=number, alike=1,
                 last=mark(last[name])["sha256"] if last else None) for name in ("a.weight", "a.bias")]


@pytest.mark.parametrize(("state", "last", "told"), [
    ({"model": MOVED, "copy": START}, MOVED, "moved"), ({"model": MOVED, "copy": START}, None, ""),
    ({"model": MOVED, "anchor": START}, None, "moved"), ({"q_net": MOVED, "tgt_net": START}, None, "moved"),
    ({"model": MOVED, "history": [START, moved(START, "a.bias", "a.weight")]}, MOVED, "moved"),
    ({"model": START}, MOVED, "held"), ({"model": START, "copy": START}, MOVED, "held"),
    ({"model": START, "head": {"a.bias": START["a.bias"] + 3}}, None, "held"),
    ({"model": moved(START, "a.bias")}, MOVED, ""), ({"model": moved(START, "a.bias")}, None, "moved"),
    ({"model": {name: value * 2 for name, value in START.items()}}, MOVED, "moved"),
    ({"model": {name: torch.zeros_like(value) for name, value in START.items()}}, MOVED, ""),
])
def test_start_beside_the_trained_is_no_fault(
    state: State, last: State | None, told: str, tmp_path: Path
) -> None:
    """What parameters became is proof; a second copy alone is doubt; a part of the start and zeros are no training."""
    torch.save(state, tmp_path / "model.pt")
    answer = loaded(find_checkpoints(tmp_path)[-1], (), tmp_path, seen=Seen(marks=tuple(marks_of_start(last=last))))
    assert (answer["status"], answer["marks"]) == ("ok", told), answer


@pytest.mark.parametrize(("seed", "told"), [(5, "moved"), (6, "unlike")])
def test_what_was_cast_beside_an_exact_norm_is_looked_at_too(seed: int, told: str, tmp_path: Path) -> None:
    """A norm in float32 that is the trained one proves nothing of the matrices that were saved in bfloat16."""
    start, norm = large(5)["a.weight"], torch.linspace(0.5, 1.5, 64)
    kept = tuple(start.flatten()[list(positions(start.numel()))].tolist())
    last = tuple(value * 1.1 for value in kept)
    seen = Seen(marks=(
        mark(torch.ones(64), last=mark(norm)["sha256"], alike=1, values=(1.0,) * 64, values_last=tuple(norm.tolist())),
        mark(start, last=mark(start * 1.1)["sha256"], alike=1, values=kept, values_last=last)))
    matrix = (large(seed)["a.weight"] * 1.1).to(torch.bfloat16)
    for suffix, save in (("pt", torch.save), ("safetensors", save_file)):
        save({"norm.weight": norm, "a.weight": matrix}, tmp_path / f"model.{suffix}")
    assert loaded(find_checkpoints(tmp_path / "model.pt")[-1], (), tmp_path, seen=seen)["marks"] == told
    assert told_by_files([tmp_path / "model.safetensors"], seen).word == told


@pytest.mark.parametrize(("state", "told"), [
    ({"model": MOVED}, "moved"), ({"model": START}, "held"), ({"critic": MOVED, "actor": OTHER}, "held")])
def test_copy_that_is_tuned_later_begins_with_what_was_saved(state: State, told: str, tmp_path: Path) -> None:
    """A second optimizer's start is what the first one made; with room for both models each has to be trained."""
    torch.save(state, tmp_path / "model.pt")
    second = MOVED if "model" in state else OTHER
    marks = (*marks_of_start(last=MOVED), *marks_of_start(1, start=second))
    answer = loaded(find_checkpoints(tmp_path)[-1], (), tmp_path, seen=Seen(marks=tuple(marks)))
    assert (answer["status"], answer["marks"]) == ("ok", told), answer


def test_distributed_checkpoint_needs_no_unpickling_of_its_entries(tmp_path: Path) -> None:
    """Its tensors are put together and compared; an object among its entries is never loaded."""
    for step, state in ((0, START), (5, moved(START, "a.weight"))):
        dcp.save({"model": state, "extra": Evil()}, checkpoint_id=tmp_path / f"step_{step}")
    own = find_checkpoints(tmp_path)
    answer = loaded(own[-1], starts_of(own[-1], own, None), tmp_path)
    assert (answer["status"], answer["tensors"], answer["comparison"]["kind"]) == ("ok", 4, "changed"), answer
    assert answer["comparison"]["changed_names"] == ["model.a.weight"] and not list(tmp_path.rglob("pwned"))


def test_metadata_of_other_classes_is_refused(tmp_path: Path) -> None:
    """Its .metadata is a pickle: torch's own classes of metadata and no other name."""
    dcp.save({"model": START}, checkpoint_id=tmp_path / "step_5")
    (tmp_path / "step_5" / ".metadata").write_bytes(pickle.dumps(Evil()))
    answer = loaded(find_checkpoints(tmp_path)[-1], (), tmp_path)
    assert answer["status"] == "refused" and "mkdir" in answer["error"] and not list(tmp_path.rglob("pwned"))


def test_damaged_part_of_a_distributed_checkpoint_fails(tmp_path: Path) -> None:
    """A part whose bytes were lost."""
    dcp.save({"model": START}, checkpoint_id=tmp_path / "step_5")
    part = next((tmp_path / "step_5").glob("*.distcp"))
    part.write_bytes(part.read_bytes()[:100])
    assert loaded(find_checkpoints(tmp_path)[-1], (), tmp_path)["status"] == "failed"


DEEPSPEED = Path(__file__).parent / "cases" / "recorded" / "deepspeed"


@pytest.mark.parametrize(("copied", "kind"), [((), "changed"), (("mp_rank_00_model_states.pt",), "none")])
def test_model_states_of_deepspeed_are_compared(copied: tuple[str, ...], kind: str, tmp_path: Path) -> None:
    """Real ones of ZeRO stage 1; with the model of the start in its place, the moved optimizer proves nothing."""
    shutil.copytree(DEEPSPEED / "zero1", tmp_path, dirs_exist_ok=True)
    for name in copied:
        shutil.copy(tmp_path / "global_step0" / name, tmp_path / "global_step5" / name)
    own = find_checkpoints(tmp_path)
    assert [one.step for one in own] == [0, 5]
    answer = loaded(own[-1], starts_of(own[-1], own, None), tmp_path)
    assert (answer["status"], answer["adapter"], answer["comparison"]["kind"]) == ("ok", "deepspeed", kind), answer


@pytest.mark.parametrize("name", ["zero3", "zero3-two-ranks"])
def test_shards_of_zero_stage_3_are_put_together(name: str, tmp_path: Path) -> None:
    """Their weights lie in the optimizer's shards; they are compared like any others."""
    own = find_checkpoints(DEEPSPEED / name)
    assert [(one.step, read_structure(one).format, read_structure(one).complete) for one in own] == [
        (0, "deepspeed", True), (5, "deepspeed", True)]
    answer = loaded(own[-1], starts_of(own[-1], own, None), tmp_path)
    assert (answer["status"], answer["comparison"]["kind"], answer["nonfinite"]) == ("ok", "changed", []), answer
    trained = {name for name in answer["comparison"]["changed_names"] if "running" not in name}
    assert all(name.startswith("module.") and "frozen" not in name for name in trained) and len(trained) >= 4


def test_gathered_weights_are_those_that_deepspeed_gathers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts that the number of ranks does not divide, groups, a frozen layer, buffers: every element."""
    monkeypatch.syspath_prepend(str(Path(checkpoints.__file__).parent / "site"))
    target = target_of(find_checkpoints(DEEPSPEED / "zero3-two-ranks")[-1])
    request = {"files": [str(path) for path in target.files], "allow_pickle": False}
    found = dict(importlib.import_module("_load_deepspeed").deepspeed_tensors(request, None))
    expected = torch.load(DEEPSPEED / "zero3-two-ranks-gathered.pt", weights_only=True)
    assert found.keys() == {f"module.{name}" for name in expected} and len(expected) == 11
    assert all(torch.equal(found[f"module.{name}"], value) for name, value in expected.items())


def test_shards_that_moved_are_no_repetition(tmp_path: Path) -> None:
    """The model states of stage 3 are placeholders and the same at every step; what was saved twice is told."""
    for step in ("global_step0", "global_step5"):
        shutil.copytree(DEEPSPEED / "zero3-two-ranks" / step, tmp_path / step)
        for file in (DEEPSPEED / "zero3-two-ranks" / "global_step0").glob("*_model_states.pt"):
            shutil.copy(file, tmp_path / step / file.name)
    assert equal_earlier(find_checkpoints(tmp_path)) == ()
    for file in (tmp_path / "global_step0").iterdir():
        shutil.copy(file, tmp_path / "global_step5" / file.name)
    assert len(equal_earlier(find_checkpoints(tmp_path))) == 2


def _drop(path: Path) -> None:
    path.unlink()


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:1500])


def _shorten(path: Path) -> None:
    with torch.serialization.safe_globals(_stand_ins(path)):
        saved = torch.load(path, weights_only=True)
    groups = saved["optimizer_state_dict"]["fp32_flat_groups"]
    saved["optimizer_state_dict"] = {"partition_count": 2, "fp32_flat_groups": [groups[0][:-1], *groups[1:]]}
    torch.save(saved, path)


def _stand_ins(path: Path) -> list[Any]:
    class Any_:
        def __init__(self, *args: Any) -> None: ...

    return [(type(name.rpartition(".")[2], (Any_,), {}), name)
            for name in torch.serialization.get_unsafe_globals_in_checkpoint(path)]


@pytest.mark.parametrize(("damage", "file", "told", "is_seen"), [
    (_drop, "zero_pp_rank_1_mp_rank_00_optim_states.pt", "optimizer's shards of 2 ranks", True),
    (_drop, "zero_pp_rank_0_mp_rank_00_optim_states.pt", "optimizer's shards of 2 ranks", True),
    (_drop, "zero_pp_rank_1_mp_rank_00_model_states.pt", "1 of the model's", True),
    (_cut, "zero_pp_rank_1_mp_rank_00_optim_states.pt", "", True),
    (_shorten, "zero_pp_rank_1_mp_rank_00_optim_states.pt", "rank 1 holds 19 of 20 elements", False),
])
def test_shard_of_zero_stage_3_that_is_not_whole(
    damage: Any, file: str, told: str, is_seen: bool, tmp_path: Path
) -> None:
    """A rank's shard that is missing or short is damage, in words of its own; by structure where that tells."""
    shutil.copytree(DEEPSPEED / "zero3-two-ranks" / "global_step5", tmp_path / "global_step5")
    damage(tmp_path / "global_step5" / file)
    (one,) = find_checkpoints(tmp_path)
    structure = read_structure(one)
    assert bool(structure.problems) == is_seen, structure
    answer = loaded(one, (), tmp_path)
    assert answer["status"] == "failed" and told in answer["error"], answer


def test_each_model_of_a_compound_delivery_is_loaded(tmp_path: Path) -> None:
    """An actor and a critic side by side: one that does not load is told by its own path, each has its own start."""
    for step in (0, 5):
        for name in ("actor", "critic"):
            place = tmp_path / f"step_{step}" / name
            place.mkdir(parents=True)
            torch.save(moved(START, *(["a.bias"] if step and name == "actor" else [])), place / "pytorch_model.bin")
    own = find_checkpoints(tmp_path)
    assert len(own) == 2
    answers = {str(place): loaded(part, starts_of(part, own, None, place), tmp_path)
               for place, part in parts_of(own[-1]).items()}
    assert {place: answer["comparison"]["kind"] for place, answer in answers.items()} == {
        "actor": "changed", "critic": "none"}
    broken = tmp_path / "step_5" / "critic" / "pytorch_model.bin"
    broken.write_bytes(b"PK nothing")
    assert [reload_checkpoint(target_of(part), where(tmp_path))["status"] for part in parts_of(own[-1]).values()] == [
        "ok", "refused"]


def test_step_stands_in_the_metadata_of_a_file(tmp_path: Path) -> None:
    """Where its name tells none; words that are no step are none."""
    save_file(START, tmp_path / "a.safetensors", metadata={"global_step": "40", "epoch": "2"})
    save_file(START, tmp_path / "b.safetensors", metadata={"step": "7.5", "format": "pt"})
    save_file(START, tmp_path / "model_step_3.safetensors", metadata={"step": "9"})
    assert {one.path.stem: (one.step, one.epoch) for one in find_checkpoints(tmp_path)} == {
        "a": (40, 2), "b": (None, None), "model_step_3": (3, None)}
