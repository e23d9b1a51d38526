"""Directories as transformers writes them: the index of shards, the tensors that config.json implies, tied weights."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.checkpoints.tensors import TensorFileError, TensorInfo, read_header

MAX_INDEX_BYTES = 64 << 20
MAX_CONFIG_BYTES = 4 << 20
_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks|block)\.(\d+)\.")
_EMBEDDING = re.compile(r"(?:^|\.)(?:embed_tokens|wte|word_embeddings|embed_in)\.weight$")
_HEAD = re.compile(r"(?:^|\.)(?:lm_head|embed_out|output)\.weight$")
_PACKED = re.compile(r"\.(?:qweight|weight_scale|SCB|absmax)\b")
CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexReport:
    """An index against the files beside it."""

    missing_files: tuple[str, ...] = ()
    missing_tensors: tuple[str, ...] = ()
    """Tensors that it names and no file beside it holds."""
    extra_files: tuple[str, ...] = ()
    """Weight files that it does not name."""
    tensors_on_disk: int = 0
    problems: tuple[str, ...] = ()

    @property
    def weights_complete(self) -> bool:
        """Whether every tensor that the index names stands in some file, so that only the index is wrong."""
        return not self.missing_tensors


Held = Mapping[str, tuple[Path, TensorInfo]]
"""Tensor name -> its file and its place."""


def held_tensors(files: Sequence[Path]) -> tuple[dict[str, tuple[Path, TensorInfo]], tuple[str, ...]]:
    """Tensors of several files by name, and what keeps files from being read."""
    held: dict[str, tuple[Path, TensorInfo]] = {}
    problems = []
    for path in files:
        try:
            held.update((tensor.name, (path, tensor)) for tensor in read_header(path).tensors)
        except (TensorFileError, OSError) as error:
            problems.append(file_problem(path, error))
    return held, tuple(problems)


def file_problem(path: Path, error: Exception) -> str:
    """Why a file cannot be read, with its name."""
    if isinstance(error, FileNotFoundError):
        return f"{path.name}: gone while it was read"
    return f"{path.name}: {error.strerror or error}" if isinstance(error, OSError) else f"{path.name}: {error}"


def read_index(index: Path, held: Held) -> IndexReport:
    """Compare an index with the tensors that its directory holds."""
    try:
        with index.open("rb") as stream:
            document = json.loads(stream.read(MAX_INDEX_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        why = (error.strerror if isinstance(error, OSError) else "") or f"it is no JSON: {str(error)[:200]}"
        return IndexReport(problems=(f"{index.name} cannot be read: {why}",))
    held_by = document.get("weight_map") if isinstance(document, dict) else None
    if not isinstance(held_by, dict):
        why = "it is no mapping" if not isinstance(document, dict) else (
            "it has no weight_map" if "weight_map" not in document else "its weight_map is no mapping")
        return IndexReport(problems=(f"{index.name} cannot be read: {why} of tensor names to files",))
    places = {str(name): str(file) for name, file in held_by.items()}
    here = {name: path for name, (path, _) in held.items() if path.parent == index.parent}
    named = sorted(set(places.values()))
    absent = [file for file in named if (index.parent / file).parent != index.parent or not (
        index.parent / file).is_file()]
    lost = [name for name in places if name not in here]
    report = IndexReport(
        missing_files=tuple(absent), missing_tensors=tuple(sorted(lost)), tensors_on_disk=len(here),
        extra_files=tuple(sorted({path.name for path in here.values()} - set(named))))
    return IndexReport(
        missing_files=report.missing_files, missing_tensors=report.missing_tensors, extra_files=report.extra_files,
        tensors_on_disk=report.tensors_on_disk, problems=tuple(_index_problems(index.name, places, here, report)))


def _index_problems(name: str, places: Mapping[str, str], here: Mapping[str, Path], report: IndexReport) -> list[str]:
    problems = []
    for file in report.missing_files:
        lost = [tensor for tensor in report.missing_tensors if places[tensor] == file]
        loss = f": {len(lost)} tensor(s) with it, {lost[0][:200]} first" if lost else ""
        problems.append(f"{name} names {file[:200]}, which is not there{loss}")
    if report.missing_files and report.weights_complete:
        problems.append(f"index stale, weights complete: all {len(places)} tensors stand in files that it does not "
                        f"name ({', '.join(report.extra_files)[:300]})")
    for file in sorted(set(places.values()) - set(report.missing_files)):
        lost = [tensor for tensor, where in places.items() if where == file and (
            tensor not in here or here[tensor].name != file)]
        if lost:
            problems.append(f"{file} lacks {len(lost)} tensor(s) of {name}: {sorted(lost)[0][:200]}")
    return problems


def read_config(directory: Path) -> dict[str, Any]:
    """config.json of a directory; empty where there is none that can be read."""
    try:
        with (directory / "config.json").open("rb") as stream:
            document = json.loads(stream.read(MAX_CONFIG_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def implied_problems(config: Mapping[str, Any], held: Held) -> tuple[list[str], list[str]]:
    """(problems, notes): tensors that the config implies and no file holds, and tied weights that differ.

    Only what the config states outright is asked for: each layer up to num_hidden_layers, the rows of the embedding,
    and the output head of a causal language model whose weights are not tied.
    """
    if not config or not held or any(_PACKED.search(name) for name in held):
        return [], []
    problems, notes = _layer_problems(config, held), list[str]()
    embeddings = [name for name in held if _EMBEDDING.search(name)]
    heads = [name for name in held if _HEAD.search(name)]
    vocabulary = config.get("vocab_size")
    for name in embeddings:
        shape = held[name][1].shape
        if type(vocabulary) is int and shape and shape[0] != vocabulary:
            notes.append(f"{name} has {shape[0]} rows, config.json says vocab_size {vocabulary}")
    tied = config.get("tie_word_embeddings")
    if tied is False and embeddings and not heads and _is_causal(config):
        problems.append("lm_head.weight is missing: config.json says that it is not tied to the embedding, so it would "
                        "be newly initialised")
    if tied is True and len(embeddings) == 1 and len(heads) == 1 and _differ(held[embeddings[0]], held[heads[0]]):
        notes.append(f"config.json ties {heads[0]} to {embeddings[0]}, and the file holds other values for it: which "
                     "one is used depends on the loader's version")
    return problems, notes


def _is_causal(config: Mapping[str, Any]) -> bool:
    names = config.get("architectures")
    return isinstance(names, list) and any(str(name).endswith(("ForCausalLM", "LMHeadModel")) for name in names)


def _layer_problems(config: Mapping[str, Any], held: Held) -> list[str]:
    keys = ("num_hidden_layers", "n_layer", "num_layers")
    count = next((config[key] for key in keys if type(config.get(key)) is int), None)
    prefixes: dict[str, set[int]] = {}
    for name in held:
        if match := _LAYER.search(name):
            prefixes.setdefault(name[: match.start(1)], set()).add(int(match.group(1)))
    if count is None or count > 100_000 or len(prefixes) != 1:
        return []
    ((prefix, found),) = prefixes.items()
    lacking = sorted(set(range(count)) - found)
    return [f"{len(lacking)} of {count} layers are missing: {prefix}{lacking[0]}"] if lacking else []


def _differ(first: tuple[Path, TensorInfo], second: tuple[Path, TensorInfo]) -> bool:
    """Whether two tensors of one shape and type hold other bytes; chunk by chunk."""
    (path_a, a), (path_b, b) = first, second
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return True
    try:
        return _bytes_differ(path_a, a, path_b, b)
    except OSError:
        return False


def _bytes_differ(path_a: Path, a: TensorInfo, path_b: Path, b: TensorInfo) -> bool:
    with path_a.open("rb") as one, path_b.open("rb") as two:
        one.seek(a.start)
        two.seek(b.start)
        for done in range(0, a.end - a.start, CHUNK_BYTES):
            take = min(CHUNK_BYTES, a.end - a.start - done)
            if one.read(take) != two.read(take):
                return True
    return False
