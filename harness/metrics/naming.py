"""What names say: the run that a file's place names, and the phase that a tag's name does."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from harness.record.vocabulary import Phase

_EVAL_STEM = re.compile(r"^(eval|val|valid|validation|test)([_.-]|$)")


def phase_rule(
    eval_tag_patterns: Iterable[str], summary_tag_patterns: Iterable[str] = ()
) -> Callable[[str, str], Phase]:
    """(run, tag) -> phase; a run directory named like an evaluation makes its tags evaluations (Keras:
    validation/)."""
    patterns = [re.compile(pattern) for pattern in eval_tag_patterns]
    summaries = [re.compile(pattern) for pattern in summary_tag_patterns]

    def phase_of(run: str, tag: str) -> Phase:
        names = (tag, f"{run.rpartition('/')[2]}/{tag}")
        if any(pattern.search(tag) for pattern in summaries):
            return Phase.SUMMARY
        return Phase.EVAL if any(p.search(name) for p in patterns for name in names) else Phase.TRAIN

    return phase_of


TRACKERS = frozenset({"wandb", "mlruns", "mlflow.db"})
"""Roots that lie beside the trainer's own; they never take the name without a prefix."""


class RunNames:
    """Names of runs: the directory below its root. The first root that has a file gives no prefix, further ones
    and those of trackers their name."""

    def __init__(self) -> None:
        self._prefixes: dict[Path, str] = {}

    def of(self, root: Path, folder: Path, path: Path, kind: str) -> str:
        """The run of a file; `folder`: the directory it tells of, which may be above its own."""
        if root not in self._prefixes:
            taken, prefix, number = set(self._prefixes.values()), root.name, 1
            if root.name not in TRACKERS and "" not in taken:
                prefix = ""
            while prefix in taken:
                number += 1
                prefix = f"{root.name}-{number}"
            self._prefixes[root] = prefix
        inside = folder.relative_to(root).parts if path != root and folder.is_relative_to(root) else ()
        stem = (path.stem,) if kind == "jsonl" and _EVAL_STEM.match(path.stem) else ()
        return "/".join(part for part in (self._prefixes[root], *inside, *stem) if part)
