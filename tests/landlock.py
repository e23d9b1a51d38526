"""Whether this kernel keeps a process from writing, which is asked of the harness's own module."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from harness import checkpoints


def can_confine() -> bool:
    """Without it a program's classes are not tried out, and the tests expect that to be said."""
    path = Path(checkpoints.__file__).parent / "site" / "_confine.py"
    spec = importlib.util.spec_from_file_location("_confine_asked", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return bool(module.version() >= module.LEAST_VERSION)
