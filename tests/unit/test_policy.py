"""The policy file: what it may set, and that a waiver hides nothing and never passes a NaN."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.errors import CheckFailure, ConfigError
from harness.judge.gates import GATES, check_names
from harness.judge.observe import observe
from harness.judge.policy import read_policy
from harness.judge.report import build_report
from harness.judge.require import require_check, require_decision
from harness.judge.thresholds import THRESHOLDS
from harness.judge.verdict import judge
from harness.record.run_record import open_record
from tests.unit.run_dirs import RunDir

RUN = RunDir()
UNTARGETED = replace(RUN, facts=replace(RUN.facts, target_steps=None))
EXITED = replace(RUN, exit_code=1)
WAIVER = """
[[waiver]]
{what}
reason = "known since March"
until = {until}
decision = "{decision}"
"""


def waiver(what: str, decision: str = "CONDITIONAL", until: str = "2999-12-31") -> str:
    """TOML of one waiver."""
    return WAIVER.format(what=what, decision=decision, until=until)


def spec_of(place: Path, text: str) -> dict[str, Any]:
    """What a policy file sets of a run spec."""
    place.mkdir(parents=True, exist_ok=True)
    (place / "policy.toml").write_text(text)
    policy = read_policy(place / "policy.toml", check_names())
    return {"policy_digest": policy.digest, "thresholds": policy.thresholds, "required_gates": policy.required,
            "waivers": policy.waivers}


def judged(run: RunDir, place: Path, text: str) -> dict[str, Any]:
    """The report of a made run under a policy."""
    return build_report(replace(run, spec={**run.spec, **spec_of(place / "policy", text)}).write(place / "run"))


def test_check_names_are_those_of_the_checks(tmp_path: Path) -> None:
    """What a waiver may name is what the gates judge."""
    with open_record(RUN.write(tmp_path)) as record:
        seen = observe(record)
        assert check_names() == {gate.name: tuple(check(seen).name for check in gate.checks) for gate in GATES}


def test_page_lists_every_threshold() -> None:
    """references/policy.md is current."""
    page = (Path(__file__).parents[2] / "references" / "policy.md").read_text()
    for name, (default, meaning) in THRESHOLDS.items():
        assert f"| `{name}` | {default:g} | {meaning} |" in page


def test_policy_without_a_need_for_it_changes_nothing(tmp_path: Path) -> None:
    """A healthy run stays GO; digest and waivers stand in the evidence."""
    report = judged(RUN, tmp_path, waiver('code = "exit-code"') + "[thresholds]\nrestarts = 1\n")
    policy = report["evidence"]["policy"]
    assert (report["decision"], report["evidence"]["reasons"]) == ("GO", [])
    assert len(policy["digest"]) == 64
    assert policy["waivers"] == [{"code": "exit-code", "check": None, "reason": "known since March",
                                  "until": "2999-12-31", "decision": "CONDITIONAL", "expired": False, "applied": []}]


@pytest.mark.parametrize(("run", "what", "asked", "decision"), [
    (UNTARGETED, 'code = "target-unknown"', "CONDITIONAL", "CONDITIONAL"),
    (UNTARGETED, 'code = "target-unknown"', "GO", "GO"),
    (UNTARGETED, 'check = "real_step.target_step"', "GO", "GO"),
    (EXITED, 'check = "real_step.exit"', "CONDITIONAL", "CONDITIONAL"),
    (EXITED, 'check = "real_step.exit"', "GO", "CONDITIONAL"),
])
def test_waived_check_stays_visible(run: RunDir, what: str, asked: str, decision: str, tmp_path: Path) -> None:
    """An unproven one may come to GO where the policy says so, a failed one never."""
    assert judged(run, tmp_path / "without", "")["decision"] != "GO"
    report = judged(run, tmp_path, waiver(what, asked))
    assert report["decision"] == decision
    gate = next(gate for gate in report["evidence"]["gates"] if gate["name"] == "real_step")
    check, = (check for check in gate["checks"] if "waived" in check)
    assert check["status"] in ("failed", "unproven") and "known since March" in check["waived"]
    assert "known since March" in report["evidence"]["reasons"][0]["remedy"]
    assert report["evidence"]["policy"]["waivers"][0]["applied"] == [f"real_step.{check['name']}"]
    code = report["evidence"]["reasons"][0]["code"]
    assert {one["severity"] for one in report["findings"] if one["title"].startswith(code)} <= {"medium", "low"}


def test_waiver_of_another_reason_does_not_reach(tmp_path: Path) -> None:
    """By its code alone."""
    assert judged(EXITED, tmp_path, waiver('code = "target-unknown"'))["decision"] == "NO-GO"


NAN = replace(RUN, loss=(*RUN.loss[:5], math.nan, *RUN.loss[6:]))
MASKED = replace(RUN, facts=replace(RUN.facts, masks_nonfinite=True), grad_norm=())
NO_STEP = replace(RUN, probe={**(RUN.probe or {}), "steps": 0})


@pytest.mark.parametrize(("run", "check", "decision"), [
    (NAN, "real_step.loss_finite", "NO-GO"), (NO_STEP, "real_step.updates_executed", "NO-GO"),
    (MASKED, "real_step.loss_finite", "CONDITIONAL")])
def test_waiver_never_passes_a_nan_or_a_run_without_an_update(
    run: RunDir, check: str, decision: str, tmp_path: Path
) -> None:
    """Also not by the name of the whole check; what may hide one comes to CONDITIONAL at most."""
    assert judged(run, tmp_path, waiver(f'check = "{check}"', "GO"))["decision"] == decision


def test_expired_waiver_is_a_failure(tmp_path: Path) -> None:
    """Its own reason, whether it would be needed or not."""
    report = judged(RUN, tmp_path, waiver('code = "exit-code"', until="2020-01-01"))
    assert (report["decision"], [one["code"] for one in report["evidence"]["reasons"]]) == ("NO-GO", ["waiver-expired"])
    assert report["evidence"]["policy"]["waivers"][0]["expired"]


def test_required_gate_that_has_nothing_to_judge_is_unproven(tmp_path: Path) -> None:
    """A run that saves nothing under a policy that wants the reload."""
    report = judged(RUN, tmp_path, 'require = ["save_reload"]')
    assert report["decision"] == "CONDITIONAL"
    assert [one["code"] for one in report["evidence"]["reasons"]] == ["required-gate-missed"]


def test_acceptance_tests_follow_the_waiver(tmp_path: Path) -> None:
    """A failed check that is waived passes with --accept-conditional, as the decision does; without it neither."""
    spec = spec_of(tmp_path / "policy", waiver('check = "real_step.exit"'))
    with open_record(replace(EXITED, spec=spec).write(tmp_path / "run")) as record:
        verdict, _ = judge(record)
    gate = verdict.gate("real_step")
    require_check(gate, "exit", out_dir=tmp_path, accept_conditional=True)
    require_decision(verdict, out_dir=tmp_path, accept_conditional=True)
    with pytest.raises(CheckFailure):
        require_check(gate, "exit", out_dir=tmp_path, accept_conditional=False)


@pytest.mark.parametrize(("text", "says"), [
    ("requires = []", "did you mean require?"), ('require = ["save_relaod"]', "did you mean save_reload?"),
    ("[thresholds]\nretry_rtl = 1", "did you mean retry_rtol?"), ("[thresholds]\nretry_rtol = nan", "from 0 up"),
    ("[thresholds]\nretry_rtol = true", "from 0 up"), ("require = 1", "no list"), ("waiver = 1", "a table"),
    (waiver('code = "exit-coed"'), "did you mean exit-code?"), (waiver('check = "real_step.exti"'), "real_step.exit?"),
    (waiver('code = "loss-not-finite"'), "never waived"), (waiver('code = "no-update-executed"'), "never waived"),
    (waiver('code = "exit-code"\ncheck = "real_step.exit"'), "either"), (waiver(""), "either"),
    (waiver('code = "exit-code"', until='"soon"'), "YYYY-MM-DD"), (waiver('code = "exit-code"', "NO-GO"), "decision"),
    ('[[waiver]]\ncode = "exit-code"\nreason = " "\nuntil = 2999-01-01', "say why"),
    ('[[waiver]]\ncode = "exit-code"\nreason = "x"', "YYYY-MM-DD"), ("a = ", "not TOML"),
    ('[[waiver]]\ncode = "exit-code"\nreasn = "x"', "did you mean reason?"),
])
def test_odd_policy_is_refused(text: str, says: str, tmp_path: Path) -> None:
    """Unknown keys with the nearest known one, waivers without a reason or an end, what is never waived."""
    with pytest.raises(ConfigError, match=r"policy\.toml") as caught:
        spec_of(tmp_path, text)
    assert says in str(caught.value)


def test_missing_policy_is_a_usage_error(tmp_path: Path) -> None:
    """No file, no run."""
    with pytest.raises(ConfigError, match="cannot be read"):
        read_policy(tmp_path / "none.toml", check_names())
