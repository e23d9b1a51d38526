"""What names of checkpoint files and directories tell: step, epoch, metrics, shard, state, unfinished."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable
from typing import TypeVar

INSPECTED_SUFFIX = ".safetensors"
INDEX_SUFFIX = ".safetensors.index.json"
OPAQUE_SUFFIXES = (
    ".pt", ".pth", ".pth.tar", ".pt.tar", ".ckpt", ".keras", ".h5", ".msgpack", "model.bin", "states.bin", "args.bin",
    ".distcp",
)
"""Weights of other formats; reading most of them means unpickling, which only a child does."""
TORCH_SUFFIXES = (".pt", ".pth", ".pth.tar", ".pt.tar", ".bin", ".ckpt")
"""Files of torch.save; .pth.tar is how PyTorch's ImageNet example calls them."""
_OPAQUE_SHARD = re.compile(r"model-\d{5}-of-\d{5}\.bin$")
MARKERS = ("_CHECKPOINT_METADATA", "_METADATA", ".metadata")
"""Files that make a directory a checkpoint of Orbax or of torch.distributed."""
ZERO_3 = "zero_pp_rank_"
"""Begins the names of DeepSpeed's shards, and those of its model states only in ZeRO stage 3."""
RECORDS = ("trainer_state.json", "train_state.json", "training_state.json", "trainer_state.pt")
"""The trainer's own word on its step."""
UNFINISHED = re.compile(
    r"^(tmp[-_.]|\.)|([-_.]tmp|\.incomplete|\.partial|\.part|\.lock)(\.|$)|checkpoint-tmp"
)
STATE_FILE = re.compile(
    r"^(optimizer|optim|scheduler|lr_scheduler|rng|random|scaler|grad_scaler|train(er|ing)?_(state|args)|sampler|"
    r"data_?loader|data_state|args)([^A-Za-z]|$)|(^|[._-])(optim|optimizer)_states?"
)
"""Files of a checkpoint that hold training state: they differ between any two saves, and prove nothing."""
_STEP = (
    re.compile(r"(?:^|[^A-Za-z])(?:global[-_]?)?steps?[-_=]?(\d{1,12})(?!\d)", re.IGNORECASE),
    re.compile(r"(?:^|[^A-Za-z])(?:checkpoint|ckpt|iter|iteration|update)[-_=]?(\d{1,12})(?!\d)", re.IGNORECASE),
)
EPOCH = re.compile(r"(?:^|[^A-Za-z])epochs?[-_=]?(\d{1,9})(?!\d)", re.IGNORECASE)
STEP_DIRECTORY = re.compile(
    r"(?:^|[^A-Za-z])(?:(?:global[-_]?)?step|checkpoint|ckpt|iter|iteration|update|epoch)s?[-_=]?\d{1,12}$",
    re.IGNORECASE,
)
"""A directory that is one checkpoint with all below it; `step2_finetune` only holds some."""
SHARD = re.compile(r"(\d{5})-of-(\d{5})")
TRAILING_NUMBER = re.compile(r"[-_.](\d{1,12})$")
_SERIES = re.compile(
    r"((?:model|ckpt|checkpoint|weights|net|state|params|snapshot)[-_.]?)(\d{1,12})", re.IGNORECASE)
_METRIC = re.compile(r"(?:^|[-_])([A-Za-z][A-Za-z0-9_./]*)=(-?\d+(?:\.\d+)?(?:e[-+]?\d+)?)(?=$|[-_])", re.IGNORECASE)
_HOLDS_NUMBERED = re.compile(r"checkpoint|ckpt|orbax|saved|weights", re.IGNORECASE)
_START = re.compile(r"(^|[^a-z])(init|initial|base|start|orig|original|pretrained)([^a-z]|$)", re.IGNORECASE)
_REFERENCE = re.compile(
    r"(^|[^a-z])(ref|reference|old|teacher|target|tgt|anchor|before|untrained|init|initial|base|start|orig|original|"
    r"pretrained)([^a-z]|$)", re.IGNORECASE)
_ASIDE = re.compile(
    r"(^|[^a-z])(ema|swa|avg|average|averaged|polyak|shadow|critic|value|discriminator|optim|optimizer|scheduler|scaler)"
    r"([^a-z]|$)", re.IGNORECASE)
_DELIVERED = re.compile(r"(^|[^a-z])(best|latest|last|final|model|trained|after)([^a-z]|$)", re.IGNORECASE)
_NAMED_RESULT = re.compile(r"(^|[^a-z])(best|final|merged|consolidated|exported?|fused)([^a-z]|$)", re.IGNORECASE)
_NAMED_LAST = re.compile(r"(^|[^a-z])(last|latest)([^a-z]|$)", re.IGNORECASE)
_SAVES = re.compile(r"checkpoint|ckpt|step|epoch|model|weights|\d", re.IGNORECASE)


def is_weight_file(name: str) -> bool:
    """Whether a file of this name may hold weights or an index of them."""
    return name.endswith((INSPECTED_SUFFIX, INDEX_SUFFIX, *OPAQUE_SUFFIXES)) or bool(_OPAQUE_SHARD.search(name))


def stem_of(name: str) -> str:
    """A file's name without its endings: model_3.weights.h5 is model_3, and checkpoint_40.pth.tar is checkpoint_40."""
    stem = name.rpartition(".")[0] or name
    return re.sub(r"\.(weights|pth|pt|tar)$", "", stem)


def is_opaque(name: str) -> bool:
    """Whether it is of a format other than safetensors."""
    return name.endswith(OPAQUE_SUFFIXES) or bool(_OPAQUE_SHARD.search(name))


def is_unfinished(name: str) -> bool:
    """Whether a file or directory is still being written, by its name."""
    return name not in MARKERS and UNFINISHED.search(name) is not None


def is_unfinished_save(name: str) -> bool:
    """Whether an unfinished name is one of a checkpoint, and not any hidden file."""
    return is_unfinished(name) and not name.endswith(".lock") and _SAVES.search(name) is not None


def step_of(name: str) -> int | None:
    """The step that a file's or directory's name tells: step_000012, checkpoint-12, epoch=1-step=20."""
    if SHARD.search(name):
        return None
    for pattern in _STEP:
        match = pattern.search(name)
        if match:
            return int(match.group(1))
    return None


def epoch_of(name: str) -> int | None:
    """The epoch that a name tells."""
    match = EPOCH.search(name)
    return int(match.group(1)) if match else None


def metrics_of(name: str) -> dict[str, float]:
    """Metrics that a name holds, as Lightning writes them: epoch=1-step=20-val_loss=0.35."""
    stem = re.sub(r"-v\d+$", "", name)
    found = {key: float(value) for key, value in _METRIC.findall(stem)}
    return {key: value for key, value in found.items() if key.lower() not in ("epoch", "step", "global_step")}


def version_of(name: str) -> int:
    """The number of a name that was taken before, 0 for the first: last-v1."""
    match = re.search(r"-v(\d{1,9})$", name)
    return int(match.group(1)) if match else 0


def is_derived(name: str) -> bool:
    """Whether a directory is made from a numbered checkpoint and is none itself: checkpoint-1000-merged."""
    plain = re.sub(r"-v\d+$", "", name)
    return step_of(plain) is not None and not STEP_DIRECTORY.search(plain) and "=" not in plain and bool(
        re.search(r"\d[-_.][A-Za-z][A-Za-z_-]*$", plain))


def series_of(stem: str) -> tuple[str, int] | None:
    """(what comes before, the number) of a name that is a model with a number and nothing else: model_120."""
    match = _SERIES.fullmatch(stem)
    return (match.group(1), int(match.group(2))) if match else None


def are_steps(numbers: Iterable[int]) -> bool:
    """Whether numbers of names that say no more are steps: at even distances of at least 2 from 0.

    Distances of 1 are epochs, folds or seeds, and two numbers of which one doubles the other may be sizes.
    """
    rising = sorted(set(numbers))
    gaps = {after - before for before, after in itertools.pairwise(rising)}
    if len(gaps) != 1:
        return False
    (gap,) = gaps
    return gap > 1 and rising[0] % gap == 0 and (len(rising) > 2 or rising[0] > gap)


def is_numbered_place(name: str, parent: str) -> bool:
    """Whether a directory named by a bare number is a checkpoint, since its parent holds checkpoints."""
    return name.isdigit() and len(name) <= 12 and _HOLDS_NUMBERED.search(parent) is not None


def is_shard(name: str) -> bool:
    """Whether a file is one of `...-00001-of-00003...`."""
    return SHARD.search(name) is not None


def missing_shards(names: Iterable[str]) -> tuple[str, ...]:
    """Names of the shards `...-00001-of-00003...` that a set of files lacks."""
    names = set(names)
    expected = set()
    for name in names:
        match = SHARD.search(name)
        if match and 0 < int(match.group(2)) <= 10_000:
            total = match.group(2)
            expected |= {
                name[: match.start()] + f"{i:05d}-of-{total}" + name[match.end() :]
                for i in range(1, int(total) + 1)
            }
    return tuple(sorted(expected - names))


def is_named_start(path: str) -> bool:
    """Whether a checkpoint is called a start: it may equal one."""
    return _START.search(path.rpartition("/")[2]) is not None


def is_named_reference(path: str) -> bool:
    """Whether a checkpoint, or the directory of one with a name that says nothing, is called what stays untrained."""
    place, _, name = path.rpartition("/")
    if re.match(r"(pytorch_)?(adapter_)?model\b|checkpoint\b", name):
        name = place.rpartition("/")[2]
    return _REFERENCE.search(name) is not None


def is_named_aside(path: str) -> bool:
    """Whether a checkpoint is called what lies beside the trained model: a start, a reference, an average, a critic."""
    return is_named_start(path) or is_named_reference(path) or _ASIDE.search(path.rpartition("/")[2]) is not None


def is_named_delivered(path: str) -> bool:
    """Whether a checkpoint is called what a run delivers, or by its step."""
    place, _, name = path.rpartition("/")
    return _DELIVERED.search(name) is not None or step_of(name) is not None or (
        step_of(place.rpartition("/")[2]) is not None)


Item = TypeVar("Item")


def likeliest_delivered(items: Iterable[Item], path_of: Callable[[Item], str], count: int) -> list[Item]:
    """At most `count` of the models without a step that are likeliest what a run delivers, in the order given.

    By name first (best, final, merged; then last), what is called a reference or a start at last; then those that lie
    nearer to the root; then the later ones.
    """
    listed = list(items)

    def likelihood(index: int) -> tuple[int, int, int]:
        path = path_of(listed[index])
        place, _, name = path.rpartition("/")
        name = name if not is_weight_file(name) or _is_told(name) else f"{place.rpartition('/')[2]}/{name}"
        named = 2 if _NAMED_RESULT.search(name) else -1 if is_named_reference(path) else bool(_NAMED_LAST.search(name))
        return named, -len((place if is_weight_file(path) else path).split("/")), index

    chosen = sorted(range(len(listed)), key=likelihood)[-count:] if count > 0 else []
    return [listed[index] for index in sorted(chosen)]


def _is_told(name: str) -> bool:
    return bool(_NAMED_RESULT.search(name) or _NAMED_LAST.search(name))
