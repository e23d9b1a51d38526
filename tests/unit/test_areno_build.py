"""AReno commands built from --algo, --ckpt and their kin: what they hold, and what is refused for want of what."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from harness import options
from harness.command.overrides.help_text import HelpOutput
from harness.errors import ConfigError
from harness.frameworks.areno_build import build_command, unknown_flags
from harness.spec import RunSpec

SFT = {"algo": "sft", "ckpt": "tiny", "dataset_path": "d.jsonl", "dataset_loader_fn": "l.py:rows"}
GSPO = {"algo": "gspo", "ckpt": "acme/m", "dataset_path": "acme/d:main:train", "reward_fn_path": "r.py"}
HELP = "Usage: areno train [OPTIONS]\n\n  --algo TEXT  Algorithm.\n  --ckpt TEXT  Checkpoint.\n"


@pytest.fixture(autouse=True)
def areno_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of that name, so that commands can be built where AReno is not installed."""
    program = tmp_path / "bin" / "areno"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")


def built(asked: dict[str, str], *hp: str, here: Path = Path("/absent"), workdir: Path | None = None) -> list[str]:
    """The words behind `areno`."""
    return shlex.split(build_command(asked, hp, here=here, workdir=workdir or here))[1:]


def test_command_is_the_smallest_one() -> None:
    """Nothing is said that was not asked for."""
    assert built(SFT) == ["train", "--algo", "sft", "--ckpt", "tiny", "--dataset-path", "d.jsonl",
                          "--dataset-loader-fn", "l.py:rows"]


def test_words_with_blanks_stay_whole() -> None:
    """A path with a blank and a quote is one word."""
    assert "my 'tiny' model" in built({**SFT, "ckpt": "my 'tiny' model"})


def test_local_paths_are_seen_from_where_pytest_was_called(tmp_path: Path) -> None:
    """Where the job runs elsewhere; a loader keeps its function, a hub's id stays as it is."""
    (tmp_path / "l.py").touch()
    words = built({**SFT, "ckpt": "acme/m", "save_path": "out"}, here=tmp_path, workdir=tmp_path / "job")
    assert (words[4], words[-3], words[-1]) == ("acme/m", f"{tmp_path}/l.py:rows", str(tmp_path / "out"))


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"ckpt": "tiny"}, "--ckpt: an AReno command is built from --algo too"),
        ({**SFT, "algo": "sftt"}, "--algo sftt: not one of sft, dpo, gspo, grpo, ppo"),
        ({**SFT, "ckpt": " "}, "--ckpt is empty"),
        ({"algo": "sft"}, "--algo sft needs --ckpt"),
        ({"algo": "sft", "ckpt": "tiny"}, "--algo sft needs --dataset-path"),
        ({name: SFT[name] for name in ("algo", "ckpt", "dataset_path")}, "--algo sft needs --dataset-loader-fn"),
        ({**GSPO, "reward_fn_path": ""}, "--reward-fn-path is empty"),
        ({name: GSPO[name] for name in ("algo", "ckpt", "dataset_path")}, "--algo gspo needs --reward-fn-path"),
        ({**{name: GSPO[name] for name in ("ckpt", "dataset_path")}, "algo": "ppo"}, "--hp reward_ckpt=REF"),
        ({**SFT, "reward_fn_path": "r.py"}, "--reward-fn-path: sft makes no rollouts"),
        ({**SFT, "algo": "dpo", "agent_fn": "a.py"}, "--agent-fn: dpo makes no rollouts"),
    ],
)
def test_what_is_missing_is_named(asked: dict[str, str], words: str) -> None:
    """Each algorithm says what it needs and what it has no use for."""
    with pytest.raises(ConfigError) as caught:
        built(asked)
    assert words in str(caught.value)


def test_ppo_takes_a_reward_model_instead_of_a_function() -> None:
    """It is an override, since it has no option of its own."""
    asked = {name: GSPO[name] for name in ("ckpt", "dataset_path")}
    assert "ppo" in built({**asked, "algo": "ppo"}, "reward_ckpt=acme/rm")


def test_flag_that_the_installed_version_lacks_is_an_error() -> None:
    """It is named; nothing is launched in the hope that it will do."""
    (finding,) = unknown_flags(["areno", "train", "--algo", "sft", "--data", "x"], HelpOutput(text=HELP))
    assert finding.refuses and "no option --data" in finding.message


def test_help_that_cannot_be_read_is_an_error() -> None:
    """Without the option list no command can be vouched for."""
    (finding,) = unknown_flags(["areno", "train", "--algo", "sft"], HelpOutput(text="", problem="no end"))
    assert finding.refuses and "no end" in finding.message


def resolved(tmp_path: Path, **values: object) -> RunSpec:
    request = options.resolve(values, invocation_dir=tmp_path, session="s", new_run_id=lambda: "r")
    assert request is not None and request.spec is not None
    return request.spec


def test_options_build_the_command_of_the_spec(tmp_path: Path) -> None:
    """The parts stand in the spec beside it, and come back from its JSON."""
    spec = resolved(tmp_path, **SFT)
    assert shlex.split(spec.train_cmd)[1:3] == ["train", "--algo"]
    assert RunSpec.from_json(spec.to_json()).built_from == tuple(SFT.items())


def test_a_command_and_its_parts_are_two_sources(tmp_path: Path) -> None:
    """Exactly one of them says what to run."""
    with pytest.raises(ConfigError, match="--train-cmd and --algo"):
        resolved(tmp_path, train_cmd="areno train", algo="sft")
