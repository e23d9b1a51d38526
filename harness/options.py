"""The only reader of pytest options and ini keys: resolves them once into a Request."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from harness.attach.target import parse_target
from harness.checkpoints.function import parse_function
from harness.command.overrides.model import parse_requests
from harness.errors import ConfigError
from harness.judge.asked import asked_of
from harness.record.vocabulary import AnomalyType
from harness.spec import FRAMEWORKS, INTERVAL_S, RunSpec

DEFAULT_OUT_DIR = "reports/train-run"
DEMO_STEPS = 300
DEMO_INTERVAL_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option of the command line, which is an ini key of the same name with `real_step_` before it."""

    flag: str
    help: str
    kind: type
    """str, int, float, bool (a switch) or list (repeatable; one a line in the ini file)."""
    choices: tuple[str, ...] | None = None
    default: str = ""
    """As the help shows it."""

    @property
    def dest(self) -> str:
        """Attribute name, unlikely to meet another plugin's."""
        return "real_step_" + self.flag.strip("-").replace("-", "_")


OPTIONS = (
    Option(flag="--train-cmd", kind=str, help="the training command to launch and judge"),
    Option(flag="--demo", kind=bool, help="launch the bundled default job: a small model that learns addition on CPU"),
    Option(flag="--run", kind=str, help="judge the run that lies in this out-dir; nothing is launched"),
    Option(flag="--attach", kind=str,
           help="watch and judge what others started: a log, pid:N, proc:NAME, user@host:path, wandb:DIR, mlflow:DIR"),
    Option(flag="--algo", kind=str, help="build the `areno train` command of this algorithm: sft, dpo, gspo, grpo or "
           "ppo; the options up to --save-path belong to it, every other setting to --hp"),
    Option(flag="--ckpt", kind=str, help="--algo: checkpoint to start from, a directory or a ModelScope id"),
    Option(flag="--dataset-path", kind=str, help="--algo: dataset, a file, a directory or a ModelScope id"),
    Option(flag="--dataset-loader-fn", kind=str, help="--algo: FILE[:FUNCTION] that makes the rows"),
    Option(flag="--reward-fn-path", kind=str, help="--algo: file that defines reward_fn(record)"),
    Option(flag="--agent-fn", kind=str, help="--algo: file that defines run_agent(ctx, batch)"),
    Option(flag="--save-path", kind=str, help="--algo: where checkpoints are saved"),
    Option(flag="--hp", kind=list, help="hyperparameter override KEY=VALUE, placed where it takes effect (repeatable)"),
    Option(flag="--hp-flag", kind=list, help="KEY=--flag: which flag an override is, when that cannot be told"),
    Option(flag="--max-steps", kind=int, help="target of the run and hard cap on its steps"),
    Option(flag="--max-epochs", kind=int, help="hard cap on the run's epochs"),
    Option(flag="--cap", kind=str, choices=("program", "harness"), default="program",
           help="who enforces the caps: the program's own flag, or the harness, which keeps the schedule"),
    Option(flag="--early-stop-metric", kind=str, help="stop the run when this evaluation metric improves no more"),
    Option(flag="--early-stop-patience", kind=int, default="5",
           help="evaluations in a row without an improvement before the stop"),
    Option(flag="--early-stop-mode", kind=str, choices=("auto", "min", "max"), default="auto",
           help="whether the metric should fall or rise, when its name does not say so"),
    Option(flag="--early-stop-min-delta", kind=float, default="0", help="a smaller gain is no improvement"),
    Option(flag="--checkpoint-dir", kind=str, help="where the run saves",
           default="from the command, else ./checkpoints"),
    Option(flag="--metrics-dir", kind=str, help="where the run writes metric files, when the command does not tell"),
    Option(flag="--samples", kind=str, help="a JSON-lines or Parquet file of rollout samples, when the run writes none "
           "where the adapter looks"),
    Option(flag="--check-resume", kind=bool, help="run the command again to a checkpoint, resume it, and compare"),
    Option(flag="--no-reward-check", kind=bool, help="do not call the reward function again on a recorded sample"),
    Option(flag="--loss-tag", kind=str, help="the tag that is the training loss, when its name does not say so"),
    Option(flag="--out-dir", kind=str, help="where all artifacts go", default=DEFAULT_OUT_DIR),
    Option(flag="--run-id", kind=str, help="identifies the run in every artifact", default="generated"),
    Option(flag="--workdir", kind=str, help="working directory of the trainer", default="the current one"),
    Option(flag="--framework", kind=str, help="the trainer's framework, when detection errs", choices=FRAMEWORKS),
    Option(flag="--run-timeout", kind=float, help="stop the run after this many seconds", default="none"),
    Option(flag="--crash-window", kind=float, help="seconds in which an early death is called a crash at start",
           default="10"),
    Option(flag="--stop-grace", kind=float, help="seconds between SIGTERM to the leader, SIGTERM to the group, SIGKILL",
           default="20"),
    Option(flag="--drain-grace", kind=float, help="seconds that children may go on after exit code 0", default="30"),
    Option(flag="--interval", kind=float, help="seconds between progress lines", default="30"),
    Option(flag="--idle-timeout", kind=float, help="--attach: seconds without output that end the watch",
           default="1800"),
    Option(flag="--ssh-config", kind=str, help="--attach user@host:path: ssh's configuration file"),
    Option(flag="--max-interval", kind=float, help="seconds between progress lines while nothing happens",
           default="300"),
    Option(flag="--no-backoff", kind=bool, help="keep --interval also while nothing happens"),
    Option(flag="--no-fix", kind=bool, help="never restart the run, also where infrastructure ended it"),
    Option(flag="--stop-on", kind=list, help="stop the run at an anomaly of this kind, which is only recorded else "
           f"(repeatable): {', '.join(kind.value for kind in AnomalyType)}"),
    Option(flag="--require-gpu", kind=bool, help="fail the environment gate where no GPU is visible"),
    Option(flag="--no-probe", kind=bool, help="do not add the optimizer probe to the trainer's environment"),
    Option(flag="--no-observability", kind=bool, help="add no flag that changes what the trainer writes"),
    Option(flag="--allow-pickle", kind=bool, help="let the reload of a checkpoint run code from it, in its child"),
    Option(flag="--reload-with", kind=str, help="FILE.py:FUNCTION, called with the path of the reloaded checkpoint in "
           "its child: returns {metric: number}, held against what the run logged, or the model's outputs"),
    Option(flag="--eval-check", kind=bool, help="run the program once more, in its own evaluation mode, on what it "
           "saved, and hold that against what the run logged; it may write where it is told to write by other means "
           "than its output directory, such as a file in the working directory"),
    Option(flag="--reload-timeout", kind=float, help="seconds for a reload and --reload-with", default="300"),
    Option(flag="--expect", kind=list, help='a reference band such as "train/loss@100<=2.4" or '
           '"median(tokens_per_s[50:])>=1200", or a TOML file of them (repeatable)'),
    Option(flag="--policy", kind=str, help="a TOML file of thresholds, required gates, and waivers with an end"),
    Option(flag="--retry-of", kind=str, help="out-dir of the run that this one retries; only capacity may differ"),
    Option(flag="--approve", kind=list, help="--retry-of: a setting, or a part of the identity, that may differ "
           "(repeatable)"),
    Option(flag="--accept-conditional", kind=bool, help="let an unproven run pass the tests"),
)

BUILD = ("algo", "ckpt", "dataset_path", "dataset_loader_fn", "reward_fn_path", "agent_fn", "save_path")
"""What a command is built from: together one source of a run."""
SOURCES = ("train_cmd", "demo", "run", "attach", *BUILD)
WITHOUT_LAUNCH = (*SOURCES, "accept_conditional", "expect", "policy")
"""What has a meaning for a run that is there; every other option is for a launch."""
ATTACH_ONLY = ("idle_timeout", "ssh_config")
WITHOUT_CONTROL = (
    *WITHOUT_LAUNCH, *ATTACH_ONLY, "out_dir", "run_id", "workdir", "framework", "max_steps", "metrics_dir",
    "checkpoint_dir", "loss_tag", "interval", "max_interval", "no_backoff",
)
"""What has a meaning for a run that is watched and never touched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What this session is to judge: a run to launch (`spec`) or one that is there (`run_dir`)."""

    spec: RunSpec | None
    run_dir: Path | None
    accept_conditional: bool
    asked: Mapping[str, Any] = field(default_factory=dict)
    """Bands and policy for a run that is there, instead of its own."""

    @property
    def out_dir(self) -> Path:
        """Where the artifacts lie."""
        place = self.spec.out_dir if self.spec else self.run_dir
        assert place is not None
        return place


def add_options(parser: pytest.Parser) -> None:
    """Declare every option and its ini key."""
    group = parser.getgroup("real_step", "real training runs (pytest-real-step)")
    for option in OPTIONS:
        text = option.help + (f" (default: {option.default})" if option.default else "")
        if option.kind is bool:
            group.addoption(option.flag, dest=option.dest, action="store_true", default=None, help=text)
            parser.addini(option.dest, text, type="bool", default=False)
        elif option.kind is list:
            group.addoption(option.flag, dest=option.dest, action="append", default=None, help=text)
            parser.addini(option.dest, text, type="linelist", default=[])
        else:
            group.addoption(option.flag, dest=option.dest, type=option.kind, choices=option.choices, default=None,
                            help=text)
            parser.addini(option.dest, text, type="string", default="")


def values_of(config: pytest.Config) -> dict[str, Any]:
    """Option name (without dashes) -> value: the command line, else the ini key, else None.

    A source on the command line replaces every source of the ini file; what a command is built from is one source,
    whose parts may stand in both.
    """
    given = {_name(option): config.getoption(option.dest, None) for option in OPTIONS}
    typed = {name for name in SOURCES if given[name] is not None}
    replaced = set(SOURCES) - (set(BUILD) if typed <= set(BUILD) else set()) if typed else set()
    for option in OPTIONS:
        name = _name(option)
        if given[name] is None and name not in replaced:
            given[name] = _ini(config, option)
    _refuse_idle_options(config, given)
    if config.getoption("dist", "no") != "no":
        _refuse_undecodable(given)
    return given


def _refuse_undecodable(given: Mapping[str, Any]) -> None:
    """pytest-xdist sends the command line to its workers as UTF-8; anything else is an internal error there."""
    for name, value in given.items():
        texts = value if isinstance(value, list) else [value] if isinstance(value, str) else []
        try:
            "".join(texts).encode()
        except UnicodeEncodeError as error:
            raise ConfigError(f"--{name.replace('_', '-')} holds bytes that are not UTF-8, which pytest-xdist cannot "
                              "send to its workers: run without -n") from error


def _refuse_idle_options(config: pytest.Config, given: Mapping[str, Any]) -> None:
    """On the command line they would be ignored silently; ini keys may stand for other sessions."""
    typed = [option for option in OPTIONS if config.getoption(option.dest, None) is not None]
    if given["run"] is not None:
        what, idle = "--run judges a run that is there", [o for o in typed if _name(o) not in WITHOUT_LAUNCH]
    elif given["attach"] is not None:
        what, idle = "--attach only watches", [o for o in typed if _name(o) not in WITHOUT_CONTROL]
    else:
        what, idle = "nothing is attached to", [o for o in typed if _name(o) in ATTACH_ONLY]
    if idle:
        flags = ", ".join(option.flag for option in idle)
        raise ConfigError(f"{what}, so {flags} would do nothing: leave it out, or launch a run with --train-cmd")


def _name(option: Option) -> str:
    return option.flag.strip("-").replace("-", "_")


def _ini(config: pytest.Config, option: Option) -> Any:
    value = config.getini(option.dest)
    if option.kind is bool:
        return bool(value) or None
    if value in ("", None, []):
        return None
    if option.kind is list:
        return list(value)
    try:
        return option.kind(value)
    except ValueError as error:
        raise ConfigError(f"ini key {option.dest} = {value!r}: not a {option.kind.__name__}") from error


def resolve(
    values: Mapping[str, Any], *, invocation_dir: Path, session: str, new_run_id: Callable[[], str]
) -> Request | None:
    """The Request, or None when no source of a run was given. ConfigError names the option and the remedy."""
    given = [name for name in SOURCES if values.get(name) is not None]
    if not given:
        return None
    if len(given) > 1 and not set(given) <= set(BUILD):
        names = " and ".join("--" + name.replace("_", "-") for name in given)
        raise ConfigError(f"{names}: give exactly one of them")
    accept = bool(values.get("accept_conditional"))
    if given == ["run"]:
        from harness.record import outdir

        run_dir = _directory(values["run"], invocation_dir, "--run")
        if not ((run_dir / outdir.RUN_SPEC).exists() or outdir.is_held(run_dir)):
            raise ConfigError(f"--run {values['run']}: holds no run of this harness (no {outdir.RUN_SPEC}); "
                              "give the --out-dir of a run, or judge logs with `python -m harness judge --log FILE`")
        asked = asked_of(values.get("expect"), values.get("policy"), invocation_dir)
        return Request(spec=None, run_dir=run_dir, accept_conditional=accept, asked=asked)
    if given == ["train_cmd"] and not str(values["train_cmd"]).strip():
        raise ConfigError('--train-cmd is empty: give the command that trains, such as --train-cmd "python train.py"')
    if given == ["attach"]:
        values = {name: value if name in WITHOUT_CONTROL else None for name, value in values.items()}
        parse_target(str(values["attach"]), _under(invocation_dir, values.get("workdir") or "."))
    parse_requests(values.get("hp") or (), values.get("hp_flag") or ())
    spec = _spec(values, invocation_dir, session, new_run_id())
    return Request(spec=spec, run_dir=None, accept_conditional=accept)


def _spec(values: Mapping[str, Any], here: Path, session: str, run_id: str) -> RunSpec:
    demo = bool(values.get("demo"))
    out_dir = _under(here, values.get("out_dir") or DEFAULT_OUT_DIR)
    max_steps = _positive(values, "max_steps")
    optional: dict[str, Any] = {
        "run_timeout_s": _positive(values, "run_timeout"),
        "crash_window_s": _positive(values, "crash_window", zero=True),
        "stop_grace_s": _positive(values, "stop_grace", zero=True),
        "drain_grace_s": _positive(values, "drain_grace", zero=True),
        "early_stop_patience": _positive(values, "early_stop_patience"),
        "early_stop_min_delta": _positive(values, "early_stop_min_delta", zero=True),
        "interval_s": _positive(values, "interval") or (DEMO_INTERVAL_S if demo else None),
        "max_interval_s": _positive(values, "max_interval"),
        "idle_timeout_s": _positive(values, "idle_timeout"),
        "reload_timeout_s": _positive(values, "reload_timeout"),
    }
    interval, longest = optional["interval_s"] or INTERVAL_S, optional["max_interval_s"]
    if longest is not None and longest < interval:
        raise ConfigError(f"--max-interval {longest:g} is below --interval {interval:g}: give one that is longer")
    built_from = {name: str(values[name]) for name in BUILD if values.get(name) is not None}
    train_cmd = values.get("train_cmd") or ""
    if demo:
        train_cmd = demo_command(out_dir, run_id, max_steps or DEMO_STEPS)
    elif built_from:
        from harness.frameworks.areno_build import build_command

        train_cmd = build_command(built_from, values.get("hp") or (), here=here,
                                  workdir=_under(here, values.get("workdir") or "."))
    return RunSpec(
        train_cmd=train_cmd,
        built_from=tuple(built_from.items()),
        smoke=str(values.get("smoke") or ""),
        attach=values.get("attach"),
        ssh_config=_under(here, values["ssh_config"]) if values.get("ssh_config") else None,
        out_dir=out_dir,
        workdir=_under(here, values.get("workdir") or "."),
        run_id=run_id,
        session=session,
        demo=demo,
        framework=_one_of(values, "framework", FRAMEWORKS),
        hp=tuple(values.get("hp") or ()),
        hp_flags=tuple(values.get("hp_flag") or ()),
        max_steps=max_steps,
        max_epochs=_positive(values, "max_epochs"),
        early_stop_metric=_early_stop_metric(values),
        early_stop_mode=_one_of(values, "early_stop_mode", ("auto", "min", "max")) or "auto",
        cap=_one_of(values, "cap", ("program", "harness")) or "program",
        checkpoint_dir=_under(here, values["checkpoint_dir"]) if values.get("checkpoint_dir") else None,
        metrics_dir=_under(here, values["metrics_dir"]) if values.get("metrics_dir") else None,
        samples=_under(here, values["samples"]) if values.get("samples") else None,
        check_resume=bool(values.get("check_resume")),
        reward_check=not values.get("no_reward_check"),
        eval_check=bool(values.get("eval_check")),
        loss_tag=values.get("loss_tag") or None,
        retry_of=_retry_of(values, here),
        approve=tuple(dict.fromkeys(values.get("approve") or ())),
        stop_on=_stop_on(values),
        require_gpu=bool(values.get("require_gpu")),
        probe=not values.get("no_probe"),
        observability=not values.get("no_observability"),
        allow_pickle=bool(values.get("allow_pickle")),
        reload_with=parse_function(values["reload_with"], here).word if values.get("reload_with") is not None else None,
        backoff=not values.get("no_backoff"),
        fix=not values.get("no_fix"),
        **asked_of(values.get("expect"), values.get("policy"), here),
        **{name: value for name, value in optional.items() if value is not None},
    )


def _early_stop_metric(values: Mapping[str, Any]) -> str | None:
    """The metric, once it is sure which way it should go. ConfigError asks for --early-stop-mode where it is not."""
    metric = values.get("early_stop_metric")
    if metric is None:
        settings = ("early_stop_patience", "early_stop_mode", "early_stop_min_delta")
        given = [name for name in settings if values.get(name)]
        if given:
            raise ConfigError(f"--{given[0].replace('_', '-')}: there is no --early-stop-metric; give one")
        return None
    if not str(metric).strip():
        raise ConfigError("--early-stop-metric is empty: give the name of an evaluation metric, such as eval_loss")
    from harness.watch.replay import resolve_mode

    resolve_mode(str(metric), values.get("early_stop_mode") or "auto")
    return str(metric)


def _retry_of(values: Mapping[str, Any], here: Path) -> Path | None:
    """The directory of the run before. ConfigError for approvals of nothing."""
    if values.get("retry_of") is None:
        if values.get("approve"):
            raise ConfigError("--approve: nothing is retried; give --retry-of DIR, or leave it out")
        return None
    from harness.record import outdir

    path = _directory(str(values["retry_of"]), here, "--retry-of")
    if not ((path / outdir.RUN_SPEC).exists() or outdir.is_held(path)):
        raise ConfigError(f"--retry-of {values['retry_of']}: holds no run of this harness (no {outdir.RUN_SPEC}); "
                          "give the --out-dir of a run")
    return path


def _stop_on(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Kinds of anomalies, each once."""
    given = tuple(dict.fromkeys(values.get("stop_on") or ()))
    known = [kind.value for kind in AnomalyType]
    for kind in given:
        if kind not in known:
            raise ConfigError(f"--stop-on {kind}: not one of {', '.join(known)}")
    return given


def _one_of(values: Mapping[str, Any], name: str, known: tuple[str, ...]) -> str | None:
    value = values.get(name)
    if value not in (None, *known):
        raise ConfigError(f"--{name.replace('_', '-')} {value}: not one of {', '.join(known)}")
    return value


def _positive(values: Mapping[str, Any], name: str, *, zero: bool = False) -> Any:
    value = values.get(name)
    if value is None:
        return None
    if value != value or value in (float("inf"),) or value < 0 or (value == 0 and not zero):
        raise ConfigError(f"--{name.replace('_', '-')} {value}: give a number above 0")
    return value


def _under(here: Path, path: str) -> Path:
    return (here / Path(path).expanduser()).absolute()


def _directory(value: str, here: Path, flag: str) -> Path:
    if not value.strip():
        raise ConfigError(f"{flag} is empty: give the out-dir of a run")
    path = _under(here, value)
    if not path.is_dir():
        raise ConfigError(f"{flag} {path}: no such directory; give the --out-dir of a run")
    return path


def demo_command(out_dir: Path, run_id: str, max_steps: int) -> str:
    """The bundled default job, writing below the out-dir in a folder of its own."""
    script = Path(str(resources.files("harness.fixtures.trainers") / "tiny_lm.py"))
    place = out_dir / "demo" / run_id
    return shlex.join([
        sys.executable, str(script), "--max-steps", str(max_steps), "--save-dir", str(place / "checkpoints"),
        "--log-dir", str(place / "events"),
    ])
