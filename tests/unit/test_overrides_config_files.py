"""A changed config file differs from the user's in the named value only, whatever the file looks like."""

from __future__ import annotations

import copy
import json
import math
from typing import Any

import pytest
import tomlkit
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from harness.command.configs import text_problem
from harness.command.overrides.document import EditError, find, fit, load
from harness.command.overrides.values import Typed, float_text, read_value, yaml_string

KEYS = st.text("abcdefg_", min_size=1, max_size=4)
TEXTS = st.text(st.characters(blacklist_categories=["Cs", "Cc"]), max_size=8)
NUMBERS = st.one_of(st.integers(-(10**6), 10**6), st.floats(allow_nan=False, allow_infinity=False))
VALUES = st.one_of(NUMBERS, st.booleans(), TEXTS)
LEAVES = st.one_of(VALUES, st.none(), st.lists(NUMBERS, max_size=3))
NESTED = st.recursive(LEAVES, lambda inner: st.dictionaries(KEYS, inner, max_size=4), max_leaves=8)
TREES = st.dictionaries(KEYS, NESTED, min_size=1, max_size=5)
NEW = st.sampled_from(
    ("3e-5", "7", "-2.5", "true", "cosine", "a: b #c", "no", "1e400x", "0x1f", "ünï", "'q\"", "[1, 2.5]")
)


def yaml_data(text: str) -> Any:
    yaml = YAML(typ="safe", pure=True)
    yaml.allow_duplicate_keys = True
    return yaml.load(text)


def put(data: Any, path: tuple[str | int, ...], value: Any) -> Any:
    changed = copy.deepcopy(data)
    inner = changed
    for part in path[:-1]:
        inner = inner[part]
    inner[path[-1]] = value
    return changed


def equal(first: Any, second: Any) -> bool:
    if isinstance(first, dict) and isinstance(second, dict):
        return list(first) == list(second) and all(equal(first[key], second[key]) for key in first)
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(equal, first, second))
    if isinstance(first, float) and isinstance(second, float):
        return first == second or (math.isnan(first) and math.isnan(second))
    return type(first) is type(second) and bool(first == second)


def data_of(value: Typed) -> Any:
    return float(value.data) if value.type == "float" else value.data


def change(text: str, suffix: str, draw: st.DataObject) -> tuple[str, tuple[str | int, ...], Any]:
    """(text after, path, new data) of one drawn change."""
    document = load(text, suffix)
    paths = [path for path, leaf in document.leaves.items() if leaf.type not in ("dict", "list")]
    assume(paths)
    path = draw.draw(st.sampled_from(paths))
    try:
        value = fit(read_value(draw.draw(NEW)), document.leaves[path], numeric=False)
        return document.replace(path, value), path, data_of(value)
    except EditError:
        assume(False)
        raise


@settings(max_examples=60, deadline=None)
@given(tree=TREES, draw=st.data(), indent=st.sampled_from((None, 1, 4)))
def test_json_changes_the_named_value_only(tree: dict[str, Any], draw: st.DataObject, indent: int | None) -> None:
    """By the data, and by every line that does not hold the value."""
    text = json.dumps(tree, indent=indent, ensure_ascii=False)
    after, path, value = change(text, ".json", draw)
    assert equal(json.loads(after), put(tree, path, value))


@settings(max_examples=60, deadline=None)
@given(tree=TREES, draw=st.data(), flow=st.booleans())
def test_yaml_changes_the_named_value_only(tree: dict[str, Any], draw: st.DataObject, flow: bool) -> None:
    """Read again by PyYAML, in block and in flow style, quoted as PyYAML quotes."""
    yaml = pytest.importorskip("yaml")
    text = "# first\n" + yaml.safe_dump(tree, default_flow_style=flow, allow_unicode=True, sort_keys=False)
    before = yaml.safe_load(text)
    after, path, value = change(text, ".yaml", draw)
    assert equal(yaml.safe_load(after), put(before, path, value))
    assert after.startswith("# first\n")


@settings(max_examples=60, deadline=None)
@given(tree=TREES, draw=st.data())
def test_toml_changes_the_named_value_only(tree: dict[str, Any], draw: st.DataObject) -> None:
    """TOML has no null; tables and their order stay."""

    def without_null(item: Any) -> Any:
        return {k: without_null(v) for k, v in item.items() if v is not None} if isinstance(item, dict) else item

    text = "# first\n" + tomlkit.dumps(without_null(tree))
    before = tomlkit.parse(text).unwrap()
    after, path, value = change(text, ".toml", draw)
    assert equal(tomlkit.parse(after).unwrap(), put(before, path, value))
    assert after.startswith("# first\n")


@settings(max_examples=60, deadline=None)
@given(tree=TREES, draw=st.data(), suffix=st.sampled_from((".yaml", ".json")))
def test_changing_a_config_twice_is_changing_it_once(tree: dict[str, Any], draw: st.DataObject, suffix: str) -> None:
    """The same value again, read as the type that it has now, changes no byte."""
    yaml = pytest.importorskip("yaml")
    text = json.dumps(tree) if suffix == ".json" else yaml.safe_dump(tree, allow_unicode=True)
    document = load(text, suffix)
    path = draw.draw(st.sampled_from([p for p, leaf in document.leaves.items() if leaf.type != "dict"] or [()]))
    typed = read_value(draw.draw(NEW))
    assume(path != ())
    try:
        once = document.replace(path, fit(typed, document.leaves[path], numeric=False))
        again = load(once, suffix)
        twice = again.replace(path, fit(typed, again.leaves[path], numeric=False))
    except EditError:
        assume(False)
        raise
    assert twice == once


@given(st.floats(allow_nan=False, allow_infinity=False), st.booleans())
def test_float_is_read_back_by_every_reader(number: float, short: bool) -> None:
    """YAML 1.1, YAML 1.2, TOML and JSON read the same number."""
    text = float_text(f"{number:g}" if short else repr(number))
    expected = float(f"{number:g}") if short else number
    assert float(text) == json.loads(text) == yaml_data(f"x: {text}")["x"] == expected
    assert tomlkit.parse(f"x = {text}")["x"] == expected
    yaml = pytest.importorskip("yaml")
    assert isinstance(yaml.safe_load(f"x: {text}")["x"], float)


@given(st.text(st.characters(blacklist_categories=["Cs"]), max_size=12), st.sampled_from((None, "'", '"')))
def test_text_is_read_back_as_text(text: str, style: str | None) -> None:
    """No word becomes a number, a switch, a date or a comment."""
    yaml = pytest.importorskip("yaml")
    written = f"x: {yaml_string(text, style)}\n"
    assert yaml.safe_load(written) == {"x": text} and yaml_data(written) == {"x": text}


@given(st.text(max_size=60), st.sampled_from((".json", ".toml", ".yaml")))
def test_any_text_has_a_problem_or_a_document(text: str, suffix: str) -> None:
    """Nothing but EditError comes out of a text that parses."""
    if text_problem(text, suffix) is None:
        try:
            document = load(text, suffix)
        except EditError as error:
            assert str(error)
        else:
            assert find(document, "no such key") == []


@pytest.mark.parametrize(
    ("suffix", "text", "place"),
    [
        (".yaml", "a: [1\nb: 2\n", (2, 2)),
        (".yaml", "a: 1\n\tb: 2\n", (2, 1)),
        (".json", '{"a": 1,\n "b" 2}', (2, 6)),
        (".toml", "a = 1\nb = \n", (2, 5)),
    ],
)
def test_problem_has_line_and_column(suffix: str, text: str, place: tuple[int, int]) -> None:
    """Where the parser stopped, from 1."""
    problem = text_problem(text, suffix)
    assert problem is not None and (problem.line, problem.column) == place


def test_billion_laughs_are_refused() -> None:
    """Nested aliases are not expanded without end."""
    lines = ["a0: &a0 {x: 1}"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
    with pytest.raises(EditError, match="too deep"):
        load("\n".join(lines), ".yaml")
