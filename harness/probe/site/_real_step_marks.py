"""Digests of a few parameters as an optimizer found them at its first step, and what training made of them since.

A checkpoint that still holds those very bytes, although they moved in memory, is the untrained model; one that holds
the bytes of a later look was trained. They are looked at while training, whenever the program saves, and at the end;
some of their values are kept of the first and the last look, since a cast or an average has other bytes and is alike.
Ranks that train copies of one model hold the same bytes after the same number of steps. Standard library only; torch,
where it is used, was imported by the program.
"""

# mypy: ignore-errors

import array
import base64
import ctypes
import functools
import hashlib
import os
import sys
import threading
import time
import weakref

MAX_MARKS = 64
MAX_OF_ONE = 16
"""Of one optimizer: the 8 smallest parameters and 8 spread over the others."""
MAX_BYTES = 32 << 10
"""Digested of a parameter: its first bytes."""
DTYPES = {"torch.float32": "F32", "torch.float64": "F64", "torch.float16": "F16", "torch.bfloat16": "BF16",
          "float32": "F32", "float64": "F64", "float16": "F16", "bfloat16": "BF16"}
"""As safetensors names the types."""
MAX_VALUES, VALUES_OF = 64, 4096
"""Values that are kept of a parameter, spread evenly over its first 4096 elements."""
MAX_COARSE = 8
"""Looks, the latest, of which values are kept, as shares of the largest in 127 steps."""
MAX_LOOKS = 40
"""Remembered, the latest: with 16 parameters that is 6 KB."""
MAX_PATH = 500
SHORT = 8
"""Letters of a digest that a remembered look keeps."""
SAVERS = {
    "torch.serialization": {"save": 1},
    "safetensors.torch": {"save_file": 1},
    "torch.distributed.checkpoint.state_dict_saver": {"save": None, "async_save": None},
    "keras.src.saving.saving_lib": {"save_model": 1, "save_weights_only": 1},
}
"""Functions that save, by their modules, and where among their arguments the file is."""
FILE_NAMES = ("f", "filename", "filepath")


class StartMarks:
    """At most 64 trainable parameters, held weakly."""

    def __init__(self):
        self.marks = []
        self.unstepped = {}
        self.optimizers = 0
        self.at = 0
        self.looks = []
        self.counted = {}
        self.unmarked = 0

    def take(self, optimizer):
        """Digest the parameters of a new torch optimizer, which `renew` does again at its first step."""
        params = [param for group in optimizer.param_groups for param in group["params"] if is_markable(param)]
        if self.add(params):
            self.unstepped[id(optimizer)] = self.optimizers - 1

    def add(self, params):
        """Digest some of the parameters of one optimizer; whether there was room for any."""
        known = {id(mark["ref"]()) for mark in self.marks}
        self._count(params)
        wanted = choose([param for param in params if id(param) not in known])
        chosen = wanted[: MAX_MARKS - len(self.marks)]
        self.unmarked += len(chosen) < len(wanted)
        alike = {}
        for param in params:
            kind = (str(value_of(param).dtype), tuple(param.shape))
            alike[kind] = alike.get(kind, 0) + 1
        for param in chosen:
            value = value_of(param)
            self.marks.append(
                {
                    "ref": weakref.ref(param),
                    "optimizer": self.optimizers,
                    "shape": [int(size) for size in value.shape],
                    "dtype": DTYPES[str(value.dtype)],
                    "changed": False,
                    "end": None,
                    "last": None,
                    "alike": alike[str(value.dtype), tuple(param.shape)],
                    "values_last": None,
                    **seen_in(value),
                }
            )
        self.optimizers += bool(chosen)
        return bool(chosen)

    def _count(self, params):
        """Parameters of each type and shape, over all optimizers."""
        for param in params:
            kind = (str(value_of(param).dtype), tuple(int(size) for size in param.shape))
            self.counted.setdefault(kind, set()).add(id(param))

    def renew(self, optimizer):
        """Before a step: at the first one what was loaded since the optimizer was made is the start."""
        number = self.unstepped.pop(id(optimizer), None) if self.unstepped else None
        if number is not None:
            self.renew_number(number)

    def renew_number(self, number):
        """Digest the parameters of one optimizer again."""
        for mark in self.marks:
            param = mark["ref"]() if mark["optimizer"] == number else None
            if param is not None:
                mark.update(seen_in(value_of(param)), changed=False)

    def look(self, steps=None):
        """See which of them moved, after so many steps of all optimizers; without a number the run is over, and
        what lives no longer keeps what was seen of it. After an exception what moved is left: a device may hang.
        """
        is_cut = steps is None and hasattr(sys, "last_type")
        seen = [None if is_cut and mark["changed"] else self._see(mark) for mark in self.marks]
        if steps is not None:
            for mark, digest in zip(self.marks, seen):  # noqa: B905 (Python 3.10)
                mark["end"] = digest
        self.at = self.at if steps is None else steps
        return seen

    def look_at_save(self, steps, path):
        """See them again because the program saves; where it saves into memory, at most once a second."""
        latest = self.looks[-1] if self.looks else {"time": 0.0}
        if steps and (path is not None or time.time() - latest["time"] > 1.0):
            self.remember([self._see(mark) for mark in self.marks], steps, path)

    def remember(self, seen, steps, path=None):
        """Keep what a look saw after so many steps, and what was then saved where."""
        if any(seen):
            digests = [digest and digest[:SHORT] for digest in seen]
            self.looks.append({"at": steps, "time": time.time(), "path": path, "sha256": digests, "values": [
                coarse(mark["values_last"]) if digest else None for mark, digest in zip(self.marks, seen)]})  # noqa: B905
            del self.looks[:-MAX_LOOKS]
            for look in self.looks[:-MAX_COARSE]:
                look["values"] = []

    def _see(self, mark):
        """The digest of a parameter that lives and has its shape, else None."""
        param = mark["ref"]()
        value = None if param is None else value_of(param)
        if value is None or [int(size) for size in value.shape] != mark["shape"]:
            return None
        seen = seen_in(value)
        mark["last"], mark["values_last"] = seen["sha256"], seen["values"]
        mark["changed"] = mark["changed"] or seen["sha256"] != mark["sha256"]
        return seen["sha256"]

    def to_json(self):
        """The `marks` list."""
        names = {short: long for long, short in DTYPES.items() if long.startswith("torch.")}
        totals = [max(len(self.counted.get((kind, tuple(mark["shape"])), ())) for kind in (
            names[mark["dtype"]], names[mark["dtype"]].rpartition(".")[2])) for mark in self.marks]
        return [{**{key: value for key, value in mark.items() if key != "ref"}, "total": total}
                for mark, total in zip(self.marks, totals)]  # noqa: B905 (Python 3.10)

    def looks_json(self):
        """The `looks` list."""
        return list(self.looks)


def choose(params):
    """Small ones, which every checkpoint holds as they are, and larger ones, which move first in a short type."""
    params = sorted(params, key=size_of)
    few, others = params[: MAX_OF_ONE // 2], params[MAX_OF_ONE // 2 :]
    stride = max(1, len(others) // (MAX_OF_ONE // 2))
    return few + others[::-1][::stride][: MAX_OF_ONE // 2]


def size_of(param):
    """Elements."""
    size = 1
    for length in param.shape:
        size *= int(length)
    return size


def is_markable(param):
    """Whether a parameter is trained, and whole in this process."""
    plain = not hasattr(param, "_local_tensor") and param.device.type != "meta" and str(param.dtype) in DTYPES
    return plain and param.requires_grad and param.numel() > 0 and param.is_contiguous()


def value_of(param):
    """Its tensor or array; a variable of Keras has it inside."""
    return param.value if hasattr(param, "assign") else param


def seen_in(value):
    """SHA-256 of its first bytes, some values, and whether its elements are all the same, as norms and biases begin."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        width = value.element_size()
        with torch.no_grad():
            flat = value.detach().reshape(-1)[: MAX_BYTES // width].cpu().contiguous()
            data = ctypes.string_at(flat.data_ptr(), flat.numel() * width)
            values = flat[list(positions(flat.numel()))].tolist()
    else:
        flat = sys.modules["numpy"].asarray(value).reshape(-1)
        width = flat.dtype.itemsize
        data = flat[: MAX_BYTES // width].tobytes()
        values = flat[list(positions(flat.size))].tolist()
    return {
        "sha256": hashlib.sha256(data).hexdigest(),
        "uniform": data == data[:width] * (len(data) // width),
        "values": packed(values),
    }


def positions(size):
    """Of the values that are kept of a parameter with so many elements; the same for every type."""
    size = min(size, VALUES_OF)
    return range(size) if size <= MAX_VALUES else [index * size // MAX_VALUES for index in range(MAX_VALUES)]


def packed(values):
    """Float32 values as base64 of their bytes, little-endian."""
    kept = array.array("f", [min(max(float(value), -3e38), 3e38) if value == value else 0.0 for value in values])
    if sys.byteorder == "big":
        kept.byteswap()
    return base64.b64encode(kept.tobytes()).decode("ascii")


def coarse(text):
    """Packed values in a quarter of the room: whole numbers between -127 and 127, the largest being 127."""
    kept = array.array("f")
    kept.frombytes(base64.b64decode(text))
    if sys.byteorder == "big":
        kept.byteswap()
    largest = max(map(abs, kept), default=0.0) or 1.0
    numbers = array.array("b", [round(127 * value / largest) for value in kept])
    return base64.b64encode(numbers.tobytes()).decode("ascii")


def listen_to_saves(module, looking):
    """Call `looking(path or None)` before the functions of a module that save; False where it has none."""
    names = SAVERS.get(module.__name__)
    for name, place in (names or {}).items():
        original = getattr(module, name, None)
        if original is not None:
            setattr(module, name, saving(original, place, looking))
    return names is not None


def saving(original, place, looking):
    """A function that saves; a thread saves copies of what was earlier, so that nothing is looked at for it."""

    @functools.wraps(original)
    def save(*args, **kwargs):
        if threading.current_thread() is threading.main_thread():
            looking(file_of(place, args, kwargs))
        return original(*args, **kwargs)

    return save


def file_of(place, args, kwargs):
    """Absolute path of the file that is saved to, None where that cannot be told."""
    try:
        found = args[place] if place is not None and len(args) > place else None
        found = next((kwargs[name] for name in FILE_NAMES if name in kwargs), found)
        found = getattr(found, "name", found) if not isinstance(found, (str, os.PathLike)) else found
        path = os.path.abspath(os.fspath(found))  # noqa: PTH100
        return path if len(path) <= MAX_PATH and path.isprintable() else None
    except Exception:
        return None
