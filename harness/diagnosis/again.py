"""The exact command that runs a job again as the retry of a run: what was asked of that run, as options of pytest."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from harness.record.run_record import RunRecord
from harness.spec import RunSpec

_TEXTS = ("max_steps", "max_epochs", "early_stop_metric", "checkpoint_dir", "metrics_dir", "samples", "loss_tag",
          "framework", "policy", "reload_with")
_CHANGED = {"cap": "cap", "early_stop_patience": "early-stop-patience", "early_stop_mode": "early-stop-mode",
            "early_stop_min_delta": "early-stop-min-delta", "crash_window_s": "crash-window",
            "stop_grace_s": "stop-grace", "drain_grace_s": "drain-grace", "reload_timeout_s": "reload-timeout"}
"""Fields that have a default, with the option that sets each."""
_SWITCHES = {"require_gpu": True, "check_resume": True, "allow_pickle": True, "eval_check": True, "probe": False,
             "observability": False, "reward_check": False, "fix": False}
"""Switches, and what a field is once its option was given; one that turns something off is called --no-...."""


def retry_words(record: RunRecord) -> tuple[str, ...]:
    """Words behind `pytest ... -m real_step`, the program's own command last; () for a run that others started.

    The retry takes the same out-dir, where the run before is kept below attempts/. A retry that was refused names the
    run that it was to retry. --run-timeout is left out: where it ended the run, it would end the next one too. The file
    of --policy is read again, as it is then.
    """
    spec = record.spec
    if spec.attach is not None or record.last("asserted") is not None or not (spec.train_cmd or spec.demo):
        return ()
    refused = record.last("attempt-started") is None and record.fact("retry", "of")
    place = str(spec.out_dir)
    words = ["--retry-of", str(refused) if refused else place, "--out-dir", place, *_asked(spec)]
    return (*words, "--demo") if spec.demo else (*words, "--train-cmd", spec.train_cmd)


def retry_command(words: Iterable[str], overrides: str = "") -> str:
    """The whole command, for a shell; `overrides` are words that a fix adds, ready for one, in place of what was asked
    of the same setting."""
    added = {word.partition("=")[0] for word in shlex.split(overrides) if "=" in word}
    kept: list[str] = []
    for word in words:
        if kept and kept[-1] == "--hp" and word.partition("=")[0] in added:
            kept.pop()
        else:
            kept.append(word)
    return f"pytest --pyargs harness.acceptance -m real_step {shlex.join(kept)}{overrides}"


def _asked(spec: RunSpec) -> list[str]:
    words = ["--workdir", str(spec.workdir)]
    for name in _TEXTS:
        if (value := getattr(spec, name)) is not None:
            words += [_option(name), str(value)]
    plain = RunSpec(train_cmd="", out_dir=spec.out_dir, workdir=spec.workdir, run_id="")
    for name, option in _CHANGED.items():
        if (value := getattr(spec, name)) != getattr(plain, name):
            words += [f"--{option}", f"{value:g}" if isinstance(value, float) else str(value)]
    words += [_option(name) if given else f"--no-{name.replace('_', '-')}"
              for name, given in _SWITCHES.items() if getattr(spec, name) is given]
    for option, values in (("--hp", spec.hp), ("--hp-flag", spec.hp_flags), ("--stop-on", spec.stop_on)):
        words += [word for value in values for word in (option, value)]
    for band in spec.expect:
        signs = (">", "<") if band.get("strict") else (">=", "<=")
        for sign, limit in zip(signs, (band.get("lower"), band.get("upper")), strict=True):
            words += ["--expect", f"{band.get('expect')}{sign}{limit:.15g}"] if limit is not None else []
    return words


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")
