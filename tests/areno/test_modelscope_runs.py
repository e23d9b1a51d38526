"""AReno on a model and a dataset of ModelScope: its hub on loopback, then out of reach."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.data.hub import fetch
from harness.data.loaders import bundled
from tests.services.modelscope_hub import Hub

ASSETS = Path(__file__).parent / "assets"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with a tiny model and some sums."""
    place = tmp_path_factory.mktemp("hub")
    subprocess.run([sys.executable, ASSETS / "make_tiny.py", place / "tiny"], check=True, timeout=900)
    (place / "root" / "models" / "acme").mkdir(parents=True)
    shutil.move(place / "tiny", place / "root" / "models" / "acme" / "tiny")
    data = place / "root" / "datasets" / "acme" / "sums"
    data.mkdir(parents=True)
    rows = [{"prompt": f"what is {left} plus {right}?", "answer": f"the answer is {left + right}"}
            for left in range(6) for right in range(6)]
    (data / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return place


@pytest.fixture
def hub(place: Path) -> Iterator[Hub]:
    """The hub."""
    with Hub(place / "root") as hub:
        yield hub


def environment(place: Path, endpoint: str, cache: str = "cache") -> dict[str, str]:
    """A home and caches of its own."""
    kept = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    return {**kept, "HOME": str(place), "MODELSCOPE_CACHE": str(place / cache), "MODELSCOPE_ENDPOINT": endpoint,
            "HF_HOME": str(place / "hf"), "MLX_DISABLE_COMPILE": "1", "HF_HUB_OFFLINE": "1"}


def judged(name: str, place: Path, endpoint: str, flags: str, *options: str, cache: str = "cache") -> dict[str, Any]:
    """The report on an SFT run of three steps."""
    areno = shlex.quote(str(Path(sys.executable).parent / "areno"))
    loader = shlex.quote(str(bundled("prompt_response.py")))
    command = (f"{areno} train --backend mlx --algo sft --dataset-loader-fn {loader} --batch-size 8 --mini-bs 8 "
               f"--epochs 1 --max-steps 3 --max-prompt-tokens 64 --max-new-tokens 24 --lr 1e-3 "
               f"--save-path {place / name / 'out'} --save-interval 3 {flags}")
    words = [sys.executable, "-m", "pytest", "--pyargs", "harness.acceptance", "-m", "real_step", "-p",
             "no:cacheprovider", "--train-cmd", command, "--out-dir", str(place / name / "report"), *options]
    done = subprocess.run(words, cwd=place, env=environment(place, endpoint, cache), capture_output=True, text=True,
                          timeout=900)
    report = place / name / "report" / "train-model.json"
    assert report.exists(), done.stdout[-3000:] + done.stderr[-3000:]
    found: dict[str, Any] = json.loads(report.read_text())
    return found


def nobody() -> str:
    """An endpoint at which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


def codes(report: dict[str, Any]) -> list[str]:
    """Why it is not GO."""
    return [reason["code"] for reason in report["evidence"]["reasons"]]


def test_missing_model_is_never_launched(hub: Hub, place: Path) -> None:
    """Refused with what to give instead; nothing is asked of another hub."""
    report = judged("missing", place, hub.endpoint, "--ckpt acme/none --dataset-path acme/sums")
    assert (report["decision"], codes(report), report["evidence"]["attempts"]) == ("NO-GO", ["hub-asset-missing"], [])


def test_cached_assets_train_without_a_hub(hub: Hub, place: Path) -> None:
    """Both were fetched once; with nobody at the endpoint the job trains on the cached copies, and this is said."""
    for kind, repository in (("model", "acme/tiny"), ("dataset", "acme/sums")):
        fetch(kind, repository, python=Path(sys.executable), workdir=place, environ=environment(place, hub.endpoint))
    report = judged("offline", place, nobody(), "--ckpt acme/tiny --dataset-path acme/sums")
    assert report["decision"] == "GO", report["summary"]
    assert str(place / "cache") in report["evidence"]["dataset"]["local_path"]
    model = report["evidence"]["model"]
    assert (model["source"], model["hub"], bool(model["revision"])) == ("acme/tiny", "modelscope", True)
    assert str(place / "cache") in model["local_path"] and model["fingerprint"].startswith("sha256:")
    assert "hub-offline" in [finding["title"] for finding in report["findings"]]


def test_hub_that_was_out_of_reach_is_retried_to_go_with_its_lineage(hub: Hub, place: Path) -> None:
    """Nothing was launched, and nothing of the job was wrong: with the hub there, the same command is GO."""
    flags = "--ckpt acme/tiny --dataset-path root/datasets/acme/sums/train.jsonl"
    first = judged("unreachable", place, nobody(), flags, cache="empty")
    assert (first["decision"], first["evidence"]["outcome"], first["evidence"]["attempts"]) == (
        "NO-GO", "infrastructure", [])
    failure = json.loads((place / "unreachable" / "report" / "check-failed-run.json").read_text())
    assert (failure["primary_cause"], failure["decision"]) == ("cloud-permissions-quota", "GO")
    assert "acme/tiny" in failure["first_causal"]["message"]
    assert any("--retry-of" in command for command in failure["next_commands"])
    report = judged("reachable", place, hub.endpoint, flags, "--retry-of", str(place / "unreachable" / "report"),
                    cache="empty")
    assert (report["decision"], codes(report)) == ("GO", []), report["summary"]
    lineage = report["evidence"]["lineage"]
    assert (lineage["first_failure"]["primary_cause"], lineage["tries"], lineage["pass_at_k"]) == (
        "cloud-permissions-quota", 1, True)
    assert [(row["launched"], row["outcome"]) for row in lineage["attempts"]] == [
        (False, "infrastructure"), (True, "good")]
