"""DeepSpeed's checkpoints: the model's states, or for ZeRO stage 3 the weights that lie in the optimizer's shards.

Format as of deepspeed/utils/zero_to_fp32.py (0.19.8): every rank holds an equal part of every parameter, rounded up,
one behind the other over its flat groups; the model states tell names and shapes in that order, buffers, and the
parts of frozen parameters.
"""

# mypy: ignore-errors

import math
import os
import re

from _answer import Broken, NotAttempted, Refused
from _load_torch import look_at
from _torch_files import refusal, restricted_load, tensors_of

_PART = re.compile(r"^(?:bf16_)?zero_pp_rank_(\d+)_mp_rank_(\d+)_(model|optim)_states\.pt$")
ELSEWHERE = "the zero_to_fp32.py beside the checkpoint puts its weights together"


def load_deepspeed(request, answer):
    """Every tensor, and whether its values are finite."""
    for name, tensor in deepspeed_tensors(request, answer):
        look_at(name, tensor, answer)
    if not answer.fields["tensors"]:
        answer.note("it holds no tensor")


def deepspeed_tensors(request, answer):
    """(name, tensor) of the model states; those of a stage 3 are put together from the parts of all ranks."""
    parts = {}
    for file in request["files"]:
        if match := _PART.match(os.path.basename(file)):  # noqa: PTH119
            parts.setdefault(int(match[2]), {"model": {}, "optim": {}})[match[3]][int(match[1])] = file
    stage_3 = {rank: kinds for rank, kinds in parts.items() if kinds["model"]}
    for rank, kinds in sorted(stage_3.items()):
        head = f"mp_rank_{rank:02d}.module" if len(stage_3) > 1 else "module"
        for name, tensor in _gathered(kinds, request, answer):
            yield f"{head}.{name}", tensor
    if not stage_3:
        for file in request["files"]:
            yield from tensors_of(restricted_load(file, request, answer))


def _gathered(kinds, request, answer):
    """(name, tensor) of one part of the model, from its data-parallel ranks."""
    models = [restricted_load(kinds["model"][rank], request, answer) for rank in sorted(kinds["model"])]
    first = models[0]
    buffers, shapes = first.get("buffer_names"), first.get("param_shapes")
    module = dict(tensors_of(first.get("module")))
    if any(tensor.numel() for name, tensor in module.items() if name not in (buffers or ())):
        yield from module.items()
        return
    if buffers is None or not shapes:
        raise NotAttempted(f"its model states do not tell what the optimizer's shards hold; {ELSEWHERE}")
    shards = [_shard(kinds["optim"][rank]) for rank in sorted(kinds["optim"])]
    if not shards:
        raise Broken("its weights lie in the optimizer's shards (ZeRO stage 3), and none is there")
    counts = shards[0].get("partition_count")
    count = max(counts) if isinstance(counts, list) else counts
    if count != len(shards) or len(models) != len(shards):
        raise Broken(f"its weights lie in the optimizer's shards of {count} ranks (ZeRO stage 3), and "
                     f"{len(shards)} of these and {len(models)} of the model's are there")
    yield from ((name, module[name]) for name in buffers if name in module)
    tied = dict(first.get("shared_params") or {})
    for name, tensor in (*_frozen(models), *_trained(shapes, shards)):
        yield name, tensor
        for other, one in tied.items():
            if one == name:
                yield other, tensor


def _frozen(models):
    """Parameters that are not trained, whose parts lie beside the model states."""
    import torch

    for name, shape in (models[0].get("frozen_param_shapes") or {}).items():
        parts = [(model.get("frozen_param_fragments") or {}).get(name) for model in models]
        if any(part is None for part in parts):
            raise Broken(f"a part of {name} is missing")
        yield name, _shaped(name, torch.cat([part.reshape(-1) for part in parts]), shape)


def _trained(param_shapes, shards):
    """Parameters from the flat groups, whose groups are only cuts in one long part of every rank."""
    import torch

    flat = []
    for shard in shards:
        groups = shard.get("fp32_flat_groups")
        if groups is None:
            raise NotAttempted(f"its optimizer's shards hold no fp32 groups; {ELSEWHERE}")
        flat.append([groups] if isinstance(groups, torch.Tensor) else list(groups))
    shapes = {name: shape for group in param_shapes for name, shape in group.items()}
    needed = sum(math.ceil(math.prod(shape) / len(shards)) for shape in shapes.values())
    for rank, groups in enumerate(flat):
        held = sum(group.numel() for group in groups)
        if held < needed:
            raise Broken(f"the optimizer's shard of rank {rank} holds {held} of {needed} elements of the weights")
        if held > needed:
            raise NotAttempted(f"the optimizer's shard of rank {rank} holds {held} elements, and the shapes tell "
                               f"{needed}; {ELSEWHERE}")
    done = 0
    for name, shape in shapes.items():
        count = math.ceil(math.prod(shape) / len(shards))
        yield name, _shaped(name, torch.cat([_cut(groups, done, count) for groups in flat]), shape)
        done += count


def _cut(groups, start, count):
    """`count` elements from `start` on of groups that follow one another."""
    import torch

    pieces, at = [], 0
    for group in groups:
        begin, end = max(start - at, 0), min(start + count - at, group.numel())
        if begin < end:
            pieces.append(group.reshape(-1)[begin:end])
        at += group.numel()
    return torch.cat(pieces) if pieces else groups[0].reshape(-1)[:0]


def _shaped(name, flat, shape):
    size = math.prod(shape)
    if flat.numel() < size:
        raise Broken(f"{name}: {flat.numel()} of {size} elements are there")
    return flat[:size].reshape(tuple(shape))


class _Inert:
    """What stands for a class of DeepSpeed in a shard: it keeps what it is given, and does nothing."""

    def __init__(self, *args):
        self.args = args


def _shard(file):
    """optimizer_state_dict of a shard by the restricted loader, in which classes of DeepSpeed are inert."""
    import pickle

    import torch

    told = getattr(torch.serialization, "get_unsafe_globals_in_checkpoint", None)
    if told is None:
        raise NotAttempted(f"torch {torch.__version__} cannot read its shards without DeepSpeed; {ELSEWHERE}")
    try:
        names = [name for name in told(file) if name.startswith("deepspeed.")]
        inert = [(type(name.rpartition(".")[2], (_Inert,), {}), name) for name in names]
        with torch.serialization.safe_globals(inert):
            saved = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except pickle.UnpicklingError as error:
        raise Refused(refusal(file, error)) from error
    return saved.get("optimizer_state_dict") or {}
