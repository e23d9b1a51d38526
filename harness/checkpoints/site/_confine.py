"""Keeps this process, and whatever it starts, from changing anything: Linux's Landlock, by its system calls.

Everything may be read. Only below one directory may be written; nothing may be executed, connected to (Linux 6.7) or
signalled (6.12). Of the modules that are no installed package only those that were looked at may be imported.
"""

# mypy: ignore-errors

import contextlib
import ctypes
import os
import sys
import sysconfig

CREATE, ADD_RULE, RESTRICT = 444, 445, 446
"""System calls, the same on every architecture."""
NO_NEW_PRIVS = 38
LEAST_VERSION = 3
"""Of Linux 6.2, from which on a file cannot be truncated either."""
EXECUTE, WRITE_FILE, TRUNCATE = 1 << 0, 1 << 1, 1 << 14
CHANGES = WRITE_FILE | TRUNCATE | sum(1 << bit for bit in range(4, 14))
"""Writing, and removing and making entries of directories of every kind."""
TCP, SCOPES = 0b11, 0b11
INSTALLED = frozenset({"site-packages", "dist-packages"})


class _Rules(ctypes.Structure):
    _fields_ = [("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class _Below(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = [("allowed", ctypes.c_uint64), ("fd", ctypes.c_int32)]


def version():
    """Of Landlock; 0 where it is not to be had."""
    if sys.platform != "linux":
        return 0
    return max(0, _call(CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(1)))


def confine(place, files):
    """Whether it is in force: writing below `place` alone, and of the program importing `files` alone.

    For this thread and those that it starts, until they end.
    """
    told = version()
    if told < LEAST_VERSION:
        return False
    rules = _Rules(fs=EXECUTE | CHANGES, net=TCP if told >= 4 else 0, scoped=SCOPES if told >= 6 else 0)
    size = 8 if told < 4 else 16 if told < 6 else 24
    ruleset = _call(CREATE, ctypes.byref(rules), ctypes.c_size_t(size), ctypes.c_uint32(0))
    if ruleset < 0:
        return False
    try:
        is_made = _allow(ruleset, place, CHANGES) and _allow(ruleset, os.devnull, WRITE_FILE | TRUNCATE)
        libc = ctypes.CDLL(None, use_errno=True)
        if not is_made or libc.prctl(NO_NEW_PRIVS, 1, 0, 0, 0) or _call(RESTRICT, ruleset, ctypes.c_uint32(0)):
            return False
    finally:
        os.close(ruleset)
    for name in ("TMPDIR", "TEMP", "TMP"):
        os.environ[name] = place
    sys.meta_path.insert(0, Known(files))
    return True


def _allow(ruleset, path, rights):
    """Whether the rights are given below a path."""
    with contextlib.ExitStack() as stack:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        stack.callback(os.close, place)
        return not _call(ADD_RULE, ruleset, 1, ctypes.byref(_Below(allowed=rights, fd=place)), ctypes.c_uint32(0))


def _call(number, *arguments):
    return ctypes.CDLL(None, use_errno=True).syscall(ctypes.c_long(number), *arguments)


class Known:
    """Stands before all finders of modules, and refuses code that is neither installed nor among the files."""

    def __init__(self, files):
        own = os.path.dirname(os.path.realpath(__file__))  # noqa: PTH120
        self.files = {os.path.realpath(file) for file in files}
        self.roots = tuple(os.path.join(os.path.realpath(root), "") for root in (  # noqa: PTH118
            own, *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib"))))

    def find_spec(self, name, path=None, target=None):
        """As the other finders tell it; ImportError for what was not looked at."""
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if finder is not self and find is not None else None
            if spec is not None:
                if not self.knows(spec.origin):
                    raise ImportError(f"{spec.origin} is not imported: it was not looked at", name=name)
                return spec
        return None

    def knows(self, origin):
        """Whether a module's origin is of Python itself, installed, or among the files."""
        if origin is None or not os.path.isabs(origin):  # noqa: PTH117
            return True
        real = os.path.realpath(origin)
        return real in self.files or real.startswith(self.roots) or not INSTALLED.isdisjoint(real.split(os.sep))  # noqa: PTH206
