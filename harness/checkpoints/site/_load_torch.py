"""State of plain tensors: safetensors, torch archives, torch's distributed checkpoints."""

# mypy: ignore-errors

from _answer import Broken
from _names import is_mask, is_weight
from _torch_files import distributed_tensors, restricted_load, tensors_of


def load_safetensors(request, answer):
    """Every tensor of every file, by numpy where it can, by torch where a type needs it."""
    from safetensors import safe_open

    for path in request["files"]:
        for framework in ("np", "pt"):
            try:
                with safe_open(path, framework=framework) as handle:
                    for name in handle.keys():  # noqa: SIM118 (no mapping)
                        handle.get_tensor(name)
                        answer.fields["tensors"] += 1
                break
            except (TypeError, AttributeError, KeyError):
                # numpy has no bfloat16 and no 8-bit floats.
                answer.fields["tensors"] = 0
                if framework == "pt":
                    raise


def load_torch(request, answer):
    """Files of torch.save, restricted to tensors and plain containers unless everything is allowed."""
    for path in request["files"]:
        state = restricted_load(path, request, answer)
        for name, tensor in tensors_of(state):
            look_at(name, tensor, answer)
    if not answer.fields["tensors"]:
        answer.note("it holds no tensor")


def look_at(name, tensor, answer):
    """Count a tensor and say where it is not finite; a mask may hold infinities."""
    import torch

    answer.fields["tensors"] += 1
    answer.fields["values_read"] = True
    if not (tensor.is_floating_point() or tensor.is_complex()) or tensor.is_meta or not tensor.numel():
        return
    plain = tensor if tensor.element_size() > 1 else tensor.float()
    if torch.isfinite(plain).all() or not is_weight(name):
        return
    if len(answer.fields["nonfinite"]) < 50 and (plain.is_complex() or not is_mask(name, _numbers(plain))):
        answer.fields["nonfinite"].append(name[:300])


def _numbers(tensor):
    """As numpy has them, which knows no bfloat16."""
    tensor = tensor.detach().cpu()
    return (tensor if tensor.element_size() > 4 else tensor.float()).numpy()


def load_torch_distributed(request, answer):
    """Every tensor of a checkpoint of torch.distributed, put together from its parts."""
    if request["allow_pickle"]:
        answer.note("unrestricted unpickling was allowed, and not needed: only tensors are read")
    for name, tensor in distributed_tensors(request):
        look_at(name, tensor, answer)
    if not answer.fields["tensors"]:
        raise Broken("it holds no tensor")
