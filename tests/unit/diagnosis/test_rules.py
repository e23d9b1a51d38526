"""Every rule is needed by a log, spares one that looks alike, leads to fixes, and is fast on hostile lines."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from harness.diagnosis.fixes import FIXES
from harness.diagnosis.inputs import find_inputs
from harness.diagnosis.model import Event, Role, Where
from harness.diagnosis.pages import render_triage
from harness.diagnosis.read import RunReading, read_run
from harness.diagnosis.rules import RULES, match_rule
from harness.record.vocabulary import FixRisk, PrimaryCause
from tests.unit.diagnosis.public_logs import WORDINGS, Wording
from tests.unit.diagnosis.rule_logs import ALSO_RECORDED, EXIT_RULES, SAMPLES, Sample, recorded

REFERENCES = Path(__file__).parents[3] / "references"
HOSTILE = ("a" * 4096, "(" * 4096, "loss" * 1024, "nan " * 1024, "[rank0]:" * 512, ". " * 2048, "0" * 4096,
           "error: argument " * 256, "E110 10:00:00 " * 290, "Error: " * 585, "rows must contain " * 200, "a.b." * 1024)


def reading(path: Path, text: str, sample: Sample, *, spare: bool = False) -> RunReading:
    """What is made of a log with this text."""
    path.write_text(text, encoding="utf-8")
    codes = sample.reasons if not spare else (text,) if sample.reasons else ()
    reasons = [(code, "seen") for code in codes]
    return read_run(find_inputs([path]).logs, exit_code=sample.exit_code, stopped=sample.stopped, reasons=reasons)


def every(found: RunReading) -> list[Event]:
    """All events that count."""
    finding = found.finding
    cause = [finding.cause] if finding.cause is not None else []
    return [*cause, *finding.rivals, *finding.consequences, *finding.recovered]


def test_every_rule_has_its_two_logs() -> None:
    """No rule without a log that needs it."""
    assert {rule.id for rule in RULES} == set(SAMPLES)
    assert len({rule.id for rule in RULES}) == len(RULES)


@pytest.mark.parametrize("rule_id", SAMPLES)
def test_log_that_needs_the_rule_gets_it(rule_id: str, tmp_path: Path) -> None:
    """It is the cause that is found."""
    found = reading(tmp_path / "run.log", SAMPLES[rule_id].needs, SAMPLES[rule_id])
    assert found.finding.cause is not None and found.finding.cause.rule is not None
    assert found.finding.cause.rule.id == rule_id


@pytest.mark.parametrize("rule_id", SAMPLES)
def test_log_that_looks_alike_is_spared(rule_id: str, tmp_path: Path) -> None:
    """The rule is met nowhere; one of exits is not the cause where the log itself tells it."""
    found = reading(tmp_path / "run.log", SAMPLES[rule_id].spares, SAMPLES[rule_id], spare=True)
    if rule_id in EXIT_RULES:
        assert found.finding.cause is not None and found.finding.cause.rule is not None
        assert found.finding.cause.rule.id == "uncaught-exception"
    else:
        assert rule_id not in {event.rule.id for event in every(found) if event.rule is not None}


@pytest.mark.parametrize("wording", WORDINGS, ids=lambda wording: f"{wording.rule}-{wording.source.rpartition('/')[2]}")
def test_every_wording_of_a_version_gets_its_rule(wording: Wording, tmp_path: Path) -> None:
    """Older and newer ones, in the words of public reports and sources."""
    assert wording.source
    found = reading(tmp_path / "run.log", wording.text, SAMPLES[wording.rule])
    assert found.finding.cause is not None and found.finding.cause.rule is not None
    assert found.finding.cause.rule.id == wording.rule


@pytest.mark.parametrize(("name", "rule_id"), ALSO_RECORDED)
def test_other_recorded_logs_of_a_rule(name: str, rule_id: str, tmp_path: Path) -> None:
    """Answers of a hub that its own client met: several of one rule."""
    found = reading(tmp_path / "run.log", recorded(name), SAMPLES[rule_id])
    assert found.finding.cause is not None and found.finding.cause.rule is not None
    assert found.finding.cause.rule.id == rule_id


def test_rank_of_the_label_is_the_global_one(tmp_path: Path) -> None:
    """Rank 4 is the first of its group, which the watchdog of that group calls rank 0."""
    text = ("[rank4]:[E1019 01:04:03.356947152 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation "
            "timeout: WorkNCCL(SeqNum=9141, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600020 milliseconds before "
            "timing out.\n")
    found = reading(tmp_path / "run.log", text, SAMPLES["nccl-watchdog"])
    assert found.finding.cause is not None and found.finding.cause.rank == 4


def test_every_class_is_reached() -> None:
    """No class of the artifact without a rule, but for the unknown."""
    assert {rule.cause for rule in RULES} == set(PrimaryCause) - {PrimaryCause.UNKNOWN}


def test_fixes_are_known_and_used() -> None:
    """Rules name fixes that are there; a cause has one; what changes training is never safe."""
    named = {name for rule in RULES for name in rule.fixes}
    assert named == set(FIXES)
    assert all(rule.fixes for rule in RULES if rule.role is Role.CAUSE)
    assert {FIXES[name].risk for name in ("lower-lr", "lower-token-limit", "other-checkpoint")} == {FixRisk.DANGEROUS}


def test_memory_is_won_from_concurrency_before_token_limits() -> None:
    """Fewer prompts or a smaller microbatch come first, the token limits last."""
    for rule in RULES:
        if "lower-token-limit" in rule.fixes:
            assert rule.fixes[-1] == "lower-token-limit"
            assert rule.fixes[0] in ("smaller-microbatch", "fewer-running-prompts")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("RuntimeError: Gloo connectFullMesh failed with [/p/third_party/gloo/gloo/transport/tcp/pair.cc:152] timed "
         "out connecting: SO_ERROR: Connection refused, remote=[127.0.0.1]:11702$0", "rendezvous"),
        ("RuntimeError: [/p/gloo/transport/tcp/pair.cc:144] connect [127.0.0.1]:44: Connection refused", "rendezvous"),
        ("requests.exceptions.ConnectionError: HTTPConnectionPool: Connection refused", "address-refused"),
        ("ConnectionRefusedError: [Errno 111] Connection refused", "address-refused"),
        ("ConnectionError: [Errno 104] Connection reset by peer: data server", "connection-lost"),
        ("aiohttp.client_exceptions.ClientOSError: [Errno 104] Connection reset by peer", "connection-lost"),
        ("RuntimeError: [/p/gloo/transport/tcp/pair.cc:553] Connection reset by peer", "peer-gone"),
    ],
)
def test_a_service_is_told_from_the_group(text: str, told: str) -> None:
    """What the communication library says of an address is about ranks, what a client says about a service."""
    rule = match_rule(Where.EXCEPTION, text)
    assert rule is not None and rule.id == told


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: text[:12])
def test_no_pattern_is_slow(text: str) -> None:
    """Every pattern on 4 KiB made to go wrong: all of them take less than the minutes that one such would."""
    began = time.process_time()
    for where in Where:
        match_rule(where, text, text)
    for rule in RULES:
        rule.pattern.search(text)
    assert time.process_time() - began < 20


def test_triage_page_is_what_the_rules_render() -> None:
    """references/failure-triage.md is current (`python -m harness.diagnosis.pages references` renews it)."""
    assert (REFERENCES / "failure-triage.md").read_text(encoding="utf-8") == render_triage()
