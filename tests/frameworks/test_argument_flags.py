"""Flags of transformers' and TRL's arguments classes as read from the installed source, beside those of the real
parsers. Needs an environment made from constraints/trainers.txt; one import of both packages, about 10 seconds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.command.overrides.model import LIST, OPTIONAL_BOOL, VALUE
from harness.command.parse import parse_command
from harness.frameworks.argument_classes import argument_table
from tests.frameworks.test_trainer_runs import ENVIRONMENT, PYTHON

CLASSES = {
    "transformers": ("TrainingArguments", "Seq2SeqTrainingArguments"),
    "trl": (
        *("SFTConfig", "DPOConfig", "GRPOConfig", "RLOOConfig", "KTOConfig", "RewardConfig", "ModelConfig"),
        *("ScriptArguments", "DatasetMixtureConfig"),
    ),
}
PARSERS = {"transformers": "HfArgumentParser", "trl": "TrlParser"}
LISTED = """\
import importlib, json, sys
found = {}
for package, parser, *names in json.loads(sys.argv[1]):
    module = importlib.import_module(package)
    for name in names:
        actions = getattr(module, parser)(getattr(module, name))._actions
        rows = [(a.option_strings, a.nargs, getattr(a.type, "__name__", "")) for a in actions]
        found[name] = {row[0][0]: row for row in rows}
print(json.dumps(found))
"""
ASKED = [(package, name) for package, names in CLASSES.items() for name in names]


@pytest.fixture(scope="module")
def real() -> dict[str, dict[str, Any]]:
    """{class: {flag: its spellings, nargs and type}} of the real parsers."""
    asked = json.dumps([[package, PARSERS[package], *names] for package, names in CLASSES.items()])
    words = [sys.executable, "-c", LISTED, asked]
    done = subprocess.run(words, capture_output=True, check=True, timeout=900, env={**os.environ, **ENVIRONMENT})
    found: dict[str, dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(("package", "name"), ASKED, ids=[name for _, name in ASKED])
def test_flags_are_those_of_the_real_parser(
    real: dict[str, dict[str, Any]], tmp_path: Path, package: str, name: str
) -> None:
    """Every field with every spelling and no other; a list or a switch only where the parser has one."""
    parser = PARSERS[package]
    source = f"from {package} import {name}, {parser}\n{parser}({name}).parse_args_into_dataclasses()\n"
    (tmp_path / "t.py").write_text(source, encoding="utf-8")
    table = argument_table(parse_command(f"{PYTHON} t.py", tmp_path), tmp_path)
    expected = {flag: item for flag, item in real[name].items() if flag != "-h" and not flag.startswith("--no_")}
    assert {flag.names[0]: set(flag.names) for flag in table.flags} == {
        flag: set(spellings) for flag, (spellings, _, _) in expected.items()
    }
    told = {flag.names[0]: flag.kind for flag in table.flags if flag.kind != VALUE}
    assert all(kind in (LIST, OPTIONAL_BOOL) for kind in told.values())
    assert {flag for flag, kind in told.items() if kind == LIST} <= {
        flag for flag, (_, nargs, _) in expected.items() if nargs == "+"
    }
    assert {flag for flag, kind in told.items() if kind == OPTIONAL_BOOL} <= {
        flag for flag, (_, _, kind) in expected.items() if kind == "string_to_bool"
    }
