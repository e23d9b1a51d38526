"""The AReno adapter: what it recognises, adds and refuses, and its facts against recorded runs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from harness.command.model import TrainingCommand
from harness.command.parse import parse_command
from harness.frameworks.areno import ArenoAdapter
from harness.frameworks.base import FrameworkFacts, Preparation
from harness.judge.observe import observe
from harness.judge.updates_seen import Updates
from harness.record.events import MetricEvent
from harness.record.redaction import Redactor
from harness.record.run_record import RunRecord
from harness.record.store import MetricStore
from harness.spec import RunSpec
from harness.supervise.retry import model_facts

RECORDED = Path(__file__).parents[1] / "areno" / "recorded"
TRAIN = "areno train --ckpt tiny --dataset-path data.jsonl"


def parsed(text: str) -> TrainingCommand:
    """A command taken apart where none of its paths exist."""
    return parse_command(text, Path("/absent"))


def run_spec(workdir: Path, **changes: object) -> RunSpec:
    """A spec whose working directory holds a local checkpoint `tiny` and `data.jsonl`."""
    (workdir / "tiny").mkdir(exist_ok=True)
    (workdir / "tiny" / "model.safetensors").touch()
    (workdir / "data.jsonl").touch()
    fixed = {"train_cmd": "", "out_dir": workdir / "out", "workdir": workdir, "run_id": "r"}
    return RunSpec(**{**fixed, **changes})  # type: ignore[arg-type]


def prepared(text: str, workdir: Path, **changes: object) -> Preparation:
    return ArenoAdapter().prepare(parsed(text), run_spec(workdir, **changes))


def facts_of(text: str, workdir: Path, **changes: object) -> FrameworkFacts:
    return ArenoAdapter().facts(parsed(text), run_spec(workdir, **changes), "told by the test")


def added(preparation: Preparation) -> dict[str, str]:
    return {addition.key: addition.value for addition in preparation.additions}


def codes(preparation: Preparation) -> set[str]:
    return {finding.code for finding in preparation.findings}


@pytest.mark.parametrize(
    "text",
    [
        "areno train --algo sft",
        "/opt/env/bin/areno train",
        "uv run areno train",
        "python /opt/env/bin/areno train",
        "timeout 60 areno train",
        "MLX_DISABLE_COMPILE=1 areno train",
        "python -m areno.cli.main train",
        "python -m areno.cli.train --algo sft",
        "areno serve --model m",
    ],
)
def test_recognise_finds_the_command_line(text: str) -> None:
    """Every way to start AReno's CLI is recognised, the ones that do not train included."""
    assert "areno" in (ArenoAdapter().recognise(parsed(text)) or "")


@pytest.mark.parametrize(
    "text", ["python train.py --areno", "python areno.py train", "python -m arenox train"]
)
def test_recognise_leaves_other_commands(text: str) -> None:
    """A program that only has the word in it is not AReno's."""
    assert ArenoAdapter().recognise(parsed(text)) is None


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("areno serve --model m", "areno serve"),
        ("areno check", "areno check"),
        ("areno env --json", "areno env"),
        ("areno agent fix", "areno agent"),
        ("areno dashboard", "areno dashboard"),
        ("python -m areno.cli.main serve", "areno serve"),
        ("areno trian", "areno trian"),
        ("areno", "areno"),
        (f"{TRAIN} --help", "--help"),
        (f"{TRAIN} --smoke-train", "--smoke-train"),
        (f"{TRAIN} --smoke-infer", "--smoke-infer"),
        (f"{TRAIN} --model-hub hf", "--model-hub hf"),
        (f"{TRAIN} --model-hub=HF", "--model-hub hf"),
        ("areno train --ckpt ./absent --dataset-path data.jsonl", "--ckpt ./absent"),
        (f"{TRAIN} --algo dpo --ref-ckpt /absent/ref", "--ref-ckpt /absent/ref"),
    ],
)
def test_prepare_refuses_by_name(text: str, word: str, tmp_path: Path) -> None:
    """What trains nothing, or cannot, is refused before the launch, and the message names it."""
    (finding,) = prepared(text, tmp_path).findings
    assert (finding.refuses, finding.code, word in finding.message) == (True, "command-refused", True)


def test_prepare_gives_the_run_its_own_metrics_directory(tmp_path: Path) -> None:
    """AReno's default directory is shared by all runs of a machine."""
    (addition,) = prepared(TRAIN, tmp_path).additions
    directory = str(tmp_path / "out" / "metrics")
    assert (addition.words, addition.kind) == (("--metrics-log-dir", directory), "observability")


def test_prepare_uses_the_metrics_directory_of_the_option(tmp_path: Path) -> None:
    """--metrics-dir is where the run is made to write."""
    directory = tmp_path / "m"
    assert added(prepared(TRAIN, tmp_path, metrics_dir=directory)) == {"metrics_log_dir": str(directory)}


def test_prepare_keeps_a_metrics_directory_that_was_given(tmp_path: Path) -> None:
    """The user's own --metrics-log-dir stays."""
    assert added(prepared(f"{TRAIN} --metrics-log-dir mine", tmp_path)) == {}


def test_prepare_adds_nothing_without_observability(tmp_path: Path) -> None:
    """With --no-observability the shared directory is named instead."""
    preparation = prepared(TRAIN, tmp_path, observability=False)
    assert (added(preparation), codes(preparation)) == ({}, {"shared-metrics-directory"})


@pytest.mark.parametrize(
    "text",
    [
        "areno train --ckpt owner/name --dataset-path data.jsonl",
        "areno train --ckpt tiny --dataset-path owner/data:main",
        f"{TRAIN} --algo ppo --critic-ckpt owner/critic",
    ],
)
def test_prepare_names_modelscope_for_remote_references(text: str, tmp_path: Path) -> None:
    """A reference that is no local path is fetched from ModelScope, and the command says so."""
    assert added(prepared(text, tmp_path))["model_hub"] == "modelscope"


@pytest.mark.parametrize(
    "text",
    [TRAIN, f"{TRAIN} --model-hub modelscope", "areno train --ckpt tiny --dataset-path not-there.jsonl"],
)
def test_prepare_leaves_the_hub_of_local_references(text: str, tmp_path: Path) -> None:
    """Local paths need no hub, and one that was given stays."""
    assert "model_hub" not in added(prepared(text, tmp_path))


@pytest.mark.parametrize(
    ("given", "expected"), [("", "5"), (" --max-steps 9", "5"), (" --max-steps 4", None)]
)
def test_prepare_caps_by_the_flag(given: str, expected: str | None, tmp_path: Path) -> None:
    """A cap below the command's own limit is set by AReno's flag."""
    assert added(prepared(TRAIN + given, tmp_path, max_steps=5)).get("max_steps") == expected


def test_prepare_says_that_a_ppo_run_ends_inside_its_warmup(tmp_path: Path) -> None:
    """Said before the launch; the run is still launched and judged."""
    preparation = prepared(f"{TRAIN} --algo ppo --max-steps 3", tmp_path)
    assert codes(preparation) == {"inside-critic-warmup"}
    assert not any(finding.refuses for finding in preparation.findings)


def test_prepare_says_that_nothing_is_saved(tmp_path: Path) -> None:
    """AReno's default --save-interval is 100, and it saves nothing at the end."""
    assert codes(prepared(f"{TRAIN} --max-steps 30 --save-path out", tmp_path)) == {"nothing-saved"}


@pytest.mark.parametrize(
    ("text", "cli"),
    [
        (f"uv run {TRAIN}", ("uv", "run", "areno")),
        (TRAIN.replace("areno", "python -m areno.cli.main", 1), ("python", "-m", "areno.cli.main")),
        (TRAIN.replace("areno train", "python -m areno.cli.train", 1), ("python", "-m", "areno.cli.main")),
    ],
)
def test_prepare_asks_for_arenos_own_reports(text: str, cli: tuple[str, ...], tmp_path: Path) -> None:
    """Environment and readiness come from the same installation that trains."""
    reports = dict(prepared(text, tmp_path).trainer_reports)
    assert reports == {"areno env": (*cli, "env", "--json"), "areno check": (*cli, "check")}


@pytest.mark.parametrize(
    ("text", "algorithm", "kind", "signals"),
    [
        (TRAIN, "gspo", "rollout", ("^rollout/advantages_std$",)),
        (f"{TRAIN} --algo GRPO", "grpo", "rollout", ("^rollout/advantages_std$",)),
        (f"{TRAIN} --algo ppo", "ppo", "rollout", ("^rollout/advantages_std$",)),
        (f"{TRAIN} --algo gspo --agent-fn agent.py", "gspo", "agentic", ("^rollout/advantages_std$",)),
        (f"{TRAIN} --algo sft", "sft", "sft", ()),
        (f"{TRAIN} --algo=dpo --agent-fn agent.py", "dpo", "dpo", ()),
        (f"{TRAIN} --algo jev", "jev", "other", ()),
    ],
)
def test_facts_state_the_algorithm(
    text: str, algorithm: str, kind: str, signals: tuple[str, ...], tmp_path: Path
) -> None:
    """Name, kind and learning signal follow from --algo and --agent-fn."""
    facts = facts_of(text, tmp_path)
    assert (facts.algorithm, facts.algorithm_kind, facts.signal_tags) == (algorithm, kind, signals)


def test_facts_state_how_areno_counts(tmp_path: Path) -> None:
    """Event steps from 0, updates by train/* rows, no torch optimizer to probe."""
    facts = facts_of(TRAIN, tmp_path)
    assert (facts.step_base, facts.counts_updates_by, facts.executed_tags, facts.probe_applies) == (
        0, "metric-rows", ("^train/",), False,
    )


def test_facts_read_limits_and_places_from_the_flags(tmp_path: Path) -> None:
    """Target, metrics, checkpoints and start weights, all against the working directory."""
    facts = facts_of(f"{TRAIN} --max-steps 3 --save-path s --save-interval 1 --metrics-log-dir=/m", tmp_path)
    assert (facts.target_steps, facts.target_source) == (3, "--max-steps")
    assert (facts.metric_roots, facts.checkpoint_roots) == (("/m",), (str(tmp_path / "s"),))
    assert (facts.checkpoint_asked, facts.start_weights) == (True, str(tmp_path / "tiny"))


def test_facts_claim_no_checkpoint_that_cannot_come(tmp_path: Path) -> None:
    """A save interval above the target means that no saving was asked for."""
    assert not facts_of(f"{TRAIN} --max-steps 3 --save-path s", tmp_path).checkpoint_asked


@pytest.mark.parametrize("flag", ["--lora-rank 8", "--qlora", "--q4"])
def test_facts_name_no_start_for_adapters(flag: str, tmp_path: Path) -> None:
    """Adapter weights cannot be compared with those of the base model."""
    assert facts_of(f"{TRAIN} {flag}", tmp_path).start_weights is None


@pytest.mark.parametrize(("flags", "kind", "rank", "path"), [
    ("--lora-rank 8", "lora", "8", None), ("--qlora", "qlora", None, None), ("--q4 --lora-rank 4", "qlora", "4", None),
    ("--lora-adapter-path held", "lora", None, "held"),
])
def test_facts_tell_the_adapter_and_its_base(
    flags: str, kind: str, rank: str | None, path: str | None, tmp_path: Path
) -> None:
    """Both stand in the evidence: whose weights are frozen, and what is trained on top of them."""
    (tmp_path / "tiny").mkdir(exist_ok=True)
    (tmp_path / "tiny" / "model.safetensors").touch()
    facts = facts_of(f"{TRAIN} {flags}", tmp_path)
    assert facts.adapter is not None and facts.base_weights == str(tmp_path / "tiny")
    assert (facts.adapter["kind"], facts.adapter["rank"]) == (kind, rank)
    assert facts.adapter["path"] == (str(tmp_path / path) if path else None)
    told = model_facts(facts, Redactor())
    assert (told["source"], told["adapter"]["kind"]) == (str(tmp_path / "tiny"), kind)
    assert facts_of(TRAIN, tmp_path).adapter is None


def test_facts_claim_nothing_of_a_program_around_the_api(tmp_path: Path) -> None:
    """`--framework areno` with one's own script: counting as ever, no algorithm, no signal."""
    facts = facts_of("python own.py", tmp_path)
    assert (facts.algorithm, facts.algorithm_kind, facts.signal_tags) == (None, "other", ())


def test_facts_survive_json(tmp_path: Path) -> None:
    """The judge sees the journal's copy."""
    facts = facts_of(f"{TRAIN} --algo ppo --max-steps 3", tmp_path)
    assert FrameworkFacts.from_json(facts.to_json()) == facts


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A recorded run: what `--algo` was, and the right answers."""

    algorithm: str
    update_steps: tuple[int, ...]
    """Event steps at which the policy was updated."""
    effective: int


RUNS = {
    "areno-sft": Recorded(algorithm="sft", update_steps=(0, 1, 2), effective=3),
    "areno-dpo": Recorded(algorithm="dpo", update_steps=(0, 1, 2), effective=3),
    "areno-gspo": Recorded(algorithm="gspo", update_steps=(0, 1, 2), effective=3),
    "areno-grpo": Recorded(algorithm="grpo", update_steps=(0, 1, 2), effective=3),
    "areno-agentic-gspo": Recorded(algorithm="gspo --agent-fn a.py", update_steps=(0, 1), effective=0),
    "areno-ppo": Recorded(algorithm="ppo", update_steps=(), effective=0),
    "areno-ppo-warmed-up": Recorded(algorithm="ppo", update_steps=(1, 2), effective=2),
    "areno-gspo-constant": Recorded(algorithm="gspo", update_steps=(0, 1, 2), effective=0),
    "areno-gspo-rounding": Recorded(algorithm="gspo", update_steps=(0, 1), effective=2),
}


def recorded_events(run: str) -> list[MetricEvent]:
    """The scalars of a recorded run, read by TensorBoard itself."""
    return [
        MetricEvent(value.tag, event.step, value.tensor.float_val[0], event.wall_time)
        for path in sorted((RECORDED / run).glob("events.out.tfevents.*"))
        for event in EventFileLoader(str(path)).Load()
        for value in event.summary.value
    ]


@pytest.mark.parametrize("run", sorted(RUNS))
@pytest.mark.parametrize("field", ["executed_tags", "loss_tags", "lr_tags", "grad_norm_tags", "signal_tags"])
def test_tag_patterns_match_every_update_of_recorded_runs(run: str, field: str, tmp_path: Path) -> None:
    """Each pattern names tags that real runs write at every update of the policy and at no other step."""
    patterns = getattr(facts_of(f"{TRAIN} --algo {RUNS[run].algorithm}", tmp_path), field)
    events = recorded_events(run)
    steps = [{event.step for event in events if re.search(pattern, event.tag)} for pattern in patterns]
    assert steps == [set(RUNS[run].update_steps)] * len(patterns)


def updates_of(run: str, workdir: Path) -> Updates:
    """What the judge counts in a recorded run."""
    facts = facts_of(f"{TRAIN} --algo {RUNS[run].algorithm}", workdir)
    with MetricStore.temporary() as store:
        source = store.add_source(kind="tensorboard", path=run)
        store.append(source, recorded_events(run), observed_at=0.0)
        entry = {"event": "command", "facts": facts.to_json()}
        spec = run_spec(workdir)
        record = RunRecord(out_dir=workdir, spec=spec, entries=(entry,), store=store, problems=())
        return observe(record).updates


@pytest.mark.parametrize("run", sorted(RUNS))
def test_updates_of_recorded_runs_are_counted(run: str, tmp_path: Path) -> None:
    """Executed and effective updates come out as they were."""
    updates = updates_of(run, tmp_path)
    expected = (len(RUNS[run].update_steps), RUNS[run].effective)
    assert (updates.executed, updates.effective or 0) == expected


@pytest.mark.parametrize("run", ["areno-gspo", "areno-grpo", "areno-ppo-warmed-up"])
def test_rewards_that_differ_are_a_signal(run: str, tmp_path: Path) -> None:
    """Advantages of about 1 are something to learn from."""
    assert updates_of(run, tmp_path).signal_positive


@pytest.mark.parametrize("run", ["areno-gspo-constant", "areno-agentic-gspo", "areno-gspo-rounding"])
def test_equal_rewards_are_no_signal(run: str, tmp_path: Path) -> None:
    """Nor is what rounding makes of them: advantages_std 4.8e-7 with a gradient norm of 894."""
    assert not updates_of(run, tmp_path).signal_positive
