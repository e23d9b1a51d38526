"""Digests of a few parameters as an optimizer found them at its first step, and whether training moved them since.

A checkpoint that still holds those very bytes, although they moved in memory, is the untrained model; one that holds
others in their place was trained. Ranks that train copies of one model hold the same bytes after the same number of
steps. Standard library only; torch, where it is used, was imported by the program.
"""

# mypy: ignore-errors

import ctypes
import hashlib
import sys
import weakref

MAX_MARKS = 64
MAX_OF_ONE = 16
"""Of one optimizer: the 8 smallest parameters and 8 spread over the others."""
MAX_BYTES = 32 << 10
"""Digested of a parameter: its first bytes."""
DTYPES = {"torch.float32": "F32", "torch.float64": "F64", "torch.float16": "F16", "torch.bfloat16": "BF16",
          "float32": "F32", "float64": "F64", "float16": "F16", "bfloat16": "BF16"}
"""As safetensors names the types."""


class StartMarks:
    """At most 64 trainable parameters, held weakly."""

    def __init__(self):
        self.marks = []
        self.unstepped = {}
        self.optimizers = 0
        self.at = 0

    def take(self, optimizer):
        """Digest the parameters of a new torch optimizer, which `renew` does again at its first step."""
        params = [param for group in optimizer.param_groups for param in group["params"] if is_markable(param)]
        if self.add(params):
            self.unstepped[id(optimizer)] = self.optimizers - 1

    def add(self, params):
        """Digest some of the parameters of one optimizer; whether there was room for any."""
        known = {id(mark["ref"]()) for mark in self.marks}
        chosen = choose([param for param in params if id(param) not in known])[: MAX_MARKS - len(self.marks)]
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
                    **digest_of(value),
                }
            )
        self.optimizers += bool(chosen)
        return bool(chosen)

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
                mark.update(digest_of(value_of(param)), changed=False)

    def look(self, steps=None):
        """See which of them moved, after so many steps of all optimizers; without a number the run is over, and
        what lives no longer keeps what was seen of it. After an exception what moved is left: a device may hang.
        """
        is_cut = steps is None and hasattr(sys, "last_type")
        for mark in self.marks:
            param = mark["ref"]()
            value = None if param is None else value_of(param)
            is_whole = value is not None and [int(size) for size in value.shape] == mark["shape"]
            seen = digest_of(value)["sha256"] if is_whole and not (is_cut and mark["changed"]) else None
            mark["last"] = seen or mark["last"]
            mark["changed"] = mark["changed"] or (seen is not None and seen != mark["sha256"])
            if steps is not None:
                mark["end"] = seen
        self.at = self.at if steps is None else steps

    def to_json(self):
        """The `marks` list."""
        return [{key: value for key, value in mark.items() if key != "ref"} for mark in self.marks]


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


def digest_of(value):
    """SHA-256 of its first bytes, and whether its elements are all the same, as norms and biases begin."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        width = value.element_size()
        with torch.no_grad():
            flat = value.detach().reshape(-1)[: MAX_BYTES // width].cpu().contiguous()
            data = ctypes.string_at(flat.data_ptr(), flat.numel() * width)
    else:
        array = sys.modules["numpy"].asarray(value)
        width = array.itemsize
        data = array.reshape(-1)[: MAX_BYTES // width].tobytes()
    return {"sha256": hashlib.sha256(data).hexdigest(), "uniform": data == data[:width] * (len(data) // width)}
