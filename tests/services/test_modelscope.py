"""ModelScope's own client against a hub on loopback: what arrives, what does not, and how soon that is told."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from harness.data.hub import HubAsset, fetch
from harness.data.inspect import Inspector, inspect_dataset
from harness.data.model import Inspection
from harness.errors import HubError
from harness.frameworks.dataset import NamedDataset
from harness.launch.child import Limits
from harness.record.reasons import Reason
from harness.record.redaction import Redactor
from harness.spec import RunSpec
from harness.supervise.assets import with_assets
from harness.supervise.retry import model_facts
from harness.supervise.understand import understand
from tests.services.modelscope_hub import COMMIT, Hub

PYTHON = Path(sys.executable)
ROWS = [{"prompt": f"{number}+1?", "answer": str(number + 1)} for number in range(5)]
SECONDS = 110.0
"""Within which a hub that is out of reach must be told, imports on a busy machine included: no limit ends it."""


TAKEN: list[socket.socket] = []
"""Bound and never listening."""


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    """A hub with a model of two revisions, and a dataset."""
    root = tmp_path / "root"
    for name, text in (("tiny", "master"), ("tiny@v2", "second")):
        model = root / "models" / "acme" / name
        model.mkdir(parents=True)
        (model / "config.json").write_text(json.dumps({"model_type": text}))
    (root / "models" / "acme" / "tiny" / "model.bin").write_bytes(os.urandom(3_000_000))
    data = root / "datasets" / "acme" / "sums"
    data.mkdir(parents=True)
    (data / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    with Hub(root) as hub:
        yield hub


def environment(place: Path, endpoint: str, **more: str) -> dict[str, str]:
    """A home and a cache of its own, and no proxy in between."""
    kept = {name: value for name, value in os.environ.items()
            if "proxy" not in name.lower() and name != "HF_HUB_OFFLINE"}
    (place / "home").mkdir(exist_ok=True)
    return {**kept, "HOME": str(place / "home"), "MODELSCOPE_CACHE": str(place / "cache"),
            "MODELSCOPE_ENDPOINT": endpoint, "HF_HOME": str(place / "hf"), **more}


def fetched(kind: str, repository: str, place: Path, environ: Mapping[str, str], revision: str | None = None,
            seconds: float = 120.0) -> HubAsset:
    """One asset."""
    return fetch(kind, repository, revision=revision, python=PYTHON, workdir=place, environ=environ,
                 limits=Limits(seconds=seconds))


def refused(kind: str, repository: str, place: Path, environ: Mapping[str, str]) -> HubError:
    """The error of an asset that cannot be had."""
    with pytest.raises(HubError) as caught:
        fetched(kind, repository, place, environ)
    return caught.value


def nobody() -> str:
    """An endpoint where nobody listens, which nobody else can take meanwhile."""
    TAKEN.append(socket.socket())
    TAKEN[-1].bind(("127.0.0.1", 0))
    return f"http://127.0.0.1:{TAKEN[-1].getsockname()[1]}"


def test_model_snapshot_arrives_whole(hub: Hub, tmp_path: Path) -> None:
    """Every file, byte for byte."""
    asset = fetched("model", "acme/tiny", tmp_path, environment(tmp_path, hub.endpoint))
    sent = hub.root / "models" / "acme" / "tiny" / "model.bin"
    assert (asset.local_path / "model.bin").read_bytes() == sent.read_bytes()
    assert (asset.revision, asset.commit, asset.offline) == ("master", COMMIT, False)


def test_revision_is_the_one_that_was_asked_for(hub: Hub, tmp_path: Path) -> None:
    """Another revision has other files; one that is not there is told by its name."""
    environ = environment(tmp_path, hub.endpoint)
    asset = fetched("model", "acme/tiny", tmp_path, environ, revision="v2")
    assert json.loads((asset.local_path / "config.json").read_text()) == {"model_type": "second"}
    with pytest.raises(HubError, match="at revision v9"):
        fetched("model", "acme/tiny", tmp_path, environ, revision="v9")


@pytest.mark.parametrize("names_commits", [True, False])
def test_a_revision_is_recorded_as_its_commit_or_said_to_move(
    names_commits: bool, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the model and of the dataset; a hub that names no commit leaves a name that moves, which is a finding."""
    hub.names_commits = names_commits
    for name in [name for name in os.environ if "proxy" in name.lower()]:
        monkeypatch.delenv(name)
    environ = environment(tmp_path, hub.endpoint)
    command = "areno train --algo sft --ckpt acme/tiny --dataset-path acme/sums --model-hub modelscope"
    spec = RunSpec(train_cmd=command, out_dir=tmp_path / "out", workdir=tmp_path, run_id="hub")
    understood = replace(understand(spec, environ, write=False), findings=())  # no AReno is installed here
    _, findings, had = with_assets(understood, spec, environ, lambda: False)
    assert had.start is not None and had.start.commit == had.dataset_commit == (COMMIT if names_commits else None)
    assert [item.code for item in findings] == ([] if names_commits else ["hub-revision-moves"] * 2)
    assert all("may change" in item.message for item in findings)


def test_the_model_below_an_adapter_is_told(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its source, commit and fingerprint, with the adapter's rank beside them; no checkpoint is compared with it."""
    for name in [name for name in os.environ if "proxy" in name.lower()]:
        monkeypatch.delenv(name)
    environ = environment(tmp_path, hub.endpoint)
    command = "areno train --algo sft --ckpt acme/tiny --lora-rank 4 --dataset-path acme/sums --model-hub modelscope"
    spec = RunSpec(train_cmd=command, out_dir=tmp_path / "out", workdir=tmp_path, run_id="hub")
    understood = replace(understand(spec, environ, write=False), findings=())
    _, _, had = with_assets(understood, spec, environ, lambda: False)
    told = model_facts(understood.facts, Redactor(), had.base)
    assert had.start is None and (told["source"], told["hub"], told["revision"]) == ("acme/tiny", "modelscope", COMMIT)
    assert told["fingerprint"].startswith("sha256:")
    assert (told["adapter"]["kind"], told["adapter"]["rank"], told["adapter"]["path"]) == ("lora", "4", None)


def test_dataset_snapshot_arrives_whole(hub: Hub, tmp_path: Path) -> None:
    """The files of a dataset repository."""
    asset = fetched("dataset", "acme/sums", tmp_path, environment(tmp_path, hub.endpoint))
    assert len((asset.local_path / "train.jsonl").read_text().splitlines()) == 5


@pytest.mark.parametrize("kind", ["model", "dataset"])
def test_missing_repository_is_refused_with_what_to_give(kind: str, hub: Hub, tmp_path: Path) -> None:
    """By its name; nothing is fetched from elsewhere in its place."""
    error = refused(kind, "acme/none", tmp_path, environment(tmp_path, hub.endpoint))
    assert error.code == "hub-missing"
    assert f"the {kind} acme/none is not on ModelScope" in str(error)
    assert "give a valid ModelScope id or a local path" in str(error)


def test_token_opens_a_closed_repository(hub: Hub, tmp_path: Path) -> None:
    """Without it the error names the variable; the token itself is in no message."""
    hub.closed.add("acme/tiny")
    environ = environment(tmp_path, hub.endpoint)
    error = refused("model", "acme/tiny", tmp_path, environ)
    assert error.code == "hub-denied" and "MODELSCOPE_API_TOKEN (none is set)" in str(error)
    wrong = refused("model", "acme/tiny", tmp_path, {**environ, "MODELSCOPE_API_TOKEN": "wrong-token-123456"})
    assert "is not accepted" in str(wrong) and "wrong-token-123456" not in str(wrong)
    asset = fetched("model", "acme/tiny", tmp_path, {**environ, "MODELSCOPE_API_TOKEN": hub.token})
    assert (asset.local_path / "config.json").exists()


def test_cut_download_goes_on_where_it_ended(hub: Hub, tmp_path: Path) -> None:
    """The connection ends in the middle of a file; the rest alone is asked for, and the file is whole."""
    hub.cut.add("model.bin")
    asset = fetched("model", "acme/tiny", tmp_path, environment(tmp_path, hub.endpoint))
    sent = (hub.root / "models" / "acme" / "tiny" / "model.bin").read_bytes()
    assert hashlib.sha256((asset.local_path / "model.bin").read_bytes()).digest() == hashlib.sha256(sent).digest()
    ranges = [asked for path, asked in hub.requests if "model.bin" in path and asked]
    assert any(not asked.startswith("bytes=0-") for asked in ranges), ranges


def test_wrong_digest_is_never_taken(hub: Hub, tmp_path: Path) -> None:
    """A file that is not what the hub said is an error that names it."""
    hub.lies.add("model.bin")
    error = refused("model", "acme/tiny", tmp_path, environment(tmp_path, hub.endpoint))
    assert error.code == "hub-damaged" and "model.bin" in str(error)


def test_no_network_goes_on_with_the_cache(hub: Hub, tmp_path: Path) -> None:
    """A snapshot that is there is used, and that the hub is out of reach is said."""
    for kind, repository in (("model", "acme/tiny"), ("dataset", "acme/sums")):
        online = fetched(kind, repository, tmp_path, environment(tmp_path, hub.endpoint))
        started = time.monotonic()
        offline = fetched(kind, repository, tmp_path, environment(tmp_path, nobody()))
        assert (offline.local_path, offline.offline) == (online.local_path, True)
        assert "cannot be reached" in offline.note
        assert time.monotonic() - started < SECONDS


def test_no_network_and_no_cache_ends_in_seconds(tmp_path: Path) -> None:
    """In words: where it looked, why it could not, and that the cache does not hold it."""
    started = time.monotonic()
    endpoint = nobody()
    error = refused("model", "acme/tiny", tmp_path, environment(tmp_path, endpoint))
    assert time.monotonic() - started < SECONDS
    assert error.code == "hub-unreachable"
    assert f"ModelScope at {endpoint} cannot be reached: Connection refused" in str(error)
    assert "not in its cache either" in str(error)


def test_name_that_nobody_knows_ends_in_seconds(tmp_path: Path) -> None:
    """A host that cannot be looked up."""
    started = time.monotonic()
    error = refused("model", "acme/tiny", tmp_path, environment(tmp_path, "http://hub.invalid"))
    assert error.code == "hub-unreachable" and time.monotonic() - started < SECONDS


def test_hub_that_never_answers_is_given_up(hub: Hub, tmp_path: Path) -> None:
    """Connections are taken and nothing comes back."""
    hub.hangs = True
    started = time.monotonic()
    error = refused("model", "acme/tiny", tmp_path, environment(tmp_path, hub.endpoint))
    assert error.code == "hub-unreachable" and time.monotonic() - started < SECONDS


def test_interpreter_without_the_client_is_told(tmp_path: Path) -> None:
    """What to install, and where."""
    environ = environment(tmp_path, nobody(), PYTHONPATH=str(_hidden(tmp_path)))
    with pytest.raises(HubError, match="install it there"):
        fetched("model", "a/b", tmp_path, environ)


def _hidden(place: Path) -> Path:
    """A directory whose `modelscope_hub` cannot be imported."""
    (place / "hidden").mkdir()
    (place / "hidden" / "modelscope_hub.py").write_text("raise ImportError('not installed here')\n")
    return place / "hidden"


def inspected(path: str, place: Path, environ: Mapping[str, str], hub: str = "modelscope") -> Inspection:
    """A dataset of the hub, as a job would read it."""
    return inspect_dataset(
        NamedDataset(path=path, algorithm="gspo", kind="rollout", model_hub=hub),
        Inspector(python=PYTHON, workdir=place, environ=environ, limits=Limits(seconds=120)))


def test_msdataset_is_inspected_row_by_row(hub: Hub, tmp_path: Path) -> None:
    """By its id, with and without its split, through modelscope's own MsDataset."""
    environ = environment(tmp_path, hub.endpoint)
    for path in ("acme/sums", "acme/sums::train"):
        found = inspected(path, tmp_path, environ)
        assert found.ok, found.errors
        assert (found.total, found.normalized.samples[0]) == (5, ROWS[0])
        assert found.files


def test_offline_mode_of_another_hub_is_named(hub: Hub, tmp_path: Path) -> None:
    """HF_HUB_OFFLINE also stops MsDataset; that is no hub out of reach."""
    found = inspected("acme/sums", tmp_path, environment(tmp_path, hub.endpoint, HF_HUB_OFFLINE="1"))
    assert [problem.reason for problem in found.errors] == [Reason.DATASET_UNREADABLE]
    assert "HF_HUB_OFFLINE is set" in found.errors[0].message


MISSING = {
    "acme/none": Reason.HUB_ASSET_MISSING,
    "acme/sums::test": Reason.HUB_ASSET_MISSING,
    "acme/sums:other": Reason.HUB_ASSET_MISSING,
}


@pytest.mark.parametrize("path", MISSING)
def test_dataset_that_is_not_there(path: str, hub: Hub, tmp_path: Path) -> None:
    """Repository, split and subset each end with the reason of a missing asset."""
    found = inspected(path, tmp_path, environment(tmp_path, hub.endpoint))
    assert [problem.reason for problem in found.errors] == [MISSING[path]], found.errors


def test_dataset_without_a_network_ends_in_seconds(tmp_path: Path) -> None:
    """Its own reason, which says that a retry may help."""
    started = time.monotonic()
    found = inspected("acme/sums", tmp_path, environment(tmp_path, nobody()))
    assert [problem.reason for problem in found.errors] == [Reason.HUB_UNREACHABLE]
    assert "cannot be reached: Connection refused" in found.errors[0].message
    assert time.monotonic() - started < SECONDS


def test_other_hubs_are_refused(tmp_path: Path) -> None:
    """Nothing is asked of them."""
    found = inspected("acme/sums", tmp_path, environment(tmp_path, nobody()), hub="hf")
    assert [problem.code for problem in found.errors] == ["hub-refused"]
