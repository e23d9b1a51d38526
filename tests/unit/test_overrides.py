"""Each override is placed once, where the program reads it; what cannot be placed is refused with the remedy."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.command.overrides.model import Flag, FlagTable, OverrideRequest, OverrideResult, parse_requests
from harness.command.overrides.resolve import apply_overrides
from harness.command.overrides.surface import add_arguments
from harness.command.parse import parse_command
from harness.errors import ConfigError

PYTHON = shlex.quote(sys.executable)


def override(
    text: str,
    workdir: Path,
    *hp: str | OverrideRequest,
    flags: tuple[str, ...] = (),
    table: FlagTable | None = None,
    write: bool = True,
) -> OverrideResult:
    """The command with overrides, its out-dir below the working directory."""
    typed = parse_requests([item for item in hp if isinstance(item, str)], flags)
    return apply_overrides(
        parse_command(text, workdir),
        (*typed, *(item for item in hp if not isinstance(item, str))),
        flag_table=table or FlagTable(),
        workdir=workdir,
        environ=dict(os.environ),
        out_dir=workdir / "out",
        write=write,
    )


def args(result: OverrideResult) -> str:
    assert not refusals(result), refusals(result)
    return shlex.join(result.command.script_args)


def refusals(result: OverrideResult) -> list[str]:
    return [finding.message for finding in result.findings if finding.refuses]


def script(workdir: Path, *lines: str, name: str = "t.py", head: str = "import argparse") -> None:
    path = workdir / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([head, *lines]) + "\n")


PARSER = "p = argparse.ArgumentParser()"


# argparse, read statically


@pytest.mark.parametrize(
    ("declared", "given", "hp", "expected"),
    [
        ("'--lr', type=float", "", "lr=1e-4", "--lr 1e-4"),
        ("'--lr', type=float", "--lr 1", "lr=1e-4", "--lr 1e-4"),
        ("'--lr', type=float", "--lr=1 --x", "lr=1e-4", "--lr=1e-4 --x"),
        ("'--lr', type=float", "--lr 1 --lr=2", "lr=3", "--lr 1 --lr=3"),
        ("'--lr', type=float", "", "learning_rate=1e-4", "--lr 1e-4"),
        ("'--learning-rate', '-l', type=float", "-l 3", "lr=1", "-l 1"),
        ("'--learning_rate', type=float", "--learn 3", "lr=1", "--learn 1"),
        ("'--lr', type=float", "", "lr=-1e-4", "--lr=-1e-4"),
        ("'--lr', type=float", "--lr -1", "lr=-2", "--lr -2"),
        ("'--steps', type=int", "", "steps=1e3", "--steps 1000"),
        ("'--steps', type=int", "", "max_steps=7", "--steps 7"),
        ("'--x', dest='batch_size', type=int", "", "batch_size=7", "--x 7"),
        ("'--amp', action='store_true'", "", "amp=true", "--amp"),
        ("'--amp', action='store_true'", "a --amp b", "amp=false", "a b"),
        ("'--amp', action='store_true'", "a", "amp=no", "a"),
        ("'--no-amp', dest='amp', action='store_false'", "--no-amp", "amp=true", ""),
        ("'--amp', action=argparse.BooleanOptionalAction", "", "amp=false", "--no-amp"),
        ("'--amp', action=argparse.BooleanOptionalAction", "--amp --q", "amp=false", "--no-amp --q"),
        ("'--amp', type=bool", "", "amp=false", "--amp ''"),
        ("'--amp', type=bool", "--amp=True", "amp=off", "--amp="),
        ("'--amp', type=bool", "", "amp=true", "--amp True"),
        ("'--opt', choices=['sgd', 'adam']", "--opt sgd", "opt=adam", "--opt adam"),
        ("'--k', type=int, choices=range(3)", "", "k=2", "--k 2"),
        ("'--betas', nargs=2, type=float", "--betas 1 2 --q", "betas=[0.9,0.95]", "--betas 0.9 0.95 --q"),
        ("'--betas', nargs='+'", "", "betas=a,b", "--betas a b"),
        ("'--sizes', nargs='+', type=int", "--sizes 1 --q", "sizes=3 4", "--sizes 3 4 --q"),
        ("'--sizes', nargs='*', type=float", "", "sizes=0.1, 2", "--sizes 0.1 2"),
        ("'--lr'", "--q -- --lr 1", "lr=3", "--q --lr 3 -- --lr 1"),
        ("'--lr'", "", "lr=a b", "--lr 'a b'"),
    ],
)
def test_argparse_flag_is_set(tmp_path: Path, declared: str, given: str, hp: str, expected: str) -> None:
    """In place and in its own spelling where it is given, else where the parser reads it."""
    script(tmp_path, PARSER, f"p.add_argument({declared})")
    assert args(override(f"python t.py {given}", tmp_path, hp)) == expected


@pytest.mark.parametrize(
    ("declared", "hp", "says"),
    [
        ("'--lr', type=float", "lr=abc", "takes a number"),
        ("'--steps', type=int", "steps=1.5", "whole number"),
        ("'--opt', choices=('sgd', 'adam')", "opt=rms", "sgd, adam"),
        ("'--opt', choices=OPTS", "opt=rms", "sgd, adam"),
        ("'--amp', action='store_true'", "amp=2", "neither true nor false"),
        ("'--x', action='append'", "x=2", "collects"),
        ("'--learning_rte'", "learning_rate=1", "--learning_rte"),
        ("'--q'", "lr=1", "--hp-flag lr=--flag"),
        ("'--epochs'); p.add_argument('--num_epochs'", "max_epochs=1", "--epochs, --num_epochs"),
    ],
)
def test_what_argparse_would_refuse_is_refused_before(
    tmp_path: Path, declared: str, hp: str, says: str
) -> None:
    """Wrong types, unknown choices and unknown names, with what is near them; the command stays as it was."""
    script(tmp_path, "OPTS = ['sgd', 'adam']", PARSER, f"p.add_argument({declared})")
    result = override("python t.py", tmp_path, hp)
    assert says in refusals(result)[0] and result.command.script_args == ()


@pytest.mark.parametrize("lines", [
    ("add = p.add_argument", "add('--lr', type=float)"),
    ("g = p.add_argument_group('x')", "add = g.add_argument", "add('--lr', type=float)"),
    ("def f(p):", "    add = p.add_argument", "    add('--lr', type=float)", "f(p)"),
])
def test_bound_add_argument_is_followed(lines: tuple[str, ...], tmp_path: Path) -> None:
    """A short name for the method adds options as the method does; the bundled job's parser has one."""
    script(tmp_path, PARSER, *lines, "p.parse_args()")
    assert args(override("python t.py", tmp_path, "lr=0.1")) == "--lr 0.1"


def test_subparsers_groups_parents_and_modules_are_followed(tmp_path: Path) -> None:
    """An option goes behind its own command word, over the project's own modules."""
    script(
        tmp_path,
        "import argparse",
        PARSER,
        "p.add_argument('--seed', type=int)",
        "common = argparse.ArgumentParser(add_help=False)",
        "common.add_argument('--lr', type=float)",
        "sub = p.add_subparsers()",
        "train = sub.add_parser('train', parents=[common])",
        "add_training(train.add_argument_group('x')); g = train.add_argument_group('x')",
        "add_training(g)",
        "evaluate = sub.add_parser('eval')",
        "evaluate.add_argument('--steps', type=int)",
        head="from pkg.options import add_training",
    )
    script(tmp_path, "def add_training(group):", "    group.add_argument('--epochs', type=int)", name="pkg/options.py")
    result = override("python t.py train --x 1", tmp_path, "seed=3", "lr=1e-4", "epochs=2")
    assert args(result) == "--seed 3 train --x 1 --lr 1e-4 --epochs 2"
    assert "steps" in refusals(override("python t.py train", tmp_path, "steps=3"))[0]


def test_parsers_of_the_same_name_in_several_functions_are_told_apart(tmp_path: Path) -> None:
    """A local name belongs to its function; what another library adds makes the reading incomplete."""
    script(
        tmp_path,
        "def build():",
        "    parser = argparse.ArgumentParser()",
        "    parser.add_argument('--seed')",
        "    sub = parser.add_subparsers()",
        "    for add in (add_train, add_eval): add(sub)",
        "    return parser",
        "def add_train(sub):",
        "    parser = sub.add_parser('train')",
        "    parser.add_argument('--lr')",
        "def add_eval(sub):",
        "    parser = sub.add_parser('eval')",
        "    parser.add_argument('--lr')",
    )
    assert args(override("python t.py train", tmp_path, "lr=1", "seed=2")) == "--seed 2 train --lr 1"
    script(
        tmp_path,
        "class Options:",
        "    def __init__(self):",
        "        self.parser = argparse.ArgumentParser()",
        "        group = self.parser.add_argument_group('x')",
        "        group.add_argument('--lr')",
        "        self.parser.add_argument('--wd')",
    )
    assert args(override("python t.py", tmp_path, "lr=1", "wd=2")) == "--lr 1 --wd 2"


def test_launchers_are_stepped_over(tmp_path: Path) -> None:
    """New flags go to the script, whatever starts it; a launcher's own option is never taken for the script's."""
    script(tmp_path, PARSER, "p.add_argument('--lr')", name="pkg/t.py")
    for text in (
        "A=1 env -u B nice -n 5 python -u pkg/t.py",
        "torchrun --nproc-per-node 2 pkg/t.py",
        "python -m torch.distributed.run --nproc-per-node 2 -m pkg.t",
        "srun -n1 uv run python pkg/t.py",
        "mpirun -np 2 --mca btl self -x LR=1 python pkg/t.py",
        "conda run -n e --no-capture-output python pkg/t.py",
        "sh -c 'cd . && python pkg/t.py'",
    ):
        before = parse_command(text, tmp_path)
        result = override(text, tmp_path, "lr=3")
        assert not refusals(result), text
        if before.shell_text is None:
            assert result.command.argv == (*before.argv, "--lr", "3")
            assert result.command.launcher_part == before.launcher_part
        else:
            assert result.command.argv == ("sh", "-c", "cd . && python pkg/t.py --lr 3")
    refused = override("torchrun --nproc-per-node 2 pkg/t.py", tmp_path, "nproc_per_node=4")
    assert "option of the launcher" in refusals(refused)[0]


# Other parsers


def test_click_absl_and_dataclass_parsers_are_read(tmp_path: Path) -> None:
    """Without running them, with their own way to write a switch."""
    script(
        tmp_path,
        "@click.command()",
        "@click.option('--lr', type=float)",
        "@click.option('--shuffle/--no-shuffle', default=True)",
        "@click.option('--opt', type=click.Choice(['sgd', 'adam']))",
        "def main(lr, shuffle, opt): ...",
        head="import click",
    )
    assert args(override("python t.py", tmp_path, "lr=1", "shuffle=no")) == "--lr 1 --no-shuffle"
    assert "sgd, adam" in refusals(override("python t.py", tmp_path, "opt=x"))[0]
    script(
        tmp_path,
        "flags.DEFINE_float('learning_rate', 0.1, '')",
        "flags.DEFINE_bool('debug', True, '')",
        head="from absl import flags",
    )
    found = override("python t.py --debug=true", tmp_path, "lr=1", "debug=false")
    assert args(found) == "--nodebug --learning_rate 1"
    script(
        tmp_path,
        "@dataclass",
        "class Own:",
        "    use_lora: bool = True",
        "    rank: Optional[int] = None",
        "    mode: Literal['a', 'b'] = 'a'",
        "HfArgumentParser((Own, TrainingArguments)).parse_args_into_dataclasses()",
        head="from transformers import HfArgumentParser, TrainingArguments",
    )
    table = FlagTable(flags=(Flag(names=("--learning_rate",), type="float"),), source="TrainingArguments")
    found = override("python t.py --use_lora", tmp_path, "use_lora=false", "rank=8", "lr=1e-5", table=table)
    assert args(found) == "--use_lora False --rank 8 --learning_rate 1e-5"
    assert "a, b" in refusals(override("python t.py", tmp_path, "mode=c", table=table))[0]


def test_table_of_an_adapter_does_not_speak_for_another_parser(tmp_path: Path) -> None:
    """A script with its own argparse has its own options, whatever framework it imports."""
    script(tmp_path, PARSER, "p.add_argument('--rate')", head="import argparse, transformers")
    table = FlagTable(flags=(Flag(names=("--learning_rate",)),))
    assert refusals(override("python t.py", tmp_path, "lr=1", table=table))
    script(tmp_path, "x = TrainingArguments(learning_rate=1)", head="from transformers import TrainingArguments")
    assert "reads no options" in refusals(override("python t.py", tmp_path, "lr=1", table=table))[0]
    assert args(override("python -m elsewhere.sft", tmp_path, "lr=1", table=table)) == "--learning_rate 1"


LIGHTNING = """
class Net(LightningModule):
    def __init__(self, lr: float = 1e-3, dim: int = 8): ...
class Data(LightningDataModule):
    def __init__(self, batch_size: int = 4): ...
LightningCLI(Net, Data)
"""


def test_lightning_cli_takes_nested_keys(tmp_path: Path) -> None:
    """By the parameters of trainer, model and data; a later --config would overrule an earlier flag."""
    script(tmp_path, LIGHTNING, head="from lightning.pytorch.cli import LightningCLI")
    found = override("python t.py fit", tmp_path, "lr=1e-4", "batch_size=8", "max_epochs=3")
    assert args(found) == "fit --model.lr 1e-4 --data.batch_size 8 --trainer.max_epochs 3"
    (tmp_path / "c.yaml").write_text("model:\n  lr: 0.1\n  width: 3\n")
    found = override("python t.py fit --model.lr 5 --config c.yaml", tmp_path, "lr=1", "width=4")
    assert args(found) == "fit --model.lr 5 --config c.yaml --model.lr 1 --model.width 4"


def test_help_of_a_program_is_the_last_resort(tmp_path: Path) -> None:
    """A parser that cannot be read tells its options by --help; a program that reads none is not started."""
    script(
        tmp_path,
        PARSER,
        "[p.add_argument('--' + name, type=int) for name in ('depth', 'width')]",
        "p.add_argument('--kind', choices=['a', 'b'])",
        "p.parse_args()",
        "open('ran', 'w')",
    )
    assert args(override(f"{PYTHON} t.py", tmp_path, "depth=3", "kind=b")) == "--depth 3 --kind b"
    assert not (tmp_path / "ran").exists()
    script(tmp_path, "open('ran', 'w')", head="import torch")
    assert "reads no options" in refusals(override(f"{PYTHON} t.py", tmp_path, "depth=3"))[0]
    assert not (tmp_path / "ran").exists()


def test_help_child_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that trains instead of printing help is stopped with its children."""
    monkeypatch.setattr("harness.command.overrides.help_text.HELP_TIMEOUT_S", 0.5)
    script(tmp_path, "time.sleep(60)", head="import sys, time; sys.argv")
    assert "did not end" in refusals(override(f"{PYTHON} t.py", tmp_path, "depth=3"))[0]


def test_flag_named_by_the_user_is_taken_as_it_is(tmp_path: Path) -> None:
    """--hp-flag needs no knowledge of the program."""
    found = override("python -m gone --eta 3", tmp_path, "lr=1", "x=a", flags=("lr=--eta", "x=-x"))
    assert args(found) == "--eta 1 -x a"
    assert [item.line() for item in found.applied] == [
        "HP override: lr=1 (injected as --eta 1, was --eta 3)",
        "HP override: x=a (injected as -x a)",
    ]


@pytest.mark.parametrize(
    ("hp", "flags", "says"),
    [
        (["lr"], [], "KEY=VALUE"),
        (["=1"], [], "KEY=VALUE"),
        (["--lr=1"], [], "bare name, for example lr=1"),
        (["a b=1"], [], "bare name"),
        (["lr=\0"], [], "NUL"),
        (["lr=1"], ["lr=x"], "KEY=--flag"),
        (["lr=1"], ["lr=--"], "KEY=--flag"),
        (["lr=1"], ["wd=--wd"], "no --hp wd"),
    ],
)
def test_requests_that_cannot_be_read_are_usage_errors(hp: list[str], flags: list[str], says: str) -> None:
    """The value and its remedy are named."""
    with pytest.raises(ConfigError, match=says):
        parse_requests(hp, flags)


# Hydra


def hydra_project(workdir: Path) -> None:
    for name, text in {
        "conf/config.yaml": "defaults:\n  - optimizer: adam\n  - _self_\n"
        "trainer:\n  max_steps: 3\nmodel: {lr_mult: 1}\n",
        "conf/optimizer/adam.yaml": "lr: 0.1\nbetas: [0.9, 0.99]\n",
        "conf/optimizer/sgd.yaml": "lr: 0.1\nmomentum: 0\n",
        "t.py": "import hydra\n@hydra.main(config_path='conf', config_name='config')\ndef main(cfg): ...\n",
    }.items():
        (workdir / name).parent.mkdir(parents=True, exist_ok=True)
        (workdir / name).write_text(text)


@pytest.mark.parametrize(
    ("given", "hp", "expected"),
    [
        ("", "lr=1e-4", "optimizer.lr=1e-4"),
        ("", "max_steps=5", "trainer.max_steps=5"),
        ("", "optimizer=sgd", "optimizer=sgd"),
        ("optimizer=sgd", "momentum=1", "optimizer=sgd optimizer.momentum=1"),
        ("", "optimizer.eps=1", "+optimizer.eps=1"),
        ("", "+new=1", "+new=1"),
        ("~optimizer.lr", "optimizer.lr=1", "++optimizer.lr=1"),
        ("", "optimizer.betas=[0.8,0.9]", "'optimizer.betas=[0.8,0.9]'"),
        ("-m", "lr=1e-4,1e-3", "-m optimizer.lr=1e-4,1e-3"),
        ("-cn config", "model.lr_mult=a b", "-cn config 'model.lr_mult='\"'\"'a b'\"'\"''"),
    ],
)
def test_hydra_tree_decides(tmp_path: Path, given: str, hp: str, expected: str) -> None:
    """Whether a + is needed and which full key a bare one means."""
    hydra_project(tmp_path)
    assert args(override(f"python t.py {given}", tmp_path, hp)) == expected


def test_hydra_key_of_no_config_is_refused(tmp_path: Path) -> None:
    """A key that would be added beside all others has no effect."""
    hydra_project(tmp_path)
    assert "+dropout" in refusals(override("python t.py", tmp_path, "dropout=0"))[0]
    (tmp_path / "conf/optimizer/adam.yaml").write_text("lr: 0.1\ninner: {lr: 3}\n")
    assert "optimizer.inner.lr, optimizer.lr" in refusals(override("python t.py", tmp_path, "lr=0"))[0]


# Config files


def test_config_is_rewritten_in_the_out_dir(tmp_path: Path) -> None:
    """The command points to the copy; the user's file, comments, order and other spellings stay."""
    text = "# c\r\ntrain:   # x\r\n    lr: 1.e-3\r\n    'steps': 010\r\n"
    (tmp_path / "c.yml").write_bytes(text.encode())
    result = override("python -m gone --config=c.yml", tmp_path, "lr=1e-4")
    copy = tmp_path / "out/hp-overrides.yml"
    assert args(result) == f"--config={copy}" and result.written == copy
    assert copy.read_bytes() == text.replace("1.e-3", "1.0e-4").encode()
    assert copy.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "c.yml").read_bytes() == text.encode()
    assert result.applied[0].how == "written to hp-overrides.yml as train.lr: 1.0e-4, was 1.e-3"


@pytest.mark.parametrize(
    ("before", "hp", "after"),
    [
        ("steps: 500\n", "steps=1e3", "steps: 1000\n"),
        ("flash: true\n", "flash=off", "flash: false\n"),
        ("name: 'x'\n", "name=y", "name: 'y'\n"),
        ('name: "x"\n', "name=y z", 'name: "y z"\n'),
        ("name: x\n", "name=no", "name: 'no'\n"),
        ("rev: '123'\n", "rev=456", "rev: '456'\n"),
        ('version: "1.0"\n', "version=2.5", 'version: "2.5"\n'),
        ("lr: '1e-4'\n", "lr=3e-5", "lr: 3.0e-5\n"),
        ("lr: null  # n\n", "lr=3e-5", "lr: 3.0e-5  # n\n"),
        ("lr:\nx: 1\n", "lr=3", "lr: 3\nx: 1\n"),
        ("x: 1\nlr: 2", "lr=null", "x: 1\nlr: null"),
        ("a: {lr: 1, b: 2}\n", "a.lr=.5", "a: {lr: 0.5, b: 2}\n"),
        ("l: [1, 2]\n", "l=[3,0.1]", "l: [3, 0.1]\n"),
        ("l: [1, 2]\n", "l.1=5", "l: [1, 5]\n"),
        ("b: &b\n  lr: 1\nt:\n  <<: *b\n  x: 1\n", "t.lr=2", "b: &b\n  lr: 1\nt:\n  lr: 2\n  <<: *b\n  x: 1\n"),
        ("a: &v 1\nb: *v\nc: *v\n", "b=2", "a: &v 1\nb: 2\nc: *v\n"),
        ("a: &v 1\nb: *v\nc: *v\n", "a=2", "a: 2\nb: &v 1\nc: *v\n"),
        ("learning_rate: 1.0\n", "lr=2", "learning_rate: 2\n"),
        ("t: >\n  x\n  y\nz: 1\n", "t=q", "t: q\nz: 1\n"),
    ],
)
def test_yaml_value_is_changed_alone(tmp_path: Path, before: str, hp: str, after: str) -> None:
    """In its own type and quotes; anchors, aliases and merges keep what others read from them."""
    (tmp_path / "c.yaml").write_text(before)
    result = override("python -m gone --config c.yaml", tmp_path, hp)
    assert not refusals(result) and result.written and result.written.read_text() == after


@pytest.mark.parametrize(
    ("before", "hp", "says"),
    [
        ("a:\n  lr: 1\nb:\n  lr: 2\n", "lr=3", "a.lr, b.lr"),
        ("a:\n  lr: 1\n", "a=3", "is a table"),
        ("flash: true\n", "flash=2", "give true or false"),
        ("l: [1]\n", "l=2", "is a list"),
        ("b: &b\n  lr: 1\nt:\n  <<: *b\n", "b.lr=2", "t.lr"),
        ("b: &b\n  lr: 1\nt: *b\n", "t.lr=2", "alias"),
        ("lr: 1\n---\nlr: 2\n", "lr=3", "--hp-flag"),
        ("l:\n  - 1\n  - 2\n", "l=[3]", "several lines"),
        ("x: 1\n", "learning_rat=2", "--hp-flag learning_rat=--flag"),
    ],
)
def test_yaml_value_that_cannot_be_changed_alone_is_refused(
    tmp_path: Path, before: str, hp: str, says: str
) -> None:
    """With the candidates or the place; nothing is written."""
    (tmp_path / "c.yaml").write_text(before)
    result = override("python -m gone --config c.yaml", tmp_path, hp)
    assert says in refusals(result)[0]
    assert result.written is None and not (tmp_path / "out").exists()


def test_flag_wins_over_config_and_says_so(tmp_path: Path) -> None:
    """A program that has the flag takes it; the config's other value is named."""
    script(tmp_path, PARSER, "p.add_argument('--config'); p.add_argument('--lr')")
    (tmp_path / "c.json").write_text('{"lr": 1, "wd": 2}')
    result = override("python t.py --config c.json", tmp_path, "lr=3", "wd=4")
    copy = tmp_path / "out/hp-overrides.json"
    assert args(result) == f"--config {copy} --lr 3"
    assert json.loads(copy.read_text()) == {"lr": 1, "wd": 4}
    assert "config-has-it-too" in [finding.code for finding in result.findings]


def test_default_config_of_a_program_is_given_by_its_flag(tmp_path: Path) -> None:
    """A script that reads base.yaml by default is pointed to the rewritten copy."""
    script(tmp_path, PARSER, "p.add_argument('--config', default='base.yaml')")
    (tmp_path / "base.yaml").write_text("lr: 1\n")
    assert args(override("python t.py", tmp_path, "lr=3")) == f"--config {tmp_path}/out/hp-overrides.yaml"


def test_file_alone_for_a_dataclass_parser_stays_alone(tmp_path: Path) -> None:
    """HfArgumentParser reads a JSON file only where it is the one argument."""
    script(tmp_path, "HfArgumentParser(TrainingArguments)", head="from transformers import HfArgumentParser")
    (tmp_path / "args.json").write_text('{"learning_rate": 1e-3}')
    table = FlagTable(flags=(Flag(names=("--learning_rate",)),))
    result = override("python t.py args.json", tmp_path, "lr=1", table=table)
    assert args(result) == str(tmp_path / "out/hp-overrides.json")


def test_paths_beside_the_config_are_mentioned(tmp_path: Path) -> None:
    """A copy elsewhere does not find what lies beside the original."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/base.yaml").write_text("")
    (tmp_path / "conf/c.yaml").write_text("base: ./base.yaml\nlr: 1\n")
    result = override("python -m gone conf/c.yaml", tmp_path, "lr=3")
    (finding,) = [finding for finding in result.findings if finding.code == "config-moved"]
    assert "base: ./base.yaml" in finding.message


def test_pairs_after_a_config_are_written_as_pairs(tmp_path: Path) -> None:
    """llamafactory-cli reads KEY=VALUE over its file."""
    (tmp_path / "c.yaml").write_text("learning_rate: 1.0e-4\n")
    result = override("llamafactory-cli train c.yaml", tmp_path, "lr=1e-5", "max_steps=3")
    assert args(result) == "train c.yaml learning_rate=1e-5 max_steps=3"


# Shells


def test_arguments_of_a_shell_script_reach_the_program_or_are_refused(tmp_path: Path) -> None:
    """By "$@", and only where the script gives nothing after it that overrules."""
    script(tmp_path, PARSER, "p.add_argument('--lr'); p.add_argument('--wd')")
    run = tmp_path / "run.sh"
    run.write_text('#!/bin/bash\nset -e\nexec python t.py --lr 1 "$@" 2>&1 | tee log\n')
    assert args(override("bash run.sh", tmp_path, "lr=3")) == "--lr 3"
    assert args(override("bash run.sh --lr=2", tmp_path, "lr=3")) == "--lr=3"
    run.write_text('python t.py "$@" \\\n  --lr 1\n')
    assert "run.sh:1" in refusals(override("bash run.sh", tmp_path, "lr=3"))[0]
    assert args(override("bash run.sh", tmp_path, "wd=3")) == "--wd 3"
    run.write_text("python a.py\npython b.py\n")
    assert "cannot be told" in refusals(override("bash run.sh", tmp_path, "lr=3"))[0]


def test_text_of_a_shell_is_changed_word_by_word(tmp_path: Path) -> None:
    """Quotes, redirections and other commands stay; a word that the shell would expand is refused."""
    script(tmp_path, PARSER, "p.add_argument('--lr'); p.add_argument('--wd')")
    text = "sh -c 'x=\"a  b\"; python t.py  --lr \"1\" > \"$x\" # end'"
    result = override(text, tmp_path, "lr=3", "wd=a b")
    assert result.command.argv[2] == "x=\"a  b\"; python t.py  --lr 3 --wd 'a b' > \"$x\" # end"
    assert "shell changes" in refusals(override("sh -c 'python t.py --lr \"$LR\"'", tmp_path, "lr=3"))[0]


def test_words_of_the_harness_reach_the_program_or_are_left_out(tmp_path: Path) -> None:
    """What an adapter adds goes where an override would go, and is named where it cannot."""
    script(tmp_path, PARSER)

    def added(text: str) -> tuple[tuple[str, ...], bool]:
        command, finding = add_arguments(parse_command(text, tmp_path), ("--log-dir", "a b"))
        return command.argv, finding is None

    assert added("python t.py x -- y") == (("python", "t.py", "x", "--log-dir", "a b", "--", "y"), True)
    assert added("sh -c 'python t.py > x'") == (("sh", "-c", "python t.py --log-dir 'a b' > x"), True)
    (tmp_path / "run.sh").write_text("python t.py\n")
    assert added("bash run.sh") == (("bash", "run.sh"), False)
    (tmp_path / "run.sh").write_text('python t.py "$@"\n')
    assert added("bash run.sh") == (("bash", "run.sh", "--log-dir", "a b"), True)


def test_deepspeed_file_of_accelerate_is_compared(tmp_path: Path) -> None:
    """The launcher's config is read, never changed; what differs from a flag is named."""
    (tmp_path / "ds.json").write_text('{"optimizer": {"params": {"lr": 1e-3}}}')
    (tmp_path / "a.yaml").write_text("deepspeed_config:\n  deepspeed_config_file: ds.json\n")
    result = override("accelerate launch --config_file a.yaml gone.py --learning_rate 1", tmp_path, "learning_rate=2")
    (finding,) = [finding for finding in result.findings if finding.code == "config-conflict"]
    assert "optimizer.params.lr" in finding.message and result.written is None


def test_deepspeed_file_comes_after_every_flag(tmp_path: Path) -> None:
    """The trainer's own flag wins; without one the file's one value is changed."""
    (tmp_path / "ds.json").write_text('{"optimizer": {"params": {"lr": 1e-3}}, "seed": 1}')
    table = FlagTable(flags=(Flag(names=("--learning_rate",)),))
    found = override("deepspeed gone.py --deepspeed ds.json", tmp_path, "lr=2", table=table)
    assert args(found) == "--deepspeed ds.json --learning_rate 2"
    assert "config-conflict" in [finding.code for finding in found.findings]
    found = override("deepspeed gone.py --deepspeed ds.json", tmp_path, "lr=2")
    assert args(found) == f"--deepspeed {tmp_path}/out/hp-overrides.json"


# Caps


def test_cap_of_a_program_without_a_limit_is_left_to_the_harness(tmp_path: Path) -> None:
    """An optional request is not refused; one that fits is placed by a synonym."""
    script(tmp_path, PARSER, "p.add_argument('--num-steps', type=int)")
    caps = [OverrideRequest(key=key, value="5", optional=True) for key in ("max_steps", "max_epochs")]
    result = override("python t.py", tmp_path, *caps)
    assert args(result) == "--num-steps 5" and result.unplaced == ("max_epochs",)


@pytest.mark.parametrize(
    ("key", "kind"),
    [("lr", "semantic"), ("logging_steps", "observability"), ("num_workers", "capacity"), ("seed", "semantic")],
)
def test_kind_of_a_setting(tmp_path: Path, key: str, kind: str) -> None:
    """What is learned, what it costs, what is written."""
    script(tmp_path, PARSER, f"p.add_argument('--{key}')")
    assert override("python t.py", tmp_path, f"{key}=3").applied[0].kind == kind


# Properties

NAMES = ("lr", "wd", "seed", "opt", "amp", "depth")
WORDS = st.lists(
    st.sampled_from(
        ("--lr", "--lr=1", "--wd", "3", "--seed", "x y", "--amp", "--no-amp", "-1e-4", "--depth=7", "--opt", "", "a=b")
    ),
    max_size=8,
)
LAUNCHERS = ("python", "A='b c' python -u", "torchrun --lr 3 --nproc=2", "nice -n 3 accelerate launch --seed 3",
             "srun -n1 --wd=2 python", "deepspeed --num_gpus 2")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A script with a few options."""
    directory = tmp_path_factory.mktemp("program")
    declared = [f"p.add_argument('--{name}')" for name in NAMES if name != "amp"]
    script(directory, PARSER, *declared, "p.add_argument('--amp', action=argparse.BooleanOptionalAction)")
    return directory


@settings(max_examples=80, deadline=None)
@given(
    words=WORDS,
    launcher=st.sampled_from(LAUNCHERS),
    key=st.sampled_from(NAMES),
    value=st.sampled_from(("1", "-1e-4", "true", "a b", "x")),
)
def test_overriding_twice_is_overriding_once(
    program: Path, words: list[str], launcher: str, key: str, value: str
) -> None:
    """And nothing touches the launcher part, the environment or the words of other flags."""
    text = f"{launcher} t.py {shlex.join(words)}"
    before = parse_command(text, program)
    once = override(text, program, f"{key}={value}", write=False)
    after = once.command
    assert (after.env_assignments, after.launcher_part) == (before.env_assignments, before.launcher_part)
    if refusals(once):
        assert after.argv == before.argv
        return
    twice = apply_overrides(
        after, parse_requests([f"{key}={value}"]), flag_table=FlagTable(), workdir=program, environ={},
        out_dir=program / "out",
    )
    assert twice.command.argv == after.argv
    parsed = parse_command(shlex.join(after.argv), program)
    assert parsed.script_args == after.script_args and parsed.launcher_part == after.launcher_part


@settings(max_examples=60, deadline=None)
@given(
    words=st.lists(
        st.sampled_from(
            ("optimizer=sgd", "+optimizer.eps=1", "~optimizer.lr", "optimizer.lr=1", "-m", "x=1,2", "-cn config")
        ),
        max_size=5,
    ).map(lambda groups: [word for group in groups for word in group.split()]),
    hp=st.sampled_from(("lr=3e-5", "optimizer.lr=1", "optimizer.eps=3", "max_steps=5", "optimizer=adam", "+a.b=1")),
)
def test_overriding_hydra_twice_is_overriding_once(
    tmp_path_factory: pytest.TempPathFactory, words: list[str], hp: str
) -> None:
    """And every word of another key stays as it is."""
    workdir = tmp_path_factory.getbasetemp() / "hydra"
    hydra_project(workdir)
    before = parse_command(f"torchrun t.py {shlex.join(words)}", workdir)
    once = override(shlex.join(before.argv), workdir, hp)
    if refusals(once):
        assert once.command.argv == before.argv
        return
    twice = override(shlex.join(once.command.argv), workdir, hp)
    assert twice.command.argv == once.command.argv
    key = once.applied[0].place
    others = [word for word in words if word.lstrip("+~").partition("=")[0] != key.lstrip("+").rstrip("=")]
    kept = [word for word in once.command.script_args if word in others]
    assert kept == others


def test_overriding_a_config_twice_is_overriding_once(tmp_path: Path) -> None:
    """The second time the copy is the config, and it stays where it is."""
    (tmp_path / "c.yaml").write_text("a: {lr: 1}  # c\nb: [1, 2]\n")
    once = override("python -m gone c.yaml", tmp_path, "a.lr=3e-5", "b.0=7")
    assert once.written is not None
    text = once.written.read_text()
    twice = override(shlex.join(once.command.argv), tmp_path, "a.lr=3e-5", "b.0=7")
    assert (twice.command.argv, twice.written) == (once.command.argv, once.written)
    assert once.written.read_text() == text == "a: {lr: 3.0e-5}  # c\nb: [7, 2]\n"


# What has no place


@pytest.mark.parametrize(
    ("hp", "remedy"),
    [
        ("warmup=3", "give --hp-flag warmup=--warmup-steps or --hp-flag warmup=--warmup-ratio"),
        ("optimizer.lrr=1", "give --hp optim.lrr.lr=1"),
        ("colour=red", "give --hp-flag colour=--flag with the program's own flag (it has --config, --warmup-ratio, "
         "--warmup-steps)"),
    ],
)  # fmt: skip
def test_remedy_of_an_override_without_a_place_is_exact(tmp_path: Path, hp: str, remedy: str) -> None:
    """The words to give, for the nearest flags and config values; else the flags that there are."""
    flags = ("--warmup-steps", "--warmup-ratio", "--config")
    script(tmp_path, PARSER, *(f"p.add_argument({flag!r})" for flag in flags))
    (tmp_path / "c.yaml").write_text("optim:\n  lrr:\n    lr: 1\n")
    (finding,) = [item for item in override("python t.py --config c.yaml", tmp_path, hp).findings if item.refuses]
    assert (finding.code, finding.remedy) == ("override-not-placed", remedy)
