"""Loaders for rows of a known shape: the AReno checkout's own where it lies there, else the bundled ones."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import resources
from pathlib import Path

QUESTION_ANSWER = ("question", "answer")
SHAPES: dict[str, tuple[tuple[tuple[str, ...], str], ...]] = {
    "rollout": (
        (("question", "answer"), "question_answer.py"),
        (("problem", "answer"), "question_answer.py"),
        (("problem", "solution"), "question_answer.py"),
        (("question", "solutions"), "question_answer.py"),
        (("question", "solution"), "question_answer.py"),
        (("instruction", "output"), "question_answer.py"),
    ),
    "sft": (
        (("prompt", "response"), "prompt_response.py"),
        (("instruction", "output"), "prompt_response.py"),
        (("prompt", "completion"), "prompt_response.py"),
        (("question", "answer"), "prompt_response.py"),
        (("question", "response"), "prompt_response.py"),
        (("problem", "solution"), "prompt_response.py"),
    ),
}
"""Kind of algorithm -> fields that are there, and the bundled loader that knows them."""
CHECKOUT_LOADER = Path("examples/math/dataset_loader.py")
"""AReno's own loader of GSM8K rows, below its checkout."""


def suggested_loader(kind: str, keys: Iterable[str], workdir: Path) -> str | None:
    """A loader that makes the rows of this kind from these fields; None where no shape is known."""
    have = set(keys)
    kind = "rollout" if kind == "agentic" else kind
    for fields, name in SHAPES.get(kind, ()):
        if have.issuperset(fields):
            own = checkout_loader(workdir) if kind == "rollout" and fields == QUESTION_ANSWER else None
            return str(own or bundled(name))
    return None


def checkout_loader(workdir: Path) -> Path | None:
    """examples/math/dataset_loader.py of the AReno checkout that the working directory lies in or beside."""
    places = (workdir, *workdir.parents, workdir / "areno", workdir / "AReno")
    return next((place / CHECKOUT_LOADER for place in places if (place / CHECKOUT_LOADER).is_file()), None)


def bundled(name: str) -> Path:
    """A loader that comes with the harness."""
    return Path(str(resources.files("harness.fixtures.data").joinpath(name)))
