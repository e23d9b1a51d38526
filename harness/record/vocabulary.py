"""Every enum that an artifact may hold, but for the reason codes, which have a module of their own.

references/vocabulary.md is rendered from here by `render_page`; a test holds the page to the code.
"""

from __future__ import annotations

from enum import Enum


class Decision(str, Enum):
    """The verdict of a run."""

    GO = "GO"
    NO_GO = "NO-GO"
    CONDITIONAL = "CONDITIONAL"


class Confidence(str, Enum):
    """How well the decision is witnessed."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Outcome(str, Enum):
    """For CI that retries: only `infrastructure` is worth a retry of the same command."""

    GOOD = "good"
    BROKEN = "broken"
    UNPROVEN = "unproven"
    INFRASTRUCTURE = "infrastructure"


class TerminalState(str, Enum):
    """How a run ended."""

    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    EARLY_STOPPED = "EARLY_STOPPED"
    CANCELLED = "CANCELLED"
    TIMEOUT = "TIMEOUT"


class GateStatus(str, Enum):
    """The state of a workflow step."""

    PASS = "PASS"
    FAIL = "FAIL"
    SKIPPED = "SKIPPED"
    PENDING = "PENDING"


class CheckStatus(str, Enum):
    """The result of one comparison in a gate."""

    PASSED = "passed"
    FAILED = "failed"
    UNPROVEN = "unproven"
    NOT_APPLICABLE = "not_applicable"


class Severity(str, Enum):
    """Of findings and anomalies."""

    BLOCKER = "blocker"
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class AnomalyType(str, Enum):
    """What can go wrong while a run goes on; references/anomalies.md holds the rule of each."""

    NAN_INF = "nan-inf"
    OOM = "oom"
    DIVERGENCE = "divergence"
    STALLED = "stalled"
    CRASH = "crash"
    CHECKPOINT_FAILURE = "checkpoint-failure"
    SLOW_THROUGHPUT = "slow-throughput"
    GRADIENT_EXPLOSION = "gradient-explosion"


class TargetType(str, Enum):
    """What was watched."""

    LOCAL_LOG = "local-log"
    REMOTE_LOG = "remote-log"
    PID = "pid"
    VERTEX_PIPELINE = "vertex-pipeline"
    VERTEX_TRAINING = "vertex-training"
    WANDB = "wandb"
    MLFLOW = "mlflow"


class ReasonKind(str, Enum):
    """What a reason says about the run."""

    BROKEN = "broken"
    UNPROVEN = "unproven"
    INFRASTRUCTURE = "infrastructure"


class Phase(str, Enum):
    """Which part of training a metric event belongs to."""

    TRAIN = "train"
    EVAL = "eval"
    SUMMARY = "summary"


class Standing(str, Enum):
    """Whether a metric event counts as evidence of this run."""

    FRESH = "fresh"
    STALE = "stale"
    FOREIGN = "foreign"


class WitnessKind(str, Enum):
    """What can show an optimizer update."""

    METRICS = "metrics"
    COUNTER = "counter"
    WEIGHTS = "weights"
    PROBE = "probe"


class RunStatus(str, Enum):
    """What a diagnosis calls the state of a failed run: crashed by an error of its own; hung; diverged; degraded where
    it was ended from outside (preempted, out of time, cancelled) or refused, or ended without doing what it should;
    recovered."""

    CRASHED = "crashed"
    HUNG = "hung"
    DEGRADED = "degraded"
    DIVERGED = "diverged"
    RECOVERED = "recovered"


class PrimaryCause(str, Enum):
    """The class of a failure's first causal error."""

    NAN_INF = "nan-inf"
    OOM = "oom"
    OPTIMIZATION_DIVERGENCE = "optimization-divergence"
    CUDA_RUNTIME = "cuda-runtime"
    NCCL_DISTRIBUTED = "nccl-distributed"
    DATA_PIPELINE = "data-pipeline"
    CONFIG_ERROR = "config-error"
    IO_CHECKPOINT = "io-checkpoint"
    STALLED = "stalled"
    PROCESS_CRASH = "process-crash"
    EVALUATION_MISMATCH = "evaluation-mismatch"
    PIPELINE_ORCHESTRATION = "pipeline-orchestration"
    CLOUD_PERMISSIONS_QUOTA = "cloud-permissions-quota"
    INTERRUPTED = "interrupted"
    UNKNOWN = "unknown"


class FixRisk(str, Enum):
    """Of a proposed fix: only a safe one may be applied without a person."""

    SAFE = "safe"
    NEEDS_APPROVAL = "needs-approval"
    DANGEROUS = "dangerous"


def documented_enums() -> tuple[type[Enum], ...]:
    """Enums that references/vocabulary.md lists, in page order."""
    return (Decision, Confidence, Outcome, TerminalState, GateStatus, CheckStatus, Severity, AnomalyType,
            TargetType, ReasonKind, Phase, Standing, WitnessKind, RunStatus, PrimaryCause, FixRisk)
