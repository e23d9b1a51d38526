"""Loader of agentic rows for AReno (`--dataset-loader-fn`): the first question, and the sum for the reward."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def load_training_dataset(path: str, **_: Any) -> list[dict[str, Any]]:
    """Read the additions in `path`; AReno's own loaders come as keywords that are not needed here."""
    rows = map(json.loads, Path(path).read_text(encoding="utf-8").splitlines())
    return [{"prompt": f"what is {row['left']} plus {row['right']}?", "answer": str(row["sum"]), **row} for row in rows]
