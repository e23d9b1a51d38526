"""Renders references/vocabulary.md and references/schemas.md from the code that they describe.

`python -m harness.record.pages REFERENCES_DIR` writes both; a test holds the pages to what this renders.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from harness.record.files import write_text
from harness.record.reason_texts import REASONS
from harness.record.schemas import SCHEMAS, load_schema
from harness.record.vocabulary import documented_enums


def render_vocabulary() -> str:
    """Every enum with its values, every reason code with its meaning and remedy."""
    lines = ["# Vocabulary", "", "Canonical values of the artifacts.", ""]
    for enum in documented_enums():
        values = ", ".join(f"`{member.value}`" for member in enum)
        lines += [f"## {enum.__name__}", "", (enum.__doc__ or "").strip(), "", values, ""]
    lines += [
        "## Reason codes", "",
        "Why a decision is not GO. A failed check makes its reason `broken`, a check without evidence makes it "
        "`unproven`; the kind below is the one that a code usually has. `infrastructure` alone is worth a retry of "
        "the same command.", "",
        "| code | kind | meaning | remedy |", "| --- | --- | --- | --- |",
    ]
    lines += [f"| `{reason.value}` | {spec.kind.value} | {spec.meaning} | {spec.remedy} |"
              for reason, spec in REASONS.items()]
    return "\n".join(lines) + "\n"


def render_schemas() -> str:
    """Every artifact with its fields, two levels deep."""
    lines = ["# Schemas", "",
             "JSON Schema (2020-12) files lie in `schemas/`; every artifact is validated before it is written. A "
             "non-finite number is `{\"value\": null, \"repr\": \"nan\"}`.", ""]
    for artifact, name in SCHEMAS.items():
        schema = load_schema(artifact)
        lines += [f"## {artifact}", "", f"`schemas/{name}`", "", "| field | type |", "| --- | --- |"]
        lines += [f"| `{path}` | {kind} |" for path, kind in _fields(schema, schema, "", depth=3)]
        lines.append("")
    return "\n".join(lines)


def _fields(schema: dict[str, Any], node: dict[str, Any], prefix: str, *, depth: int) -> list[tuple[str, str]]:
    node = _resolved(schema, node)
    rows = []
    for key, value in node.get("properties", {}).items():
        inner = _resolved(schema, value)
        rows.append((prefix + key, _kind(schema, value)))
        if depth > 1 and key != "repr":
            if inner.get("properties") and "anyOf" not in inner:
                rows += _fields(schema, inner, f"{prefix}{key}.", depth=depth - 1)
            elif inner.get("type") == "array":
                rows += _fields(schema, inner.get("items", {}), f"{prefix}{key}[].", depth=depth - 1)
    return rows


def _resolved(schema: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    reference = node.get("$ref")
    if reference is None:
        return node
    found: dict[str, Any] = schema["$defs"][reference.rpartition("/")[2]]
    return found


def _kind(schema: dict[str, Any], node: dict[str, Any]) -> str:
    if node.get("$ref") == "#/$defs/number":
        return "number"
    node = _resolved(schema, node)
    if "enum" in node:
        return " or ".join(f"`{value}`" for value in node["enum"])
    if "const" in node:
        return f"`{node['const']}`"
    if "anyOf" in node:
        return " or ".join(_kind(schema, option) for option in node["anyOf"])
    kind = node.get("type", "any")
    if kind == "array":
        return f"list of {_kind(schema, node.get('items', {}))}"
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def main(directory: Path) -> None:
    """Write both pages."""
    write_text(directory / "vocabulary.md", render_vocabulary())
    write_text(directory / "schemas.md", render_schemas())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
