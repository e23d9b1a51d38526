"""One-digit additions as JSON lines: `python make_data.py FILE`.

The rows are raw (`left`, `right`, `sum`); the loaders give them the shape that an algorithm needs.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from pathlib import Path


def additions(*, seed: int = 0) -> list[dict[str, int]]:
    """All 100 additions of two digits, shuffled by `seed`."""
    rows = [{"left": left, "right": right, "sum": left + right} for left in range(10) for right in range(10)]
    random.Random(seed).shuffle(rows)
    return rows


def question(row: dict[str, int]) -> str:
    """What the user asks."""
    return f"what is {row['left']} plus {row['right']}?"


def answer(row: dict[str, int]) -> str:
    """What a trained model says."""
    return f"the answer is {row['sum']}"


def sentences() -> Iterator[str]:
    """The text that the tokenizer is trained on, in a fixed order."""
    for row in additions():
        yield f"user\n{question(row)}"
        yield f"assistant\n{answer(row)}"


def write_rows(path: Path) -> int:
    """Write the rows as JSON lines and return how many they are."""
    rows = additions()
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return len(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", type=Path)
    arguments = parser.parse_args()
    print(f"{arguments.path}: {write_rows(arguments.path)} rows")


if __name__ == "__main__":
    main()
