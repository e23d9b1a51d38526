"""Which loader a checkpoint is given to, and what that loader is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path

from harness.checkpoints.archives import scan_archive
from harness.checkpoints.huggingface import held_tensors, read_config
from harness.checkpoints.inventory import Checkpoint, find_checkpoints
from harness.checkpoints.naming import MARKERS, TORCH_SUFFIXES
from harness.checkpoints.reload import Start, Target
from harness.checkpoints.structure import format_of

MAX_DTYPES = 5000
MAX_PARTS = 8
"""Models of one checkpoint that are loaded."""
_DIRECTORIES = ("transformers", "areno", "peft", "tiny_lm")


def target_of(one: Checkpoint, base: Path | None = None) -> Target:
    """The target for one checkpoint; `base` is the model that an adapter stands on, where it is known."""
    adapter = format_of(one)
    files = one.weights or tuple(path for path in one.opaque if path.name not in MARKERS) or one.state
    if adapter == "lightning" and not scan_archive(files[0]).is_lightning:
        adapter = "torch"
    files = one.holders if adapter == "deepspeed" else files
    if not adapter and one.state and one.state[0].name.endswith(TORCH_SUFFIXES):
        adapter = "torch"
    is_directory = adapter in _DIRECTORIES and bool(files)
    return Target(
        path=files[0].parent if is_directory else one.path, adapter=adapter, files=files, step=one.step,
        bytes=sum(one.marks[path].size for path in files if path in one.marks),
        base=base if adapter == "peft" else None, module=_bundled_job() if adapter == "tiny_lm" else None,
        dtypes=_dtypes(one) if adapter in ("transformers", "areno") else {},
    )


def targets_of(one: Checkpoint, base: Path | None = None) -> tuple[Target, ...]:
    """A target for each model of one checkpoint: an actor and a critic side by side are two, each of its own format."""
    return tuple(target_of(part, base) for part in parts_of(one).values())


def parts_of(one: Checkpoint) -> dict[Path, Checkpoint]:
    """The models of one checkpoint by where they lie in it; most have one, as those whose loader takes a whole tree."""
    files = one.weights or one.opaque
    places = sorted({path.parent for path in files})
    if len(places) < 2 or format_of(one) not in (*_DIRECTORIES, "safetensors", "torch"):
        return {Path(): one}
    parts = {place: tuple(path for path in files if path.parent == place) for place in places[:MAX_PARTS]}
    return {place.relative_to(one.path): replace(one, weights=held) if one.weights else replace(one, opaque=held)
            for place, held in parts.items()}


def starts_of(
    end: Checkpoint, own: Sequence[Checkpoint], start_weights: Path | None, part: Path = Path()
) -> tuple[Start, ...]:
    """What a checkpoint can be compared with in the child, the best first; `own` are the run's, the earliest first.

    The given start counts as long as the run did not write over it. `part`: which of several models is compared.
    """
    ours, found = {one.path for one in own}, list[tuple[Checkpoint, str]]()
    given = find_checkpoints(start_weights) if start_weights is not None else ()
    found += [(one, "start-weights") for one in given if one.path not in ours and one.path != end.path][-1:]
    numbered = [one for one in own if one.order != (-1, -1, -1) and one.path != end.path]
    if numbered and (end.order == (-1, -1, -1) or numbered[0].order < end.order):
        found.append((numbered[0], "own-step-0" if numbered[0].step == 0 else "own-earliest"))
    targets = ((target_of(held), kind) for one, kind in found if (held := _held(one, part)) is not None)
    return tuple(Start(path=target.path, adapter=target.adapter, files=target.files, bytes=target.bytes, kind=kind)
                 for target, kind in targets)


def _held(one: Checkpoint, part: Path) -> Checkpoint | None:
    """The model that lies at the same place in a start; a start with one model is that one."""
    parts = parts_of(one)
    return parts.get(part) if len(parts) > 1 else one


def _dtypes(one: Checkpoint) -> dict[str, str]:
    held, _ = held_tensors(one.weights)
    return {name: tensor.dtype for name, (_, tensor) in list(held.items())[:MAX_DTYPES]}


def _bundled_job() -> Path:
    return Path(str(resources.files("harness.fixtures.trainers") / "tiny_lm.py"))


def is_adapter(path: Path | None) -> bool:
    """Whether a directory holds an adapter and no model of its own."""
    return path is not None and (path / "adapter_config.json").is_file() and not read_config(path)
