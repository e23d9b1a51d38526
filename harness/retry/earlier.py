"""The run that is retried: its evidence is verified before anything is taken from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness import __version__
from harness.diagnosis.report import read_failure, rule_of
from harness.errors import ConfigError, RecordError
from harness.judge.lineage import earlier_attempts
from harness.judge.report import build_report
from harness.judge.verify import verify
from harness.record import outdir
from harness.record.reasons import Reason
from harness.record.run_record import RunRecord, open_record
from harness.record.vocabulary import Outcome
from harness.retry.identity import identity_of

NOT_FINITE = frozenset({
    Reason.LOSS_NOT_FINITE.value, Reason.GRAD_NORM_NOT_FINITE.value, Reason.WEIGHTS_NOT_FINITE.value,
    Reason.FORWARD_NOT_FINITE.value, Reason.NO_LEARNING_SIGNAL.value, Reason.LR_ZERO.value,
})
"""What the same command on the same data comes to again."""
OTHER_VERSIONS = (f"{outdir.REPORT}: evidence.", f"{outdir.REPORT}: confidence")
"""Where another version of this harness may have said otherwise; its decision and numbers must be the same."""
DATA_REASONS = frozenset(reason.value for reason in Reason if reason.value.startswith("dataset-"))
DATA_CAUSES = frozenset({"nan-inf", "data-pipeline"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """What a retry is held against."""

    out_dir: Path
    run_id: str
    decision: str
    outcome: str
    reasons: tuple[str, ...]
    primary_cause: str | None
    cause_may_pass: bool
    """Whether the diagnosis knows the cause as one that can have lain outside the job."""
    settings: Mapping[str, str] | None
    """None where the run was recorded without them."""
    identity: Mapping[str, Any]
    launched: bool
    attempts: tuple[Mapping[str, Any], ...]
    """Rows of the ledger, this run's last."""

    @property
    def is_infrastructure(self) -> bool:
        """Whether something outside the job ended it, so that the unchanged job may well succeed."""
        return self.outcome == Outcome.INFRASTRUCTURE.value

    @property
    def recurs(self) -> str:
        """What the unchanged job would only come to again; "" where nothing says so."""
        found = next((code for code in self.reasons if code in NOT_FINITE or code in DATA_REASONS), "")
        recurring = self.primary_cause in DATA_CAUSES and not self.cause_may_pass
        return found or (self.primary_cause if recurring else "") or ""

    def is_in(self, directory: Path) -> bool:
        """Whether it lies in this very directory."""
        return self.out_dir.resolve() == directory.resolve()

    def moved(self, directory: Path) -> Earlier:
        """The same run, its artifacts in another directory."""
        *before, own = self.attempts
        return replace(self, out_dir=directory, attempts=(*before, {**own, "out_dir": str(directory)}))


def read_earlier(directory: Path) -> Earlier:
    """ConfigError where the directory holds no run, one that goes on, or evidence that is damaged or disagrees."""
    if outdir.is_held(directory):
        raise ConfigError(f"--retry-of {directory}: that run goes on; wait for its end")
    try:
        found = verify(directory)
        with open_record(directory) as record:
            _refuse_damage(directory, found["disagreements"], record)
            return _earlier(directory, record)
    except RecordError as error:
        raise ConfigError(f"--retry-of {directory}: {error}") from error


def _refuse_damage(directory: Path, disagreements: list[dict[str, Any]], record: RunRecord) -> None:
    if record.fact("run-started", "harness_version") != __version__:
        disagreements = [item for item in disagreements if not item["what"].startswith(OTHER_VERSIONS)]
    told = [f"{item['what']}: expected {item['expected']}, found {item['observed']}" for item in disagreements]
    told += record.problems
    if told:
        raise ConfigError(
            f"--retry-of {directory}: its evidence is damaged or disagrees, so that nothing can be held against it: "
            f"{'; '.join(told)[:600]}; see `python -m harness verify {directory}`")


def _earlier(directory: Path, record: RunRecord) -> Earlier:
    report = build_report(directory)
    failure = read_failure(directory, report["run_id"])
    evidence = report["evidence"]
    rule = rule_of(failure) if failure else None
    launched = record.last("attempt-started") is not None
    entry = record.last("retry")
    if not launched and entry is not None:
        raise ConfigError(f"--retry-of {directory}: that retry was refused and never launched; give the run that it "
                          f"was to retry: {entry.get('of')}")
    return Earlier(
        out_dir=directory, run_id=report["run_id"], decision=report["decision"], outcome=evidence["outcome"],
        reasons=tuple(reason["code"] for reason in evidence["reasons"]),
        primary_cause=failure.get("primary_cause") if failure else None,
        cause_may_pass=rule is not None and (rule.may_pass or rule.is_infrastructure),
        settings=record.fact("settings", "values"), identity=identity_of(record), launched=launched,
        attempts=tuple(earlier_attempts(report, failure, str(directory))),
    )
