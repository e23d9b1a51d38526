"""Flags that HfArgumentParser and TrlParser make of dataclasses: the project's own, and those of the installed packages
of the command's interpreter, read without importing them; no flag that the program does not accept."""

from __future__ import annotations

import ast
import shlex
import venv
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.command.model import TrainingCommand
from harness.command.overrides.dataclass_reader import class_flags
from harness.command.overrides.model import FlagTable, OverrideResult, parse_requests
from harness.command.overrides.resolve import apply_overrides
from harness.command.parse import parse_command
from harness.frameworks.argument_classes import argument_table
from harness.frameworks.flags import flag_table
from harness.frameworks.transformers import TransformersAdapter
from harness.frameworks.trl import TrlAdapter
from harness.spec import RunSpec

TRAINING_ARGUMENTS = """\
from __future__ import annotations
from dataclasses import dataclass, field
raise SystemExit("imported")

@dataclass
class TrainingArguments:
    output_dir: str | None = field(default=None, metadata={"help": "x"})
    learning_rate: float = field(default=5e-5)
    max_steps: int = field(default=-1, metadata={"aliases": ["--steps_limit"]})
    bf16: bool = field(default=False)
    betas: list[float] | None = None
    mode: Literal["a", "b"] = "a"
    _n_gpu: int = field(init=False, repr=False, default=-1)
    registry: ClassVar[dict] = {}
    not_a_field = 3
"""
READS = "HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()"
PACKAGES = {
    "transformers/__init__.py": (
        "raise SystemExit('imported')\n_import_structure = {'training_args': ['TrainingArguments']}\n"
        "if TYPE_CHECKING:\n    from .training_args import TrainingArguments as TrainingArguments\n"
    ),
    "transformers/training_args.py": TRAINING_ARGUMENTS,
    "trl/__init__.py": "if TYPE_CHECKING:\n    from .trainer import SFTConfig, DPOConfig\n",
    "trl/trainer/__init__.py": "if TYPE_CHECKING:\n    from .configs import DPOConfig, SFTConfig\n",
    "trl/trainer/configs.py": (
        "from transformers import TrainingArguments\nfrom dataclasses import dataclass, field\n"
        "@dataclass\nclass _Base(TrainingArguments):\n    learning_rate: float = 1e-5\n"
        "@dataclass\nclass SFTConfig(_Base):\n    max_length: int = 1024\n"
        "    bf16: bool = field(default=True, init=False)\n"
        "@dataclass\nclass DPOConfig(_Base):\n    beta: float = 0.1\n"
        "class Undecorated(_Base):\n    not_a_field: int = 1\n"
    ),
    "trl/scripts/__init__.py": "",
    "trl/scripts/sft.py": (
        "def make_parser(prog=None):\n    from trl import SFTConfig, TrlParser\n    types = (SFTConfig,)\n"
        "    return TrlParser(types, prog=prog)\n"
        "if __name__ == '__main__':\n    parser = make_parser()\n    parser.parse_args_and_config()\n"
    ),
}
BASE = {"output_dir", "learning_rate", "max_steps", "bf16", "betas", "mode"}
CLASSES = {node.name: node for node in ast.walk(ast.parse(TRAINING_ARGUMENTS)) if isinstance(node, ast.ClassDef)}
HEAD = "from transformers import HfArgumentParser, TrainingArguments\nfrom trl import *\n"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter whose packages must not be imported."""
    directory = tmp_path_factory.mktemp("env")
    venv.create(directory, symlinks=True)
    (site,) = directory.glob("lib/python*/site-packages")
    for name, text in PACKAGES.items():
        path = site / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return shlex.quote(str(directory / "bin" / "python"))


@pytest.fixture
def project(python: str, tmp_path: Path) -> Path:
    """A working directory with a link to the interpreter."""
    (tmp_path / "python").symlink_to(python)
    return tmp_path


def command(project: Path, source: str, arguments: str = "") -> str:
    """The command of a script that sees the packages."""
    (project / "t.py").write_text(source)
    return f"{project.joinpath('python').readlink()} t.py {arguments}"


def names(project: Path, source: str) -> set[str]:
    """Fields that are flags of the program."""
    table = argument_table(parse_command(command(project, source), project), project)
    return {flag.names[0][2:] for flag in table.flags}


def override(project: Path, text: str, *hp: str) -> OverrideResult:
    """With the table and no way to run --help: the package ends any process that imports it."""
    parsed = parse_command(text, project)
    spec = RunSpec(train_cmd=text, workdir=project, out_dir=project / "out", run_id="r")
    return apply_overrides(
        parsed, parse_requests(hp), flag_table=flag_table(TransformersAdapter(), parsed, spec), workdir=project,
        environ={"PATH": "/usr/bin:/bin"}, out_dir=project / "out",
    )


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (HEAD + READS, BASE),
        (HEAD + "p = HfArgumentParser((TrainingArguments,))\np.parse_args_into_dataclasses()", BASE),
        ("import transformers as t\nt.HfArgumentParser([t.TrainingArguments]).parse_args_into_dataclasses()", BASE),
        ("from transformers.training_args import TrainingArguments as A, HfArgumentParser\n"
         "HfArgumentParser(dataclass_types=(A,)).parse_args_into_dataclasses()", BASE),
        ("def main():\n    from trl import SFTConfig, TrlParser\n    types = (SFTConfig,)\n    p = TrlParser(types)\n"
         "    p.parse_args_and_config()", BASE - {"bf16"} | {"max_length"}),
        ("from trl import DPOConfig, TrlParser\nfrom dataclasses import dataclass\n@dataclass\n"
         "class Mine(DPOConfig):\n    extra: int = 1\nTrlParser(Mine).parse_args_and_config()",
         BASE | {"beta", "extra"}),
        ("from trl.trainer.configs import Undecorated\nfrom trl import TrlParser\n"
         "TrlParser(Undecorated).parse_args_and_config()", BASE),
    ],
)  # fmt: skip
def test_fields_of_installed_classes_are_flags(project: Path, source: str, expected: set[str]) -> None:
    """By whatever name the program has for them; inherited ones too, none that the constructor does not take."""
    assert names(project, source) == expected


@pytest.mark.parametrize(
    "source",
    [
        HEAD + "HfArgumentParser(TrainingArguments).parse_json_file('a.json')",
        HEAD + "HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(args=['--max_steps', '3'])",
        HEAD + "import argparse\np = HfArgumentParser(TrainingArguments)\n"
        "o = argparse.ArgumentParser().parse_args()\np.parse_yaml_file(o.x)",
        HEAD + "TrainingArguments(output_dir='x')",
        "from elsewhere import parser\nparser.parse_args_into_dataclasses(return_remaining_strings=True)",
        HEAD + "HfArgumentParser(classes()).parse_args_into_dataclasses()",
        "from nowhere import TrainingArguments, HfArgumentParser\n"
        "HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()",
    ],
)
def test_no_flag_of_a_program_that_reads_none(project: Path, source: str) -> None:
    """A file, literal words, a class of which nothing is found."""
    assert names(project, source) == set()


def test_of_two_parsers_only_the_common_flags(project: Path) -> None:
    """Which one reads the line is not told, so that a flag of one alone is none; with the rest handed on both read."""
    source = "from trl import DPOConfig, SFTConfig, TrlParser\n"
    source += "p = TrlParser(DPOConfig)\nq = TrlParser(SFTConfig)\n"
    source += "p.parse_args_and_config({})\nq.parse_args_and_config()"
    assert names(project, source.replace("{}", "")) == BASE - {"bf16"}
    assert {"beta", "max_length"} <= names(project, source.replace("{}", "return_remaining_strings=True"))


def test_trl_command_line_takes_the_classes_of_its_script(project: Path) -> None:
    """`python -m trl.scripts.sft`, whose source is no part of the project."""
    text = f"{project.joinpath('python').readlink()} -m trl.scripts.sft --bf16"
    spec = RunSpec(train_cmd=text, workdir=project, out_dir=project / "out", run_id="r")
    found = flag_table(TrlAdapter(), parse_command(text, project), spec)
    assert {flag.names[0][2:] for flag in found.flags} == BASE - {"bf16"} | {"max_length"}


@pytest.mark.parametrize(
    ("hp", "expected"),
    [
        ("lr=1e-3", "--output_dir o --learning_rate 1e-3"), ("max_steps=3", "--output_dir o --max_steps 3"),
        ("bf16=true", "--output_dir o --bf16 True"), ("betas=[0.9,0.95]", "--output_dir o --betas 0.9 0.95"),
        ("steps_limit=4", "--output_dir o --max_steps 4"), ("output_dir=p", "--output_dir p"),
    ],
)  # fmt: skip
def test_override_needs_no_help_run(project: Path, hp: str, expected: str) -> None:
    """The program would end at its first import, and so would its --help."""
    text = command(project, HEAD + READS, "--output_dir o")
    result = override(project, text, hp)
    assert not [finding for finding in result.findings if finding.refuses]
    assert shlex.join(result.command.script_args) == expected


@pytest.mark.parametrize(
    ("given", "hp", "place"),
    [
        ("--config c.yaml", "learning_rate=1e-3", "hp-overrides.yaml:learning_rate"),
        ("--config c.yaml", "lr=1e-3", "hp-overrides.yaml:learning_rate"),
        ("--config c.yaml --learning_rate 1", "lr=1e-3", "--learning_rate"),
        ("--config c.yaml", "max_steps=3", "--max_steps"),
    ],
)
def test_value_of_the_config_is_changed_there(project: Path, given: str, hp: str, place: str) -> None:
    """A setting that the config file alone gives stays in the file; what is in neither becomes a flag."""
    (project / "c.yaml").write_text("learning_rate: 2.0e-5\n")
    text = command(project, HEAD + READS, given)
    assert [item.place for item in override(project, text, hp).applied] == [place]


def test_choices_are_checked_before_the_launch(project: Path) -> None:
    """A literal type names what it takes."""
    text = command(project, HEAD + READS)
    (finding,) = [item for item in override(project, text, "mode=c").findings if item.refuses]
    assert "takes one of a, b" in finding.message


WORDS = st.lists(
    st.sampled_from(("--learning_rate 1", "--learning-rate=2", "--bf16", "--no_bf16", "--betas 1 2", "--max_steps -1",
                     "--other x", "--mode=b")),
    max_size=5,
).map(lambda groups: [word for group in groups for word in group.split()])  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    words=WORDS, launcher=st.sampled_from(("", "nice -n 3 ", "env LEARNING_RATE=9 ")),
    hp=st.sampled_from(("lr=1e-3", "max_steps=7", "bf16=false", "betas=[1,2,3]", "mode=a", "output_dir=a b")),
)  # fmt: skip
def test_overriding_by_the_table_twice_is_once(
    tmp_path_factory: pytest.TempPathFactory, words: list[str], launcher: str, hp: str
) -> None:
    """The launcher part stays, and no word that is no field of the class is added."""
    directory = tmp_path_factory.getbasetemp()
    (directory / "t.py").write_text(HEAD + READS)
    table = FlagTable(flags=tuple(class_flags("TrainingArguments", CLASSES, directory / "t.py")))
    text = f"{launcher}python t.py {shlex.join(words)}"

    def applied(command: TrainingCommand) -> OverrideResult:
        return apply_overrides(
            command, parse_requests([hp]), flag_table=table, workdir=directory, environ={}, out_dir=directory / "out"
        )

    before = parse_command(text, directory)
    once = applied(before)
    assert not [finding for finding in once.findings if finding.refuses]
    assert applied(once.command).command.argv == once.command.argv
    assert once.command.launcher_part == before.launcher_part
    known = {name for flag in table.flags for name in flag.names}
    new = {word.partition("=")[0] for word in once.command.script_args if word.startswith("--")}
    assert new <= known | {word.partition("=")[0] for word in words}
