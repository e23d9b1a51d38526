"""(name, value) of every floating tensor of a checkpoint's model, in any format, and none of its optimizer's state.

Read without the model's code, as arrays or torch tensors; nothing is unpickled but by torch's restricted loader.
"""

# mypy: ignore-errors

import os

from _answer import Answer, NotAttempted
from _names import is_floating, is_weight


def values_of(request):
    """Yield (name, value) of the model's floating tensors; NotAttempted for a format that has no reader here."""
    for name, value in arrays_of(request):
        if is_weight(name) and is_floating(value):
            yield name, value


def arrays_of(request):
    """Yield (name, value) of everything that it holds."""
    reader = {
        "safetensors": of_safetensors, "transformers": of_model_files, "areno": of_model_files,
        "tiny_lm": of_model_files, "peft": of_model_files, "torch": of_torch, "lightning": of_torch,
        "deepspeed": of_deepspeed, "torch-distributed": of_distributed, "keras": of_keras, "keras-weights": of_hdf5,
        "orbax": of_orbax, "flax": of_flax,
    }.get(request["adapter"])
    if reader is None:
        raise NotAttempted(f"no reader of values for {request['adapter'] or 'this format'}")
    return reader(request)


def of_model_files(request):
    """Of a directory of transformers: safetensors where there are any, else torch archives."""
    safe = [file for file in request["files"] if file.endswith(".safetensors")]
    yield from of_safetensors({**request, "files": safe}) if safe else of_torch(request)


def of_safetensors(request):
    """By torch where it is there, since numpy has no bfloat16."""
    from safetensors import safe_open

    try:
        import torch  # noqa: F401

        framework = "pt"
    except ImportError:
        framework = "np"
    for file in request["files"]:
        with safe_open(file, framework=framework) as handle:
            for name in handle.keys():  # noqa: SIM118 (no mapping)
                yield name, handle.get_tensor(name)


def of_torch(request):
    """Files of torch.save by the restricted loader."""
    from _torch_files import restricted_load, tensors_of

    for file in request["files"]:
        yield from tensors_of(restricted_load(file, request, Answer("")))


def of_deepspeed(request):
    """DeepSpeed's, put together where they lie in shards."""
    from _load_deepspeed import deepspeed_tensors

    yield from deepspeed_tensors(request, Answer(""))


def of_distributed(request):
    """A checkpoint of torch.distributed."""
    from _torch_files import distributed_tensors

    yield from distributed_tensors(request)


def of_keras(request):
    """A .keras file holds its weights as HDF5; an .h5 file is one."""
    import io
    import zipfile

    for file in request["files"]:
        if not zipfile.is_zipfile(file):
            yield from _hdf5(file)
            continue
        with zipfile.ZipFile(file) as archive:
            for name in archive.namelist():
                if name.endswith(".h5"):
                    yield from _hdf5(io.BytesIO(archive.read(name)))


def of_hdf5(request):
    """Every data set."""
    for file in request["files"]:
        yield from _hdf5(file)


def _hdf5(file):
    import h5py
    import numpy as np

    found = []

    def visit(name, item):
        if isinstance(item, h5py.Dataset):
            found.append((name, np.asarray(item[()])))

    with h5py.File(file, "r") as handle:
        handle.visititems(visit)
    yield from found


def of_orbax(request):
    """Every array of every item, restored without a target; an item's name begins its arrays' names."""
    import orbax.checkpoint as ocp

    path = os.path.abspath(request["path"])  # noqa: PTH100
    items = [(name, os.path.join(path, name)) for name in sorted(os.listdir(path))  # noqa: PTH118, PTH208
             if os.path.exists(os.path.join(path, name, "_METADATA"))]  # noqa: PTH110, PTH118
    if os.path.exists(os.path.join(path, "_METADATA")):  # noqa: PTH110, PTH118
        items.append(("", path))
    if not items:
        raise NotAttempted("no item of it holds arrays that can be restored without the program")
    for name, item in items:
        yield from _tree("" if name == "default" else name, ocp.PyTreeCheckpointer().restore(item))


def of_flax(request):
    """A msgpack file, which holds arrays and no code."""
    from flax import serialization

    for file in request["files"]:
        with open(file, "rb") as stream:  # noqa: PTH123
            yield from _tree("", serialization.msgpack_restore(stream.read()))


def _tree(name, value):
    import numpy as np

    if isinstance(value, dict):
        for key, item in value.items():
            yield from _tree(f"{name}.{key}" if name else str(key), item)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _tree(f"{name}.{index}" if name else str(index), item)
    elif hasattr(value, "shape") and hasattr(value, "dtype") and "key<" not in str(value.dtype):
        yield name, np.asarray(value)
