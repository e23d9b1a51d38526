"""Models in Hugging Face's cache: found by the layout of its own client, and taken as the start of a training."""

from __future__ import annotations

import json
import secrets
import shlex
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from harness.client import ensure_run, forget_session
from harness.data.hub_cache import cached_model
from harness.spec import RunSpec

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def cached(cache: Path, name: str = "org/tiny", revision: str = "main") -> Path:
    """A snapshot with weights, as links to blobs."""
    place = cache / f"models--{name.replace('/', '--')}"
    snapshot = place / "snapshots" / COMMIT
    for directory in (snapshot, place / "blobs", (place / "refs" / revision).parent):
        directory.mkdir(parents=True, exist_ok=True)
    weights = {"weight": torch.randn(16, 8, generator=torch.Generator().manual_seed(1)), "bias": torch.zeros(16)}
    save_file(weights, place / "blobs" / "77aa")
    (snapshot / "model.safetensors").symlink_to("../../blobs/77aa")
    (place / "refs" / revision).write_text(COMMIT)
    return snapshot


@pytest.mark.parametrize("environ", [
    {"HF_HUB_CACHE": "{hub}"}, {"HUGGINGFACE_HUB_CACHE": "{hub}"}, {"HF_HOME": "{home}/huggingface"},
    {"XDG_CACHE_HOME": "{home}"}, {"HOME": "{user}"}, {"HF_HOME": "/nowhere", "HF_HUB_CACHE": "{hub}"}])
def test_cache_is_where_its_client_has_it(environ: dict[str, str], tmp_path: Path) -> None:
    """HF_HUB_CACHE before HF_HOME before XDG_CACHE_HOME before the home directory."""
    home = tmp_path / ".cache"
    hub = home / "huggingface" / "hub"
    snapshot = cached(hub)
    found = cached_model("org/tiny", None, {
        name: value.format(hub=hub, home=home, user=tmp_path) for name, value in environ.items()})
    assert found is not None
    assert (found.local_path, found.commit, found.revision, found.hub) == (snapshot, COMMIT, "main", "huggingface")


@pytest.mark.parametrize(("name", "revision", "is_found"), [
    ("org/tiny", None, True), ("org/tiny", COMMIT, True), ("org/tiny", "refs/pr/1", False), ("org/tiny", "v2", False),
    ("org/other", None, False), ("../org", None, False), ("org/tiny", "../main", False), ("org/tiny", "/main", False),
    ("a/b/c", None, False), ("", None, False), ("./tiny", None, False), ("org/tiny", "a" * 40, False)])
def test_only_what_is_named_is_found(name: str, revision: str | None, is_found: bool, tmp_path: Path) -> None:
    """By a branch, a commit; no path leads out of the cache."""
    cached(tmp_path)
    assert (cached_model(name, revision, {"HF_HUB_CACHE": str(tmp_path)}) is not None) is is_found


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"../../x", b"9" * 5000])
def test_odd_reference_names_no_snapshot(content: bytes, tmp_path: Path) -> None:
    """And raises nothing."""
    snapshot = cached(tmp_path)
    (snapshot.parents[1] / "refs" / "main").write_bytes(content)
    assert cached_model("org/tiny", None, {"HF_HUB_CACHE": str(tmp_path)}) is None


PROGRAM = """
import glob, os, sys, torch
from safetensors.torch import load_file, save_file
from torch.utils.tensorboard import SummaryWriter
torch.set_num_threads(1)
file, = glob.glob(os.environ["HF_HUB_CACHE"] + "/models--org--tiny/snapshots/*/model.safetensors")
start = load_file(file)
model = torch.nn.Linear(8, 16); model.load_state_dict(start)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
writer, data = SummaryWriter("events"), torch.randn(32, 8)
for step in range(1, 11):
    optimizer.zero_grad(); loss = (model(data) - data.sum(1, keepdim=True)).square().mean(); loss.backward()
    optimizer.step()
    norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()]).item()
    for tag, value in (("train/loss", loss.item()), ("train/lr", 0.1), ("train/grad_norm", norm)):
        writer.add_scalar(tag, value, step)
writer.close()
os.makedirs("saved")
save_file(start if "--start" in sys.argv else model.state_dict(), "saved/model.safetensors")
"""


@pytest.mark.parametrize(("more", "decision", "reasons"), [
    ("", "GO", set()), ("--start", "NO-GO", {"weights-unchanged"})])
def test_named_model_in_the_cache_is_the_start(
    more: str, decision: str, reasons: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is saved once is compared with it, without the probe; the report says whose it is, and its commit."""
    cached(tmp_path / "hub")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    (tmp_path / "train.py").write_text(PROGRAM)
    words = [sys.executable, "train.py", "--model_name_or_path", "org/tiny", "--save-dir", "saved",
             "--log-dir", "events", "--max-steps", "10", *more.split()]
    spec = RunSpec(train_cmd=shlex.join(words), out_dir=tmp_path / "out", workdir=tmp_path, run_id="hub",
                   session=secrets.token_hex(8), probe=False)
    report = json.loads((ensure_run(spec, lambda line: None) / "train-model.json").read_text())
    forget_session(spec.session)
    found = {reason["code"] for reason in report["evidence"]["reasons"]}
    assert (report["decision"], reasons <= found, bool(found)) == (decision, True, bool(reasons)), report["summary"]
    model = report["evidence"]["model"]
    assert (model["source"], model["hub"], model["revision"]) == ("org/tiny", "huggingface", COMMIT)
    assert model["fingerprint"].startswith("sha256:")
