"""Recorded cases of overrides that go wrong elsewhere: number formats, Hydra, launchers, settings that win."""

from __future__ import annotations

import json
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tomlkit

from harness.command.overrides.model import FlagTable, OverrideResult, parse_requests
from harness.command.overrides.resolve import apply_overrides
from harness.command.parse import join_command, parse_command
from harness.frameworks.base import FrameworkFacts
from harness.frameworks.torch import TorchAdapter
from harness.frameworks.transformers import TransformersAdapter
from harness.judge.report import build_report
from harness.metrics.model import RestartMarker
from harness.metrics.stdout import StdoutReader
from harness.spec import RunSpec
from tests.unit.run_dirs import RunDir

CASES = Path(__file__).parent / "cases"
NUMBERS, HYDRA, LAUNCHERS, EFFECT = (
    CASES / name
    for name in (
        "52-override-number-formats",
        "54-override-hydra",
        "55-override-launcher-commands",
        "57-override-without-effect",
    )
)


def override(
    text: str, workdir: Path, *hp: str, flags: tuple[str, ...] = (), table: FlagTable | None = None
) -> OverrideResult:
    """The command with overrides, its out-dir below the working directory."""
    return apply_overrides(
        parse_command(text, workdir),
        parse_requests(hp, flags),
        flag_table=table or FlagTable(),
        workdir=workdir,
        environ={"PATH": "/usr/bin:/bin"},
        out_dir=workdir / "out",
    )


def load(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def argparse_script(path: Path, *flags: str) -> None:
    """A script whose options are read statically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"p.add_argument({flag!r})" for flag in flags]
    path.write_text("\n".join(["import argparse", "p = argparse.ArgumentParser()", *lines, "p.parse_args()"]))


# 52


def test_yaml_numbers_stay_numbers(tmp_path: Path) -> None:
    """PyYAML reads the override as a float, and every other value and line as before."""
    yaml = pytest.importorskip("yaml")
    shutil.copy(NUMBERS / "config.yaml", tmp_path)
    result = override("python train.py --config config.yaml", tmp_path, "learning_rate=3e-5")
    assert result.written == tmp_path / "out/hp-overrides.yaml" and result.written.stat().st_mode & 0o777 == 0o600
    before = (NUMBERS / "config.yaml").read_text().splitlines()
    after = result.written.read_text().splitlines()
    assert [line for line in after if line not in before] == [
        "learning_rate: 3.0e-5   # no dot: text for YAML 1.1"
    ]
    expected = load(NUMBERS / "expected.json")["config.yaml"]["after"]
    assert yaml.safe_load(result.written.read_text()) == expected
    assert result.command.script_args == ("--config", str(result.written))
    (finding,) = [finding for finding in result.findings if finding.code == "number-is-text"]
    assert "learning_rate: 1e-4" in finding.message and "eps: 1e-08" in finding.message
    assert (tmp_path / "config.yaml").read_text() == (NUMBERS / "config.yaml").read_text()


def test_yaml_text_without_pyyaml(tmp_path: Path) -> None:
    """The same by the text alone: dot and signed exponent, nothing else moved."""
    shutil.copy(NUMBERS / "config.yaml", tmp_path)
    result = override("python train.py --config config.yaml", tmp_path, "learning_rate=3e-5")
    assert result.written is not None
    before, after = (NUMBERS / "config.yaml").read_text(), result.written.read_text()
    assert after == before.replace("learning_rate: 1e-4 ", "learning_rate: 3.0e-5 ")


def test_toml_key_is_changed_in_its_table(tmp_path: Path) -> None:
    """The named table alone; a bare key that is in two tables is refused with both."""
    shutil.copy(NUMBERS / "config.toml", tmp_path)
    result = override("python train.py --config config.toml", tmp_path, "optimizer.learning_rate=3e-5")
    assert result.written is not None
    data = tomlkit.parse(result.written.read_text()).unwrap()
    expected = load(NUMBERS / "expected.json")["config.toml"]
    found = dict.fromkeys(expected["after"], data)
    for key in found:
        for part in key.split("."):
            found[key] = found[key][part]
    assert found == expected["after"]
    assert '"auto"  # taken from the optimizer' in result.written.read_text()
    bare = override("python train.py --config config.toml", tmp_path, "learning_rate=3e-5")
    (finding,) = [finding for finding in bare.findings if finding.refuses]
    assert expected["bare_key"] in finding.message
    assert "optimizer.learning_rate" in finding.message and "network.learning_rate" in finding.message


def test_deepspeed_json_holds_a_number(tmp_path: Path) -> None:
    """A learning rate that was text becomes a number; order and unicode stay."""
    shutil.copy(NUMBERS / "ds.json", tmp_path)
    result = override("deepspeed t.py --deepspeed ds.json", tmp_path, "optimizer.params.lr=3e-5")
    assert result.written is not None
    text = result.written.read_text(encoding="utf-8")
    data, expected = json.loads(text), load(NUMBERS / "expected.json")["ds.json"]["after"]
    assert data["optimizer"]["params"]["lr"] == expected["optimizer.params.lr"]
    assert data["seed"] == expected["seed"]
    assert text == (NUMBERS / "ds.json").read_text(encoding="utf-8").replace('"1e-4"', "3.0e-5")


# 54


@pytest.mark.parametrize("source", ["", "import hydra\n@hydra.main()\ndef main(cfg): ...\n"])
@pytest.mark.parametrize("row", load(HYDRA / "commands.json"), ids=lambda row: row["override"])
def test_hydra_words_keep_their_style(tmp_path: Path, row: dict[str, str], source: str) -> None:
    """KEY=VALUE without dashes, exact keys, prefixes kept; told from the source or from the words alone."""
    if source:
        (tmp_path / "train.py").write_text(source)
    result = override(row["command"], tmp_path, row["override"])
    assert not [finding for finding in result.findings if finding.refuses]
    key, _, value = row["override"].partition("=")
    words, expected = list(result.command.argv), shlex.split(row["expected"])
    repeated = [word for word in words if word.partition("=")[0] == key]
    if len(repeated) > 1:
        # Hydra takes the last one.
        assert repeated[-1] == f"{key}={value}"
        words.remove(repeated[0])
    assert words == expected
    assert len(load(HYDRA / "commands.json")) == load(HYDRA / "expected.json")["commands"]


# 55

REFUSED = {"num_gpus=2": "launcher", "bash run_fixed.sh": "run_fixed.sh:3"}


@pytest.mark.parametrize("row", load(LAUNCHERS / "commands.json"), ids=lambda row: row["command"][:40])
def test_launcher_part_is_never_touched(tmp_path: Path, row: dict[str, str]) -> None:
    """The script's flag changes, or the override is refused by the name of the place."""
    shutil.copy(LAUNCHERS / "run_fixed.sh", tmp_path)
    argparse_script(tmp_path / "pkg/train.py", "--learning_rate", "--max_steps")
    result = override(row["command"], tmp_path, row["override"])
    refused = [finding.message for finding in result.findings if finding.refuses]
    says = next((says for part, says in REFUSED.items() if part in (row["override"], row["command"][:17])), None)
    if says is not None:
        assert says in refused[0] and result.command.argv == parse_command(row["command"], tmp_path).argv
    else:
        assert not refused
        assert join_command(result.command) == join_command(parse_command(row["expected"], tmp_path))
    assert len(load(LAUNCHERS / "commands.json")) == load(LAUNCHERS / "expected.json")["commands"]


@pytest.mark.parametrize(
    ("index", "code"), [(1, "launcher-has-it-too"), (2, "launcher-may-take-it")], ids=["accelerate", "torchrun"]
)
def test_launcher_with_a_flag_of_that_name_is_mentioned(tmp_path: Path, index: int, code: str) -> None:
    """A user learns that the launcher has such an option too."""
    row = load(LAUNCHERS / "commands.json")[index]
    assert code in [finding.code for finding in override(row["command"], tmp_path, row["override"]).findings]


# 57, as far as flags and files tell it before the launch


def test_deepspeed_conflict_names_both_places(tmp_path: Path) -> None:
    """Every DeepSpeed key that differs from the flag is named, with the remedy."""
    shutil.copytree(EFFECT / "ds_conflict", tmp_path, dirs_exist_ok=True)
    text = (tmp_path / "command.txt").read_text()
    (finding,) = override(text, tmp_path).findings
    expected = load(EFFECT / "expected.json")["ds_conflict"]
    assert finding.code.replace("-", "_") == expected["class"]
    assert all(key in finding.message for key in expected["keys"]) and '"auto"' in finding.message


def test_auto_values_are_no_conflict(tmp_path: Path) -> None:
    """"auto" takes the flag's value."""
    shutil.copytree(EFFECT / "ds_conflict", tmp_path, dirs_exist_ok=True)
    text = (tmp_path / "ds.json").read_text().replace("0.0001", '"auto"')
    (tmp_path / "ds.json").write_text(text)
    assert override((tmp_path / "command.txt").read_text(), tmp_path).findings == ()


def test_scheduler_that_replaces_the_learning_rate_is_named(tmp_path: Path) -> None:
    """WarmupLR's default peak wins over the optimizer's lr."""
    shutil.copytree(EFFECT / "warmup_default", tmp_path, dirs_exist_ok=True)
    (finding,) = override("deepspeed train.py --deepspeed ds.json", tmp_path).findings
    expected = load(EFFECT / "expected.json")["warmup_default"]
    assert finding.code == "scheduler-replaces-lr"
    assert str(expected["requested"]) in finding.message and str(expected["effective"]) in finding.message


def test_epochs_beside_max_steps_have_no_effect(tmp_path: Path) -> None:
    """max_steps decides, and the run is complete after as many steps."""
    (finding,) = override((EFFECT / "max_steps/command.txt").read_text(), tmp_path).findings
    expected = load(EFFECT / "expected.json")["max_steps"]
    assert finding.code == "setting-without-effect"
    assert expected["ineffective"][0] in finding.message and f"after {expected['planned']} steps" in finding.message


# 57, as the logs of these runs tell it


def logged(case: str) -> tuple[dict[str, list[tuple[int, float]]], int | None]:
    """({tag: [(step, value)]}, the announced total) of a case's log."""
    reader = StdoutReader(EFFECT / case / "log.txt")
    series: dict[str, list[tuple[int, float]]] = {}
    for item in reader.poll(final=True):
        assert not isinstance(item, RestartMarker)
        for event in item.events():
            series.setdefault(event.tag, []).append((event.step, event.value))
    return series, reader.announced_total


def judged(tmp_path: Path, steps: list[tuple[int, float]], **changes: Any) -> dict[str, Any]:
    """The report on a run that logged these losses."""
    made = RunDir(
        steps=tuple(step for step, _ in steps), loss=tuple(value for _, value in steps),
        grad_norm=(1.0,) * len(steps), **changes,
    )  # fmt: skip
    return build_report(made.write(tmp_path / "out"))


def check(report: dict[str, Any], name: str) -> dict[str, Any]:
    """A check of real_step."""
    gates = {gate["name"]: gate for gate in report["evidence"]["gates"]}
    found: dict[str, Any] = next(item for item in gates["real_step"]["checks"] if item["name"] == name)
    return found


def test_rate_after_the_warm_up_is_not_the_requested_one(tmp_path: Path) -> None:
    """DeepSpeed's own line holds the rate of WarmupLR; the override of optimizer.params.lr is without effect."""
    shutil.copytree(EFFECT / "warmup_default", tmp_path, dirs_exist_ok=True)
    expected = load(EFFECT / "expected.json")["warmup_default"]
    rates = logged("warmup_default")[0]["lr"]
    assert rates == [(10, expected["effective"]), (20, expected["effective"])]
    text = f"optimizer.params.lr={expected['requested']}"
    placed = override("deepspeed train.py --deepspeed ds.json", tmp_path, text).applied
    report = judged(
        tmp_path, [(10, 2.1), (20, 9.84)], lr=tuple(value for _, value in rates),
        overrides=tuple(item.to_json() for item in placed),
        facts=FrameworkFacts(name="torch", reason="", target_steps=20, target_source="--max-steps"),
    )  # fmt: skip
    assert [item["code"] for item in report["evidence"]["reasons"]][:1] == ["override-without-effect"]
    (item,) = report["evidence"]["command"]["overrides"]
    assert (float(item["value"]), item["effective_value"]) == (expected["requested"], expected["effective"])
    assert check(report, "overrides")["expected"] == text and report["decision"] == "NO-GO"


def test_run_of_max_steps_is_complete_whatever_the_epochs_say(tmp_path: Path) -> None:
    """Planned are the ten steps that the log announces; num_train_epochs=20 is without effect."""
    expected = load(EFFECT / "expected.json")["max_steps"]
    (tmp_path / "train.py").write_text(
        "from transformers import HfArgumentParser, Trainer, TrainingArguments\n"
        "HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n"
    )
    text = (EFFECT / "max_steps/command.txt").read_text().strip()
    spec = RunSpec(train_cmd=text, workdir=tmp_path, out_dir=tmp_path / "spec", run_id="made")
    facts = TransformersAdapter().facts(parse_command(text, tmp_path), spec, "")
    assert logged("max_steps")[1] == facts.target_steps == expected["planned"] and facts.target_epochs is None
    key = expected["ineffective"][0]
    asked = ({"key": key, "value": "20", "how": "", "kind": "semantic", "place": f"--{key}"},)
    effective = {key: {"value": 1, "source": "trainer_state.json"}, "max_steps": {"value": 10, "source": "it"}}
    steps = [(step, 2.0 / step) for step in range(1, expected["planned"] + 1)]
    report = judged(tmp_path, steps, facts=replace(facts, counts_updates_by="probe"))
    assert (check(report, "target_step")["status"], report["total_steps"]) == ("passed", expected["planned"])
    assert (expected["verdict"], report["terminal_state"]) == ("completed", "SUCCEEDED")
    overridden = judged(
        tmp_path / "again", steps, facts=replace(facts, counts_updates_by="probe"), overrides=asked, effective=effective
    )
    assert "override-without-effect" in [item["code"] for item in overridden["evidence"]["reasons"]]


def test_run_that_its_epochs_ended_is_incomplete_and_says_so(tmp_path: Path) -> None:
    """5000 steps in the config, 1000 in the log, exit code 0: stopped by a limit on epochs."""
    shutil.copytree(EFFECT / "epoch_cap", tmp_path, dirs_exist_ok=True)
    (tmp_path / "train.py").write_text("import torch\n")
    expected = load(EFFECT / "expected.json")["epoch_cap"]
    text = "python train.py --config config.yaml"
    spec = RunSpec(train_cmd=text, workdir=tmp_path, out_dir=tmp_path / "spec", run_id="made")
    facts = TorchAdapter().facts(parse_command(text, tmp_path), spec, "")
    series = logged("epoch_cap")[0]
    report = judged(
        tmp_path, series["loss"], lr=(0.1,) * 10, facts=facts, probe=None,
        extra={"epoch": tuple(value for _, value in series["epoch"])},
    )  # fmt: skip
    found = check(report, "target_step")
    assert (facts.target_steps, report["total_steps"]) == (expected["requested"], expected["ran"])
    assert (report["decision"], found["status"], expected["verdict"]) == ("NO-GO", "failed", "incomplete")
    assert found["why"].endswith("it ended with epoch 10, each of 100 steps: a limit on epochs ended it")
