"""RunSpec: what was asked, resolved once and never changed afterwards."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

INTERVAL_S = 30.0
FRAMEWORKS = ("areno", "transformers", "trl", "lightning", "torch", "jax", "keras")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """One run as the user asked for it. Paths are absolute; durations are seconds."""

    train_cmd: str
    """The command line as given, with secrets; written to artifacts only through redaction."""
    out_dir: Path
    """Where every artifact goes."""
    workdir: Path
    """Working directory of the trainer."""
    run_id: str
    """Shared by all artifacts of the run."""
    session: str = ""
    """Token of the pytest session that asked; workers of one session share one run by it."""
    built_from: tuple[tuple[str, str], ...] = ()
    """(option, value) of --algo, --ckpt and their kin, which train_cmd was built from; () for a command as given."""
    demo: bool = False
    """The bundled default job."""
    framework: str | None = None
    """Decides the framework where detection would not."""
    hp: tuple[str, ...] = ()
    """Overrides as typed, KEY=VALUE."""
    hp_flags: tuple[str, ...] = ()
    """KEY=--flag, where it cannot be told which flag an override is."""
    max_steps: int | None = None
    """Target and hard cap on trainer steps."""
    max_epochs: int | None = None
    """Hard cap on epochs."""
    cap: str = "program"
    """Who enforces the caps where the program could: "program" or "harness"."""
    early_stop_metric: str | None = None
    """Evaluation metric that early stopping watches; None for no early stopping."""
    early_stop_patience: int = 5
    """Evaluations in a row without an improvement after which the run is stopped."""
    early_stop_mode: str = "auto"
    """"min", "max", or "auto" for what the metric's name says."""
    early_stop_min_delta: float = 0.0
    """A smaller gain over the best is no improvement."""
    checkpoint_dir: Path | None = None
    allow_pickle: bool = False
    """Whether the reload of a checkpoint may unpickle anything, in its child."""
    reload_with: str | None = None
    """FILE.py:FUNCTION of the user, called with the path of the reloaded checkpoint in the reload's child."""
    eval_check: bool = False
    """Whether the program is run once more in its own evaluation mode, on what it saved."""
    reload_timeout_s: float = 300.0
    """What loading a checkpoint may take, with the call of `reload_with`, beside the time to read its bytes."""
    metrics_dir: Path | None = None
    samples: Path | None = None
    """A file of rollout samples, where the adapter cannot tell one."""
    check_resume: bool = False
    """Whether the command is run again to a checkpoint, resumed, and compared with the judged run."""
    reward_check: bool = True
    """Whether the reward function is called again on a recorded sample."""
    expect: tuple[Mapping[str, Any], ...] = ()
    """Reference bands, as judge.bands.Band.to_json gives them."""
    retry_of: Path | None = None
    """Out-dir of the run that this one retries."""
    approve: tuple[str, ...] = ()
    """Settings and parts of the identity that a person lets a retry change."""
    policy: Path | None = None
    """The policy file, for who runs the job again; what it said then is in the next four."""
    policy_digest: str | None = None
    """Its SHA-256."""
    required_gates: tuple[str, ...] = ()
    """Gates that the policy wants judged, also where this run has no need of them."""
    waivers: tuple[Mapping[str, Any], ...] = ()
    """{code, check, reason, until, decision} of the policy, see judge.policy."""
    thresholds: tuple[tuple[str, float], ...] = ()
    """(name, limit) of judge.thresholds that differ from their defaults."""
    loss_tag: str | None = None
    """The tag that is the training loss, where its name does not say so."""
    smoke: str = ""
    """"" for none, "only" for a smoke of the capacity and no run, "first" for one before the run."""
    require_gpu: bool = False
    probe: bool = True
    """Whether the optimizer probe is added to the child's environment."""
    observability: bool = True
    """Whether the harness may add flags that only change what is written."""
    attach: str | None = None
    """What others started and this run watches: a log, `pid:N`, `proc:NAME`, `user@host:path`, `wandb:DIR`."""
    ssh_config: Path | None = None
    """ssh's configuration file for `user@host:path`; None for the user's own."""
    idle_timeout_s: float = 1800.0
    """An attached run is taken for ended when nothing was written for so long."""
    run_timeout_s: float | None = None
    crash_window_s: float = 10.0
    interval_s: float = INTERVAL_S
    """Seconds between progress reports."""
    max_interval_s: float = 300.0
    """So long at most while nothing happens."""
    backoff: bool = True
    """Whether reports become less frequent while nothing happens."""
    fix: bool = True
    """Whether a launch that infrastructure ended may be launched again."""
    stop_on: tuple[str, ...] = ()
    """Kinds of anomalies that stop the run."""
    stop_grace_s: float = 20.0
    """Seconds a trainer has after SIGTERM to its leader, and the group after its SIGTERM."""
    drain_grace_s: float = 30.0
    """Seconds that children may go on after the leader's exit code 0 (uploads, async saves)."""

    def to_json(self) -> dict[str, Any]:
        """JSON-ready mapping; `from_json` is its inverse."""
        return {
            field.name: _plain(getattr(self, field.name)) for field in dataclasses.fields(self)
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RunSpec:
        """Unknown keys are ignored, so that a newer out-dir can still be judged."""
        known = {field.name: field for field in dataclasses.fields(cls)}
        values = {key: value for key, value in data.items() if key in known}
        for key in _PATHS:
            if values.get(key) is not None:
                values[key] = Path(values[key])
        for key in ("hp", "hp_flags", "stop_on", "approve", "expect", "required_gates", "waivers"):
            values[key] = tuple(values.get(key) or ())
        values["built_from"] = tuple((str(name), str(value)) for name, value in values.get("built_from") or ())
        values["thresholds"] = tuple((str(name), float(limit)) for name, limit in values.get("thresholds") or ())
        return cls(**values)


_PATHS = ("out_dir", "workdir", "checkpoint_dir", "metrics_dir", "ssh_config", "samples", "retry_of", "policy")


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    return list(value) if isinstance(value, tuple) else value
