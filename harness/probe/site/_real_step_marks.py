"""Digests of a few small parameters as an optimizer found them, and as training moved them since.

A checkpoint that still holds those very bytes, although they moved in memory, is the untrained model. Ranks that
train copies of one model hold the same bytes after the same number of steps.
Standard library only; torch is there, since an optimizer was made.
"""

# mypy: ignore-errors

import ctypes
import hashlib
import sys
import weakref

MAX_MARKS = 16
MAX_BYTES = 32 << 10
DTYPES = {"torch.float32": "F32", "torch.float64": "F64", "torch.float16": "F16", "torch.bfloat16": "BF16"}
"""As safetensors names the types."""


class StartMarks:
    """At most 16 of the smallest trainable parameters, held weakly."""

    def __init__(self):
        self.marks = []
        self.at = 0

    def take(self, optimizer):
        """Digest the parameters of a new optimizer."""
        room = MAX_MARKS - len(self.marks)
        params = [param for group in optimizer.param_groups for param in group["params"] if is_markable(param)]
        for param in sorted(params, key=lambda param: param.numel())[: max(0, room)]:
            self.marks.append(
                {
                    "ref": weakref.ref(param),
                    "shape": list(param.shape),
                    "dtype": DTYPES[str(param.dtype)],
                    "sha256": digest(param),
                    "changed": False,
                    "end": None,
                }
            )

    def look(self, steps):
        """See which of them moved, after so many steps of all optimizers."""
        for mark in self.marks:
            param = mark["ref"]()
            is_whole = param is not None and is_markable(param)
            mark["end"] = digest(param) if is_whole else None
            mark["changed"] = mark["changed"] or (is_whole and mark["end"] != mark["sha256"])
        self.at = steps

    def to_json(self):
        """The `marks` list."""
        return [{key: value for key, value in mark.items() if key != "ref"} for mark in self.marks]


def is_markable(param):
    """Whether a parameter is trained, whole in this process, and small."""
    small = 0 < param.numel() * param.element_size() <= MAX_BYTES
    plain = not hasattr(param, "_local_tensor") and param.device.type != "meta" and str(param.dtype) in DTYPES
    return small and plain and param.requires_grad


def digest(param):
    """SHA-256 of its bytes."""
    torch = sys.modules["torch"]
    with torch.no_grad():
        values = param.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        return hashlib.sha256(ctypes.string_at(values.data_ptr(), values.numel())).hexdigest()
