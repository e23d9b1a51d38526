"""The Protocol of a framework adapter, and the facts that it declares as plain data.

Facts are journaled, so that judging needs neither the adapter nor the trainer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from harness.command.model import Finding, TrainingCommand
from harness.frameworks import kinds
from harness.frameworks.source import Program
from harness.spec import RunSpec

LOSS_TAG_PATTERNS = (r"(^|[/_.])loss$", r"(^|/)loss/(?!scale)", r"(^|/)loss_(?!scale|fn|func|time|mask)")
LR_TAG_PATTERNS = (r"(^|[/_.-])(lr|learning_rate)($|[/_.-])",)
GRAD_NORM_TAG_PATTERNS = (r"(^|[/_.])(grad|gradient)_norm($|[/_.])",)
EVAL_TAG_PATTERNS = (r"^(eval|val|valid|validation|test)[/_.]",)
TOTAL_STEPS_TAG_PATTERNS = (r"(^|/)(total_steps|max_steps)$",)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkFacts:
    """What a trainer is like, as far as the checks must know it. Tag patterns are regular expressions."""

    name: str
    reason: str
    """What the framework was told from."""
    step_base: int | None = None
    """Metric step of the first update: 0 or 1; None where only the data can tell."""
    counts_updates_by: str = "probe"
    """"probe", "metric-rows" (a step with a tag of executed_tags is an executed update) or "counter"."""
    executed_tags: tuple[str, ...] = ()
    """Patterns of the tags whose row proves an executed update."""
    rows_are_complete: bool = True
    """Whether no such row means no update; False where a program may well update and log no such tag."""
    update_lines: tuple[str, ...] = ()
    """Patterns of what is printed of an executed and of a skipped update, the step in group 1, and of what a loop that
    prints those prints beside them; () where nothing is known of it."""
    cut_lines: tuple[str, ...] = ()
    """Patterns of what is printed of trajectories that the context limit cut (group 1, of which group 2 had no turn
    yet), and of a rollout that is trained on, the trajectories in group 3; () where nothing is known of it."""
    loss_tags: tuple[str, ...] = LOSS_TAG_PATTERNS
    lr_tags: tuple[str, ...] = LR_TAG_PATTERNS
    grad_norm_tags: tuple[str, ...] = GRAD_NORM_TAG_PATTERNS
    eval_tags: tuple[str, ...] = EVAL_TAG_PATTERNS
    total_steps_tags: tuple[str, ...] = TOTAL_STEPS_TAG_PATTERNS
    summary_tags: tuple[str, ...] = ()
    """Patterns of tags that sum up a run or count its time; none of them is a point of a training series."""
    signal_tags: tuple[str, ...] = ()
    """Patterns of tags of which one must be above 0 at some executed update (rollout algorithms)."""
    signal_floor: float = 0.0
    """Signal tags at or below this are rounding, not a signal."""
    dead_signal_tags: tuple[str, ...] = ()
    """Patterns of tags that give the share of a batch without a signal: 1 throughout is no signal at all."""
    response_tags: tuple[str, ...] = ()
    """Patterns of the response tokens of an update; the first that is logged must be above 0 at some update."""
    kept_tags: tuple[str, ...] = ()
    """Patterns of how many sequences a step kept."""
    skipped_tags: tuple[str, ...] = ()
    """Patterns of how many rows were left out as too long so far."""
    margin_tags: tuple[str, ...] = ()
    """Patterns of tags that move once a preference is learnt."""
    preference_loss_tags: tuple[str, ...] = ()
    """Patterns of sigmoid preference losses: ln 2 while no preference is learnt."""
    ratio_tags: tuple[str, ...] = ()
    """Patterns of the ratio of the trained policy to the one that sampled."""
    agreement_tags: tuple[str, ...] = ()
    """Patterns of the distance of the log-probabilities of sampling and training."""
    clips_gradients: bool | None = None
    """Whether the program limits its gradients; None where that is not known."""
    masks_nonfinite: bool = False
    """Whether the framework's log can hide a NaN loss."""
    needs_gpu: bool = False
    """Whether the command itself can train on a GPU only."""
    probe_applies: bool = True
    """Whether a torch optimizer does the updates, so that the probe can see them."""
    target_steps: int | None = None
    """The command's own limit on steps."""
    target_source: str = ""
    """Where target_steps was read, for example `--max-steps`."""
    target_epochs: int | None = None
    """The command's own limit on epochs; counts where no limit on steps is known."""
    target_epochs_source: str = ""
    step_unit: str = "step"
    """What a metric step is: "step", or "epoch" for a trainer that logs once an epoch and counts nothing else."""
    logging_hint: str = ""
    """What to give the program so that it logs within its target, for example `--logging_steps 1`."""
    metric_roots: tuple[str, ...] = ()
    """Directories that the run writes metric files to, absolute."""
    metric_guesses: tuple[str, ...] = ()
    """Those of them only known to be saved to: a JSON lines or CSV file there counts by a metric file's name."""
    reads_output: bool = True
    """Whether what it prints is a metric source, the last resort, and a tracker may be one."""
    prints_what_it_logs: bool = False
    """Whether the values of its printed rows are those that it logs, so that both must agree."""
    checkpoint_roots: tuple[str, ...] = ()
    """Directories that the run saves to, absolute."""
    checkpoint_asked: bool = False
    """Whether the command itself asks for saving."""
    start_weights: str | None = None
    """Local directory or file with the weights that training starts from, where the command names one."""
    base_weights: str | None = None
    """Local directory of the frozen model below an adapter that is trained; None where a hub has it."""
    adapter: Mapping[str, str | None] | None = None
    """What is trained on top of it: kind, rank, alpha, target_modules as the command words them (None where it leaves
    them to the trainer) and path, where training starts from an adapter; None where the model itself is trained."""
    model_class: str | None = None
    """FILE:CLASS of the program that its checkpoints can be loaded into, where there is only one."""
    algorithm: str | None = None
    algorithm_kind: str = "other"
    """sft, dpo, rollout, agentic or other."""
    needs_dataset: bool = False
    """Whether the command trains on a dataset whose rows have a contract."""
    sample_globs: tuple[str, ...] = ()
    """Absolute patterns of the files that rollout samples are written to."""
    sample_hint: str = ""
    """What makes the program write samples, for example `--log_completions True`."""
    reward_program: str | None = None
    """File of the reward function, where the trainer's own loader can load it again."""
    reward_bounds: tuple[str, ...] = ()
    """Patterns of the tags of a step's smallest and largest reward; none where they are not logged."""
    resume_from: str | None = None
    """Checkpoint that the command resumes from."""
    capacity_settings: tuple[str, ...] = kinds.CAPACITY
    """Names of settings that change memory or speed, see `kinds`."""
    observability_settings: tuple[str, ...] = kinds.OBSERVABILITY
    """Names of settings that only change what is written."""
    semantic_settings: tuple[str, ...] = kinds.SEMANTIC
    """Names of settings that change what is learned; `*` for all that are none of the others."""
    batch_factors: tuple[str, ...] = ()
    """NAME=DEFAULT of settings that may change while their product, the batch of an update, stays."""
    capacity_first: tuple[str, ...] = ()
    """What to try before anything semantic where memory was short, word for word."""

    def to_json(self) -> dict[str, Any]:
        """JSON-ready mapping; `from_json` is its inverse."""
        return {
            field.name: list(value) if isinstance(value := getattr(self, field.name), tuple) else value
            for field in dataclasses.fields(self)
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> FrameworkFacts:
        """Unknown keys are ignored, so that a newer journal can still be judged."""
        names = {field.name for field in dataclasses.fields(cls)}
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items() if k in names}
        return cls(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Addition:
    """Words that the harness adds to the command, announced like an override."""

    key: str
    value: str
    how: str
    """For the terminal, for example `injected as --metrics-log-dir DIR`."""
    kind: str
    """"observability" or "semantic"."""
    words: tuple[str, ...]
    """Appended to the argv."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """What an adapter makes of a command before launch."""

    additions: tuple[Addition, ...] = ()
    findings: tuple[Finding, ...] = ()
    trainer_reports: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """(name, argv) of the trainer's own environment reports, such as `areno env --json`."""


Written = Callable[[Path], bool]
"""Whether a file was written by this run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveValue:
    """A setting as the trainer used it."""

    value: str | int | float | bool | None
    source: str
    """The file that holds it."""


class FrameworkAdapter(Protocol):
    """One trainer. Stateless; every method is pure apart from looking at the file system."""

    name: str

    def recognise(self, command: TrainingCommand, program: Program) -> str | None:
        """The reason why this command is this framework's, or None. `program`: what its source says."""
        ...

    def prepare(self, command: TrainingCommand, spec: RunSpec) -> Preparation:
        """Announced additions to the command, and findings that may refuse the launch."""
        ...

    def facts(self, command: TrainingCommand, spec: RunSpec, reason: str) -> FrameworkFacts:
        """The facts of this run; `command` already holds the additions."""
        ...


@runtime_checkable
class RecognisesConfig(Protocol):
    """An adapter that knows its framework by the shape of a config file; asked where nothing else tells."""

    def recognise_config(self, config: Mapping[str, Any], name: str) -> str | None:
        """The reason why a config file of that content and name is this framework's, or None."""
        ...


@runtime_checkable
class TellsEffectiveValues(Protocol):
    """An adapter whose trainer writes down the settings that it really used."""

    def effective_values(self, facts: FrameworkFacts, written: Written) -> dict[str, EffectiveValue]:
        """{setting: value and the file that says so}, from files that this run wrote; read after its end."""
        ...


@runtime_checkable
class ReadsReports(Protocol):
    """An adapter that understands its trainer's own reports about the machine."""

    def read_reports(
        self, environment: Mapping[str, Any], command: TrainingCommand, *, interpreter: Path | None, workdir: Path,
        environ: Mapping[str, str],
    ) -> dict[str, Any]:
        """The environment record with `needed_failures` in trainer_check: what the job needs and has not."""
        ...


def resolve_under(workdir: Path, path: str) -> Path:
    """A path of the command as the trainer sees it."""
    return Path(path).expanduser() if Path(path).expanduser().is_absolute() else workdir / path
