"""What a program's parser returned, seen in real child processes, read back, and held against an override."""

from __future__ import annotations

import ast
import json
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.judge.received import Received, received
from harness.judge.values import same_value
from harness.probe import site_dir
from harness.probe.parsed import asked, asked_names, read_parsed
from harness.record.run_record import RunRecord
from harness.record.token_formats import MASK
from tests.unit.parsing_programs import Program

PARSER = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--hidden", type=int, default=16)
parser.add_argument("--use-bias", type=bool, default=True)
parser.add_argument("--betas", type=float, nargs=2)
parser.add_argument("--config", default="")
parser.add_argument("--size", type=lambda text: int(text.rstrip("k")) * 1000)
parser.add_argument("--quiet", action="store_true")
"""
TRAINED = """
import torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(3):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
"""


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Programs below a temporary directory."""
    return Program(tmp_path)


@pytest.mark.parametrize(
    ("name", "words", "given", "raw", "value"),
    [
        ("--hidden", "--hidden 128", True, "128", 128),
        ("--hidden", "--hidden=128", True, "128", 128),
        ("--hidden", "--hidden 1 --hidden=2", True, "2", 2),
        ("--hidden", "", False, None, 16),
        ("hidden", "--hidden 3", True, "3", 3),
        ("--use_bias", "--use-bias False", True, "False", True),
        ("--betas", "--betas 0.9 0.95", True, None, [0.9, 0.95]),
        ("--size", "--size 2k", True, "2k", 2000),
        ("--quiet", "--quiet", True, None, True),
    ],
)
def test_value_that_argparse_returned(
    program: Program, name: str, words: str, given: bool, raw: str | None, value: object
) -> None:
    """With whether the setting was among the words, and the word itself."""
    parse = program.parse(name, PARSER + "parser.parse_args()", *words.split())
    assert (parse["given"], parse["raw"], parse["value"]) == (given, raw, {"value": value})


def test_only_what_is_asked_for_is_read(program: Program) -> None:
    """Nothing of other settings reaches a file, and a parser that knows none of them leaves no file."""
    (process,) = program.run("--hidden", PARSER + "parser.parse_args()", "--hidden", "7", "--config", "SECRET")
    assert "SECRET" not in json.dumps(process) and [parse["name"] for parse in process["parses"]] == ["--hidden"]
    assert program.run("--depth", "import argparse\nargparse.ArgumentParser().parse_args()") == [process]


@pytest.mark.parametrize("value", ["https://me:pw@host/x", "https://host/x?sig=1", "x" * 201, "a\tb"])
def test_values_that_may_hold_a_secret_stay_inside(program: Program, value: str) -> None:
    """An address with a password, a signed one, a long text: only that it is a text."""
    parse = program.parse("--config", PARSER + "parser.parse_args()", "--config", value)
    assert (parse["raw"], parse["value"]) == (None, {"object": "builtins.str"})


def test_file_that_holds_a_setting_is_seen_by_its_path(program: Program) -> None:
    """Whatever the option is called."""
    parse = program.parse("file:hp-overrides.yaml", PARSER + "parser.parse_args()", "--config", "/o/hp-overrides.yaml")
    assert (parse["dest"], parse["value"]) == ("config", {"value": "/o/hp-overrides.yaml"})


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("hp-overrides.json", '{"model": {"hidden": 128}}', "import json, sys\njson.load(open(sys.argv[1]))"),
        ("hp-overrides.toml", "[model]\nhidden = 128\n", "import tomllib, sys\ntomllib.load(open(sys.argv[1], 'rb'))"),
    ][: 2 if sys.version_info >= (3, 11) else 1],
)
def test_value_that_was_read_from_the_file(program: Program, name: str, text: str, code: str) -> None:
    """Of that file alone, under its dotted name; other files are left alone."""
    for file in (name, "other" + Path(name).suffix):
        (program.root / file).write_text(text)
    asked_for = f"model.hidden,file:{name}"
    assert program.run(asked_for, code, "other" + Path(name).suffix) == []
    parse = program.parse(asked_for, code, name)
    assert (parse["name"], parse["value"]) == ("model.hidden", {"value": 128})


def test_value_at_the_first_step(program: Program) -> None:
    """What the program put in its place after parsing."""
    parse = program.parse("--hidden", PARSER + "args = parser.parse_args()\nargs.hidden = 64" + TRAINED, "--hidden=128")
    assert (parse["value"], parse["at_step"]) == ({"value": 128}, {"value": 64})


def test_absl_flags_are_looked_at_again(program: Program) -> None:
    """With whether they were given, and what stands there at the first step."""
    code = """
from absl import flags
flags.DEFINE_integer("hidden", 16, "")
flags.FLAGS(["train.py", "--hidden=128"])
flags.FLAGS.hidden = 64
"""
    parse = program.parse("--hidden", code + TRAINED)
    assert (parse["parser"], parse["given"], parse["value"], parse["at_step"]) == (
        "absl", True, {"value": 128}, {"value": 64})


def test_subcommand_and_several_parses(program: Program) -> None:
    """Sub-parsers' options are the program's; each parse is told, the inner ones once."""
    code = PARSER + """
outer = argparse.ArgumentParser()
inner = outer.add_subparsers(dest="command").add_parser("fit")
inner.add_argument("--hidden", type=int)
parser.parse_known_args([])
outer.parse_args()
"""
    (process,) = program.run("--hidden", code, "fit", "--hidden", "5")
    assert [(parse["given"], parse["value"]["value"]) for parse in process["parses"]] == [(False, 16), (True, 5)]


def test_forked_child_that_trains_tells_for_itself(program: Program) -> None:
    """The parent parsed, the child steps."""
    code = PARSER + "args = parser.parse_args()\nimport os, torch\nif os.fork():\n    os.wait()\nelse:\n"
    processes = program.run("--hidden", code + textwrap.indent(TRAINED, "    "), "--hidden", "9")
    assert sorted((process["stepped"], len(process["parses"])) for process in processes) == [(False, 1), (True, 1)]


def test_errors_of_the_program_stay_its_own(program: Program) -> None:
    """A wrong word ends the program as without the probe; odd namespaces and words leave no trace of ours."""
    code = PARSER + """
try:
    parser.parse_args(["--hidden", "x"])
except SystemExit as ended:
    assert ended.code == 2
class Slots:
    __slots__ = ("hidden", "use_bias", "betas", "config", "size", "quiet")
parser.parse_args(iter(["--hidden", "4"]), Slots())
class Kept: pass
parser.parse_args([], Kept)
"""
    (process,) = program.run("--hidden,file:a.yaml", code)
    assert [parse["value"]["value"] for parse in process["parses"]] == [4, 16]


def test_other_pythons(program: Program) -> None:
    """Those of the machine, as far as they are there."""
    found = sorted(path for version in ("3.8", "3.9", "3.12", "3.13")
                   for path in Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    for number, python in enumerate(found, start=1):
        told = program.run("--hidden", PARSER + "parser.parse_args()", "--hidden", "8", python=str(python))
        assert [process["parses"][0]["value"] for process in told] == [{"value": 8}] * number


def test_every_reader_is_waited_for() -> None:
    """sitecustomize.py, which is to be cheap, lists the modules that the recorder has readers for."""
    told: dict[str, dict[str, Any]] = {}
    for name in ("_real_step_parsed", "sitecustomize"):
        tree = ast.parse((site_dir() / f"{name}.py").read_text())
        told[name] = {node.targets[0].id: node.value for node in tree.body
                      if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)}
    waited = {*ast.literal_eval(told["sitecustomize"]["_PARSERS"]), *ast.literal_eval(told["sitecustomize"]["_FILES"])}
    assert waited == {key.value for key in told["_real_step_parsed"]["PARSERS"].keys}


def test_names_that_are_asked_for() -> None:
    """The flag; else the setting and the file that holds it. A masked value is not asked for."""
    assert asked_names("--hidden", "width") == ("--hidden",)
    assert asked_names("hp-overrides.yaml:optim.lr", "lr") == ("optim.lr", "file:hp-overrides.yaml")
    assert asked_names("++optim.lr=", "lr") == ("optim.lr",)
    items = [{"key": "w", "value": "1", "place": "--w"}, {"key": "k", "value": MASK, "place": "--k"}]
    assert asked([*items, {"key": "lr", "value": "1", "place": "a,b.yaml:lr"}]) == "--w,lr"
    assert asked([]) == ""


def parse_of(returned: object, **more: object) -> dict[str, Any]:
    """A parse of `--x`, given as a word that argparse stores itself."""
    told = {"name": "--x", "parser": "argparse", "dest": "x", "given": True, "raw": None, "plain": True,
            "value": {"value": returned}, "at_step": None}
    return {**told, **more}


def judged(
    asked_for: str, *parses: dict[str, Any], steps: int = 3, place: str = "--x", ranks: int = 1, pid: int = 1,
    program: str = "train.py",
) -> Received | None:
    """Of an override, with this parsed by process 1 and process `pid`, a child of 1, training."""
    facts = {
        ("parsed", "processes"): [{"host": "h", "pid": 1, "ppid": 0, "program": program, "parses": list(parses)}],
        ("probe", "facts"): {"processes": [
            {"host": "h", "pid": pid, "ppid": 1, "steps": steps, "group_size": ranks, "world_size": None}]},
    }
    record = SimpleNamespace(fact=lambda event, key, default=None: facts.get((event, key), default))
    return received(cast(RunRecord, record), {"key": "x", "value": asked_for, "place": place}, same_value)


def holds(found: Received | None) -> object:
    """True, False, "replaced" or None for nothing told."""
    return None if found is None else "replaced" if found.holds is None else found.holds


@pytest.mark.parametrize(
    ("asked_for", "parse", "expected"),
    [
        ("128", parse_of(128), True),
        ("128", parse_of(128, given=False), True),
        ("False", parse_of(True, raw="False"), False),
        ("False", parse_of(True, raw="True"), None),
        ("False", parse_of(True), None),
        ("128", parse_of(16, given=False), None),
        ("2k", parse_of(2000, plain=False, raw="2k"), True),
        ("2k", parse_of(2000, plain=False, raw="3k"), None),
        ("bf16", parse_of(None, plain=False, value={"object": "jax.dtype"}), True),
        ("bf16", parse_of(None, given=False, value={"object": "jax.dtype"}), None),
        ("128", parse_of(128, at_step={"value": 128}), True),
        ("128", parse_of(128, at_step={"value": 64}), "replaced"),
        ("128", parse_of(128, at_step={"value": None}), "replaced"),
        ("128", parse_of(128, at_step={"object": "torch.Tensor"}), True),
        ("out", parse_of("out", at_step={"value": "out/run-3"}), True),
        ("out", parse_of("out", at_step={"value": "elsewhere"}), "replaced"),
        ("bf16", parse_of("bf16", at_step={"value": "torch.bfloat16"}), True),
        ("bf16", parse_of("bf16", at_step={"value": "torch.float32"}), "replaced"),
        ("mixed", parse_of("mixed", at_step={"value": "torch.float16"}), True),
        ("0.2", parse_of(0.2, at_step={"value": 8}), True),
        ("0.2", parse_of(0.2, at_step={"value": 0.1}), "replaced"),
        ("0", parse_of(0.0, at_step={"value": None}), True),
        ("0", parse_of(0.0, at_step={"value": 1.0}), "replaced"),
        ("1.0", parse_of(1.0, at_step={"value": None}), "replaced"),
        ("a.pt", parse_of("a.pt", at_step={"value": None}), True),
        ("adam", parse_of("adam", at_step={"value": "ADAM"}), True),
        ("sgd", parse_of("sgd", at_step={"value": "adam"}), "replaced"),
        ("adamw", parse_of("adamw", at_step={"value": "adam"}), "replaced"),
        ("xfoo", parse_of("xfoo", at_step={"value": "foo"}), True),
        ("true", parse_of(True, at_step={"value": False}), "replaced"),
        ("true", parse_of("true", at_step={"value": False}), "replaced"),
        ("auto", parse_of("auto", at_step={"value": 8}), True),
        ("8,8", parse_of("8,8", at_step={"value": [8, 8]}), True),
        ("8,8", parse_of("8,8", at_step={"value": [16, 16]}), "replaced"),
        ("8", parse_of("8", at_step={"value": 4}), "replaced"),
        ("32", parse_of(32, dest="batch_size", at_step={"value": 4}), True),
        ("4", parse_of(4, dest="grad_accum", at_step={"value": 32}), True),
        ("32", parse_of(32, dest="batch_size", at_step={"value": 5}), "replaced"),
        ("64", parse_of(64, dest="hidden", at_step={"value": 32}), "replaced"),
        ("7", parse_of(7, dest="seed", at_step={"value": 1007}), True),
        ("128", parse_of(16, given=False, at_step={"value": 128}), True),
        ("128", parse_of(16, given=False, at_step={"value": 64}), None),
    ],
)
def test_override_beside_what_was_parsed(asked_for: str, parse: dict[str, Any], expected: object) -> None:
    """A default and a conversion of the program's contradict nothing; a word that is stored as another value does."""
    assert holds(judged(asked_for, parse)) == expected


@pytest.mark.parametrize(("ranks", "expected"), [(8, True), (2, "replaced"), (1, "replaced")])
def test_share_of_a_rank_is_the_value(ranks: int, expected: object) -> None:
    """A batch of 512 is 64 on each of eight ranks."""
    assert holds(judged("512", parse_of(512, at_step={"value": 64}), ranks=ranks)) == expected


def test_what_became_of_a_received_value_is_told() -> None:
    """Beside the value that was received."""
    found = judged("32", parse_of(32, dest="batch", at_step={"value": 4}))
    assert found is not None and found.value == 32
    assert found.source == "argparse in train.py, made into 4 by the first step"


def test_last_word_among_several_parses() -> None:
    """A parser of defaults beside the one that got the words; one that replaced the value is heard."""
    assert holds(judged("128", parse_of(16, given=False), parse_of(128))) is True
    assert holds(judged("False", parse_of(True, raw="False"), parse_of(False))) is True
    assert holds(judged("128", parse_of(128), parse_of(128, at_step={"value": 3}))) == "replaced"


def test_processes_that_count() -> None:
    """Those that trained; else their parents, of which only what fits; of strangers and launchers nothing."""
    assert holds(judged("128", parse_of(128), pid=2)) is True
    assert holds(judged("False", parse_of(True, raw="False"), pid=2)) is None
    assert holds(judged("128", parse_of(128), pid=2, program="torch.distributed.run")) is None
    assert holds(judged("128", parse_of(128), steps=0)) is True
    assert holds(judged("128")) is None


def test_rank_that_adds_to_a_value_is_no_replacement() -> None:
    """`args.seed += rank`: one rank trains with the value that was asked for."""
    processes = [{"host": "h", "pid": pid, "ppid": 0, "program": "t.py",
                  "parses": [parse_of(7, at_step={"value": 6 + pid})]} for pid in (1, 2)]
    for told, expected in ((processes, True), (processes[1:], "replaced")):
        facts = {("parsed", "processes"): told,
                 ("probe", "facts"): {"processes": [{"host": "h", "pid": pid, "steps": 3} for pid in (1, 2)]}}
        record = SimpleNamespace(fact=lambda event, key, default=None, facts=facts: facts.get((event, key), default))
        item = {"key": "x", "value": "7", "place": "--x"}
        assert holds(received(cast(RunRecord, record), item, same_value)) == expected


def test_config_file_is_received_by_its_path() -> None:
    """The program was given the file; what it read there is not seen."""
    parse = parse_of("/o/hp-overrides.yaml", name="file:hp-overrides.yaml")
    found = judged("0.1", parse, place="hp-overrides.yaml:optim.x")
    assert found is not None and found.holds and "as the file that holds it" in found.source


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(
    inner, max_size=3) | st.dictionaries(st.sampled_from(["value", "object", "name", "x"]), inner, max_size=3))
GOOD: dict[str, Any] = {"format": 1, "pid": 1, "ppid": 0, "host": "h", "program": "t", "updated_at": 9.0,
                        "stepped": True, "parses": [parse_of(1)]}


@given(field=st.sampled_from([*GOOD, *(f"parses.{name}" for name in GOOD["parses"][0])]), odd=JSON)
def test_odd_files_are_problems(tmp_path_factory: pytest.TempPathFactory, field: str, odd: Any) -> None:
    """A file counts whole or not at all."""
    directory = tmp_path_factory.mktemp("odd")
    document = json.loads(json.dumps(GOOD))
    _, inner, name = field.rpartition(".")
    (document["parses"][0] if inner else document)[name] = odd
    (directory / "h-1.parsed.json").write_text(json.dumps(document), encoding="utf-8")
    told = read_parsed(directory, since=5.0)
    assert len(told["processes"]) + len(told["problems"]) <= 1
    json.dumps(told, allow_nan=False)


def test_files_of_an_earlier_run_do_not_count(tmp_path: Path) -> None:
    """Nor do pipes, cut files, files that are too long."""
    (tmp_path / "h-1.parsed.json").write_text(json.dumps(GOOD), encoding="utf-8")
    (tmp_path / "h-2.parsed.json").write_text(json.dumps(GOOD)[:-9], encoding="utf-8")
    (tmp_path / "h-3.parsed.json").write_text(" " * 300_000, encoding="utf-8")
    (tmp_path / "h-4.parsed.json").symlink_to("/dev/zero")
    assert read_parsed(tmp_path, since=10.0)["processes"] == []
    found = read_parsed(tmp_path, since=8.0)
    assert (len(found["processes"]), len(found["problems"])) == (1, 3)
    assert read_parsed(tmp_path / "none", since=0.0) == {"processes": [], "problems": []}
