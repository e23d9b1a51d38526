"""An owner that goes while something is looked at before the launch: nothing is launched, and that is said."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import psutil

from harness.spec import RunSpec

LOADER = """
import time
def load_training_dataset(path, **ignored):
    open("loading", "w").close()
    time.sleep(300)
"""


def test_owner_that_goes_during_the_look_at_the_data_stops_it(tmp_path: Path) -> None:
    """The loader's child is gone within seconds, and the run is CANCELLED."""
    (tmp_path / "loader.py").write_text(LOADER)
    (tmp_path / "data.jsonl").write_text('{"prompt": "p", "response": "r"}\n')
    areno = tmp_path / "areno"
    areno.write_text(f"#!{sys.executable}\n")
    areno.chmod(0o755)
    command = f"{areno} train --backend mlx --algo sft --ckpt {tmp_path} --dataset-path data.jsonl " \
        "--dataset-loader-fn loader.py --save-path saved"
    spec = RunSpec(train_cmd=command, out_dir=tmp_path / "out", workdir=tmp_path, run_id="gone", session="gone")
    supervisor = subprocess.Popen([sys.executable, "-m", "harness.supervise"], stdin=subprocess.PIPE,
                                  cwd=tmp_path, stdout=subprocess.PIPE)
    assert supervisor.stdin is not None
    supervisor.stdin.write(json.dumps(spec.to_json()).encode() + b"\n")
    supervisor.stdin.flush()
    deadline = time.monotonic() + 300
    while not (tmp_path / "loading").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert (tmp_path / "loading").exists()
    supervisor.stdin.close()
    assert supervisor.wait(timeout=400) == 0
    assert supervisor.stdout is not None
    supervisor.stdout.close()
    report = json.loads((tmp_path / "out" / "train-model.json").read_text())
    assert (report["decision"], report["terminal_state"]) == ("NO-GO", "CANCELLED")
    assert not [process for process in psutil.process_iter(["cwd"]) if process.info["cwd"] == str(tmp_path)]
