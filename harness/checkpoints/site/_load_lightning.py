"""Checkpoints of Lightning in the program's own class, where it is known: keys, and a forward pass on its example."""

# mypy: ignore-errors

import importlib.util
import inspect
import os
import re
import sys


class _Unusable(Exception):
    """The class cannot be had or made here; that is no fault of the checkpoint."""


def load_lightning(request, answer):
    """Into `model_class` (FILE:CLASS); a class that cannot be made as it was trained is a note."""
    try:
        model = made(request, answer)
    except _Unusable as error:
        answer.note(f"not loaded into {request['model_class'].rpartition(':')[2]}: {error}")
        return
    if model is not None:
        forward(model, answer)


def made(request, answer):
    """The module with its weights; None after a failure that is the checkpoint's."""
    import torch

    saved = torch.load(request["files"][0], map_location="cpu", weights_only=True)
    state = saved.get("state_dict") or {}
    kind = class_of(request)
    try:
        model = kind.load_from_checkpoint(request["files"][0], map_location="cpu", strict=False)
    except RuntimeError as error:
        mismatched = re.findall(r"size mismatch for ([^:\s]+)", str(error))
        if not mismatched:
            raise _Unusable(f"{type(error).__name__}: {error}") from error
        _demand_arguments(kind, saved, request)
        answer.names("mismatched", mismatched)
        answer.fail(f"another shape than its class has: {mismatched[0]}")
        return None
    except BaseException as error:
        raise _Unusable(f"{type(error).__name__}: {error}") from error
    expected = model.state_dict()
    missing = sorted(expected.keys() - state.keys()) if getattr(model, "strict_loading", True) else []
    if missing:
        _demand_arguments(kind, saved, request)
    answer.names("unexpected", state.keys() - expected.keys())
    answer.names("dtype_changes", [f"{name}: {state[name].dtype} -> {expected[name].dtype}"
                                   for name in state.keys() & expected.keys()
                                   if state[name].dtype != expected[name].dtype])
    if missing:
        answer.names("missing", missing)
        answer.fail(f"{missing[0]} is not in the checkpoint: it would be newly initialised")
        return None
    answer.note(f"loaded into {kind.__name__}")
    return model


def _demand_arguments(kind, saved, request):
    """What a class was made with has to be in the checkpoint, or another one of that class is no fault of it."""
    if not request["is_same"]:
        raise _Unusable("its keys or shapes are others, and the program's files were written since the start")
    told = saved.get("hyper_parameters") or {}
    lacking = [name for name, item in list(inspect.signature(kind.__init__).parameters.items())[1:]
               if item.kind not in (item.VAR_POSITIONAL, item.VAR_KEYWORD) and name not in told]
    if lacking:
        raise _Unusable(f"its keys or shapes are others, and its hyper_parameters do not tell {', '.join(lacking[:5])}")


def class_of(request):
    """The class, from its own file, with the program's directories on the path as when it ran."""
    path, _, name = request["model_class"].rpartition(":")
    sys.path[:0] = [os.path.dirname(path), request["workdir"]]  # noqa: PTH120
    module_name = os.path.splitext(os.path.basename(path))[0]  # noqa: PTH119, PTH122
    try:
        spec = importlib.util.spec_from_file_location(module_name, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[module_name] = module
        spec.loader.exec_module(module)
        return getattr(module, name)
    except BaseException as error:
        raise _Unusable(f"{type(error).__name__}: {error}") from error


def forward(model, answer):
    """Finite outputs for the example that the module itself names."""
    import torch

    example = getattr(model, "example_input_array", None)
    if example is None:
        answer.note("no example_input_array, so no forward pass was made")
        return
    try:
        model.eval()
        with torch.inference_mode():
            output = model(**example) if isinstance(example, dict) else model(
                *(example if isinstance(example, tuple) else (example,)))
    except BaseException as error:
        answer.note(f"no forward pass was made: {type(error).__name__}: {error}")
        return
    from _torch_files import tensors_of

    values = [value for _, value in tensors_of({"output": output}) if value.is_floating_point()]
    answer.fields["forward_ok"] = all(bool(torch.isfinite(value).all()) for value in values) if values else None
    if answer.fields["forward_ok"] is False:
        answer.fields["error_kind"] = "forward"
        answer.fail("a forward pass gives values that are not finite")
