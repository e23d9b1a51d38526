"""--reload-with on a real torch program: its own evaluation of the reloaded model decides, in both directions."""

from __future__ import annotations

import json
import secrets
import shlex
import sys
from pathlib import Path

import pytest

from harness.client import ensure_run, forget_session
from harness.spec import RunSpec

PROGRAM = Path(__file__).parent / "programs" / "evaluates.py"


@pytest.mark.parametrize(("fault", "decision", "codes"), [
    ("", "GO", []), ("random", "NO-GO", ["eval-loss-disagrees", "weights-unrelated"]),
])
def test_its_own_evaluation_decides(fault: str, decision: str, codes: list[str], tmp_path: Path) -> None:
    """Agreement is GO; weights that are not those that were evaluated are NO-GO, beside what is unproven."""
    words = [sys.executable, str(PROGRAM), "--log-dir", "events", "--save-dir", "saved", "--fault", fault]
    spec = RunSpec(train_cmd=shlex.join(words), out_dir=tmp_path / "out", workdir=tmp_path, run_id="made", max_steps=60,
                   session=secrets.token_hex(8), reload_with=f"{PROGRAM}:evaluate")
    report = json.loads((ensure_run(spec, lambda line: None) / "train-model.json").read_text())
    forget_session(spec.session)
    assert (report["decision"], [one["code"] for one in report["evidence"]["reasons"]]) == (decision, codes), report
    reload = report["evidence"]["reload"]
    assert (reload["status"], reload["step"], reload["adapter"], reload["forward_ok"]) == ("ok", 60, "torch", True)
    assert reload["function"]["name"] == "evaluates.py:evaluate"
