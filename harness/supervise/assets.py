"""What a command takes from ModelScope, had before the launch: missing is refused, the cache goes on without a hub."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from harness.command.interpreter import interpreter_path, own_interpreter
from harness.command.model import Finding
from harness.data.hub import FETCH_LIMITS, HubAsset, cached_if_unreachable, fetch
from harness.errors import HubError
from harness.frameworks.dataset import RemoteAsset
from harness.launch.child import Limits
from harness.record.reasons import Reason
from harness.spec import RunSpec
from harness.supervise.dataset import MODELSCOPE_REVISION
from harness.supervise.understand import Understanding

REFUSED = {
    "hub-missing": Reason.HUB_ASSET_MISSING, "hub-denied": Reason.HUB_ASSET_MISSING,
    "hub-unreachable": Reason.HUB_UNREACHABLE, "hub-damaged": Reason.HUB_UNREACHABLE,
}
"""Errors of a model after which its trainer could not start either; a dataset's are told by its own inspection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Had:
    """What the hub gave before the launch."""

    start: HubAsset | None = None
    """The model that training starts from, where it came from the hub."""
    base: HubAsset | None = None
    """Likewise the model below the adapter that is trained."""
    dataset_commit: str | None = None
    """What the dataset's revision stood for; None where the hub does not say."""


def with_assets(
    understood: Understanding, spec: RunSpec, environ: Mapping[str, str], must_end: Callable[[], bool]
) -> tuple[RunSpec, tuple[Finding, ...], Had]:
    """The request with local paths for what only the cache holds, findings about what cannot be had or is a name that
    moves, and what was had.

    Models are fetched into the client's own cache, where the trainer finds them.
    """
    if understood.refused or not understood.assets:
        return spec, (), Had()
    child = {**environ, **dict(understood.command.env_assignments)}
    python = interpreter_path(understood.command, spec.workdir, child) or own_interpreter()
    findings: list[Finding] = []
    had = Had()
    for asset in understood.assets:
        try:
            got, commit = _had(asset, python, spec, child, replace(FETCH_LIMITS, is_cancelled=must_end))
        except HubError as error:
            if asset.kind == "model" and error.code in REFUSED:
                findings.append(_refused(REFUSED[error.code], f"{asset.flag} {asset.repository}: {error}"))
            continue
        had = replace(had, start=got if asset.is_start else had.start, base=got if asset.is_base else had.base,
                      dataset_commit=commit if asset.kind == "dataset" else had.dataset_commit)
        if commit is None:
            findings.append(_moving(asset, got.revision if got is not None else MODELSCOPE_REVISION))
        if got is not None and got.offline:
            spec, finding = _offline(spec, asset, got)
            findings.append(finding)
    return spec, tuple(findings), had


def _had(
    asset: RemoteAsset, python: Path, spec: RunSpec, environ: Mapping[str, str], limits: Limits
) -> tuple[HubAsset | None, str | None]:
    """A model that lies here now, or what the cache holds of a dataset that cannot be asked for; and the commit."""
    if asset.kind != "model":
        return cached_if_unreachable(asset.kind, asset.repository, python=python, workdir=spec.workdir,
                                     environ=environ, limits=limits)
    got = fetch(asset.kind, asset.repository, python=python, workdir=spec.workdir, environ=environ, limits=limits)
    return got, got.commit


def _moving(asset: RemoteAsset, revision: str) -> Finding:
    message = (f"{asset.flag} {asset.repository}: the commit behind {revision} is not known, and what that name stands "
               "for may change; the fingerprint in the evidence tells what was used")
    return Finding(code="hub-revision-moves", message=message, refuses=False)


def _offline(spec: RunSpec, asset: RemoteAsset, got: HubAsset) -> tuple[RunSpec, Finding]:
    """The trainer would ask the hub although the cache holds everything, so it is given the path."""
    words = shlex.split(spec.train_cmd)
    spellings = (asset.repository, f"{asset.flag}={asset.repository}")
    given = [index for index, word in enumerate(words) if word in spellings]
    if not given:
        message = f"{asset.flag} {asset.repository}: {got.note}; give its cached copy by path: {got.local_path}"
        return spec, _refused(Reason.HUB_UNREACHABLE, message)
    for index in given:
        words[index] = words[index].replace(asset.repository, str(got.local_path))
    message = f"{got.note}; {asset.flag} is given the cached {asset.repository}: {got.local_path}"
    return replace(spec, train_cmd=shlex.join(words)), Finding(code="hub-offline", message=message, refuses=False)


def _refused(reason: Reason, message: str) -> Finding:
    return Finding(code=reason.value, message=message, refuses=True)
