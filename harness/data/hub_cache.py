"""Models that lie in Hugging Face's cache, by its layout; nothing is imported and no network is asked.

Layout: huggingface.co/docs/huggingface_hub, "Understand caching": models--ORG--NAME/refs/REVISION holds a commit,
models--ORG--NAME/snapshots/COMMIT its files, as links to blobs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from harness.data.hub import HubAsset

DEFAULT_REVISION = "main"
MAX_COMMIT_BYTES = 200
_REPOSITORY = re.compile(r"[\w-][\w.-]{0,95}(/[\w-][\w.-]{0,95})?")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_REVISION = re.compile(r"[\w.-]+(/[\w.-]+)*")


def cached_model(repository: str, revision: str | None, environ: Mapping[str, str]) -> HubAsset | None:
    """The snapshot of a model, `name` or `org/name`; None where none with weights lies here."""
    asked = revision or DEFAULT_REVISION
    if not _REPOSITORY.fullmatch(repository) or not _REVISION.fullmatch(asked) or ".." in asked:
        return None
    place = _cache(environ) / f"models--{repository.replace('/', '--')}"
    try:
        commit = asked if _COMMIT.fullmatch(asked) else _read(place / "refs" / asked)
        snapshot = place / "snapshots" / commit
        if not _COMMIT.fullmatch(commit) or not any(snapshot.glob("*.safetensors")):
            return None
    except (OSError, ValueError):
        return None
    return HubAsset(hub="huggingface", repository=repository, local_path=snapshot, revision=asked, commit=commit,
                    offline=False)


def _cache(environ: Mapping[str, str]) -> Path:
    """As huggingface_hub.constants finds it."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if environ.get(name):
            return Path(environ[name]).expanduser()
    if environ.get("HF_HOME"):
        return Path(environ["HF_HOME"]).expanduser() / "hub"
    place = environ.get("XDG_CACHE_HOME") or f"{environ.get('HOME', '~')}/.cache"
    return Path(place).expanduser() / "huggingface" / "hub"


def _read(path: Path) -> str:
    with path.open("rb") as stream:
        return stream.read(MAX_COMMIT_BYTES).decode("ascii").strip()
