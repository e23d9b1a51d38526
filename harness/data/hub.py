"""ModelScope assets by its own client, in a child: its import is heavy, and its network may hang."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import HubError
from harness.launch.child import Limits, run_child

CLIENT = Path(__file__).parent / "site" / "_real_step_hub.py"
FETCH_LIMITS = Limits(seconds=4 * 3600.0)
"""A large model takes its time; a hub that is out of reach is told within seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HubAsset:
    """A model or a dataset that lies here now."""

    repository: str
    local_path: Path
    revision: str
    """The branch or tag that was asked for."""
    commit: str | None
    """What that name stood for; None where the hub does not say or is out of reach."""
    offline: bool
    """Whether it came from the cache because the hub is out of reach; `note` says why."""
    note: str = ""
    hub: str = "modelscope"


def fetch(
    kind: str, repository: str, *, revision: str | None = None, python: Path, workdir: Path,
    environ: Mapping[str, str], limits: Limits = FETCH_LIMITS,
) -> HubAsset:
    """The snapshot of a "model" or a "dataset". HubError, whose code and words tell what to do.

    A cut download goes on where it ended. Without a network the cache is used; without a cached snapshot the error
    comes within seconds.
    """
    asset, _ = _ask(kind, repository, revision, python, workdir, environ, limits, download=True)
    assert asset is not None
    return asset


def cached_if_unreachable(
    kind: str, repository: str, *, revision: str | None = None, python: Path, workdir: Path,
    environ: Mapping[str, str], limits: Limits = FETCH_LIMITS,
) -> tuple[HubAsset | None, str | None]:
    """(cached snapshot where the hub is out of reach, None where it answers; commit where it says one).

    HubError as `fetch` has it.
    """
    return _ask(kind, repository, revision, python, workdir, environ, limits, download=False)


def _ask(
    kind: str, repository: str, revision: str | None, python: Path, workdir: Path, environ: Mapping[str, str],
    limits: Limits, *, download: bool,
) -> tuple[HubAsset | None, str | None]:
    told: list[dict[str, Any]] = []
    request = {"kind": kind, "repository": repository, "revision": revision, "download": download}
    end = run_child(
        [str(python), str(CLIENT)], request, told.append, cwd=workdir, environ=environ, limits=limits)
    answer = told[-1] if told else {}
    commit = str(answer["commit"]) if answer.get("commit") else None
    if answer.get("kind") == "asset" and not answer["local_path"]:
        return None, commit
    if answer.get("kind") == "asset":
        return HubAsset(
            repository=repository, local_path=Path(str(answer["local_path"])), revision=str(answer["revision"]),
            commit=commit, offline=bool(answer["offline"]), note=str(answer.get("note") or "")), commit
    if answer.get("kind") == "error":
        raise HubError(str(answer["message"]), code=str(answer["code"]))
    last = end.output_tail.splitlines()[-1][:300] if end.output_tail else ""
    what = f"the {kind} {repository}: {end.problem or 'the client ended without an answer'}"
    raise HubError(what + (f"; it last printed: {last}" if last else ""), code="hub-failed")
