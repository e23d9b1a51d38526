"""Checkpoints of Keras, Orbax and Flax, as arrays."""

# mypy: ignore-errors

from _answer import Broken, Refused


def load_keras(request, answer):
    """The model as Keras saved it, without code of its own, and one forward pass on zeros and ones."""
    choose_backend()
    import keras
    import numpy as np

    try:
        model = keras.saving.load_model(request["files"][0], compile=False, safe_mode=True)
    except (ValueError, TypeError) as error:
        if "safe_mode" in str(error) or "lambda" in str(error).lower() or "Could not locate class" in str(error):
            raise Refused(f"it needs code of its own: {str(error).splitlines()[0][:300]}") from error
        raise
    for variable in model.weights:
        look_at(variable.path, np.asarray(keras.ops.convert_to_numpy(variable)), answer)
    shapes = model.input_shape
    shapes = shapes if isinstance(shapes, list) else [shapes]
    if any(not isinstance(shape, tuple) for shape in shapes):
        answer.note("its inputs are not known, so no forward pass was made")
        return
    inputs = [np.ones([2 if size is None else size for size in shape], "float32") for shape in shapes]
    try:
        values = model(inputs[0] if len(inputs) == 1 else inputs, training=False)
    except Exception as error:
        # Ones may be no input of this model; that is no fault of the checkpoint.
        answer.note(f"no forward pass was made: {type(error).__name__}: {error}")
        return
    values = values[0] if isinstance(values, (list, tuple)) else values
    answer.fields["forward_ok"] = bool(np.isfinite(np.asarray(keras.ops.convert_to_numpy(values))).all())
    if not answer.fields["forward_ok"]:
        answer.fields["error_kind"] = "forward"
        answer.fail("a forward pass gives values that are not finite")


def choose_backend():
    """Where nothing names the backend of Keras and the one of its configuration is missing, one that is installed."""
    import json
    import os
    from importlib.util import find_spec
    from pathlib import Path

    home = Path(os.environ.get("KERAS_HOME") or Path("~/.keras").expanduser())
    try:
        configured = str(json.loads((home / "keras.json").read_text("utf-8")).get("backend", "tensorflow"))
    except (OSError, ValueError, AttributeError, RuntimeError):
        configured = "tensorflow"
    named = os.environ.get("KERAS_BACKEND")
    if not named and find_spec(configured) is None:
        os.environ["KERAS_BACKEND"] = next(
            (name for name in ("torch", "jax", "tensorflow") if find_spec(name) is not None), configured)


def load_keras_weights(request, answer):
    """Weights alone: every data set of the file."""
    _look_at_all(request, answer)


def load_orbax(request, answer):
    """Every array of every item, restored without a target."""
    _look_at_all(request, answer)


def load_flax(request, answer):
    """A msgpack file, which holds arrays and no code."""
    _look_at_all(request, answer)


def _look_at_all(request, answer):
    from _values import arrays_of

    for name, value in arrays_of(request):
        look_at(name, value, answer)
    if not answer.fields["tensors"]:
        raise Broken("it holds no array")


def look_at(name, array, answer):
    """Count an array and say where it is not finite; an optimizer's state counts and is not judged."""
    import numpy as np
    from _names import is_mask, is_weight

    answer.fields["tensors"] += 1
    answer.fields["values_read"] = True
    is_number = array.dtype.kind in "fc" or "float" in str(array.dtype)
    array = array if array.dtype.kind in "fc" else array.astype("float32") if is_number else array
    if is_number and array.size and not np.isfinite(array).all() and is_weight(name) and (
            len(answer.fields["nonfinite"]) < 50) and not is_mask(name, array):
        answer.fields["nonfinite"].append(name[:300])
