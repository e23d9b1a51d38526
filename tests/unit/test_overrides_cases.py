"""Recorded cases of overrides that go wrong elsewhere: number formats, Hydra, launchers, settings that win."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
import tomlkit

from harness.command.overrides.model import FlagTable, OverrideResult, parse_requests
from harness.command.overrides.resolve import apply_overrides
from harness.command.parse import join_command, parse_command

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
