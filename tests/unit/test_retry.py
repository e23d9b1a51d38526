"""What a retry may change, what makes it the same job, and how its metrics are held against the run before."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.command.parse import parse_command
from harness.errors import ConfigError
from harness.frameworks.areno import ArenoAdapter
from harness.frameworks.base import FrameworkFacts
from harness.frameworks.lightning import LightningAdapter
from harness.frameworks.recorded import command_settings
from harness.frameworks.transformers import TransformersAdapter
from harness.judge.lineage import ledger
from harness.judge.report import build_report, write_report
from harness.record.redaction import Redactor
from harness.record.run_record import open_record
from harness.retry.changes import find_changes, kind_of
from harness.retry.decide import plan_retry
from harness.retry.earlier import read_earlier
from harness.retry.identity import UNPROVEN, identity_differences, identity_of
from harness.retry.noise import noise_of, whole_runs
from harness.retry.overlap import compare_with_earlier, declares_determinism, overlap
from harness.spec import RunSpec
from harness.supervise.references import named_reference
from tests.unit.run_dirs import RunDir
from tests.unit.test_verify import journaled

HERE = Path(__file__).parent


def spec_of(place: Path, command: str = "python train.py", **more: Any) -> RunSpec:
    """A request in that directory."""
    return RunSpec(train_cmd=command, out_dir=place / "out", workdir=place, run_id="r-1", **more)


def facts_of(adapter: Any, command: str, place: Path) -> FrameworkFacts:
    """What an adapter declares."""
    facts: FrameworkFacts = adapter.facts(parse_command(command, place), spec_of(place, command), "")
    return facts


def settings_of(place: Path, command: str, **more: Any) -> dict[str, str]:
    """As the journal holds them."""
    spec = spec_of(place, command, **more)
    values: dict[str, str] = command_settings(
        parse_command(command, place), spec, Redactor.from_run((), {}))["values"]
    return values


ARENO = "areno train --algo gspo --ckpt ./tiny --batch-size 8 "


@pytest.mark.parametrize(("before", "after", "kinds"), [
    ("--max-running-prompts 8", "--max-running-prompts 4", {"max_running_prompts": "capacity"}),
    ("--mini-bs 4", "--mini-bs=2 --gradient-accumulation-steps 2",
     {"mini_bs": "capacity", "gradient_accumulation_steps": "capacity"}),
    ("", "--world-size 2 --drop-rollout-state", {"world_size": "capacity", "drop_rollout_state": "capacity"}),
    ("--max-new-tokens 512", "--max-new-tokens 256", {"max_new_tokens": "semantic"}),
    ("--max-context-len 4096", "", {"max_context_len": "semantic"}),
    ("--lr 1e-4", "--lr 1e-5", {"lr": "semantic"}), ("--gspo-clip-eps 0.1", "", {"gspo_clip_eps": "semantic"}),
    ("--metrics-log-dir a", "--metrics-log-dir b", {"metrics_log_dir": "observability"}),
    ("--lr 1e-4", "--lr=0.0001", {}), ("--what-ever 1", "--what-ever 2", {"what_ever": "semantic"}),
])
def test_areno_settings_have_their_kind(before: str, after: str, kinds: dict[str, str], tmp_path: Path) -> None:
    """The list of capacity settings; everything else is semantic, token limits above all."""
    facts = facts_of(ArenoAdapter(), ARENO, tmp_path)
    found = find_changes(settings_of(tmp_path, ARENO + before), settings_of(tmp_path, ARENO + after), facts, ())
    assert {change.key: change.kind for change in found} == kinds


HF = "torchrun --nproc-per-node {} train.py --per_device_train_batch_size {} --gradient_accumulation_steps {}"


@pytest.mark.parametrize(("after", "kind"), [
    ((1, 4, 2), "capacity"), ((2, 4, 1), "capacity"), ((4, 1, 2), "capacity"), ((1, 4, 1), "semantic"),
    ((2, 8, 1), "semantic"), ((1, 8, 2), "semantic")])
def test_factors_of_the_batch_may_change_while_their_product_stays(
    after: tuple[int, int, int], kind: str, tmp_path: Path
) -> None:
    """Processes x micro-batch x accumulation is the batch of an update."""
    facts = facts_of(TransformersAdapter(), "python train.py", tmp_path)
    found = find_changes(settings_of(tmp_path, HF.format(1, 8, 1)), settings_of(tmp_path, HF.format(*after)), facts, ())
    assert {change.kind for change in found} == {kind}


def test_default_of_a_factor_counts(tmp_path: Path) -> None:
    """8 samples a device are the Trainer's default; a factor that is no number proves nothing."""
    facts = facts_of(TransformersAdapter(), "python train.py", tmp_path)
    assert kind_of("gradient_accumulation_steps", facts, {}, {
        "per_device_train_batch_size": "4", "gradient_accumulation_steps": "2"}) == "capacity"
    assert kind_of("gradient_accumulation_steps", facts, {}, {
        "per_device_train_batch_size": "auto", "gradient_accumulation_steps": "2"}) == "semantic"
    lightning = facts_of(LightningAdapter(), "python train.py", tmp_path)
    assert kind_of("trainer.accumulate_grad_batches", lightning, {"batch_size": "8"}, {
        "batch_size": "4", "trainer.accumulate_grad_batches": "2"}) == "capacity"


@pytest.mark.parametrize(("key", "kind"), [
    ("lr", "semantic"), ("config:optim.lr", "semantic"), ("seed", "semantic"), ("world_size", "semantic"),
    ("num_workers", "capacity"), ("config:data.num_workers", "capacity"), ("log_dir", "observability"),
    ("frobnicate", "unknown"), ("word1", "unknown"), ("env.CUDA_VISIBLE_DEVICES", "capacity"),
    ("launched.program", "semantic"),
    ("env.MY_FLAG", "unknown"), ("max_length", "semantic"), ("max_steps", "semantic"), ("resume", "semantic")])
def test_settings_of_any_trainer(key: str, kind: str) -> None:
    """What every trainer calls alike; the rest is unknown, which is refused too."""
    assert kind_of(key, FrameworkFacts(name="torch", reason=""), {}, {key: "1"}) == kind


def test_config_values_assignments_and_own_paths_are_recorded(tmp_path: Path) -> None:
    """A config's content counts, not its place; the out-dir and the run id are no difference."""
    (tmp_path / "a.yaml").write_text("optim: {lr: 1e-4}\n# a comment\nseed: 1\n")
    (tmp_path / "b.yaml").write_text("seed: 1\noptim:\n  lr: 0.0001\n")
    rest = f"--log-dir {tmp_path}/out/r-1 --flag"
    one = settings_of(tmp_path, f"OMP_NUM_THREADS=1 python train.py --config a.yaml {rest}")
    two = settings_of(tmp_path, f"OMP_NUM_THREADS=1 python train.py --config=b.yaml {rest}")
    assert one["log_dir"] == "{out_dir}/{run_id}" and one["flag"] == "true" and one["env.OMP_NUM_THREADS"] == "1"
    facts = FrameworkFacts(name="torch", reason="")
    assert find_changes(one, two, facts, ()) == ()
    (tmp_path / "b.yaml").write_text("seed: 2\noptim:\n  lr: 0.0001\n")
    changed = find_changes(one, settings_of(tmp_path, "python train.py --config=b.yaml"), facts, ("seed",))
    assert next(change for change in changed if change.key == "config:seed").allowed


def test_secrets_are_not_recorded(tmp_path: Path) -> None:
    """The value of a token's flag is masked, as in every artifact."""
    assert "hunter2hunter2" not in str(settings_of(tmp_path, "python train.py --hub-token hunter2hunter2"))


WORDS = st.dictionaries(st.text("abc_.:-*", min_size=1, max_size=8), st.text("01ae.-", max_size=5), max_size=6)


@given(WORDS, WORDS)
def test_changes_of_any_settings(before: dict[str, str], after: dict[str, str]) -> None:
    """No difference with itself; each difference is found from both sides; nothing semantic or unknown is allowed."""
    facts = FrameworkFacts(name="torch", reason="")
    assert find_changes(before, before, facts, ()) == ()
    there, back = find_changes(before, after, facts, ()), find_changes(after, before, facts, ())
    assert {change.key for change in there} == {change.key for change in back}
    assert all(change.allowed == (change.kind in ("capacity", "observability")) for change in there)
    assert all(change.allowed for change in find_changes(before, after, facts, [change.key for change in there]))


def test_identity_names_each_difference() -> None:
    """Every part by its name, packages one by one; what neither run tells is none."""
    before = {"commit": "a", "diff": "clean", "dataset": "sha256:1", "packages": {"torch": "2.1", "x": "1"}}
    after = {"commit": "b", "diff": "clean", "dataset": None, "packages": {"torch": "2.2", "x": "1"}}
    found = {item.what: item for item in identity_differences(before, after, ("commit",))}
    assert set(found) == {"commit", "dataset", "packages"}
    assert (found["packages"].before, found["packages"].after) == ("torch 2.1", "torch 2.2")
    assert (found["commit"].approved, found["dataset"].known) == (True, False)


def test_files_that_the_command_names_are_part_of_the_identity(tmp_path: Path) -> None:
    """A reward that was mended in place is another job, though the command is the same; what it writes is no part."""
    for name in ("reward.py", "loader.py", "train.txt"):
        (tmp_path / name).write_text("first")
    command = "areno train --reward-fn-path reward.py --dataset-loader-fn loader.py:load --metrics-log-dir train.txt"
    places = [RunDir().write(tmp_path / name) for name in "ab"]
    found = []
    for place in places:
        spec = spec_of(tmp_path, command)
        told = command_settings(parse_command(command, tmp_path), spec, Redactor.from_run((), {}))
        journaled(place, "settings", **told)
        (tmp_path / "reward.py").write_text("second")
        (tmp_path / "train.txt").write_text("second")
        with open_record(place) as record:
            found.append(identity_of(record))
    difference, = identity_differences(found[0], found[1])
    assert difference.what == "files" and difference.before.startswith("reward_fn_path ")
    assert set(found[0]["files"]) == {"reward_fn_path", "dataset_loader_fn"}


@pytest.mark.parametrize(("flags", "unproven", "model"), [
    ("--model_name_or_path some-org/model", True, "some-org/model"),
    (f"--model_name_or_path some-org/model --model_revision {'0a' * 20}", False, f"some-org/model@{'0a' * 20}"),
    ("--model resnet50", False, None), ("--model some-org/model", True, "some-org/model"), ("--lr 1", False, None),
    ("--model_name_or_path weights", False, "sha256:"), ("--model_name_or_path gone", True, "gone"),
])
def test_weights_that_bear_a_name_alone_are_not_proven_to_be_the_same(
    flags: str, unproven: bool, model: str | None, tmp_path: Path
) -> None:
    """A repository without a commit may have moved; a local directory has its fingerprint; an architecture is none."""
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "pytorch_model.bin").write_bytes(b"weights")
    place = RunDir().write(tmp_path / "a")
    told = command_settings(parse_command(f"python train.py {flags}", tmp_path), spec_of(tmp_path, "x"),
                            Redactor.from_run((), {}))
    journaled(place, "model", **(named_reference("model", told, tmp_path) or {"source": None}))
    with open_record(place) as record:
        identity = identity_of(record)
    assert (identity["model"] or "").startswith(model or "") and (identity["model"] is None) == (model is None)
    found = identity_differences(identity, identity)
    assert [(item.what, item.differs, item.known) for item in found] == [("model", False, False)] * unproven
    assert all(item.approved for item in identity_differences(identity, identity, ("model",)))
    earlier = replace(read_earlier(RunDir(exit_code=1).write(tmp_path / "b")), settings={}, identity=identity)
    assert not plan_retry(earlier, {}, identity, FrameworkFacts(name="torch", reason=""), ()).findings


def test_run_that_launched_nothing_has_used_nothing(tmp_path: Path) -> None:
    """Its hub was out of reach, so that it cannot tell of weights; the retry's are no difference."""
    earlier = replace(read_earlier(RunDir(exit_code=1).write(tmp_path)), settings={}, launched=False)
    facts = FrameworkFacts(name="torch", reason="")
    assert not plan_retry(earlier, {}, {**earlier.identity, "model": "sha256:1"}, facts, ()).identity
    named = replace(earlier, identity={**earlier.identity, "model": f"a/b{UNPROVEN}"})
    assert not plan_retry(named, {}, {**earlier.identity, "model": "sha256:1"}, facts, ()).identity
    found = plan_retry(replace(earlier, launched=True), {}, {**earlier.identity, "model": "sha256:1"}, facts, ())
    assert [item.what for item in found.identity] == ["model"]


LINE = {step: 3.0 / step for step in range(1, 11)}


def test_overlap_counts_up_to_what_failed_the_run_before() -> None:
    """Its NaN at step 6 is why there is a retry; the steps before it must be the same."""
    broken = {**LINE, 6: math.nan, 7: math.nan}
    found = overlap(broken, LINE, rtol=0.0, atol=0.0)
    assert (found["points"], found["first"], found["exact"]) == (5, None, True)


@pytest.mark.parametrize(("after", "step"), [
    ({**LINE, 4: math.nan}, 4), ({**LINE, 9: 5.0}, 9), ({k: v for k, v in LINE.items() if k != 5}, 5),
    (dict.fromkeys(LINE, math.nan), 1)])
def test_overlap_finds_the_first_step_that_differs(after: dict[int, float], step: int) -> None:
    """A NaN never equals, nor does a step that is missing in the middle."""
    assert overlap(LINE, after, rtol=0.1, atol=0.0)["first"]["step"] == step


def test_nan_throughout_equals_nothing() -> None:
    """Two trajectories of NaN have no point in common."""
    nan = dict.fromkeys(LINE, math.nan)
    assert overlap(nan, nan, rtol=1.0, atol=1.0)["points"] == 0


def test_coarser_logging_is_no_divergence() -> None:
    """Logging every 2 steps is observability: the steps of both are compared."""
    found = overlap(LINE, {step: LINE[step] for step in range(2, 11, 2)}, rtol=0.0, atol=0.0)
    assert (found["points"], found["first"]) == (5, None)


@given(st.lists(st.dictionaries(st.integers(0, 9), st.floats(allow_nan=True), max_size=8), max_size=4))
def test_noise_of_any_runs(runs: list[dict[int, float]]) -> None:
    """None from one run or without a step in common; else finite, and 0 for runs that are equal."""
    found = noise_of(runs)
    assert found is None or (len(runs) > 1 and found >= 0 and math.isfinite(found))
    equal = noise_of([LINE, LINE, LINE])
    assert equal == pytest.approx(0.0, abs=1e-12) and noise_of([LINE]) is None


def test_whole_runs_of_a_lineage_are_of_one_job() -> None:
    """What failed, was refused or was another job before an approved change measures no noise."""
    row = {"launched": True, "decision": "GO", "terminal_state": "SUCCEEDED", "reasons": [], "changes": []}
    rows = [
        {**row, "out_dir": "another-rate"}, {**row, "out_dir": "first", "changes": [{"kind": "semantic"}]},
        {**row, "out_dir": "failed", "decision": "NO-GO", "terminal_state": "FAILED"},
        {**row, "out_dir": "refused", "launched": False},
        {**row, "out_dir": "noisy", "decision": "CONDITIONAL", "reasons": ["retry-metrics-differ"]},
        {**row, "out_dir": "more", "decision": "CONDITIONAL", "reasons": ["retry-metrics-differ", "lr-zero-warmup"]},
        {**row, "out_dir": "less-memory", "changes": [{"kind": "capacity"}]}]
    assert [str(place) for place in whole_runs(rows)] == ["first", "noisy", "less-memory"]


def test_determinism_counts_where_both_declare_it() -> None:
    """By a setting of the trainer itself."""
    assert declares_determinism([{"config:trainer.deterministic": "true"}, {"deterministic": "True"}])
    assert not declares_determinism([{"deterministic": "true"}, {}])


def test_ledger_keeps_the_first_failure_and_counts_what_was_launched() -> None:
    """A refused retry is a row and no try."""
    row = {"out_dir": "d", "timestamp": None, "harness_version": "1", "outcome": "broken", "terminal_state": "FAILED",
           "reasons": ["exit-code"], "primary_cause": "oom", "changes": [], "identity": []}
    found = ledger([
        {**row, "run_id": "a", "launched": True, "decision": "NO-GO"},
        {**row, "run_id": "b", "launched": False, "decision": "NO-GO"},
        {**row, "run_id": "c", "launched": True, "decision": "GO"}])
    assert (found["tries"], found["pass_at_1"], found["pass_at_k"]) == (2, False, True)
    assert (found["first_failure"]["run_id"], found["first_run_id"]) == ("a", "a")


# -- the gate

ENTRY: dict[str, Any] = {"of": "x", "of_run_id": "x-1", "approve": [], "changes": [], "identity": [], "attempts": [{
    "run_id": "x-1", "out_dir": "x", "timestamp": None, "harness_version": "1", "launched": True, "decision": "NO-GO",
    "outcome": "broken", "terminal_state": "FAILED", "reasons": [], "primary_cause": None, "changes": [],
    "identity": []}]}
COMPARED: dict[str, Any] = {"changes": [], "deterministic": False, "stated": False, "rollout": False, "rtol": 0.05,
                            "atol": 0.0}
CHANGED = {"key": "k", "before": "1", "after": "2", "kind": "unknown", "approved": False}
DIFFERENT = overlap(LINE, {**LINE, 3: 9.0}, rtol=0.05, atol=0.0)
SAME = overlap(LINE, LINE, rtol=0.05, atol=0.0)


def retried(place: Path, entry: dict[str, Any], compared: dict[str, Any] | None) -> dict[str, Any]:
    """The report of a healthy run that is a retry."""
    RunDir(spec={"retry_of": place / "x"}).write(place)
    journaled(place, "retry", **{**ENTRY, **entry})
    if compared is not None:
        journaled(place, "retry-comparison", **{**COMPARED, **compared})
    return build_report(place)


HEALTHY: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "nothing changed": ({}, {"tags": [{"tag": "loss", **SAME}]}),
    "capacity": ({"changes": [{**CHANGED, "kind": "capacity"}]}, {"tags": [{"tag": "loss", **SAME}]}),
    "no step in common": ({}, {"tags": []}),
    "approved": ({"changes": [{**CHANGED, "kind": "semantic", "approved": True}]},
                 {"tags": [{"tag": "loss", **DIFFERENT}]}),
    "rollout": ({}, {"rollout": True, "tags": [{"tag": "loss", **DIFFERENT}]}),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_same_job_passes_the_gate(name: str, tmp_path: Path) -> None:
    """Capacity and what was approved; rollouts are never held against each other point by point."""
    report = retried(tmp_path, *HEALTHY[name])
    assert (report["decision"], report["evidence"]["reasons"]) == ("GO", [])


UNLIKE: dict[str, tuple[dict[str, Any], dict[str, Any] | None, str, str]] = {
    "setting": ({"changes": [CHANGED]}, {}, "settings", "retry-setting-changed"),
    "used semantic": ({}, {"changes": [{**CHANGED, "kind": "semantic"}]}, "settings", "retry-setting-changed"),
    "used unknown": ({}, {"changes": [CHANGED]}, "settings", "retry-setting-unknown"),
    "identity": ({"identity": [{"what": "commit", "before": "a", "after": "b", "known": True, "approved": False}]}, {},
                 "identity", "retry-identity-differs"),
    "same name": ({"identity": [{"what": "model", "before": "a/b (no fingerprint)", "after": "a/b (no fingerprint)",
                                 "known": False, "approved": False}]}, {}, "identity", "retry-identity-unproven"),
    "stated": ({}, {"stated": True, "tags": [{"tag": "loss", **DIFFERENT}]}, "metrics", "retry-metrics-diverge"),
    "not stated": ({}, {"tags": [{"tag": "loss", **DIFFERENT}]}, "metrics", "retry-metrics-differ"),
    "nan": ({}, {"tags": [{"tag": "loss", **overlap(LINE, {**LINE, 3: math.nan}, rtol=1, atol=1)}]}, "metrics",
            "retry-metrics-diverge"),
    "not compared": ({}, None, "metrics", "evidence-incomplete"),
}


@pytest.mark.parametrize("name", UNLIKE)
def test_another_job_is_told_by_its_own_check_alone(name: str, tmp_path: Path) -> None:
    """Each check of the gate has what only it sees."""
    entry, compared, check, code = UNLIKE[name]
    report = retried(tmp_path, entry, compared)
    assert report["decision"] != "GO"
    assert {(reason["check"], reason["code"]) for reason in report["evidence"]["reasons"]} == {(check, code)}


def test_gate_is_not_needed_without_a_retry(tmp_path: Path) -> None:
    """A first run has no lineage; a retry whose journal tells nothing is unproven."""
    report = build_report(RunDir().write(tmp_path / "a"))
    assert report["evidence"]["gates"][-1]["status"] == "SKIPPED" and report["evidence"]["lineage"] is None
    place = RunDir(spec={"retry_of": tmp_path}).write(tmp_path / "b")
    report = build_report(place)
    assert report["decision"] == "CONDITIONAL"


def test_retry_of_a_run_without_recorded_settings_needs_a_word(tmp_path: Path) -> None:
    """Nobody can tell what changed: --approve settings."""
    earlier = read_earlier(RunDir(exit_code=1).write(tmp_path))
    facts = FrameworkFacts(name="torch", reason="", capacity_first=("a smaller --mini-bs",))
    assert [f.code for f in plan_retry(earlier, {}, earlier.identity, facts, ()).findings] == ["retry-setting-changed"]
    assert not plan_retry(earlier, {}, earlier.identity, facts, ("settings",)).findings
    known = replace(earlier, settings={"lr": "1"})
    refused = plan_retry(known, {"lr": "2"}, {**earlier.identity, "commit": "b"}, facts, ())
    assert [f.code for f in refused.findings] == ["retry-setting-changed", "retry-identity-differs"]
    assert refused.findings[0].remedy.startswith("first try a smaller --mini-bs")


def test_effective_values_are_held_against_each_other(tmp_path: Path) -> None:
    """What the trainer used tells of a change that no command shows; what follows from an approved one is approved."""
    for name, rate in (("a", 0.1), ("b", 0.2)):
        RunDir(effective={"optimizer_lr": {"value": rate, "source": "x"}}).write(tmp_path / name)
    journaled(tmp_path / "b", "retry", **ENTRY)
    change, = compare_with_earlier(tmp_path / "b", tmp_path / "a")["changes"]
    assert (change["key"], change["approved"]) == ("optimizer_lr", False)
    approved = {"key": "lr", "before": "0.1", "after": "0.2", "kind": "semantic", "approved": True}
    journaled(tmp_path / "b", "retry", **{**ENTRY, "changes": [approved]})
    change, = compare_with_earlier(tmp_path / "b", tmp_path / "a")["changes"]
    assert change["approved"]


def test_evidence_of_another_version_is_read(tmp_path: Path) -> None:
    """An upgraded harness may judge more than the one that wrote the report; what it decided must still be so."""
    place = RunDir(exit_code=1).write(tmp_path)
    report = write_report(place)
    report["evidence"]["topology"]["devices"] = ["another word"]
    (place / "train-model.json").write_text(json.dumps(report))
    assert read_earlier(place).identity["harness_version"] == "0"
    (place / "train-model.json").write_text(json.dumps({**report, "decision": "GO"}))
    with pytest.raises(ConfigError, match="disagrees"):
        read_earlier(place)
