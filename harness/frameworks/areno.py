"""AReno (`areno train`): read off its 0.10.0 release and checked against real runs of it.

A step of its event files with `train/*` scalars is an update of the policy: its loop also counts empty
batches and the steps of PPO's critic warm-up, and writes no scalar for them. Event steps count from 0; a
checkpoint `step_NNNNNN` is named after completed steps. Its optimizers are its own classes, on MLX and on
CUDA, which the torch probe cannot see.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.command.model import TrainingCommand
from harness.frameworks import effective, kinds
from harness.frameworks.areno_algorithms import ALGORITHMS, OTHER_ALGORITHM
from harness.frameworks.areno_command import (
    CHECKPOINT_FLAGS,
    DATASET_SUFFIXES,
    REPOSITORY,
    SMOKE_FLAGS,
    Invocation,
    backend_of,
    devices,
    directory,
    number,
    saves_nothing,
    share,
    trains_adapter,
)
from harness.frameworks.areno_preparation import advice, metrics_dir, model_hub, refusal, step_limit
from harness.frameworks.areno_reports import with_findings
from harness.frameworks.base import EffectiveValue, FrameworkFacts, Preparation, Written
from harness.frameworks.capacity import Capacity, Smoke
from harness.frameworks.dataset import NamedDataset, RemoteAsset
from harness.frameworks.source import Program
from harness.spec import RunSpec

DEFAULT_ALGORITHM = "gspo"
ONE_STEP, NEVER = "one-step", 10**9
SIZES: dict[str, int | None] = {
    "batch_size": 32, "n_samples": 8, "max_running_prompts": None, "mini_bs": 16, "score_micro_bs": 8,
    "gradient_accumulation_steps": None, "world_size": 8, "tp_size": 4, "rollout_tp_size": None,
}
"""Setting -> AReno's default, None for one that follows from others."""
KEPT_TAGS, SKIPPED_TAGS = ("rollout/num_sequences",), ("rollout/total_skipped_long",)
UPDATE_LINES = (
    r"\bstep=(\d{1,12}) (?:role=(?!critic)\w+ )?stage=train_end\b",
    r"\bstep=(\d{1,12}) (?:role=(?!critic)\w+ )?stage=train_skip\b",
    r"\bstage=(?:epoch_end|max_steps_reached)\b",
)
"""Of the policy; the critic's lines name no step."""
CUT_LINES = (
    r"agentic rollout stopped at proxy context limit trajectories=(\d{1,9}) without_prior_turn=(\d{1,9})",
    r"agentic train batch built samples=(\d{1,9})\b",
)
"""No event file tells of the turns that the context limit took from a trajectory whose first turns are kept."""
ADVANTAGE_FLOOR = 1e-3
"""advantages_std of equal rewards is 0 or rounding (4.8e-7 seen); one varying group of 8 in a million gives 2.8e-3."""


class ArenoAdapter:
    """The facts of an `areno` command line. Of a flag that is given twice AReno takes the last."""

    name = "areno"

    def recognise(self, command: TrainingCommand, program: Program | None = None) -> str | None:
        """Any command of AReno's CLI, so that one which does not train is refused by its name."""
        found = Invocation.find(command)
        if found is None:
            return None
        return f"`{found.shown}` is AReno's command line"

    def prepare(self, command: TrainingCommand, spec: RunSpec) -> Preparation:
        """An own metrics directory, ModelScope for remote references, a cap; refusals."""
        found = Invocation.find(command)
        if found is None:
            return Preparation()
        refused = refusal(command, found, spec)
        if refused is not None:
            return Preparation(findings=(refused,))
        additions = (metrics_dir(command, spec), model_hub(command, spec), step_limit(command, spec))
        return Preparation(
            additions=tuple(addition for addition in additions if addition is not None),
            findings=advice(command, spec),
            trainer_reports=(
                ("areno env", (*found.cli, "env", "--json")),
                ("areno check", (*found.cli, "check")),
            ),
        )

    def facts(self, command: TrainingCommand, spec: RunSpec, reason: str) -> FrameworkFacts:
        """The facts of this run; a program around AReno's API (--framework areno) has no known algorithm."""
        is_cli = Invocation.find(command) is not None
        name = (command.flag("--algo") or DEFAULT_ALGORITHM).strip().lower() if is_cli else None
        algorithm = ALGORITHMS.get(name or "", OTHER_ALGORITHM)
        agentic = algorithm.kind == "rollout" and bool(command.flag("--agent-fn"))
        target = number(command, "--max-steps")
        return FrameworkFacts(
            name=self.name,
            reason=reason,
            step_base=0,
            reads_output=False,
            counts_updates_by="metric-rows",
            executed_tags=(r"^train/",),
            update_lines=UPDATE_LINES,
            cut_lines=CUT_LINES if agentic else (),
            loss_tags=tuple(f"^train/{loss}$" for loss in algorithm.losses),
            lr_tags=(r"^train/lr$",),
            grad_norm_tags=(r"^train/grad_norm$",),
            eval_tags=(),
            total_steps_tags=(),
            signal_tags=_exact(algorithm.signals),
            signal_floor=ADVANTAGE_FLOOR,
            response_tags=_exact(algorithm.responses),
            kept_tags=_exact(KEPT_TAGS),
            skipped_tags=_exact(SKIPPED_TAGS),
            margin_tags=_exact(algorithm.margins),
            preference_loss_tags=_exact(algorithm.preference_losses),
            ratio_tags=_exact(algorithm.ratios),
            agreement_tags=_exact(algorithm.agreements),
            needs_gpu=is_cli and backend_of(command) == "cuda",
            probe_applies=False,
            target_steps=target,
            target_source="--max-steps" if target is not None else "",
            metric_roots=directory(command, spec, "--metrics-log-dir"),
            checkpoint_roots=directory(command, spec, "--save-path"),
            checkpoint_asked=bool(command.flag("--save-path")) and not saves_nothing(command),
            start_weights=_start_weights(command, spec),
            **_adapter(command, spec),
            needs_dataset=is_cli,
            algorithm=name,
            algorithm_kind="agentic" if agentic else algorithm.kind,
            sample_globs=tuple(f"{glob.escape(root)}/rollout_samples*.jsonl"
                               for root in directory(command, spec, "--metrics-log-dir")),
            sample_hint="leave ARENO_LOG_COMPLETIONS at 1 or above",
            reward_program=next(iter(directory(command, spec, "--reward-fn-path")), None),
            reward_bounds=(r"^rollout/rewards_min$", r"^rollout/rewards_max$"),
            capacity_settings=kinds.ARENO_CAPACITY, observability_settings=kinds.ARENO_OBSERVABILITY,
            semantic_settings=("*",),
            capacity_first=("a smaller --max-running-prompts (fewer concurrent prompts)",
                            "a smaller --mini-bs or --score-micro-bs (microbatch)"),
        )

    def named_dataset(self, command: TrainingCommand, spec: RunSpec) -> NamedDataset | None:
        """The dataset of `areno train`, also where it names none; None for a program around AReno's API."""
        if Invocation.find(command) is None:
            return None
        name = (command.flag("--algo") or DEFAULT_ALGORITHM).strip().lower()
        kind = ALGORITHMS.get(name, OTHER_ALGORITHM).kind
        checkpoint = spec.workdir / (command.flag("--ckpt") or "")
        return NamedDataset(
            path=command.flag("--dataset-path") or "", algorithm=name,
            kind="agentic" if kind == "rollout" and command.flag("--agent-fn") else kind,
            loader=command.flag("--dataset-loader-fn") or None,
            model_hub=(command.flag("--model-hub") or "modelscope").strip().lower(),
            tokenizer=checkpoint if (checkpoint / "tokenizer_config.json").is_file() else None,
            max_prompt_tokens=number(command, "--max-prompt-tokens"),
            max_new_tokens=number(command, "--max-new-tokens"),
        )

    def read_reports(
        self, environment: Mapping[str, Any], command: TrainingCommand, *, interpreter: Path | None, workdir: Path,
        environ: Mapping[str, str],
    ) -> dict[str, Any]:
        """`areno env --json` and `areno check`, judged by the backend; digests of the checkout's documents."""
        if Invocation.find(command) is None:
            return dict(environment)
        return with_findings(environment, backend_of(command), interpreter=interpreter, workdir=workdir,
                             environ=environ)

    def capacity(self, command: TrainingCommand, spec: RunSpec) -> Capacity | None:
        """Sizes with AReno's defaults; MLX runs one process on one device, whatever the defaults say."""
        if Invocation.find(command) is None:
            return None
        algorithm = ALGORITHMS.get((command.flag("--algo") or DEFAULT_ALGORITHM).strip().lower(), OTHER_ALGORITHM)
        sizes = {name: number(command, "--" + name.replace("_", "-"), default) for name, default in SIZES.items()}
        if backend_of(command) == "mlx":
            sizes |= {"world_size": 1, "tp_size": 1}
        elif command.flag("--train-devices"):
            sizes["world_size"] = devices(command.flag("--train-devices"))
        return Capacity(
            rollout=algorithm.kind == "rollout", rollout_devices=devices(command.flag("--rollout-devices")),
            tunes=algorithm.kind == "rollout" and backend_of(command) == "cuda",
            mem_frac=share(command.flag("--mem-frac")),
            drop_rollout_state=command.flag("--drop-rollout-state") is not None, **sizes)

    def smokes(self, command: TrainingCommand, place: Path, *, gpu: bool) -> tuple[Smoke, ...]:
        """AReno's own smokes where CUDA is; else one step that saves nothing, PPO's actor in it."""
        if Invocation.find(command) is None:
            return ()
        algorithm = ALGORITHMS.get((command.flag("--algo") or DEFAULT_ALGORITHM).strip().lower(), OTHER_ALGORITHM)
        if gpu and backend_of(command) == "cuda":
            flags = SMOKE_FLAGS[::-1] if algorithm.kind == "rollout" else SMOKE_FLAGS[:1]
            return tuple(Smoke(name=flag.strip("-"), words=(flag,)) for flag in flags)
        warmed_up = (algorithm.warmup, "0") if algorithm.warmup else ()
        words = ("--max-steps", "1", "--save-interval", str(NEVER), "--metrics-log-dir",
                 str(place / ONE_STEP / "metrics"))
        return (Smoke(name=ONE_STEP, words=(*words, *warmed_up), executed_tags=(r"^train/",)),)

    def remote_assets(self, command: TrainingCommand, spec: RunSpec) -> tuple[RemoteAsset, ...]:
        """Checkpoints and the dataset that AReno would ask ModelScope for; a subset of a dataset is told elsewhere."""
        if Invocation.find(command) is None:
            return ()
        named = [(flag, "model", command.flag(flag) or "") for flag in CHECKPOINT_FLAGS]
        named.append(("--dataset-path", "dataset", command.flag("--dataset-path") or ""))
        whole = not trains_adapter(command)
        return tuple(
            RemoteAsset(flag=flag, kind=kind, repository=value, is_start=whole and flag == "--ckpt",
                        is_base=not whole and flag == "--ckpt")
            for flag, kind, value in named
            if REPOSITORY.fullmatch(value) and not (spec.workdir / value).exists()
            and not (kind == "dataset" and Path(value).suffix.lower() in DATASET_SUFFIXES))

    def effective_values(self, facts: FrameworkFacts, written: Written) -> dict[str, EffectiveValue]:
        """Every resolved setting, from areno_run_config.PID.json; a key is the name of the setting."""
        values: dict[str, EffectiveValue] = {}
        for path in reversed(effective.find_written(facts.metric_roots, ("areno_run_config.*",), written)):
            sections = (effective.read_json(path).get("settings") or {}).get("sections") or []
            items = {item["key"]: item.get("value") for section in sections for item in section.get("items", [])}
            values |= effective.values_of(items, str(path))
        return values


def _exact(tags: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"^{re.escape(tag)}$" for tag in tags)


def _start_weights(command: TrainingCommand, spec: RunSpec) -> str | None:
    """The directory whose tensors a checkpoint can be compared with, where it is a local one."""
    return _weights(command.flag("--lora-adapter-path" if trains_adapter(command) else "--ckpt"), spec)


def _weights(reference: str | None, spec: RunSpec) -> str | None:
    directory = spec.workdir / reference if reference else None
    return str(directory) if directory and any(directory.glob("*.safetensors")) else None


def _adapter(command: TrainingCommand, spec: RunSpec) -> dict[str, Any]:
    """`base_weights` and `adapter` of the facts."""
    if not trains_adapter(command):
        return {}
    kind = "qlora" if any(command.flag(flag) is not None for flag in ("--qlora", "--q4")) else "lora"
    path = command.flag("--lora-adapter-path")
    return {"base_weights": _weights(command.flag("--ckpt"), spec), "adapter": {
        "kind": kind, "rank": command.flag("--lora-rank"), "alpha": command.flag("--lora-alpha"),
        "target_modules": command.flag("--lora-target-modules"), "path": str(spec.workdir / path) if path else None}}
