"""JSON Schemas (2020-12) of the artifacts, and their validation before anything is written."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

from harness.errors import RecordError

SCHEMAS = {
    "train-model.json": "train-model.schema.json",
    "babysit-training.json": "babysit-training.schema.json",
    "check-failed-run.json": "check-failed-run.schema.json",
    "lineage.json": "lineage.schema.json",
}
"""Artifact name -> file in harness.references.schemas."""


@cache
def load_schema(artifact: str) -> dict[str, Any]:
    """The schema of an artifact, from the installed package."""
    text = resources.files("harness.references.schemas").joinpath(SCHEMAS[artifact]).read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def schema_problems(document: Any, artifact: str) -> list[str]:
    """Every place where the document departs from its schema."""
    from jsonschema import Draft202012Validator

    validator = Draft202012Validator(load_schema(artifact))
    return [f"{error.json_path}: {error.message[:200]}" for error in validator.iter_errors(document)]


def validate_artifact(document: Any, artifact: str) -> None:
    """RecordError naming the first departures from the schema."""
    problems = schema_problems(document, artifact)
    if problems:
        raise RecordError(f"{artifact} does not meet its schema: {'; '.join(problems[:5])}")
