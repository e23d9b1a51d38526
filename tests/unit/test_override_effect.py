"""Whether an override took effect: values as typed beside values as trainers write them, and rates beside schedules."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.frameworks.effective import config_values
from harness.judge.observe import Observation
from harness.judge.overrides import Effect, check_overrides, effects, unseen_overrides
from harness.judge.values import same_value
from harness.record.token_formats import MASK

SAME: list[tuple[str, Any]] = [
    ("1e-4", 0.0001), ("1e-4", "0.0001"), ("0.0001", 1e-4), ("5E-5", 5e-05), ("0.1", 0.10000000149011612),
    ("20", 20), ("20", 20.0), ("2e1", 20), ("1_000", 1000), ("+5", 5), ("nan", float("nan")), ("inf", float("inf")),
    ("true", True), ("True", "true"), ("1", True), ("no", False), ("off", False), ("None", None), ("null", None),
    ("cosine", "COSINE"), ("'cosine'", "cosine"), ("cosine", "SchedulerType.COSINE"), ("bfloat16", "torch.bfloat16"),
    ("[0.9,0.95]", "[0.9, 0.95]"), ("[0.9,0.95]", [0.9, 0.95]), ("0.9 0.95", [0.9, 0.949999988079071]),
    ("['q_proj','v_proj']", '["q_proj", "v_proj"]'), ("q_proj,v_proj", ["q_proj", "v_proj"]),
    ("tensorboard", '["tensorboard"]'), ("none", "[]"), ("[]", []),
    ("out", "/home/me/out"), ("./runs/a/", "/home/me/runs/a"), ("../out", "/home/out"), ("/d/out", "/d/out"),
]  # fmt: skip
OTHER: list[tuple[str, Any]] = [
    ("1e-4", 1e-5), ("1e-4", "0.001"), ("20", 21), ("1000000", 1000001), ("1e6", 1000001), ("0", 1e-9), ("0.5", 1),
    ("true", False), ("true", 2), ("2", True), ("none", 0), ("0", None), ("cosine", "linear"),
    ("cosine", "SchedulerType.LINEAR"), ("[0.9,0.95]", [0.9, 0.99]), ("[0.9]", [0.9, 0.95]), ("a b", ["b", "a"]),
    ("a", []), ("out", "/home/me/out2"), ("out", "elsewhere"), ("", "x"),
]  # fmt: skip


@pytest.mark.parametrize(("asked", "used"), SAME)
def test_one_value_in_two_spellings(asked: str, used: Any) -> None:
    """Numbers by value, words without case, lists item by item, relative paths by their end."""
    assert same_value(asked, used)


@pytest.mark.parametrize(("asked", "used"), OTHER)
def test_two_values(asked: str, used: Any) -> None:
    """Whole numbers are compared exactly."""
    assert not same_value(asked, used)


Rates = dict[str, list[float]] | None
Counted = tuple[tuple[float, float], ...]


def effect(
    key: str, asked: str, told: dict[str, Any] | None = None, *, place: str = "", rates: Rates = None,
    counted: Counted = (),
) -> Effect:
    """Of one override, with these settings told by the trainer, these rates logged, these inside its optimizers."""
    return effects(observation(key, asked, told, place, rates, counted))[0]


def observation(
    key: str, asked: str, told: dict[str, Any] | None, place: str = "", rates: Rates = None, counted: Counted = (),
    *, parsed: list[dict[str, Any]] | None = None, kind: str = "semantic", problems: tuple[str, ...] = (),
    begun: tuple[float, ...] = (), never_above: tuple[float, ...] = (), resume_from: str | None = None,
) -> Observation:
    """What `effects` looks at."""
    facts = {
        "effective-values": {"values": {name: {"value": value, "source": "f"} for name, value in (told or {}).items()}},
        "command": {"overrides": [{"key": key, "value": asked, "place": place or f"--{key}", "kind": kind}]},
        "parsed": {"processes": [{"pid": 1, "host": "h", "program": "train.py", "parses": parsed or []}],
                   "problems": problems},
        "probe": {"facts": {"processes": [{"pid": 1, "host": "h", "steps": 60}]}},
    }
    tags = tuple(
        SimpleNamespace(tag=tag, min_finite=min(points), max_finite=max(points), fresh_points=len(points))
        for tag, points in (rates or {}).items()
    )
    record = SimpleNamespace(
        fact=lambda event, name, default=None: facts[event].get(name, default), last=lambda event: {},
        every=lambda event: [], store=None,
        spec=SimpleNamespace(hp=(f"{key}={asked}",)))
    probe = SimpleNamespace(rates=counted, rates_begun=begun, rates_never_above=never_above,
                            steps=60 if counted else 0)
    return cast(Observation, SimpleNamespace(
        record=record, lr=tags, probe=probe, facts=SimpleNamespace(resume_from=resume_from)))


@pytest.mark.parametrize(
    ("key", "place", "told"),
    [
        ("lr", "--optimizer.lr", {"optimizer.lr": 0.1, "scheduler.lr": 7}),
        ("optimizer.lr", "++optimizer.lr=", {"optimizer.lr": 0.1}),
        ("lr", "--lr", {"optimizer.lr": "1e-1"}),
        ("lr", "conf.yaml:optim.lr", {"optim.lr": 0.1, "lr": 7}),
        ("learning-rate", "--learning-rate", {"learning_rate": 0.1}),
        ("learning_rate", "--learning_rate", {"train.learning-rate": 0.1}),
        ("lr", "--step-size", {"lr": 0.1}),
        ("lr", "--lr", {"optimizer.lr": 0.1, "hparams.lr": "0.1"}),
    ],
)
def test_setting_is_found_under_the_trainers_name(key: str, place: str, told: dict[str, Any]) -> None:
    """By where it was placed, then by its key; by the end of a dotted name that is alone, or that others agree with."""
    assert effect(key, "0.1", told, place=place).holds is True
    assert effect(key, "0.2", told, place=place).holds is False


def test_ambiguous_endings_tell_nothing() -> None:
    """Two settings of the same last name and different values."""
    found = effect("dropout", "0.1", {"encoder.dropout": 0.1, "decoder.dropout": 0.2})
    assert (found.holds, found.used) == (None, None)


@pytest.mark.parametrize(
    ("points", "holds"),
    [
        ([0.1, 0.05, 0.0], True),
        ([0.0, 0.05, 0.1], True),
        ([0.1, 0.1], True),
        ([0.0, 0.05, 0.09], None),
        ([0.05], None),
        ([0.05, 0.05], False),
        ([0.2, 0.1], False),
    ],
)
def test_rate_beside_its_schedule(points: list[float], holds: bool | None) -> None:
    """A schedule may stay below the rate; a constant rate is equal, and none is above."""
    for key in ("lr", "learning_rate", "optimizer.lr"):
        assert effect(key, "1e-1", rates={"train/lr": points}).holds is holds


def test_logged_rate_counts_more_than_an_echo_of_the_config() -> None:
    """The config says what was read, the log what was used."""
    told = {"optimizer.lr": 0.1}
    assert effect("optimizer.lr", "0.1", told, rates={"lr": [0.01, 0.01]}).used == 0.01
    assert effect("optimizer.lr", "0.1", told, rates={"lr": [0.01, 0.01]}).holds is False
    assert effect("optimizer.lr", "0.1", told, rates={"lr": [0.01, 0.02]}).used == 0.1
    assert effect("optimizer.lr", "0.1", {"optimizer.lr": 0.3}, rates={"lr": [0.1, 0.1]}).holds is True


def test_several_series_of_rates() -> None:
    """One that fits is enough; a part's rate is read in its own series only."""
    rates = {"lr/actor": [0.1, 0.1], "lr/critic": [0.5, 0.5]}
    assert effect("lr", "0.5", rates=rates).holds is True
    assert effect("lr", "0.3", rates=rates).holds is False
    assert effect("actor.lr", "0.5", rates=rates).holds is False
    assert effect("critic.lr", "0.5", rates=rates).holds is True
    assert effect("optimizer.lr", "0.3", rates=rates).holds is None
    assert effect("critic.lr", "0.3", rates={"lr": [0.1, 0.1]}).holds is None


@pytest.mark.parametrize(("peak", "holds"), [(0.1, True), (0.05, None), (0.2, False)])
def test_peak_of_trainer_state(peak: float, holds: bool | None) -> None:
    """Where no series is there, the largest rate that the trainer's own log holds."""
    assert effect("learning_rate", "0.1", {"learning_rate.peak_logged": peak}).holds is holds


@pytest.mark.parametrize(
    ("key", "asked", "used"),
    [
        ("batch_size", "auto", 8), ("report_to", "all", '["tensorboard", "wandb"]'),
        ("hub_token", MASK, "<HUB_TOKEN>"), ("hub_token", MASK, "seen"),
        ("api_key", MASK, MASK),
        ("num_train_epochs", "0.5", 1), ("logging_steps", "0.1", 2),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_is_no_contradiction(key: str, asked: str, used: Any) -> None:
    """Words that the trainer resolves, masked secrets, shares noted as whole steps."""
    assert effect(key, asked, {key: used}).holds is None


@pytest.mark.parametrize(("key", "asked", "used"), [("num_train_epochs", "2.5", 1), ("max_steps", "20", 8)])
def test_other_lengths_are_contradictions(key: str, asked: str, used: Any) -> None:
    """A share is excused, another length is not."""
    assert effect(key, asked, {key: used}).holds is False


def test_lists_of_a_config_are_told(tmp_path: Path) -> None:
    """Short lists of scalars, under their dotted name."""
    path = tmp_path / "config.yaml"
    ids = ", ".join(["1"] * 99)
    path.write_text(f"optim:\n  betas: [0.9, 0.95]\n  groups: [{{lr: 1}}]\n  ids: [{ids}]\n", encoding="utf-8")
    found = config_values(path)
    assert {key: item.value for key, item in found.items()} == {
        "optim.betas": "[0.9, 0.95]", "optim.groups.0.lr": 1,
    }
    assert effect("betas", "0.9 0.95", {key: item.value for key, item in found.items()}).holds is True


def test_item_of_a_list_is_meant_by_its_number_only(tmp_path: Path) -> None:
    """A callback's own setting is no setting of the run."""
    told = {"trainer.callbacks.0.init_args.patience": 3, "groups.1.lr": 7}
    place = "hp-overrides.yaml:trainer.callbacks.0.init_args.patience"
    assert effect("patience", "3", told, place=place).holds is True
    assert effect("patience", "4", told, place=place).holds is False
    assert effect("patience", "4", told).holds is None and effect("lr", "0.1", told).holds is None


def test_check_names_the_value_that_was_used() -> None:
    """And where that stands."""
    check = check_overrides(observation("lr", "0.1", {"lr": 0.2}, "--lr", None))
    assert (check.status.value, check.expected, check.observed) == ("failed", "lr=0.1", "0.2 (f)")


@pytest.mark.parametrize(
    ("key", "counted", "holds"),
    [
        ("lr", ((0.05, 0.05),), True),
        ("lr", ((0.0, 0.05),), True),
        ("lr", ((0.001, 0.001), (0.01, 0.05)), True),
        ("lr", ((0.001, 0.02),), None),
        ("optimizer.lr", ((0.05, 0.05),), True),
        ("critic.lr", ((0.05, 0.05),), None),
        ("critic.lr", ((0.01, 0.01),), None),
        ("batch_size", ((0.05, 0.05),), None),
        ("lr", (), None),
    ],
)
def test_rate_inside_the_optimizer_shows_an_effect(key: str, counted: Counted, holds: bool | None) -> None:
    """Where nothing is logged; a schedule below the rate, and another group's rate, say nothing."""
    found = effect(key, "0.05", counted=counted)
    assert (found.holds, found.counted) == (holds, None)


@pytest.mark.parametrize("rates", [{"lr": [0.05, 0.05]}, None])
def test_rate_that_stood_still_elsewhere_is_unproven(rates: Rates) -> None:
    """The log says what was asked for and the optimizer had another rate: no GO, and no fault where it is scaled."""
    seen = observation("lr", "0.05", {"lr": 0.05}, "", rates, ((0.01, 0.01),))
    check = check_overrides(seen)
    assert (check.status.value, check.observed) == ("unproven", "0.01 at every applied step")
    assert "--accept-conditional" in check.remedy


@pytest.mark.parametrize(
    ("begun", "never_above", "resume_from", "status"),
    [
        ((0.01,), (0.01,), None, "unproven"),
        ((0.2, 0.3), (0.3,), None, "unproven"),
        ((0.1, 0.01), (0.1,), None, "passed"),
        ((0.095,), (0.095,), None, "passed"),
        ((0.01,), (), None, "passed"),
        ((0.01,), (0.01,), "ck/step_100", "passed"),
    ],
)
def test_rate_that_a_schedule_only_lowered_is_the_one_that_was_used(
    begun: tuple[float, ...], never_above: tuple[float, ...], resume_from: str | None, status: str
) -> None:
    """Other than that of a warm-up in progress, of a schedule that a run goes on with, and of the first step of one;
    what the parser received does not count then. One group with the rate asked for is enough."""
    check = check_overrides(observation(
        "lr", "0.1", None, parsed=parsed(0.1, name="--lr"), counted=((0.001, max(begun)),), begun=begun,
        never_above=never_above, resume_from=resume_from))
    assert check.status.value == status
    if status == "unproven":
        assert check.observed == f"{max(begun)} at the first applied step, and never above it"
        assert check.reason and check.reason.value == "override-without-effect"


def test_logged_rate_below_the_one_asked_for_shows_nothing() -> None:
    """It may be another one's schedule: never passed by it alone."""
    check = check_overrides(observation("lr", "0.1", None, "", {"lr": [0.01, 0.001]}))
    assert (check.status.value, check.observed) == ("unproven", "0.01 (largest lr)")
    assert check.reason and check.reason.value == "override-unproven"


def test_logged_contradiction_stays_one_beside_the_optimizer() -> None:
    """A trainer that itself says that it used another value is believed."""
    assert check_overrides(observation("lr", "0.05", {"lr": 0.01}, "", None, ((0.01, 0.01),))).status.value == "failed"


def parsed(
    value: Any, *, name: str = "--width", at_step: Any = None, raw: str | None = None
) -> list[dict[str, Any]]:
    """What the program's parser returned for a word that it stores itself."""
    return [{"name": name, "parser": "argparse", "given": True, "plain": True, "raw": raw, "value": {"value": value},
             "at_step": None if at_step is None else {"value": at_step}}]


@pytest.mark.parametrize(
    ("found", "status", "reason"),
    [
        (parsed(8), "passed", None),
        (parsed(8, at_step=8), "passed", None),
        (parsed(8, at_step=4), "unproven", "override-replaced"),
        (parsed(4, raw="8"), "failed", "override-without-effect"),
        (parsed(4, raw="4"), "unproven", "override-unproven"),
        (parsed(8, name="--depth"), "unproven", "override-unproven"),
        ([], "unproven", "override-unproven"),
    ],
)
def test_override_beside_what_the_program_parsed(
    found: list[dict[str, Any]], status: str, reason: str | None
) -> None:
    """Received is enough, and the check says that it shows no use; nothing at all is unproven."""
    check = check_overrides(observation("width", "8", None, parsed=found))
    assert (check.status.value, check.reason and check.reason.value) == (status, reason)
    assert ("shows no use of it: width (argparse in train.py" in check.why) is (status == "passed")


@pytest.mark.parametrize(
    ("told", "found", "word"),
    [
        ({"width": 8}, [], "used"), ({"width": 4}, [], "other"), (None, parsed(8), "received"),
        (None, parsed(8, at_step=4), "replaced"), (None, parsed(4, raw="8"), "other"), (None, [], "unseen"),
    ],
)
def test_effect_in_a_word(told: dict[str, Any] | None, found: list[dict[str, Any]], word: str) -> None:
    """What stands beside each override in the evidence."""
    assert effects(observation("width", "8", told, parsed=found))[0].word == word


def test_damaged_file_of_what_was_parsed_is_named() -> None:
    """It may be why nothing tells the value."""
    check = check_overrides(observation("width", "8", None, problems=("'h-1.parsed.json': pid is not of its kind",)))
    assert check.why.endswith("; 'h-1.parsed.json': pid is not of its kind")


def test_what_the_trainer_says_counts_more_than_what_was_parsed() -> None:
    """In both directions; a rate inside the optimizer, too, whatever became of the argument."""
    told = check_overrides(observation("width", "8", {"width": 8}, parsed=parsed(8, at_step=4)))
    other = check_overrides(observation("width", "8", {"width": 4}, parsed=parsed(8)))
    rate = parsed(0.1, name="--lr", at_step=0.4)
    used = check_overrides(observation("lr", "0.1", None, counted=((0.1, 0.1),), parsed=rate))
    assert (told.status.value, other.status.value, used.status.value) == ("passed", "failed", "passed")
    scaled = check_overrides(observation("lr", "0.1", None, counted=((0.4, 0.4),), parsed=rate))
    assert (scaled.status.value, scaled.reason and scaled.reason.value) == ("unproven", "override-without-effect")


def test_override_that_cannot_be_compared_is_a_finding() -> None:
    """A secret, what a trainer resolves by itself, what only changes what is written: no ground against GO."""
    for seen in (observation("width", "auto", {"width": 8}), observation("hub_token", MASK, None),
                 observation("logging_steps", "1", None, kind="observability")):
        assert check_overrides(seen).status.value == "not_applicable"
        (finding,) = unseen_overrides(seen)
        assert finding["severity"] == "medium" and finding["title"].startswith("override-effect-unseen: ")
    for seen in (observation("width", "8", {"width": 8}), observation("width", "8", None),
                 observation("width", "8", None, parsed=parsed(8))):
        assert not unseen_overrides(seen)
