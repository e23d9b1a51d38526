"""Loader of DPO rows for AReno (`--dataset-loader-fn`): the right answer is chosen, its neighbour rejected."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def load_training_dataset(path: str, **_: Any) -> list[dict[str, str]]:
    """Read the additions in `path`; AReno's own loaders come as keywords that are not needed here."""
    rows = map(json.loads, Path(path).read_text(encoding="utf-8").splitlines())
    return [
        {
            "prompt": f"what is {row['left']} plus {row['right']}?",
            "chosen": f"the answer is {row['sum']}",
            "rejected": f"the answer is {row['sum'] + 1}",
        }
        for row in rows
    ]
