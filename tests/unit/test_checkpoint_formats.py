"""Checkpoints of every format are found in numeric order, and their structure is judged without unpickling."""

from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from harness.checkpoints.archives import damaged_members, scan_archive
from harness.checkpoints.command import Asked, checkpoints_report
from harness.checkpoints.huggingface import held_tensors, read_index
from harness.checkpoints.inspect import inspect_run, verify_checkpoint
from harness.checkpoints.inventory import Snapshot, find_checkpoints, take_inventory
from harness.checkpoints.naming import metrics_of
from harness.checkpoints.records import read_record
from harness.checkpoints.save_errors import find_save_errors
from harness.checkpoints.structure import format_of, read_structure
from harness.errors import ConfigError

CASES = Path(__file__).parent / "cases"
REUSED_DIR = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
Report = dict[str, Any]


def expected(case: str) -> Report:
    data: Report = json.loads((CASES / case / "expected.json").read_text())
    return data


def report(root: Path, **more: Any) -> Report:
    return checkpoints_report(Asked(root=root, **more))


def write(path: Path, data: bytes = b"x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def model(path: Path, value: float = 1.0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({"w": torch.full((4,), value)}, path)
    return path


# Cases from public bug reports


def ordered_case(tmp_path: Path) -> Path:
    """Case 22 with its mtimes set: checkpoint-900 is the newest by time."""
    import shutil

    root = tmp_path / "case"
    shutil.copytree(CASES / "22-checkpoint-ordering", root)
    for line in (root / "mtimes.txt").read_text().splitlines():
        name, moment = line.split()
        stamp = datetime.fromisoformat(moment).replace(tzinfo=timezone.utc).timestamp()
        for path in [*(root / "out" / name).rglob("*"), root / "out" / name]:
            os.utime(path, (stamp, stamp))
    return root


@pytest.mark.parametrize("place", ["out", "lerobot"])
def test_latest_is_by_number(place: str, tmp_path: Path) -> None:
    """Neither by text nor by time; what is unfinished, merged or unnumbered never wins (case 22)."""
    root, wanted = ordered_case(tmp_path), expected("22-checkpoint-ordering")[place]
    found = report(root / place)
    latest = next(item for item in found["checkpoints"] if item["path"] == found["latest"])
    assert (found["latest"], latest["step"]) == (str(root / wanted["latest"]), wanted["step"])
    unfinished = [item["path"] for item in found["checkpoints"] if item["complete"] is False]
    assert unfinished == [str(root / path) for path in wanted.get("incomplete", [])]


def test_missing_shard_is_named_with_its_tensors() -> None:
    """Case 42: the file, and how many tensors went with it."""
    name = "42-checkpoint-missing-shard"
    place, wanted = CASES / name / "missing", expected(name)["missing"]
    held, _ = held_tensors(sorted(place.glob("*.safetensors")))
    index = read_index(place / "model.safetensors.index.json", held)
    assert list(index.missing_files) == wanted["missing_files"]
    assert len(index.missing_tensors) == wanted["missing_tensors"]
    assert not report(place, reload=True)["ok"] and any("18 tensor(s)" in text for text in index.problems)


def test_stale_index_is_not_called_lost_weights() -> None:
    """Case 42: four files that are not there, and all 21 tensors that are."""
    name = "42-checkpoint-missing-shard"
    place, wanted = CASES / name / "stale_index", expected(name)["stale_index"]
    held, _ = held_tensors(sorted(place.glob("*.safetensors")))
    index = read_index(place / "model.safetensors.index.json", held)
    assert list(index.missing_files) == wanted["missing_files"]
    assert (index.tensors_on_disk, index.weights_complete) == (wanted["tensors_on_disk"], wanted["weights_complete"])
    assert len(index.extra_files) == 3 and any("index stale, weights complete" in text for text in index.problems)
    assert not report(place)["ok"]


@pytest.mark.parametrize("name", ["tied_ok", "untied_missing", "tied_both_differ", "empty_entry"])
def test_output_head_goes_by_the_config(name: str) -> None:
    """Case 44: absent is fine where it is tied; other values are told; an entry without a type is no file."""
    wanted = expected("44-checkpoint-lm-head")[name]
    found = report(CASES / "44-checkpoint-lm-head" / name, verify=True)
    (item,) = found["checkpoints"]
    assert (found["ok"], bool(item["notes"])) == (wanted["reload"], wanted.get("warn", False))
    assert all(any(tensor in problem for problem in item["problems"]) for tensor in wanted.get("missing_tensors", []))


@pytest.mark.parametrize("name", ["canary", "numpy_rng", "plain"])
def test_pickles_are_refused_and_not_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Case 46: what asks for code is refused, numpy's state is not called corrupt, plain data loads."""
    monkeypatch.chdir(tmp_path)
    place, wanted = CASES / "46-checkpoint-pickle-safety" / name, expected("46-checkpoint-pickle-safety")[name]
    found = report(place, verify=True, reload=True)
    (item,) = found["checkpoints"]
    assert (found["reload"]["status"] == "ok") == wanted["loaded"]
    assert item["problems"] == [] and not list(tmp_path.rglob("canary*")) and not list(place.glob("*executed"))
    if not wanted["loaded"]:
        assert found["reload"]["status"] == "refused" and "unsupported global" in found["reload"]["error"]
        assert any("not loadable with the restricted loader" in note for note in item["notes"])


# Formats


def names(root: Path) -> list[tuple[str, int | None, str]]:
    return [(one.path.name, one.step, format_of(one)) for one in find_checkpoints(root)]


def test_lightning_names_hold_steps_and_metrics(tmp_path: Path) -> None:
    """epoch, step and metrics by the name; last.ckpt by its inside; -v1 after it; a link is none."""
    tmp_path = tmp_path / "checkpoints"
    tmp_path.mkdir()
    state = {"global_step": 25, "epoch": 2, "pytorch-lightning_version": "2", "state_dict": {"w": torch.ones(2)}}
    for name in ("epoch=0-step=10-val_loss=0.50", "epoch=1-step=20-val_loss=0.25", "last", "last-v1"):
        torch.save(state, tmp_path / f"{name}.ckpt")
    (tmp_path / "best.ckpt").symlink_to(tmp_path / "epoch=1-step=20-val_loss=0.25.ckpt")
    assert names(tmp_path) == [
        ("epoch=0-step=10-val_loss=0.50.ckpt", 10, "lightning"),
        ("epoch=1-step=20-val_loss=0.25.ckpt", 20, "lightning"),
        ("last.ckpt", 25, "lightning"), ("last-v1.ckpt", 25, "lightning"),
    ]
    assert report(tmp_path, metric="val_loss")["best"] == str(tmp_path / "epoch=1-step=20-val_loss=0.25.ckpt")


def test_metrics_in_names_are_numbers() -> None:
    """Signs, exponents and a version behind them; epoch and step are none."""
    assert metrics_of("epoch=01-step=7-val_loss=-1.5e-3-acc=0.9-v2") == {"val_loss": -1.5e-3, "acc": 0.9}
    assert metrics_of("step_10") == {}


def test_torch_files_by_name_and_inside(tmp_path: Path) -> None:
    """model_10.pt before model_9? No: by number; final.pt by the step that it holds."""
    for name, state in (("model_step_9", {}), ("model_step_10", {}), ("final", {"step": 12})):
        torch.save({"w": torch.ones(1), **state}, tmp_path / f"{name}.pt")
    assert [(name, step) for name, step, _ in names(tmp_path)] == [
        ("model_step_9.pt", 9), ("model_step_10.pt", 10), ("final.pt", 12)]


def test_adapters_and_transformers_go_by_their_config(tmp_path: Path) -> None:
    """adapter_config.json makes an adapter, model_type a model of transformers."""
    model(tmp_path / "checkpoint-5" / "adapter_model.safetensors")
    write(tmp_path / "checkpoint-5" / "adapter_config.json", b"{}")
    model(tmp_path / "checkpoint-6" / "model.safetensors")
    write(tmp_path / "checkpoint-6" / "config.json", b'{"model_type": "llama"}')
    assert names(tmp_path) == [("checkpoint-5", 5, "peft"), ("checkpoint-6", 6, "transformers")]


def test_orbax_steps_are_committed_by_their_metadata(tmp_path: Path) -> None:
    """Bare numbers in numeric order; one without metadata, and one under its temporary name, are not whole."""
    for step in (9, 10):
        write(tmp_path / "orbax" / str(step) / "_CHECKPOINT_METADATA", b"{}")
        write(tmp_path / "orbax" / str(step) / "default" / "_METADATA", b'{"use_ocdbt": true}')
        write(tmp_path / "orbax" / str(step) / "default" / "manifest.ocdbt")
    write(tmp_path / "orbax" / "11" / "_CHECKPOINT_METADATA", b"{}")
    write(tmp_path / "orbax" / "12.orbax-checkpoint-tmp-9" / "default" / "_METADATA", b"{}")
    found = report(tmp_path)
    assert [(item["step"], item["complete"]) for item in found["checkpoints"]] == [
        (9, True), (10, True), (11, False), (None, False)]
    assert found["latest"] == str(tmp_path / "orbax" / "10") and not found["ok"]
    (tmp_path / "orbax" / "10" / "default" / "manifest.ocdbt").unlink()
    assert "manifest.ocdbt" in report(tmp_path)["checkpoints"][1]["problems"][0]


def test_orbax_steps_need_no_telling_parent(tmp_path: Path) -> None:
    """A CheckpointManager writes bare numbers into any directory; a number that holds none of it is no step."""
    for step in (80, 120):
        write(tmp_path / "ck" / str(step) / "_CHECKPOINT_METADATA", b"{}")
        write(tmp_path / "ck" / str(step) / "default" / "_METADATA", b"{}")
    write(tmp_path / "ck" / "7" / "model.keras")
    found = find_checkpoints(tmp_path / "ck")
    assert [(one.path.name, one.step) for one in found] == [("model.keras", None), ("80", 80), ("120", 120)]


@pytest.mark.parametrize(("files", "steps"), [
    (["model_40.pt", "model_80.pt", "model_120.pt"], [40, 80, 120]), (["net-80.pth", "net-120.pth"], [80, 120]),
    (["weights100.h5", "weights200.h5", "weights300.h5"], [100, 200, 300]),
    (["checkpoint_40.pth.tar"], [40]), (["ckpt_5.tar.pth"], [5]), (["model_0.pt", "model_10.pt", "model_20.pt"], [
        0, 10, 20]),
    (["model_1.pt", "model_2.pt", "model_3.pt"], [None] * 3), (["model_1234.pt"], [None]),
    (["net_256.pt", "net_512.pt"], [None] * 2), (["net_64.pt", "net_128.pt", "net_256.pt"], [None] * 3),
    (["resnet50.pt", "resnet100.pt", "resnet150.pt"], [None] * 3), (["model_7b.pt", "model_14b.pt"], [None] * 2),
    (["gpt2_124.pt", "gpt2_248.pt", "gpt2_372.pt"], [None] * 3),
])
def test_models_with_a_number_are_steps_where_they_are_a_series(
        files: list[str], steps: list[int | None], tmp_path: Path) -> None:
    """Even distances from 0; epochs, seeds, folds and sizes are no steps."""
    for name in files:
        torch.save({"w": torch.ones(1)}, tmp_path / name)
    found = {one.path.name: one.step for one in find_checkpoints(tmp_path)}
    assert [found[name] for name in files] == steps


def test_series_whose_files_tell_an_epoch_has_no_steps(tmp_path: Path) -> None:
    """What stands in the file beats a guess at its name."""
    for epoch in (10, 20, 30):
        torch.save({"w": torch.ones(1), "epoch": epoch}, tmp_path / f"model_{epoch}.pt")
    assert [one.step for one in find_checkpoints(tmp_path)] == [None] * 3


def test_file_that_is_no_checkpoint_is_a_wrong_argument(tmp_path: Path) -> None:
    """And not a directory without any."""
    with pytest.raises(ConfigError, match=r"notes\.txt: no checkpoint by its name"):
        report(write(tmp_path / "notes.txt"))
    (tmp_path / "empty").mkdir()
    assert not report(tmp_path / "empty")["ok"]


def test_distributed_checkpoint_needs_its_metadata(tmp_path: Path) -> None:
    """.distcp files without .metadata were never committed."""
    for step in (1, 2):
        write(tmp_path / f"step-{step}" / "__0_0.distcp")
    write(tmp_path / "step-1" / ".metadata")
    assert [(item["format"], item["complete"]) for item in report(tmp_path)["checkpoints"]] == [
        ("torch-distributed", True), ("torch-distributed", False)]


def test_deepspeed_ranks_have_no_gap(tmp_path: Path) -> None:
    """A rank's part that is missing is named."""
    place = tmp_path / "global_step7"
    place.mkdir()
    torch.save({"module": {}}, place / "mp_rank_00_model_states.pt")
    for rank in (0, 2):
        torch.save({}, place / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")
    (item,) = report(tmp_path)["checkpoints"]
    assert (item["format"], item["step"]) == ("deepspeed", 7) and "ranks are missing" in item["problems"][0]


def test_keras_files_are_zips_and_hdf5(tmp_path: Path) -> None:
    """A .keras file without its weights, and an .h5 file without its signature, are damaged."""
    for epoch, members in ((1, ("config.json", "metadata.json", "model.weights.h5")), (2, ("config.json",))):
        with zipfile.ZipFile(tmp_path / f"model_{epoch}.keras", "w") as archive:
            for member in members:
                archive.writestr(member, "{}")
    write(tmp_path / "other_3.weights.h5", b"no HDF5")
    assert [(item["format"], item["complete"]) for item in report(tmp_path)["checkpoints"]] == [
        ("keras", True), ("keras", False), ("keras-weights", False)]


def test_trainers_record_beats_the_name(tmp_path: Path) -> None:
    """global_step stands in trainer_state.json, also in a long one that is only searched."""
    model(tmp_path / "checkpoint-5" / "model.safetensors")
    state: Report = {"global_step": 50, "best_metric": 0.5, "best_model_checkpoint": "out/checkpoint-40"}
    write(tmp_path / "checkpoint-5" / "trainer_state.json", json.dumps(state).encode())
    assert find_checkpoints(tmp_path)[0].step == 50
    assert report(tmp_path)["checkpoints"][0]["notes"] == ["best_model_checkpoint out/checkpoint-40 is gone"]
    state["log_history"] = [{"loss": 1.0, "step": step} for step in range(20_000)]
    write(tmp_path / "checkpoint-5" / "trainer_state.json", json.dumps(state).encode())
    found = read_record(tmp_path / "checkpoint-5")
    assert (found.step, found.best_metric) == (50, 0.5)
    model(tmp_path / "checkpoint-40" / "model.safetensors")
    assert report(tmp_path)["checkpoints"][0]["notes"] == []


def test_metrics_stand_in_the_trainers_history(tmp_path: Path) -> None:
    """The newest record holds the values of all; the best is by the metric asked for."""
    rows = [{"step": step, "eval_loss": loss} for step, loss in ((10, 0.5), (20, 0.2), (30, 0.4))]
    for step in (10, 20, 30):
        model(tmp_path / f"checkpoint-{step}" / "model.safetensors", step)
        record = {"global_step": step, "log_history": [row for row in rows if row["step"] <= step]}
        write(tmp_path / f"checkpoint-{step}" / "trainer_state.json", json.dumps(record).encode())
    found = report(tmp_path, metric="eval_loss")
    assert (Path(found["best"]).name, Path(found["latest"]).name) == ("checkpoint-20", "checkpoint-30")
    assert [item["metrics"] for item in found["checkpoints"]] == [{"eval_loss": row["eval_loss"]} for row in rows]


def test_unfinished_saves_are_listed(tmp_path: Path) -> None:
    """Those that hold weights; a hidden cache is none."""
    model(tmp_path / "tmp-checkpoint-9" / "model.safetensors")
    model(tmp_path / ".cache" / "model.safetensors")
    write(tmp_path / "step_3" / "model.safetensors.incomplete")
    assert sorted(path.name for path in take_inventory([tmp_path]).unfinished) == [
        "model.safetensors.incomplete", "tmp-checkpoint-9"]


# Archives of torch


def archive(path: Path, state: Any = None) -> bytes:
    torch.save(state if state is not None else {"w": torch.ones(300), "global_step": 7}, path)
    return path.read_bytes()


def test_archive_is_read_without_running_it(tmp_path: Path) -> None:
    """Step, storages and the names that it would import."""
    archive(tmp_path / "a.pt")
    facts = scan_archive(tmp_path / "a.pt")
    assert (facts.problems, facts.step, facts.storages) == ((), 7, 1)
    assert "torch._utils._rebuild_tensor_v2" in facts.globals


def test_archive_without_a_storage_is_damaged(tmp_path: Path) -> None:
    """A storage that is missing, and one that is too short."""
    archive(tmp_path / "a.pt")
    for change, told in (((lambda data: None), "storage 0 is missing"), ((lambda data: data[:40]), "holds 40 of 1200")):
        with zipfile.ZipFile(tmp_path / "a.pt") as old, zipfile.ZipFile(tmp_path / "b.pt", "w") as new:
            for item in old.infolist():
                data = change(old.read(item)) if item.filename.endswith("data/0") else old.read(item)
                if data is not None:
                    new.writestr(item.filename, data)
        assert told in scan_archive(tmp_path / "b.pt").problems[0]


def flipped(path: Path, member: str) -> Path:
    """One byte within a member's data."""
    with zipfile.ZipFile(path) as old:
        content, item = old.read(member), old.getinfo(member)
    data = bytearray(path.read_bytes())
    data[data.index(content, item.header_offset) + len(content) // 2] ^= 0x55
    path.write_bytes(data)
    return path


def test_flipped_byte_of_a_storage_is_damage(tmp_path: Path) -> None:
    """torch loads it without a word; a run's last archive and --verify look at its CRC-32."""
    archive(tmp_path / "model.pt", {"w": torch.arange(300.0)})
    assert damaged_members(tmp_path / "model.pt") == ([], [])
    flipped(tmp_path / "model.pt", "model/data/0")
    assert torch.load(tmp_path / "model.pt")["w"].shape == (300,)
    seen = inspect_run([tmp_path], Snapshot(), 0.0)
    assert (seen.checkpoints[0].status, seen.latest) == ("damaged", None)
    assert seen.checkpoints[0].problems == (
        "model.pt: model/data/0 is damaged: its bytes do not match their CRC-32",)
    assert "CRC-32" in verify_checkpoint(take_inventory([tmp_path]).checkpoints[0]).problems[0]


def test_keras_zip_with_a_flipped_byte_is_damage(tmp_path: Path) -> None:
    """The HDF5 file inside is a stored member too."""
    with zipfile.ZipFile(tmp_path / "model.keras", "w") as made:
        for name in ("config.json", "metadata.json"):
            made.writestr(name, "{}")
        made.writestr("model.weights.h5", bytes(range(256)) * 20)
    flipped(tmp_path / "model.keras", "model.weights.h5")
    assert inspect_run([tmp_path], Snapshot(), 0.0).checkpoints[0].status == "damaged"


def test_archive_without_checksums_is_no_damage(tmp_path: Path) -> None:
    """As torch writes it when told to leave them out; it is said."""
    torch.serialization.set_crc32_options(False)
    try:
        archive(tmp_path / "model.pt")
    finally:
        torch.serialization.set_crc32_options(True)
    assert (scan_archive(tmp_path / "model.pt").problems, scan_archive(tmp_path / "model.pt").step) == ((), 7)
    (seen,) = inspect_run([tmp_path], Snapshot(), 0.0).checkpoints
    assert seen.status == "not-inspected" and any("without a checksum" in note for note in seen.notes)


def test_bare_pickle_is_no_damage(tmp_path: Path) -> None:
    """It is told, and nothing but its loader could say more."""
    write(tmp_path / "model_1.pt", pickle.dumps({"w": 1}))
    (item,) = report(tmp_path)["checkpoints"]
    assert (item["complete"], item["problems"]) == (None, []) and "bare pickle" in item["notes"][0]


HOSTILE_ARCHIVES = {
    "empty": b"", "zeros": bytes(1000), "lfs": b"version https://git-lfs.github.com/spec/v1\n", "text": b"hello" * 100,
    "zip-header": b"PK\x03\x04" + bytes(100),
}


@pytest.mark.parametrize("name", HOSTILE_ARCHIVES)
def test_hostile_archive_has_a_reason(name: str, tmp_path: Path) -> None:
    """None passes and none is a crash."""
    assert scan_archive(write(tmp_path / "a.pt", HOSTILE_ARCHIVES[name])).problems


def test_bomb_is_not_unpacked(tmp_path: Path) -> None:
    """A pickle that unpacks to a hundred times its size is left alone."""
    with zipfile.ZipFile(tmp_path / "a.pt", "w", zipfile.ZIP_DEFLATED) as bomb:
        bomb.writestr("a/data.pkl", bytes(50 << 20))
    assert "out of proportion" in scan_archive(tmp_path / "a.pt").problems[0]


@settings(max_examples=150, deadline=None, suppress_health_check=REUSED_DIR)
@given(cut=st.integers(0, 5000), flips=st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 255)), max_size=5))
def test_damaged_archive_never_crashes_and_no_cut_passes(
    tmp_path: Path, cut: int, flips: list[tuple[int, int]]
) -> None:
    """Any cut is a problem; any flipped byte is looked at without an exception."""
    good = archive(tmp_path / "a.pt")
    write(tmp_path / "cut.pt", good[: min(cut, len(good) - 1)])
    assert scan_archive(tmp_path / "cut.pt").problems
    data = bytearray(good)
    for at, bits in flips:
        data[at % len(data)] ^= bits
    scan_archive(write(tmp_path / "flipped.pt", bytes(data)))
    damaged_members(tmp_path / "flipped.pt")


@settings(max_examples=100, deadline=None, suppress_health_check=REUSED_DIR)
@given(data=st.binary(max_size=400))
def test_any_pickle_is_only_listed(tmp_path: Path, data: bytes) -> None:
    """Random opcodes in a whole zip."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as made:
        made.writestr("a/data.pkl", data)
    scan_archive(write(tmp_path / "a.pt", buffer.getvalue()))


@pytest.mark.parametrize(("text", "told"), [
    (b'{"weight_map": 3}', "its weight_map is no mapping of tensor names to files"),
    (b'{"metadata": {}}', "it has no weight_map"), (b"[1]", "it is no mapping"), (b"{", "it is no JSON"),
])
def test_bad_index_says_what_is_wrong_with_it(text: bytes, told: str, tmp_path: Path) -> None:
    """In words of the file, and not of what reads it."""
    held, _ = held_tensors([model(tmp_path / "model.safetensors")])
    (problem,) = read_index(write(tmp_path / "model.safetensors.index.json", text), held).problems
    assert told in problem and "Error" not in problem


@settings(max_examples=60, deadline=None, suppress_health_check=REUSED_DIR)
@given(text=st.one_of(st.binary(max_size=200), st.sampled_from([
    b"[" * 5000, b'{"weight_map": 3}', b'{"weight_map": {"w": "../../etc/passwd"}}',
    b'{"weight_map": {"w": "/dev/zero"}}',
    b'{"num_hidden_layers": 1e9, "model_type": []}', b'{"tie_word_embeddings": "x", "vocab_size": -1}'])))
def test_odd_index_and_config_never_crash(tmp_path: Path, text: bytes) -> None:
    """Whatever stands in the JSON files beside the weights."""
    for name in ("model.safetensors.index.json", "config.json", "trainer_state.json", "adapter_config.json"):
        model(tmp_path / "checkpoint-1" / "model.safetensors")
        write(tmp_path / "checkpoint-1" / name, text)
        for one in find_checkpoints(tmp_path):
            read_structure(one)
        (tmp_path / "checkpoint-1" / name).unlink()


# Errors of saving


def test_save_errors_are_found_in_the_log(tmp_path: Path) -> None:
    """A full disk, a path that cannot be written; the line that names the directory counts for more."""
    log = write(tmp_path / "train.log", (
        b"OSError: [Errno 28] No space left on device: '/cache/x'\n"
        b"RuntimeError: [Errno 28] No space left on device: '/runs/saved/step_3'\nloss=1 step=4\n"
        b"PermissionError: [Errno 13] Permission denied: '/elsewhere'\n"))
    found = {error.kind: error for error in find_save_errors(log, [Path("/runs/saved")])}
    assert found["disk-full"].names_root and not found["unwritable"].names_root
    assert find_save_errors(tmp_path / "none", []) == ()
