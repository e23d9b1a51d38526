"""Classes that torch's restricted loader may make beside its own, since training states commonly hold them.

Each is safe because making it runs no code that the checkpoint could choose:

- numpy's `_reconstruct`, `scalar`, `ndarray` and `dtype` fill memory of a given type with given bytes. Elements of type
  object come from the same restricted loader.
- `argparse.Namespace` and `types.SimpleNamespace` only hold attributes.
- `collections.defaultdict` becomes an ordered dictionary without its factory, which torch's loader can fill.
- `dict`, `list`, `int`, `float` and `str`, which are such factories, build plain values.
- `pathlib`'s paths are text; none of them looks at a disk when it is made.
- `datetime`'s classes check and keep numbers.
"""

# mypy: ignore-errors

import argparse
import builtins
import collections
import contextlib
import datetime
import pathlib
import re
import types
import zipfile

NUMPY = ("numpy._core.multiarray", "numpy.core.multiarray")
"""Where numpy 2 and numpy 1 say that their functions lie."""
_STORAGES = re.compile(rb"ctorch[.\w]*\n(Float|Double|Half|BFloat16|Untyped|Complex\w+)Storage\n")


def allowed(path):
    """A context in which torch.load(weights_only=True) may make them, for an archive that stores floating values.

    Another has no weights that would be worth it: a generator's state alone stays refused. Versions of torch that
    cannot be told of classes by the names of a pickle refuse as before.
    """
    import torch

    if not _stores_weights(path):
        return contextlib.nullcontext()
    try:
        from torch._weights_only_unpickler import _get_user_allowed_globals

        with torch.serialization.safe_globals(classes()):
            _get_user_allowed_globals()
        return torch.serialization.safe_globals(classes())
    except Exception:
        return contextlib.nullcontext()


def _stores_weights(path):
    try:
        with zipfile.ZipFile(path) as archive:
            return any(_STORAGES.search(archive.read(name)) for name in archive.namelist()
                       if name.endswith("data.pkl"))
    except Exception:
        # Without checksums, or damaged: torch says so itself.
        return False


def classes():
    """[(class or function, the name that a pickle gives it)]."""
    found = [
        (argparse.Namespace, "argparse.Namespace"), (types.SimpleNamespace, "types.SimpleNamespace"),
        (_ordered, "collections.defaultdict"),
    ]
    found += [(getattr(builtins, name), f"{place}.{name}") for name in ("dict", "list", "int", "float", "str")
              for place in ("builtins", "__builtin__")]
    found += [(getattr(datetime, name), f"datetime.{name}")
              for name in ("datetime", "date", "time", "timedelta", "timezone")]
    # A path of another system is only named.
    pure = {"PosixPath": pathlib.PurePosixPath, "PurePosixPath": pathlib.PurePosixPath,
            "WindowsPath": pathlib.PureWindowsPath, "PureWindowsPath": pathlib.PureWindowsPath}
    found += [(kind, f"{place}.{name}") for name, kind in pure.items() for place in ("pathlib", "pathlib._local")]
    return found + _of_numpy()


def _ordered(factory=None, *more):
    return collections.OrderedDict(*more)


def _of_numpy():
    try:
        import numpy as np
    except ImportError:
        return []
    core = getattr(np, "_core", None) or np.core
    found = [(np.ndarray, "numpy.ndarray"), (np.dtype, "numpy.dtype")]
    found += [(getattr(core.multiarray, name), f"{place}.{name}") for name in ("_reconstruct", "scalar")
              for place in NUMPY]
    # A type is made by numpy.dtype and filled as an object of its own class.
    kinds = {type(np.dtype(code)) for code in "?bBhHiIlLqQefdgFDGOSUVMm"}
    return found + [(kind, f"{kind.__module__}.{kind.__qualname__}") for kind in kinds if kind is not np.dtype]
