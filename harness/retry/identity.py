"""What makes two runs the same job beside their settings: code, model, data, framework, environment."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from harness.frameworks.base import FrameworkFacts
from harness.record.run_record import RunRecord
from harness.retry.changes import OBSERVABILITY, kind_of

SHOWN = 20
"""Packages that are named one by one."""
MEANINGS = {
    "commit": "the commit", "diff": "uncommitted changes", "entrypoint": "the training script itself",
    "files": "programs and data files that the command names",
    "model": "the weights that training starts from", "dataset": "the dataset", "framework": "the framework",
    "python": "the interpreter's version", "packages": "installed packages", "gpu": "kinds of GPUs",
    "harness_version": "this harness",
}
"""What is compared, in the order of the evidence."""
UNPROVEN = " (no fingerprint: a name says nothing of what is behind it)"
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityDifference:
    """One part of the identity that is not the same, or of which one run does not tell."""

    what: str
    before: str
    after: str
    known: bool
    """False where only one of the runs tells, or both only by name."""
    approved: bool = False

    @property
    def differs(self) -> bool:
        """False where both bear the same name and nothing shows that it means the same."""
        return self.before != self.after

    def to_json(self) -> dict[str, Any]:
        """For the journal and the evidence."""
        return asdict(self)


def identity_of(record: RunRecord) -> dict[str, Any]:
    """{what: value} of a run; None for what it does not tell. Packages are {name: version}."""
    commit = record.fact("environment", "commit") or {}
    environment = record.fact("environment", "environment") or {}
    sha, files = commit.get("sha"), record.fact("settings", "files") or {}
    python, packages = environment.get("python") or {}, environment.get("packages")
    devices = environment.get("accelerators")
    return {
        "commit": sha,
        "diff": None if sha is None else (commit.get("diff_sha256") or "clean"),
        "entrypoint": files.get("entrypoint"),
        "files": _named_files(files, record) if files else None,
        "model": _model(record),
        "dataset": _content(record.last("dataset") or {}),
        "framework": (record.fact("command", "facts") or {}).get("name"),
        "python": python.get("version") if isinstance(python, Mapping) else None,
        "packages": packages if isinstance(packages, Mapping) else None,
        "gpu": ", ".join(sorted({str(item.get("name")) for item in devices})) or "none"
        if isinstance(devices, list) else None,
        "harness_version": record.fact("run-started", "harness_version"),
    }


def _model(record: RunRecord) -> str | None:
    """The weights, and the adapter on top of them that training goes on with."""
    entry = record.last("model") or {}
    parts = (_content(entry), (entry.get("adapter") or {}).get("fingerprint"))
    return " + ".join(part for part in parts if part) or None


def is_proven(value: Any) -> bool:
    """Whether a part of the identity is told by more than a name."""
    return value is not None and UNPROVEN not in str(value)


def _content(entry: Mapping[str, Any]) -> str | None:
    """The fingerprint; a remote reference with the commit that it is pinned to; one that only bears a name says so."""
    source, revision = entry.get("source"), entry.get("revision")
    if entry.get("fingerprint") or not source:
        return entry.get("fingerprint")
    return f"{source}@{revision}" if revision and _COMMIT.fullmatch(str(revision)) else f"{source}{UNPROVEN}"


def _named_files(files: Mapping[str, Any], record: RunRecord) -> dict[str, Any]:
    """{name of the flag: digest}, but for files that the run itself writes."""
    facts = FrameworkFacts.from_json(record.fact("command", "facts") or {"name": "unknown", "reason": ""})
    named = {key.removeprefix("file "): digest for key, digest in files.items() if key.startswith("file ")}
    return {key: digest for key, digest in named.items() if kind_of(key, facts, {}, {}) != OBSERVABILITY}


def identity_differences(
    before: Mapping[str, Any], after: Mapping[str, Any], approve: Iterable[str] = ()
) -> tuple[IdentityDifference, ...]:
    """Each part that is not the same or not proven to be, named; what neither run tells is no difference."""
    approved, found = set(approve), []
    for what in MEANINGS:
        old, new = before.get(what), after.get(what)
        if what == "files" and isinstance(old, Mapping) and isinstance(new, Mapping):
            both = [name for name in old if name in new]  # a file that only one names is another setting
            old, new = ({name: side[name] for name in both} for side in (old, new))
        if (old == new and (old is None or is_proven(old))) or (what == "files" and None in (old, new)):
            continue
        told_old, told_new = (_packages(old, new) if what in ("packages", "files")
                              else (_told(old), _told(new)))
        found.append(IdentityDifference(what=what, before=told_old, after=told_new, approved=what in approved,
                                        known=is_proven(old) and is_proven(new)))
    return tuple(found)


def _told(value: Any) -> str:
    return "not told" if value is None else str(value)


def _packages(old: Any, new: Any) -> tuple[str, str]:
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return _told(old and "told"), _told(new and "told")
    names = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return tuple(  # type: ignore[return-value]
        ", ".join(f"{name} {side.get(name, 'none')}" for name in names[:SHOWN]) + more for side in (old, new))
