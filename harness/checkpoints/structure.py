"""What a checkpoint is and whether its structure is whole: one small reader for each format, none of them unpickles."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harness.checkpoints.archives import scan_archive
from harness.checkpoints.huggingface import held_tensors, implied_problems, read_config, read_index
from harness.checkpoints.inventory import Checkpoint
from harness.checkpoints.naming import TORCH_SUFFIXES, ZERO_3, is_shard, missing_shards

_HDF5 = b"\x89HDF\r\n\x1a\n"
_LFS = b"version https://git-lfs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Structure:
    """What the structure tells."""

    format: str
    """peft, transformers, areno, safetensors, tiny_lm, torch, lightning, deepspeed, torch-distributed, keras,
    keras-weights, orbax, flax; "" for none that is known."""
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    tensors: int = 0
    complete: bool | None = None
    """Whether every part is there; None where nothing but its loader could tell."""


def read_structure(one: Checkpoint) -> Structure:
    """By headers, indexes and directories only. Never raises for a file."""
    kind = format_of(one)
    problems, notes, tensors = _tensors(one) if one.weights else ([], [], 0)
    read = _READERS.get(kind)
    if not one.weights:
        problems = [*_shards(one), *(read(one) if read else [])]
        notes += _pickle_notes(one)
        if not one.opaque:
            notes.append("no file of weights lies in it")
    known = bool(one.weights or (one.opaque and read)) and not any(_BARE in note for note in notes)
    return Structure(format=kind, problems=tuple(problems), notes=tuple(notes), tensors=tensors,
                     complete=False if problems else True if known else None)


_BARE = "a bare pickle"
_PLAIN_MODULES = ("torch.", "collections.", "_codecs.")
_SAFE_MODULES = (
    "numpy.core.multiarray.", "numpy._core.multiarray.", "numpy.dtype",
    "numpy.ndarray", "argparse.Namespace", "types.SimpleNamespace", "pathlib.", "datetime.",
)
"""As checkpoints/site/_safe_classes.py allows them, in archives with weights."""
_SAFE_NAMES = frozenset(
    f"{place}.{name}" for place in ("builtins", "__builtin__") for name in ("dict", "list", "int", "float", "str"))


def _pickle_notes(one: Checkpoint) -> list[str]:
    """What keeps archives from a loader that runs no code of theirs: that is no damage."""
    notes = []
    for path in (*one.opaque, *one.state):
        if not path.name.endswith(TORCH_SUFFIXES):
            continue
        facts = scan_archive(path)
        odd = [name for name in facts.globals if not name.startswith(_PLAIN_MODULES) and not (
            facts.may_hold_weights and (name.startswith(_SAFE_MODULES) or name in _SAFE_NAMES))]
        if facts.kind == "pickle":
            notes.append(f"{path.name}: {_BARE}, whose loading can run code")
        elif odd:
            notes.append(f"{path.name}: not loadable with the restricted loader: it asks for {', '.join(odd)[:300]}")
    return notes


def format_of(one: Checkpoint) -> str:
    """The format by what lies in it; a directory's config decides where it has one."""
    names = {path.name for path in one.opaque}
    directory = _directory(one)
    if (directory / "adapter_config.json").is_file():
        return "peft"
    if one.weights or any(name.endswith(".bin") for name in names):
        model = read_config(directory).get("model_type")
        if model and (directory / "areno_mlx_state.json").is_file():
            return "areno"
        if model:
            return "tiny_lm" if model == "tiny_lm" else "transformers"
        return "safetensors" if one.weights else "torch"
    if any(name == ".metadata" or name.endswith(".distcp") for name in names):
        return "torch-distributed"
    if names & {"_CHECKPOINT_METADATA", "_METADATA"}:
        return "orbax"
    return next((kind for suffix, kind in _BY_SUFFIX if any(name.endswith(suffix) for name in names)), "")


_BY_SUFFIX = (
    ("model_states.pt", "deepspeed"), (".ckpt", "lightning"), (".keras", "keras"), (".weights.h5", "keras-weights"),
    (".h5", "keras"), (".msgpack", "flax"), *((suffix, "torch") for suffix in TORCH_SUFFIXES),
)


def _directory(one: Checkpoint) -> Path:
    """Where the model files lie: a checkpoint of a trainer may keep them one level down."""
    files = one.weights or one.opaque
    return files[0].parent if files else one.path


def _tensors(one: Checkpoint) -> tuple[list[str], list[str], int]:
    problems, notes = _shards(one), list[str]()
    held, unreadable = held_tensors(one.weights)
    for index in one.indexes:
        report = read_index(index, held)
        problems += report.problems
        if report.extra_files and not report.missing_files:
            notes.append(f"extra: {index.name} does not name {', '.join(report.extra_files)[:300]}")
    problems += unreadable
    if not held and not problems:
        problems.append("it holds no tensor")
    if not problems:
        implied, more = implied_problems(read_config(_directory(one)), held)
        problems, notes = implied, notes + more
    return list(dict.fromkeys(problems)), notes, len(held)


def _shards(one: Checkpoint) -> list[str]:
    """Shards that a name announces."""
    problems = []
    files = one.weights or one.opaque
    for directory in sorted({path.parent for path in files}):
        lacking = missing_shards(path.name for path in files if path.parent == directory and is_shard(path.name))
        if lacking:
            problems.append(f"{len(lacking)} shard(s) are missing: {lacking[0]}")
    return problems


def _archives(one: Checkpoint) -> list[str]:
    return [problem for path in one.opaque for problem in scan_archive(path).problems]


def _deepspeed(one: Checkpoint) -> list[str]:
    """Every rank's part: `mp_rank_NN_model_states.pt`, and ZeRO's `zero_pp_rank_R_mp_rank_NN_*` without a gap."""
    problems = _archives(one)
    for stem in (ZERO_3, "mp_rank_", "bf16_zero_pp_rank_"):
        files = [path for path in (*one.opaque, *one.state) if path.name.startswith(stem)]
        ranks = sorted({int(digits) for path in files if (digits := path.name[len(stem):].partition("_")[0]).isdigit()})
        if ranks and ranks != list(range(ranks[-1] + 1)):
            problems.append(f"ranks are missing among {stem}*: {ranks[:20]}")
    return problems or _zero_3(one)


def _zero_3(one: Checkpoint) -> list[str]:
    """ZeRO stage 3, whose model states have a rank in their name: each rank's optimizer shard holds weights."""
    if not any(path.name.startswith(ZERO_3) for path in one.opaque):
        return []
    models, shards = (
        {path.name.replace(f"_{kind}_states", "_*"): path for path in files if path.name.startswith(ZERO_3)}
        for kind, files in (("model", one.opaque), ("optim", one.state)))
    for kind, missing in (("optim", models.keys() - shards.keys()), ("model", shards.keys() - models.keys())):
        if missing:
            name = min(missing).replace("_*", f"_{kind}_states")
            return [f"{len(missing)} {kind} shard(s), which hold its weights (ZeRO stage 3), are missing: {name}"]
    return [problem for path in shards.values() for problem in scan_archive(path).problems]


def _distributed(one: Checkpoint) -> list[str]:
    """A torch.distributed checkpoint is committed by its .metadata, which names no file that is opened here."""
    problems = []
    for directory in sorted({path.parent for path in one.opaque}):
        parts = [path for path in one.opaque if path.parent == directory and path.name.endswith(".distcp")]
        if parts and not (directory / ".metadata").is_file():
            problems.append(f"{directory.name}: .metadata is missing, so its save did not end")
        if not parts and (directory / ".metadata").is_file():
            problems.append(f"{directory.name}: it holds no .distcp file")
        problems += [f"{path.name}: the file is empty" for path in parts if not one.marks[path].size]
    return problems


def _orbax(one: Checkpoint) -> list[str]:
    """Committed by its metadata; arrays stand in an OCDBT store or in files of their own."""
    problems = []
    for path in one.opaque:
        try:
            document = json.loads(path.read_bytes()[: 64 << 20]) if path.name != ".metadata" else {}
        except (OSError, ValueError, RecursionError):
            problems.append(f"{path.name} cannot be read")
            continue
        if path.name == "_METADATA" and isinstance(document, dict) and document.get("use_ocdbt") and not (
                path.parent / "manifest.ocdbt").is_file():
            problems.append(f"{path.parent.name}: manifest.ocdbt is missing, so its arrays are lost")
    if not any(path.name == "_METADATA" for path in one.opaque):
        problems.append("no _METADATA: the save was not committed")
    return problems


def _keras(one: Checkpoint) -> list[str]:
    """A .keras file is a zip with its config and weights; the rest is HDF5, told by its signature."""
    problems = []
    for path in one.opaque:
        try:
            with path.open("rb") as stream:
                head = stream.read(64)
            if not head or head.startswith(_LFS) or not any(head):
                problems.append(f"{path.name}: " + ("the file is empty" if not head else "no data stands in it"))
            elif path.suffix == ".keras":
                problems += _keras_zip(path)
            elif path.suffix == ".h5" and not head.startswith(_HDF5):
                problems.append(f"{path.name}: it has no HDF5 signature")
            elif path.suffix == ".h5" and (size := _hdf5_size(head)) and one.marks[path].size < size:
                problems.append(f"{path.name}: cut short: {one.marks[path].size} of {size} bytes")
        except (OSError, zipfile.BadZipFile, ValueError) as error:
            problems.append(f"{path.name}: cut short or damaged: {error}")
    return problems


def _keras_zip(path: Path) -> list[str]:
    with zipfile.ZipFile(path) as archive:
        names = set(archive.namelist())
    lacking = {"config.json", "metadata.json"} - names
    if lacking or not any(name.endswith((".h5", ".npz")) for name in names):
        return [f"{path.name}: {', '.join(sorted(lacking)) or 'model.weights.h5'} is missing in it"]
    return []


def _hdf5_size(head: bytes) -> int:
    """End-of-file address of a superblock of version 0 to 3 with 8-byte offsets (HDF5 File Format, III.A); else 0."""
    version = head[8]
    at = {0: 40, 1: 44, 2: 28, 3: 28}.get(version)
    width = head[13] if version in (0, 1) else head[9]
    return int.from_bytes(head[at: at + 8], "little") if at is not None and width == 8 else 0


def _plain(one: Checkpoint) -> list[str]:
    return [f"{path.name}: the file is empty" for path in one.opaque if not one.marks[path].size]


_READERS: dict[str, Callable[[Checkpoint], list[str]]] = {
    "torch": _archives, "lightning": _archives, "transformers": _archives, "peft": _archives, "deepspeed": _deepspeed,
    "torch-distributed": _distributed, "orbax": _orbax, "keras": _keras, "keras-weights": _keras, "flax": _plain,
}
