"""What a judge holds against a run beside its facts: reference bands (--expect) and a policy file (--policy)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from harness.errors import ConfigError


def asked_of(expect: Iterable[str] | None, policy: str | None, here: Path) -> dict[str, Any]:
    """Fields of a RunSpec that say how it is judged; {} where neither was given, so that the run's own count.

    Paths are relative to `here`. ConfigError for what cannot be read.
    """
    return {**_bands(tuple(expect or ()), here), **_policy(policy, here)}


def _bands(given: tuple[str, ...], here: Path) -> dict[str, Any]:
    if not given:
        return {}
    from harness.judge.bands_file import read_bands

    return {"expect": tuple(band.to_json() for band in read_bands(given, here))}


def _policy(given: str | None, here: Path) -> dict[str, Any]:
    if given is None:
        return {}
    if not str(given).strip():
        raise ConfigError("--policy is empty: give a TOML file")
    from harness.judge.gates import check_names
    from harness.judge.policy import read_policy

    path = (here / Path(given).expanduser()).absolute()
    policy = read_policy(path, check_names())
    return {"policy": path, "policy_digest": policy.digest, "thresholds": policy.thresholds,
            "required_gates": policy.required, "waivers": policy.waivers}
