"""Checkpoints of Keras, Orbax and Flax, as arrays."""

# mypy: ignore-errors

import os

from _reload import Broken, NotAttempted, Refused


def load_keras(request, answer):
    """The model as Keras saved it, without code of its own, and one forward pass on zeros and ones."""
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


def load_keras_weights(request, answer):
    """Weights alone: every data set of the file."""
    import h5py
    import numpy as np

    def visit(name, item):
        if isinstance(item, h5py.Dataset) and "optimizer" not in name:
            look_at(name, np.asarray(item[()]), answer)

    with h5py.File(request["files"][0], "r") as handle:
        handle.visititems(visit)
    _some(answer)


def load_orbax(request, answer):
    """Every array of every item, restored without a target."""
    import orbax.checkpoint as ocp

    path = os.path.abspath(request["path"])  # noqa: PTH100
    items = [os.path.join(path, name) for name in sorted(os.listdir(path))  # noqa: PTH118, PTH208
             if os.path.exists(os.path.join(path, name, "_METADATA"))]  # noqa: PTH110, PTH118
    if os.path.exists(os.path.join(path, "_METADATA")):  # noqa: PTH110, PTH118
        items.append(path)
    if not items:
        raise NotAttempted("no item of it holds arrays that can be restored without the program")
    for item in items:
        _look_at_tree("", ocp.PyTreeCheckpointer().restore(item), answer)
    _some(answer)


def load_flax(request, answer):
    """A msgpack file, which holds arrays and no code."""
    from flax import serialization

    for path in request["files"]:
        with open(path, "rb") as stream:  # noqa: PTH123
            _look_at_tree("", serialization.msgpack_restore(stream.read()), answer)
    _some(answer)


def _some(answer):
    if not answer.fields["tensors"]:
        raise Broken("it holds no array")


def _look_at_tree(name, value, answer):
    import numpy as np

    if isinstance(value, dict):
        for key, item in value.items():
            _look_at_tree(f"{name}.{key}" if name else str(key), item, answer)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            _look_at_tree(f"{name}.{index}", item, answer)
    elif hasattr(value, "shape") and hasattr(value, "dtype") and "key<" not in str(value.dtype):
        look_at(name, np.asarray(value), answer)


def look_at(name, array, answer):
    """Count an array and say where it is not finite."""
    import numpy as np

    answer.fields["tensors"] += 1
    answer.fields["values_read"] = True
    is_number = array.dtype.kind in "fc" or "float" in str(array.dtype)
    array = array if array.dtype.kind in "fc" else array.astype("float32") if is_number else array
    if is_number and array.size and not np.isfinite(array).all() and len(answer.fields["nonfinite"]) < 50:
        answer.fields["nonfinite"].append(name[:300])
