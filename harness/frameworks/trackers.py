"""Where experiment trackers keep their local files: W&B's offline runs, MLflow's directory and database.

Any program of any framework may use them, so that their default places are looked at for every one, beside what its
adapter declares. AReno writes to neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from harness.command.model import TrainingCommand
from harness.frameworks.base import FrameworkFacts, resolve_under
from harness.spec import RunSpec

WANDB_DIRECTORY = "wandb"
MLFLOW_DIRECTORY = "mlruns"
MLFLOW_DATABASE = "mlflow.db"
TRACKER_NAMES = (WANDB_DIRECTORY, MLFLOW_DIRECTORY, MLFLOW_DATABASE)
"""Defaults below the working directory, which other runs write to as well."""


def with_trackers(
    facts: FrameworkFacts, command: TrainingCommand, spec: RunSpec, environ: Mapping[str, str]
) -> FrameworkFacts:
    """The facts with the trackers' places among the metric roots."""
    if not facts.reads_output:
        return facts
    places = (*_named({**environ, **dict(command.env_assignments)}, spec.workdir),
              *(spec.workdir / name for name in TRACKER_NAMES))
    return replace(facts, metric_roots=tuple(dict.fromkeys((*facts.metric_roots, *map(str, places)))))


def _named(environ: Mapping[str, str], workdir: Path) -> list[Path]:
    found = []
    if environ.get("WANDB_DIR"):
        found.append(resolve_under(workdir, environ["WANDB_DIR"]) / WANDB_DIRECTORY)
    place = tracking_place(environ.get("MLFLOW_TRACKING_URI", ""))
    if place is not None:
        found.append(resolve_under(workdir, place))
    return found


def tracking_place(uri: str) -> str | None:
    """The directory or database that a tracking URI names on this machine; None for a server's."""
    parts = urlsplit(uri)
    if parts.scheme in ("", "file"):
        return unquote(parts.path) or None
    if parts.scheme.partition("+")[0] == "sqlite" and not parts.netloc:
        return unquote(parts.path)[1:] or None
    return None
