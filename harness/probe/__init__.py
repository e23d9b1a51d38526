"""The optimizer probe: what the launcher adds to a torch trainer's start, and the readers of what it writes.

The child gets `site_dir()` in front of PYTHONPATH, and REAL_STEP_PROBE_DIR; `site/sitecustomize.py` does the
rest. Where settings are overridden, REAL_STEP_PROBE_ASKED names them, and what parsers return is told of them.
"""

from __future__ import annotations

from pathlib import Path

ENV_DIR = "REAL_STEP_PROBE_DIR"


def site_dir() -> Path:
    """Directory to put in front of the child's PYTHONPATH."""
    return Path(__file__).resolve().parent / "site"
