"""The reference pages say what the code says."""

from __future__ import annotations

from pathlib import Path

from harness.frameworks import areno_algorithms
from harness.record.pages import render_schemas, render_vocabulary
from harness.record.reason_texts import REASONS
from harness.record.reasons import Reason
from harness.record.vocabulary import AnomalyType
from harness.watch.anomalies import page

REFERENCES = Path(__file__).parents[2] / "references"


def test_vocabulary_page_is_what_the_code_renders() -> None:
    """references/vocabulary.md is current (`python -m harness.record.pages references` renews it)."""
    assert (REFERENCES / "vocabulary.md").read_text(encoding="utf-8") == render_vocabulary()


def test_schemas_page_is_what_the_schemas_render() -> None:
    """references/schemas.md is current."""
    assert (REFERENCES / "schemas.md").read_text(encoding="utf-8") == render_schemas()


def test_every_reason_is_documented_with_its_remedy() -> None:
    """No reason code without a meaning and a remedy."""
    assert set(REASONS) == set(Reason)
    assert all(spec.meaning and spec.remedy for spec in REASONS.values())


def test_anomalies_page_is_what_the_detectors_say() -> None:
    """references/anomalies.md is current (`python -m harness.watch.anomalies.page references` renews it)."""
    assert (REFERENCES / "anomalies.md").read_text(encoding="utf-8") == page.render()


def test_every_anomaly_has_a_rule() -> None:
    """Each type of the vocabulary stands on the page."""
    assert {rule.type for rule in page.RULES} == set(AnomalyType)


def test_algorithm_matrix_is_what_the_table_says() -> None:
    """references/algorithm-matrix.md is current (`python -m harness.frameworks.areno_algorithms references`)."""
    assert (REFERENCES / "algorithm-matrix.md").read_text(encoding="utf-8") == areno_algorithms.render()
