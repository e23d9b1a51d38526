"""What a command takes from ModelScope, had before the launch: missing is refused, the cache goes on without a hub."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace

from harness.command.interpreter import interpreter_path, own_interpreter
from harness.command.model import Finding
from harness.data.hub import FETCH_LIMITS, HubAsset, cached_if_unreachable, fetch
from harness.errors import HubError
from harness.frameworks.dataset import RemoteAsset
from harness.record.reasons import Reason
from harness.spec import RunSpec
from harness.supervise.understand import Understanding

REFUSED = {
    "hub-missing": Reason.HUB_ASSET_MISSING, "hub-denied": Reason.HUB_ASSET_MISSING,
    "hub-unreachable": Reason.HUB_UNREACHABLE, "hub-damaged": Reason.HUB_UNREACHABLE,
}
"""Errors of a model after which its trainer could not start either; a dataset's are told by its own inspection."""


def with_assets(
    understood: Understanding, spec: RunSpec, environ: Mapping[str, str], must_end: Callable[[], bool]
) -> tuple[RunSpec, tuple[Finding, ...], HubAsset | None]:
    """The request with local paths for what only the cache holds, findings about what cannot be had, and the model
    that training starts from where it came from the hub.

    Models are fetched into the client's own cache, where the trainer finds them.
    """
    if understood.refused or not understood.assets:
        return spec, (), None
    child = {**environ, **dict(understood.command.env_assignments)}
    python = interpreter_path(understood.command, spec.workdir, child) or own_interpreter()
    findings: list[Finding] = []
    start: HubAsset | None = None
    for asset in understood.assets:
        try:
            get = fetch if asset.kind == "model" else cached_if_unreachable
            got = get(asset.kind, asset.repository, python=python, workdir=spec.workdir, environ=child,
                      limits=replace(FETCH_LIMITS, is_cancelled=must_end))
        except HubError as error:
            if asset.kind == "model" and error.code in REFUSED:
                findings.append(_refused(REFUSED[error.code], f"{asset.flag} {asset.repository}: {error}"))
            continue
        start = got if asset.is_start else start
        if got is not None and got.offline:
            spec, finding = _offline(spec, asset, got)
            findings.append(finding)
    return spec, tuple(findings), start


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
