"""The user's function of --reload-with: called with the checkpoint's path after its loader succeeded.

What it returns is either a mapping of metric names to numbers, or the model's outputs, of which only finiteness is
looked at. It may take as long and as much as the reload as a whole.
"""

# mypy: ignore-errors

import importlib.util
import math
import os
import sys
import time
import traceback

MAX_METRICS = 50
MAX_ARRAYS = 10_000
MAX_TEXT = 500


class Unusable(Exception):
    """What the function returned cannot be judged; the message says why."""


def call(request):
    """{name, status, error, metrics, nonfinite, outputs, seconds}; no exception gets out.

    status: ok; refuted, an assertion of the function's own file; raised, any other exception; unusable, a return
    value that is neither metrics nor outputs.
    """
    file, name = request["function"]["file"], request["function"]["name"]
    found = {"name": f"{os.path.basename(file)}:{name}", "status": "ok", "error": None, "metrics": {},  # noqa: PTH119
             "nonfinite": [], "outputs": 0}
    started = time.time()
    try:
        os.chdir(request["workdir"])
        look(_function(file, name, request["workdir"])(request["path"]), found)
    except Unusable as error:
        found.update(status="unusable", error=str(error)[:MAX_TEXT])
    except BaseException as error:
        traceback.print_exc()
        line = _own_line(error, file)
        place = f" (line {line})" if line else ""
        is_own = isinstance(error, AssertionError) and traceback.extract_tb(error.__traceback__)[-1].filename == file
        text = " ".join(f"{type(error).__name__}: {error}".split())[:MAX_TEXT]
        found.update(status="refuted" if is_own else "raised", error=text + place)
    found["seconds"] = round(time.time() - started, 3)
    return found


def _own_line(error, file):
    """The last line of the file that the exception came through."""
    if isinstance(error, SyntaxError):
        return error.lineno if error.filename == file else None
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return lines[-1] if lines else None


def _function(file, name, workdir):
    """The function, from its file as a module of its own; its directory and the working directory are searched."""
    sys.path[:0] = [os.path.dirname(file), workdir]  # noqa: PTH120
    stem = os.path.splitext(os.path.basename(file))[0]  # noqa: PTH119, PTH122
    taken = stem in sys.modules or stem in getattr(sys, "stdlib_module_names", ()) or not stem.isidentifier()
    module_name = "reload_with" if taken else stem
    spec = importlib.util.spec_from_file_location(module_name, file)
    if spec is None:
        raise Unusable(f"{file}: no module of Python's")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        raise Unusable(f"{name} is {'not there' if function is None else f'a {type(function).__name__}'} "
                       "once its file has run, and no function")
    return function


def look(value, found):
    """Sort what was returned into metrics or outputs."""
    is_mapping = hasattr(value, "items") and hasattr(value, "keys")
    arrays = [one for one in arrays_in(value) if _size(one) != 1]
    if arrays:
        _look_at_outputs(arrays, found)
    elif not is_mapping:
        more = "; give a number its metric's name: {\"eval_loss\": value}" if _number(value) is not None else ""
        raise Unusable(f"it returned {_kind(value)}: return a mapping of metric names to numbers, or the model's "
                       f"outputs{more}")
    else:
        _look_at_metrics(dict(value.items()), found)


def arrays_in(value):
    """Tensors and arrays of nested containers, in order; each container is looked at once."""
    pending, seen, count = [value], set(), 0
    while pending and count < MAX_ARRAYS:
        one = pending.pop()
        count += 1
        if hasattr(one, "shape") and hasattr(one, "dtype"):
            yield one
        elif isinstance(one, (list, tuple)) or (hasattr(one, "items") and hasattr(one, "keys")):
            items = [] if id(one) in seen else list(one.values() if hasattr(one, "items") else one)
            seen.add(id(one))
            pending += reversed(items)


def _look_at_outputs(arrays, found):
    """Every floating value counts; whole numbers cannot be otherwise than finite, and prove nothing."""
    values, bad = 0, 0
    for array in arrays:
        is_finite = _all_finite(array)
        values += 0 if is_finite is None else _size(array)
        bad += is_finite is False
    if not values:
        raise Unusable("its outputs hold no floating-point value, so that none of them could be other than finite: "
                       "return logits or hidden states, or a mapping of metric names to numbers")
    found["outputs"] = values
    found["nonfinite"] = ["its outputs"] if bad else []


def _all_finite(array):
    """None for an array without floating-point values."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        if not (array.is_floating_point() or array.is_complex()):
            return None
        array = array.detach()
        return bool(torch.isfinite(array if array.element_size() > 1 else array.float()).all())
    import numpy as np

    array = np.asarray(array.numpy() if hasattr(array, "numpy") else array)
    if array.dtype.kind not in "fc":
        if "float" not in str(array.dtype):
            return None
        array = array.astype("float32")
    return bool(np.isfinite(array).all())


def _look_at_metrics(metrics, found):
    if not metrics:
        raise Unusable("it returned an empty mapping: name at least one metric")
    if len(metrics) > MAX_METRICS:
        raise Unusable(f"it returned {len(metrics)} metrics: return {MAX_METRICS} at most")
    for name, value in metrics.items():
        number = _number(value)
        if not isinstance(name, str) or not name.strip() or len(name) > MAX_TEXT:
            raise Unusable(f"{str(name)[:50]!r} is no name of a metric")
        if number is None:
            raise Unusable(f"{name} is {_kind(value)} and no number")
        if math.isfinite(number):
            found["metrics"][name] = number
        else:
            found["nonfinite"].append(name)


def _number(value):
    """A float; None for what is no number. A truth value is none."""
    if isinstance(value, (bool, complex, str, bytes)) or value is None or "bool" in str(getattr(value, "dtype", "")):
        return None
    if hasattr(value, "shape") and _size(value) != 1:
        return None
    try:
        return float(value.item() if hasattr(value, "item") else value)
    except OverflowError:
        return math.inf
    except (TypeError, ValueError, RuntimeError):
        return None


def _size(array):
    return math.prod(int(size) for size in array.shape)


def _kind(value):
    if value is None:
        return "None"
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"
