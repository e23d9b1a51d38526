"""--reload-with FILE.py:FUNCTION: looked up without running it, called in the reload's child, held against the log."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from harness.checkpoints.function import agrees, parse_function, runs_when_imported
from harness.checkpoints.inventory import find_checkpoints
from harness.checkpoints.naming import is_named_aside
from harness.checkpoints.reload import CHILD, Surroundings, reload_checkpoint
from harness.checkpoints.targets import target_of
from harness.errors import ConfigError
from harness.judge.report import build_report
from harness.record import outdir
from tests.unit.run_dirs import RunDir
from tests.unit.test_saving_checks import FACTS, HEALTHY, facts, ok, whole


@pytest.mark.parametrize("source", [
    "def check(path): ...", "def check(path, data=None, *, more=1): ...", "def check(*paths): ...",
    "check = lambda path: {}", "from train import check", "from train import evaluate as check", "from train import *",
    "import functools\ncheck = functools.partial(print, 1)", "if True:\n    def check(path): ...",
    "try:\n    import a\nexcept ImportError:\n    def check(path): ...", "class A: ...\ncheck = A()",
    "check = None\ndef check(path): ...",
])
def test_function_is_found_without_running_it(source: str, tmp_path: Path) -> None:
    """In every way in which a module binds a name to what may be called."""
    (tmp_path / "own.py").write_text("raise SystemExit('it ran')\n" + source)
    found = parse_function("own.py:check", tmp_path)
    assert (found.path, found.name, str(found)) == (tmp_path / "own.py", "check", "own.py:check")


@pytest.mark.parametrize(("word", "source", "told"), [
    ("own.py", "", "give FILE.py:FUNCTION"), ("", "", "give FILE.py:FUNCTION"), (":check", "", "give FILE.py:FUNCTION"),
    ("own.py:", "", "give FILE.py:FUNCTION"), ("own.py:a.b", "", "give FILE.py:FUNCTION"),
    ("none.py:check", "", "no such file"), (".:check", "", "no such file"),
    ("own.py:check", "def other(path): ...", "defines no check; it has other"),
    ("own.py:check", "", "it has no function at all"), ("own.py:check", "def check(:", "no Python"),
    ("own.py:check", "\0", "no Python"), ("own.py:check", "check = 3", "is a value and no function"),
    ("own.py:check", "import check", "is a module and no function"),
    ("own.py:check", "class check: ...", "is a class and no function"),
    ("own.py:check", "async def check(path): ...", "is a coroutine"),
    ("own.py:check", "def check(): ...", "must take one argument"),
    ("own.py:check", "def check(a, b): ...", "must take one argument"),
    ("own.py:check", "def check(a, *, b): ...", "must take one argument"),
    ("own.py:check", "class A:\n    def check(self): ...", "defines no check"),
])
def test_no_function_is_a_usage_error(word: str, source: str, told: str, tmp_path: Path) -> None:
    """Before anything is launched."""
    (tmp_path / "own.py").write_text(source)
    with pytest.raises(ConfigError, match="--reload-with") as caught:
        parse_function(word, tmp_path)
    assert told in str(caught.value)


@given(st.binary(max_size=60))
def test_odd_files_are_usage_errors(tmp_path_factory: pytest.TempPathFactory, source: bytes) -> None:
    """Nothing but a ConfigError for bytes of any kind."""
    place = tmp_path_factory.mktemp("odd") / "own.py"
    place.write_bytes(source)
    with pytest.raises(ConfigError):
        parse_function(f"{place}:check", place.parent)


@pytest.mark.parametrize(("value", "logged", "same"), [
    (1.0, 1.0109, True), (1.0, 1.02, False), (0.0, 0.001, True), (0.0, 0.0011, False), (-5.0, 5.0, False),
    (float("nan"), 1.0, False), (float("inf"), 1.0, False), (float("nan"), float("nan"), True),
    (1.0, float("nan"), False),
])
def test_tolerance(value: float, logged: float, same: bool) -> None:
    """1% and 0.001; what is not finite agrees with its like alone."""
    assert agrees(value, logged) is same


def called(body: str, place: Path, **more: Any) -> dict[str, Any]:
    """The facts of a reload whose function has this body."""
    save_file({"w": torch.full((4, 4), 0.5)}, place / "model.safetensors")
    program = place / "code" / "own.py"
    program.parent.mkdir()
    program.write_text("import os\nimport numpy\nfrom safetensors.numpy import load_file\n\ndef check(path):\n"
                       + "".join(f"    {line}\n" for line in body.splitlines()))
    where = Surroundings(interpreter=Path(sys.executable), workdir=place, environ=os.environ,
                         function=parse_function("code/own.py:check", place), **more)
    return reload_checkpoint(target_of(find_checkpoints(place)[-1]), where)


def test_metrics_of_the_reloaded_model(tmp_path: Path) -> None:
    """Numbers of every kind; what it prints, and where it writes, is its own; the working directory is the run's."""
    (tmp_path / "helper.py").write_text("def mean(state):\n    return state['w'].mean()\n")
    (tmp_path / "data.txt").write_text("2.0")
    answer = called("import helper\nprint('{\"status\": \"failed\"}' * 1000)\nscale = float(open('data.txt').read())\n"
                    "loss = helper.mean(load_file(path + '/model.safetensors')) * scale\n"
                    "return {'eval_loss': loss, 'hits': 3, 'shaped': loss.reshape(1), 'plain': float(loss)}", tmp_path)
    function = answer["function"]
    assert (answer["status"], answer["forward_ok"], function["status"]) == ("ok", True, "ok"), answer
    assert function["metrics"] == {"eval_loss": 1.0, "hits": 3.0, "shaped": 1.0, "plain": 1.0}
    assert answer["command"].endswith(f"--reload-with {tmp_path}/code/own.py:check") and answer["tensors"] == 1


@pytest.fixture(scope="module")
def child() -> ModuleType:
    """The module that runs in the child."""
    spec = importlib.util.spec_from_file_location("function_under_test", CHILD.parent / "_function.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def looked_at(child: ModuleType, value: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"metrics": {}, "nonfinite": [], "outputs": 0}
    child.look(value, found)
    return found


@pytest.mark.parametrize(("value", "outputs"), [
    (torch.ones(4, 3, requires_grad=True), 12), ([torch.ones(2), (torch.ones(3), torch.arange(4))], 5),
    ({"loss": torch.tensor(1.0), "logits": torch.ones(2, 2, dtype=torch.bfloat16), "cache": None}, 4),
    (np.ones((2, 3)), 6), ({"a": {"b": np.ones(3, np.float16)}}, 3), (np.ones(3, np.complex64), 3),
])
def test_outputs_are_a_forward_pass(value: Any, outputs: int, child: ModuleType) -> None:
    """Tensors and arrays, also in containers, of which the floating values are looked at; they name no metric."""
    assert looked_at(child, value) == {"metrics": {}, "nonfinite": [], "outputs": outputs}


@pytest.mark.parametrize(("value", "names"), [
    ({"eval_loss": float("nan"), "accuracy": 0.5}, ["eval_loss"]), ({"eval_loss": 10 ** 400}, ["eval_loss"]),
    ({"eval_loss": torch.tensor(float("nan"))}, ["eval_loss"]), (torch.tensor([1.0, float("inf")]), ["its outputs"]),
    ([np.ones(3), np.array([1.0, np.nan])], ["its outputs"]),
    (torch.tensor([1.0, float("nan")]).to(torch.float8_e5m2), ["its outputs"]),
])
def test_values_that_are_not_finite_are_named(value: Any, names: list[str], child: ModuleType) -> None:
    """Beside those that are."""
    assert looked_at(child, value)["nonfinite"] == names


@pytest.mark.parametrize(("value", "told"), [
    (None, "it returned None: return a mapping"), ("fine", "it returned a str"), ([], "it returned a list"),
    (0.5, 'outputs; give a number its metric\'s name: {"eval_loss": value}'),
    (torch.tensor(0.5), "give a number its metric's name"), ({}, "an empty mapping"),
    ({"eval_loss": "0.4"}, "eval_loss is a str"), ({"fine": True}, "fine is a bool"),
    ({"fine": np.bool_(True)}, "fine is a bool"), ({"fine": None}, "fine is None"), ({3: 0.4}, "no name of a metric"),
    ({"eval": {"loss": 0.4}}, "eval is a dict"), ({str(i): 1.0 for i in range(99)}, "50 at most"),
    ({"eval_loss": 1j}, "eval_loss is a complex"), (torch.arange(4), "no floating-point value"),
    (torch.ones(0, 4), "no floating-point value"), (np.array(["a", "b"]), "no floating-point value"),
])
def test_what_proves_nothing_is_refused(value: Any, told: str, child: ModuleType) -> None:
    """Nothing that could not have been otherwise, and no number without a name."""
    with pytest.raises(child.Unusable) as caught:
        looked_at(child, value)
    assert told in str(caught.value)


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text() | st.binary(),
                    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner), max_leaves=8))
def test_odd_values_are_refused_or_numbers(child: ModuleType, value: Any) -> None:
    """Of any nesting: metrics are finite numbers, and nothing else raises."""
    try:
        found = looked_at(child, value)
    except child.Unusable:
        return
    assert all(math.isfinite(number) for number in found["metrics"].values()) and (found["metrics"] or (
        found["nonfinite"]))


@pytest.mark.parametrize(("body", "status", "told"), [
    ("raise RuntimeError('Missing\\nkey')", "raised", "RuntimeError: Missing key (line 6)"),
    ("assert False, 'the loss is 9'", "refuted", "AssertionError: the loss is 9 (line 6)"),
    ("numpy.testing.assert_(False, 'of a library')", "raised", "AssertionError: of a library (line 6)"),
    ("raise SystemExit(0)", "raised", "SystemExit: 0 (line 6)"), ("import nowhere", "raised", "No module named"),
    ("os._exit(0)", "raised", "it ended the process, in own.py:check"),
    ("os.abort()", "raised", "SIGABRT, in own.py:check"),
    ("os.kill(os.getpid(), 9)", "not-attempted", "SIGKILL, in own.py:check"),
    ("return None", "unusable", "it returned None: return a mapping"),
    ("while True: pass", "not-attempted", "it did not end within 5 s, in own.py:check"),
    ("while True: print('x' * 100000)", "not-attempted", "it printed more than 16 MiB, in own.py:check"),
])
def test_function_that_gives_no_answer(body: str, status: str, told: str, tmp_path: Path) -> None:
    """The load stands, with all that the loader found; what became of the function is one line."""
    answer = called(body, tmp_path, time_limit_s=5.0 if "while" in body else 300.0)
    assert (answer["status"], answer["tensors"], answer["forward_ok"]) == ("ok", 1, None), answer
    function = answer["function"]
    assert function["status"] == status and told in function["error"] and "\n" not in function["error"], function


def test_file_that_is_gone_by_then(tmp_path: Path) -> None:
    """It was there when the run began."""
    (tmp_path / "own.py").write_text("def check(path): ...")
    function = parse_function("own.py:check", tmp_path)
    (tmp_path / "own.py").unlink()
    save_file({"w": torch.ones(2)}, tmp_path / "model.safetensors")
    answer = reload_checkpoint(target_of(find_checkpoints(tmp_path)[-1]), Surroundings(
        interpreter=Path(sys.executable), workdir=tmp_path, environ=os.environ, function=function))
    assert answer["function"]["status"] == "raised" and "FileNotFoundError" in answer["function"]["error"]


def test_checkpoint_that_does_not_load_is_not_handed_on(tmp_path: Path) -> None:
    """The function is called with what its loader found whole."""
    save_file({"w": torch.ones(2)}, tmp_path / "model.safetensors")
    target = target_of(find_checkpoints(tmp_path)[-1])
    (tmp_path / "model.safetensors").write_bytes(b"no header")
    (tmp_path / "own.py").write_text("def check(path):\n    open('called', 'w').close()")
    answer = reload_checkpoint(target, Surroundings(
        interpreter=Path(sys.executable), workdir=tmp_path, environ=os.environ,
        function=parse_function("own.py:check", tmp_path)))
    assert answer["status"] == "failed" and "function" not in answer and not (tmp_path / "called").exists()


EVALS = tuple(2.0 / step for step in range(1, 11))
"""eval/loss at steps 1 to 10: 0.2 at the last."""


def given_back(metrics: dict[str, float] | None = None, **more: Any) -> dict[str, Any]:
    function = {"name": "own.py:check", "status": "ok", "metrics": metrics or {}, "nonfinite": [], "outputs": 0, **more}
    return ok(function=function)


def judged(place: Path, *reloads: dict[str, Any], **more: Any) -> dict[str, Any]:
    run = replace(HEALTHY, reload=reloads, spec={"reload_with": "/own.py:check"}, extra={"eval/loss": EVALS})
    return build_report(replace(run, **more).write(place))


def check_of(report: dict[str, Any]) -> dict[str, Any]:
    gate = next(gate for gate in report["evidence"]["gates"] if gate["name"] == "save_reload")
    return next(check for check in gate["checks"] if check["name"] == "eval_agrees")


@pytest.mark.parametrize(("function", "decision", "codes"), [
    (given_back({"eval_loss": 0.2005}), "GO", []), (given_back({"val_loss": 0.2, "eval/loss": 0.2}), "GO", []),
    (given_back({"loss": 0.2}), "GO", []), (given_back(outputs=12), "GO", []),
    (given_back({"eval_loss": 2.5}), "NO-GO", ["eval-loss-disagrees"]),
    (given_back({"eval_loss": 0.25}), "NO-GO", ["eval-loss-disagrees"]),
    (given_back({"accuracy": 0.9}), "CONDITIONAL", ["eval-not-logged"]),
    (given_back({"eval_loss": 2.5, "accuracy": 0.9}), "NO-GO", ["eval-loss-disagrees"]),
    (given_back(nonfinite=["eval_loss"]), "NO-GO", ["forward-not-finite"]),
    (given_back(nonfinite=["its outputs"]), "NO-GO", ["forward-not-finite"]),
    (given_back(status="refuted", error="AssertionError: 9"), "NO-GO", ["reload-refuted"]),
    (given_back(status="raised", error="RuntimeError: 9"), "CONDITIONAL", ["reload-function-failed"]),
    (given_back(status="unusable", error="it returned None"), "CONDITIONAL", ["reload-function-failed"]),
    (given_back(status="not-attempted", error="too slow"), "CONDITIONAL", ["reload-not-attempted"]),
    (ok(), "CONDITIONAL", ["evidence-incomplete"]),
    (ok(status="failed", error="missing"), "NO-GO", ["reload-failed"]),
])
def test_what_the_function_gave_decides(
    function: dict[str, Any], decision: str, codes: list[str], tmp_path: Path
) -> None:
    """A value at the checkpoint's step is held against it; a name without a series has its own outcome."""
    report = judged(tmp_path, function)
    assert (report["decision"], [one["code"] for one in report["evidence"]["reasons"]]) == (decision, codes), report
    assert function.get("function") == report["evidence"]["reload"]["function"]


@pytest.mark.parametrize("odd", [
    {"metrics": {"eval_loss": 10 ** 400}}, {"metrics": {"eval_loss": "0.2"}}, {"metrics": {"eval_loss": True}},
    {"metrics": {"": 0.2}}, {"metrics": 3}, {"metrics": None}, {"nonfinite": [3]}, {"status": "fine"}, {"name": 3},
    {"outputs": "many"}, {"error": ["no"]},
])
def test_odd_facts_of_a_function_are_no_agreement(odd: dict[str, Any], tmp_path: Path) -> None:
    """A report is written, and none of them is an evaluation that agrees."""
    assert check_of(judged(tmp_path, given_back(**odd)))["status"] != "passed"
    value = {"path": "step_10", "step": 10, "status": "ok", "is_control": False, "metrics": {"eval_loss": 0.2}}
    assert check_of(judged_by_its_own_mode(tmp_path / "own", [{**value, **odd}]))["status"] in (
        "unproven", "not_applicable", "passed" if "metrics" not in odd and "status" not in odd else "")


def test_metric_that_is_nan_by_design_agrees_with_its_like(tmp_path: Path) -> None:
    """Logged as NaN, and returned as NaN."""
    report = judged(tmp_path, given_back({"eval_loss": 0.2}, nonfinite=["eval_auc"]),
                    extra={"eval/loss": EVALS, "eval/auc": (float("nan"),) * 10})
    assert report["decision"] == "GO", report["summary"]


SPARSE = {"facts": FACTS, "steps": (2, 4, 6, 8, 10), "loss": (3.0, 2.0, 1.0, 0.5, 0.4), "grad_norm": (1.0,) * 5,
          "lr": (0.1,) * 5, "extra": {"eval/loss": (1.0, 0.8, 0.6, 0.4, 0.3)}}
"""Evaluations at every other step."""


@pytest.mark.parametrize(("step", "value", "decision", "told"), [
    (10, 0.3, "GO", "at step 10"), (10, 0.4, "NO-GO", "at step 10"), (10, 0.35, "NO-GO", "0.3 (eval/loss at step 10)"),
    (6, 0.6, "GO", "at step 6"), (6, 0.8, "NO-GO", "at step 6"), (6, 0.5, "CONDITIONAL", "before the last update"),
    (3, 1.05, "CONDITIONAL", "none at step 3"), (11, 0.4, "NO-GO", "at step 10"),
    (7, 0.4, "GO", "at step 8"), (None, 0.3, "GO", "at step 10"),
    (None, 0.6, "GO", "at step 6"),
    (None, 3.0, "NO-GO", "agrees with none"),
])
def test_step_of_the_checkpoint_names_the_value(
    step: int | None, value: float, decision: str, told: str, tmp_path: Path
) -> None:
    """At its step or beside it; a model without a step is one of those that were evaluated."""
    reload = {**given_back({"eval_loss": value}), "step": step, "path": "step_10" if step else "final"}
    saved = facts(whole(0), whole(10)) if step else facts(whole(0), whole(10), whole(None, "final"))
    check = check_of(judged(tmp_path, reload, checkpoints=saved, **SPARSE))
    status = {"GO": "passed", "NO-GO": "failed", "CONDITIONAL": "unproven"}[decision]
    assert check["status"] == status and told in f"{check['observed']} {check['why']}", check


@pytest.mark.parametrize(("value", "decision"), [(0.2, "GO"), (2.0, "GO"), (0.25, "NO-GO"), (0.5, "NO-GO")])
def test_model_without_a_step_is_held_to_the_update_that_it_was_saved_after(
    value: float, decision: str, tmp_path: Path,
) -> None:
    """The probe saw it after update 10, logged as 0.2; another step's value counts where it is the best or worst."""
    function = {"name": "own.py:check", "status": "ok", "error": None, "metrics": {"eval_loss": value}, "nonfinite": [],
                "outputs": 0}
    reload = ok(path="model.pt", step=None, function=function, marks="moved", marks_at=10)
    run = replace(HEALTHY, reload=(reload,), checkpoints=facts(whole(None, "model.pt")),
                  spec={"reload_with": "/own.py:check"}, extra={"eval/loss": EVALS})
    report = build_report(run.write(tmp_path / "out"))
    assert report["decision"] == decision, report["summary"]


def test_model_that_was_never_evaluated_is_no_disagreement(tmp_path: Path) -> None:
    """The run went on, or saved between two evaluations: unproven, with the nearest values."""
    late = {**SPARSE, "steps": (), "loss": (1.0,) * 9 + (0.5,), "grad_norm": (1.0,) * 10, "lr": (0.1,) * 10,
            "extra": {"eval/loss": (1.0, 0.8, 0.6)}}
    final = {**given_back({"eval_loss": 0.1}), "step": None, "path": "final"}
    check = check_of(judged(tmp_path / "a", final, checkpoints=facts(whole(10), whole(None, "final")), **late))
    assert check["status"] == "unproven" and "went on to step 10" in check["why"], check
    check = check_of(judged(tmp_path / "b", {**given_back({"eval_loss": 0.1}), "step": 8}, **late))
    assert check["status"] == "unproven" and "0.6 (eval/loss at step 3)" in check["why"], check


def test_checkpoints_that_are_numbered_by_epochs(tmp_path: Path) -> None:
    """The third evaluation is that of checkpoint 3; one whose step was never evaluated is no other's."""
    epochs = {**SPARSE, "steps": (20, 40, 60, 80, 100), "checkpoints": facts(whole(1), whole(3))}
    third = {**given_back({"eval_loss": 0.6}), "step": 3}
    assert check_of(judged(tmp_path / "a", third, **epochs))["status"] == "passed"
    third["function"]["metrics"]["eval_loss"] = 0.3
    assert check_of(judged(tmp_path / "b", third, **epochs))["status"] == "unproven"


@pytest.mark.parametrize(("source", "runs"), [
    ("main()", True), ("def main(): ...\nif __name__ == '__main__':\n    main()", False), ("def (", False),
    ("if '__main__' == __name__ and True: main()", False), ("if name: main()", True),
])
def test_program_that_trains_when_it_is_imported(source: str, runs: bool, tmp_path: Path) -> None:
    """It is no file to import a function from."""
    (tmp_path / "train.py").write_text(source)
    assert runs_when_imported(tmp_path / "train.py") is runs


@pytest.mark.parametrize(("path", "aside"), [
    ("saved/ema.pt", True), ("saved/model_ema.pt", True), ("out/critic", True), ("saved/reference.pt", True),
    ("init.pt", True), ("saved/final.pt", False), ("saved", False), ("out/merged", False), ("schema.pt", False),
])
def test_what_lies_beside_the_model_is_not_evaluated(path: str, aside: bool) -> None:
    """By its name: its evaluation is another one."""
    assert is_named_aside(path) is aside


def test_steps_from_0_meet_checkpoints_from_1(tmp_path: Path) -> None:
    """The value of metric step 9 is that of checkpoint 10."""
    run = {"facts": replace(FACTS, step_base=0), "first_step": 0}
    assert judged(tmp_path / "a", given_back({"eval_loss": 0.2}), **run)["decision"] == "GO"
    assert judged(tmp_path / "b", given_back({"eval_loss": 0.3}), **run)["decision"] == "NO-GO"


def test_evaluation_of_another_model_at_the_same_step_hides_nothing(tmp_path: Path) -> None:
    """As with load_best_model_at_end: the best model's evaluation is logged after the last one's, at its step."""
    twice = {"steps": (*range(1, 11), 10), "loss": (1.0,) * 10 + (0.5,), "grad_norm": (1.0,) * 11, "lr": (0.1,) * 11,
             "extra": {"eval/loss": (*EVALS, 1.5)}}
    assert judged(tmp_path / "a", given_back({"eval_loss": 0.2}), **twice)["decision"] == "GO"
    assert judged(tmp_path / "b", given_back({"loss": 0.2}), **twice)["decision"] == "GO"
    assert judged(tmp_path / "c", given_back({"eval_loss": 0.9}), **twice)["decision"] == "NO-GO"
    two = {"extra": {"eval/loss": (1.5,) * 10, "eval_loss": EVALS}}
    assert judged(tmp_path / "d", given_back({"loss": 0.2}), **two)["decision"] == "GO"


def own(step: int, value: float, *, is_control: bool = False, **more: Any) -> dict[str, Any]:
    return {"path": f"step_{step}", "step": step, "status": "ok", "is_control": is_control,
            "metrics": {"eval_loss": value}, **more}


@pytest.mark.parametrize(("entries", "decision", "told"), [
    ([own(10, 0.2)], "GO", "by its own evaluation mode"), ([own(10, 0.9)], "CONDITIONAL", "no other checkpoint shows"),
    ([], "CONDITIONAL", "it gave no evaluation metric"),
    ([own(10, 0.2), own(4, 0.9, is_control=True)], "GO", "by its own evaluation mode"),
    ([own(10, 0.9), own(4, 0.5, is_control=True)], "NO-GO", "another checkpoint eval_loss 0.5 against 0.5"),
    ([own(10, 0.9), own(4, 0.9, is_control=True)], "CONDITIONAL", "no other checkpoint shows"),
    ([own(10, 0.9), own(4, 0.5, is_control=True, status="failed")], "CONDITIONAL", "no other checkpoint shows"),
    ([own(10, 0.9, status="failed", error="exit code 1")], "CONDITIONAL", "exit code 1"),
    ([own(10, 0.9, status="not-made", error="no mode is known")], "CONDITIONAL", "no mode is known"),
    ([own(10, 0.9, metrics={"eval_bleu": 3.25})], "CONDITIONAL", "eval_bleu=3.25 the run logged no value of these"),
])
def test_own_evaluation_mode_counts_where_it_can_be_compared(
    entries: list[dict[str, Any]], decision: str, told: str, tmp_path: Path
) -> None:
    """A disagreement is the model's fault where the same mode agrees for another checkpoint; else it is unproven."""
    report = judged_by_its_own_mode(tmp_path, entries)
    check = check_of(report)
    assert report["decision"] == decision and told in f"{check['observed']} {check['why']}", report["summary"]
    assert (decision == "CONDITIONAL") == ("eval-check-not-made" in str(report["evidence"]["reasons"]))
    is_open = any(one["metrics"].get("eval_loss") == 0.9 and one["status"] == "ok" for one in entries[:1])
    titles = [item["title"] for item in report["findings"] if "own evaluation of what it saved is" in item["title"]]
    assert len(titles) == (is_open and decision == "CONDITIONAL")


@pytest.mark.parametrize(("name", "last", "given", "control", "decision", "told"), [
    ("rec_loss", 0.3141592, 0.3141591, 0.5, "GO", "eval_rec_loss 0.314159 against 0.314159"),
    ("rec_loss", 0.3141592, 0.3140, 0.5, "NO-GO", "not the model that was evaluated"),
    ("rec_loss", 0.3141592, 0.3141592, 0.3141592, "NO-GO", "not the model that was evaluated"),
    ("accuracy", 1.0, 1.0, 0.5, "NO-GO", "not the model that was evaluated"),
    ("accuracy", 0.0, 0.0, 0.5, "NO-GO", "not the model that was evaluated"),
    ("accuracy", 0.8125, 0.8125, 0.5, "GO", ""), ("accuracy", 0.81327, 0.81327, 0.5, "GO", "to five digits"),
])
def test_metric_that_agrees_to_five_digits_is_of_that_model(
    name: str, last: float, given: float, control: float, decision: str, told: str, tmp_path: Path
) -> None:
    """Another metric of the same answer may depend on the state of the training, as a loss with a part that begins at
    a step; a constant shows nothing, and a share of few samples only that it cannot be told.
    """
    metric = f"eval_{name}"
    entries = [own(10, 0.9, metrics={"eval_loss": 0.9, metric: given}),
               own(4, 0.5, is_control=True, metrics={"eval_loss": 0.5, metric: control})]
    report = judged_by_its_own_mode(tmp_path, entries, **{f"eval/{name}": (0.7,) * 9 + (last,)})
    check = check_of(report)
    assert report["decision"] == decision and told in f"{check['observed']} {check['why']}", check
    assert decision != "GO" or not told or "eval_loss 0.9 against 0.2" in check["observed"]
    assert bool(told) != any("own evaluation of what" in item["title"] for item in report["findings"])


@pytest.mark.parametrize(("forward_ok", "title"), [
    (None, "no forward pass"), (True, "nothing shows that the reloaded model"),
])
def test_evaluation_that_was_not_asked_for_is_named(forward_ok: bool | None, title: str, tmp_path: Path) -> None:
    """One low finding tells what would prove more; the program is not run again unasked."""
    out_dir = replace(HEALTHY, reload=(ok(forward_ok=forward_ok),)).write(tmp_path)
    append(out_dir, [{"path": "step_10", "step": 10, "status": "not-asked", "is_control": False}])
    report = build_report(out_dir)
    (finding,) = report["findings"]
    assert (report["decision"], finding["severity"], title in finding["title"]) == ("GO", "low", True)
    assert "--eval-check" in finding["fix"] and "--reload-with FILE.py:FUNCTION" in finding["fix"]


def test_model_that_was_evaluated_needs_no_other_use(tmp_path: Path) -> None:
    """Its own mode is a forward pass."""
    out_dir = replace(HEALTHY, reload=(ok(forward_ok=None),), extra={"eval/loss": EVALS}, spec={"eval_check": True})
    append(out_dir.write(tmp_path), [own(10, 0.2)])
    report = build_report(tmp_path)
    assert (report["decision"], report["findings"]) == ("GO", [])


def judged_by_its_own_mode(place: Path, entries: list[dict[str, Any]], **more: tuple[float, ...]) -> dict[str, Any]:
    out_dir = replace(HEALTHY, extra={"eval/loss": EVALS, **more}, spec={"eval_check": True}).write(place)
    append(out_dir, entries)
    return build_report(out_dir)


def append(out_dir: Path, entries: list[dict[str, Any]]) -> None:
    with (out_dir / outdir.JOURNAL).open("a") as stream:
        for number, entry in enumerate(entries, start=1000):
            stream.write(json.dumps({"seq": number, "time": 0.0, "event": "own-evaluation", **entry}) + "\n")


def test_name_of_the_checkpoint_tells_the_value(tmp_path: Path) -> None:
    """In the digits that it shows, where no series was logged."""
    saved = facts(whole(10, "epoch=1-step=10-val_loss=0.04", metrics={"val_loss": 0.04}))
    reload = {**given_back({"val_loss": 0.0449}), "path": "epoch=1-step=10-val_loss=0.04"}
    assert judged(tmp_path / "a", reload, checkpoints=saved, extra={})["decision"] == "GO"
    reload["function"]["metrics"]["val_loss"] = 0.4
    assert judged(tmp_path / "b", reload, checkpoints=saved, extra={})["decision"] == "NO-GO"


@pytest.mark.parametrize("asked", [{"reload_with": "/own.py:check"}, {"eval_check": True}])
def test_function_makes_saving_needed(asked: dict[str, Any], tmp_path: Path) -> None:
    """A run that saved nothing has nothing to give it, nor to evaluate."""
    run = RunDir(facts=replace(FACTS, checkpoint_asked=False), spec=asked)
    report = build_report(run.write(tmp_path))
    assert (report["decision"], [one["code"] for one in report["evidence"]["reasons"]]) == (
        "CONDITIONAL", ["checkpoint-missing"])


def test_missing_forward_pass_names_what_would_make_it(tmp_path: Path) -> None:
    """The flag stands beside what was loaded without one."""
    report = build_report(replace(HEALTHY, reload=(ok(forward_ok=None, adapter="torch"),)).write(tmp_path))
    gate = next(gate for gate in report["evidence"]["gates"] if gate["name"] == "save_reload")
    reload = next(check for check in gate["checks"] if check["name"] == "reload")
    assert "--reload-with FILE.py:FUNCTION" in reload["observed"] and report["decision"] == "GO"
    (finding,) = [item for item in report["findings"] if "forward pass" in item["title"]]
    assert "--reload-with FILE.py:FUNCTION" in finding["fix"] and finding["severity"] == "low"
    used = build_report(HEALTHY.write(tmp_path / "used"))
    assert not [item for item in used["findings"] if "forward pass" in item["title"]]


def test_command_calls_it(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its values stand beside those that are known of the checkpoint; without --reload it would do nothing."""
    from harness.cli import main

    saved = tmp_path / "saved"
    saved.mkdir()
    torch.save({"w": torch.full((4,), 0.25)}, saved / "epoch=1-step=7-val_loss=0.25.pt")
    (tmp_path / "own.py").write_text(
        "import torch\ndef check(path):\n    return {'val_loss': torch.load(path, weights_only=True)['w'].mean()}\n"
        "def other(path):\n    return {'val_loss': 2.0}\ndef third(path):\n    raise ValueError('no')\n")
    monkeypatch.chdir(tmp_path)
    outcomes = {}
    for name in ("check", "other", "third"):
        code = main(["checkpoints", "saved", "--reload", "--reload-with", f"own.py:{name}"])
        outcomes[name] = code, json.loads(capsys.readouterr().out)["reload"]
    assert [code for code, _ in outcomes.values()] == [0, 1, 1]
    assert outcomes["check"][1]["agreement"] == [{"metric": "val_loss", "value": 0.25, "logged": 0.25, "agrees": True}]
    assert outcomes["other"][1]["agreement"][0]["agrees"] is False
    assert outcomes["third"][1]["function"]["error"] == "ValueError: no (line 7)"
    assert main(["checkpoints", "saved", "--reload-with", "own.py:check"]) == 2
    assert main(["checkpoints", "saved", "--reload-timeout", "9"]) == 2
    assert main(["checkpoints", "saved", "--reload", "--reload-timeout", "nan"]) == 2
    capsys.readouterr()
    assert main(["checkpoints", "saved", "--reload", "--reload-with", "own.py:check", "--reload-timeout", "0.01"]) == 1
    assert "within 0.01 s" in json.loads(capsys.readouterr().out)["reload"]["error"]
    assert main(["checkpoints", "saved", "--reload", "--reload-with", "own.py:none"]) == 2
