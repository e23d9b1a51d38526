"""Loader of SFT rows for AReno (`--dataset-loader-fn`): a prompt and the response to learn."""

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
            "response": f"the answer is {row['sum']}",
        }
        for row in rows
    ]
