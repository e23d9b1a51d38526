"""State of plain tensors: safetensors, torch archives, DeepSpeed's, torch's distributed checkpoints."""

# mypy: ignore-errors

import pickle
import re
import sys
import zipfile

from _reload import Broken, Refused

MAX_ITEMS = 2_000_000


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


def restricted_load(path, request, answer):
    """torch.load with weights_only; Refused names what it would have to run."""
    import torch

    if zipfile.is_zipfile(path):
        try:
            return torch.load(path, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            why = refusal(path, error)
    else:
        why = f"{path}: a bare pickle, whose loading can run code"
    if not request["allow_pickle"]:
        raise Refused(why)
    answer.note(f"unrestricted unpickling was allowed: {why}")
    answer.fields["pickle_allowed"] = True
    sys.path.append(request["workdir"])
    return torch.load(path, map_location="cpu", weights_only=False)  # nosec: only here, only when asked for


def refusal(path, error):
    """What a restricted load stumbles over, in one line."""
    text = str(error)
    named = re.search(r"GLOBAL ([\w.]+)", text) or re.search(r"Unsupported (?:class|operand) ([\w.]+)", text)
    what = f"unsupported global {named.group(1).rstrip('.')}" if named else text.splitlines()[0][:200]
    return f"{path}: not loadable with the restricted loader ({what}); an unrestricted load can run code"


def tensors_of(state):
    """(name, tensor) of nested containers; each container is looked at once."""
    import torch

    pending, seen, count = [("", state)], set(), 0
    while pending and count < MAX_ITEMS:
        name, value = pending.pop()
        count += 1
        if isinstance(value, torch.Tensor):
            yield name, value
        elif isinstance(value, (dict, list, tuple)) and id(value) not in seen:
            seen.add(id(value))
            items = value.items() if isinstance(value, dict) else enumerate(value)
            pending += [(f"{name}.{key}" if name else str(key), item) for key, item in items]
        elif isinstance(value, torch.nn.Module):
            pending.append((name, value.state_dict()))


def look_at(name, tensor, answer):
    """Count a tensor and say where it is not finite; an attention mask may hold infinities."""
    import torch

    answer.fields["tensors"] += 1
    answer.fields["values_read"] = True
    if not (tensor.is_floating_point() or tensor.is_complex()) or tensor.is_meta or not tensor.numel():
        return
    plain = tensor if tensor.element_size() > 1 else tensor.float()
    if torch.isfinite(plain).all() or ("mask" in name.rpartition(".")[2] and not torch.isnan(plain).any()):
        return
    if is_weight(name) and len(answer.fields["nonfinite"]) < 50:
        answer.fields["nonfinite"].append(name[:300])


def is_weight(name):
    """Whether a name is of the model and not of an optimizer or a callback, whose best value may be infinite."""
    first = name.partition(".")[0].lower()
    return not any(word in first for word in ("optim", "sched", "callback", "scaler", "loop", "rng", "best", "metric"))


def load_torch_distributed(request, answer):
    """torch.distributed.checkpoint keeps its plan as a pickle, so that reading it means arbitrary unpickling."""
    if not request["allow_pickle"]:
        raise Refused(f"{request['path']}: its .metadata is a pickle that needs arbitrary unpickling")
    import os
    import tempfile

    import torch
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    answer.fields["pickle_allowed"] = True
    with tempfile.TemporaryDirectory() as place:
        target = os.path.join(place, "whole.pt")  # noqa: PTH118
        dcp_to_torch_save(request["path"], target)
        state = torch.load(target, map_location="cpu", weights_only=False)
    for name, tensor in tensors_of(state):
        look_at(name, tensor, answer)
    if not answer.fields["tensors"]:
        raise Broken("it holds no tensor")
