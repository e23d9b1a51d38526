"""A plain script's state_dict, loaded after a real run into the class that the script trained."""

from __future__ import annotations

import json
import secrets
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.client import ensure_run, forget_session
from harness.spec import RunSpec
from tests.landlock import can_confine

PROGRAM = Path(__file__).parent / "programs" / "plain_model.py"


def report_of(place: Path, mode: str) -> dict[str, Any]:
    """train-model.json."""
    command = shlex.join([sys.executable, str(PROGRAM), "--mode", mode, "--width", "6"])
    spec = RunSpec(train_cmd=command, out_dir=place / "out", workdir=place, run_id=mode, session=secrets.token_hex(8))
    out_dir = ensure_run(spec, lambda line: None)
    forget_session(spec.session)
    report: dict[str, Any] = json.loads((out_dir / "train-model.json").read_text())
    return report


@pytest.mark.parametrize("mode", ["plain", "off-by-one"])
def test_state_is_loaded_into_the_class_that_was_trained(mode: str, tmp_path: Path) -> None:
    """GO with a finite forward pass; that a save left out the last key is a finding, since it may be meant."""
    report = report_of(tmp_path, mode)
    reload = report["evidence"]["reload"]
    assert (report["decision"], report["evidence"]["reasons"]) == ("GO", []), report
    assert (reload["adapter"], reload["missing"]) == ("torch", [])
    assert len(list((tmp_path / "events").iterdir())) == 1, "the script ran again"
    if not can_confine():
        assert reload["forward_ok"] is None and any("Landlock" in note for note in reload["notes"])
        return
    assert reload["forward_ok"] is (True if mode == "plain" else None)
    assert any("fits Regressor" in note or "those of Regressor" in note for note in reload["notes"])
    found = [item for item in report["findings"] if "missing last.bias" in item["description"]]
    assert [item["severity"] for item in found] == ([] if mode == "plain" else ["medium"])
