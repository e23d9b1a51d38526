"""Weights and data that a command names and no adapter looked at: by the fingerprint of a local copy, or by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.data.source import fingerprint

FULL_BYTES = 1 << 30
"""Larger ones are told apart by sizes and ends, so that no launch waits for a digest of all of them."""
SURE = {"model": ("model_name_or_path", "pretrained_model_name_or_path", "base_model", "ckpt"),
        "dataset": ("dataset_name", "dataset_name_or_path", "dataset_path")}
"""Settings that name weights or data, whatever they hold."""
LOOSE = {"model": ("model", "model_name", "model_id", "pretrained"), "dataset": ("dataset", "dataset_id", "data")}
"""Settings that may also hold the name of an architecture or a directory; counted where they name a repository."""
REVISIONS = {"model": ("model_revision", "revision"), "dataset": ("dataset_revision",)}
_REPOSITORY = re.compile(r"[\w-][\w.-]{0,95}/[\w-][\w.-]{0,95}")
_OWN = "{out_dir}"


def named_reference(kind: str, settings: Mapping[str, Any], workdir: Path) -> dict[str, Any] | None:
    """{source, hub, revision, local_path, fingerprint} of the model or the dataset that the journal's entry `settings`
    names; None where none is named, or where it is a file whose digest stands there already."""
    values: Mapping[str, str] = settings.get("values") or {}
    files: Mapping[str, Any] = settings.get("files") or {}
    by_name = {_last(key): (key, value) for key, value in values.items()}
    for name in (*SURE[kind], *LOOSE[kind]):
        key, value = by_name.get(name, ("", ""))
        if not value or value in ("true", "null") or value.startswith(_OWN) or files.get(f"file {key}"):
            continue
        place = workdir / value
        if name in SURE[kind] and place.exists():
            return {"source": value, "hub": None, "revision": None, "local_path": str(place),
                    "fingerprint": fingerprint(place, full_bytes=FULL_BYTES)}
        if not place.exists() and (name in SURE[kind] or _REPOSITORY.fullmatch(value)):
            revision = next((by_name[one][1] for one in REVISIONS[kind] if one in by_name), None)
            return {"source": value, "hub": None, "revision": revision, "local_path": None, "fingerprint": None}
    return None


def _last(key: str) -> str:
    """The last part of a setting's name, as `config:model.model_name_or_path` has it."""
    return re.split(r"[.:]", key)[-1].replace("-", "_").lower()
