"""Plain PyTorch programs, and every program of which nothing is known.

The source is read, never run; see frameworks.source for which modules are followed.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from harness.command import limits
from harness.command.model import TrainingCommand
from harness.frameworks import effective
from harness.frameworks.base import EffectiveValue, FrameworkFacts, Preparation, Written
from harness.frameworks.settings import Settings
from harness.frameworks.source import Program
from harness.spec import RunSpec

TORCH_LAUNCHERS = ("torchrun",)
DEFAULT_METRIC_DIRS = ("runs", "logs", "lightning_logs", "tb_logs")
"""Where SummaryWriter and the loggers built on it write by default, below the working directory."""
OUTPUT_METRIC_DIRS = ("runs", "logs", "tensorboard")
"""The same below an output directory that the command names."""
DEFAULT_CHECKPOINT_DIR = "checkpoints"
UNAMBIGUOUS_STEP_NAMES = tuple(name for name in limits.STEP_FLAGS if name not in ("steps", "iterations", "num-steps"))
"""Names that mean the length of the run in a config file or as a flag's default, too."""
LOOP_NAMES = tuple(name for name in limits.STEP_FLAGS if name not in UNAMBIGUOUS_STEP_NAMES)
"""Names that mean it as a flag's default where a loop of the program runs to it and no other flag can be its length."""
OTHER_LENGTHS = (*limits.STEP_FLAGS, *limits.EPOCH_FLAGS, "total-timesteps", "timesteps", "total-frames", "max-time")
EPOCH_NAMES = tuple(name.replace("-", "_") for name in limits.EPOCH_FLAGS)
CLIPPING_CALLS = ("clip_grad_norm_", "clip_grad_norm", "clip_grad_value_", "clip_grads_with_norm_", "clip_gradients")
ENGINES = ("deepspeed", "megatron", "colossalai", "fairscale", "apex")
"""They clip gradients by their own configuration."""
HYDRA_OUTPUT = "outputs"
"""Hydra's default directory of runs, below the working directory."""


class TorchAdapter:
    """A program that imports torch. Steps are counted by the optimizer probe."""

    name = "torch"

    def recognise(self, command: TrainingCommand, program: Program) -> str | None:
        """By the imports of the program, or by torch's own launcher."""
        launcher = _torch_launcher(command)
        if launcher is not None:
            return f"launched by {launcher}"
        module = program.importer("torch")
        return f"{program.where(module)} imports torch" if module is not None else None

    def prepare(self, command: TrainingCommand, spec: RunSpec) -> Preparation:
        """Nothing is added: flags of a program that is not known cannot be guessed."""
        return Preparation()

    def facts(self, command: TrainingCommand, spec: RunSpec, reason: str) -> FrameworkFacts:
        """What the command's own flags say, else the places where such programs write by default."""
        return plain_facts(self.name, command, spec, reason)

    def effective_values(self, facts: FrameworkFacts, written: Written) -> dict[str, EffectiveValue]:
        """The composed config of a Hydra app."""
        found = effective.find_written(facts.metric_roots, ("config.yaml",), written)
        composed = [path for path in found if path.parent.name == ".hydra"]
        return effective.config_values(composed[0]) if composed else {}


class UnknownAdapter:
    """The fallback. The probe stays, since it does nothing in a process that does not import torch."""

    name = "unknown"

    def recognise(self, command: TrainingCommand, program: Program) -> str | None:
        """Every command."""
        if command.entrypoint is None:
            return "no script whose imports could tell the framework"
        return f"no framework is told by the imports of {command.entrypoint.name}"

    def prepare(self, command: TrainingCommand, spec: RunSpec) -> Preparation:
        """Nothing is added."""
        return Preparation()

    def facts(self, command: TrainingCommand, spec: RunSpec, reason: str) -> FrameworkFacts:
        """As for plain PyTorch; none of it claims that torch is there."""
        return plain_facts(self.name, command, spec, reason)


def _torch_launcher(command: TrainingCommand) -> str | None:
    launcher_words = command.argv[: len(command.argv) - len(command.script_args)]
    for word in launcher_words:
        if Path(word).name in TORCH_LAUNCHERS:
            return Path(word).name
        if word in ("torch.distributed.run", "torch.distributed.launch"):
            return f"python -m {word}"
    return None


def plain_facts(name: str, command: TrainingCommand, spec: RunSpec, reason: str) -> FrameworkFacts:
    """What flags, config file and literal defaults say of any program, and where such programs write by default."""
    settings = Settings(command, spec.workdir)
    limit = limits.step_limit(command) or _stated_limit(settings)
    save_dirs = stated_directories(settings, spec, limits.SAVE_DIR_FLAGS)
    output_dirs = stated_directories(settings, spec, limits.OUTPUT_DIR_FLAGS)
    given = (spec.checkpoint_dir,) if spec.checkpoint_dir else ()
    by_name = _places_by_name(settings, spec)
    checkpoint_roots = (
        *((*given, *save_dirs, *output_dirs) or (spec.workdir / DEFAULT_CHECKPOINT_DIR,)), *by_name)
    resume = limits.resume_point(command, spec.workdir, checkpoint_roots)
    start = resume or limits.start_point(command, spec.workdir)
    hydra = _hydra_directory(command, spec, settings)
    epochs = settings.first(EPOCH_NAMES)
    metric_roots = (*_metric_roots(settings, spec, (*save_dirs, *output_dirs)), *hydra)
    guesses = _guesses(settings, spec, (*save_dirs, *output_dirs, *given, *by_name), metric_roots)
    return FrameworkFacts(
        name=name,
        reason=reason,
        target_steps=limit[0] if limit else None,
        target_source=limit[1] if limit else "",
        target_epochs=epochs.whole,
        target_epochs_source=epochs.source if epochs.whole else "",
        metric_roots=_absolute((*metric_roots, *guesses)),
        metric_guesses=_absolute(guesses),
        checkpoint_roots=_absolute((*checkpoint_roots, *hydra)),
        checkpoint_asked=bool(given or save_dirs),
        clips_gradients=_clips(settings.program) if name == "torch" else None,
        resume_from=str(resume) if resume else None,
        start_weights=str(start) if start else None,
    )


def _clips(program: Program) -> bool | None:
    """Whether the program limits its gradients; None where it leaves that to an engine, or was not read whole."""
    if program.does_call(*CLIPPING_CALLS):
        return True
    is_told = bool(program.modules) and not program.truncated and program.importer(*ENGINES) is None
    return False if is_told else None


def _stated_limit(settings: Settings) -> tuple[int, str] | None:
    """The length of the run where a config file or the default of a flag says it."""
    stated = settings.first(UNAMBIGUOUS_STEP_NAMES)
    if stated.whole is not None:
        return stated.whole, stated.source
    flags = settings.program.flags()
    lengths = [name for name in OTHER_LENGTHS if name.replace("-", "_") in flags]
    if len(lengths) != 1 or lengths[0] not in LOOP_NAMES:
        return None
    default = settings.get(lengths[0].replace("-", "_"))
    bounds = settings.program.bounds_a_loop(lengths[0].replace("-", "_"))
    return (default.whole, default.source) if default.whole is not None and bounds else None


def _hydra_directory(command: TrainingCommand, spec: RunSpec, settings: Settings) -> tuple[Path, ...]:
    if settings.program.importer("hydra") is None:
        return ()
    given = [word.partition("=")[2] for word in command.script_args if word.startswith("hydra.run.dir=")]
    return (spec.workdir / (given[-1] if given and "$" not in given[-1] else HYDRA_OUTPUT),)


def stated_directories(settings: Settings, spec: RunSpec, names: Iterable[str]) -> tuple[Path, ...]:
    """Directories that the flags name; else those of the config file, or the defaults of the program's own flags."""
    names = tuple(names)
    given = limits.directories(settings.command, spec.workdir, names)
    if given:
        return given
    stated = [settings.get(name.replace("-", "_")).text for name in names]
    return tuple(dict.fromkeys(spec.workdir / text for text in stated if text and not set("$:{") & set(text)))


def _places_by_name(settings: Settings, spec: RunSpec) -> tuple[Path, ...]:
    """Where flags of own names may make the program save: those given, else the defaults of its own flags."""
    given = limits.output_places(settings.command, spec.workdir)
    names = sorted(name for name in settings.program.flags() if limits.is_output_name(name))
    stated = [settings.get(name).text for name in names]
    return given or tuple(spec.workdir / text for text in stated if text and limits.is_place(text))


def _named_metric_dirs(settings: Settings, spec: RunSpec) -> tuple[Path, ...]:
    given = (spec.metrics_dir,) if spec.metrics_dir else ()
    return (*given, *stated_directories(settings, spec, limits.METRIC_DIR_FLAGS))


def _metric_roots(settings: Settings, spec: RunSpec, written_to: tuple[Path, ...]) -> tuple[Path, ...]:
    """Where metrics are named to be; else the usual directories of what is written to, and the defaults."""
    below_output = tuple(root / name for root in written_to for name in OUTPUT_METRIC_DIRS)
    defaults = tuple(spec.workdir / name for name in DEFAULT_METRIC_DIRS)
    return _named_metric_dirs(settings, spec) or (*below_output, *defaults)


def _guesses(
    settings: Settings, spec: RunSpec, saved: tuple[Path, ...], known: tuple[Path, ...]
) -> tuple[Path, ...]:
    """Where it saves, if nothing names a place of metrics. A name with a suffix is a file's, which holds none."""
    if _named_metric_dirs(settings, spec):
        return ()
    return tuple(place for place in saved if not place.suffix and place not in known)


def _absolute(paths: tuple[Path, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(path) for path in paths))
